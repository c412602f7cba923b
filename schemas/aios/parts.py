"""Define the objects inside an AIOS record's inputs, and compute the sums over nodes and GPUs.

Used by `inputs.py`, `wire.py` and `updates.py`. Values have the registry's names in
snake_case. An unknown value makes its sum unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from gpuform.schemas.models import InputModel, Line, Problem, optional_field
from gpuform.schemas.rules import Default, KeyedBy, Unordered
from gpuform.schemas.values import UNKNOWN, contains_unknown, is_equal

Values = Mapping[str, Any]

SUM_PATHS: Final = (
    "gpus.count",
    "gpus.memory",
    "vcpus.count",
    "memory",
    "swap",
    "storage.disks",
    "storage.size",
    "network.interfaces",
    "network.tx_bandwidth",
    "network.rx_bandwidth",
)
"""Paths of a node's numbers. A cluster has the sum of each under the same path."""

NODE_COUNT: Final = "nodes.count"
"""The path of the number of nodes in a record."""


def get_value(values: Any, path: str) -> Any:
    """Return the value at a dotted path.

    Returns None if the path does not exist, and UNKNOWN if it leads into an unknown value.
    """
    for name in path.split("."):
        if not isinstance(values, Mapping):
            return UNKNOWN if values is UNKNOWN else None
        values = values.get(name)
    return values


def set_value(values: Values, path: str, value: Any) -> dict[str, Any]:
    """Return a copy with `value` at a dotted path; missing objects on the way are created.

    An UNKNOWN object on the way stays UNKNOWN.
    """
    name, _, rest = path.partition(".")
    if not rest:
        return {**values, name: value}
    nested = values.get(name)
    if nested is UNKNOWN:
        return dict(values)
    return {**values, name: set_value(nested or {}, rest, value)}


def complete_node(node: Any) -> Any:
    """Return a node with number, memory and models of GPUs computed from the list of GPUs.

    Declared values stay as they are. Without a list nothing is computed; with unknown parts in the
    list, the computed values are UNKNOWN.
    """
    gpus = node.get("gpus") if isinstance(node, Mapping) else None
    # A node or its GPUs may be UNKNOWN.
    if not isinstance(gpus, Mapping):
        return node
    for name, value in _summarize_gpus(gpus.get("gpus")).items():
        if gpus.get(name) is None:
            gpus = {**gpus, name: value}
    return {**node, "gpus": gpus}


def sum_declared_nodes(nodes: Any) -> dict[str, Any]:
    """Return the sums of GPUs, memory and others over declared nodes, by dotted path.

    The number of nodes has the path `nodes.count`. Number and memory of GPUs that a node does not
    declare come from its list of GPUs; every other undeclared number counts as 0. A sum with an
    unknown number is UNKNOWN, and so is every value for UNKNOWN nodes.
    """
    if nodes is UNKNOWN:
        return dict.fromkeys((NODE_COUNT, *SUM_PATHS), UNKNOWN)
    complete_nodes = [complete_node(node) for node in nodes]
    sums = {
        path: _sum_known(get_value(node, path) for node in complete_nodes) for path in SUM_PATHS
    }
    return {NODE_COUNT: len(complete_nodes), **sums}


def sum_reported_nodes(nodes: Sequence[Values]) -> dict[str, Any]:
    """Return the sums of GPUs, memory and others over a record's entries, by dotted path.

    The number of entries has the path `nodes.count`. Number and memory of GPUs that an entry lacks
    come from its list of GPUs. Any other number that one entry lacks has no sum, and its path is
    missing in the result: a missing number is not zero.
    """
    complete_nodes = [complete_node(node) for node in nodes]
    columns = {path: [get_value(node, path) for node in complete_nodes] for path in SUM_PATHS}
    # the registry validates nothing on an update, so an entry may lack numbers
    sums = {path: sum(column) for path, column in columns.items() if None not in column}
    return {NODE_COUNT: len(complete_nodes), **sums}


def add_totals(values: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster with complete nodes and computed sums, if the nodes are declared.

    Declared sums stay as they are, also wrong ones. Without declared nodes the cluster is
    unchanged; UNKNOWN nodes give UNKNOWN sums.
    """
    nodes = get_value(values, "nodes.node_data")
    if nodes is None:
        return values
    if nodes is not UNKNOWN:
        values = set_value(values, "nodes.node_data", [complete_node(node) for node in nodes])
    for path, value in sum_declared_nodes(nodes).items():
        if get_value(values, path) is None:
            values = set_value(values, path, value)
    return values


def find_total_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for each declared sum which differs from the sum over the declared nodes.

    Without declared nodes every declared sum is a problem. A sum that is unknown, as declared or
    over the nodes, is none.
    """
    nodes = get_value(values, "nodes.node_data")
    sums = {} if nodes is None else sum_declared_nodes(nodes)
    for path in (NODE_COUNT, *SUM_PATHS):
        declared = get_value(values, path)
        if declared is None or declared is UNKNOWN:
            continue
        # nobody knows the sum: aios.GpuNode resources add entries on their own
        if nodes is None:
            yield Problem(
                path,
                "is computed from nodes.node_data: declare the nodes there, or remove it (the "
                "nodes of aios.GpuNode resources count automatically)",
            )
        elif not contains_unknown(sums[path]) and not is_equal(declared, sums[path]):
            yield Problem(
                path,
                f"{declared:g} is not the sum over the nodes: write {sums[path]:g}, or remove it: "
                "gpuform computes the sum",
            )


def find_gpu_problems(gpus: Values) -> Iterator[Problem]:
    """Yield a problem for each missing or wrong number, memory or list of models of a node's GPUs.

    Number and memory are required unless the GPUs are listed one by one. Beside such a list,
    declared values have to be those of the list.
    """
    listed: Any = gpus.get("gpus")
    computed = _summarize_gpus(listed)
    for name in ("count", "memory"):
        declared = gpus.get(name)
        if listed is None and declared is None:
            yield Problem(name, "is required: declare it, or list the node's GPUs in gpus")
        elif name in computed and not _is_consistent(declared, computed[name]):
            yield Problem(
                name,
                f"{declared:g} is not the sum over the {len(listed)} listed GPUs: write "
                f"{computed[name]:g}, or remove it: gpuform computes the sum",
            )
    names = gpus.get("model_names")
    if "model_names" in computed and not _is_consistent(names, computed["model_names"]):
        yield Problem(
            "model_names",
            f"are not those of the listed GPUs: write {', '.join(computed['model_names'])}, or "
            "remove the field: gpuform computes the names",
        )


def _summarize_gpus(listed: Any) -> dict[str, Any]:
    """Return count, memory and models of listed GPUs; empty without a list, UNKNOWN if unknown.

    With an unknown part anywhere in the list, all three values are UNKNOWN. A GPU without a memory
    counts as 0.
    """
    if listed is None:
        return {}
    if contains_unknown(listed):
        return dict.fromkeys(("count", "memory", "model_names"), UNKNOWN)
    models = [gpu.get("model_name") for gpu in listed]
    return {
        "count": len(listed),
        "memory": sum(gpu.get("memory", 0) for gpu in listed),
        "model_names": list(dict.fromkeys(models)),
    }


def _is_consistent(declared: Any, computed: Any) -> bool:
    """Return True if a declared sum is absent, unknown or equal to the computed sum."""
    if declared is None or contains_unknown(declared) or contains_unknown(computed):
        return True
    return is_equal(declared, computed, unordered=isinstance(computed, Sequence))


def _sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of the numbers, ignoring None; UNKNOWN if a number is unknown."""
    present_values = [value for value in values if value is not None]
    return UNKNOWN if contains_unknown(present_values) else sum(present_values)


class GpuInputs(InputModel):
    """One GPU."""

    # Pydantic reserves names that begin with `model_`, and the registry has such names.
    model_config = ConfigDict(protected_namespaces=())

    model_name: str = Field(
        min_length=1, description="Model, such as NVIDIA A100.", examples=["NVIDIA A100"]
    )
    memory: int = Field(ge=0, description="Memory of the GPU in MB.", examples=[16384])


class NodeGpusInputs(InputModel):
    """The GPUs of a node."""

    model_config = ConfigDict(protected_namespaces=())

    count: int | None = optional_field(
        "Number of GPUs; computed if they are listed.", ge=0, examples=[2]
    )
    memory: int | None = optional_field(
        "Memory of all GPUs in MB; computed if they are listed.", ge=0, examples=[32768]
    )
    gpus: list[GpuInputs] | None = optional_field(
        "The GPUs one by one.", examples=[[{"model_name": "NVIDIA A100", "memory": 16384}]]
    )
    features: Annotated[list[str] | None, Unordered] = optional_field(
        "Features of the GPUs, such as tensor_cores.", examples=[["fp16", "tensor_cores"]]
    )
    model_names: Annotated[list[str] | None, Unordered] = optional_field(
        "The distinct models; computed when the GPUs are listed.", examples=[["NVIDIA A100"]]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each missing or wrong number, memory or model list of GPUs."""
        return find_gpu_problems(values)


class VcpusInputs(InputModel):
    """The virtual CPUs of a node."""

    count: int = Field(ge=0, description="Number of virtual CPUs.", examples=[32])


class StorageInputs(InputModel):
    """The storage of a node."""

    disks: int = Field(ge=0, description="Number of disks.", examples=[2])
    size: int = Field(ge=0, description="Size of all disks in MB.", examples=[1048576])


class NetworkInputs(InputModel):
    """The network of a node."""

    interfaces: int = Field(ge=0, description="Number of network interfaces.", examples=[2])
    tx_bandwidth: float = Field(ge=0, description="Bandwidth of sending in MB/s.", examples=[10000])
    rx_bandwidth: float = Field(
        ge=0, description="Bandwidth of receiving in MB/s.", examples=[10000]
    )


class HardwareInputs(InputModel):
    """The hardware of a node."""

    gpus: NodeGpusInputs = Field(
        description="GPUs of the node.",
        examples=[{"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]}],
    )
    vcpus: VcpusInputs = Field(description="Virtual CPUs of the node.", examples=[{"count": 32}])
    memory: int = Field(ge=0, description="Memory of the node in MB.", examples=[131072])
    swap: int = Field(ge=0, description="Swap space of the node in MB.", examples=[8192])
    storage: StorageInputs = Field(
        description="Storage of the node.", examples=[{"disks": 2, "size": 1048576}]
    )
    # The reference says MBps for nodes; other pages say Mbps.
    network: NetworkInputs = Field(
        description="Network of the node.",
        examples=[{"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000}],
    )


class _NamedInputs(InputModel):
    """The id of a node. A base class of its own, so that the id comes first."""

    id: Line = Field(
        min_length=1, description="Id of the node in this cluster.", examples=["node-1"]
    )


class NodeInputs(HardwareInputs, _NamedInputs):
    """One node of a cluster."""


NODES_EXAMPLE: Final = [
    {
        "gpus": {"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]},
        "vcpus": {"count": 32},
        "memory": 131072,
        "swap": 8192,
        "storage": {"disks": 2, "size": 1048576},
        "network": {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000},
        "id": "node-1",
    }
]


class NodesInputs(InputModel):
    """The nodes of a cluster."""

    count: int | None = optional_field("Number of nodes; computed.", ge=0, examples=[1])
    node_data: Annotated[list[NodeInputs] | None, KeyedBy("id", closed=True)] = optional_field(
        "The nodes one by one. Not together with aios.GpuNode resources.",
        examples=[NODES_EXAMPLE],
    )


class TotalGpusInputs(InputModel):
    """All GPUs of a cluster."""

    count: int | None = optional_field("Number of GPUs; computed.", ge=0, examples=[3])
    memory: int | None = optional_field(
        "Memory of all GPUs in MB; computed.", ge=0, examples=[49152]
    )


class TotalVcpusInputs(InputModel):
    """All virtual CPUs of a cluster."""

    count: int | None = optional_field("Number of virtual CPUs; computed.", ge=0, examples=[48])


class TotalStorageInputs(InputModel):
    """All storage of a cluster."""

    disks: int | None = optional_field("Number of disks; computed.", ge=0, examples=[3])
    size: int | None = optional_field(
        "Size of all disks in MB; computed.", ge=0, examples=[1572864]
    )


class TotalNetworkInputs(InputModel):
    """The network of all nodes of a cluster."""

    interfaces: int | None = optional_field(
        "Number of network interfaces; computed.", ge=0, examples=[3]
    )
    tx_bandwidth: float | None = optional_field(
        "Bandwidth of sending in MB/s; computed.", ge=0, examples=[15000]
    )
    rx_bandwidth: float | None = optional_field(
        "Bandwidth of receiving in MB/s; computed.", ge=0, examples=[15000]
    )


class ConfigInputs(InputModel):
    """The settings of the cluster's controller."""

    # the registry's schema marks url_map as required, but the system fills it in
    system_names: ClassVar[Mapping[str, str]] = {
        "url_map": "is set by the system: remove it, and read the output of the cluster"
    }

    policy_executor_id: Annotated[str | None, Default("")] = optional_field(
        "Id of a custom policy executor.", examples=["policy-exec-007"]
    )
    policy_execution_mode: Annotated[str | None, Default("local")] = optional_field(
        "Where policies are executed, such as local.", examples=["local"]
    )
    custom_policy_system: Any = optional_field(
        "A custom policy system: any value, passed on unchanged.",
        examples=[{"name": "AdvancedPolicyRunner", "version": "2.1.0"}],
    )
    public_hostname: str = Field(
        min_length=1,
        description="Public host name of the cluster.",
        examples=["cluster-west-vision-001.company.net"],
    )
    use_gateway: Annotated[bool | None, Default(True)] = optional_field(
        "Whether clients reach the cluster through a gateway.", examples=[False]
    )
    actions_policy_map: Any = optional_field(
        "Policies by the actions that they decide: any value.",
        examples=[{"onScaleUp": "evaluate-gpu-availability", "onFailure": "notify-admin"}],
    )


class ClusterMetadataInputs(InputModel):
    """Facts about the cluster for people."""

    name: str = Field(description="A readable name.", examples=["West"])
    description: str = Field(
        description="Purpose of the cluster.", examples=["Serves vision models."]
    )
    owner: str = Field(
        description="Person or team that manages the cluster.", examples=["AI Infrastructure"]
    )
    email: str | None = optional_field("Email address for contact.", examples=["infra@example.com"])
    countries: Annotated[list[str] | None, Unordered] = optional_field(
        "Countries that the cluster belongs to.", examples=[["USA", "Canada"]]
    )
    misc_contact_info: Any = optional_field(
        "Further contacts and support: any value.", examples=[{"slack": "#ml-infra"}]
    )
    # Public examples keep a kubeadm join command here.
    additional_info: Any = optional_field(
        "Other facts: any value. Pass a pulumi.Output.secret if the value contains a "
        "secret, such as a join command.",
        examples=[{"rack": "B12"}],
    )
