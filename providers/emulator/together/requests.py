"""Define the bodies that Together's clients send, field by field as documented, and parse them.

`routes` calls `parse_body`. Sources: the platform document, 'REST API', and the request types of
the Python SDK 3.1.1.
"""

from typing import Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gpuform.providers.emulator.together.catalogue import TogetherApiError

_Body = TypeVar("_Body", bound=BaseModel)


class Body(BaseModel):
    """A strict and closed body, so that a client's slip shows: no `"8"` for 8, no extra key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Enabled(Body):
    enabled: bool | None = None


class AddOnConfig(Body):
    dashboard: Enabled | None = None
    headlamp: Enabled | None = None
    ingress: Enabled | None = None
    slurm_web: Enabled | None = None


class NewAddOn(Body):
    """An add-on of a new cluster."""

    add_on_type: str
    name: str
    config: AddOnConfig | None = None


class ChangedAddOn(Body):
    """A change of an add-on that the cluster has, by its `name`."""

    name: str
    config: AddOnConfig | None = None


class SlurmStartupScripts(Body):
    controller_epilog: str | None = None
    controller_prolog: str | None = None
    extra_slurm_conf: str | None = None
    login_init_script: str | None = None
    nodeset_init_script: str | None = None
    worker_epilog: str | None = None
    worker_prolog: str | None = None


class ClusterConfig(Body):
    load_balancer: Literal["NONE", "TRAEFIK", "NGINX", "ISTIO"]
    gpu_operator_version: str | None = None
    network_operator_version: str | None = None
    ingress: Enabled | None = None
    jumphost_enabled: bool | None = None
    kubernetes_dashboard_enabled: bool | None = None
    observability: Enabled | None = None
    slurm_startup_scripts: SlurmStartupScripts | None = None
    ssh_ca_enabled: bool | None = None


class OidcConfig(Body):
    client_id: str
    group_claim: str
    group_prefix: str
    issuer_url: str
    username_claim: str
    username_prefix: str
    ca_cert: str | None = None


class AcceptanceTestsParams(Body):
    enabled: bool | None = None
    dcgm_diag_level: (
        Literal[
            "DCGM_DIAG_LEVEL_SHORT",
            "DCGM_DIAG_LEVEL_MEDIUM",
            "DCGM_DIAG_LEVEL_LONG",
            "DCGM_DIAG_LEVEL_EXTENDED",
        ]
        | None
    ) = None
    dcgm_diag_skipped: bool | None = None
    gpu_burn_duration: int | None = None
    gpu_burn_skipped: bool | None = None
    nccl_multi_node_skipped: bool | None = None
    nccl_single_node_skipped: bool | None = None
    storage_skipped: bool | None = None


class CreateVolume(Body):
    """The body that creates a volume; also the `shared_volume` of a new cluster."""

    volume_name: str = Field(min_length=1)
    size_tib: int = Field(ge=1)
    region: str
    instance_cluster_id: str | None = None
    is_lifecycle_independent: bool | None = None
    project_id: str | None = None


class UpdateVolume(Body):
    """The body that resizes a volume."""

    volume_id: str
    size_tib: int | None = Field(default=None, ge=1)


class CreateCluster(Body):
    """The body of a create."""

    cluster_name: str = Field(min_length=1)
    region: str
    gpu_type: str
    num_gpus: int
    billing_type: Literal["ON_DEMAND", "RESERVED", "SCHEDULED_CAPACITY"]
    cluster_type: Literal["KUBERNETES", "SLURM"] | None = None
    driver_version: str | None = None
    nvidia_version_id: str | None = None
    cuda_version: str | None = None
    nvidia_driver_version: str | None = None
    duration_days: int | None = None
    reservation_start_time: AwareDatetime | None = None
    reservation_end_time: AwareDatetime | None = None
    volume_id: str | None = None
    shared_volume: CreateVolume | None = None
    capacity_pool_id: str | None = None
    num_capacity_pool_gpus: int | None = None
    num_preemptible_gpus: int | None = None
    num_reserved_gpus: int | None = None
    auto_scale: bool | None = None
    auto_scale_max_gpus: int | None = None
    auto_scaled: bool | None = None
    install_traefik: bool | None = None
    oidc_config: OidcConfig | None = None
    cluster_config: ClusterConfig | None = None
    add_ons: list[NewAddOn] | None = None
    acceptance_tests_params: AcceptanceTestsParams | None = None
    slurm_image: str | None = None
    slurm_shm_size_gib: int | None = Field(default=None, ge=1)
    project_id: str | None = None


class UpdateCluster(Body):
    """The fields that may change in place; a missing key keeps its value."""

    num_gpus: int | None = None
    cluster_type: Literal["KUBERNETES", "SLURM"] | None = None
    num_capacity_pool_gpus: int | None = None
    num_preemptible_gpus: int | None = None
    num_reserved_gpus: int | None = None
    reservation_end_time: AwareDatetime | None = None
    add_ons: list[ChangedAddOn] | None = None
    cluster_config: ClusterConfig | None = None


_Mode = Literal[
    "REMEDIATION_MODE_VM_ONLY",
    "REMEDIATION_MODE_HOST_AWARE",
    "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT",
    "REMEDIATION_MODE_REBOOT_VM",
    "REMEDIATION_MODE_HOST_POWER_CYCLE",
]


class CreateRemediation(Body):
    """A user's request for a repair."""

    mode: _Mode
    reason: str | None = None


class ApproveRemediation(Body):
    """An approval; `mode` replaces the proposed one."""

    comment: str | None = None
    mode: _Mode | None = None


class RejectRemediation(Body):
    """A rejection of a proposed repair."""

    comment: str | None = None


class Alert(Body):
    """An alert of a health check, which a proposal names."""

    alert_name: str = "GpuPcieReplayRateHigh"
    severity: str = "PHC_SEVERITY_CRITICAL"
    description: str = "PCIe replays of a GPU are frequent"
    xid_codes: list[int] = []
    slurm_reason: str = ""


class ProposeRemediation(Body):
    """A remediation that tests let the platform propose, or show in another state.

    `fails` is the error message with which the repair will fail.
    """

    cluster_id: str
    instance_name: str
    id: str | None = None
    mode: _Mode = "REMEDIATION_MODE_HOST_AWARE"
    state: str = "PENDING_APPROVAL"
    trigger: str = "REMEDIATION_TRIGGER_AUTOMATED"
    reason: str = "a passive health check has found alerts"
    error_message: str = ""
    requested_by: str = "together"
    reviewed_by: str = ""
    review_comment: str = ""
    fails: str = ""
    alerts: list[Alert] = [Alert()]
    are_resolved: bool = False


def parse_body(model: type[_Body], data: bytes) -> _Body:
    """Return the request body as `model`.

    Raises `ApiError`: 400 for a key that has no place here, 422 for a missing or malformed value,
    all problems in one message.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    status = 400 if any(problem["type"] == "extra_forbidden" for problem in problems) else 422
    raise TogetherApiError(
        status, "; ".join(_format_problem(model, dict(problem)) for problem in problems)
    )


def _format_problem(model: type[BaseModel], problem: dict[str, Any]) -> str:
    """Return the message for one of pydantic's problems with a body."""
    path = ".".join(str(part) for part in problem["loc"]) or "body"
    if problem["type"] == "missing":
        return f"{path} is required"
    if problem["type"] != "extra_forbidden":
        return f"{path}: {problem['msg']}"
    # A key that only a create knows gets words of its own.
    if model is UpdateCluster and path in CreateCluster.model_fields:
        return f"{path} cannot be changed after the cluster is created"
    if model is UpdateVolume and path in CreateVolume.model_fields:
        return f"{path} cannot be changed after the volume is created"
    return f"{path} is not a field of this request"
