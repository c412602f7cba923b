"""Define the answers of the AIOS clusters registry and its Parser.

From the AIOS registry reference, 'Clusters registry'.

Used by the AIOS client. Attributes are the registry's names in snake_case. Only a record's id is
required: the registry validates nothing on an update, so any other field may be missing. Sizes are
in MB.
"""

from typing import Any

from pydantic import ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from gpuform.schemas.models import Id, Line, WireModel

Number = int | float
"""A number as sent: 16384 stays an integer."""


class AiosModel(WireModel):
    # A GPU's model begins with pydantic's own prefix, `model_`.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, protected_namespaces=()
    )


class Gpu(AiosModel):
    model_name: str = ""
    memory: Number = 0


class NodeGpus(AiosModel):
    """The GPUs of one node. `memory` is the memory of all of them."""

    count: Number | None = None
    memory: Number | None = None
    gpus: tuple[Gpu, ...] | None = None
    features: tuple[str, ...] | None = None
    model_names: tuple[str, ...] | None = None


class Gpus(AiosModel):
    """All GPUs of a cluster."""

    count: Number | None = None
    memory: Number | None = None


class Vcpus(AiosModel):
    count: Number | None = None


class Storage(AiosModel):
    disks: Number | None = None
    size: Number | None = None


class Network(AiosModel):
    """Bandwidths are in MB/s."""

    interfaces: Number | None = None
    tx_bandwidth: Number | None = None
    rx_bandwidth: Number | None = None


class Node(AiosModel):
    """An entry of `nodes.nodeData`."""

    # Empty for an entry that a stray update has created.
    id: Line = ""
    gpus: NodeGpus | None = None
    vcpus: Vcpus | None = None
    memory: Number | None = None
    swap: Number | None = None
    storage: Storage | None = None
    network: Network | None = None
    object_id: Any = Field(default=None, alias="_id")
    """The id that Mongo adds, which contains the time of creation."""


class Nodes(AiosModel):
    count: Number | None = None
    node_data: tuple[Node, ...] = ()

    @field_validator("node_data", mode="before")
    @classmethod
    def _keep_indexes(cls, entries: Any) -> Any:
        """Read null as an entry without an id, so that the indexes of the other entries stay.

        Mongo pads an array with nulls when an entry behind its end is set.
        """
        return [entry or {} for entry in entries] if isinstance(entries, list) else entries


class UrlMap(AiosModel):
    """The addresses of the cluster's services. The registry's system fills them in."""

    controller_service: str | None = None
    metrics_service: str | None = None
    blocks_query: str | None = None
    public_gateway: str | None = None
    parameter_updater: str | None = None


class Config(AiosModel):
    policy_executor_id: str | None = None
    policy_execution_mode: str | None = None
    custom_policy_system: Any = None
    public_hostname: str | None = None
    use_gateway: bool | None = None
    actions_policy_map: Any = None
    url_map: UrlMap | None = None


class ClusterMetadata(AiosModel):
    name: str | None = None
    description: str | None = None
    owner: str | None = None
    email: str | None = None
    countries: tuple[str, ...] | None = None
    misc_contact_info: Any = None
    additional_info: Any = None


class Cluster(AiosModel):
    """A cluster's record. Other members that Mongo adds (`__v`) are ignored."""

    id: Id
    region_id: str | None = None
    status: str | None = None
    nodes: Nodes = Nodes()
    gpus: Gpus | None = None
    vcpus: Vcpus | None = None
    memory: Number | None = None
    swap: Number | None = None
    storage: Storage | None = None
    network: Network | None = None
    # Defaults of the registry appear here, and url_map.
    config: Config | None = None
    tags: tuple[str, ...] | None = None
    cluster_metadata: ClusterMetadata | None = None
    # The network changes it: never compared.
    reputation: Number | None = None
    object_id: Any = Field(default=None, alias="_id")

    @property
    def has_node_list(self) -> bool:
        """True if the registry's answer has a list of nodes.

        Without a list, the answer says nothing about any node.
        """
        return "nodes" in self.model_fields_set and "node_data" in self.nodes.model_fields_set

    def find_entry(self, node_id: str) -> Node | None:
        """Return the first node with this id, or None."""
        return next((entry for entry in self.nodes.node_data if entry.id == node_id), None)


class Parsed(AiosModel):
    """The answer of the Parser with 200. `result` is the record, or `[false, "why"]`."""

    success: bool = True
    message: str = ""
    # The Parser answers a failure of the registry with 200, success and [false, "message"].
    result: Any = None

    @property
    def failure(self) -> str | None:
        """The Parser's message about a failed request, or None if the Parser reports success."""
        if isinstance(self.result, list) and self.result[:1] == [False]:
            return " ".join(map(str, self.result[1:]))
        return None if self.success else self.message


class Deleted(AiosModel):
    message: str = ""


def parse_object_id(object_id: object) -> str | None:
    """Return an id if it is a text that is not empty, else None; the form is not checked."""
    return object_id if isinstance(object_id, str) and object_id else None


def parse_object_id_time(object_id: object) -> float | None:
    """Return when Mongo created an id, in Unix seconds: the id's first four bytes.

    None for anything else than an id of Mongo's.
    """
    text = object_id if isinstance(object_id, str) else ""
    try:
        # an ObjectId has 24 hexadecimal digits, of which the first 8 are Unix seconds
        return float(int(text[:8], 16)) if len(text) == 24 else None
    except ValueError:
        return None
