"""What an account of Nimbus holds."""

from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings
from nimbus.client import client_for


def held(settings: Settings) -> list[Held]:
    """All clusters, without those that are being deleted."""
    return [
        Held("nimbus", "Cluster", each.id, each.name, region=each.region, status=each.status)
        for each in client_for(settings).clusters()
        if each.status != "deleting"
    ]
