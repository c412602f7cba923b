"""What SCP offers: images of regions, types of servers and their stock, the vendor's node pools."""

from collections.abc import Iterator, Sequence

from gpuform.providers.actions import Settings
from gpuform.providers.errors import InvalidRequest
from gpuform.providers.offering import IMAGE, NODE_POOL, REGION, SERVER_TYPE, Offer
from gpuform.providers.scp.client import ScpClient, client_for, default_region
from gpuform.providers.scp.offers import AVAILABLE
from gpuform.schemas.scp.node_rules import REGIONS
from gpuform.schemas.scp.wire import Product

_KNOWN = tuple(dict.fromkeys(each for regions in REGIONS.values() for each in regions))


def offered(settings: Settings, regions: Sequence[str]) -> Iterator[Offer]:
    """The lists of the regions that are SCP's, each at its address; else of the default region.

    One address that serves all regions is asked for the images of each.
    """
    own = [each for each in regions if each in _KNOWN]
    region = default_region(settings)
    if own or region:
        for each in own or [str(region)]:
            client = client_for(settings, each)
            yield from _images(client, each)
            yield from _servers(client, each)
    elif not regions:
        client = client_for(settings)
        yield from _servers(client, "")
        for each in _KNOWN:
            try:
                yield from [*_images(client, each)]
            except InvalidRequest:
                continue  # a region of another environment


def _images(client: ScpClient, region: str) -> Iterator[Offer]:
    yield Offer("scp", REGION, region, "region_id", region)
    for image in client.images(region):
        yield Offer("scp", IMAGE, image.id, "image_id", region, image.name)


def _servers(client: ScpClient, where: str) -> Iterator[Offer]:
    for product in client.products():
        model = product.product_attrs.gpu_model
        about = ", ".join(filter(None, (product.name, model)))
        yield Offer(
            *("scp", SERVER_TYPE, product.id, "server_type_id", where, about),
            gpu=model or product.name,
            in_stock=_in_stock(product),
        )
    for pool in client.node_pools():
        yield Offer("scp", NODE_POOL, pool.node_pool_id, "node_pool_id", where)


def _in_stock(product: Product) -> bool | None:
    return product.state == AVAILABLE if product.state else None
