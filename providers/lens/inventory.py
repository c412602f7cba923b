"""List what exists in Lens: nothing, because Lens only reports objects of other platforms."""

from gpuform.providers.offering import ExistingObject
from gpuform.providers.operations import Settings


def list_existing_objects(_settings: Settings) -> list[ExistingObject]:
    """Return nothing, without a request."""
    return []
