"""What an account of SCP holds in one region: GPU nodes, and the fabrics that they make up."""

from collections.abc import Iterable, Iterator

from gpuform.providers.actions import Settings
from gpuform.providers.inventory import Held
from gpuform.providers.scp.client import client_for
from gpuform.providers.scp.states import is_leaving
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.moments import unix_time


def held(settings: Settings, region: str | None = None) -> list[Held]:
    """Two lists, of the region's address, or of the default region's."""
    client = client_for(settings, region)
    return [*_nodes(client.nodes()), *_fabrics(client.fabrics(), region)]


def _nodes(nodes: Iterable[wire.GpuNode]) -> Iterator[Held]:
    """That a node's `product_type_id` is what a create calls `server_type_id` is our reading."""
    for each in nodes:
        if not is_leaving(each.state):
            server = each.product_type_id
            yield Held(
                "scp",
                "GpuNode",
                each.id,
                each.gpu_node_name,
                region=each.region_id,
                status=each.state,
                created_at=unix_time(each.created_at),
                told={"server_type_id": server} if server else {},
            )


def _fabrics(fabrics: Iterable[wire.ClusterFabric], region: str | None) -> Iterator[Held]:
    for each in fabrics:
        yield Held(
            "scp",
            "Fabric",
            f"{each.node_pool_id}/{each.cluster_name}",
            each.cluster_name,
            region=each.region_id or region or "",
            status=each.state,
            created_at=unix_time(each.created_at),
            told={"region_id": each.region_id} if each.region_id else {},
            bound=True,
        )
