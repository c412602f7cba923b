"""List what each region of the emulated SCP offers, and build SCP's error answers.

`requests`, `creating` and `queries` read this module. The document's example ids are here; the rest
is plausible.

All modules of `scp` raise the errors; `routes` answers them in the language of the request.
"""

import ipaddress
from dataclasses import dataclass
from http.client import responses
from typing import Any

from gpuform.providers.emulator.routing import Refusal

ACCOUNT_ID = "f5c8e56a4d9b49a8bd89e14758a32d53"
USER_ID = "90dddfc2b1e04edba54ba2b41539a9ac"
_SINCE = "2024-05-17T00:23:17Z"


@dataclass(frozen=True)
class Image:
    """An image of an operating system; `priority` orders the list."""

    image_id: str
    name: str
    os_distro: str
    os_version: str
    regions: tuple[str, ...]
    priority: int

    def to_json(self) -> dict[str, Any]:
        """Return the image in the form of the document's list of images."""
        return {
            "created_at": "2024-07-11 08:56:59",  # not RFC 3339: so it is in the document
            "id": self.image_id,
            "name": self.name,
            "os_distro": self.os_distro,
            "priority": self.priority,
            "scp_image_type": "STANDARD",
            "scp_os_version": self.os_version,
        }


@dataclass(frozen=True)
class Product:
    """A server type; `product_id` is a create's `server_type_id`, `name` its `server_type`."""

    product_id: str
    name: str
    product_type: str
    class_name: str
    class_value: str
    gpu_model: str
    cpus: int
    memory_gb: int
    disk_gb: int
    images: tuple[str, ...]
    state: str = "AVAILABLE"

    def to_json(self) -> dict[str, Any]:
        """Return the server type in the form of the document's list of products."""
        return {
            "created_at": _SINCE,
            "created_by": USER_ID,
            "description": f"vCPU {self.cpus} │ Memory {self.memory_gb}G │ Disk {self.disk_gb}G",
            "id": self.product_id,
            "modified_at": _SINCE,
            "modified_by": USER_ID,
            "name": self.name,
            "product_attrs": {
                "compute_class_type_name": self.class_name,
                "compute_class_type_value": self.class_value,
                "cpu_value": str(self.cpus),
                "disk_unit": "GB",
                "disk_value": str(self.disk_gb),
                "gpu_model": self.gpu_model,
                "memory_value": str(self.memory_gb),
            },
            "state": self.state,
            "type": self.product_type,
        }


@dataclass(frozen=True)
class Subnet:
    """A subnet of a VPC; both are objects of other services of the platform."""

    subnet_id: str
    vpc_id: str
    region: str
    network: ipaddress.IPv4Network


@dataclass(frozen=True)
class Pool:
    """A vendor's node pool, with `capacity` servers for the fabrics that are created there."""

    pool_id: str
    region: str
    # Ours: the document's pool ids end with a short form of it (krw1a); only API 1.3 shows zones.
    zone: str
    subnets: tuple[str, ...]
    capacity: int


_RHEL = "IMAGE-7XFMaJpLsapKvskFMjCtmm"
_UBUNTU = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"
_UBUNTU_EAST = "IMAGE-9sHgDr3XkWnVtBq6ZyLmPa"
_VPC_WEST = "e58348b1bc9148e5af86500fd4ef99ca"
_VPC_EAST = "3c1f0d7a5b8e4926a4d1c7f2e09b6583"
_SUBNET_WEST_A = "ab313c43291e4b678f4bacffe10768ae"
_SUBNET_WEST_B = "5d0e7c9a1f4b42c8b6a3e2d19f7c8054"
_SUBNET_EAST_A = "c72a9b1e6d3f4805917e4c2b8d5f0a36"

IMAGES = {
    image.image_id: image
    for image in (
        Image(_RHEL, "RHEL 8.8 for BM", "RHEL", "8.8", ("kr-west1", "kr-east1"), 20),
        Image(_UBUNTU, "Ubuntu 22.04 for BM", "UBUNTU", "22.04", ("kr-west1",), 10),
        Image(_UBUNTU_EAST, "Ubuntu 22.04 for BM", "UBUNTU", "22.04", ("kr-east1",), 10),
    )
}
PRODUCTS = {
    product.product_id: product
    for product in (
        Product(
            "f90e8ef54cc2451b825608e9f95f7bcb",
            "g2v192m1920_metal",
            "SCALE",
            "GPU H100 Metal-2",
            "g2_metal",
            "H100",
            192,
            1920,
            480,
            (_RHEL, _UBUNTU, _UBUNTU_EAST),
        ),
        Product(
            "1b6d4f0c83a94e57b2c90a7d5e16f348",
            "g1v128m1024_metal",
            "SCALE",
            "GPU A100 Metal-1",
            "g1_metal",
            "A100",
            128,
            1024,
            480,
            (_RHEL, _UBUNTU),
        ),
        Product(
            "7ea25c90d1b348f6a80f3b6c94d27e15",
            "g3v224m2048_metal",
            "SCALE",
            "GPU B200 Metal-3",
            "g3_metal",
            "B200",
            224,
            2048,
            960,
            (_UBUNTU,),
            # For tests of a server type that cannot be ordered.
            state="UNAVAILABLE",
        ),
    )
}
SUBNETS = {
    subnet.subnet_id: subnet
    for subnet in (
        Subnet(_SUBNET_WEST_A, _VPC_WEST, "kr-west1", ipaddress.IPv4Network("192.168.0.0/20")),
        Subnet(_SUBNET_WEST_B, _VPC_WEST, "kr-west1", ipaddress.IPv4Network("192.168.16.0/24")),
        Subnet(_SUBNET_EAST_A, _VPC_EAST, "kr-east1", ipaddress.IPv4Network("10.20.0.0/24")),
    )
}
POOLS = {
    pool.pool_id: pool
    for pool in (
        Pool("POOL001-krw1a", "kr-west1", "kr-west1-a", (_SUBNET_WEST_A, _SUBNET_WEST_B), 512),
        # Small, so that tests can exhaust the pool.
        Pool("POOL002-krw1b", "kr-west1", "kr-west1-b", (_SUBNET_WEST_A,), 16),
        Pool("POOL001-kre1a", "kr-east1", "kr-east1-a", (_SUBNET_EAST_A,), 64),
    )
}
REGIONS = tuple(sorted({pool.region for pool in POOLS.values()}))


def find_images(region: str) -> list[Image]:
    """Return the images of a region, by priority."""
    images = (image for image in IMAGES.values() if region in image.regions)
    return sorted(images, key=lambda image: image.priority)


def find_products(product_type: str | None, image_id: str | None) -> list[Product]:
    """Return the server types of a product type that run an image; None is any of each."""
    return [
        product
        for product in PRODUCTS.values()
        if product_type in {None, product.product_type}
        and (image_id is None or image_id in product.images)
    ]


@dataclass(frozen=True)
class ScpMessage:
    """A message in the two languages of the platform."""

    korean: str
    english: str

    def get_text(self, language: str) -> str:
        """Return the text for an Accept-Language code: English for `en...`, else Korean."""
        return self.english if language.lower().startswith("en") else self.korean


class ScpApiError(Refusal):
    """Raised where SCP refuses: answered as `{"errors": [...]}` with this status.

    `detail` is a text for one message and a list of texts for several: clients of the platform meet
    both forms.
    """

    def __init__(self, status: int, code: str, *messages: ScpMessage) -> None:
        super().__init__(status, "; ".join(message.english for message in messages))
        self.code = code
        self.messages = messages

    def build_body(self, language: str, request_id: str) -> dict[str, Any]:
        """Return the body of the answer, in `language` (an Accept-Language code)."""
        texts = [message.get_text(language) for message in self.messages]
        return {
            "errors": [
                {
                    "detail": texts[0] if len(texts) == 1 else texts,
                    "status": self.status,
                    "title": responses.get(self.status, ""),
                    "code": self.code,
                    "request_id": request_id,
                }
            ]
        }


def make_bad_request(code: str, *messages: ScpMessage) -> ScpApiError:
    """Return a 400: the document lists no other code for a broken rule."""
    return ScpApiError(400, code, *messages)


def make_refusal(code: str, korean: str, english: str) -> ScpApiError:
    """Return a 400 with one message in both languages."""
    return make_bad_request(code, ScpMessage(korean, english))


def make_node_not_found(node_id: str) -> ScpApiError:
    """Return the 404 for a missing GPU node."""
    return ScpApiError(
        404,
        "GpuNodeNotFound",
        ScpMessage(
            f"GPU Node({node_id})를 찾을 수 없습니다.", f"GPU Node ({node_id}) is not found."
        ),
    )


def make_fabric_not_found(fabric_id: str) -> ScpApiError:
    """Return the 404 for a missing cluster fabric."""
    return ScpApiError(
        404,
        "ClusterFabricNotFound",
        ScpMessage(
            f"Cluster Fabric({fabric_id})을 찾을 수 없습니다.",
            f"Cluster Fabric ({fabric_id}) is not found.",
        ),
    )
