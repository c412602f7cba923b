"""TensorOne's routes (documentation, 'GPU Clusters'), under `/tensorone/v1`.

Of an update there is the method and the path alone, in the table of rate limits.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel, ConfigDict
from werkzeug.http import http_date

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.routing import (
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
    get_fault_effects,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone import operations
from gpuform.providers.emulator.tensorone.access import (
    check_permission,
    counted,
    exceeded,
    key_of,
)
from gpuform.providers.emulator.tensorone.catalogue import ApiError, Settings, invalid
from gpuform.providers.emulator.tensorone.clusters import Cluster, Estate
from gpuform.providers.emulator.tensorone.operations import Situation
from gpuform.providers.emulator.tensorone.requests import (
    CreateCluster,
    DeleteCluster,
    StartCluster,
    StopCluster,
    UpdateCluster,
    page_of,
    parse,
)
from gpuform.providers.emulator.tensorone.views import WINDOWS, View, merged, timestamp, without

Json = dict[str, Any]

_CLUSTERS = "/clusters"
_CLUSTER = f"{_CLUSTERS}/<cluster_id>"
_CACHED = "tensorone.cached"


class _Entry(BaseModel, frozen=True):
    """What the platform's own cache answers for some time, whatever has changed meanwhile."""

    at: float
    text: str


@dataclass(frozen=True)
class Cached:
    """Data, and how many seconds old it is."""

    data: Any
    age: float = 0.0
    is_hit: bool = False


def cached(store: Store, key: str, now: float, seconds: float, look: Callable[[], Any]) -> Cached:
    """What `look` gave for `key` at most `seconds` ago, else what it gives now."""
    if seconds == 0:
        return Cached(look())
    kept = store.get(_CACHED, key)
    entry = None if kept is None else _Entry.model_validate_json(kept)
    if entry is not None and now - entry.at < seconds:
        return Cached(json.loads(entry.text), now - entry.at, is_hit=True)
    data = look()
    entry = _Entry(at=now, text=json.dumps(data))
    store.put(_CACHED, key, entry.model_dump_json(), gone_at=now + seconds)
    return Cached(data)


class TensorOne(PlatformApi):
    """The platform as the app mounts it."""

    name = "tensorone"
    prefix = "/tensorone/v1"

    def create_blueprint(self) -> Blueprint:
        routes = super().create_blueprint()
        routes.after_request(self._marked)
        return routes

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", _CLUSTERS, self._create),
            ("GET", _CLUSTERS, self._list),
            ("GET", _CLUSTER, self._get),
            ("PUT", _CLUSTER, self._update),
            ("DELETE", _CLUSTER, self._delete),
            ("POST", f"{_CLUSTER}/start", self._start),
            ("POST", f"{_CLUSTER}/stop", self._stop),
        )

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """401, 429 and 403, in this order; what is refused for its key does not count."""
        now = self._clock.now()
        path = client_request.path.removeprefix(self.prefix)
        try:
            with self._store.transaction():
                name, key = key_of(client_request, Settings.load(self._store))
                budget = counted(self._store, name, key, (client_request.method, path), now)
                g.budget = budget
            if budget.remaining < 0:
                raise exceeded(budget, now)
            check_permission(client_request, key)
        except ApiError as error:
            return self._answer_refusal(error)
        return None

    def answer_error(self, status: int, message: str) -> Response:
        return self._answer_refusal(ApiError(status, message))

    def list_objects(self) -> dict[str, list[Json]]:
        with self._store.transaction():
            estate = self._load_platform().estate
            return {
                "clusters": [
                    {
                        "id": each.cluster_id,
                        "name": each.details.name,
                        "status": each.status(estate.now),
                    }
                    for each in estate.clusters()
                ],
                "snapshots": [
                    {"id": each.snapshot_id, "name": each.name, "cluster_id": each.cluster_id}
                    for each in estate.snapshots()
                ],
            }

    def _load_platform(self) -> Situation:
        estate = Estate(self._store, self._clock.now())
        return Situation(estate, Settings.load(self._store), get_fault_effects())

    def _answer_refusal(self, error: ApiError) -> Response:
        response = answer_json(
            error.body(self._request_id(), timestamp(self._clock.now())), error.status
        )
        if "retry_after" in error.details:
            response.headers["Retry-After"] = str(error.details["retry_after"])
        return response

    def _marked(self, response: Response) -> Response:
        """With what is left of the limits, and the time of the clock that they go by."""
        if "budget" in g:
            response.headers.update(g.budget.headers())
        response.headers["Date"] = http_date(self._clock.now())
        return response

    def _request_id(self) -> str:
        return f"req_{self._store.create_id().replace('-', '')[:16]}"

    def _create(self, at: Situation) -> Response:
        made = operations.create(at, parse(CreateCluster, request.get_data()))
        return self._cluster(at, made, 201)

    def _list(self, at: Situation) -> Response:
        def look() -> Json:
            page, paging = page_of(at.estate.clusters(), request.args.to_dict(), at.now)
            return {"clusters": [self._view(at, each) for each in page], "pagination": paging}

        found = self._cached(at, look)
        self._apply_status_overrides(found.data["clusters"], _CLUSTERS)
        return self._enveloped(found)

    def _get(self, at: Situation, cluster_id: str) -> Response:
        # Gone is gone, whatever the cache remembers.
        cluster = at.estate.cluster(cluster_id)
        found = self._cached(at, lambda: self._view(at, cluster))
        self._apply_status_overrides([found.data], _CLUSTERS)
        return self._enveloped(found)

    def _update(self, at: Situation, cluster_id: str) -> Response:
        body = parse(UpdateCluster, request.get_data())
        return self._cluster(at, operations.update(at, cluster_id, body))

    def _start(self, at: Situation, cluster_id: str) -> Response:
        body = parse(StartCluster, request.get_data())
        return self._cluster(at, operations.start(at, cluster_id, body))

    def _stop(self, at: Situation, cluster_id: str) -> Response:
        body = parse(StopCluster, request.get_data())
        return self._cluster(at, operations.stop(at, cluster_id, body))

    def _delete(self, at: Situation, cluster_id: str) -> Response:
        body = parse(DeleteCluster, request.get_data())
        leaving = operations.delete(at, cluster_id, body)
        return self._enveloped(Cached({"id": leaving.cluster_id, "status": "deleting"}))

    def _cluster(self, at: Situation, cluster: Cluster, status: int = 200) -> Response:
        return self._enveloped(Cached(self._view(at, cluster)), status)

    def _view(self, at: Situation, cluster: Cluster) -> Json:
        window = request.args.get("metrics_window", "1h")
        if window not in WINDOWS:
            raise invalid("metrics_window", f"must be one of {', '.join(WINDOWS)}")
        view = View(cluster, at.estate.snapshots(cluster.cluster_id), at.now)
        found = view.shown(
            window, metrics=_flag("include_metrics"), costs=_flag("include_cost_breakdown")
        )
        return reduce(without, cluster.hidden, merged(found, cluster.shown))

    def _cached(self, at: Situation, look: Callable[[], Json]) -> Cached:
        return cached(self._store, request.full_path, at.now, at.settings.cache_seconds, look)

    def _enveloped(self, found: Cached, status: int = 200) -> Response:
        meta = {
            "request_id": self._request_id(),
            "response_time_ms": 89,
            "cache_hit": found.is_hit,
            "data_freshness_seconds": int(found.age),
        }
        return answer_json({"success": True, "data": found.data, "meta": meta}, status)


def _flag(name: str) -> bool:
    text = request.args.get(name, "true")
    if text not in {"true", "false"}:
        raise invalid(name, "must be true or false")
    return text == "true"


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid")
    idle: bool | None = None
    shown: Json | None = None
    hidden: list[str] | None = None


class TensorOneControls(PlatformControls):
    settings = Settings

    def _list_routes(self) -> RouteTable:
        return (("POST", "/clusters/<cluster_id>", self._change),)

    def _change(self, cluster_id: str) -> Response:
        """From now on it has no work, or has some again; or its answers show something else,
        or leave something out."""
        body = _Change.model_validate_json(request.get_data())
        estate = Estate(self._store, self._clock.now())
        changed: Json = {}
        if body.idle is not None:
            changed["idle_since"] = estate.now if body.idle else None
        if body.shown is not None:
            changed["shown"] = body.shown
        if body.hidden is not None:
            changed["hidden"] = body.hidden
        cluster = estate.cluster(cluster_id)
        estate.keep(cluster.model_copy(update=changed))
        return answer_json({"id": cluster_id, **body.model_dump(exclude_unset=True)})


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """TensorOne's part of the emulator."""
    return EmulatorParts(
        (TensorOne(store, clock, faults),),
        {"tensorone": TensorOneControls(store, clock).create_blueprint()},
    )
