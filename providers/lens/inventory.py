"""List what exists in Lens: nothing, because Lens only reports objects of other platforms."""

from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings


def held(settings: Settings) -> list[Held]:  # noqa: ARG001 - nothing is asked
    """Return nothing, without a request."""
    return []
