"""Define the outputs and statuses of Together's clusters and shared volumes.

Outputs are never compared: nodes, statuses and times change by themselves. A status in none of
these sets is a newer one and counts as pending.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from gpuform.schemas.models import OutputModel, OutputPart, optional_field
from gpuform.schemas.policies.certification import CategoryResult
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.rules import Secret


class ControlPlaneNodeOutputs(OutputPart):
    node_id: str = Field(description="Id of the node.")
    host_name: str = Field(description="Host name of the node.")
    status: str = Field(description="Status of the node, as the platform reports it.")
    network: str = Field(default="", description="Address of the node inside the cluster.")
    public_ipv4: str | None = optional_field("Public address of the node.")


class RemediationOutputs(OutputPart):
    id: str = Field(description="Id of the repair.")
    mode: str = Field(description="Mode of the repair, such as HOST_AWARE.")
    state: str = Field(description="Progress of the repair, such as PENDING_APPROVAL or SUCCEEDED.")
    reason: str | None = optional_field("Purpose of the repair.")
    error_message: str | None = optional_field("Why the repair failed.")
    requested_by: str | None = optional_field("Requester of the repair.")
    reviewed_by: str | None = optional_field("Who approved or rejected the repair.")
    review_comment: str | None = optional_field("Comment of the review.")
    reviewed_at: str | None = optional_field("When the repair was reviewed.")
    ended_at: str | None = optional_field("When the repair ended.")


class GpuWorkerNodeOutputs(OutputPart):
    node_id: str = Field(description="Id of the node.")
    host_name: str = Field(
        description="Host name of the node; also `HOST-NAME.cloud.together.ai` for SSH."
    )
    status: str = Field(description="Status of the node, as the platform reports it.")
    num_gpus: int = Field(description="Number of the node's GPUs.")
    networks: list[str] = Field(default=[], description="Addresses of the node inside the cluster.")
    instance_id: str | None = optional_field("Machine of the node, for remediations.")
    public_ipv4: str | None = optional_field("Public address of the node.")
    auto_remediation_enabled: bool | None = optional_field(
        "Whether Together may repair the node without a request."
    )
    slurm_worker_hostname: str | None = optional_field("Name of the node in Slurm.")
    kubernetes: str | None = optional_field(
        "Ready or not, as the cluster's Kubernetes reports the node; absent if "
        "Kubernetes was not asked."
    )
    slurm: str | None = optional_field(
        "Whether Slurm can use the node; absent if Slurm was not asked."
    )
    unusable_since: str | None = optional_field(
        "Since when the scheduler cannot use the node, in UTC."
    )
    remediation: RemediationOutputs | None = optional_field(
        "Latest repair of the node, or the repair that Together proposes."
    )


class NodeEventOutputs(OutputPart):
    node_id: str = Field(description="Id of the node.")
    reason: str = Field(description="What happened, such as TogetherPreempted.")
    message: str = Field(default="", description="What happened, in the platform's words.")
    at: str = Field(default="", description="When it happened.")


class AttachedVolumeOutputs(OutputPart):
    volume_id: str = Field(description="Id of the volume.")
    volume_name: str = Field(description="Name for Kubernetes claims.")
    size_tib: int = Field(description="Size in TiB.")
    status: str = Field(description="Status of the volume, as the platform reports it.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text."""

    status: str = Field(description="Status of the cluster, as the platform reports it.")
    # Together may have been out of stock in the declared region.
    placed_region: str | None = optional_field(
        "Region of the cluster: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = optional_field(
        "Type of the cluster's GPUs: the declared one, or an alternative."
    )
    # Base64 in the answer, YAML here.
    kube_config: Annotated[str | None, Secret] = optional_field(
        "Kubeconfig (YAML) of an administrator; absent until Together has one.", repr=False
    )
    control_plane_nodes: list[ControlPlaneNodeOutputs] = Field(
        default=[], description="The nodes that run Kubernetes."
    )
    gpu_worker_nodes: list[GpuWorkerNodeOutputs] = Field(
        default=[], description="The nodes with GPUs."
    )
    node_events: list[NodeEventOutputs] = Field(
        default=[],
        description="The last nodes that Together has added, removed or preempted, the newest "
        "last.",
    )
    workers_not_asked: str | None = optional_field(
        "Why Kubernetes or Slurm could not report the workers, if it could not."
    )
    faults: list[NodeFault] = Field(default=[], description="The broken nodes, as last observed.")
    acceptance: list[CategoryResult] = Field(
        default=[], description="Results of Together's own tests, by the phases of the cluster."
    )
    ssh_ca_issuer: str | None = optional_field(
        "OIDC issuer of the cluster's SSH certificates, if Together reports it."
    )
    volumes: list[AttachedVolumeOutputs] = Field(default=[], description="The attached volumes.")
    # Answers contain the pair; people declare this form.
    driver_version: str | None = optional_field(
        "CUDA and driver version in one, such as CUDA_12_6_560."
    )
    installed_version_id: str | None = optional_field(
        "Id of the installed version in the region's list."
    )
    os_image: str | None = optional_field("Operating system of the nodes, such as ubuntu-22.04.")
    allocated_preemptible_gpus: int = Field(
        default=0, description="Running GPUs that the platform may take back."
    )
    duration_hours: int | None = optional_field("Length of the reservation.")
    created_at: str | None = optional_field("When the cluster was created.")
    first_ready_at: str | None = optional_field("When the cluster was first Ready.")
    paused_at: str | None = optional_field(
        "Since when the cluster is paused for lack of credit; absent if not paused."
    )
    reserved_until: str | None = optional_field(
        "When the reservation of the cluster ends, if the cluster has one."
    )


class SharedVolumeOutputs(OutputModel):
    """A shared volume as the platform reports it."""

    status: str = Field(description="Status of the volume, as the platform reports it.")


class ClusterStatus(StrEnum):
    """The statuses of clusters: the SDK's enumeration, and Scheduled, which is sent first."""

    # Absent from the SDK's enumeration; a new cluster begins with it.
    SCHEDULED = "Scheduled"
    WAITING_FOR_CONTROL_PLANE_NODES = "WaitingForControlPlaneNodes"
    WAITING_FOR_DATA_PLANE_NODES = "WaitingForDataPlaneNodes"
    WAITING_FOR_SUBNET = "WaitingForSubnet"
    WAITING_FOR_SHARED_VOLUME = "WaitingForSharedVolume"
    INSTALLING_DRIVERS = "InstallingDrivers"
    RUNNING_ACCEPTANCE_TESTS = "RunningAcceptanceTests"
    READY = "Ready"
    DEGRADED = "Degraded"
    PAUSED = "Paused"
    # Credit is exhausted: the cluster is decommissioned next ('Credit Exhaustion').
    ON_DEMAND_COMPUTE_PAUSED = "OnDemandComputePaused"
    DELETING = "Deleting"


READY_CLUSTER_STATUSES: Final = frozenset({ClusterStatus.READY})

FAILED_CLUSTER_STATUSES: Final = frozenset(
    {
        ClusterStatus.DEGRADED,
        ClusterStatus.PAUSED,
        ClusterStatus.ON_DEMAND_COMPUTE_PAUSED,
        ClusterStatus.DELETING,
    }
)
"""Statuses that do not lead to Ready by themselves. Together has no status "Failed"."""

STUCK_CLUSTER_MESSAGES: Final[Mapping[str, str]] = {
    ClusterStatus.ON_DEMAND_COMPUTE_PAUSED: (
        "no credit is left, so Together has paused its on-demand compute (OnDemandComputePaused) "
        "and will take it away: add credit to the account, then run up again"
    ),
    ClusterStatus.PAUSED: (
        "Together has paused it (Paused), as it does when no credit is left: add credit to the "
        "account, or ask Together's support, then run up again"
    ),
    ClusterStatus.DEGRADED: (
        "some of it does not work (Degraded): look at its nodes and their remediations, then run "
        "up again; gpuform does not replace it"
    ),
}
"""Statuses that only somebody else can end, with what happened and what to do.

From the Together reference, 'Credit Exhaustion'. None of them is a reason to recreate the cluster.
"""

PENDING_CLUSTER_STATUSES: Final = (
    frozenset(ClusterStatus) - READY_CLUSTER_STATUSES - FAILED_CLUSTER_STATUSES
)

FAILED_CLUSTER_PHASES: Final = frozenset(
    {"CLUSTER_PHASE_ACCEPTANCE_TESTS_FAILED", "CLUSTER_PHASE_NCCL_TESTS_FAILED"}
)
PAUSED_PHASES: Final[Mapping[str, str]] = {
    ClusterStatus.PAUSED: "CLUSTER_PHASE_PAUSED",
    ClusterStatus.ON_DEMAND_COMPUTE_PAUSED: "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
}
"""The phase whose beginning says since when a cluster has the status."""
FAILED_NODE_PHASES: Final = frozenset({"NODE_PHASE_FAILED"})


class VolumeStatus(StrEnum):
    """The statuses of volumes: the SDK's enumeration."""

    SCHEDULED = "scheduled"
    PROVISIONING = "provisioning"
    AVAILABLE = "available"
    BOUND = "bound"
    DELETING = "deleting"
    FAILED = "failed"
    # Credit is exhausted: storage is the last thing that the platform revokes.
    ACCESS_REVOKED = "access_revoked"
    UNKNOWN = "unknown"


USABLE_VOLUME_STATUSES: Final = frozenset({VolumeStatus.AVAILABLE, VolumeStatus.BOUND})

FAILED_VOLUME_STATUSES: Final = frozenset(
    {VolumeStatus.FAILED, VolumeStatus.ACCESS_REVOKED, VolumeStatus.DELETING}
)

STUCK_VOLUME_MESSAGES: Final[Mapping[str, str]] = {
    VolumeStatus.ACCESS_REVOKED: (
        "no credit is left, so Together has revoked access to its data (access_revoked): add "
        "credit to the account, then run up again; the volume is kept as it is"
    )
}
"""Statuses that only somebody else can end, with what happened and what to do."""

PENDING_VOLUME_STATUSES: Final = (
    frozenset(VolumeStatus) - USABLE_VOLUME_STATUSES - FAILED_VOLUME_STATUSES
)


def validate_timestamp(value: str) -> str:
    """Return ``value`` if valid as a moment with an offset. Raises ValueError otherwise."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{value} is not a moment: write it like 2026-03-01T08:00:00Z")
    return value


def is_same_moment(left: str, right: str) -> bool:
    """Return True if two texts name one moment.

    Texts that are not times are compared as texts.
    """
    try:
        # servers answer in UTC whatever offset was declared
        return datetime.fromisoformat(left) == datetime.fromisoformat(right)
    except ValueError:
        return left == right


def is_before(earlier: str, later: str) -> bool:
    """Return True if the first time is before the second.

    Raises ValueError for text that is not a time.
    """
    return datetime.fromisoformat(earlier) < datetime.fromisoformat(later)
