"""What an account of SCP holds in one region: GPU nodes, and the fabrics and pools that they make.

A pool is gpuform's: nodes of one fabric whose names begin alike, `PREFIX-KEY`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gpuform.providers.actions import Settings
from gpuform.providers.offering import Held
from gpuform.providers.scp.client import client_for
from gpuform.providers.scp.nodes import is_leaving
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.statuses import unix_time

ADDRESS_BY_REGION = True


def held(settings: Settings) -> list[Held]:
    """Two lists, of one region's address."""
    client = client_for(settings)
    nodes = [node for node in client.nodes() if not is_leaving(node.state)]
    return [*map(_node, nodes), *_fabrics(client.fabrics()), *_pools(nodes)]


def _node(node: wire.GpuNode) -> Held:
    return Held(
        "scp",
        "GpuNode",
        node.id,
        node.gpu_node_name,
        region=node.region_id,
        status=node.state,
        owner=node.created_by,
        created_at=unix_time(node.created_at),
        told=_server(node),
    )


def _fabrics(fabrics: Iterable[wire.ClusterFabric]) -> Iterator[Held]:
    for each in fabrics:
        yield Held(
            "scp",
            "Fabric",
            f"{each.node_pool_id}/{each.cluster_name}",
            each.cluster_name,
            region=each.region_id,
            status=each.state,
            owner=each.created_by,
            created_at=unix_time(each.created_at),
            told={"region_id": each.region_id} if each.region_id else {},
            made_of=tuple(node.gpu_node_id for node in each.gpu_node_details),
        )


def _pools(nodes: Iterable[wire.GpuNode]) -> Iterator[Held]:
    grouped: dict[tuple[str, str, str], list[wire.GpuNode]] = defaultdict(list)
    for node in nodes:
        prefix = node.gpu_node_name.rpartition("-")[0]
        if prefix and node.cluster_fabric_name:
            grouped[node.node_pool_id, node.cluster_fabric_name, prefix].append(node)
    for place, members in grouped.items():
        yield Held(
            "scp",
            "NodePool",
            "/".join(place),
            place[-1],
            region=members[0].region_id,
            told=_server(members[0]),
            made_of=tuple(node.id for node in members),
        )


def _server(node: wire.GpuNode) -> dict[str, str]:
    """That `product_type_id` is what a create calls `server_type_id` is our reading."""
    return {"server_type_id": node.product_type_id} if node.product_type_id else {}
