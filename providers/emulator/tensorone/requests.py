"""Check keys, limit requests, parse the bodies of TensorOne's clients, and select a list's page.

`routes` calls this module. Source: the documentation, 'GPU Clusters', 'List Clusters' and 'Rate
Limits'. Windows of a rate limit are whole hours of the emulator's clock. How the limits of
endpoints go with those of tiers is not documented: here both hold, the endpoints' five times as
high for pro and fifty times for enterprise, as 'Increasing Rate Limits' says. The headers of an
answer show the limit that is closer.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from flask import Request
from pydantic import BaseModel, Field, ValidationError

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.catalogue import (
    SMALLEST_STORAGE_GB,
    ApiKey,
    TensorOneApiError,
    TensorOneSettings,
    make_invalid_field,
)
from gpuform.providers.emulator.tensorone.clusters import Cluster

_Body = TypeVar("_Body", bound=BaseModel)

_Port = Annotated[int, Field(ge=1, le=65535)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{3,64}$")]


class Body(BaseModel, extra="forbid", strict=True, frozen=True):
    """A strict and closed body, so that a client's slip shows: no `"8"` for 8, no extra key."""


class NewPortMapping(Body):
    """A port mapping; without an external port the platform chooses one."""

    internal_port: _Port
    external_port: _Port | None = None
    protocol: Literal["tcp", "udp"] = "tcp"
    description: str = ""


class AutoTerminate(Body):
    """Limits of a cluster; missing ones stay as they are."""

    enabled: bool | None = None
    idle_minutes: Annotated[int, Field(ge=1)] | None = None
    max_runtime_hours: Annotated[int, Field(ge=1)] | None = None
    cost_limit_usd: Annotated[float, Field(gt=0)] | None = None


class CreateCluster(Body):
    """The body of a create."""

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
    """The body of an update: present fields replace the old ones (ours: no page documents it)."""

    name: _Name | None = None
    description: str | None = None
    environment_variables: dict[str, str] | None = None
    port_mappings: list[NewPortMapping] | None = None
    security_groups: list[str] | None = None
    auto_terminate: AutoTerminate | None = None
    tags: dict[str, str] | None = None


class Configuration(Body):
    """New hardware or a new image at a start; missing fields stay."""

    cpu_cores: int | None = Field(default=None, ge=1)
    memory_gb: int | None = Field(default=None, ge=1)
    storage_gb: int | None = Field(default=None, ge=1)
    docker_image: str | None = Field(default=None, min_length=1)
    gpu_count: int | None = Field(default=None, ge=1)


class StartCluster(Body):
    """The body of a start. Waiting is accepted and has no effect: the answer comes at once."""

    wait_for_ready: bool = False
    timeout_minutes: int = Field(default=10, ge=1, le=30)
    update_configuration: Configuration = Configuration()
    restore_from_snapshot: str | None = None
    environment_updates: dict[str, str] = {}
    port_mapping_updates: list[NewPortMapping] | None = None
    auto_terminate_updates: AutoTerminate | None = None


class StopCluster(Body):
    """The body of a stop. Most fields are accepted without an effect."""

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
    """The body of a delete; `confirm_deletion` has to be "DELETE"."""

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


def parse_body(model: type[_Body], data: bytes) -> _Body:
    """Return the request body as `model`; no body is an empty one.

    Raises `Refusal` 400 with the first problem, such as an unknown member or another type.
    """
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        # One problem for an answer, as in the documentation; without the input, which may be
        # secret.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    raise make_invalid_field(".".join(map(str, first["loc"])) or "body", first["msg"])


_LARGEST_PAGE = 100
_Value = Callable[[Cluster, float], Any]

_FILTERS: Mapping[str, _Value] = {
    "status": lambda cluster, now: cluster.get_status(now),
    "gpu_type": lambda cluster, _: cluster.spec.gpu_type,
    "region": lambda cluster, _: cluster.spec.region,
    "project_id": lambda cluster, _: cluster.project_id,
    "template_id": lambda cluster, _: cluster.template_id,
}
_SORTS: Mapping[str, _Value] = {
    "created_at": lambda cluster, _: (cluster.created_at, cluster.number),
    "name": lambda cluster, _: cluster.details.name,
    "status": lambda cluster, now: cluster.get_status(now),
    "gpu_count": lambda cluster, _: cluster.spec.gpu_count,
    "cost": lambda cluster, _: cluster.spec.hourly,
}
_BOUNDS: Mapping[str, Callable[[Cluster, str], bool]] = {
    "min_gpu_count": lambda cluster, argument: (
        cluster.spec.gpu_count >= _parse_number("min_gpu_count", argument)
    ),
    "max_gpu_count": lambda cluster, argument: (
        cluster.spec.gpu_count <= _parse_number("max_gpu_count", argument)
    ),
    "created_after": lambda cluster, argument: (
        cluster.created_at > _parse_time("created_after", argument)
    ),
    "created_before": lambda cluster, argument: (
        cluster.created_at < _parse_time("created_before", argument)
    ),
    "search": lambda cluster, argument: (
        argument.casefold() in f"{cluster.details.name}\n{cluster.details.description}".casefold()
    ),
}


def select_page(
    clusters: list[Cluster], query: Mapping[str, str], now: float
) -> tuple[list[Cluster], dict[str, int]]:
    """Return the clusters of the query's page, and the page's numbers for the answer.

    The query has filters, order, page number and page size; the default is the newest 20. A page
    beyond the last is empty. Raises `Refusal` 400 for a malformed parameter (for a bound only when
    a cluster is compared with it); unknown parameters are ignored.
    """
    matches = [cluster for cluster in clusters if _matches_query(cluster, query, now)]
    sort_field = query.get("sort_by", "created_at")
    if sort_field not in _SORTS:
        raise make_invalid_field("sort_by", f"must be one of {', '.join(_SORTS)}")
    order = query.get("sort_order", "desc")
    if order not in {"asc", "desc"}:
        raise make_invalid_field("sort_order", "must be asc or desc")
    matches.sort(key=lambda cluster: _SORTS[sort_field](cluster, now), reverse=order == "desc")
    page, limit = (
        _parse_number("page", query.get("page", "1")),
        _parse_number("limit", query.get("limit", "20")),
    )
    if page < 1:
        raise make_invalid_field("page", "must be at least 1")
    if not 1 <= limit <= _LARGEST_PAGE:
        raise make_invalid_field("limit", f"must be 1 to {_LARGEST_PAGE}")
    paging = {
        "page": page,
        "limit": limit,
        "total": len(matches),
        # An empty list has one page.
        "total_pages": max(1, -(-len(matches) // limit)),
    }
    return matches[(page - 1) * limit : page * limit], paging


def _matches_query(cluster: Cluster, query: Mapping[str, str], now: float) -> bool:
    """Return whether a cluster matches all filters, bounds and the search of a list request.

    Raises `Refusal` 400 for a malformed bound.
    """
    has_equal_values = all(
        query[name] == value(cluster, now) for name, value in _FILTERS.items() if name in query
    )
    return has_equal_values and all(
        is_within(cluster, query[name]) for name, is_within in _BOUNDS.items() if name in query
    )


def _parse_number(name: str, argument: str) -> int:
    """Return a parameter as a number. Raises `Refusal` 400 naming the parameter."""
    try:
        return int(argument)
    except ValueError:
        raise make_invalid_field(name, "must be a whole number") from None


def _parse_time(name: str, argument: str) -> float:
    """Return a date of ISO 8601 in unix seconds.

    Raises `Refusal` 400 naming the parameter.
    """
    try:
        return datetime.fromisoformat(argument).timestamp()
    except ValueError:
        raise make_invalid_field(name, "must be a date of ISO 8601") from None


WINDOW_SECONDS = 3600
_KIND = "tensorone.window"
_TIERS = {
    "free": {"read": 100, "write": 20},
    "pro": {"read": 1000, "write": 200},
    "enterprise": {"read": 10_000, "write": 2000},
}
# How many times as high the endpoints' limits are as the documented ones ('Increasing Rate
# Limits').
_FACTORS = {"free": 1, "pro": 5, "enterprise": 50}
_ENDPOINTS = (
    ("GET", "/clusters", 1000),
    ("POST", "/clusters$", 20),
    ("PUT", "/clusters", 100),
    ("DELETE", "/clusters", 20),
)


class _WindowUsage(BaseModel, frozen=True):
    """How many requests of a window were made, by limit."""

    window: int
    counts: dict[str, int] = {}


@dataclass(frozen=True)
class Budget:
    """What remains of a limit in a window that ends at `reset`, in unix seconds."""

    limit: int
    remaining: int
    reset: int

    def build_headers(self) -> dict[str, str]:
        """Return the documented headers of the rate limit."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.remaining)),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Window": str(WINDOW_SECONDS),
        }


def require_key(client_request: Request, settings: TensorOneSettings) -> tuple[str, ApiKey]:
    """Return the text of a request's key, and the key with tier and rights.

    Raises `Refusal` 401 without a known key.
    """
    scheme, _, token = client_request.headers.get("Authorization", "").partition(" ")
    key = settings.keys.get(token)
    if scheme.lower() != "bearer" or key is None:
        raise TensorOneApiError(401, "Invalid or missing API key")
    return token, key


def check_permission(client_request: Request, key: ApiKey) -> None:
    """Raise `Refusal` 403 for a write with a read-only key."""
    if client_request.method != "GET" and not key.may_write:
        raise TensorOneApiError(
            403,
            "Insufficient permissions",
            required_permission="clusters:write",
            current_permissions=["clusters:read"],
        )


def count_request(
    store: Store, name: str, key: ApiKey, endpoint: tuple[str, str], now: float
) -> Budget:
    """Count one more request of a key, and return the budget of the closest of its limits.

    A request beyond a limit is not counted, and has a budget with `remaining` below 0. Call this
    function within a transaction.

    Args:
        store: keeps the counts.
        name: the key's text.
        key: decides the limits.
        endpoint: method and path of the request.
        now: unix seconds.
    """
    window = int(now // WINDOW_SECONDS)
    usage = _load_usage(store, name, window)
    limits = _list_limits(key, *endpoint)
    remaining = {
        limit_name: limit - usage.counts.get(limit_name, 0) - 1
        for limit_name, limit in limits.items()
    }
    closest = min(remaining, key=lambda limit_name: remaining[limit_name])
    budget = Budget(limits[closest], remaining[closest], (window + 1) * WINDOW_SECONDS)
    # A refused request does not count, so that a client that waits for the window gets through.
    if budget.remaining >= 0:
        counts = usage.counts | {
            limit_name: usage.counts.get(limit_name, 0) + 1 for limit_name in limits
        }
        store.put(_KIND, name, _WindowUsage(window=window, counts=counts).model_dump_json())
    return budget


def make_rate_limit_error(budget: Budget, now: float) -> TensorOneApiError:
    """Return the 429 of an exhausted budget, with the seconds from `now` until the window ends."""
    wait_seconds = math.ceil(budget.reset - now)
    return TensorOneApiError(
        429,
        "API rate limit exceeded",
        limit=budget.limit,
        remaining=0,
        reset_at=format_timestamp(budget.reset),
        retry_after=wait_seconds,
    )


def _load_usage(store: Store, name: str, window: int) -> _WindowUsage:
    """Return the stored usage of a key in `window`; an empty one for a new window."""
    stored_usage = store.get(_KIND, name)
    usage = (
        _WindowUsage(window=window)
        if stored_usage is None
        else _WindowUsage.model_validate_json(stored_usage)
    )
    # Counts of an old window are void; nobody removes them, the next request replaces them.
    return usage if usage.window == window else _WindowUsage(window=window)


def _list_limits(key: ApiKey, method: str, path: str) -> dict[str, int]:
    """Return the limits that hold for a request, by name: the tier's, and those of its endpoint."""
    kind = "read" if method == "GET" else "write"
    limits = {kind: _TIERS[key.tier][kind]}
    for limited_method, pattern, limit in _ENDPOINTS:
        if limited_method == method and re.match(pattern, path):
            limits[f"{limited_method} {pattern}"] = limit * _FACTORS[key.tier]
    return limits
