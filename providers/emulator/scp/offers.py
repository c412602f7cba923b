"""What can be had: images, products and the vendor's node pools. These lists have no pages."""

from typing import Any

from werkzeug.datastructures import MultiDict

from gpuform.providers.emulator.scp.catalogue import (
    POOLS,
    REGIONS,
    Pool,
    offered_images,
    offered_products,
)
from gpuform.providers.emulator.scp.errors import Message, refused
from gpuform.providers.emulator.scp.estate import Estate
from gpuform.providers.emulator.scp.queries import given

Args = MultiDict[str, str]


def images(args: Args) -> dict[str, Any]:
    """Raises `ApiError` 400 without a known region."""
    region = given(args, "region_id").get("region_id")
    if region not in REGIONS:
        known = ", ".join(REGIONS)
        raise refused(
            "InvalidParameter",
            Message(f"region_id: 필수 항목입니다({known}).", f"region_id: one of {known}"),
        )
    return {"images": [image.view() for image in offered_images(region)]}


def products(args: Args) -> dict[str, Any]:
    asked = given(args, "type", "image_id")
    found = offered_products(asked.get("type"), asked.get("image_id"))
    return {"products": [product.view() for product in found]}


def node_pools(args: Args, estate: Estate) -> dict[str, Any]:
    asked = given(args, "subnet_id", "cluster_fabric_id", "node_pool_id")
    found = [_pool_view(pool, asked, estate) for pool in POOLS.values()]
    pools = [view for view in found if view is not None]
    return {"count": len(pools), "node_pools": pools}


def _pool_view(pool: Pool, asked: dict[str, str], estate: Estate) -> dict[str, Any] | None:
    """None for a pool that was not asked for."""
    fabrics = [each for each in estate.fabrics() if each.node_pool_id == pool.pool_id]
    fits = (
        asked.get("node_pool_id") in {None, pool.pool_id},
        asked.get("subnet_id") in {None, *pool.subnets},
        asked.get("cluster_fabric_id") in {None, *(each.fabric_id for each in fabrics)},
    )
    if not all(fits):
        return None
    details = [each.details() for each in fabrics]
    return {"cluster_fabric_details": details, "node_pool_id": pool.pool_id}
