"""Define what SCP's Multi-node GPU Cluster API 1.2 sends and takes, field by field.

Only ids are required: the document's tables of schemas are lost, its examples remain. States and
times are text as sent; `statuses.py` and `moments.py` say what they mean.
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

from gpuform.schemas.ids import ForeignName, Id, Line, validate_id
from gpuform.schemas.models import WireList, WireModel


def _or_none(value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


def _or_empty(value: Any, read: Callable[[Any], Any]) -> Any:
    return _or_none(value, read) or ""


Words = Annotated[str, WrapValidator(_or_empty)]
"""A text that is only shown: what is none is empty, and spoils no answer."""

Moment = Annotated[str | None, WrapValidator(_or_none)]
"""A time that is only shown, likewise."""

Number = Annotated[int | None, WrapValidator(_or_none)]
"""A number that is only shown, likewise."""


class ScpModel(WireModel):
    """Numbers and texts are not always told apart (`pirp_id` is "20")."""

    model_config = ConfigDict(coerce_numbers_to_str=True)


class GpuNode(ScpModel):
    """SCP reference, 'Show GPU Node'. A create calls some things by other names.

    `network_id` is the subnet, `policy_ip` the private address, `policy_nat` the public one,
    `root_account` the user of the operating system. Password, tags, the type of server as it was
    sent and the id of the public IP are never returned. `cluster_fabric_id` is absent while a new
    fabric has not appeared.
    """

    id: Id
    account_id: Words = ""
    gpu_node_name: ForeignName = ""
    state: str = ""
    cluster_fabric_id: Id | None = None
    cluster_fabric_name: ForeignName = ""
    node_pool_id: Line = ""
    image_id: str = ""
    image_version: str = ""
    os_type: Words = ""
    init_script: SecretStr = SecretStr("")
    lock_enabled: bool = False
    root_account: str = ""
    server_type: str = ""
    product_type_id: str = ""
    region_id: str = ""
    vpc_id: str = ""
    network_id: str = ""
    policy_ip: str | None = None
    policy_use_nat: bool = False
    policy_nat: str | None = None
    pfs_ip: tuple[str, ...] = ()
    time_zone: Words = ""
    created_at: Moment = None
    created_by: Words = ""
    modified_at: Moment = None
    modified_by: Words = ""


class GpuNodeList(WireList, ScpModel):
    """`count` is the number of all nodes that pass the filters, not of those on the page."""

    count: int = 0
    gpu_nodes: tuple[GpuNode, ...]


class FabricMember(ScpModel):
    """A node as its fabric shows it."""

    gpu_node_id: Id
    gpu_node_name: ForeignName = ""
    policy_ip: str | None = None
    product_type_id: str = ""
    server_type: str = ""
    state: str = ""


class ClusterFabric(ScpModel):
    """SCP reference, 'Show Cluster Fabric'. `cluster_name` is its cluster_fabric_name."""

    id: Id
    account_id: Words = ""
    cluster_name: ForeignName = ""
    description: Words = ""
    state: str = ""
    node_pool_id: Line = ""
    region_id: str = ""
    server_type: str = ""
    product_id: Words = ""
    pirp_id: Words = ""
    used_server_count: Number = None
    gpu_node_details: tuple[FabricMember, ...] = ()
    created_at: Moment = None
    created_by: Words = ""
    modified_at: Moment = None
    modified_by: Words = ""


class ClusterFabricList(WireList, ScpModel):
    """`count` as in GpuNodeList."""

    count: int = 0
    cluster_fabrics: tuple[ClusterFabric, ...]


class Image(ScpModel):
    """SCP reference, 'List GPU Node images'."""

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
    """Numbers come as text: `memory_value` "128"."""

    compute_class_type_name: str = ""
    compute_class_type_value: str = ""
    cpu_value: str = ""
    memory_value: str = ""
    disk_value: str = ""
    disk_unit: str = ""
    gpu_model: str = ""


class Product(ScpModel):
    """SCP reference, 'List GPU Node products': a type of server; a create has its `id`."""

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
    """A fabric as its vendor pool shows it.

    The document's example is empty: these are the names of the create request, and those of a
    fabric beside them.
    """

    cluster_fabric_id: Line = Field(
        default="", validation_alias=AliasChoices("cluster_fabric_id", "id")
    )
    cluster_fabric_name: Line = Field(
        default="", validation_alias=AliasChoices("cluster_fabric_name", "cluster_name")
    )
    node_pool_id: Line = ""


class VendorPool(ScpModel):
    """SCP reference, 'List node pools': the vendor owns it, nobody can create one."""

    node_pool_id: Id
    cluster_fabric_details: tuple[PoolFabric, ...] = ()


class VendorPoolList(WireList, ScpModel):
    count: int = 0
    node_pools: tuple[VendorPool, ...]


def _ids(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _checked_ids(text: str) -> str:
    for id_ in _ids(text):
        validate_id(id_)
    return text


class AsyncAnswer(ScpModel):
    """A request that was accepted (202).

    The reference shows one `resource_id` for a create of up to five nodes; the official provider
    splits it at commas. What it means for other requests is not documented.
    """

    account_id: str = ""
    request_id: str = ""
    resource_id: Annotated[str, AfterValidator(_checked_ids)] = ""

    @property
    def node_ids(self) -> list[str]:
        """Return the ids in a create's answer, each once: fewer than nodes, or of others."""
        return list(dict.fromkeys(_ids(self.resource_id)))


class NodeAnswer(ScpModel):
    """A request about one node that was accepted, or done."""

    gpu_node_id: Line = ""


Body = dict[str, Any]

SECRET_MEMBERS: Final = ("os_user_password", "init_script")
"""The members of bodies that nobody may see."""


@dataclass(frozen=True, kw_only=True)
class ClusterFabricDetails:
    """The fabric to join, or without an id the one that is made."""

    cluster_fabric_name: str
    node_pool_id: str
    cluster_fabric_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServerDetails:
    """One server; `server_type_id` is the id of a product. NAT needs the id of a public IP."""

    gpu_node_name: str
    server_type_id: str
    ip_address: str | None = None
    nat_enabled: bool = False
    public_ip_address_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tag:
    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class CreateGpuNodes:
    """`POST /v1/gpu-nodes`: 2 to 5 servers in a new fabric, or more servers for one that exists.

    What is optional here is nullable there (official Terraform provider).
    """

    cluster_fabric_details: ClusterFabricDetails
    image_id: str
    os_user_id: str
    os_user_password: str = field(repr=False)
    region_id: str
    server_details: tuple[ServerDetails, ...]
    subnet_id: str
    vpc_id: str
    init_script: str | None = field(default=None, repr=False)
    lock_enabled: bool = False
    tags: tuple[Tag, ...] = ()

    def body(self) -> Body:
        """The JSON object; password and init script are in the clear."""
        return asdict(self)


def chosen_nodes(node_ids: Sequence[str]) -> Body:
    """`POST /v1/gpu-nodes/start`, `/stop` and `DELETE /v1/gpu-nodes`."""
    return {"gpu_node_ids": list(node_ids)}


def public_nat_ip(public_ip_address_id: str) -> Body:
    """`POST /v1/gpu-nodes/{gpu_node_id}/public-nat-ip`."""
    return {"public_ip_address_id": public_ip_address_id}


def moved_members(before_fabric_id: str, after_fabric_id: str, node_ids: Sequence[str]) -> Body:
    """`POST /v1/cluster-fabrics/modify-members`."""
    return {
        "before_cluster_fabric_id": before_fabric_id,
        "after_cluster_fabric_id": after_fabric_id,
        "gpu_node_id_list": list(node_ids),
    }
