"""Define the requests and answers of Together's API, and of Kubernetes about claims.

Used by Together's clients. Types are the SDK's Cluster, ClusterStorage and Region. Only ids are
required: older and newer servers leave other fields out. Statuses are text, since servers send
values that no enumeration has ("Scheduled"); `outputs.py` lists the known ones.

Remediations are from the platform's SDKs (`clusters.remediations`); its reference lacks them. Modes
and triggers are written without their common prefix, as in the platform's own command line:
HOST_AWARE for REMEDIATION_MODE_HOST_AWARE.

The bodies of requests are from the Together reference and the parameters of its SDK. A body has the
declared fields and nothing else: the platform keeps what an update leaves out.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import ForeignName, Id, Line, WireList, WireModel, optional_field
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.together.drivers import parse_driver_version
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs

_MODE_PREFIX: Final = "REMEDIATION_MODE_"
_TRIGGER_PREFIX: Final = "REMEDIATION_TRIGGER_"
_SEVERITY_PREFIX: Final = "PHC_SEVERITY_"


def _remove_prefix(prefix: str, value: object) -> object:
    """Return a reported text without the prefix of an enumeration; other values unchanged."""
    # a value that is no text is left to pydantic, which reports the field
    return value.removeprefix(prefix) if isinstance(value, str) else value


Mode = Annotated[str, BeforeValidator(partial(_remove_prefix, _MODE_PREFIX))]
Trigger = Annotated[str, BeforeValidator(partial(_remove_prefix, _TRIGGER_PREFIX))]
Severity = Annotated[str, BeforeValidator(partial(_remove_prefix, _SEVERITY_PREFIX))]


def _ignore_unreadable(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """Return the result of `read` for a value, or None for a value the SDK has no form for."""
    # An annotation explains a repair: its form must not keep a cluster from being read.
    try:
        return read(value)
    except ValidationError:
        return None


class XidEvent(WireModel):
    """An error of a GPU in the driver's log; the code is a number of NVIDIA's Xid catalogue."""

    xid_code: Annotated[str, BeforeValidator(str)] = ""
    mnemonic: str | None = None
    count: int | None = None


class XidAnnotation(WireModel):
    events: tuple[XidEvent, ...] = ()


class SlurmNodeUnavailable(WireModel):
    reason: str | None = None


class AlertAnnotation(WireModel):
    """The evidence of an alert."""

    title: str | None = None
    description: str | None = None
    summary_line: str | None = None
    slurm_node_unavailable: SlurmNodeUnavailable | None = None
    xid: XidAnnotation | None = None


class LinkedAlert(WireModel):
    """The finding of a health check. `resolved_at` is empty while the fault persists."""

    alert_name: str = ""
    severity: Severity = ""
    started_at: str | None = None
    resolved_at: str | None = None
    target_vm: str = ""
    cluster_id: Line = ""
    instance_id: Line | None = None
    passive_health_check_alert_id: str = ""
    node_remediation_intent_id: str | None = None
    annotation: Annotated[AlertAnnotation | None, WrapValidator(_ignore_unreadable)] = None
    annotations: Any = None


class Remediation(WireModel):
    """A repair of a node's machine."""

    id: str = ""
    cluster_id: Line = ""
    instance_id: Line = ""
    instance_name: str | None = None
    mode: Mode = ""
    state: str = ""
    trigger: Trigger = ""
    reason: str | None = None
    error_message: str | None = None
    requested_by: str | None = None
    reviewed_by: str | None = None
    review_comment: str | None = None
    review_time: str | None = None
    create_time: str | None = None
    update_time: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    active_health_check_run_id: str | None = None
    passive_health_check_event_id: str | None = None
    linked_alerts: tuple[LinkedAlert, ...] = ()


def build_remediation_create(mode: str, reason: str) -> dict[str, Any]:
    """Return the JSON for requesting a node's repair: the kind of repair, and the reason."""
    return {"mode": f"{_MODE_PREFIX}{mode}", "reason": reason}


def build_remediation_approve(mode: str, comment: str) -> dict[str, Any]:
    """Return the JSON for approving a proposed repair, with a comment.

    An empty `mode` keeps the proposed kind of repair.
    """
    mode_field = {"mode": f"{_MODE_PREFIX}{mode}"} if mode else {}
    return {"comment": comment, **mode_field}


class PhaseTransition(WireModel):
    phase: str = ""
    transition_time: str = ""


class ControlPlaneNode(WireModel):
    node_id: Line = ""
    host_name: Line = ""
    status: str = ""
    num_cpu_cores: int = 0
    memory_gib: float = 0
    network: str = ""
    public_ipv4: str | None = None
    phase_transitions: tuple[PhaseTransition, ...] = ()


class GpuWorkerNode(WireModel):
    """A machine with GPUs. ``deleted_at`` is set only for machines that were removed."""

    node_id: Line = ""
    # Of older documents only; newer ones have host_name.
    node_name: Line | None = None
    host_name: Line = ""
    status: str = ""
    num_gpus: int = 0
    num_cpu_cores: int = 0
    memory_gib: float = 0
    networks: tuple[str, ...] = ()
    # A node that failed has NODE_PHASE_FAILED here.
    phase_transitions: tuple[PhaseTransition, ...] = ()
    # Remediations address the machine by this id.
    instance_id: Line | None = None
    public_ipv4: str | None = None
    marked_for_deletion: bool | None = None
    auto_remediation_enabled: bool | None = None
    latest_remediation: Remediation | None = None
    ephemeral_storage: str | None = None
    ib_hca_count: int | None = None
    ib_hca_type: str | None = None
    nvswitch_count: int | None = None
    nvswitch_type: str | None = None
    slurm_worker_hostname: Line | None = None
    deleted_at: str | None = None


class NodeLifecycleEvent(WireModel):
    message: str = ""
    node_id: Line = ""
    # TogetherScaledUp, TogetherScaledDown or TogetherPreempted.
    reason: str = ""
    timestamp: str = ""


class Volume(WireModel):
    """A shared volume. The API never reports its region."""

    volume_id: Id
    volume_name: ForeignName = ""
    size_tib: int = 0
    status: str = ""


class Switch(WireModel):
    enabled: bool | None = None


class AddOnConfig(WireModel):
    dashboard: Switch | None = None
    headlamp: Switch | None = None
    ingress: Switch | None = None
    slurm_web: Switch | None = None


class AddOn(WireModel):
    """An enabled add-on. Disabled ones are not sent."""

    add_on_type: str = ""
    name: str = ""
    config: AddOnConfig = AddOnConfig()


class SlurmStartupScripts(WireModel):
    controller_prolog: str | None = None
    controller_epilog: str | None = None
    worker_prolog: str | None = None
    worker_epilog: str | None = None
    login_init_script: str | None = None
    nodeset_init_script: str | None = None
    extra_slurm_conf: str | None = None


class ClusterConfig(WireModel):
    load_balancer: str | None = None
    gpu_operator_version: str | None = None
    network_operator_version: str | None = None
    ingress: Switch | None = None
    jumphost_enabled: bool | None = None
    kubernetes_dashboard_enabled: bool | None = None
    observability: Switch | None = None
    slurm_startup_scripts: SlurmStartupScripts | None = None
    ssh_ca_enabled: bool | None = None


class OidcConfig(WireModel):
    client_id: str | None = None
    group_claim: str | None = None
    group_prefix: str | None = None
    issuer_url: str | None = None
    username_claim: str | None = None
    username_prefix: str | None = None
    ca_cert: str | None = None


class Cluster(WireModel):
    """A GPU cluster. ``kube_config`` is base64, and empty until the control plane exists."""

    cluster_id: Id
    cluster_name: ForeignName = ""
    cluster_type: str = ""
    region: str = ""
    gpu_type: str = ""
    num_gpus: int = 0
    billing_type: str = ""
    cuda_version: str = ""
    nvidia_driver_version: str = ""
    driver_version: str = Field(default="", description="The pair as older servers send it.")
    # Newer servers only.
    nvidia_driver_version_id: str | None = None
    # Servers send values that the SDK's enumeration lacks ("Scheduled").
    status: str = ""
    project_id: Line = ""
    # An administrator's credential: a secret even inside an answer.
    kube_config: SecretStr = SecretStr("")
    control_plane_nodes: tuple[ControlPlaneNode, ...] = ()
    gpu_worker_nodes: tuple[GpuWorkerNode, ...] = ()
    deleted_gpu_worker_nodes: tuple[GpuWorkerNode, ...] = ()
    volumes: tuple[Volume, ...] = ()
    add_ons: tuple[AddOn, ...] = ()
    # Failed acceptance tests appear in the phases alone: no status says "Failed".
    phase_transitions: tuple[PhaseTransition, ...] = ()
    node_lifecycle_events: tuple[NodeLifecycleEvent, ...] = ()
    num_cpu_workers: int = 0
    # Filled in by the server for RESERVED clusters.
    num_reserved_gpus: int | None = None
    num_capacity_pool_gpus: int | None = None
    desired_preemptible_gpus: int | None = None
    allocated_preemptible_gpus: int = 0
    capacity_pool_id: Line | None = None
    control_plane_ready: bool | None = None
    # The request's duration_days, in hours.
    duration_hours: int | None = None
    created_at: str | None = None
    first_ready_at: str | None = None
    reservation_start_time: str | None = None
    reservation_end_time: str | None = None
    cluster_config: ClusterConfig | None = None
    oidc_config: OidcConfig | None = None
    install_traefik: bool | None = None
    slurm_shm_size_gib: int | None = None
    os_image: str | None = None
    machine_cluster_id: Line | None = None
    is_in_substrate: bool | None = None
    ums_org_id: str | None = None
    ums_project_id: str | None = None


class DriverVersion(WireModel):
    """A supported pair of versions. Newer servers add the id and the operating system."""

    cuda_version: str = ""
    nvidia_driver_version: str = ""
    id: str | None = None
    os: str | None = None


class Region(WireModel):
    """The hardware and drivers that a region supports. Free capacity is not reported."""

    name: Id
    # GPU types of requests, under another name; free capacity is not reported.
    supported_instance_types: tuple[str, ...] = ()
    driver_versions: tuple[DriverVersion, ...] = ()


class ClusterList(WireList):
    clusters: tuple[Cluster, ...]


class VolumeList(WireList):
    volumes: tuple[Volume, ...]


class RegionList(WireList):
    regions: tuple[Region, ...]


class ClusterDeleted(WireModel):
    # The only member of the SDK's type.
    cluster_id: Line = ""


class VolumeDeleted(WireModel):
    # The only member of the SDK's type.
    success: bool = True


class ListedVolume(Volume):
    """A shared volume, with its region and clusters as the clusters report them."""

    region: str | None = optional_field("Region of the clusters that mount it.")
    cluster_ids: tuple[str, ...] = Field(default=(), description="The clusters that mount it.")


class ClaimMetadata(WireModel):
    name: Id
    namespace: Id
    uid: Id
    created_at: str | None = Field(default=None, alias="creationTimestamp")
    deleted_at: str | None = Field(default=None, alias="deletionTimestamp")
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class ClaimResources(WireModel):
    requests: dict[str, str] = Field(default_factory=dict)


class ClaimSpec(WireModel):
    access_modes: tuple[str, ...] = Field(default=(), alias="accessModes")
    resources: ClaimResources = ClaimResources()
    volume_name: Line | None = Field(default=None, alias="volumeName")
    storage_class_name: str | None = Field(default=None, alias="storageClassName")


class ClaimStatus(WireModel):
    phase: str = "Pending"
    capacity: dict[str, str] = Field(default_factory=dict)


class Claim(WireModel):
    metadata: ClaimMetadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


Body = dict[str, Any]


def build_cluster_create(inputs: ClusterInputs) -> Body:
    """Return the JSON for creating a cluster, with CUDA and driver version as two fields.

    Request: ``POST /compute/clusters``. The live service refuses the combined driver_version.
    """
    rules = get_field_rules(ClusterInputs)
    body = {name: value for name, value in inputs.dump_declared().items() if not rules[name].local}
    # the live service refuses driver_version alone (400)
    name = body.pop("driver_version", None)
    if name is not None:
        body["cuda_version"], body["nvidia_driver_version"] = parse_driver_version(name)
    return body


def build_cluster_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """Return the body of ``PUT /compute/clusters/{id}``: the changed fields only.

    Immutable fields are left out. A field that is no longer declared is sent with its default, an
    add-on that is no longer declared is disabled (the request has no way to remove one). An object
    is sent with everything declared in it.
    """
    declared, rules = inputs.dump_declared(), get_field_rules(ClusterInputs)
    body: Body = {}
    for change in changes:
        # The change of a nested field sends the complete field at the top.
        name = change.path.split(".")[0].split("[")[0]
        # omitted fields keep their values on the platform, so only changes are sent
        is_sent = change.action is not Action.KEEP and name in rules
        if is_sent and not rules[name].immutable:
            body[name] = declared.get(name, change.after)
    # the change of one add-on needs the settings of the others, too
    if "add_ons" in body:
        body["add_ons"] = _build_add_ons(declared.get("add_ons", []), changes)
    return body


def build_volume_create(inputs: SharedVolumeInputs) -> Body:
    """Return the JSON for creating a shared volume: the declared fields.

    Request: ``POST /compute/clusters/storage/volumes``.
    """
    return inputs.dump_declared()


def build_volume_update(volume_id: str, inputs: SharedVolumeInputs) -> Body:
    """Return the JSON for enlarging a shared volume: the volume's id and the new size.

    Request: ``PUT /compute/clusters/storage/volumes``. Only the size can change.
    """
    return {"volume_id": volume_id, "size_tib": inputs.size_tib}


def _build_add_ons(declared: list[Body], changes: Sequence[FieldChange]) -> list[Body]:
    """Return the update request's add-ons: all declared ones, and removed ones as disabled.

    The platform merges add-ons by name, so a missing one would stay as it is. Each has name and
    configuration only: the type of an add-on cannot change (SDK, ClusterUpdateParams).
    """
    # A path that goes on behind the add-on is that of a field in its configuration.
    add_on_changes = [
        change
        for change in changes
        if change.path.startswith("add_ons[") and change.path.endswith("]")
    ]
    added = [change.after["name"] for change in add_on_changes if change.action is Action.ADD]
    # a name that the request omits would stay enabled
    removed = [change.before for change in add_on_changes if change.action is Action.DELETE]
    return [
        *(_select_changeable(add_on, is_added=add_on["name"] in added) for add_on in declared),
        *(
            {"name": removed_add_on["name"], "config": _build_switch(removed_add_on, on=False)}
            for removed_add_on in removed
        ),
    ]


def _select_changeable(add_on: Body, *, is_added: bool) -> Body:
    """Return an add-on for the update request; an added one is enabled unless declared otherwise.

    The platform does not report disabled add-ons: one that is missing there may have been switched
    off.
    """
    switch = _build_switch(add_on, on=True) if is_added else {}
    config = switch | add_on.get("config", {})
    return {"name": add_on["name"], **({"config": config} if config else {})}


def _build_switch(add_on: Mapping[str, Any], *, on: bool) -> Body:
    """Return the part of an add-on's request to enable or disable the add-on."""
    return {add_on["add_on_type"]: {"enabled": on}}
