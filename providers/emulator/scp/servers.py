"""What a create makes of one server: its addresses, and what is shown of the request."""

import hashlib
from collections.abc import Sequence
from ipaddress import IPv4Address

from gpuform.providers.emulator.scp.catalogue import IMAGES, PRODUCTS, SUBNETS
from gpuform.providers.emulator.scp.errors import Message, refused
from gpuform.providers.emulator.scp.nodes import GpuNode, Identity, Nat
from gpuform.providers.emulator.scp.requests import CreateGpuNodes, ServerDetails

_PUBLIC = IPv4Address("198.18.0.0")  # of the block for tests, RFC 2544
_PUBLIC_SIZE = 2**17
_STORAGE = IPv4Address("10.252.128.0")  # of the document's examples
_STORAGE_BLOCK = 2**13


class Addresses:
    """The addresses of a create's subnet: those asked for, else the lowest that nobody has."""

    def __init__(self, body: CreateGpuNodes, live: Sequence[GpuNode]) -> None:
        taken = {
            node.identity.policy_ip for node in live if node.identity.network_id == body.subnet_id
        }
        taken |= {server.ip_address for server in body.server_details if server.ip_address}
        hosts = SUBNETS[body.subnet_id].network.hosts()
        self._free = (str(host) for host in hosts if str(host) not in taken)

    def next_for(self, server: ServerDetails) -> str:
        """Raises `ApiError` 400 when the subnet is full."""
        address = server.ip_address or next(self._free, None)
        if address is None:
            raise refused(
                "SubnetIsFull",
                Message(
                    "Subnet에 사용 가능한 IP가 없습니다.", "the subnet has no free IP address left"
                ),
            )
        return address


def identity_of(body: CreateGpuNodes, server: ServerDetails, address: str) -> Identity:
    product = PRODUCTS[server.server_type_id]
    return Identity(
        gpu_node_name=server.gpu_node_name,
        image_id=body.image_id,
        image_version=IMAGES[body.image_id].name,
        init_script=body.init_script or "",
        root_account=body.os_user_id,
        product_type_id=product.product_id,
        server_type=product.name,
        region_id=body.region_id,
        vpc_id=body.vpc_id,
        network_id=body.subnet_id,
        node_pool_id=body.cluster_fabric_details.node_pool_id,
        policy_ip=address,
        pfs_ip=_storage_addresses(body.subnet_id, address),
    )


def nat_of(public_ip_address_id: str) -> Nat:
    """The address behind an id is made up; the same for the same id."""
    digest = hashlib.sha256(public_ip_address_id.encode()).digest()
    offset = int.from_bytes(digest[:4]) % _PUBLIC_SIZE
    return Nat(public_ip_address_id=public_ip_address_id, address=str(_PUBLIC + offset))


def _storage_addresses(subnet_id: str, address: str) -> list[str]:
    """Two for each node, different for all nodes."""
    block = list(SUBNETS).index(subnet_id) * _STORAGE_BLOCK
    offset = int(IPv4Address(address)) - int(SUBNETS[subnet_id].network.network_address)
    return [str(_STORAGE + block + 2 * offset + at) for at in (0, 1)]
