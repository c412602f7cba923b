"""List SCP's images, server types, vendor pools, fabrics and nodes for programs and expressions.

The credentials are those of the environment, else of the running program's configuration, else of
`~/.scpconf`. `region` chooses the address that is asked; without it that is the default region's.
Every function raises GpuformError when the platform does not answer, or refuses.
"""

from collections.abc import Sequence

from gpuform.providers.operations import get_lookup_settings
from gpuform.providers.scp.client import ScpClient, get_client
from gpuform.schemas.scp.wire import ClusterFabric, GpuNode, Image, Product, VendorPool


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
