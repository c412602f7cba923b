"""Parse the bodies that Together's clients send, and check new and changed clusters.

`routes` calls `parse_body`; `operations` calls the checks: a broken rule is a 400. Sources: the
platform document, 'REST API', 'Create a Cluster' and 'Update / Scale a Cluster', and the request
types of the Python SDK 3.1.1.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from gpuform.providers.emulator.routing import merge_deeply
from gpuform.providers.emulator.together.catalogue import (
    DEFAULT_PROJECT,
    MACHINES,
    DriverChoice,
    DriverVersion,
    TogetherApiError,
    require_driver,
    require_region,
)
from gpuform.providers.emulator.together.clusters import AddOn, ClusterSettings

_Body = TypeVar("_Body", bound=BaseModel)


class Body(BaseModel, extra="forbid", strict=True, frozen=True):
    """A strict and closed body, so that a client's slip shows: no `"8"` for 8, no extra key."""


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

    Raises `Refusal`: 400 for a key that has no place here, 422 for a missing or malformed value,
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


_GPU_COUNT_STEP = 8
"""Every count of GPUs is a multiple of 8, also where a machine has 4 (document 003)."""
_ADD_ON_TYPES = ("dashboard", "headlamp", "ingress", "slurm_web")
# What the service fills in where nothing is asked for; the versions are the SDK's examples.
_DEFAULT_CONFIG = {
    "load_balancer": "NONE",
    "gpu_operator_version": "v24.6.2",
    "network_operator_version": "v24.7.0",
}


def check_new_cluster(body: CreateCluster, now: float) -> None:
    """Raise `Refusal` 400 for the first rule broken by a new cluster's body.

    `now` is in unix seconds, for times of reservations. Volumes that exist are not looked at.
    """
    _check_location(body)
    _check_sizes(body.num_gpus, body)
    if body.num_capacity_pool_gpus and body.capacity_pool_id is None:
        raise TogetherApiError(400, "num_capacity_pool_gpus needs a capacity_pool_id")
    if body.num_reserved_gpus and body.billing_type != "RESERVED":
        raise TogetherApiError(400, "num_reserved_gpus applies only to billing_type RESERVED")
    _check_reservation(body, now)
    if body.cluster_type == "SLURM" and body.slurm_shm_size_gib is None:
        raise TogetherApiError(400, "slurm_shm_size_gib is required when cluster_type is SLURM")
    _check_storage(body)
    for add_on in body.add_ons or []:
        if add_on.add_on_type not in _ADD_ON_TYPES:
            raise TogetherApiError(
                400,
                f"add_on_type {add_on.add_on_type!r} is unknown; known: {', '.join(_ADD_ON_TYPES)}",
            )


def check_change(body: UpdateCluster, settings: ClusterSettings) -> None:
    """Raise `Refusal` 400 for the first rule broken by a change of a cluster with `settings`.

    Add-ons are not checked, nor whether a new end of the reservation is in the future.
    """
    num_gpus = settings.num_gpus if body.num_gpus is None else body.num_gpus
    _check_sizes(num_gpus, body)
    if body.num_capacity_pool_gpus is not None and settings.capacity_pool_id is None:
        raise TogetherApiError(
            400, "num_capacity_pool_gpus needs a cluster with a capacity_pool_id"
        )
    if body.num_reserved_gpus is not None and settings.billing_type != "RESERVED":
        raise TogetherApiError(400, "num_reserved_gpus applies only to billing_type RESERVED")
    if body.reservation_end_time is not None and settings.billing_type == "ON_DEMAND":
        raise TogetherApiError(400, "reservation_end_time is only accepted for prepaid clusters")


def _check_location(body: CreateCluster) -> None:
    """Raise `Refusal` 400 for an unknown region, or a GPU type or driver outside of its offer."""
    region = require_region(body.region)
    if body.gpu_type not in MACHINES:
        raise TogetherApiError(
            400, f"gpu_type {body.gpu_type!r} is unknown; known: {', '.join(MACHINES)}"
        )
    if body.gpu_type not in region.gpu_types:
        raise TogetherApiError(
            400,
            f"gpu_type {body.gpu_type!r} is not offered in region {region.name!r}; "
            f"offered: {', '.join(region.gpu_types)}",
        )
    resolve_driver(body)


def _check_sizes(num_gpus: int, body: CreateCluster | UpdateCluster) -> None:
    """Raise `Refusal` 400 for numbers of GPUs that are not multiples of 8, or too large parts.

    `num_gpus` has to be positive; reserved and pooled GPUs are parts of it, and checked only where
    `body` names them. Preemptible ones come on top, without a limit.
    """
    # A worker is a whole host of eight GPUs; the document has no smaller step.
    if num_gpus <= 0 or num_gpus % _GPU_COUNT_STEP:
        raise TogetherApiError(400, f"num_gpus must be a positive multiple of 8, not {num_gpus}")
    parts = {
        "num_capacity_pool_gpus": (body.num_capacity_pool_gpus, num_gpus),
        "num_reserved_gpus": (body.num_reserved_gpus, num_gpus),
        # Preemptible GPUs come on top of num_gpus, without a limit.
        "num_preemptible_gpus": (body.num_preemptible_gpus, None),
    }
    for name, (value, limit) in parts.items():
        if value is None:
            continue
        if value < 0 or value % _GPU_COUNT_STEP:
            raise TogetherApiError(400, f"{name} must be a multiple of 8, not {value}")
        if limit is not None and value > limit:
            raise TogetherApiError(400, f"{name} must not exceed num_gpus ({limit}), not {value}")


def _check_reservation(body: CreateCluster, now: float) -> None:
    """Raise `Refusal` 400 if reservation times and days do not fit the billing type.

    A reservation has to end after `now` (unix seconds) and after its start.
    """
    if body.billing_type == "RESERVED":
        if body.duration_days is None:
            raise TogetherApiError(400, "duration_days is required with billing_type RESERVED")
        if not 1 <= body.duration_days <= 90:
            raise TogetherApiError(
                400, f"duration_days must be from 1 to 90, not {body.duration_days}"
            )
    elif body.duration_days is not None:
        raise TogetherApiError(400, "duration_days is only allowed with billing_type RESERVED")
    start, end = body.reservation_start_time, body.reservation_end_time
    if body.billing_type == "SCHEDULED_CAPACITY" and (start is None or end is None):
        raise TogetherApiError(
            400,
            "reservation_start_time and reservation_end_time are required "
            "with billing_type SCHEDULED_CAPACITY",
        )
    if body.billing_type == "ON_DEMAND" and (start or end):
        raise TogetherApiError(400, "reservation times do not apply to billing_type ON_DEMAND")
    if end is not None and end.timestamp() <= max(now, start.timestamp() if start else now):
        raise TogetherApiError(
            400, "reservation_end_time must be in the future and after the start"
        )


def _check_storage(body: CreateCluster) -> None:
    """Raise `Refusal` 400 for both an existing and a new volume, or a new one elsewhere.

    Elsewhere is a region other than the cluster's.
    """
    if body.shared_volume is None:
        return
    if body.volume_id is not None:
        raise TogetherApiError(400, "volume_id and shared_volume exclude each other")
    # The live API's words for a volume of another region.
    if body.shared_volume.region != body.region:
        raise TogetherApiError(400, "Shared volume does not exist in the datacenter")


def resolve_driver(body: CreateCluster) -> DriverVersion:
    """Return the driver version chosen by the body in the body's region. Raises `Refusal` 400."""
    choice = DriverChoice(
        nvidia_version_id=body.nvidia_version_id,
        driver_version=body.driver_version,
        cuda_version=body.cuda_version,
        nvidia_driver_version=body.nvidia_driver_version,
    )
    return require_driver(require_region(body.region), choice)


def build_settings(body: CreateCluster) -> ClusterSettings:
    """Return the settings of a new cluster, with the server's defaults."""
    is_reserved = body.billing_type == "RESERVED"
    # A prepaid cluster without a number of its own is reserved completely.
    reserved = body.num_gpus if body.num_reserved_gpus is None else body.num_reserved_gpus
    config = body.cluster_config.model_dump(exclude_none=True) if body.cluster_config else {}
    return ClusterSettings(
        cluster_name=body.cluster_name,
        cluster_type=body.cluster_type or "KUBERNETES",
        region=body.region,
        gpu_type=body.gpu_type,
        num_gpus=body.num_gpus,
        billing_type=body.billing_type,
        project_id=body.project_id or DEFAULT_PROJECT,
        num_reserved_gpus=reserved if is_reserved else 0,
        num_capacity_pool_gpus=body.num_capacity_pool_gpus or 0,
        desired_preemptible_gpus=body.num_preemptible_gpus or 0,
        capacity_pool_id=body.capacity_pool_id,
        duration_hours=None if body.duration_days is None else body.duration_days * 24,
        cluster_config=merge_deeply(_DEFAULT_CONFIG, config),
        oidc_config=body.oidc_config.model_dump(exclude_none=True) if body.oidc_config else None,
        install_traefik=bool(body.install_traefik),
        slurm_shm_size_gib=body.slurm_shm_size_gib,
    )


def build_add_ons(requested_add_ons: Iterable[NewAddOn]) -> list[AddOn]:
    """Return the add-ons of a new cluster: enabled unless their configuration says otherwise."""
    return [
        AddOn(
            add_on_type=add_on.add_on_type,
            name=add_on.name,
            config=merge_deeply({add_on.add_on_type: {"enabled": True}}, _dump_config(add_on)),
        )
        for add_on in requested_add_ons
    ]


def merge_add_ons(present: list[AddOn], changes: Iterable[ChangedAddOn]) -> list[AddOn]:
    """Return the `present` add-ons with each change merged into the add-on of equal name.

    Raises `Refusal` 400 for a name that no add-on has.
    """
    add_ons_by_name = {add_on.name: add_on for add_on in present}
    for change in changes:
        if change.name not in add_ons_by_name:
            raise TogetherApiError(400, f"add_ons: the cluster has no add-on named {change.name!r}")
        add_on = add_ons_by_name[change.name]
        add_ons_by_name[change.name] = add_on.model_copy(
            update={"config": merge_deeply(add_on.config, _dump_config(change))}
        )
    return list(add_ons_by_name.values())


def _dump_config(add_on: NewAddOn | ChangedAddOn) -> dict[str, Any]:
    """Return the configuration of an add-on without unset members; {} without one."""
    return add_on.config.model_dump(exclude_none=True) if add_on.config else {}
