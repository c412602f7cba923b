"""List what SCP offers: images, server types and their stock, and the vendor's node pools.

`providers.catalog` calls `list_offers` for overviews of all platforms.
"""

from collections.abc import Iterator, Sequence

from gpuform.providers.catalog import IMAGE, NODE_POOL, REGION, SERVER_TYPE, Offer
from gpuform.providers.errors import InvalidRequest
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client import ScpClient, find_default_region, get_client
from gpuform.providers.scp.offers import AVAILABLE
from gpuform.schemas.scp.node_rules import REGIONS
from gpuform.schemas.scp.wire import Product

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
            in_stock=_is_in_stock(product),
        )
    # The reference shows no stock of vendor pools ('List node pools').
    for pool_id in _list_pool_ids(client):
        yield Offer("scp", NODE_POOL, pool_id, "node_pool_id", region)


def _list_pool_ids(client: ScpClient) -> list[str]:
    """Request the ids of vendor pools; with zones only those of the account's fabrics."""
    # API 1.3 lists pools only of one fabric, or of one subnet in one zone.
    if client.has_zones:
        return sorted({fabric.node_pool_id for fabric in client.list_fabrics()} - {""})
    return [pool.node_pool_id for pool in client.list_node_pools()]


def _is_in_stock(product: Product) -> bool | None:
    """Return True if SCP calls the product AVAILABLE; None if SCP does not report the state."""
    return product.state == AVAILABLE if product.state else None
