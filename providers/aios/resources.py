"""AIOS's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.aios.cluster import ClusterLifecycle
from gpuform.providers.aios.gpu_node import GpuNodeLifecycle
from gpuform.providers.resource import PlatformResource

__all__ = ["Cluster", "GpuNode"]

Via = Literal[
    "exec",
    "ssh",
    "local",
]

DrainBy = Literal[
    "scontrol",
    "slinky",
]

OnBusy = Literal[
    "wait",
    "fail",
    "evict",
]

CreateMode = Literal[
    "parser",
    "direct",
]


class GpuArguments(TypedDict):
    """One GPU."""

    # Model, such as NVIDIA A100.
    model_name: pulumi.Input[str]
    # Memory of the GPU in MB.
    memory: pulumi.Input[int]


class NodeGpusArguments(TypedDict):
    """The GPUs of a node."""

    # Number of GPUs; computed if they are listed.
    count: NotRequired[pulumi.Input[int] | None]
    # Memory of all GPUs in MB; computed if they are listed.
    memory: NotRequired[pulumi.Input[int] | None]
    # The GPUs one by one.
    gpus: NotRequired[pulumi.Input[Sequence[pulumi.Input[GpuArguments]]] | None]
    # Features of the GPUs, such as tensor_cores.
    features: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # The distinct models; computed when the GPUs are listed.
    model_names: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]


class VcpusArguments(TypedDict):
    """The virtual CPUs of a node."""

    # Number of virtual CPUs.
    count: pulumi.Input[int]


class StorageArguments(TypedDict):
    """The storage of a node."""

    # Number of disks.
    disks: pulumi.Input[int]
    # Size of all disks in MB.
    size: pulumi.Input[int]


class NetworkArguments(TypedDict):
    """The network of a node."""

    # Number of network interfaces.
    interfaces: pulumi.Input[int]
    # Bandwidth of sending in MB/s.
    tx_bandwidth: pulumi.Input[float]
    # Bandwidth of receiving in MB/s.
    rx_bandwidth: pulumi.Input[float]


class NodeArguments(TypedDict):
    """One node of a cluster."""

    # Id of the node in this cluster.
    id: pulumi.Input[str]
    # GPUs of the node.
    gpus: pulumi.Input[NodeGpusArguments]
    # Virtual CPUs of the node.
    vcpus: pulumi.Input[VcpusArguments]
    # Memory of the node in MB.
    memory: pulumi.Input[int]
    # Swap space of the node in MB.
    swap: pulumi.Input[int]
    # Storage of the node.
    storage: pulumi.Input[StorageArguments]
    # Network of the node.
    network: pulumi.Input[NetworkArguments]


class NodesArguments(TypedDict):
    """The nodes of a cluster."""

    # Number of nodes; computed.
    count: NotRequired[pulumi.Input[int] | None]
    # The nodes one by one. Not together with aios.GpuNode resources.
    node_data: NotRequired[pulumi.Input[Sequence[pulumi.Input[NodeArguments]]] | None]


class TotalGpusArguments(TypedDict):
    """All GPUs of a cluster."""

    # Number of GPUs; computed.
    count: NotRequired[pulumi.Input[int] | None]
    # Memory of all GPUs in MB; computed.
    memory: NotRequired[pulumi.Input[int] | None]


class TotalVcpusArguments(TypedDict):
    """All virtual CPUs of a cluster."""

    # Number of virtual CPUs; computed.
    count: NotRequired[pulumi.Input[int] | None]


class TotalStorageArguments(TypedDict):
    """All storage of a cluster."""

    # Number of disks; computed.
    disks: NotRequired[pulumi.Input[int] | None]
    # Size of all disks in MB; computed.
    size: NotRequired[pulumi.Input[int] | None]


class TotalNetworkArguments(TypedDict):
    """The network of all nodes of a cluster."""

    # Number of network interfaces; computed.
    interfaces: NotRequired[pulumi.Input[int] | None]
    # Bandwidth of sending in MB/s; computed.
    tx_bandwidth: NotRequired[pulumi.Input[float] | None]
    # Bandwidth of receiving in MB/s; computed.
    rx_bandwidth: NotRequired[pulumi.Input[float] | None]


class ConfigArguments(TypedDict):
    """The settings of the cluster's controller."""

    # Id of a custom policy executor.
    policy_executor_id: NotRequired[pulumi.Input[str] | None]
    # Where policies are executed, such as local.
    policy_execution_mode: NotRequired[pulumi.Input[str] | None]
    # A custom policy system: any value, passed on unchanged.
    custom_policy_system: NotRequired[pulumi.Input[Any] | None]
    # Public host name of the cluster.
    public_hostname: pulumi.Input[str]
    # Whether clients reach the cluster through a gateway.
    use_gateway: NotRequired[pulumi.Input[bool] | None]
    # Policies by the actions that they decide: any value.
    actions_policy_map: NotRequired[pulumi.Input[Any] | None]


class ClusterMetadataArguments(TypedDict):
    """Facts about the cluster for people."""

    # A readable name.
    name: pulumi.Input[str]
    # Purpose of the cluster.
    description: pulumi.Input[str]
    # Person or team that manages the cluster.
    owner: pulumi.Input[str]
    # Email address for contact.
    email: NotRequired[pulumi.Input[str] | None]
    # Countries that the cluster belongs to.
    countries: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # Further contacts and support: any value.
    misc_contact_info: NotRequired[pulumi.Input[Any] | None]
    # Other facts: any value. Pass a pulumi.Output.secret if the value contains a secret, such as a
    # join command.
    additional_info: NotRequired[pulumi.Input[Any] | None]


class KubernetesArguments(TypedDict):
    """The Kubernetes that schedules jobs on the nodes. A node has the same name there."""

    # Path of a kubeconfig on this machine; ~/.kube/config when not declared.
    kubeconfig: NotRequired[pulumi.Input[str] | None]
    # Context in the kubeconfig; the current one if not declared.
    context: NotRequired[pulumi.Input[str] | None]


class SlurmArguments(TypedDict):
    """How gpuform reaches a cluster's Slurm. A setting of gpuform, never sent to the platform."""

    # exec in a pod through the cluster's Kubernetes, ssh to a login node, or local where Slurm's
    # commands are installed on this machine.
    via: NotRequired[pulumi.Input[Via] | None]
    # exec: namespace of Slurm.
    namespace: NotRequired[pulumi.Input[str] | None]
    # exec: labels of the pods in which commands can be run; a running one is used.
    pod_selector: NotRequired[pulumi.Input[str] | None]
    # exec: the container of the pod.
    container: NotRequired[pulumi.Input[str] | None]
    # ssh: the login node, or a Host of your SSH configuration.
    host: NotRequired[pulumi.Input[str] | None]
    # ssh: name to log in with; the name in your SSH configuration when not declared.
    user: NotRequired[pulumi.Input[str] | None]
    # ssh: port of the login node.
    port: NotRequired[pulumi.Input[int] | None]
    # Whether to run changing commands with `sudo`, without a password; true by default with ssh.
    sudo: NotRequired[pulumi.Input[bool] | None]
    # How nodes are drained: scontrol, or slinky for an annotation of the nodes' pods, which Slinky
    # 1.3 and newer follow.
    drain_by: NotRequired[pulumi.Input[DrainBy] | None]


class ScheduledDrainArguments(TypedDict):
    """What to do about the jobs on removed nodes, and which scheduler to ask."""

    # While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    # the jobs.
    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    # How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    # no node is removed.
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for jobs.
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]
    # The Slurm to ask for jobs; exec needs kubernetes, too.
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]


class ClusterArguments(TypedDict):
    """A cluster's record in the registry. A record neither creates nor deletes hardware."""

    # Id of the cluster, unique in the registry. (replaces)
    cluster_id: pulumi.Input[str]
    # Region or network where the cluster is.
    region_id: NotRequired[pulumi.Input[str] | None]
    # Status of the cluster; if not declared, the system sets the status.
    status: NotRequired[pulumi.Input[str] | None]
    # The nodes one by one in node_data; without it, aios.GpuNode resources add the nodes.
    nodes: NotRequired[pulumi.Input[NodesArguments] | None]
    # Total GPUs: computed from the nodes.
    gpus: NotRequired[pulumi.Input[TotalGpusArguments] | None]
    # Total virtual CPUs: computed from the nodes.
    vcpus: NotRequired[pulumi.Input[TotalVcpusArguments] | None]
    # Total memory in MB: computed from the nodes.
    memory: NotRequired[pulumi.Input[int] | None]
    # Total swap space in MB: computed from the nodes.
    swap: NotRequired[pulumi.Input[int] | None]
    # Total storage: computed from the nodes.
    storage: NotRequired[pulumi.Input[TotalStorageArguments] | None]
    # Total network: computed from the nodes.
    network: NotRequired[pulumi.Input[TotalNetworkArguments] | None]
    # Settings of the cluster's controller.
    config: pulumi.Input[ConfigArguments]
    # Tags or labels.
    tags: pulumi.Input[Sequence[pulumi.Input[str]]]
    # Facts for people: name, description, owner and more.
    cluster_metadata: pulumi.Input[ClusterMetadataArguments]
    # Reputation of the cluster, which the AIOS network may change. (in place, write-only)
    reputation: NotRequired[pulumi.Input[float] | None]
    # How to create the record: by the Parser, or directly in the registry. (nothing)
    create_mode: NotRequired[pulumi.Input[CreateMode] | None]
    # A setting of gpuform, never sent: what to do about jobs on nodes before their entries are
    # removed, and which scheduler to ask. Without it, gpuform does not look for jobs. (nothing)
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]


class GpuNodeArguments(TypedDict):
    """One node of a cluster, declared apart from the cluster's record."""

    # Id of the cluster that the node belongs to. (replaces)
    cluster_id: pulumi.Input[str] | PlatformResource
    # Id of the node in the cluster. (replaces)
    node_id: pulumi.Input[str]
    # A setting of gpuform, never sent: what to do about jobs on the node before its entry is
    # removed, and which scheduler to ask. Without it, gpuform does not look for jobs. (nothing)
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]
    # GPUs of the node.
    gpus: pulumi.Input[NodeGpusArguments]
    # Virtual CPUs of the node.
    vcpus: pulumi.Input[VcpusArguments]
    # Memory of the node in MB.
    memory: pulumi.Input[int]
    # Swap space of the node in MB.
    swap: pulumi.Input[int]
    # Storage of the node.
    storage: pulumi.Input[StorageArguments]
    # Network of the node.
    network: pulumi.Input[NetworkArguments]


class Cluster(PlatformResource, module="gpuform.aios", name="Cluster"):
    """A cluster's record in the registry. A record neither creates nor deletes hardware."""

    _lifecycle = ClusterLifecycle

    cluster_id: pulumi.Output[str]
    region_id: pulumi.Output[str | None]
    status: pulumi.Output[str | None]
    nodes: pulumi.Output[dict[str, Any] | None]
    gpus: pulumi.Output[dict[str, Any] | None]
    vcpus: pulumi.Output[dict[str, Any] | None]
    memory: pulumi.Output[int | None]
    swap: pulumi.Output[int | None]
    storage: pulumi.Output[dict[str, Any] | None]
    network: pulumi.Output[dict[str, Any] | None]
    config: pulumi.Output[dict[str, Any]]
    tags: pulumi.Output[list[str]]
    cluster_metadata: pulumi.Output[dict[str, Any]]
    reputation: pulumi.Output[float | None]
    create_mode: pulumi.Output[str | None]
    drain: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    object_id: pulumi.Output[str | None]
    url_map: pulumi.Output[dict[str, Any] | None]
    network_reputation: pulumi.Output[float | None]
    totals: pulumi.Output[dict[str, Any] | None]
    totals_agree: pulumi.Output[bool | None]

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
    node_id: pulumi.Output[str]
    drain: pulumi.Output[dict[str, Any] | None]
    gpus: pulumi.Output[dict[str, Any]]
    vcpus: pulumi.Output[dict[str, Any]]
    memory: pulumi.Output[int]
    swap: pulumi.Output[int]
    storage: pulumi.Output[dict[str, Any]]
    network: pulumi.Output[dict[str, Any]]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    object_id: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[GpuNodeArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
