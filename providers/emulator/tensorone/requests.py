"""Parse the bodies that TensorOne's clients send (documentation, 'GPU Clusters') and choose the
page of a list ('List Clusters').
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuform.providers.emulator.tensorone.catalogue import SMALLEST_STORAGE_GB, invalid
from gpuform.providers.emulator.tensorone.clusters import Cluster

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


_LARGEST_PAGE = 100
_Value = Callable[[Cluster, float], Any]

_FILTERS: Mapping[str, _Value] = {
    "status": lambda each, now: each.status(now),
    "gpu_type": lambda each, _: each.spec.gpu_type,
    "region": lambda each, _: each.spec.region,
    "project_id": lambda each, _: each.project_id,
    "template_id": lambda each, _: each.template_id,
}
_SORTS: Mapping[str, _Value] = {
    "created_at": lambda each, _: (each.created_at, each.number),
    "name": lambda each, _: each.details.name,
    "status": lambda each, now: each.status(now),
    "gpu_count": lambda each, _: each.spec.gpu_count,
    "cost": lambda each, _: each.spec.hourly,
}
_BOUNDS: Mapping[str, Callable[[Cluster, str], bool]] = {
    "min_gpu_count": lambda each, text: each.spec.gpu_count >= _number("min_gpu_count", text),
    "max_gpu_count": lambda each, text: each.spec.gpu_count <= _number("max_gpu_count", text),
    "created_after": lambda each, text: each.created_at > _moment("created_after", text),
    "created_before": lambda each, text: each.created_at < _moment("created_before", text),
    "search": lambda each, text: (
        text.casefold() in f"{each.details.name}\n{each.details.description}".casefold()
    ),
}


def page_of(
    clusters: list[Cluster], query: Mapping[str, str], now: float
) -> tuple[list[Cluster], dict[str, int]]:
    """The clusters of the page asked for, and what is told of paging. Raises `ApiError` 400."""
    found = [each for each in clusters if _is_meant(each, query, now)]
    by = query.get("sort_by", "created_at")
    if by not in _SORTS:
        raise invalid("sort_by", f"must be one of {', '.join(_SORTS)}")
    order = query.get("sort_order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid("sort_order", "must be asc or desc")
    found.sort(key=lambda each: _SORTS[by](each, now), reverse=order == "desc")
    page, limit = (
        _number("page", query.get("page", "1")),
        _number("limit", query.get("limit", "20")),
    )
    if page < 1:
        raise invalid("page", "must be at least 1")
    if not 1 <= limit <= _LARGEST_PAGE:
        raise invalid("limit", f"must be 1 to {_LARGEST_PAGE}")
    paging = {
        "page": page,
        "limit": limit,
        "total": len(found),
        "total_pages": max(1, -(-len(found) // limit)),
    }
    return found[(page - 1) * limit : page * limit], paging


def _is_meant(cluster: Cluster, query: Mapping[str, str], now: float) -> bool:
    exact = all(
        query[name] == value(cluster, now) for name, value in _FILTERS.items() if name in query
    )
    return exact and all(
        fits(cluster, query[name]) for name, fits in _BOUNDS.items() if name in query
    )


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise invalid(name, "must be a whole number") from None


def _moment(name: str, text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise invalid(name, "must be a date of ISO 8601") from None
