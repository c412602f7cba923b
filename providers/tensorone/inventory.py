"""What an account of TensorOne holds: all clusters that the key may see."""

from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.client import client_for
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.statuses import ClusterStatus, unix_time


def held(settings: Settings) -> list[Held]:
    """As many lists as there are pages; the cost is the current hourly rate."""
    found = (each.cluster for each in client_for(settings).clusters())
    return [_held(each) for each in found if each.status != ClusterStatus.DELETING]


def _held(each: wire.Cluster) -> Held:
    cost = each.cost or wire.Cost()
    project = each.project_info
    return Held(
        "tensorone",
        "Cluster",
        each.id,
        each.name,
        region=(each.configuration and each.configuration.region) or "",
        tags=each.tags,
        status=each.status,
        owner=project.owner_email or project.owner_id or "",
        created_at=unix_time(each.created_at),
        hourly_cost=cost.current_hourly_rate,
        currency=cost.currency or "",
    )
