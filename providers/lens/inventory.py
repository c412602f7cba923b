"""Lens holds nothing: it tells what others have."""

from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings


def held(settings: Settings) -> list[Held]:  # noqa: ARG001 - nothing is asked
    """Nothing, and nothing is asked."""
    return []
