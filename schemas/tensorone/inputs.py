"""Define the inputs of a TensorOne GPU cluster, and check rules over several fields.

Names and limits are from TensorOne's 'Create Cluster'; the fields that can change are from 'Start
Cluster' (`update_configuration`). No page documents the update request (PUT): which fields it
changes in place is our reading.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from gpuform.schemas.models import InputModel, Problem, optional_field, require_full_match
from gpuform.schemas.policies.lifetime import (
    Expires,
    Idle,
    Schedule,
    Ttl,
    find_idle_problems,
    find_lifetime_problems,
)
from gpuform.schemas.policies.repair import RepairPolicy, WaitMinutes, find_no_capacity_problems
from gpuform.schemas.rules import (
    Default,
    GrowOnly,
    Immutable,
    Local,
    ObservedAs,
    Secret,
    StateOnly,
    Unordered,
    WriteOnly,
)
from gpuform.schemas.values import UNKNOWN

Protocol = Literal["tcp", "udp"]
Port = Annotated[int, Field(ge=1, le=65535)]


Name = Annotated[
    str,
    require_full_match(r"[A-Za-z0-9-]{3,64}", "must have 3 to 64 letters, digits and hyphens"),
]


class PortMappingInputs(InputModel):
    """A port of the cluster that is reachable from outside."""

    internal_port: Port = Field(description="Port inside the cluster.", examples=[8888])
    external_port: Port | None = optional_field(
        "Port outside; the platform's choice when not declared.", examples=[32001]
    )
    protocol: Protocol | None = optional_field("Protocol: tcp or udp.", examples=["tcp"])
    description: str | None = optional_field("Purpose of the port.", examples=["Jupyter"])


class AutoTerminateInputs(InputModel):
    """When the platform stops the cluster by itself."""

    enabled: bool | None = optional_field(
        "Whether the platform stops the cluster by itself.", examples=[True]
    )
    idle_minutes: int | None = optional_field(
        "Minutes without work after which the platform stops the cluster.", ge=1, examples=[60]
    )
    max_runtime_hours: int | None = optional_field(
        "Hours of running after which the platform stops the cluster.", ge=1, examples=[24]
    )
    cost_limit_usd: float | None = optional_field(
        "Cost at which the platform stops the cluster, in USD.", gt=0, examples=[500]
    )


GpuType = Literal["A100", "H100", "RTX4090", "V100", "T4", "RTX3090"]
Region = Literal["us-east-1", "us-west-2", "eu-west-1", "ap-southeast-1"]
State = Literal["running", "stopped"]
HealthCheck = Literal["gpu", "storage", "network", "docker"]
"""Checks of 'Get Cluster Details' (`status_details.health_checks`), without `_health`."""


class AlternativeInputs(InputModel):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    region: Region | None = optional_field("The region to try.", examples=["us-east-1"])
    gpu_type: GpuType | None = optional_field("The type of GPU to try.", examples=["H100"])


class OnNoCapacityInputs(InputModel):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    alternatives: list[AlternativeInputs] | None = optional_field(
        "The alternatives for a new cluster, in this order.",
        examples=[[{"region": "us-east-1"}, {"gpu_type": "H100"}]],
    )
    wait_minutes: WaitMinutes = None


class ClusterRepairInputs(RepairPolicy):
    """When a broken cluster is restarted, and who must have seen the plan."""

    on: list[Literal["platform"]] | None = optional_field(
        "Which reports count: platform, the status of the cluster or the health "
        "of the cluster's GPUs.",
        min_length=1,
        examples=[["platform"]],
    )


START_FIELDS: Final = ("gpu_count", "cpu_cores", "memory_gb", "storage_gb", "docker_image")
"""Fields that change only when the cluster starts ('Start Cluster', `update_configuration`)."""

UPDATE_FIELDS: Final = (
    "name",
    "description",
    "environment_variables",
    "port_mappings",
    "security_groups",
    "auto_terminate",
    "tags",
)
"""Fields that an update request changes, whether the cluster runs or not."""


class ClusterInputs(InputModel):
    """A GPU cluster: one host with up to 8 GPUs."""

    # imageName, gpuType and env are names of TensorOne's v2 API; the others are outputs, request
    # fields or names of other platforms.
    retired_names: ClassVar[Mapping[str, str]] = {
        "cluster_name": "name",
        "num_gpus": "gpu_count",
        "instance_type": "gpu_type",
        "environment": "environment_variables",
        "restore_from_snapshot": "restore_snapshot",
        "create_final_snapshot": "final_snapshot",
        "snapshot_name": "final_snapshot_name",
        "imageName": "docker_image",
        "gpuType": "gpu_type",
        "env": "environment_variables",
    }

    name: Name = Field(
        description="Name of the cluster: 3 to 64 letters, digits and hyphens.",
        examples=["workbench"],
    )
    description: str | None = optional_field(
        "Purpose of the cluster.", examples=["Notebooks and short experiments"]
    )
    gpu_type: Annotated[GpuType, Immutable, ObservedAs("placed_gpu_type")] = Field(
        description="Type of GPU, such as A100.", examples=["A100"]
    )
    # Changes through stop and start with update_configuration.
    gpu_count: int = Field(
        ge=1,
        le=8,
        description="Number of GPUs, 1 to 8; a change stops and starts the cluster.",
        examples=[4],
    )
    # update_configuration only grows storage ('Start Cluster').
    storage_gb: Annotated[int, GrowOnly] = Field(
        ge=50,
        description="Storage in GB, at least 50; it can only grow, which stops and starts the "
        "cluster.",
        examples=[500],
    )
    region: Annotated[Region, Immutable, ObservedAs("placed_region")] = Field(
        description="Region, such as us-west-2.", examples=["us-west-2"]
    )
    project_id: Annotated[str, Immutable] = Field(
        min_length=1, description="Project of the cluster.", examples=["proj_456"]
    )
    # The platform computes a default, which is no change.
    cpu_cores: int | None = optional_field(
        "Processor cores; the platform's choice when not declared. A change stops and "
        "starts the cluster.",
        ge=1,
        examples=[32],
    )
    memory_gb: int | None = optional_field(
        "Memory in GB; the platform's choice when not declared. A change stops and "
        "starts the cluster.",
        ge=1,
        examples=[256],
    )
    template_id: Annotated[str | None, Immutable] = optional_field(
        "Template with an image, instead of docker_image.",
        min_length=1,
        examples=["tmpl_pytorch_latest"],
    )
    # A template implies an image, so only one of the two is declared.
    docker_image: str | None = optional_field(
        "Image, instead of template_id; a change stops and starts the cluster.",
        min_length=1,
        examples=["tensorone/pytorch:2.1-cuda11.8"],
    )
    # Answers contain variables in the clear, and only the names of secrets.
    environment_variables: Annotated[dict[str, str] | None, Secret, Default({})] = optional_field(
        "Environment variables, which may be secrets. Variables whose values the "
        "platform hides are not compared.",
        examples=[{"WANDB_MODE": "online", "WANDB_API_KEY": "{{ config.wandb_key }}"}],
    )
    ssh_enabled: Annotated[bool | None, Immutable, WriteOnly, Default(True)] = optional_field(
        "Whether people can log in.", examples=[False]
    )
    # Never returned by the platform.
    ssh_public_keys: Annotated[list[str] | None, Immutable, WriteOnly, Unordered] = optional_field(
        "Public keys of the users who log in.", examples=[["{{ config.public_key }}"]]
    )
    port_mappings: list[PortMappingInputs] | None = optional_field(
        "Ports that are reachable from outside.",
        examples=[[{"internal_port": 8888, "protocol": "tcp", "description": "Jupyter"}]],
    )
    security_groups: Annotated[list[str] | None, Unordered] = optional_field(
        "Ids of security groups.", examples=[["sg_ml_training", "sg_ssh_access"]]
    )
    # Limits that stop the cluster out of band: the provider reports that and does not fight it.
    auto_terminate: AutoTerminateInputs | None = optional_field(
        "When the platform stops the cluster by itself. Such a stop is not drift; "
        "--allow start-terminated starts the cluster again.",
        examples=[{"enabled": True, "idle_minutes": 60}],
    )
    tags: dict[str, str] | None = optional_field("Tags.", examples=[{"team": "research"}])
    state: Annotated[State | None, Default("running")] = optional_field(
        "running or stopped.", examples=["stopped"]
    )
    require_healthy: Annotated[list[HealthCheck] | None, Local, StateOnly, Unordered] = (
        optional_field(
            "Health checks that must pass while the cluster runs. Until then the "
            "cluster is not ready, and a create or an update waits.",
            examples=[["gpu", "network"]],
        )
    )
    repair: Annotated[ClusterRepairInputs | None, Local, StateOnly] = optional_field(
        "A setting of gpuform, never sent: whether to restart the cluster (stop and start) when "
        "its status is error or the health of its GPUs is bad. gpuform never restarts it while its "
        "GPUs are in use or their use is unknown, except with --allow evict-jobs.",
        examples=[{"approve": "automatic"}],
    )
    # A field of 'Start Cluster' (restore_from_snapshot), not of the create.
    restore_snapshot: Annotated[str | None, WriteOnly] = optional_field(
        "Id of a snapshot to start from, once; declaring another snapshot stops "
        "and starts the cluster.",
        min_length=1,
        examples=["snap_123"],
    )
    # A field of the delete request (create_final_snapshot).
    final_snapshot: Annotated[bool | None, WriteOnly, Default(False)] = optional_field(
        "Whether a last snapshot is created before the cluster is deleted.", examples=[True]
    )
    final_snapshot_name: Annotated[str | None, WriteOnly] = optional_field(
        "Name of the last snapshot.", min_length=1, examples=["before-the-end"]
    )
    on_no_capacity: Annotated[OnNoCapacityInputs | None, Local] = optional_field(
        "A setting of gpuform, never sent: what to do while TensorOne has no free "
        "GPUs. The alternatives are tried in order, then all again every minute for "
        "wait_minutes; the start of a cluster waits, too.",
        examples=[
            {"alternatives": [{"region": "us-east-1"}, {"gpu_type": "H100"}], "wait_minutes": 30}
        ],
    )
    expires: Expires = None
    ttl: Ttl = None
    schedule: Schedule = None
    idle: Idle = None

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems between the cluster's inputs, and of the lifetime and idle rule."""
        return chain(
            find_cluster_problems(values),
            find_lifetime_problems(values),
            find_idle_problems(values),
        )

    def iterate_placements(self) -> "Iterator[ClusterInputs]":
        """Yield the inputs of each create attempt: as declared, then with each alternative."""
        yield self
        policy = self.on_no_capacity
        for alternative in (policy and policy.alternatives) or ():
            yield self.model_copy(update=alternative.dump_declared())


Values = Mapping[str, Any]


def find_cluster_problems(values: Values) -> Iterator[Problem]:
    """Yield the problems between the inputs of a cluster: image, ports, snapshot, alternatives."""
    return chain(
        _find_image_problems(values),
        _find_port_problems(values),
        _find_snapshot_problems(values),
        find_no_capacity_problems(values),
    )


def _find_image_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if both a template and a Docker image are declared."""
    if values.get("template_id") is not None and values.get("docker_image") is not None:
        yield Problem(
            "docker_image",
            "conflicts with template_id, which has an image of its own: keep one of the two",
        )


def _find_port_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for each internal or external port mapped twice for one protocol."""
    mappings = values.get("port_mappings")
    if not isinstance(mappings, Sequence):
        return
    for name in ("internal_port", "external_port"):
        known_ports = set()
        for index, mapping in enumerate(mappings):
            port = mapping.get(name) if isinstance(mapping, Mapping) else None
            # a mapping without a protocol is one of tcp
            protocol = mapping.get("protocol") or "tcp" if isinstance(mapping, Mapping) else None
            if port is None or UNKNOWN in (port, protocol):
                continue
            if (port, protocol) in known_ports:
                yield Problem(
                    f"port_mappings[{index}].{name}", f"{port}/{protocol} is listed twice: keep one"
                )
            known_ports.add((port, protocol))


def _find_snapshot_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if a final snapshot has a name and is not requested."""
    if values.get("final_snapshot_name") is None:
        return
    if (
        # an unknown value may turn out to be true
        values.get("final_snapshot") in (None, False)
        and values.get("final_snapshot") is not UNKNOWN
    ):
        yield Problem(
            "final_snapshot_name",
            "is valid only with final_snapshot: remove it, or declare it true",
        )
