"""Define the requests and answers of SCP's Multi-node GPU Cluster API 1.2 and 1.3, by field.

Used by the SCP client. Only ids are required: the reference has lost its tables of schemas, only
its examples remain. States and times are text as sent; `outputs.py` interprets them.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AliasChoices,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    WrapValidator,
)

from gpuform.schemas.models import ForeignName, Id, Line, WireList, WireModel, validate_id


def _read_or_none(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return a part of SCP's answer by `read`; None if the value has another form."""
    try:
        return read(value)
    except ValidationError:
        return None


def _read_or_empty(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return a text of SCP's answer by `read`; empty if the value has another form."""
    return _read_or_none(value, read) or ""


def _read_zone(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return the zone in SCP's answer; empty for another form or a placeholder (`-`)."""
    zone = _read_or_empty(value, read)
    return zone if any(character.isalnum() for character in zone) else ""


LenientText = Annotated[str, WrapValidator(_read_or_empty)]
"""Text that is only shown.

A value that is not text becomes "", so that it does not make an answer unreadable.
"""

LenientZone = Annotated[Line, WrapValidator(_read_zone)]
"""An availability zone that may be absent, null or a placeholder. It is "" then."""

LenientTime = Annotated[str | None, WrapValidator(_read_or_none)]
"""A time that is only shown. Anything else becomes None."""

LenientNumber = Annotated[int | None, WrapValidator(_read_or_none)]
"""A number that is only shown. Anything else becomes None."""


class ScpModel(WireModel):
    """Base of SCP's answers. SCP mixes numbers and texts: `pirp_id` is "20"."""

    model_config = ConfigDict(coerce_numbers_to_str=True)


class GpuNode(ScpModel):
    """A GPU node (SCP reference, 'Show GPU Node').

    Some names differ from the create request: `network_id` is the subnet, `policy_ip` the private
    address, `policy_nat` the public one, `root_account` the user of the operating system. Password,
    tags, the server type as it was sent and the id of the public IP are never returned.
    `cluster_fabric_id` is absent until a new fabric has appeared.
    """

    id: Id
    account_id: LenientText = ""
    gpu_node_name: ForeignName = ""
    state: str = ""
    # Absent while the fabric of the first nodes is created.
    cluster_fabric_id: Id | None = None
    cluster_fabric_name: ForeignName = ""
    node_pool_id: Line = ""
    image_id: str = ""
    image_version: str = ""
    os_type: LenientText = ""
    init_script: SecretStr = SecretStr("")
    lock_enabled: bool = False
    # The os_user_id of the create request.
    root_account: str = ""
    server_type: str = ""
    product_type_id: str = ""
    region_id: str = ""
    vpc_id: str = ""
    # The subnet_id of the create request.
    network_id: str = ""
    # The ip_address of the create request.
    policy_ip: str | None = None
    policy_use_nat: bool = False
    policy_nat: str | None = None
    pfs_ip: tuple[str, ...] = ()
    time_zone: LenientText = ""
    # Availability zone, such as kr-west1-a; only API 1.3 has it.
    zone: LenientZone = ""
    created_at: LenientTime = None
    created_by: LenientText = ""
    modified_at: LenientTime = None
    modified_by: LenientText = ""


class GpuNodeList(WireList, ScpModel):
    """A page of nodes. `count` is the number of nodes that pass the filters, on all pages."""

    count: int = 0
    gpu_nodes: tuple[GpuNode, ...]


class FabricMember(ScpModel):
    """A node as its fabric reports it."""

    gpu_node_id: Id
    gpu_node_name: ForeignName = ""
    policy_ip: str | None = None
    product_type_id: str = ""
    server_type: str = ""
    state: str = ""


class ClusterFabric(ScpModel):
    """A fabric (SCP reference, 'Show Cluster Fabric').

    `cluster_name` is its cluster_fabric_name.
    """

    id: Id
    account_id: LenientText = ""
    # The cluster_fabric_name of requests.
    cluster_name: ForeignName = ""
    description: LenientText = ""
    state: str = ""
    node_pool_id: Line = ""
    region_id: str = ""
    server_type: str = ""
    product_id: LenientText = ""
    # The reference does not explain this id.
    pirp_id: LenientText = ""
    used_server_count: LenientNumber = None
    gpu_node_details: tuple[FabricMember, ...] = ()
    created_at: LenientTime = None
    created_by: LenientText = ""
    modified_at: LenientTime = None
    modified_by: LenientText = ""


class ClusterFabricList(WireList, ScpModel):
    """A page of fabrics. `count` is the number on all pages."""

    count: int = 0
    cluster_fabrics: tuple[ClusterFabric, ...]


class Image(ScpModel):
    """An image (SCP reference, 'List GPU Node images')."""

    id: Id
    name: str = ""
    os_distro: str = ""
    scp_os_version: str = ""
    scp_image_type: str = ""
    priority: int | None = None
    created_at: str | None = None


class ImageList(WireList, ScpModel):
    images: tuple[Image, ...]


class ProductAttributes(ScpModel):
    """Attributes of a server type. Numbers are sent as text: `memory_value` is "128"."""

    compute_class_type_name: str = ""
    compute_class_type_value: str = ""
    cpu_value: str = ""
    memory_value: str = ""
    disk_value: str = ""
    disk_unit: str = ""
    gpu_model: str = ""


class Product(ScpModel):
    """A server type (SCP reference, 'List GPU Node products').

    A create request contains its `id`.
    """

    id: Id
    name: str = ""
    type: str = ""
    state: str = ""
    description: str = ""
    product_attrs: ProductAttributes = ProductAttributes()
    created_at: str | None = None
    created_by: str = ""
    modified_at: str | None = None
    modified_by: str = ""


class ProductList(WireList, ScpModel):
    products: tuple[Product, ...]


class PoolFabric(ScpModel):
    """A fabric as its vendor pool reports it.

    The reference's example is empty: the names are those of the create request, or those of a
    fabric.
    """

    cluster_fabric_id: Line = Field(
        default="", validation_alias=AliasChoices("cluster_fabric_id", "id")
    )
    cluster_fabric_name: Line = Field(
        default="", validation_alias=AliasChoices("cluster_fabric_name", "cluster_name")
    )
    node_pool_id: Line = ""


class VendorPool(ScpModel):
    """A pool of servers (SCP reference, 'List node pools').

    The vendor owns it; nobody can create one.
    """

    # Assigned by the vendor, such as POOL001-krw1a.
    node_pool_id: Id
    cluster_fabric_details: tuple[PoolFabric, ...] = ()


class VendorPoolList(WireList, ScpModel):
    count: int = 0
    node_pools: tuple[VendorPool, ...]


def _split_ids(joined_ids: str) -> list[str]:
    """Return the ids in a comma-separated text, without blanks and empty parts."""
    return [part.strip() for part in joined_ids.split(",") if part.strip()]


def _validate_ids(joined_ids: str) -> str:
    """Return a comma-separated text of valid ids. Raises ValueError for an invalid id."""
    for id_ in _split_ids(joined_ids):
        validate_id(id_)
    return joined_ids


class AsyncAnswer(ScpModel):
    """The answer to an accepted request (202).

    The reference shows one `resource_id` for a create of up to five nodes; the official provider
    splits it at commas. Its meaning for other requests is not documented.
    """

    account_id: str = ""
    request_id: str = ""
    # Ids separated by commas for a create of several nodes (official provider).
    resource_id: Annotated[str, AfterValidator(_validate_ids)] = ""

    @property
    def node_ids(self) -> list[str]:
        """The distinct ids in the answer to a create of nodes.

        Fewer than the nodes are possible, and ids of other objects, too.
        """
        return list(dict.fromkeys(_split_ids(self.resource_id)))


class NodeAnswer(ScpModel):
    """The answer to a request about one node, accepted or completed."""

    gpu_node_id: Line = ""


Body = dict[str, Any]

SECRET_MEMBERS: Final = ("os_user_password", "init_script")
"""Members of request bodies that no log and no message may show."""


@dataclass(frozen=True, kw_only=True)
class ClusterFabricDetails:
    """The fabric to join; without an id, the fabric to create."""

    cluster_fabric_name: str
    node_pool_id: str
    cluster_fabric_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServerDetails:
    """One server. `server_type_id` is the id of a product. NAT needs the id of a public IP."""

    gpu_node_name: str
    server_type_id: str
    ip_address: str | None = None
    nat_enabled: bool = False
    public_ip_address_id: str | None = None
    # Required by API 1.3, unknown to API 1.2.
    zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tag:
    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class CreateGpuNodes:
    """Body of `POST /v1/gpu-nodes`: 2 to 5 servers in a new fabric, or more in an existing one.

    Optional fields are nullable in the API (official Terraform provider).
    """

    cluster_fabric_details: ClusterFabricDetails
    image_id: str
    os_user_id: str
    # Kept out of repr, so that no log and no traceback shows it.
    os_user_password: str = field(repr=False)
    region_id: str
    server_details: tuple[ServerDetails, ...]
    subnet_id: str
    vpc_id: str
    init_script: str | None = field(default=None, repr=False)
    lock_enabled: bool = False
    tags: tuple[Tag, ...] = ()

    def body(self) -> Body:
        """Return the JSON object, with password and init script in the clear.

        A server without a zone has no member `zone`.
        """
        body = asdict(self)
        for server in body["server_details"]:
            if server["zone"] is None:
                del server["zone"]
        return body


def build_node_selection(node_ids: Sequence[str]) -> Body:
    """Return the JSON with the node ids for a start, a stop or a deletion of nodes.

    Requests: `POST /v1/gpu-nodes/start`, `/stop` and `DELETE /v1/gpu-nodes`.
    """
    return {"gpu_node_ids": list(node_ids)}


def build_public_nat_ip(public_ip_address_id: str) -> Body:
    """Return the JSON for attaching a public IP address to a node.

    Request: `POST /v1/gpu-nodes/{gpu_node_id}/public-nat-ip`.
    """
    return {"public_ip_address_id": public_ip_address_id}


def build_member_move(before_fabric_id: str, after_fabric_id: str, node_ids: Sequence[str]) -> Body:
    """Return the body of a move of nodes to another fabric.

    Request: `POST /v1/cluster-fabrics/modify-members`.
    """
    return {
        "before_cluster_fabric_id": before_fabric_id,
        "after_cluster_fabric_id": after_fabric_id,
        "gpu_node_id_list": list(node_ids),
    }
