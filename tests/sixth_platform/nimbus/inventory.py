"""What an account of Nimbus holds."""

from gpuform.providers.offering import ExistingObject
from gpuform.providers.operations import Settings
from nimbus.client import get_client


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """All clusters, without those that are being deleted."""
    return [
        ExistingObject(
            "nimbus", "Cluster", each.id, each.name, region=each.region, status=each.status
        )
        for each in get_client(settings).clusters()
        if each.status != "deleting"
    ]
