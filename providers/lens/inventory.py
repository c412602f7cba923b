"""Lens holds nothing: it tells what others have."""

from gpuform.providers.actions import Settings
from gpuform.providers.inventory import Held


def held(settings: Settings, region: str | None = None) -> list[Held]:  # noqa: ARG001 - no object
    """Nothing, and nothing is asked."""
    return []
