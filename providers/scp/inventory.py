"""List what an account of SCP has and is offered in a region, for commands and for programs.

`providers.catalog` calls `list_existing_objects` for every region's address. A pool is gpuform's:
nodes of one fabric whose names begin alike, `PREFIX-KEY`.

Programs and expressions call the other functions. The credentials are those of the environment,
else of the running program's configuration, else of `~/.scpconf`. `region` chooses the address that
is asked; without it that is the default region's. Every function raises GpuformError when the
platform does not answer, or refuses.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gpuform.providers.catalog import IMAGE, NODE_POOL, REGION, SERVER_TYPE, ExistingObject, Offer
from gpuform.providers.errors import InvalidRequest
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.providers.scp.client import ScpClient, find_default_region, get_client
from gpuform.providers.scp.nodes.planning import is_terminating
from gpuform.providers.scp.offers import AVAILABLE
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.node_rules import REGIONS
from gpuform.schemas.scp.outputs import to_unix_time
from gpuform.schemas.scp.wire import ClusterFabric, GpuNode, Image, Product, VendorPool

ADDRESS_BY_REGION = True


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """List nodes, fabrics and pools in the region of the settings; two lists are requested.

    Nodes that are being deleted are left out.

    Raises:
        GpuformError: SCP does not answer, or refuses.
    """
    client = get_client(settings)
    # A node that is being deleted is nothing that somebody could import or clean up.
    nodes = [node for node in client.list_nodes() if not is_terminating(node.state)]
    return [
        *map(_summarize_node, nodes),
        *_summarize_fabrics(client.list_fabrics()),
        *_group_pools(nodes),
    ]


def _summarize_node(node: wire.GpuNode) -> ExistingObject:
    """Return the node as an object of the account, for imports and for finding orphans."""
    return ExistingObject(
        "scp",
        "GpuNode",
        node.id,
        node.gpu_node_name,
        region=node.region_id,
        status=node.state,
        owner=node.created_by,
        created_at=to_unix_time(node.created_at),
        listed_inputs=_get_server_properties(node),
    )


def _summarize_fabrics(fabrics: Iterable[wire.ClusterFabric]) -> Iterator[ExistingObject]:
    """Yield each fabric as an object of the account, with the member nodes inside."""
    for fabric in fabrics:
        yield ExistingObject(
            "scp",
            "Fabric",
            f"{fabric.node_pool_id}/{fabric.cluster_name}",
            fabric.cluster_name,
            region=fabric.region_id,
            status=fabric.state,
            owner=fabric.created_by,
            created_at=to_unix_time(fabric.created_at),
            listed_inputs={"region_id": fabric.region_id} if fabric.region_id else {},
            part_ids=tuple(node.gpu_node_id for node in fabric.gpu_node_details),
        )


def _group_pools(nodes: Iterable[wire.GpuNode]) -> Iterator[ExistingObject]:
    """Yield one pool for all nodes with equal vendor pool, fabric and name prefix.

    Nodes without a prefix or a fabric belong to no pool. Region and server type are those of the
    first node.
    """
    nodes_by_pool: dict[tuple[str, str, str], list[wire.GpuNode]] = defaultdict(list)
    for node in nodes:
        prefix = node.gpu_node_name.rpartition("-")[0]
        # Without a fabric's name a node belongs to no pool: an import needs all three parts of the
        # id.
        if prefix and node.cluster_fabric_name:
            nodes_by_pool[node.node_pool_id, node.cluster_fabric_name, prefix].append(node)
    for pool_key, members in nodes_by_pool.items():
        yield ExistingObject(
            "scp",
            "NodePool",
            "/".join(pool_key),
            pool_key[-1],
            region=members[0].region_id,
            listed_inputs=_get_server_properties(members[0]),
            part_ids=tuple(node.id for node in members),
        )


def _get_server_properties(node: wire.GpuNode) -> dict[str, str]:
    """Return the `server_type_id` of a node; empty if SCP does not report a product.

    That a node's `product_type_id` is what a create calls `server_type_id` is our reading.
    """
    return {"server_type_id": node.product_type_id} if node.product_type_id else {}


def images(region_id: str) -> Sequence[Image]:
    """List the operating-system images for nodes of a region."""
    return _get_client(region_id).list_images(region_id)


def products(
    type: str | None = None,  # noqa: A002 - the platform's name
    image_id: str | None = None,
    *,
    region: str | None = None,
) -> Sequence[Product]:
    """List the server types; resources call the `id` of a server type server_type_id.

    `type` is such as SCALE, `image_id` an image that the servers run. Server types whose `state` is
    not AVAILABLE are listed, too. `region` None is the default region.
    """
    return _get_client(region).list_products(type, image_id)


def node_pools(
    subnet_id: str | None = None,
    cluster_fabric_id: str | None = None,
    node_pool_id: str | None = None,
    *,
    zone: str | None = None,
    region: str | None = None,
) -> Sequence[VendorPool]:
    """List the vendor's pools, or only the pools of a subnet, a fabric, an id or a zone.

    Version 1.3 of the API has zones, and demands a fabric, or a subnet and a zone. `region` None is
    the default region.
    """
    return _get_client(region).list_node_pools(subnet_id, cluster_fabric_id, node_pool_id, zone)


def fabrics(
    cluster_fabric_name: str | None = None,
    state: str | None = None,
    node_pool_id: str | None = None,
    *,
    region: str | None = None,
) -> Sequence[ClusterFabric]:
    """List the fabrics matching every given value, with members, sorted by name.

    `region` None is the default region.
    """
    return _get_client(region).list_fabrics(
        cluster_fabric_name=cluster_fabric_name, state=state, node_pool_id=node_pool_id
    )


def gpu_nodes(  # noqa: PLR0913 - the document's filters
    gpu_node_name: str | None = None,
    state: str | None = None,
    ip: str | None = None,
    vpc_id: str | None = None,
    cluster_fabric_name: str | None = None,
    cluster_fabric_id: str | None = None,
    *,
    zone: str | None = None,
    region: str | None = None,
) -> Sequence[GpuNode]:
    """List the nodes matching every given value, sorted by name.

    Nodes that SCP shows as TERMINATED are listed only with that `state`. `zone` needs version 1.3
    of the API. `region` None is the default region.
    """
    return _get_client(region).list_nodes(
        gpu_node_name=gpu_node_name,
        state=state,
        ip=ip,
        vpc_id=vpc_id,
        cluster_fabric_name=cluster_fabric_name,
        cluster_fabric_id=cluster_fabric_id,
        zone=zone,
    )


def _get_client(region: str | None) -> ScpClient:
    """Return the client of a region, by the settings of look-ups; None is the default region."""
    return get_client(get_lookup_settings(), region)


_SCP_REGIONS = tuple(dict.fromkeys(region for regions in REGIONS.values() for region in regions))


def list_offers(settings: Settings, regions: Sequence[str]) -> Iterator[Offer]:
    """Yield the offers of SCP's regions named in `regions`, else of the default region.

    If there is no default region either, `regions` with names of other platforms yield nothing.
    Empty `regions` then ask the one address that is set (an override) for server types, vendor
    pools, and the images of every region of SCP, without the regions that the address refuses.

    Raises:
        GpuformError: SCP does not answer, or refuses.
    """
    scp_regions = [name for name in regions if name in _SCP_REGIONS]
    region = find_default_region(settings)
    if scp_regions or region:
        for name in scp_regions or [str(region)]:
            client = get_client(settings, name)
            yield from _list_images(client, name)
            yield from _list_servers_and_pools(client, name)
    elif not regions:
        client = get_client(settings)
        yield from _list_servers_and_pools(client, "")
        for name in _SCP_REGIONS:
            try:
                yield from [*_list_images(client, name)]
            except InvalidRequest:
                continue  # a region of another environment


def _list_images(client: ScpClient, region: str) -> Iterator[Offer]:
    """Request the images of a region; yield an offer for the region, then for each image."""
    yield Offer("scp", REGION, region, "region_id", region)
    for image in client.list_images(region):
        yield Offer("scp", IMAGE, image.id, "image_id", region, image.name)


def _list_servers_and_pools(client: ScpClient, region: str) -> Iterator[Offer]:
    """Request server types and vendor pools of the client's address; yield an offer for each.

    `region` is only written into the offers.
    """
    for product in client.list_products():
        gpu_model = product.product_attrs.gpu_model
        description = ", ".join(filter(None, (product.name, gpu_model)))
        yield Offer(
            *("scp", SERVER_TYPE, product.id, "server_type_id", region, description),
            gpu=gpu_model or product.name,
            # The reference requires no state: the stock is then unknown.
            in_stock=product.state == AVAILABLE if product.state else None,
        )
    # The reference shows no stock of vendor pools ('List node pools').
    for pool_id in _list_pool_ids(client):
        yield Offer("scp", NODE_POOL, pool_id, "node_pool_id", region)


def _list_pool_ids(client: ScpClient) -> list[str]:
    """Request the ids of vendor pools; with zones, only of pools with fabrics of the account."""
    # API 1.3 lists pools only of one fabric, or of one subnet in one zone.
    if client.has_zones:
        return sorted({fabric.node_pool_id for fabric in client.list_fabrics()} - {""})
    return [pool.node_pool_id for pool in client.list_node_pools()]
