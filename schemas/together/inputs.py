"""Define the inputs of Together's clusters, shared volumes and certifications.

The lifecycles of `gpuform.providers.together` validate and compare by these models. Names are the
platform's own. Facts are from the Together reference ('Create a Cluster', 'Update / Scale a
Cluster', 'Create a Shared Volume') and, for fields that it lacks, from the platform's SDK
(ClusterCreateParams, ClusterUpdateParams). A field that the update request does not have is
immutable.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.access import validate_jump_host
from gpuform.schemas.models import InputModel, Line, Problem, optional_field
from gpuform.schemas.policies.certification import CertificationPolicy
from gpuform.schemas.policies.lifetime import Expires, Ttl, find_lifetime_problems
from gpuform.schemas.rules import (
    AlternativeSpelling,
    Default,
    EquivalentIf,
    GrowOnly,
    Immutable,
    KeyedBy,
    Local,
    ObservedAs,
    OutputOf,
    ReferenceTo,
    ReplaceIf,
    Source,
    StateOnly,
    WriteOnly,
)
from gpuform.schemas.together.cluster_parts import (
    AcceptanceTestsInputs,
    AddOnInputs,
    ClusterConfigInputs,
    ClusterDrainInputs,
    ClusterRepairInputs,
    ClusterRolloutInputs,
    GpuType,
    OidcConfigInputs,
    OnNoCapacityInputs,
    is_add_on_off,
    validate_ssh_issuer,
)
from gpuform.schemas.together.cluster_rules import expand_driver_version, find_cluster_problems
from gpuform.schemas.together.drivers import (
    find_nearest_gpu_type,
    is_same_version,
    validate_cuda_version,
    validate_driver_version,
    validate_nvidia_driver_version,
)
from gpuform.schemas.together.outputs import is_same_moment, validate_timestamp

BillingType = Literal["ON_DEMAND", "RESERVED", "SCHEDULED_CAPACITY"]
ClusterType = Literal["KUBERNETES", "SLURM"]

DriverVersion = Annotated[str, AfterValidator(validate_driver_version)]
CudaVersion = Annotated[str, AfterValidator(validate_cuda_version)]
NvidiaDriverVersion = Annotated[str, AfterValidator(validate_nvidia_driver_version)]
Timestamp = Annotated[str, AfterValidator(validate_timestamp)]
SshJump = Annotated[str, AfterValidator(validate_jump_host)]
SshIssuer = Annotated[str, AfterValidator(validate_ssh_issuer)]
NodeGpus = Annotated[int, Field(ge=0, multiple_of=8)]
"""A multiple of 8 GPUs, whatever a node has (document 003)."""


class SharedVolumeInputs(InputModel):
    """A volume that every node of a cluster mounts and that outlives the cluster."""

    retired_names: ClassVar[Mapping[str, str]] = {"name": "volume_name"}

    volume_name: Annotated[Line, Immutable] = Field(
        min_length=1,
        description="Name of the volume; Kubernetes claims bind to it by this name.",
        examples=["training-data"],
    )
    # Only Together's support can shrink a volume.
    size_tib: Annotated[int, GrowOnly] = Field(
        ge=1, description="Size in whole TiB; it can only grow.", examples=[5]
    )
    # A volume's answer has no region, so the declared one is kept.
    region: Annotated[str, Immutable, WriteOnly] = Field(
        min_length=1,
        description="Region of the volume and of the clusters that mount it, such as us-central-8.",
        examples=["us-central-8"],
    )
    # An inline volume is deleted with its cluster, unless this is true (SDK).
    is_lifecycle_independent: Annotated[bool | None, Immutable, WriteOnly, Default(False)] = (
        optional_field("Whether an inline volume outlives its cluster.", examples=[True])
    )
    # No answer has the project of a volume: where the state has none, declaring it must not replace
    # the volume.
    project_id: Annotated[
        str | None,
        WriteOnly,
        ReplaceIf(lambda before, after: bool(before != after), "a volume stays in its project"),
    ] = optional_field(
        "Project that owns the volume. When not declared: that of the variable "
        "TOGETHER_PROJECT_ID when the volume is created, else the API key's own project.",
        examples=["proj-research"],
    )
    # Of the Python SDK alone.
    instance_cluster_id: Annotated[str | None, Immutable, WriteOnly, ReferenceTo("Cluster")] = (
        optional_field(
            "Cluster near whose machines the platform places the volume.",
            examples=["{{ clusters.train.id }}"],
        )
    )


class ClusterInputs(InputModel):
    """A GPU cluster: nodes with 8 GPUs each, or 4 with GB200."""

    former_names: ClassVar[Mapping[str, str]] = {"scale_down": "drain"}
    # auto_scaled is deprecated in the SDK; the others are outputs or names of other platforms.
    retired_names: ClassVar[Mapping[str, str]] = {
        "instance_type": "gpu_type",
        "name": "cluster_name",
        "reservation_days": "duration_days",
        "auto_scaled": "auto_scale",
    }
    retired_values: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "billing_type": {"prepaid": "RESERVED"}
    }
    # People copy `schedule` from declarations of other platforms.
    system_names: ClassVar[Mapping[str, str]] = {
        "schedule": "does not work on Together, which cannot stop and start a cluster: "
        "remove it, declare expires or ttl, or use tensorone.Cluster, scp.NodePool or scp.GpuNode"
    }

    cluster_name: Annotated[Line, Immutable] = Field(
        min_length=1, description="Name of the cluster.", examples=["training"]
    )
    region: Annotated[str, Immutable, ObservedAs("placed_region")] = Field(
        min_length=1, description="Region, such as us-central-8.", examples=["us-central-8"]
    )
    gpu_type: Annotated[GpuType, Immutable, ObservedAs("placed_gpu_type")] = Field(
        min_length=1,
        description="Type of GPU, such as H100_SXM.",
        examples=["H100_SXM", "H200_SXM", "B200_SXM"],
    )
    num_gpus: int = Field(
        ge=8, multiple_of=8, description="Number of GPUs, a multiple of 8.", examples=[16]
    )
    # The reference documents this one field, newer servers take only the pair: `normalize` expands
    # it, so that both spellings compare equal.
    driver_version: Annotated[DriverVersion | None, AlternativeSpelling] = optional_field(
        "CUDA and driver version in one, such as CUDA_12_6_560.", examples=["CUDA_12_6_560"]
    )
    # Servers answer with more detail, such as 12.6-ubuntu-22.04.
    cuda_version: Annotated[CudaVersion | None, Immutable, EquivalentIf(is_same_version)] = (
        optional_field("CUDA version, such as 12.6; with nvidia_driver_version.", examples=["12.6"])
    )
    nvidia_driver_version: Annotated[
        NvidiaDriverVersion | None, Immutable, EquivalentIf(is_same_version)
    ] = optional_field("NVIDIA driver version, such as 560; with cuda_version.", examples=["560"])
    # An id of the region's catalogue (SDK); answers contain the pair instead.
    nvidia_version_id: Annotated[str | None, Immutable, WriteOnly] = optional_field(
        "Id of a version in the region's list, instead of the pair.", examples=["us-central-8/560"]
    )
    billing_type: Annotated[BillingType, Immutable] = Field(
        description="ON_DEMAND, RESERVED (with duration_days) or SCHEDULED_CAPACITY.",
        examples=["ON_DEMAND"],
    )
    # Answers contain only `duration_hours`.
    duration_days: Annotated[
        int | None, Immutable, WriteOnly, Source("Together reference, 'Billing': 1-90 days")
    ] = optional_field("Days of a RESERVED cluster, 1 to 90.", ge=1, le=90, examples=[30])
    # The server's default is KUBERNETES; `PUT` changes the type in place.
    cluster_type: Annotated[ClusterType | None, Default("KUBERNETES")] = optional_field(
        "KUBERNETES, or SLURM on Kubernetes.", examples=["SLURM"]
    )
    # Answers list all volumes, not the one that was attached on request.
    volume_id: Annotated[str | None, Immutable, WriteOnly, ReferenceTo("SharedVolume")] = (
        optional_field(
            "Id of an existing shared volume of the same region to attach.",
            examples=["{{ shared_volumes.data.id }}", "12345-67890-12345-67890"],
        )
    )
    shared_volume: Annotated[SharedVolumeInputs | None, Immutable, WriteOnly] = optional_field(
        "A shared volume to create with the cluster, instead of volume_id.",
        examples=[{"volume_name": "training-data", "region": "us-central-8", "size_tib": 5}],
    )
    # Of the SDK alone; never returned.
    auto_scale: Annotated[bool | None, Immutable, WriteOnly, Default(False)] = optional_field(
        "Whether the number of nodes follows the load, up to auto_scale_max_gpus.", examples=[True]
    )
    auto_scale_max_gpus: Annotated[NodeGpus | None, Immutable, WriteOnly] = optional_field(
        "The most GPUs that automatic scaling may reach.", examples=[64]
    )
    capacity_pool_id: Annotated[str | None, Immutable] = optional_field(
        "Capacity pool to draw GPUs from.", examples=["pool-research"]
    )
    num_capacity_pool_gpus: NodeGpus | None = optional_field(
        "GPUs from the capacity pool, part of num_gpus.", examples=[8]
    )
    # Returned as desired_preemptible_gpus; the allocated number follows the stock.
    num_preemptible_gpus: NodeGpus | None = optional_field(
        "Desired additional GPUs, not part of num_gpus, which the platform adds and "
        "removes as stock allows.",
        examples=[16],
    )
    # The server fills in num_gpus for a RESERVED cluster.
    num_reserved_gpus: NodeGpus | None = optional_field(
        "Prepaid GPUs of a RESERVED cluster; all when not declared.", examples=[8]
    )
    reservation_start_time: Annotated[Timestamp | None, Immutable, EquivalentIf(is_same_moment)] = (
        optional_field(
            "Start of SCHEDULED_CAPACITY, such as 2026-03-01T08:00:00Z.",
            examples=["2026-03-01T08:00:00Z"],
        )
    )
    # An update can move the end of a prepaid cluster (ClusterUpdateParams).
    reservation_end_time: Annotated[Timestamp | None, EquivalentIf(is_same_moment)] = (
        optional_field(
            "End of SCHEDULED_CAPACITY, or of a RESERVED cluster.",
            examples=["2026-03-31T08:00:00Z"],
        )
    )
    # None, Immutable] = | The server fills in the project of the key.
    project_id: Annotated[str | None, Immutable] = optional_field(
        "Project of the cluster. When not declared: that of the variable "
        "TOGETHER_PROJECT_ID when the cluster is created, else the API key's own project.",
        examples=["proj-research"],
    )
    install_traefik: Annotated[bool | None, Immutable, Default(False)] = optional_field(
        "Whether a KUBERNETES cluster gets the Traefik ingress.", examples=[True]
    )
    oidc_config: Annotated[OidcConfigInputs | None, Immutable] = optional_field(
        "Sign-in through an OpenID Connect issuer.",
        examples=[
            {
                "client_id": "gpu-clusters",
                "group_claim": "groups",
                "group_prefix": "oidc:",
                "issuer_url": "https://login.example.com",
                "username_claim": "email",
                "username_prefix": "oidc:",
            }
        ],
    )
    cluster_config: ClusterConfigInputs | None = optional_field(
        "What the platform installs in the cluster.",
        examples=[{"load_balancer": "NGINX", "observability": {"enabled": True}}],
    )
    # Answers contain enabled add-ons only, and an update merges them by name.
    add_ons: Annotated[list[AddOnInputs] | None, KeyedBy("name", absent_when=is_add_on_off)] = (
        optional_field(
            "Add-ons by name.",
            examples=[
                [
                    {
                        "add_on_type": "dashboard",
                        "name": "ui",
                        "config": {"dashboard": {"enabled": True}},
                    }
                ]
            ],
        )
    )
    # Only a new cluster is tested, and the update request has no such field.
    acceptance_tests_params: Annotated[AcceptanceTestsInputs | None, Immutable, WriteOnly] = (
        optional_field(
            "The tests that the new cluster has to pass.",
            examples=[{"enabled": True, "dcgm_diag_level": "DCGM_DIAG_LEVEL_SHORT"}],
        )
    )
    slurm_image: Annotated[str | None, Immutable, WriteOnly] = optional_field(
        "Image of a SLURM cluster.", examples=["registry.example.com/slurm:24.05"]
    )
    # No field of the update request (ClusterUpdateParams).
    slurm_shm_size_gib: Annotated[int | None, Immutable] = optional_field(
        "Shared memory of a SLURM cluster in GiB; required for a SLURM cluster.",
        ge=1,
        examples=[64],
    )
    on_no_capacity: Annotated[OnNoCapacityInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do while Together is out of "
        "stock. The alternatives are tried in order, then all again every minute for "
        "wait_minutes; growing a cluster waits, too.",
        examples=[
            {
                "alternatives": [{"region": "us-central-4"}, {"gpu_type": "H200_SXM"}],
                "wait_minutes": 30,
            }
        ],
    )
    expires: Expires = None
    ttl: Ttl = None

    ssh_jump: Annotated[SshJump | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: the jump host of the machines, as "
        "Together's page of the cluster shows it (ssh -J).",
        examples=["ada@ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"],
    )
    ssh_issuer: Annotated[SshIssuer | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: the OIDC issuer of a cluster with "
        "ssh_ca_enabled, as Together's page of the cluster shows it. `gpuform connect` gets SSH "
        "certificates from this issuer.",
        examples=["https://dex.s1.us-central-8a.cloud.together.ai/t-0f11e35c"],
    )
    drain: Annotated[ClusterDrainInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do about jobs on removed "
        "nodes, with the cluster or without it, and which nodes to remove when num_gpus "
        "shrinks. Nodes are cordoned first, and removed when no job runs on them.",
        examples=[{"nodes": ["train-worker-1"], "on_busy": "wait", "wait_minutes": 240}],
    )
    rollout: Annotated[ClusterRolloutInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent. Together changes no driver and no GPU "
        "type in place: with rollout, the new cluster is created before the old one is "
        "deleted, so that jobs can move; without it, the old one is deleted first.",
        examples=[{"strategy": "replace_cluster", "keep_volume": True}],
    )

    repair: Annotated[ClusterRepairInputs | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: which broken nodes are repaired, and "
        "how, each while no job runs on it (see `drain`).",
        examples=[{"on": ["platform", "not_ready"], "max_parallel": 1, "max_unhealthy": "25%"}],
    )

    scale_down: Annotated[ClusterDrainInputs | None, Local, AlternativeSpelling] = optional_field(
        "The former name of drain.", examples=[{"on_busy": "wait"}]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems between the cluster's inputs, and of the declared lifetime."""
        return chain(find_cluster_problems(values), find_lifetime_problems(values))

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs with CUDA and driver version instead of ``driver_version``.

        Unchanged without ``driver_version``; versions that are declared beside it stay.
        """
        return expand_driver_version(values)

    def iterate_placements(self) -> "Iterator[ClusterInputs]":
        """Yield the inputs of each create attempt: as declared, then with each alternative."""
        yield self
        policy = self.on_no_capacity
        for alternative in (policy and policy.alternatives) or ():
            yield self.model_copy(update=alternative.dump_declared())

    @classmethod
    def convert_retired_value(cls, name: str, value: Any) -> Any:
        """Return the nearest GPU type for a value of the removed field `instance_type`.

        For the hint to a problem. A value of another field, or unlike every known type, is returned
        unchanged.
        """
        if name == "instance_type" and isinstance(value, str):
            return find_nearest_gpu_type(value) or value
        return value


class CertificationInputs(CertificationPolicy):
    """Tests that a cluster's nodes must pass before resources that depend on them are created."""

    cluster_id: Annotated[str, Immutable, ReferenceTo("Cluster")] = Field(
        min_length=1,
        description="Cluster whose nodes are tested.",
        examples=["{{ clusters.train.id }}"],
    )
    num_gpus: Annotated[int, OutputOf("Cluster", "num_gpus")] = Field(
        ge=8,
        multiple_of=8,
        description="Number of GPUs of the cluster. When the number grows, the new nodes are "
        "tested.",
        examples=["{{ clusters.train.num_gpus }}"],
    )
