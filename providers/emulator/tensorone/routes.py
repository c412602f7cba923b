"""Serve TensorOne's API (documentation, 'GPU Clusters') under `/tensorone/v1`.

`app` mounts the routes through `create_parts`; `operations` does the work. Of an update the
documentation has the method and the path alone, in the table of rate limits.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel
from werkzeug.http import http_date

from gpuform.providers.emulator.clock import Clock, format_timestamp
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.routing import (
    EmulatorParts,
    Fleet,
    FleetNode,
    PlatformApi,
    PlatformControls,
    RouteTable,
    StoredData,
    answer_json,
    get_fault_effects,
    merge_deeply,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone import operations
from gpuform.providers.emulator.tensorone.catalogue import (
    TensorOneApiError,
    TensorOneSettings,
    make_invalid_field,
)
from gpuform.providers.emulator.tensorone.clusters import Cluster, TensorOneInventory
from gpuform.providers.emulator.tensorone.operations import TensorOneRequestContext
from gpuform.providers.emulator.tensorone.requests import (
    CreateCluster,
    DeleteCluster,
    StartCluster,
    StopCluster,
    UpdateCluster,
    check_permission,
    count_request,
    make_rate_limit_error,
    parse_body,
    require_key,
    select_page,
)
from gpuform.providers.emulator.tensorone.views import (
    WINDOWS,
    ClusterView,
    remove_member,
)

Json = dict[str, Any]

_CLUSTERS = "/clusters"
_CLUSTER = f"{_CLUSTERS}/<cluster_id>"
_CACHE_KIND = "tensorone.cached"


class _CacheEntry(BaseModel, frozen=True):
    """An entry of the platform's own cache, which is answered whatever has changed meanwhile."""

    at: float
    text: str


@dataclass(frozen=True)
class CachedData:
    """Data for an answer, and how many seconds ago they were computed."""

    data: Any
    age: float = 0.0
    is_hit: bool = False


def get_cached(
    store: Store, key: str, now: float, seconds: float, compute: Callable[[], Any]
) -> CachedData:
    """Return the cached data of `key` if younger than `seconds`, else compute and cache data.

    With 0 seconds nothing is cached.
    """
    # No cache: nothing is stored, as long as no test wants one.
    if seconds == 0:
        return CachedData(compute())
    stored_entry = store.get(_CACHE_KIND, key)
    entry = None if stored_entry is None else _CacheEntry.model_validate_json(stored_entry)
    if entry is not None and now - entry.at < seconds:
        return CachedData(json.loads(entry.text), now - entry.at, is_hit=True)
    data = compute()
    entry = _CacheEntry(at=now, text=json.dumps(data))
    store.put(_CACHE_KIND, key, entry.model_dump_json(), gone_at=now + seconds)
    return CachedData(data)


class TensorOneApi(PlatformApi):
    """TensorOne's API, as `app` mounts it."""

    name = "tensorone"
    prefix = "/tensorone/v1"

    def create_blueprint(self) -> Blueprint:
        """Return the platform's routes, whose answers get the rate limit's headers and a `Date`."""
        routes = super().create_blueprint()
        routes.after_request(self._add_headers)
        return routes

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", _CLUSTERS, self._create_cluster),
            ("GET", _CLUSTERS, self._list_clusters),
            ("GET", _CLUSTER, self._get_cluster),
            ("PUT", _CLUSTER, self._update_cluster),
            ("DELETE", _CLUSTER, self._delete_cluster),
            ("POST", f"{_CLUSTER}/start", self._start_cluster),
            ("POST", f"{_CLUSTER}/stop", self._stop_cluster),
        )

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """Return the 401, 429 or 403, in this order, for a client without the right, else None.

        Counts the request, unless its key is unknown or its budget used up, and stores the budget
        in `g`.
        """
        now = self._clock.now()
        path = client_request.path.removeprefix(self.prefix)
        try:
            with self._store.transaction():
                name, key = require_key(client_request, TensorOneSettings.load(self._store))
                budget = count_request(self._store, name, key, (client_request.method, path), now)
                # Kept for the headers, which an answer of 429 has as well.
                g.budget = budget
            # Outside of the transaction, which an exception would undo, and the count with it.
            if budget.remaining < 0:
                raise make_rate_limit_error(budget, now)
            check_permission(client_request, key)
        except TensorOneApiError as error:
            return self._answer_refusal(error)
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in TensorOne's form, flat with code and request id."""
        return self._answer_refusal(TensorOneApiError(status, message))

    def list_objects(self) -> dict[str, list[Json]]:
        """Return the clusters, and the snapshots with their cluster's id."""
        with self._store.transaction():
            inventory = self._load_platform().inventory
            return {
                "clusters": [
                    {
                        "id": cluster.cluster_id,
                        "name": cluster.details.name,
                        "status": cluster.get_status(inventory.now),
                    }
                    for cluster in inventory.list_clusters()
                ],
                "snapshots": [
                    {
                        "id": snapshot.snapshot_id,
                        "name": snapshot.name,
                        "cluster_id": snapshot.cluster_id,
                    }
                    for snapshot in inventory.list_snapshots()
                ],
            }

    def describe_fleet(self) -> Fleet:
        """Return each cluster as one machine and as storage, and the snapshots.

        A cluster's own storage ends with the cluster.
        """
        with self._store.transaction():
            inventory = self._load_platform().inventory
            now = inventory.now
            clusters = [
                cluster
                for cluster in inventory.list_clusters()
                if cluster.get_status(now) != "deleting"
            ]
            return Fleet(
                [
                    FleetNode(
                        cluster.details.name,
                        cluster.details.name,
                        cluster.spec.gpu_count,
                        works=cluster.get_status(now) == "running",
                        is_billed=cluster.get_status(now) in ("starting", "running"),
                    )
                    for cluster in clusters
                ],
                [
                    StoredData(
                        cluster.cluster_id,
                        f"storage of cluster {cluster.details.name}, {cluster.spec.storage_gb} GB",
                    )
                    for cluster in clusters
                ]
                + [
                    StoredData(
                        snapshot.snapshot_id, f"snapshot {snapshot.name}, {snapshot.size_gb} GB"
                    )
                    for snapshot in inventory.list_snapshots()
                ],
            )

    def _load_platform(self) -> TensorOneRequestContext:
        """Return the objects at the clock's present time, the settings and the fault's effects."""
        inventory = TensorOneInventory(self._store, self._clock.now())
        return TensorOneRequestContext(
            inventory, TensorOneSettings.load(self._store), get_fault_effects()
        )

    def _answer_refusal(self, error: TensorOneApiError) -> Response:
        """Return the answer for `error`, with Retry-After where the error has a time to wait."""
        response = answer_json(
            error.build_body(self._create_request_id(), format_timestamp(self._clock.now())),
            error.status,
        )
        if "retry_after" in error.details:
            response.headers["Retry-After"] = str(error.details["retry_after"])
        return response

    def _add_headers(self, response: Response) -> Response:
        """Set the headers of the rate limit and the clock's time, and return `response`."""
        if "budget" in g:
            response.headers.update(g.budget.build_headers())
        response.headers["Date"] = http_date(self._clock.now())
        return response

    def _create_request_id(self) -> str:
        """Return a new request id, `req_` and 16 hex digits, computed from the store's seed."""
        return f"req_{self._store.create_id().replace('-', '')[:16]}"

    def _create_cluster(self, context: TensorOneRequestContext) -> Response:
        """Create the cluster in the body, and answer 201 with the cluster."""
        cluster = operations.create_cluster(context, parse_body(CreateCluster, request.get_data()))
        return self._answer_cluster(context, cluster, 201)

    def _list_clusters(self, context: TensorOneRequestContext) -> Response:
        """Answer with the query's clusters, from the cache if enabled, with faults' statuses."""

        def compute_page() -> Json:
            page, paging = select_page(
                context.inventory.list_clusters(), request.args.to_dict(), context.now
            )
            return {
                "clusters": [self._cluster_to_json(context, cluster) for cluster in page],
                "pagination": paging,
            }

        cached_page = self._get_cached(context, compute_page)
        self._apply_status_overrides(cached_page.data["clusters"], _CLUSTERS)
        return self._answer_enveloped(cached_page)

    def _get_cluster(self, context: TensorOneRequestContext, cluster_id: str) -> Response:
        """Answer with a cluster, from the cache if enabled, with an injected fault's status.

        Raises `Refusal` 404, also for a removed cluster in the cache.
        """
        # Raises 404 for a removed cluster, which the cache may still have.
        cluster = context.inventory.get_cluster(cluster_id)
        cached_cluster = self._get_cached(context, lambda: self._cluster_to_json(context, cluster))
        self._apply_status_overrides([cached_cluster.data], _CLUSTERS)
        return self._answer_enveloped(cached_cluster)

    def _update_cluster(self, context: TensorOneRequestContext, cluster_id: str) -> Response:
        """Replace details of a cluster by the body's, and answer with the cluster."""
        body = parse_body(UpdateCluster, request.get_data())
        return self._answer_cluster(context, operations.update_cluster(context, cluster_id, body))

    def _start_cluster(self, context: TensorOneRequestContext, cluster_id: str) -> Response:
        """Begin to start a cluster, with the body's changes, and answer with the cluster."""
        body = parse_body(StartCluster, request.get_data())
        return self._answer_cluster(context, operations.start_cluster(context, cluster_id, body))

    def _stop_cluster(self, context: TensorOneRequestContext, cluster_id: str) -> Response:
        """Begin to stop a cluster as the body says, and answer with the cluster."""
        body = parse_body(StopCluster, request.get_data())
        return self._answer_cluster(context, operations.stop_cluster(context, cluster_id, body))

    def _delete_cluster(self, context: TensorOneRequestContext, cluster_id: str) -> Response:
        """Begin to delete a cluster as the body says, and answer with id and status `deleting`."""
        body = parse_body(DeleteCluster, request.get_data())
        deleted = operations.delete_cluster(context, cluster_id, body)
        return self._answer_enveloped(CachedData({"id": deleted.cluster_id, "status": "deleting"}))

    def _answer_cluster(
        self, context: TensorOneRequestContext, cluster: Cluster, status: int = 200
    ) -> Response:
        """Answer with the cluster in the document's envelope, as data computed just now."""
        return self._answer_enveloped(CachedData(self._cluster_to_json(context, cluster)), status)

    def _cluster_to_json(self, context: TensorOneRequestContext, cluster: Cluster) -> Json:
        """Return the cluster as JSON, with members replaced or hidden by tests.

        The query decides about metrics and costs. Raises `Refusal` 400 for a bad parameter.
        """
        window = request.args.get("metrics_window", "1h")
        if window not in WINDOWS:
            raise make_invalid_field("metrics_window", f"must be one of {', '.join(WINDOWS)}")
        view = ClusterView(
            cluster, context.inventory.list_snapshots(cluster.cluster_id), context.now
        )
        true_content = view.to_json(
            window,
            metrics=_parse_flag("include_metrics"),
            costs=_parse_flag("include_cost_breakdown"),
        )
        return reduce(remove_member, cluster.hidden, merge_deeply(true_content, cluster.shown))

    def _get_cached(
        self, context: TensorOneRequestContext, compute: Callable[[], Json]
    ) -> CachedData:
        """Return data for the present request's address, from the cache if enabled."""
        return get_cached(
            self._store, request.full_path, context.now, context.settings.cache_seconds, compute
        )

    def _answer_enveloped(self, cached_data: CachedData, status: int = 200) -> Response:
        """Answer with the data in the document's envelope, with the data's age in the cache."""
        meta = {
            "request_id": self._create_request_id(),
            "response_time_ms": 89,
            "cache_hit": cached_data.is_hit,
            "data_freshness_seconds": int(cached_data.age),
        }
        return answer_json({"success": True, "data": cached_data.data, "meta": meta}, status)


def _parse_flag(name: str) -> bool:
    """Return a parameter of the query as a flag, True if missing. Raises `Refusal` 400."""
    argument = request.args.get(name, "true")
    if argument not in {"true", "false"}:
        raise make_invalid_field(name, "must be true or false")
    return argument == "true"


class _ChangeBody(BaseModel, extra="forbid"):
    """What a test changes of a cluster: work, replaced members, hidden members."""

    idle: bool | None = None
    shown: Json | None = None
    hidden: list[str] | None = None


class TensorOneControls(PlatformControls):
    """What tests do to TensorOne past its API: settings, idle clusters, changed answers."""

    settings = TensorOneSettings

    def _list_routes(self) -> RouteTable:
        return (("POST", "/clusters/<cluster_id>", self._change_cluster),)

    def _change_cluster(self, cluster_id: str) -> Response:
        """Make a cluster idle or busy from now on, or replace and hide members of its answers.

        Answers the id and the changes. Raises `Refusal` 404.
        """
        body = _ChangeBody.model_validate_json(request.get_data())
        inventory = TensorOneInventory(self._store, self._clock.now())
        changes: Json = {}
        if body.idle is not None:
            changes["idle_since"] = inventory.now if body.idle else None
        if body.shown is not None:
            changes["shown"] = body.shown
        if body.hidden is not None:
            changes["hidden"] = body.hidden
        cluster = inventory.get_cluster(cluster_id)
        inventory.save_cluster(cluster.model_copy(update=changes))
        return answer_json({"id": cluster_id, **body.model_dump(exclude_unset=True)})


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return TensorOne's part of the emulator: the API, and the test controls under `tensorone`."""
    return EmulatorParts(
        (TensorOneApi(store, clock, faults),),
        {"tensorone": TensorOneControls(store, clock).create_blueprint()},
    )
