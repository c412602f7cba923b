"""Samsung Cloud Platform's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.scp.certification import CertificationLifecycle
from gpuform.providers.scp.fabric import FabricLifecycle
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.shared_types import (
    CategoryArguments,
    CategoryResultValues,
    CategoryValues,
    GapValues,
    IdleArguments,
    IdleValues,
    KubernetesArguments,
    KubernetesValues,
    MachineRepairArguments,
    MachineRepairValues,
    NodeEvidenceValues,
    NodeFailureValues,
    NodeFaultValues,
    PoolDrainArguments,
    PoolDrainValues,
    RepairArguments,
    RepairValues,
    RolloutArguments,
    RolloutValues,
    ScheduleArguments,
    ScheduledDrainArguments,
    ScheduledDrainValues,
    ScheduleValues,
    SlurmArguments,
    SlurmValues,
)

__all__ = ["Certification", "Fabric", "GpuNode", "NodePool"]

State = Literal["RUNNING", "STOPPED"]
Nodes = Literal["new", "all"]


class NodeArguments(TypedDict):
    """One node of a pool, where it differs from the other nodes."""

    gpu_node_name: NotRequired[pulumi.Input[str] | None]
    """Name of the node; by default gpu_node_name_prefix, a hyphen and the node's key. Another name
    creates another node."""
    ip_address: NotRequired[pulumi.Input[str] | None]
    """A fixed address of the subnet; another one replaces the node."""
    nat_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the node has a public address, by public_ip_address_id."""
    public_ip_address_id: NotRequired[pulumi.Input[str] | None]
    """Id of the public IP for NAT."""
    zone: NotRequired[pulumi.Input[str] | None]
    """Availability zone of the node; by default as the pool. Another one replaces the node."""
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the node is locked; by default as the pool."""
    state: NotRequired[pulumi.Input[State] | None]
    """RUNNING or STOPPED; by default as the pool."""


class NodePoolArguments(TypedDict):
    """GPU nodes that are created and managed as a group, in one fabric of one vendor pool."""

    node_pool_id: pulumi.Input[str]
    """The platform's node pool, such as POOL001-krw1a. (replaces)"""
    cluster_fabric_name: pulumi.Input[str]
    """Fabric of the nodes, created with the first of them. Another name moves the nodes to that
    fabric, which must have members."""
    cluster_fabric_id: NotRequired[pulumi.Input[str] | None]
    """Id of an existing fabric that the pool joins."""
    gpu_node_name_prefix: pulumi.Input[str]
    """Prefix of node names: PREFIX-001, PREFIX-002, ..., or PREFIX-KEY in nodes. (replaces)"""
    count: NotRequired[pulumi.Input[int] | None]
    """Number of nodes; or declare each node in nodes."""
    nodes: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[NodeArguments]]] | None]
    """The nodes one by one, each under its own key."""
    remove: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Names of the nodes to remove first when count shrinks; failed, stopped and the newest nodes
    follow. (nothing)"""
    drain: NotRequired[pulumi.Input[PoolDrainArguments] | None]
    """A setting of gpuform, never sent: what to do about jobs on nodes that are deleted, replaced,
    stopped or moved, and which nodes to remove when the pool shrinks. With kubernetes or slurm,
    nodes are cordoned first and removed when no job runs on them; without, gpuform does not look
    for jobs. (nothing)"""
    rollout: NotRequired[pulumi.Input[RolloutArguments] | None]
    """A setting of gpuform, never sent: with it, another image_id, server_type_id or gpu_type
    replaces the nodes step by step, each while no job runs on it; failed nodes, too. Without it,
    another image or type replaces the whole pool at once. (nothing)"""
    repair: NotRequired[pulumi.Input[RepairArguments] | None]
    """A setting of gpuform, never sent: which broken nodes are recreated, and how many at a time,
    each while no job runs on it (see `drain`). Without it, every run of `up` recreates the nodes in
    state ERROR. (recorded, nothing is sent)"""
    scale_down: NotRequired[pulumi.Input[PoolDrainArguments] | None]
    """The former name of drain. (as the fields it stands for)"""
    zone: NotRequired[pulumi.Input[str] | None]
    """Availability zone of the nodes. Required by API version 1.3 (`scp:apiVersion`), unknown to
    1.2. Another zone replaces the nodes."""
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the nodes are locked against deletion and stopping."""
    state: NotRequired[pulumi.Input[State] | None]
    """RUNNING or STOPPED."""
    image_id: pulumi.Input[str]
    """Image of the operating system, such as IMAGE-7XFMaJ.... (replaces)"""
    server_type_id: NotRequired[pulumi.Input[str] | None]
    """Id of the product (the type of server); or declare gpu_type. (replaces, write-only)"""
    gpu_type: NotRequired[pulumi.Input[str] | None]
    """GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks
    up the only server type with this GPU, and keeps the id until another GPU is declared.
    (replaces, write-only)"""
    region_id: pulumi.Input[str]
    """Region, such as kr-west1. (replaces)"""
    vpc_id: pulumi.Input[str]
    """VPC of the nodes. (replaces)"""
    subnet_id: pulumi.Input[str]
    """Subnet of the nodes. (replaces)"""
    os_user_id: NotRequired[pulumi.Input[str] | None]
    """User of the operating system; root on Linux. (replaces, write-only)"""
    os_user_password: pulumi.Input[str]
    """Password of os_user_id: 9 to 20 characters of four kinds. (replaces, write-only, secret)"""
    init_script: NotRequired[pulumi.Input[str] | None]
    """Script that a new node runs, at most 16384 characters. (replaces, write-only, secret)"""
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    """Tags of new nodes. Change tags of existing nodes in the Resource Manager. (applies to objects
    created later)"""
    expires: NotRequired[pulumi.Input[str] | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)"""
    ttl: NotRequired[pulumi.Input[str] | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again. (recorded, nothing is sent)"""
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource. (recorded, nothing is sent)"""
    idle: NotRequired[pulumi.Input[IdleArguments] | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    sent)"""


class GpuNodeArguments(TypedDict):
    """One GPU node that joins an existing fabric."""

    gpu_node_name: pulumi.Input[str]
    """Name of the node. (replaces)"""
    cluster_fabric_id: pulumi.Input[str]
    """Fabric to join, such as a NodePool's cluster_fabric_id. Another fabric of the same vendor
    pool moves the node."""
    ip_address: NotRequired[pulumi.Input[str] | None]
    """A fixed address of the subnet. (replaces)"""
    nat_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the node has a public address, by public_ip_address_id."""
    public_ip_address_id: NotRequired[pulumi.Input[str] | None]
    """Id of the public IP for NAT."""
    zone: NotRequired[pulumi.Input[str] | None]
    """Availability zone of the node. Required by API version 1.3 (`scp:apiVersion`), unknown to
    1.2. (in place, or replaces: a node stays in its zone)"""
    lock_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the node is locked against deletion and stopping."""
    state: NotRequired[pulumi.Input[State] | None]
    """RUNNING or STOPPED."""
    drain: NotRequired[pulumi.Input[ScheduledDrainArguments] | None]
    """A setting of gpuform, never sent: what to do about jobs on the node when it is deleted,
    replaced, stopped or moved, and which scheduler to ask. Without it, gpuform does not look for
    jobs. (nothing)"""
    repair: NotRequired[pulumi.Input[MachineRepairArguments] | None]
    """A setting of gpuform, never sent: when to recreate a broken node, which replaces this
    resource. gpuform first waits until no job runs on the node (see `drain`). (recorded, nothing is
    sent)"""
    image_id: pulumi.Input[str]
    """Image of the operating system, such as IMAGE-7XFMaJ.... (replaces)"""
    server_type_id: NotRequired[pulumi.Input[str] | None]
    """Id of the product (the type of server); or declare gpu_type. (replaces, write-only)"""
    gpu_type: NotRequired[pulumi.Input[str] | None]
    """GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks
    up the only server type with this GPU, and keeps the id until another GPU is declared.
    (replaces, write-only)"""
    region_id: pulumi.Input[str]
    """Region, such as kr-west1. (replaces)"""
    vpc_id: pulumi.Input[str]
    """VPC of the nodes. (replaces)"""
    subnet_id: pulumi.Input[str]
    """Subnet of the nodes. (replaces)"""
    os_user_id: NotRequired[pulumi.Input[str] | None]
    """User of the operating system; root on Linux. (replaces, write-only)"""
    os_user_password: pulumi.Input[str]
    """Password of os_user_id: 9 to 20 characters of four kinds. (replaces, write-only, secret)"""
    init_script: NotRequired[pulumi.Input[str] | None]
    """Script that a new node runs, at most 16384 characters. (replaces, write-only, secret)"""
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    """Tags of new nodes. Change tags of existing nodes in the Resource Manager. (applies to objects
    created later)"""
    expires: NotRequired[pulumi.Input[str] | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)"""
    ttl: NotRequired[pulumi.Input[str] | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again. (recorded, nothing is sent)"""
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource. (recorded, nothing is sent)"""
    idle: NotRequired[pulumi.Input[IdleArguments] | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    sent)"""


class FabricArguments(TypedDict):
    """A cluster fabric, found by its name; it exists as long as it has nodes."""

    node_pool_id: pulumi.Input[str]
    """The platform's node pool, such as POOL001-krw1a. (replaces)"""
    cluster_fabric_name: pulumi.Input[str]
    """Name of the fabric, 3 to 15 characters. (replaces)"""
    region_id: NotRequired[pulumi.Input[str] | None]
    """Region of the pool; the default region when not declared. (replaces, write-only)"""


class CertificationArguments(TypedDict):
    """Tests that GPU nodes must pass before resources that depend on them are created."""

    name: pulumi.Input[str]
    """Name of the certification in Kubernetes, and of Slurm's jobs. (replaces)"""
    namespace: NotRequired[pulumi.Input[str] | None]
    """Namespace of the certification in Kubernetes. (replaces)"""
    categories: pulumi.Input[Sequence[pulumi.Input[CategoryArguments]]]
    """The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    nodes' Kubernetes."""
    nodes: NotRequired[pulumi.Input[Nodes] | None]
    """Which nodes to test when some are not certified: only the uncertified nodes (new, the
    default), or all nodes again (all). (nothing)"""
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    """How to reach the nodes' Slurm, for categories with `job`. (nothing)"""
    folder: NotRequired[pulumi.Input[str] | None]
    """Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    `job` writes its output there. The user's home if not declared; required with slurm: {via:
    exec}. (nothing)"""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    not declared. (nothing)"""
    region_id: NotRequired[pulumi.Input[str] | None]
    """Region of the nodes; if not declared, the default region of the account's settings.
    (replaces)"""
    node_ids: pulumi.Input[Sequence[pulumi.Input[str]]]
    """Ids of the nodes to test. New nodes are tested when they are added."""
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]
    """The Kubernetes of the nodes, with NVIDIA's Cluster Readiness Engine. A node has the same name
    there. (nothing)"""


if TYPE_CHECKING:

    class NodeValues(TypedDict):
        """One node of a pool, where it differs from the other nodes."""

        gpu_node_name: NotRequired[str]
        """Name of the node; by default gpu_node_name_prefix, a hyphen and the node's key. Another
        name creates another node."""
        ip_address: NotRequired[str]
        """A fixed address of the subnet; another one replaces the node."""
        nat_enabled: NotRequired[bool]
        """Whether the node has a public address, by public_ip_address_id."""
        public_ip_address_id: NotRequired[str]
        """Id of the public IP for NAT."""
        zone: NotRequired[str]
        """Availability zone of the node; by default as the pool. Another one replaces the node."""
        lock_enabled: NotRequired[bool]
        """Whether the node is locked; by default as the pool."""
        state: NotRequired[str]
        """RUNNING or STOPPED; by default as the pool."""

    class NewerImageValues(TypedDict):
        """An image that is newer than the declared one."""

        id: str
        """Id of the image, as image_id takes it."""
        name: str
        """Name of the image."""

    class MemberValues(TypedDict):
        """A node in a fabric."""

        gpu_node_id: str
        """Id of the node."""
        gpu_node_name: str
        """Name of the node."""
        state: str
        """State of the node, as the platform reports it."""

else:
    NodeValues = dict[str, Any]
    NewerImageValues = dict[str, Any]
    MemberValues = dict[str, Any]


class NodePool(PlatformResource, module="gpuform.scp", name="NodePool"):
    """GPU nodes that are created and managed as a group, in one fabric of one vendor pool."""

    _lifecycle = NodePoolLifecycle

    node_pool_id: pulumi.Output[str]
    """The platform's node pool, such as POOL001-krw1a."""
    cluster_fabric_name: pulumi.Output[str]
    """Fabric of the nodes, created with the first of them. Another name moves the nodes to that
    fabric, which must have members."""
    cluster_fabric_id: pulumi.Output[str | None]
    """Fabric of the nodes; absent until the platform has created it."""
    gpu_node_name_prefix: pulumi.Output[str]
    """Prefix of node names: PREFIX-001, PREFIX-002, ..., or PREFIX-KEY in nodes."""
    count: pulumi.Output[int | None]
    """Number of nodes; or declare each node in nodes."""
    nodes: pulumi.Output[dict[str, NodeValues] | None]
    """The nodes one by one, each under its own key."""
    remove: pulumi.Output[list[str] | None]
    """Names of the nodes to remove first when count shrinks; failed, stopped and the newest nodes
    follow."""
    drain: pulumi.Output[PoolDrainValues | None]
    """A setting of gpuform, never sent: what to do about jobs on nodes that are deleted, replaced,
    stopped or moved, and which nodes to remove when the pool shrinks. With kubernetes or slurm,
    nodes are cordoned first and removed when no job runs on them; without, gpuform does not look
    for jobs."""
    rollout: pulumi.Output[RolloutValues | None]
    """A setting of gpuform, never sent: with it, another image_id, server_type_id or gpu_type
    replaces the nodes step by step, each while no job runs on it; failed nodes, too. Without it,
    another image or type replaces the whole pool at once."""
    repair: pulumi.Output[RepairValues | None]
    """A setting of gpuform, never sent: which broken nodes are recreated, and how many at a time,
    each while no job runs on it (see `drain`). Without it, every run of `up` recreates the nodes in
    state ERROR."""
    zone: pulumi.Output[str | None]
    """Availability zone of the nodes. Required by API version 1.3 (`scp:apiVersion`), unknown to
    1.2. Another zone replaces the nodes."""
    lock_enabled: pulumi.Output[bool | None]
    """Whether the nodes are locked against deletion and stopping."""
    state: pulumi.Output[str | None]
    """RUNNING or STOPPED."""
    image_id: pulumi.Output[str]
    """Image of the operating system, such as IMAGE-7XFMaJ...."""
    server_type_id: pulumi.Output[str | None]
    """Id of the product (the type of server); or declare gpu_type."""
    gpu_type: pulumi.Output[str | None]
    """GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks
    up the only server type with this GPU, and keeps the id until another GPU is declared."""
    region_id: pulumi.Output[str]
    """Region, such as kr-west1."""
    vpc_id: pulumi.Output[str]
    """VPC of the nodes."""
    subnet_id: pulumi.Output[str]
    """Subnet of the nodes."""
    os_user_id: pulumi.Output[str | None]
    """User of the operating system; root on Linux."""
    os_user_password: pulumi.Output[str]
    """Password of os_user_id: 9 to 20 characters of four kinds."""
    init_script: pulumi.Output[str | None]
    """Script that a new node runs, at most 16384 characters."""
    tags: pulumi.Output[dict[str, str] | None]
    """Tags of new nodes. Change tags of existing nodes in the Resource Manager."""
    expires: pulumi.Output[str | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice."""
    ttl: pulumi.Output[str | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again."""
    schedule: pulumi.Output[ScheduleValues | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource."""
    idle: pulumi.Output[IdleValues | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    gpu_nodes: pulumi.Output[dict[str, NodeValues]]
    """The existing nodes, each under its key, or under its name without a key."""
    node_ids: pulumi.Output[list[str]]
    """Ids of the nodes."""
    newer_image: pulumi.Output[NewerImageValues | None]
    """A newer image of the same distribution and kind, if the platform lists one."""
    stopped_by: pulumi.Output[str | None]
    """Why `gpuform expire` stopped the pool, if it did."""
    faults: pulumi.Output[list[NodeFaultValues]]
    """The broken nodes, as last observed."""

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
    """Name of the node."""
    cluster_fabric_id: pulumi.Output[str]
    """Fabric to join, such as a NodePool's cluster_fabric_id. Another fabric of the same vendor
    pool moves the node."""
    ip_address: pulumi.Output[str | None]
    """A fixed address of the subnet."""
    nat_enabled: pulumi.Output[bool | None]
    """Whether the node has a public address, by public_ip_address_id."""
    public_ip_address_id: pulumi.Output[str | None]
    """Id of the public IP, if gpuform assigned it."""
    zone: pulumi.Output[str | None]
    """Availability zone of the node. Required by API version 1.3 (`scp:apiVersion`), unknown to
    1.2."""
    lock_enabled: pulumi.Output[bool]
    """Whether the node is locked."""
    state: pulumi.Output[str]
    """State of the node, as the platform reports it."""
    drain: pulumi.Output[ScheduledDrainValues | None]
    """A setting of gpuform, never sent: what to do about jobs on the node when it is deleted,
    replaced, stopped or moved, and which scheduler to ask. Without it, gpuform does not look for
    jobs."""
    repair: pulumi.Output[MachineRepairValues | None]
    """A setting of gpuform, never sent: when to recreate a broken node, which replaces this
    resource. gpuform first waits until no job runs on the node (see `drain`)."""
    image_id: pulumi.Output[str]
    """Image of the operating system, such as IMAGE-7XFMaJ...."""
    server_type_id: pulumi.Output[str | None]
    """Id of the product (the type of server); or declare gpu_type."""
    gpu_type: pulumi.Output[str | None]
    """GPU of the servers, by the platform's `gpu_model`, instead of server_type_id: gpuform looks
    up the only server type with this GPU, and keeps the id until another GPU is declared."""
    region_id: pulumi.Output[str]
    """Region, such as kr-west1."""
    vpc_id: pulumi.Output[str]
    """VPC of the nodes."""
    subnet_id: pulumi.Output[str]
    """Subnet of the nodes."""
    os_user_id: pulumi.Output[str | None]
    """User of the operating system; root on Linux."""
    os_user_password: pulumi.Output[str]
    """Password of os_user_id: 9 to 20 characters of four kinds."""
    init_script: pulumi.Output[str | None]
    """Script that a new node runs, at most 16384 characters."""
    tags: pulumi.Output[dict[str, str] | None]
    """Tags of new nodes. Change tags of existing nodes in the Resource Manager."""
    expires: pulumi.Output[str | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice."""
    ttl: pulumi.Output[str | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again."""
    schedule: pulumi.Output[ScheduleValues | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource."""
    idle: pulumi.Output[IdleValues | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    policy_ip: pulumi.Output[str | None]
    """Address of the node in the subnet."""
    policy_use_nat: pulumi.Output[bool]
    """Whether the node has a public address."""
    policy_nat: pulumi.Output[str | None]
    """The public address."""
    cluster_fabric_name: pulumi.Output[str | None]
    """Name of the node's fabric."""
    pfs_ip: pulumi.Output[list[str]]
    """Addresses of the node in the storage network."""
    server_type: pulumi.Output[str | None]
    """Name of the server type."""
    image_version: pulumi.Output[str | None]
    """Operating system of the node."""
    os_type: pulumi.Output[str | None]
    """Kind of the operating system, such as LINUX."""
    time_zone: pulumi.Output[str | None]
    """Time zone, such as Asia/Seoul."""
    account_id: pulumi.Output[str | None]
    """Id of the account that owns the node."""
    created_at: pulumi.Output[str | None]
    """When the node was created."""
    created_by: pulumi.Output[str | None]
    """Id of the user who created the node."""
    modified_at: pulumi.Output[str | None]
    """When the node was last changed."""
    modified_by: pulumi.Output[str | None]
    """Id of the user who changed the node last."""
    trouble: pulumi.Output[str | None]
    """Why the scheduler cannot use the node, if `repair` asks the scheduler."""
    unusable_since: pulumi.Output[str | None]
    """Since when the scheduler cannot use the node, in UTC."""
    stopped_by: pulumi.Output[str | None]
    """Why `gpuform expire` stopped the node, if it did."""
    node_pool_id: pulumi.Output[str | None]
    """The platform's node pool."""
    faults: pulumi.Output[list[NodeFaultValues]]
    """Faults of the node, as last observed."""
    newer_image: pulumi.Output[NewerImageValues | None]
    """A newer image of the same distribution and kind, if the platform lists one."""

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
    """The platform's node pool, such as POOL001-krw1a."""
    cluster_fabric_name: pulumi.Output[str]
    """Name of the fabric, 3 to 15 characters."""
    region_id: pulumi.Output[str | None]
    """Region of the pool; the default region when not declared."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    cluster_fabric_id: pulumi.Output[str]
    """Id of the fabric; empty until the first node of the fabric is created."""
    state: pulumi.Output[str | None]
    """State of the fabric, as the platform reports it; absent without members."""
    gpu_node_details: pulumi.Output[list[MemberValues]]
    """Nodes of the fabric."""
    server_type: pulumi.Output[str | None]
    """Type of the fabric's servers."""
    used_server_count: pulumi.Output[int | None]
    """Number of servers that the platform counts in the fabric."""
    description: pulumi.Output[str | None]
    """The platform's message about the fabric."""
    product_id: pulumi.Output[str | None]
    """Id of the product of the fabric's servers."""
    pirp_id: pulumi.Output[str | None]
    """The platform's `pirp_id`, which SCP's reference does not explain."""
    account_id: pulumi.Output[str | None]
    """Id of the account that owns the fabric."""
    created_at: pulumi.Output[str | None]
    """When the fabric was created."""
    created_by: pulumi.Output[str | None]
    """Id of the user who created the fabric."""
    modified_at: pulumi.Output[str | None]
    """When the fabric was last changed."""
    modified_by: pulumi.Output[str | None]
    """Id of the user who changed the fabric last."""

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
    """Name of the certification in Kubernetes, and of Slurm's jobs."""
    namespace: pulumi.Output[str | None]
    """Namespace of the certification in Kubernetes."""
    categories: pulumi.Output[list[CategoryValues]]
    """The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    nodes' Kubernetes."""
    nodes: pulumi.Output[str | None]
    """Which nodes to test when some are not certified: only the uncertified nodes (new, the
    default), or all nodes again (all)."""
    slurm: pulumi.Output[SlurmValues | None]
    """How to reach the nodes' Slurm, for categories with `job`."""
    folder: pulumi.Output[str | None]
    """Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    `job` writes its output there. The user's home if not declared; required with slurm: {via:
    exec}."""
    wait_minutes: pulumi.Output[int | None]
    """Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    not declared."""
    region_id: pulumi.Output[str | None]
    """Region of the nodes; if not declared, the default region of the account's settings."""
    node_ids: pulumi.Output[list[str]]
    """Ids of the nodes to test. New nodes are tested when they are added."""
    kubernetes: pulumi.Output[KubernetesValues | None]
    """The Kubernetes of the nodes, with NVIDIA's Cluster Readiness Engine. A node has the same name
    there."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Number of certified nodes, in words."""
    evidence: pulumi.Output[list[NodeEvidenceValues]]
    """The tests that each node has passed."""
    results: pulumi.Output[list[CategoryResultValues]]
    """The results of the last run."""
    failures: pulumi.Output[list[NodeFailureValues]]
    """The nodes that have not passed."""
    gaps: pulumi.Output[list[GapValues]]
    """The nodes that the evidence does not cover."""
    certified_at: pulumi.Output[str | None]
    """When the last run ended, in UTC."""
    run: pulumi.Output[str | None]
    """Id of the last run."""
    by: pulumi.Output[str | None]
    """The tester: an API group of Kubernetes, or Slurm."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[CertificationArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
