"""The bodies that TensorOne's clients send (documentation, 'GPU Clusters')."""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuform.providers.emulator.tensorone.catalogue import SMALLEST_STORAGE_GB
from gpuform.providers.emulator.tensorone.errors import invalid

_Body = TypeVar("_Body", bound=BaseModel)

_Port = Annotated[int, Field(ge=1, le=65535)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{3,64}$")]


class Body(BaseModel):
    """Strict and closed, so that a client's slip shows: no `"8"` or `8.0` for 8, no extra key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NewPortMapping(Body):
    internal_port: _Port
    external_port: _Port | None = None
    protocol: Literal["tcp", "udp"] = "tcp"
    description: str = ""


class AutoTerminate(Body):
    enabled: bool | None = None
    idle_minutes: Annotated[int, Field(ge=1)] | None = None
    max_runtime_hours: Annotated[int, Field(ge=1)] | None = None
    cost_limit_usd: Annotated[float, Field(gt=0)] | None = None


class CreateCluster(Body):
    name: _Name
    gpu_type: str
    gpu_count: int = Field(ge=1)
    storage_gb: int = Field(ge=SMALLEST_STORAGE_GB)
    region: str
    project_id: str = Field(min_length=1)
    description: str = ""
    cpu_cores: int | None = Field(default=None, ge=1)
    memory_gb: int | None = Field(default=None, ge=1)
    template_id: str | None = None
    docker_image: str | None = None
    environment_variables: dict[str, str] = {}
    ssh_enabled: bool = True
    ssh_public_keys: list[str] = []
    port_mappings: list[NewPortMapping] = []
    auto_start: bool = True
    auto_terminate: AutoTerminate = AutoTerminate()
    security_groups: list[str] = []
    tags: dict[str, str] = {}


class UpdateCluster(Body):
    """No page documents it: what is given replaces what there was, the rest stays."""

    name: _Name | None = None
    description: str | None = None
    environment_variables: dict[str, str] | None = None
    port_mappings: list[NewPortMapping] | None = None
    security_groups: list[str] | None = None
    auto_terminate: AutoTerminate | None = None
    tags: dict[str, str] | None = None


class Configuration(Body):
    cpu_cores: int | None = Field(default=None, ge=1)
    memory_gb: int | None = Field(default=None, ge=1)
    storage_gb: int | None = Field(default=None, ge=1)
    docker_image: str | None = Field(default=None, min_length=1)
    gpu_count: int | None = Field(default=None, ge=1)


class StartCluster(Body):
    """Waiting for the end is accepted and has no effect: the answer comes at once."""

    wait_for_ready: bool = False
    timeout_minutes: int = Field(default=10, ge=1, le=30)
    update_configuration: Configuration = Configuration()
    restore_from_snapshot: str | None = None
    environment_updates: dict[str, str] = {}
    port_mapping_updates: list[NewPortMapping] | None = None
    auto_terminate_updates: AutoTerminate | None = None


class StopCluster(Body):
    force: bool = False
    grace_period_minutes: int = Field(default=5, ge=0, le=30)
    save_state: bool = False
    snapshot_name: str | None = None
    preserve_data: bool = True
    wait_for_completion: bool = False
    timeout_minutes: int = Field(default=10, ge=1, le=60)
    stop_reason: str = ""
    notify_users: list[str] = []


class DeleteCluster(Body):
    confirm_deletion: str | None = None
    force: bool = False
    create_final_snapshot: bool = False
    snapshot_name: str | None = None
    preserve_snapshots: bool = True
    delete_snapshots: bool = False
    finalize_billing: bool = True
    cleanup_network_resources: bool = True
    wait_for_completion: bool = False
    timeout_minutes: int = Field(default=10, ge=1, le=30)
    deletion_reason: str = ""


def parse(model: type[_Body], data: bytes) -> _Body:
    """The request body as `model`; no body is an empty one. Raises `ApiError` 400."""
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    raise invalid(".".join(map(str, first["loc"])) or "body", first["msg"])
