"""Emulate Nimbus's API: the other side of the wire, with nothing of the client in it."""

import json
from typing import Any

from flask import Blueprint, Request, Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.routing import EmulatorParts, answer_json
from gpuform.providers.emulator.store import Store

KIND = "nimbus-cluster"
BUILDING_SECONDS, DELETING_SECONDS = 300.0, 60.0


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return Nimbus's part of the emulator (`gpuform.providers.platform.Platform.emulator`)."""
    nimbus = NimbusApi(store, clock, faults)
    controls = Blueprint("nimbus-controls", __name__)
    controls.delete("/clusters/<id_>")(nimbus.remove)
    return EmulatorParts((nimbus,), {"nimbus": controls})


class NimbusApi:
    """Nimbus's API, as the emulator mounts it."""

    name = "nimbus"
    prefix = "/nimbus"

    def __init__(self, store: Store, clock: Clock, faults: Faults) -> None:
        self._store, self._clock, self._faults = store, clock, faults

    def create_blueprint(self) -> Blueprint:
        routes = Blueprint(self.name, __name__)
        routes.post("/clusters")(self.create)
        routes.get("/clusters")(self.list)
        routes.get("/clusters/<id_>")(self.get)
        routes.put("/clusters/<id_>")(self.update)
        routes.delete("/clusters/<id_>")(self.delete)
        return routes

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        if client_request.headers.get("Authorization") != "Bearer emulator-nimbus-key":
            return self.answer_error(401, "the key is not known")
        return None

    def answer_error(self, status: int, message: str) -> Response:
        return answer_json({"code": f"status_{status}", "message": message}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        clusters = [self._to_json(cluster) for cluster in self._list_clusters()]
        return {"clusters": [{k: c[k] for k in ("id", "name", "status")} for c in clusters]}

    def create(self) -> Response:
        cluster = {**json.loads(request.get_data()), "id": self._store.create_id()}
        self._save({**cluster, "runs_at": self._clock.now() + BUILDING_SECONDS})
        return answer_json(self._to_json(self._find_cluster(cluster["id"]) or {}), 201)

    def list(self) -> Response:
        clusters = [self._to_json(cluster) for cluster in self._list_clusters()]
        return answer_json({"clusters": self._override_statuses(clusters)})

    def get(self, id_: str) -> Response:
        cluster = self._find_cluster(id_)
        if cluster is None:
            return self._answer_not_found()
        return answer_json(self._override_statuses([self._to_json(cluster)])[0])

    def update(self, id_: str) -> Response:
        cluster = self._find_cluster(id_)
        if cluster is None:
            return self._answer_not_found()
        self._save({**cluster, **json.loads(request.get_data())})
        return self.get(id_)

    def delete(self, id_: str) -> Response:
        cluster = self._find_cluster(id_)
        if cluster is None:
            return self._answer_not_found()
        deleted = {**cluster, "is_leaving": True}
        gone_at = self._clock.now() + DELETING_SECONDS
        self._store.put(KIND, id_, json.dumps(deleted), gone_at=gone_at)
        return answer_json(self._to_json(deleted))

    def remove(self, id_: str) -> Response:
        """Remove a cluster at once, without a trace: a control for tests."""
        self._store.remove(KIND, id_)
        return answer_json({})

    def _save(self, cluster: dict[str, Any]) -> None:
        self._store.put(KIND, cluster["id"], json.dumps(cluster))

    def _list_clusters(self) -> Any:
        self._store.remove_expired(self._clock.now())
        return map(json.loads, self._store.list_all(KIND))

    def _find_cluster(self, id_: str) -> dict[str, Any] | None:
        return next((c for c in self._list_clusters() if c["id"] == id_), None)

    def _to_json(self, cluster: dict[str, Any]) -> dict[str, Any]:
        is_built = self._clock.now() >= cluster["runs_at"]
        status = "deleting" if "is_leaving" in cluster else "running" if is_built else "building"
        return {k: v for k, v in cluster.items() if k not in ("runs_at", "is_leaving")} | {
            "status": status
        }

    def _override_statuses(self, clusters: Any) -> Any:
        """Return the clusters with the statuses of injected faults."""
        by_path = {f"/clusters/{cluster['id']}": cluster for cluster in clusters}
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, list(by_path))
        for cluster_path, rule in overrides.items():
            by_path[cluster_path]["status"] = rule.status_override
        return clusters

    def _answer_not_found(self) -> Response:
        return answer_json({"code": "no_such_cluster", "message": "there is no such cluster"}, 404)
