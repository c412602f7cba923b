"""Nimbus's part of the emulator: the other side of the wire, with nothing of the client in it."""

import json
from typing import Any

from flask import Blueprint, Request, Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.routing import answer_json
from gpuform.providers.emulator.store import Store

KIND = "nimbus-cluster"
BUILDING, DELETING = 300.0, 60.0
"""Seconds that both take."""


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """What `gpuform.providers.platform.Platform.emulator` names."""
    nimbus = Nimbus(store, clock, faults)
    controls = Blueprint("nimbus-controls", __name__)
    controls.delete("/clusters/<id_>")(nimbus.vanish)
    return EmulatorParts((nimbus,), {"nimbus": controls})


class Nimbus:
    """The platform as the app mounts it."""

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
        found = [self._shown(each) for each in self._all()]
        return {"clusters": [{k: each[k] for k in ("id", "name", "status")} for each in found]}

    def create(self) -> Response:
        cluster = {**json.loads(request.get_data()), "id": self._store.create_id()}
        self._keep({**cluster, "runs_at": self._clock.now() + BUILDING})
        return answer_json(self._shown(self._get(cluster["id"]) or {}), 201)

    def list(self) -> Response:
        return answer_json(
            {"clusters": self._overridden([self._shown(each) for each in self._all()])}
        )

    def get(self, id_: str) -> Response:
        cluster = self._get(id_)
        if cluster is None:
            return self._gone()
        return answer_json(self._overridden([self._shown(cluster)])[0])

    def update(self, id_: str) -> Response:
        cluster = self._get(id_)
        if cluster is None:
            return self._gone()
        self._keep({**cluster, **json.loads(request.get_data())})
        return self.get(id_)

    def delete(self, id_: str) -> Response:
        cluster = self._get(id_)
        if cluster is None:
            return self._gone()
        leaving = {**cluster, "is_leaving": True}
        self._store.put(KIND, id_, json.dumps(leaving), gone_at=self._clock.now() + DELETING)
        return answer_json(self._shown(leaving))

    def vanish(self, id_: str) -> Response:
        """A control: the cluster is gone at once, without a trace."""
        self._store.remove(KIND, id_)
        return answer_json({})

    def _keep(self, cluster: dict[str, Any]) -> None:
        self._store.put(KIND, cluster["id"], json.dumps(cluster))

    def _all(self) -> Any:
        self._store.remove_expired(self._clock.now())
        return map(json.loads, self._store.list_all(KIND))

    def _get(self, id_: str) -> dict[str, Any] | None:
        return next((each for each in self._all() if each["id"] == id_), None)

    def _shown(self, cluster: dict[str, Any]) -> dict[str, Any]:
        runs = self._clock.now() >= cluster["runs_at"]
        status = "deleting" if "is_leaving" in cluster else "running" if runs else "building"
        return {k: v for k, v in cluster.items() if k not in ("runs_at", "is_leaving")} | {
            "status": status
        }

    def _overridden(self, shown: Any) -> Any:
        """With the statuses that injected faults impose."""
        by_path = {f"/clusters/{each['id']}": each for each in shown}
        path = request.path.removeprefix(self.prefix)
        for own, rule in self._faults.take_overrides(request.method, path, list(by_path)).items():
            by_path[own]["status"] = rule.status_override
        return shown

    def _gone(self) -> Response:
        return answer_json({"code": "no_such_cluster", "message": "there is no such cluster"}, 404)
