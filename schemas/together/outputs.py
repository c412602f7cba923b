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
    host_name: str = Field(description="Its host name.")
    status: str = Field(description="Its status, as the platform reports it.")
    network: str = Field(default="", description="Its address inside the cluster.")
    public_ipv4: str | None = Field(default=None, description="Its public address.")


class RemediationOutputs(_OutputPart):
    id: str = Field(description="Its id.")
    mode: str = Field(description="How, such as HOST_AWARE.")
    state: str = Field(description="Its progress, such as PENDING_APPROVAL or SUCCEEDED.")
    reason: str | None = Field(default=None, description="Its purpose.")
    error_message: str | None = Field(default=None, description="Why it failed.")
    ended_at: str | None = Field(default=None, description="When it ended.")


class GpuWorkerNodeOutputs(_OutputPart):
    node_id: str = Field(description="Id of the node.")
    host_name: str = Field(description="Its host name; also `<it>.cloud.together.ai` for SSH.")
    status: str = Field(description="Its status, as the platform reports it.")
    num_gpus: int = Field(description="Its GPUs.")
    networks: list[str] = Field(default=[], description="Its addresses inside the cluster.")
    instance_id: str | None = Field(default=None, description="Its machine, for remediations.")
    public_ipv4: str | None = Field(default=None, description="Its public address.")
    slurm_worker_hostname: str | None = Field(default=None, description="Its name in Slurm.")
    kubernetes: str | None = Field(
        default=None,
        description="Ready or not, as the cluster's Kubernetes reports it; absent if it was "
        "not asked.",
    )
    slurm: str | None = Field(
        default=None,
        description="Whether Slurm can use it; absent if Slurm was not asked.",
    )
    unusable_since: str | None = Field(
        default=None, description="Since when its scheduler cannot use it, in UTC, if so."
    )
    remediation: RemediationOutputs | None = Field(
        default=None, description="Its latest repair, or the one that Together proposes."
    )


class AttachedVolumeOutputs(_OutputPart):
    volume_id: str = Field(description="Id of the volume.")
    volume_name: str = Field(description="Name for Kubernetes claims.")
    size_tib: int = Field(description="Size in TiB.")
    status: str = Field(description="Its status, as the platform reports it.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text."""

    status: str = Field(description="Status, as the platform reports it.")
    # Together may have been out of stock in the declared region.
    placed_region: str | None = Field(
        default=None, description="Region where it is: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = Field(
        default=None, description="Type of its GPUs: the declared one, or an alternative."
    )
    # Base64 in the answer, YAML here.
    kube_config: Annotated[str | None, Secret] = Field(
        default=None,
        repr=False,
        description="Kubeconfig (YAML) of an administrator; absent until there is one.",
    )
    control_plane_nodes: list[ControlPlaneNodeOutputs] = Field(
        default=[], description="The nodes that run Kubernetes."
    )
    gpu_worker_nodes: list[GpuWorkerNodeOutputs] = Field(
        default=[], description="The nodes with GPUs, 8 in each."
    )
    workers_not_asked: str | None = Field(
        default=None,
        description="Why Kubernetes or Slurm could not report the workers, if so.",
    )
    faults: list[NodeFault] = Field(default=[], description="The broken nodes, as last observed.")
    acceptance: list[CategoryResult] = Field(
        default=[], description="Results of Together's own tests, by the phases of the cluster."
    )
    volumes: list[AttachedVolumeOutputs] = Field(default=[], description="The attached volumes.")
    # Answers contain the pair; people declare this form.
    driver_version: str | None = Field(
        default=None, description="CUDA and driver version in one, such as CUDA_12_6_560."
    )
    allocated_preemptible_gpus: int = Field(
        default=0, description="Running GPUs that the platform may take back."
    )
    duration_hours: int | None = Field(default=None, description="Length of the reservation.")
    created_at: str | None = Field(default=None, description="When it was created.")
    first_ready_at: str | None = Field(default=None, description="When it was first Ready.")
    paused_at: str | None = Field(
        default=None, description="Since when it is paused for lack of credit; absent otherwise."
    )
    reserved_until: str | None = Field(
        default=None, description="When its reservation ends, if it has one."
    )


class SharedVolumeOutputs(OutputModel):
    """A shared volume as the platform reports it."""

    status: str = Field(description="Status, as the platform reports it.")
