"""List the clusters that exist in an account of Nimbus."""

from gpuform.providers.catalog import ExistingObject
from gpuform.providers.operations import Settings
from nimbus.client import get_client


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """Return all clusters, without clusters that are being deleted."""
    return [
        ExistingObject(
            "nimbus",
            "Cluster",
            cluster.id,
            cluster.name,
            region=cluster.region,
            status=cluster.status,
        )
        for cluster in get_client(settings).list_clusters()
        if cluster.status != "deleting"
    ]
