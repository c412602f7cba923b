"""Samsung Cloud Platform's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.scp.certification import CertificationLifecycle
from gpuform.providers.scp.fabric import FabricLifecycle
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle

__all__ = ["Certification", "Fabric", "GpuNode", "NodePool"]

State = Literal[
    "RUNNING",
    "STOPPED",
]

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

OnFailure = Literal[
    "stop",
    "continue",
]

Approve = Literal[
    "reviewed",
    "automatic",
]

On = Literal[
    "platform",
    "not_ready",
    "overheated",
    "failed_certification",
]

Days = Literal[
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
]

Then = Literal["stop"]

Nodes = Literal[
    "new",
    "all",
]

Metric = Literal[
    "busBandwidthGBps",
    "algBandwidthGBps",
    "goodputRatio",
    "avgTFLOPsPerGPU",
]


class NodeArguments(TypedDict):
    """One node of a pool, where it differs from the other nodes."""

    # Name of the node; by default gpu_node_name_prefix, a hyphen and the node's key. Another name
    # creates another node.
    gpu_node_name: NotRequired[pulumi.Input[str] | None]
    # A fixed address of the subnet; another one replaces the node.
    ip_address: NotRequired[pulumi.Input[str] | None]
    # Whether the node has a public address, by public_ip_address_id.
    nat_enabled: NotRequired[pulumi.Input[bool] | None]
    # Id of the public IP for NAT.
    public_ip_address_id: NotRequired[pulumi.Input[str] | None]
    # Availability zone of the node; by default as the pool. Another one replaces the node.
    zone: NotRequired[pulumi.Input[str] | None]
    # Whether the node is locked; by default as the pool.
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    # RUNNING or STOPPED; by default as the pool.
    state: NotRequired[pulumi.Input[State] | None]


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


class PoolDrainArguments(TypedDict):
    """What to do about the jobs on a pool's removed nodes, and which nodes to remove first."""

    # While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    # the jobs.
    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    # How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    # no node is removed.
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # Names of all nodes to remove when the cluster shrinks; by default failed nodes first, then
    # cordoned or drained, then idle, then the newest ones.
    nodes: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for jobs.
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]
    # The Slurm to ask for jobs; exec needs kubernetes, too.
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]


class RolloutArguments(TypedDict):
    """How nodes are replaced when their image or type changes, or when they have failed."""

    # How many nodes may be unavailable at the same time: a number, or a share such as 25%, rounded
    # down to at least 1. 1 if not declared. Failed nodes count.
    max_unavailable: NotRequired[pulumi.Input[str | int] | None]
    # How long to wait after each step, such as 5m; no pause if not declared.
    pause: NotRequired[pulumi.Input[str] | None]
    # When a new node fails: stop before the next step (default), or continue while fewer than
    # max_unavailable nodes are unavailable.
    on_failure: NotRequired[pulumi.Input[OnFailure] | None]


class RepairArguments(TypedDict):
    """Which broken nodes are repaired, how many at a time, and who must have seen the plan."""

    # reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    # repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared.
    approve: NotRequired[pulumi.Input[Approve] | None]
    # Which reports count: platform (reports a broken node, or proposes a repair), not_ready (the
    # scheduler cannot use the node), overheated (measured by Lens), failed_certification (a
    # certification names this node alone). platform if not declared.
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]
    # How long a scheduler must be unable to use a node before it counts as broken; 10m if not
    # declared.
    not_ready_for: NotRequired[pulumi.Input[str] | None]
    # Highest allowed temperature of a GPU in degrees Celsius, for on: overheated.
    max_temperature: NotRequired[pulumi.Input[int] | None]
    # How many nodes are repaired at a time; 1 when not declared.
    max_parallel: NotRequired[pulumi.Input[int] | None]
    # With more broken nodes than this, nothing is repaired, because the cause is then probably not
    # in the nodes. A number, or a share rounded down to at least 1; 25% if not declared.
    max_unhealthy: NotRequired[pulumi.Input[str | int] | None]


class ScheduleArguments(TypedDict):
    """The hours in which a resource runs. Outside of them `gpuform expire` stops it."""

    # The days on which the resource starts; all when not declared.
    days: NotRequired[pulumi.Input[Sequence[pulumi.Input[Days]]] | None]
    # When the resource starts, in time_zone.
    start: pulumi.Input[str]
    # When the resource stops: on the next day if the time is not after start; 24:00 is midnight.
    stop: pulumi.Input[str]
    # IANA name of the time zone. When daylight saving time skips a time, the moment of the change
    # counts; when a time occurs twice, start is the first and stop the second.
    time_zone: pulumi.Input[str]


IdleArguments = TypedDict(
    "IdleArguments",
    {
        # Utilization in percent below which a GPU is idle.
        "below": pulumi.Input[str],
        # How long the GPUs must be idle without a break, 30m to 7d.
        "for": pulumi.Input[str],
        # The action of `gpuform expire`: stop, the default.
        "then": NotRequired[pulumi.Input[Then] | None],
    },
)
"""When the GPUs of the resource count as idle; then `gpuform expire` stops the resource."""


class NodePoolArguments(TypedDict):
    """GPU nodes that are created and managed as a group, in one fabric of one vendor pool."""

    # The platform's node pool, such as POOL001-krw1a. (replaces)
    node_pool_id: pulumi.Input[str]
    # Fabric of the nodes, created with the first of them. Another name moves the nodes to that
    # fabric, which must have members.
    cluster_fabric_name: pulumi.Input[str]
    # Id of an existing fabric that the pool joins.
    cluster_fabric_id: NotRequired[pulumi.Input[str] | None]
    # Prefix of node names: PREFIX-001, PREFIX-002, ..., or PREFIX-KEY in nodes. (replaces)
    gpu_node_name_prefix: pulumi.Input[str]
    # Number of nodes; or declare each node in nodes.
    count: NotRequired[pulumi.Input[int] | None]
    # The nodes one by one, each under its own key.
    nodes: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[NodeArguments]]] | None]
    # Names of the nodes to remove first when count shrinks; failed, stopped and the newest nodes
    # follow. (nothing)
    remove: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # A setting of gpuform, never sent: what to do about jobs on nodes that are deleted, replaced,
    # stopped or moved, and which nodes to remove when the pool shrinks. With kubernetes or slurm,
    # nodes are cordoned first and removed when no job runs on them; without, gpuform does not look
    # for jobs. (nothing)
    drain: NotRequired[pulumi.Input[PoolDrainArguments] | None]
    # A setting of gpuform, never sent: with it, another image_id, server_type_id or gpu_type
    # replaces the nodes step by step, each while no job runs on it; failed nodes, too. Without it,
    # another image or type replaces the whole pool at once. (nothing)
    rollout: NotRequired[pulumi.Input[RolloutArguments] | None]
    # A setting of gpuform, never sent: which broken nodes are recreated, and how many at a time,
    # each while no job runs on it (see `drain`). Without it, every run of `up` recreates the nodes
    # in state ERROR. (recorded, nothing is sent)
    repair: NotRequired[pulumi.Input[RepairArguments] | None]
    # The former name of drain. (as the fields it stands for)
    scale_down: NotRequired[pulumi.Input[PoolDrainArguments] | None]
    # Availability zone of the nodes. Required by API version 1.3 (`scp:apiVersion`), unknown to
    # 1.2. Another zone replaces the nodes.
    zone: NotRequired[pulumi.Input[str] | None]
    # Whether the nodes are locked against deletion and stopping.
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    # RUNNING or STOPPED.
    state: NotRequired[pulumi.Input[State] | None]
    # Image of the operating system, such as IMAGE-7XFMaJ.... (replaces)
    image_id: pulumi.Input[str]
    # Id of the product (the type of server); or declare gpu_type. (replaces, write-only)
    server_type_id: NotRequired[pulumi.Input[str] | None]
    # GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks up
    # the only server type with this GPU, and keeps the id until another GPU is declared. (replaces,
    # write-only)
    gpu_type: NotRequired[pulumi.Input[str] | None]
    # Region, such as kr-west1. (replaces)
    region_id: pulumi.Input[str]
    # VPC of the nodes. (replaces)
    vpc_id: pulumi.Input[str]
    # Subnet of the nodes. (replaces)
    subnet_id: pulumi.Input[str]
    # User of the operating system; root on Linux. (replaces, write-only)
    os_user_id: NotRequired[pulumi.Input[str] | None]
    # Password of os_user_id: 9 to 20 characters of four kinds. (replaces, write-only, secret)
    os_user_password: pulumi.Input[str]
    # Script that a new node runs, at most 16384 characters. (replaces, write-only, secret)
    init_script: NotRequired[pulumi.Input[str] | None]
    # Tags of new nodes. Change tags of existing nodes in the Resource Manager. (applies to objects
    # created later)
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    # When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    # an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)
    expires: NotRequired[pulumi.Input[str] | None]
    # How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    # has 24 hours. A replacement starts again. (recorded, nothing is sent)
    ttl: NotRequired[pulumi.Input[str] | None]
    # The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    # when they begin. A stop outside of these hours is not drift, and `up` does not start the
    # resource. (recorded, nothing is sent)
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    # When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    # stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    # sent)
    idle: NotRequired[pulumi.Input[IdleArguments] | None]


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


class MachineRepairArguments(TypedDict):
    """When a broken machine is repaired, and who must have seen the plan."""

    # reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    # repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared.
    approve: NotRequired[pulumi.Input[Approve] | None]
    # Which reports count: platform (reports a broken node, or proposes a repair), not_ready (the
    # scheduler cannot use the node), overheated (measured by Lens), failed_certification (a
    # certification names this node alone). platform if not declared.
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]
    # How long a scheduler must be unable to use a node before it counts as broken; 10m if not
    # declared.
    not_ready_for: NotRequired[pulumi.Input[str] | None]
    # Highest allowed temperature of a GPU in degrees Celsius, for on: overheated.
    max_temperature: NotRequired[pulumi.Input[int] | None]


class GpuNodeArguments(TypedDict):
    """One GPU node that joins an existing fabric."""

    # Name of the node. (replaces)
    gpu_node_name: pulumi.Input[str]
    # Fabric to join, such as a NodePool's cluster_fabric_id. Another fabric of the same vendor pool
    # moves the node.
    cluster_fabric_id: pulumi.Input[str]
    # A fixed address of the subnet. (replaces)
    ip_address: NotRequired[pulumi.Input[str] | None]
    # Whether the node has a public address, by public_ip_address_id.
    nat_enabled: NotRequired[pulumi.Input[bool] | None]
    # Id of the public IP for NAT.
    public_ip_address_id: NotRequired[pulumi.Input[str] | None]
    # Availability zone of the node. Required by API version 1.3 (`scp:apiVersion`), unknown to 1.2.
    # (in place, or replaces: a node stays in its zone)
    zone: NotRequired[pulumi.Input[str] | None]
    # Whether the node is locked against deletion and stopping.
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    # RUNNING or STOPPED.
    state: NotRequired[pulumi.Input[State] | None]
    # A setting of gpuform, never sent: what to do about jobs on the node when it is deleted,
    # replaced, stopped or moved, and which scheduler to ask. Without it, gpuform does not look for
    # jobs. (nothing)
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]
    # A setting of gpuform, never sent: when to recreate a broken node, which replaces this
    # resource. gpuform first waits until no job runs on the node (see `drain`). (recorded, nothing
    # is sent)
    repair: NotRequired[pulumi.Input[MachineRepairArguments] | None]
    # Image of the operating system, such as IMAGE-7XFMaJ.... (replaces)
    image_id: pulumi.Input[str]
    # Id of the product (the type of server); or declare gpu_type. (replaces, write-only)
    server_type_id: NotRequired[pulumi.Input[str] | None]
    # GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks up
    # the only server type with this GPU, and keeps the id until another GPU is declared. (replaces,
    # write-only)
    gpu_type: NotRequired[pulumi.Input[str] | None]
    # Region, such as kr-west1. (replaces)
    region_id: pulumi.Input[str]
    # VPC of the nodes. (replaces)
    vpc_id: pulumi.Input[str]
    # Subnet of the nodes. (replaces)
    subnet_id: pulumi.Input[str]
    # User of the operating system; root on Linux. (replaces, write-only)
    os_user_id: NotRequired[pulumi.Input[str] | None]
    # Password of os_user_id: 9 to 20 characters of four kinds. (replaces, write-only, secret)
    os_user_password: pulumi.Input[str]
    # Script that a new node runs, at most 16384 characters. (replaces, write-only, secret)
    init_script: NotRequired[pulumi.Input[str] | None]
    # Tags of new nodes. Change tags of existing nodes in the Resource Manager. (applies to objects
    # created later)
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    # When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    # an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)
    expires: NotRequired[pulumi.Input[str] | None]
    # How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    # has 24 hours. A replacement starts again. (recorded, nothing is sent)
    ttl: NotRequired[pulumi.Input[str] | None]
    # The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    # when they begin. A stop outside of these hours is not drift, and `up` does not start the
    # resource. (recorded, nothing is sent)
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    # When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    # stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    # sent)
    idle: NotRequired[pulumi.Input[IdleArguments] | None]


class FabricArguments(TypedDict):
    """A cluster fabric, found by its name; it exists as long as it has nodes."""

    # The platform's node pool, such as POOL001-krw1a. (replaces)
    node_pool_id: pulumi.Input[str]
    # Name of the fabric, 3 to 15 characters. (replaces)
    cluster_fabric_name: pulumi.Input[str]
    # Region of the pool; the default region when not declared. (replaces, write-only)
    region_id: NotRequired[pulumi.Input[str] | None]


class BatchJobArguments(TypedDict):
    """A batch job of Slurm that measures nodes, instead of the Cluster Readiness Engine."""

    # The batch script, with its first line `#!/bin/bash`. gpuform passes the nodes to sbatch, and
    # reserves them exclusively.
    script: pulumi.Input[str]
    # A regular expression for the line with the result, with the figure in parentheses. The last of
    # several matching lines counts.
    result: pulumi.Input[str]
    # each: one job for each node. all: one job for all nodes. each if not declared.
    nodes: NotRequired[pulumi.Input[Nodes] | None]


class CategoryArguments(TypedDict):
    """One test that nodes have to pass."""

    # Domain of the test.
    domain: pulumi.Input[str]
    # Variant of the test.
    variant: pulumi.Input[str]
    # Options of the Cluster Readiness Engine for this category, by the engine's names. `testScale:
    # intra-node` tests each node alone, `diagnose` finds faulty nodes.
    options: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[Any]]] | None]
    # The lowest result that passes, in the unit of `metric`.
    floor: NotRequired[pulumi.Input[float] | None]
    # How far below the floor a result still passes; 0% if not declared.
    tolerance: NotRequired[pulumi.Input[str] | None]
    # The metric of the floor; busBandwidthGBps for communication if not declared.
    metric: NotRequired[pulumi.Input[Metric] | None]
    # The batch job that runs the test on a Slurm cluster.
    job: NotRequired[pulumi.Input[BatchJobArguments] | None]


class CertificationArguments(TypedDict):
    """Tests that GPU nodes must pass before resources that depend on them are created."""

    # Name of the certification in Kubernetes, and of Slurm's jobs. (replaces)
    name: pulumi.Input[str]
    # Namespace of the certification in Kubernetes. (replaces)
    namespace: NotRequired[pulumi.Input[str] | None]
    # The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    # Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    # nodes' Kubernetes.
    categories: pulumi.Input[Sequence[pulumi.Input[CategoryArguments]]]
    # Which nodes to test when some are not certified: only the uncertified nodes (new, the
    # default), or all nodes again (all). (nothing)
    nodes: NotRequired[pulumi.Input[Nodes] | None]
    # How to reach the nodes' Slurm, for categories with `job`. (nothing)
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    # Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    # `job` writes its output there. The user's home if not declared; required with slurm: {via:
    # exec}. (nothing)
    folder: NotRequired[pulumi.Input[str] | None]
    # Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    # not declared. (nothing)
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # Region of the nodes; if not declared, the default region of the account's settings. (replaces)
    region_id: NotRequired[pulumi.Input[str] | None]
    # Ids of the nodes to test. New nodes are tested when they are added.
    node_ids: pulumi.Input[Sequence[pulumi.Input[str]]]
    # The Kubernetes of the nodes, with NVIDIA's Cluster Readiness Engine. A node has the same name
    # there. (nothing)
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]


class NodePool(PlatformResource, module="gpuform.scp", name="NodePool"):
    """GPU nodes that are created and managed as a group, in one fabric of one vendor pool."""

    _lifecycle = NodePoolLifecycle

    node_pool_id: pulumi.Output[str]
    cluster_fabric_name: pulumi.Output[str]
    cluster_fabric_id: pulumi.Output[str | None]
    gpu_node_name_prefix: pulumi.Output[str]
    count: pulumi.Output[int | None]
    nodes: pulumi.Output[dict[str, dict[str, Any]] | None]
    remove: pulumi.Output[list[str] | None]
    drain: pulumi.Output[dict[str, Any] | None]
    rollout: pulumi.Output[dict[str, Any] | None]
    repair: pulumi.Output[dict[str, Any] | None]
    zone: pulumi.Output[str | None]
    lock_enabled: pulumi.Output[bool | None]
    state: pulumi.Output[str | None]
    image_id: pulumi.Output[str]
    server_type_id: pulumi.Output[str | None]
    gpu_type: pulumi.Output[str | None]
    region_id: pulumi.Output[str]
    vpc_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    os_user_id: pulumi.Output[str | None]
    os_user_password: pulumi.Output[str]
    init_script: pulumi.Output[str | None]
    tags: pulumi.Output[dict[str, str] | None]
    expires: pulumi.Output[str | None]
    ttl: pulumi.Output[str | None]
    schedule: pulumi.Output[dict[str, Any] | None]
    idle: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    gpu_nodes: pulumi.Output[dict[str, dict[str, Any]]]
    node_ids: pulumi.Output[list[str]]
    newer_image: pulumi.Output[dict[str, Any] | None]
    stopped_by: pulumi.Output[str | None]
    faults: pulumi.Output[list[dict[str, Any]]]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[NodePoolArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class GpuNode(PlatformResource, module="gpuform.scp", name="GpuNode"):
    """One GPU node that joins an existing fabric."""

    _lifecycle = GpuNodeLifecycle

    gpu_node_name: pulumi.Output[str]
    cluster_fabric_id: pulumi.Output[str]
    ip_address: pulumi.Output[str | None]
    nat_enabled: pulumi.Output[bool | None]
    public_ip_address_id: pulumi.Output[str | None]
    zone: pulumi.Output[str | None]
    lock_enabled: pulumi.Output[bool]
    state: pulumi.Output[str]
    drain: pulumi.Output[dict[str, Any] | None]
    repair: pulumi.Output[dict[str, Any] | None]
    image_id: pulumi.Output[str]
    server_type_id: pulumi.Output[str | None]
    gpu_type: pulumi.Output[str | None]
    region_id: pulumi.Output[str]
    vpc_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    os_user_id: pulumi.Output[str | None]
    os_user_password: pulumi.Output[str]
    init_script: pulumi.Output[str | None]
    tags: pulumi.Output[dict[str, str] | None]
    expires: pulumi.Output[str | None]
    ttl: pulumi.Output[str | None]
    schedule: pulumi.Output[dict[str, Any] | None]
    idle: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    stopped_by: pulumi.Output[str | None]
    policy_ip: pulumi.Output[str | None]
    policy_use_nat: pulumi.Output[bool]
    policy_nat: pulumi.Output[str | None]
    node_pool_id: pulumi.Output[str | None]
    cluster_fabric_name: pulumi.Output[str | None]
    pfs_ip: pulumi.Output[list[str]]
    server_type: pulumi.Output[str | None]
    image_version: pulumi.Output[str | None]
    os_type: pulumi.Output[str | None]
    time_zone: pulumi.Output[str | None]
    account_id: pulumi.Output[str | None]
    created_at: pulumi.Output[str | None]
    created_by: pulumi.Output[str | None]
    modified_at: pulumi.Output[str | None]
    modified_by: pulumi.Output[str | None]
    trouble: pulumi.Output[str | None]
    unusable_since: pulumi.Output[str | None]
    faults: pulumi.Output[list[dict[str, Any]]]
    newer_image: pulumi.Output[dict[str, Any] | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[GpuNodeArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class Fabric(PlatformResource, module="gpuform.scp", name="Fabric"):
    """A cluster fabric, found by its name; it exists as long as it has nodes."""

    _lifecycle = FabricLifecycle

    node_pool_id: pulumi.Output[str]
    cluster_fabric_name: pulumi.Output[str]
    region_id: pulumi.Output[str | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    cluster_fabric_id: pulumi.Output[str]
    state: pulumi.Output[str | None]
    gpu_node_details: pulumi.Output[list[dict[str, Any]]]
    server_type: pulumi.Output[str | None]
    used_server_count: pulumi.Output[int | None]
    description: pulumi.Output[str | None]
    product_id: pulumi.Output[str | None]
    pirp_id: pulumi.Output[str | None]
    account_id: pulumi.Output[str | None]
    created_at: pulumi.Output[str | None]
    created_by: pulumi.Output[str | None]
    modified_at: pulumi.Output[str | None]
    modified_by: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[FabricArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class Certification(PlatformResource, module="gpuform.scp", name="Certification"):
    """Tests that GPU nodes must pass before resources that depend on them are created."""

    _lifecycle = CertificationLifecycle

    name: pulumi.Output[str]
    namespace: pulumi.Output[str | None]
    categories: pulumi.Output[list[dict[str, Any]]]
    nodes: pulumi.Output[str | None]
    slurm: pulumi.Output[dict[str, Any] | None]
    folder: pulumi.Output[str | None]
    wait_minutes: pulumi.Output[int | None]
    region_id: pulumi.Output[str | None]
    node_ids: pulumi.Output[list[str]]
    kubernetes: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]
    evidence: pulumi.Output[list[dict[str, Any]]]
    results: pulumi.Output[list[dict[str, Any]]]
    failures: pulumi.Output[list[dict[str, Any]]]
    gaps: pulumi.Output[list[dict[str, Any]]]
    certified_at: pulumi.Output[str | None]
    run: pulumi.Output[str | None]
    by: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[CertificationArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
