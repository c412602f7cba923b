"""Parse the bodies of the document's requests, and refuse creates that break a rule by themselves.

`routes` calls `parse_body`, `creating` the checks. Which fields may be missing or null is that of
the official provider: the document lost the table. Sources: the official provider's
`gpunode_resource.go`, in v6 for the zones of API 1.3; ours where a comment says so.
"""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from gpuform.providers.emulator.scp.catalogue import (
    IMAGES,
    POOLS,
    PRODUCTS,
    REGIONS,
    SUBNETS,
    Image,
    ScpMessage,
    Subnet,
    make_bad_request,
    make_refusal,
)

_Body = TypeVar("_Body", bound=BaseModel)


class Body(BaseModel, extra="forbid", strict=True, frozen=True):
    """A strict and closed body, so that a client's slip shows: no `"8"` for 8, no extra key."""


class ClusterFabricDetails(Body):
    """The fabric of a create; without an id (or with an empty one) a new fabric is created."""

    cluster_fabric_id: str | None = None
    cluster_fabric_name: str
    node_pool_id: str


class ServerDetails(Body):
    """A server of a create."""

    gpu_node_name: str
    ip_address: str | None = None
    nat_enabled: bool | None = None
    public_ip_address_id: str | None = None
    server_type_id: str
    # Required by API 1.3, unknown to API 1.2: `check_new_nodes` knows the version.
    zone: str | None = None


class Tag(Body):
    key: str | None = None
    value: str | None = None


class CreateGpuNodes(Body):
    """The body of a create."""

    cluster_fabric_details: ClusterFabricDetails
    image_id: str
    init_script: str | None = Field(default=None, repr=False)
    lock_enabled: bool | None = None
    os_user_id: str
    os_user_password: str = Field(repr=False)
    region_id: str
    server_details: list[ServerDetails]
    subnet_id: str
    tags: list[Tag] | None = None
    vpc_id: str


class GpuNodeIds(Body):
    """The body of delete, start and stop."""

    gpu_node_ids: list[str] = Field(min_length=1)


class ModifyMembers(Body):
    """The body that moves nodes between fabrics."""

    before_cluster_fabric_id: str
    after_cluster_fabric_id: str
    gpu_node_id_list: list[str] = Field(min_length=1)


class AssignPublicNatIp(Body):
    """The body that assigns a public IP to a node."""

    public_ip_address_id: str


def parse_body(model: type[_Body], data: bytes) -> _Body:
    """Return the request body as `model`; unknown members and other types are refused.

    Raises `Refusal` 400 with every problem.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        # Without the input: a body may hold a password.
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    raise make_bad_request(
        "InvalidRequestBody", *(_format_problem(dict(problem)) for problem in problems)
    )


def _format_problem(problem: dict[str, Any]) -> ScpMessage:
    """Return the message, in Korean and English, for one of pydantic's problems with a body."""
    path = ".".join(str(part) for part in problem["loc"]) or "body"
    if problem["type"] == "missing":
        return ScpMessage(f"{path}: 필수 항목입니다.", f"{path}: required")
    if problem["type"] == "extra_forbidden":
        return ScpMessage(f"{path}: 알 수 없는 항목입니다.", f"{path}: not a field of this request")
    return ScpMessage(f"{path}: 올바르지 않은 값입니다.", f"{path}: {problem['msg']}")


MAX_SERVERS = 5
MIN_SERVERS = 2
_FABRIC_NAME_PATTERN = r"[a-zA-Z][a-zA-Z0-9-]{1,13}[a-zA-Z0-9]"
# A prefix has up to 24 characters, and the provider appends "-001".
_NODE_NAME_PATTERN = r"[a-z][a-z0-9-]{1,26}[a-z0-9]"
_PASSWORD_PATTERN = r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])(?=.*[@$!%*#&])[A-Za-z0-9@$!%*#&]{9,20}"  # noqa: S105
_OS_USER = "root"
_MAX_SCRIPT_LENGTH = 16_384
_MAX_TAG_KEY_LENGTH = 128
_MAX_TAG_VALUE_LENGTH = 256
# Ours: an id of another service, which is not emulated.
PUBLIC_IP_ID_PATTERN = r"[0-9a-f]{32}"


def check_new_nodes(body: CreateGpuNodes, *, has_zones: bool) -> None:
    """Raise `Refusal` 400 with every rule that the body of a create breaks by itself.

    Rules that depend on objects, and on the number of servers, are not checked here. `has_zones`
    says whether servers must have a zone; otherwise the zone is an unknown member of the body.
    """
    if not has_zones and any("zone" in server.model_fields_set for server in body.server_details):
        message = ScpMessage(
            "zone: 알 수 없는 항목입니다.", "server_details.zone: not of this version"
        )
        raise make_bad_request("InvalidRequestBody", message)
    problems = [
        *_find_name_problems(body),
        *_find_system_problems(body),
        *_find_location_problems(body),
        *_find_server_problems(body),
        *(_find_zone_problems(body) if has_zones else ()),
    ]
    if problems:
        raise make_bad_request("InvalidRequest", *problems)


def check_count(count: int, minimum: int) -> None:
    """Raise `Refusal` 400 unless `count` servers are allowed: from `minimum` to MAX_SERVERS."""
    if not minimum <= count <= MAX_SERVERS:
        raise make_refusal(
            "InvalidServerCount",
            f"서버는 {minimum}대 이상 {MAX_SERVERS}대 이하로 신청해야 합니다(요청: {count}대).",
            f"server_details: {minimum} to {MAX_SERVERS} servers are allowed, not {count}",
        )


def _find_name_problems(body: CreateGpuNodes) -> Iterator[ScpMessage]:
    """Yield the problems of names and tags."""
    fabric_name = body.cluster_fabric_details.cluster_fabric_name
    if not re.fullmatch(_FABRIC_NAME_PATTERN, fabric_name):
        yield ScpMessage(
            f"cluster_fabric_name({fabric_name}): 영문자로 시작하고 "
            "영문자, 숫자, -로 된 3~15자여야 하며 -로 끝날 수 없습니다.",
            f"cluster_fabric_name {fabric_name!r}: 3 to 15 letters, digits and '-', from a letter "
            "on, not ending in '-'",
        )
    for server in body.server_details:
        name = server.gpu_node_name
        if not re.fullmatch(_NODE_NAME_PATTERN, name):
            yield ScpMessage(
                f"gpu_node_name({name}): 영문 소문자로 시작하고 "
                "영문 소문자, 숫자, -로 된 3~28자여야 하며 -로 끝날 수 없습니다.",
                f"gpu_node_name {name!r}: 3 to 28 lower-case letters, digits and '-', from a "
                "letter on, not ending in '-'",
            )
    for tag in body.tags or []:
        if tag.key is not None and not 1 <= len(tag.key) <= _MAX_TAG_KEY_LENGTH:
            yield ScpMessage(
                "tags: 키는 1~128자여야 합니다.", "tags: a key has 1 to 128 characters"
            )
        if tag.value is not None and len(tag.value) > _MAX_TAG_VALUE_LENGTH:
            yield ScpMessage(
                "tags: 값은 256자 이하여야 합니다.", "tags: a value has up to 256 characters"
            )


def _find_system_problems(body: CreateGpuNodes) -> Iterator[ScpMessage]:
    """Yield the problems of user, password and script."""
    if body.os_user_id != _OS_USER:  # every image of the catalogue is Linux
        yield ScpMessage(
            f"os_user_id: Linux 이미지는 {_OS_USER}만 사용할 수 있습니다.",
            f"os_user_id must be {_OS_USER} with a Linux image",
        )
    if not re.fullmatch(_PASSWORD_PATTERN, body.os_user_password):
        yield ScpMessage(
            "os_user_password: 대문자, 소문자, 숫자, 특수문자(@$!%*#&)를 각각 포함한 9~20자여야 "
            "합니다.",
            "os_user_password: 9 to 20 characters, with an upper-case and a lower-case letter, "
            "a digit and one of @$!%*#&, and no others",
        )
    if body.init_script is not None and len(body.init_script) > _MAX_SCRIPT_LENGTH:
        yield ScpMessage(
            f"init_script: {_MAX_SCRIPT_LENGTH}자 이하여야 합니다.",
            f"init_script: up to {_MAX_SCRIPT_LENGTH} characters",
        )


def _find_location_problems(body: CreateGpuNodes) -> Iterator[ScpMessage]:
    """Yield the problems of region, image, pool, VPC and subnet.

    An unknown region is the only problem.
    """
    region, pool_id = body.region_id, body.cluster_fabric_details.node_pool_id
    if region not in REGIONS:
        yield _make_unknown_message("region_id", region)
        # The rest belongs to a region, and would be wrong for this reason alone.
        return
    image, pool, subnet = IMAGES.get(body.image_id), POOLS.get(pool_id), SUBNETS.get(body.subnet_id)
    if image is None or region not in image.regions:
        yield _make_unknown_message("image_id", body.image_id)
    if pool is None or pool.region != region:
        yield _make_unknown_message("node_pool_id", pool_id)
    if body.vpc_id not in {
        subnet_of_region.vpc_id
        for subnet_of_region in SUBNETS.values()
        if subnet_of_region.region == region
    }:
        yield _make_unknown_message("vpc_id", body.vpc_id)
    if subnet is None or subnet.vpc_id != body.vpc_id:
        yield _make_unknown_message("subnet_id", body.subnet_id)
    elif pool is not None and body.subnet_id not in pool.subnets:
        yield ScpMessage(
            f"노드 풀({pool_id})에서 사용할 수 없는 Subnet({body.subnet_id})입니다.",
            f"node pool {pool_id!r} does not serve subnet {body.subnet_id!r}",
        )


def _find_server_problems(body: CreateGpuNodes) -> Iterator[ScpMessage]:
    """Yield the problems of server types, addresses and public IPs."""
    image, subnet = IMAGES.get(body.image_id), SUBNETS.get(body.subnet_id)
    for server in body.server_details:
        yield from _find_product_problems(server, image)
        if (
            server.ip_address
            and subnet is not None
            and not _is_in_subnet(server.ip_address, subnet)
        ):
            yield ScpMessage(
                f"ip_address({server.ip_address}): Subnet({subnet.network})의 IP가 아닙니다.",
                f"ip_address {server.ip_address!r} is not an address of the subnet "
                f"({subnet.network})",
            )
        if server.nat_enabled and not re.fullmatch(
            PUBLIC_IP_ID_PATTERN, server.public_ip_address_id or ""
        ):
            yield make_public_ip_message()


def _find_zone_problems(body: CreateGpuNodes) -> Iterator[ScpMessage]:
    """Yield a problem for each server of a create without a zone, or outside of its pool's zone.

    The second check is the emulator's own: the platform's answer is not documented.
    """
    pool = POOLS.get(body.cluster_fabric_details.node_pool_id)
    for server in body.server_details:
        if not server.zone:
            yield ScpMessage(
                f"{server.gpu_node_name}: zone은 필수 항목입니다.",
                f"zone of {server.gpu_node_name!r} is required",
            )
        elif pool is not None and server.zone != pool.zone:
            yield ScpMessage(
                f"노드 풀({pool.pool_id})은 zone({server.zone})에 없습니다({pool.zone}).",
                f"node pool {pool.pool_id!r} is in zone {pool.zone!r}, not in {server.zone!r}",
            )


def _find_product_problems(server: ServerDetails, image: Image | None) -> Iterator[ScpMessage]:
    """Yield the problems of a server's type: unknown, not available, or without the image."""
    product = PRODUCTS.get(server.server_type_id)
    if product is None:
        yield _make_unknown_message("server_type_id", server.server_type_id)
    elif product.state != "AVAILABLE":
        yield ScpMessage(
            f"현재 신청할 수 없는 서버 타입({product.name})입니다.",
            f"server type {product.name!r} is {product.state}",
        )
    elif image is not None and image.image_id not in product.images:
        yield ScpMessage(
            f"이미지({image.name})를 지원하지 않는 서버 타입({product.name})입니다.",
            f"server type {product.name!r} does not run image {image.name!r}",
        )


def make_public_ip_message() -> ScpMessage:
    """Return the message that NAT needs a valid id of a public IP, in both languages."""
    return ScpMessage(
        "public_ip_address_id: NAT를 사용하려면 유효한 Public IP ID가 필요합니다.",
        "public_ip_address_id: NAT needs the id of a public IP",
    )


def _make_unknown_message(name: str, value: str) -> ScpMessage:
    """Return the message that the value of the field `name` does not exist or is not offered."""
    return ScpMessage(
        f"{name}({value}): 존재하지 않거나 사용할 수 없습니다.",
        f"{name} {value!r} does not exist or is not offered here",
    )


def _is_in_subnet(address: str, subnet: Subnet) -> bool:
    """Return whether `address` is an IPv4 address within the subnet; False for any other text."""
    try:
        return IPv4Address(address) in subnet.network
    except AddressValueError:
        return False
