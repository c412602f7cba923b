"""Define the outputs of Together's clusters and shared volumes beside their inputs.

Outputs are never compared: nodes, statuses and times change by themselves.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel
from gpuform.schemas.policies.certification import CategoryResult
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.rules import Secret


class _OutputPart(BaseModel):
    model_config = ConfigDict(frozen=True)


class ControlPlaneNodeOutputs(_OutputPart):
    node_id: str = Field(description="Id of the node.")
    host_name: str = Field(description="Host name of the node.")
    status: str = Field(description="Status of the node, as the platform reports it.")
    network: str = Field(default="", description="Address of the node inside the cluster.")
    public_ipv4: str | None = Field(default=None, description="Public address of the node.")


class RemediationOutputs(_OutputPart):
    id: str = Field(description="Id of the repair.")
    mode: str = Field(description="Mode of the repair, such as HOST_AWARE.")
    state: str = Field(description="Progress of the repair, such as PENDING_APPROVAL or SUCCEEDED.")
    reason: str | None = Field(default=None, description="Purpose of the repair.")
    error_message: str | None = Field(default=None, description="Why the repair failed.")
    requested_by: str | None = Field(default=None, description="Requester of the repair.")
    reviewed_by: str | None = Field(
        default=None, description="Who approved or rejected the repair."
    )
    review_comment: str | None = Field(default=None, description="Comment of the review.")
    reviewed_at: str | None = Field(default=None, description="When the repair was reviewed.")
    ended_at: str | None = Field(default=None, description="When the repair ended.")


class GpuWorkerNodeOutputs(_OutputPart):
    node_id: str = Field(description="Id of the node.")
    host_name: str = Field(
        description="Host name of the node; also `HOST-NAME.cloud.together.ai` for SSH."
    )
    status: str = Field(description="Status of the node, as the platform reports it.")
    num_gpus: int = Field(description="Number of the node's GPUs.")
    networks: list[str] = Field(default=[], description="Addresses of the node inside the cluster.")
    instance_id: str | None = Field(
        default=None, description="Machine of the node, for remediations."
    )
    public_ipv4: str | None = Field(default=None, description="Public address of the node.")
    auto_remediation_enabled: bool | None = Field(
        default=None, description="Whether Together may repair the node without a request."
    )
    slurm_worker_hostname: str | None = Field(
        default=None, description="Name of the node in Slurm."
    )
    kubernetes: str | None = Field(
        default=None,
        description="Ready or not, as the cluster's Kubernetes reports the node; absent if "
        "Kubernetes was not asked.",
    )
    slurm: str | None = Field(
        default=None,
        description="Whether Slurm can use the node; absent if Slurm was not asked.",
    )
    unusable_since: str | None = Field(
        default=None, description="Since when the scheduler cannot use the node, in UTC."
    )
    remediation: RemediationOutputs | None = Field(
        default=None, description="Latest repair of the node, or the repair that Together proposes."
    )


class NodeEventOutputs(_OutputPart):
    node_id: str = Field(description="Id of the node.")
    reason: str = Field(description="What happened, such as TogetherPreempted.")
    message: str = Field(default="", description="What happened, in the platform's words.")
    at: str = Field(default="", description="When it happened.")


class AttachedVolumeOutputs(_OutputPart):
    volume_id: str = Field(description="Id of the volume.")
    volume_name: str = Field(description="Name for Kubernetes claims.")
    size_tib: int = Field(description="Size in TiB.")
    status: str = Field(description="Status of the volume, as the platform reports it.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text."""

    status: str = Field(description="Status of the cluster, as the platform reports it.")
    # Together may have been out of stock in the declared region.
    placed_region: str | None = Field(
        default=None, description="Region of the cluster: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = Field(
        default=None, description="Type of the cluster's GPUs: the declared one, or an alternative."
    )
    # Base64 in the answer, YAML here.
    kube_config: Annotated[str | None, Secret] = Field(
        default=None,
        repr=False,
        description="Kubeconfig (YAML) of an administrator; absent until Together has one.",
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
    workers_not_asked: str | None = Field(
        default=None,
        description="Why Kubernetes or Slurm could not report the workers, if it could not.",
    )
    faults: list[NodeFault] = Field(default=[], description="The broken nodes, as last observed.")
    acceptance: list[CategoryResult] = Field(
        default=[], description="Results of Together's own tests, by the phases of the cluster."
    )
    ssh_ca_issuer: str | None = Field(
        default=None,
        description="OIDC issuer of the cluster's SSH certificates, if Together reports it.",
    )
    volumes: list[AttachedVolumeOutputs] = Field(default=[], description="The attached volumes.")
    # Answers contain the pair; people declare this form.
    driver_version: str | None = Field(
        default=None, description="CUDA and driver version in one, such as CUDA_12_6_560."
    )
    installed_version_id: str | None = Field(
        default=None, description="Id of the installed version in the region's list."
    )
    os_image: str | None = Field(
        default=None, description="Operating system of the nodes, such as ubuntu-22.04."
    )
    allocated_preemptible_gpus: int = Field(
        default=0, description="Running GPUs that the platform may take back."
    )
    duration_hours: int | None = Field(default=None, description="Length of the reservation.")
    created_at: str | None = Field(default=None, description="When the cluster was created.")
    first_ready_at: str | None = Field(
        default=None, description="When the cluster was first Ready."
    )
    paused_at: str | None = Field(
        default=None,
        description="Since when the cluster is paused for lack of credit; absent if not paused.",
    )
    reserved_until: str | None = Field(
        default=None,
        description="When the reservation of the cluster ends, if the cluster has one.",
    )


class SharedVolumeOutputs(OutputModel):
    """A shared volume as the platform reports it."""

    status: str = Field(description="Status of the volume, as the platform reports it.")
