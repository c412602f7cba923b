"""Define the inputs of Samsung SCP's node pools, GPU nodes, fabrics and certifications.

The lifecycles of `gpuform.providers.scp` validate and compare by these models. Names are the
platform's own. Facts are from the SCP reference ('Create GPU Nodes', 'Modify Cluster Fabric
Members') and, where it has no rules, from the official Terraform provider.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpuform.schemas.models import InputModel, Problem, optional_field
from gpuform.schemas.policies.certification import CertificationPolicy
from gpuform.schemas.policies.drain import KubernetesInputs, PoolDrainInputs, ScheduledDrainInputs
from gpuform.schemas.policies.lifetime import (
    Expires,
    Idle,
    Schedule,
    Ttl,
    find_idle_problems,
    find_lifetime_problems,
)
from gpuform.schemas.policies.repair import MachineRepairInputs, RepairInputs, RolloutInputs
from gpuform.schemas.rules import (
    AlternativeSpelling,
    CreateOnly,
    Default,
    Immutable,
    Local,
    OutputOf,
    ReplaceIf,
    Secret,
    Source,
    StateOnly,
    Unordered,
    WriteOnly,
)
from gpuform.schemas.scp.node_rules import (
    FabricName,
    InitScript,
    IpAddress,
    NamePrefix,
    NodeName,
    Password,
    RegionId,
    Tags,
    find_gpu_node_problems,
    find_nat_problems,
    find_node_pool_problems,
    remove_empty_values,
)
from gpuform.schemas.values import UNKNOWN

Power = Literal["RUNNING", "STOPPED"]

_RESPONSE_NAMES: Mapping[str, str] = {
    "network_id": "subnet_id",
    "policy_ip": "ip_address",
    "policy_use_nat": "nat_enabled",
    "root_account": "os_user_id",
}
"""The platform's names of the same things in its answers about nodes."""


_NODE_POOL_ID: Any = Field(
    min_length=1,
    description="The platform's node pool, such as POOL001-krw1a.",
    examples=["POOL001-krw1a"],
)
_NAT_ENABLED: Any = optional_field(
    "Whether the node has a public address, by public_ip_address_id.", examples=[True]
)
_PUBLIC_IP_ADDRESS_ID: Any = optional_field(
    "Id of the public IP for NAT.", min_length=1, examples=["20c507a036c447cdb3b19468d8ea62ac"]
)
_STATE: Any = optional_field("RUNNING or STOPPED.", examples=["STOPPED"])


class FabricInputs(InputModel):
    """A cluster fabric, found by its name; it exists as long as it has nodes."""

    retired_names: ClassVar[Mapping[str, str]] = {"cluster_name": "cluster_fabric_name"}

    node_pool_id: Annotated[str, Immutable] = _NODE_POOL_ID
    cluster_fabric_name: Annotated[FabricName, Immutable] = Field(
        description="Name of the fabric, 3 to 15 characters.", examples=["train-a"]
    )
    # Part of the API's host name (multinodegpucluster.REGION...).
    region_id: Annotated[RegionId | None, Immutable, WriteOnly] = optional_field(
        "Region of the pool; the default region when not declared.", examples=["kr-west1"]
    )


class NodeInputs(InputModel):
    """One node of a pool, where it differs from the other nodes."""

    retired_names: ClassVar[Mapping[str, str]] = {"name": "gpu_node_name", **_RESPONSE_NAMES}

    gpu_node_name: NodeName | None = optional_field(
        "Name of the node; by default gpu_node_name_prefix, a hyphen and the "
        "node's key. Another name creates another node.",
        examples=["gpu-node-001"],
    )
    ip_address: IpAddress | None = optional_field(
        "A fixed address of the subnet; another one replaces the node.", examples=["192.168.0.10"]
    )
    nat_enabled: bool | None = _NAT_ENABLED
    # Never returned: answers contain the address alone.
    public_ip_address_id: str | None = _PUBLIC_IP_ADDRESS_ID
    zone: str | None = optional_field(
        "Availability zone of the node; by default as the pool. Another one replaces the node.",
        min_length=1,
        examples=["kr-west1-a"],
    )
    lock_enabled: bool | None = optional_field(
        "Whether the node is locked; by default as the pool.", examples=[True]
    )
    state: Power | None = optional_field(
        "RUNNING or STOPPED; by default as the pool.", examples=["STOPPED"]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if only one of `nat_enabled` and `public_ip_address_id` is declared."""
        return find_nat_problems(values)


class _MadeInputs(InputModel):
    """The inputs that every create of nodes needs and no existing node can change."""

    image_id: Annotated[str, Immutable] = Field(
        min_length=1,
        description="Image of the operating system, such as IMAGE-7XFMaJ....",
        examples=["IMAGE-7XFMaJpLsapKvskFMjCtmm"],
    )
    # Answers contain the name of the type and product_type_id, not this id.
    server_type_id: Annotated[str | None, Immutable, WriteOnly] = optional_field(
        "Id of the product (the type of server); or declare gpu_type.",
        min_length=1,
        examples=["f90e8ef54cc2451b825608e9f95f7bcb"],
    )
    gpu_type: Annotated[str | None, Immutable, WriteOnly] = optional_field(
        "GPU of the servers, by the platform's `gpu_model`, instead of "
        "server_type_id: gpuform looks up the only server type with this GPU, and keeps the "
        "id until another GPU is declared.",
        min_length=1,
        examples=["H100"],
    )
    region_id: Annotated[RegionId, Immutable] = Field(
        min_length=1, description="Region, such as kr-west1.", examples=["kr-west1"]
    )
    vpc_id: Annotated[str, Immutable] = Field(
        min_length=1, description="VPC of the nodes.", examples=["e58348b1bc9148e5af86500fd4ef99ca"]
    )
    subnet_id: Annotated[str, Immutable] = Field(
        min_length=1,
        description="Subnet of the nodes.",
        examples=["ab313c43291e4b678f4bacffe10768ae"],
    )
    os_user_id: Annotated[str | None, Immutable, WriteOnly, Default("root")] = optional_field(
        "User of the operating system; root on Linux.", min_length=1, examples=["root"]
    )
    # Never returned; the platform checks four kinds of characters.
    os_user_password: Annotated[
        Password,
        Immutable,
        WriteOnly,
        Secret,
        Source("Terraform provider: 9 to 20 characters of four kinds"),
    ] = Field(
        description="Password of os_user_id: 9 to 20 characters of four kinds.",
        examples=["{{ config.password }}"],
    )
    # May contain credentials, so it is treated as a secret.
    init_script: Annotated[InitScript | None, Immutable, WriteOnly, Secret] = optional_field(
        "Script that a new node runs, at most 16384 characters.",
        examples=["#!/bin/sh\napt-get update\n"],
    )
    # Never returned: tags belong to the Resource Manager after the create.
    tags: Annotated[Tags | None, CreateOnly] = optional_field(
        "Tags of new nodes. Change tags of existing nodes in the Resource Manager.",
        examples=[{"team": "research"}],
    )
    expires: Expires = None
    ttl: Ttl = None
    schedule: Schedule = None
    idle: Idle = None


class _PoolInputs(InputModel):
    """The inputs of a pool alone. A base class of its own, so that these fields come first."""

    node_pool_id: Annotated[str, Immutable] = _NODE_POOL_ID
    # A move to another fabric is `modify-members`, which keeps the nodes.
    cluster_fabric_name: Annotated[FabricName, OutputOf("Fabric", "cluster_fabric_name")] = Field(
        description="Fabric of the nodes, created with the first of them. Another name moves "
        "the nodes to that fabric, which must have members.",
        examples=["train-a"],
    )
    # Without an id a create makes a new fabric, and needs at least 2 servers.
    cluster_fabric_id: str | None = optional_field(
        "Id of an existing fabric that the pool joins.",
        examples=["20c507a036c447cdb3b19468d8ea62ac"],
    )
    gpu_node_name_prefix: Annotated[NamePrefix, Immutable] = Field(
        description="Prefix of node names: PREFIX-001, PREFIX-002, ..., or PREFIX-KEY in nodes.",
        examples=["train"],
    )
    # PREFIX-001 to PREFIX-999.
    count: int | None = optional_field(
        "Number of nodes; or declare each node in nodes.", ge=1, le=999, examples=[6]
    )
    nodes: dict[str, NodeInputs] | None = optional_field(
        "The nodes one by one, each under its own key.",
        examples=[{"head": {"ip_address": "192.168.0.10"}, "worker": {}}],
    )
    remove: Annotated[list[str] | None, Local] = optional_field(
        "Names of the nodes to remove first when count shrinks; failed, stopped "
        "and the newest nodes follow.",
        examples=[["train-003"]],
    )
    drain: Annotated[PoolDrainInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do about jobs on nodes that "
        "are deleted, replaced, stopped or moved, and which nodes to remove when the pool "
        "shrinks. With kubernetes or slurm, nodes are cordoned first and removed when no job "
        "runs on them; without, gpuform does not look for jobs.",
        examples=[{"on_busy": "wait", "kubernetes": {"kubeconfig": "~/.kube/train"}}],
    )
    rollout: Annotated[RolloutInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: with it, another image_id, server_type_id or gpu_type "
        "replaces the nodes step by step, each while no job runs on it; failed nodes, too. Without "
        "it, another image or type replaces the whole pool at once.",
        examples=[{"max_unavailable": 1, "pause": "5m"}],
    )
    repair: Annotated[RepairInputs | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: which broken nodes are recreated, and "
        "how many at a time, each while no job runs on it (see `drain`). Without "
        "it, every run of `up` recreates the nodes in state ERROR.",
        examples=[{"on": ["platform", "not_ready"], "max_parallel": 1, "max_unhealthy": "25%"}],
    )
    # Declarations of earlier releases still use this name.
    scale_down: Annotated[PoolDrainInputs | None, Local, AlternativeSpelling] = optional_field(
        "The former name of drain.", examples=[{"nodes": ["train-003"]}]
    )
    # Not immutable: a pool of API 1.2 has nodes in a zone that its declaration does not name.
    zone: str | None = optional_field(
        "Availability zone of the nodes. Required by API version 1.3 "
        "(`scp:apiVersion`), unknown to 1.2. Another zone replaces the nodes.",
        min_length=1,
        examples=["kr-west1-a"],
    )
    lock_enabled: bool | None = optional_field(
        "Whether the nodes are locked against deletion and stopping.", examples=[True]
    )
    state: Annotated[Power | None, Default("RUNNING")] = _STATE


class NodePoolInputs(_MadeInputs, _PoolInputs):
    """GPU nodes that are created and managed as a group, in one fabric of one vendor pool."""

    # `drain` was called scale_down in earlier releases.
    former_names: ClassVar[Mapping[str, str]] = {"scale_down": "drain"}
    retired_names: ClassVar[Mapping[str, str]] = {
        "name": "gpu_node_name_prefix",
        "size": "count",
        "cluster_name": "cluster_fabric_name",
        "server_details": "nodes",
        **{
            theirs: ours
            for theirs, ours in _RESPONSE_NAMES.items()
            if not theirs.startswith("policy")
        },
    }

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the pool's nodes, lifetime and idle rule."""
        return chain(
            find_node_pool_problems(values),
            find_lifetime_problems(values),
            _find_idle_problems(values),
        )

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs without an empty init_script and an empty cluster_fabric_id."""
        return remove_empty_values(values)


class _OneInputs(InputModel):
    """The inputs of a single node alone.

    A base class of its own, so that these fields come first.
    """

    gpu_node_name: Annotated[NodeName, Immutable] = Field(
        description="Name of the node.", examples=["gpu-node-001"]
    )
    # One server alone cannot create a fabric, so the fabric must exist.
    cluster_fabric_id: Annotated[str, OutputOf("Fabric", "cluster_fabric_id")] = Field(
        description="Fabric to join, such as a NodePool's cluster_fabric_id. Another fabric "
        "of the same vendor pool moves the node.",
        examples=["{{ node_pools.train.cluster_fabric_id }}"],
    )
    ip_address: Annotated[IpAddress | None, Immutable] = optional_field(
        "A fixed address of the subnet.", examples=["192.168.0.10"]
    )
    nat_enabled: bool | None = _NAT_ENABLED
    public_ip_address_id: str | None = _PUBLIC_IP_ADDRESS_ID
    # The zone of a node of API 1.2 is not known: declaring it must not replace the node.
    zone: Annotated[
        str | None,
        ReplaceIf(lambda before, after: bool(before != after), "a node stays in its zone"),
    ] = optional_field(
        "Availability zone of the node. Required by API version 1.3 "
        "(`scp:apiVersion`), unknown to 1.2.",
        min_length=1,
        examples=["kr-west1-a"],
    )
    lock_enabled: bool | None = optional_field(
        "Whether the node is locked against deletion and stopping.", examples=[True]
    )
    state: Annotated[Power | None, Default("RUNNING")] = _STATE
    drain: Annotated[ScheduledDrainInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do about jobs on the node when "
        "it is deleted, replaced, stopped or moved, and which scheduler to ask. Without it, "
        "gpuform does not look for jobs.",
        examples=[{"on_busy": "wait", "kubernetes": {"kubeconfig": "~/.kube/train"}}],
    )
    repair: Annotated[MachineRepairInputs | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: when to recreate a broken node, which replaces this "
        "resource. gpuform first waits until no job runs on the node (see `drain`).",
        examples=[{"on": ["platform", "not_ready"]}],
    )


class GpuNodeInputs(_MadeInputs, _OneInputs):
    """One GPU node that joins an existing fabric."""

    retired_names: ClassVar[Mapping[str, str]] = {"name": "gpu_node_name", **_RESPONSE_NAMES}

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the GPU node, and of the lifetime and idle rule declared for it."""
        return chain(
            find_gpu_node_problems(values),
            find_lifetime_problems(values),
            _find_idle_problems(values),
        )

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs without an empty init_script and an empty cluster_fabric_id."""
        return remove_empty_values(values)


def _find_idle_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of `idle`: with `schedule`, or without a scheduler that reports jobs."""
    yield from find_idle_problems(values)
    if values.get("idle") is None or values["idle"] is UNKNOWN:
        return
    # only a scheduler knows whether a job runs on idle GPUs
    drain = values.get("drain")
    if drain is not UNKNOWN and not any((drain or {}).get(n) for n in ("kubernetes", "slurm")):
        reason = "needs a scheduler that reports jobs: declare drain.kubernetes or drain.slurm"
        yield Problem("idle", reason)


class CertificationInputs(CertificationPolicy):
    """Tests that GPU nodes must pass before resources that depend on them are created."""

    region_id: Annotated[RegionId | None, Immutable] = optional_field(
        "Region of the nodes; if not declared, the default region of the account's settings.",
        examples=["kr-west1"],
    )
    node_ids: Annotated[list[str], OutputOf("NodePool", "node_ids"), Unordered] = Field(
        min_length=1,
        description="Ids of the nodes to test. New nodes are tested when they are added.",
        examples=["{{ node_pools.train.node_ids }}"],
    )
    kubernetes: Annotated[KubernetesInputs | None, Local] = optional_field(
        "The Kubernetes of the nodes, with NVIDIA's Cluster Readiness Engine. A node "
        "has the same name there.",
        examples=[{"kubeconfig": "~/.kube/train"}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the certification's problems, and one for a missing `slurm` or `kubernetes`.

        Batch jobs need `slurm`; other tests, and commands that are run in a pod, need `kubernetes`.
        """
        yield from super().find_problems(values)
        categories = values.get("categories")
        known_categories = categories if isinstance(categories, list) else []
        with_job = any(
            isinstance(category, Mapping) and category.get("job") is not None
            for category in known_categories
        )
        slurm, kubernetes = values.get("slurm"), values.get("kubernetes")
        if categories is UNKNOWN or UNKNOWN in known_categories:
            return
        if with_job and slurm is None:
            yield Problem("slurm", "is required: declare how to ask the Slurm of the nodes")
        # commands in a pod need the Kubernetes of the pod
        is_exec = isinstance(slurm, Mapping) and slurm.get("via", "exec") == "exec"
        if kubernetes is None and (not with_job or is_exec):
            reason = "is required: declare the Kubernetes of the nodes"
            yield Problem("kubernetes", reason)
