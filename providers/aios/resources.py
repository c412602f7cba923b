"""AIOS's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.aios.cluster import ClusterLifecycle
from gpuform.providers.aios.gpu_node import GpuNodeLifecycle
from gpuform.providers.resource import PlatformResource
from gpuform.providers.shared_types import ScheduledDrainArguments, ScheduledDrainValues

__all__ = ["Cluster", "GpuNode"]

CreateMode = Literal["parser", "direct"]


class GpuArguments(TypedDict):
    """One GPU."""

    model_name: pulumi.Input[str]
    """Model, such as NVIDIA A100."""
    memory: pulumi.Input[int]
    """Memory of the GPU in MB."""


class NodeGpusArguments(TypedDict):
    """The GPUs of a node."""

    count: NotRequired[pulumi.Input[int] | None]
    """Number of GPUs; computed if they are listed."""
    memory: NotRequired[pulumi.Input[int] | None]
    """Memory of all GPUs in MB; computed if they are listed."""
    gpus: NotRequired[pulumi.Input[Sequence[pulumi.Input[GpuArguments]]] | None]
    """The GPUs one by one."""
    features: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Features of the GPUs, such as tensor_cores."""
    model_names: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """The distinct models; computed when the GPUs are listed."""


class VcpusArguments(TypedDict):
    """The virtual CPUs of a node."""

    count: pulumi.Input[int]
    """Number of virtual CPUs."""


class StorageArguments(TypedDict):
    """The storage of a node."""

    disks: pulumi.Input[int]
    """Number of disks."""
    size: pulumi.Input[int]
    """Size of all disks in MB."""


class NetworkArguments(TypedDict):
    """The network of a node."""

    interfaces: pulumi.Input[int]
    """Number of network interfaces."""
    tx_bandwidth: pulumi.Input[float]
    """Bandwidth of sending in MB/s."""
    rx_bandwidth: pulumi.Input[float]
    """Bandwidth of receiving in MB/s."""


class NodeArguments(TypedDict):
    """One node of a cluster."""

    id: pulumi.Input[str]
    """Id of the node in this cluster."""
    gpus: pulumi.Input[NodeGpusArguments]
    """GPUs of the node."""
    vcpus: pulumi.Input[VcpusArguments]
    """Virtual CPUs of the node."""
    memory: pulumi.Input[int]
    """Memory of the node in MB."""
    swap: pulumi.Input[int]
    """Swap space of the node in MB."""
    storage: pulumi.Input[StorageArguments]
    """Storage of the node."""
    network: pulumi.Input[NetworkArguments]
    """Network of the node."""


class NodesArguments(TypedDict):
    """The nodes of a cluster."""

    count: NotRequired[pulumi.Input[int] | None]
    """Number of nodes; computed."""
    node_data: NotRequired[pulumi.Input[Sequence[pulumi.Input[NodeArguments]]] | None]
    """The nodes one by one. Not together with aios.GpuNode resources."""


class TotalGpusArguments(TypedDict):
    """All GPUs of a cluster."""

    count: NotRequired[pulumi.Input[int] | None]
    """Number of GPUs; computed."""
    memory: NotRequired[pulumi.Input[int] | None]
    """Memory of all GPUs in MB; computed."""


class TotalVcpusArguments(TypedDict):
    """All virtual CPUs of a cluster."""

    count: NotRequired[pulumi.Input[int] | None]
    """Number of virtual CPUs; computed."""


class TotalStorageArguments(TypedDict):
    """All storage of a cluster."""

    disks: NotRequired[pulumi.Input[int] | None]
    """Number of disks; computed."""
    size: NotRequired[pulumi.Input[int] | None]
    """Size of all disks in MB; computed."""


class TotalNetworkArguments(TypedDict):
    """The network of all nodes of a cluster."""

    interfaces: NotRequired[pulumi.Input[int] | None]
    """Number of network interfaces; computed."""
    tx_bandwidth: NotRequired[pulumi.Input[float] | None]
    """Bandwidth of sending in MB/s; computed."""
    rx_bandwidth: NotRequired[pulumi.Input[float] | None]
    """Bandwidth of receiving in MB/s; computed."""


class ConfigArguments(TypedDict):
    """The settings of the cluster's controller."""

    policy_executor_id: NotRequired[pulumi.Input[str] | None]
    """Id of a custom policy executor."""
    policy_execution_mode: NotRequired[pulumi.Input[str] | None]
    """Where policies are executed, such as local."""
    custom_policy_system: NotRequired[pulumi.Input[Any] | None]
    """A custom policy system: any value, passed on unchanged."""
    public_hostname: pulumi.Input[str]
    """Public host name of the cluster."""
    use_gateway: NotRequired[pulumi.Input[bool] | None]
    """Whether clients reach the cluster through a gateway."""
    actions_policy_map: NotRequired[pulumi.Input[Any] | None]
    """Policies by the actions that they decide: any value."""


class ClusterMetadataArguments(TypedDict):
    """Facts about the cluster for people."""

    name: pulumi.Input[str]
    """A readable name."""
    description: pulumi.Input[str]
    """Purpose of the cluster."""
    owner: pulumi.Input[str]
    """Person or team that manages the cluster."""
    email: NotRequired[pulumi.Input[str] | None]
    """Email address for contact."""
    countries: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Countries that the cluster belongs to."""
    misc_contact_info: NotRequired[pulumi.Input[Any] | None]
    """Further contacts and support: any value."""
    additional_info: NotRequired[pulumi.Input[Any] | None]
    """Other facts: any value. Pass a pulumi.Output.secret if the value contains a secret, such as a
    join command."""


class ClusterArguments(TypedDict):
    """A cluster's record in the registry. A record neither creates nor deletes hardware."""

    cluster_id: pulumi.Input[str]
    """Id of the cluster, unique in the registry. (replaces)"""
    region_id: NotRequired[pulumi.Input[str] | None]
    """Region or network where the cluster is."""
    status: NotRequired[pulumi.Input[str] | None]
    """Status of the cluster; if not declared, the system sets the status."""
    nodes: NotRequired[pulumi.Input[NodesArguments] | None]
    """The nodes one by one in node_data; without it, aios.GpuNode resources add the nodes."""
    gpus: NotRequired[pulumi.Input[TotalGpusArguments] | None]
    """Total GPUs: computed from the nodes."""
    vcpus: NotRequired[pulumi.Input[TotalVcpusArguments] | None]
    """Total virtual CPUs: computed from the nodes."""
    memory: NotRequired[pulumi.Input[int] | None]
    """Total memory in MB: computed from the nodes."""
    swap: NotRequired[pulumi.Input[int] | None]
    """Total swap space in MB: computed from the nodes."""
    storage: NotRequired[pulumi.Input[TotalStorageArguments] | None]
    """Total storage: computed from the nodes."""
    network: NotRequired[pulumi.Input[TotalNetworkArguments] | None]
    """Total network: computed from the nodes."""
    config: pulumi.Input[ConfigArguments]
    """Settings of the cluster's controller."""
    tags: pulumi.Input[Sequence[pulumi.Input[str]]]
    """Tags or labels."""
    cluster_metadata: pulumi.Input[ClusterMetadataArguments]
    """Facts for people: name, description, owner and more."""
    reputation: NotRequired[pulumi.Input[float] | None]
    """Reputation of the cluster, which the AIOS network may change. (in place, write-only)"""
    create_mode: NotRequired[pulumi.Input[CreateMode] | None]
    """How to create the record: by the Parser, or directly in the registry. (nothing)"""
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]
    """A setting of gpuform, never sent: what to do about jobs on nodes before their entries are
    removed, and which scheduler to ask. Without it, gpuform does not look for jobs. (nothing)"""


class GpuNodeArguments(TypedDict):
    """One node of a cluster, declared apart from the cluster's record."""

    cluster_id: pulumi.Input[str] | PlatformResource
    """Id of the cluster that the node belongs to. (replaces)"""
    node_id: pulumi.Input[str]
    """Id of the node in the cluster. (replaces)"""
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]
    """A setting of gpuform, never sent: what to do about jobs on the node before its entry is
    removed, and which scheduler to ask. Without it, gpuform does not look for jobs. (nothing)"""
    gpus: pulumi.Input[NodeGpusArguments]
    """GPUs of the node."""
    vcpus: pulumi.Input[VcpusArguments]
    """Virtual CPUs of the node."""
    memory: pulumi.Input[int]
    """Memory of the node in MB."""
    swap: pulumi.Input[int]
    """Swap space of the node in MB."""
    storage: pulumi.Input[StorageArguments]
    """Storage of the node."""
    network: pulumi.Input[NetworkArguments]
    """Network of the node."""


if TYPE_CHECKING:

    class GpuValues(TypedDict):
        """One GPU."""

        model_name: str
        """Model, such as NVIDIA A100."""
        memory: int
        """Memory of the GPU in MB."""

    class NodeGpusValues(TypedDict):
        """The GPUs of a node."""

        count: NotRequired[int]
        """Number of GPUs; computed if they are listed."""
        memory: NotRequired[int]
        """Memory of all GPUs in MB; computed if they are listed."""
        gpus: NotRequired[list[GpuValues]]
        """The GPUs one by one."""
        features: NotRequired[list[str]]
        """Features of the GPUs, such as tensor_cores."""
        model_names: NotRequired[list[str]]
        """The distinct models; computed when the GPUs are listed."""

    class VcpusValues(TypedDict):
        """The virtual CPUs of a node."""

        count: int
        """Number of virtual CPUs."""

    class StorageValues(TypedDict):
        """The storage of a node."""

        disks: int
        """Number of disks."""
        size: int
        """Size of all disks in MB."""

    class NetworkValues(TypedDict):
        """The network of a node."""

        interfaces: int
        """Number of network interfaces."""
        tx_bandwidth: float
        """Bandwidth of sending in MB/s."""
        rx_bandwidth: float
        """Bandwidth of receiving in MB/s."""

    class NodeValues(TypedDict):
        """One node of a cluster."""

        id: str
        """Id of the node in this cluster."""
        gpus: NodeGpusValues
        """GPUs of the node."""
        vcpus: VcpusValues
        """Virtual CPUs of the node."""
        memory: int
        """Memory of the node in MB."""
        swap: int
        """Swap space of the node in MB."""
        storage: StorageValues
        """Storage of the node."""
        network: NetworkValues
        """Network of the node."""

    class NodesValues(TypedDict):
        """The nodes of a cluster."""

        count: NotRequired[int]
        """Number of nodes; computed."""
        node_data: NotRequired[list[NodeValues]]
        """The nodes one by one. Not together with aios.GpuNode resources."""

    class TotalGpusValues(TypedDict):
        """All GPUs of a cluster."""

        count: NotRequired[int]
        """Number of GPUs; computed."""
        memory: NotRequired[int]
        """Memory of all GPUs in MB; computed."""

    class TotalVcpusValues(TypedDict):
        """All virtual CPUs of a cluster."""

        count: NotRequired[int]
        """Number of virtual CPUs; computed."""

    class TotalStorageValues(TypedDict):
        """All storage of a cluster."""

        disks: NotRequired[int]
        """Number of disks; computed."""
        size: NotRequired[int]
        """Size of all disks in MB; computed."""

    class TotalNetworkValues(TypedDict):
        """The network of all nodes of a cluster."""

        interfaces: NotRequired[int]
        """Number of network interfaces; computed."""
        tx_bandwidth: NotRequired[float]
        """Bandwidth of sending in MB/s; computed."""
        rx_bandwidth: NotRequired[float]
        """Bandwidth of receiving in MB/s; computed."""

    class ConfigValues(TypedDict):
        """The settings of the cluster's controller."""

        policy_executor_id: NotRequired[str]
        """Id of a custom policy executor."""
        policy_execution_mode: NotRequired[str]
        """Where policies are executed, such as local."""
        custom_policy_system: NotRequired[Any]
        """A custom policy system: any value, passed on unchanged."""
        public_hostname: str
        """Public host name of the cluster."""
        use_gateway: NotRequired[bool]
        """Whether clients reach the cluster through a gateway."""
        actions_policy_map: NotRequired[Any]
        """Policies by the actions that they decide: any value."""

    class ClusterMetadataValues(TypedDict):
        """Facts about the cluster for people."""

        name: str
        """A readable name."""
        description: str
        """Purpose of the cluster."""
        owner: str
        """Person or team that manages the cluster."""
        email: NotRequired[str]
        """Email address for contact."""
        countries: NotRequired[list[str]]
        """Countries that the cluster belongs to."""
        misc_contact_info: NotRequired[Any]
        """Further contacts and support: any value."""
        additional_info: NotRequired[Any]
        """Other facts: any value. Pass a pulumi.Output.secret if the value contains a secret, such
        as a join command."""

    class UrlMapValues(TypedDict):
        """The addresses of the cluster's services."""

        controller_service: NotRequired[str]
        """URL of the controller."""
        metrics_service: NotRequired[str]
        """URL of the metrics."""
        blocks_query: NotRequired[str]
        """URL for queries about blocks."""
        public_gateway: NotRequired[str]
        """URL of the public gateway."""
        parameter_updater: NotRequired[str]
        """URL for changes of parameters."""

    class TotalsValues(TypedDict):
        """The totals in a record, whoever wrote them."""

        nodes: NotRequired[float]
        """Nodes."""
        gpus: NotRequired[float]
        """GPUs."""
        gpu_memory: NotRequired[float]
        """Memory of all GPUs."""
        vcpus: NotRequired[float]
        """Virtual CPUs."""
        memory: NotRequired[float]
        """Memory."""
        swap: NotRequired[float]
        """Swap space."""
        disks: NotRequired[float]
        """Disks."""
        storage: NotRequired[float]
        """Size of all disks."""
        interfaces: NotRequired[float]
        """Network interfaces."""
        tx_bandwidth: NotRequired[float]
        """Bandwidth of sending."""
        rx_bandwidth: NotRequired[float]
        """Bandwidth of receiving."""

else:
    GpuValues = dict[str, Any]
    NodeGpusValues = dict[str, Any]
    VcpusValues = dict[str, Any]
    StorageValues = dict[str, Any]
    NetworkValues = dict[str, Any]
    NodeValues = dict[str, Any]
    NodesValues = dict[str, Any]
    TotalGpusValues = dict[str, Any]
    TotalVcpusValues = dict[str, Any]
    TotalStorageValues = dict[str, Any]
    TotalNetworkValues = dict[str, Any]
    ConfigValues = dict[str, Any]
    ClusterMetadataValues = dict[str, Any]
    UrlMapValues = dict[str, Any]
    TotalsValues = dict[str, Any]


class Cluster(PlatformResource, module="gpuform.aios", name="Cluster"):
    """A cluster's record in the registry. A record neither creates nor deletes hardware."""

    _lifecycle = ClusterLifecycle

    cluster_id: pulumi.Output[str]
    """Id of the cluster, unique in the registry."""
    region_id: pulumi.Output[str | None]
    """Region or network where the cluster is."""
    status: pulumi.Output[str | None]
    """Status, as the registry reports it."""
    nodes: pulumi.Output[NodesValues | None]
    """The nodes one by one in node_data; without it, aios.GpuNode resources add the nodes."""
    gpus: pulumi.Output[TotalGpusValues | None]
    """Total GPUs: computed from the nodes."""
    vcpus: pulumi.Output[TotalVcpusValues | None]
    """Total virtual CPUs: computed from the nodes."""
    memory: pulumi.Output[int | None]
    """Total memory in MB: computed from the nodes."""
    swap: pulumi.Output[int | None]
    """Total swap space in MB: computed from the nodes."""
    storage: pulumi.Output[TotalStorageValues | None]
    """Total storage: computed from the nodes."""
    network: pulumi.Output[TotalNetworkValues | None]
    """Total network: computed from the nodes."""
    config: pulumi.Output[ConfigValues]
    """Settings of the cluster's controller."""
    tags: pulumi.Output[list[str]]
    """Tags or labels."""
    cluster_metadata: pulumi.Output[ClusterMetadataValues]
    """Facts for people: name, description, owner and more."""
    reputation: pulumi.Output[float | None]
    """Reputation of the cluster, which the AIOS network may change."""
    create_mode: pulumi.Output[str | None]
    """How to create the record: by the Parser, or directly in the registry."""
    drain: pulumi.Output[ScheduledDrainValues | None]
    """A setting of gpuform, never sent: what to do about jobs on nodes before their entries are
    removed, and which scheduler to ask. Without it, gpuform does not look for jobs."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    object_id: pulumi.Output[str | None]
    """MongoDB's id of the record; people choose the other id, cluster_id."""
    url_map: pulumi.Output[UrlMapValues | None]
    """URLs of the cluster's services, filled in by the system."""
    network_reputation: pulumi.Output[float | None]
    """The present reputation in the registry, which the AIOS network may change."""
    totals: pulumi.Output[TotalsValues | None]
    """The present totals in the registry, which the AIOS network may change."""
    totals_agree: pulumi.Output[bool | None]
    """Whether the totals equal the sums over the nodes of the record."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class GpuNode(PlatformResource, module="gpuform.aios", name="GpuNode"):
    """One node of a cluster, declared apart from the cluster's record."""

    _lifecycle = GpuNodeLifecycle

    cluster_id: pulumi.Output[str]
    """Id of the cluster that the node belongs to."""
    node_id: pulumi.Output[str]
    """Id of the node in the cluster."""
    drain: pulumi.Output[ScheduledDrainValues | None]
    """A setting of gpuform, never sent: what to do about jobs on the node before its entry is
    removed, and which scheduler to ask. Without it, gpuform does not look for jobs."""
    gpus: pulumi.Output[NodeGpusValues]
    """GPUs of the node."""
    vcpus: pulumi.Output[VcpusValues]
    """Virtual CPUs of the node."""
    memory: pulumi.Output[int]
    """Memory of the node in MB."""
    swap: pulumi.Output[int]
    """Swap space of the node in MB."""
    storage: pulumi.Output[StorageValues]
    """Storage of the node."""
    network: pulumi.Output[NetworkValues]
    """Network of the node."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    object_id: pulumi.Output[str | None]
    """MongoDB's id of the entry; people choose the other id, node_id."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[GpuNodeArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
