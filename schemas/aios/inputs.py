"""Define the inputs and outputs of AIOS clusters (records of the registry) and their nodes.

Names are the registry's own in snake_case, except for `id`, which Pulumi reserves: here it is
cluster_id or node_id. Facts are from the AIOS registry reference, 'Clusters registry'.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.aios.parts import (
    NODES_EXAMPLE,
    ClusterMetadataInputs,
    ConfigInputs,
    HardwareInputs,
    NodesInputs,
    TotalGpusInputs,
    TotalNetworkInputs,
    TotalStorageInputs,
    TotalVcpusInputs,
    add_totals,
    complete_node,
    find_total_problems,
)
from gpuform.schemas.models import (
    Id,
    InputModel,
    Line,
    OutputModel,
    OutputPart,
    Problem,
    optional_field,
)
from gpuform.schemas.policies.drain import ScheduledDrainInputs
from gpuform.schemas.rules import Default, Immutable, Local, ReferenceTo, Unordered, WriteOnly

CreateMode = Literal["parser", "direct"]

LIVE_STATUS = "live"
"""The status of a usable cluster, the only one that the reference shows."""


def _validate_path_segment(object_id: str) -> str:
    """Return the id unchanged, because ids become a segment of the record's URL.

    Raises ValueError if it contains `/`.
    """
    # ids are chosen by people, and get into the path of requests
    if "/" in object_id:
        raise ValueError("must have no /: it is a part of the record's URL")
    return object_id


ClusterId = Annotated[Id, AfterValidator(_validate_path_segment)]


class ClusterInputs(InputModel):
    """A cluster's record in the registry. A record neither creates nor deletes hardware."""

    retired_names: ClassVar[Mapping[str, str]] = {"id": "cluster_id"}

    # The API would let `$set` rename a record; gpuform replaces it instead.
    cluster_id: Annotated[ClusterId, Immutable] = Field(
        min_length=1,
        description="Id of the cluster, unique in the registry.",
        examples=["cluster-west-vision-001"],
    )
    region_id: str | None = optional_field(
        "Region or network where the cluster is.", examples=["us-west-2"]
    )
    # The Parser drops it on a create, so it is set afterwards.
    status: str | None = optional_field(
        "Status of the cluster; if not declared, the system sets the status.",
        min_length=1,
        examples=["live"],
    )
    nodes: NodesInputs | None = optional_field(
        "The nodes one by one in node_data; without it, aios.GpuNode resources add the nodes.",
        examples=[{"node_data": NODES_EXAMPLE}],
    )
    gpus: TotalGpusInputs | None = optional_field(
        "Total GPUs: computed from the nodes.", examples=[{"count": 3, "memory": 49152}]
    )
    vcpus: TotalVcpusInputs | None = optional_field(
        "Total virtual CPUs: computed from the nodes.", examples=[{"count": 48}]
    )
    memory: int | None = optional_field(
        "Total memory in MB: computed from the nodes.", ge=0, examples=[196608]
    )
    swap: int | None = optional_field(
        "Total swap space in MB: computed from the nodes.", ge=0, examples=[12288]
    )
    storage: TotalStorageInputs | None = optional_field(
        "Total storage: computed from the nodes.", examples=[{"disks": 3, "size": 1572864}]
    )
    network: TotalNetworkInputs | None = optional_field(
        "Total network: computed from the nodes.",
        examples=[{"interfaces": 3, "tx_bandwidth": 15000, "rx_bandwidth": 15000}],
    )
    config: ConfigInputs = Field(
        description="Settings of the cluster's controller.",
        examples=[{"public_hostname": "cluster-west-vision-001.company.net"}],
    )
    tags: Annotated[list[str], Unordered] = Field(
        description="Tags or labels.", examples=[["gpu", "vision"]]
    )
    cluster_metadata: ClusterMetadataInputs = Field(
        description="Facts for people: name, description, owner and more.",
        examples=[
            {"name": "West", "description": "Serves vision models.", "owner": "AI Infrastructure"}
        ],
    )
    # The network changes it by itself, which is no drift.
    reputation: Annotated[float | None, WriteOnly] = optional_field(
        "Reputation of the cluster, which the AIOS network may change.", examples=[94]
    )
    # `POST /clusters` exists in the registry's code, but not in its reference.
    create_mode: Annotated[CreateMode | None, Local, Default("parser")] = optional_field(
        "How to create the record: by the Parser, or directly in the registry.", examples=["direct"]
    )
    drain: Annotated[ScheduledDrainInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do about jobs on nodes before their entries are "
        "removed, and which scheduler to ask. Without it, gpuform does not look for jobs.",
        examples=[{"on_busy": "wait", "kubernetes": {"kubeconfig": "~/.kube/west"}}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each node id declared twice and each wrong declared sum."""
        yield from _find_repeated_nodes(values)
        yield from find_total_problems(values)

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs with undeclared GPU totals of nodes and sums of the cluster filled in.

        Declared values stay as they are. Without declared nodes nothing is filled in.
        """
        return add_totals(values)


class _OneInputs(InputModel):
    """Identifies the node. A base class of its own, so that these fields come first."""

    cluster_id: Annotated[ClusterId, Immutable, ReferenceTo("Cluster")] = Field(
        min_length=1,
        description="Id of the cluster that the node belongs to.",
        examples=["{{ clusters.west.id }}", "cluster-west-vision-001"],
    )
    node_id: Annotated[Line, Immutable] = Field(
        min_length=1, description="Id of the node in the cluster.", examples=["node-1"]
    )
    drain: Annotated[ScheduledDrainInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do about jobs on the node before its entry is "
        "removed, and which scheduler to ask. Without it, gpuform does not look for jobs.",
        examples=[{"on_busy": "wait", "kubernetes": {"kubeconfig": "~/.kube/west"}}],
    )


class GpuNodeInputs(HardwareInputs, _OneInputs):
    """One node of a cluster, declared apart from the cluster's record."""

    retired_names: ClassVar[Mapping[str, str]] = {"id": "node_id"}

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs with undeclared number, memory and models of GPUs filled in.

        The values are computed from the listed GPUs. Declared values stay as they are.
        """
        node: dict[str, Any] = complete_node(values)
        return node


def _find_repeated_nodes(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each node in `nodes.node_data` whose id an earlier node has, too."""
    nodes = values.get("nodes")
    entries = nodes.get("node_data") if isinstance(nodes, Mapping) else None
    known_ids: set[str] = set()
    for index, entry in enumerate(entries or ()):
        id_ = entry.get("id") if isinstance(entry, Mapping) else None
        if isinstance(id_, str) and id_ in known_ids:
            yield Problem(
                f"nodes.node_data[{index}].id", f"{id_} is declared twice: name each once"
            )
        elif isinstance(id_, str):
            known_ids.add(id_)


class UrlMapOutputs(OutputPart):
    """The addresses of the cluster's services."""

    controller_service: str | None = optional_field("URL of the controller.")
    metrics_service: str | None = optional_field("URL of the metrics.")
    blocks_query: str | None = optional_field("URL for queries about blocks.")
    public_gateway: str | None = optional_field("URL of the public gateway.")
    parameter_updater: str | None = optional_field("URL for changes of parameters.")


class TotalsOutputs(OutputPart):
    """The totals in a record, whoever wrote them. Sizes are in MB, bandwidths in MB/s."""

    nodes: float | None = optional_field("Nodes.")
    gpus: float | None = optional_field("GPUs.")
    gpu_memory: float | None = optional_field("Memory of all GPUs.")
    vcpus: float | None = optional_field("Virtual CPUs.")
    memory: float | None = optional_field("Memory.")
    swap: float | None = optional_field("Swap space.")
    disks: float | None = optional_field("Disks.")
    storage: float | None = optional_field("Size of all disks.")
    interfaces: float | None = optional_field("Network interfaces.")
    tx_bandwidth: float | None = optional_field("Bandwidth of sending.")
    rx_bandwidth: float | None = optional_field("Bandwidth of receiving.")


class ClusterOutputs(OutputModel):
    """A record of the registry. That it exists says nothing about the hardware."""

    object_id: str | None = optional_field(
        "MongoDB's id of the record; people choose the other id, cluster_id."
    )
    status: str | None = optional_field("Status, as the registry reports it.")
    url_map: UrlMapOutputs | None = optional_field(
        "URLs of the cluster's services, filled in by the system."
    )
    network_reputation: float | None = optional_field(
        "The present reputation in the registry, which the AIOS network may change."
    )
    totals: TotalsOutputs | None = optional_field(
        "The present totals in the registry, which the AIOS network may change."
    )
    totals_agree: bool | None = optional_field(
        "Whether the totals equal the sums over the nodes of the record."
    )


class GpuNodeOutputs(OutputModel):
    """An entry of a cluster's record."""

    object_id: str | None = optional_field(
        "MongoDB's id of the entry; people choose the other id, node_id."
    )
