"""The AIOS registry and its parser, from their reference; documents and updates by mongomock."""

import copy
from typing import Any

import mongomock
from hostile.fakes.answers import Answer, Call
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.world import OURS, PLATFORM, Json, Thing, World

_COPIED = [
    "id",
    "regionId",
    "nodes",
    "gpus",
    "vcpus",
    "memory",
    "swap",
    "storage",
    "network",
    "config",
    "tags",
    "clusterMetadata",
    "reputation",
]
"""What the parser passes on."""


class Aios:
    """Clusters are documents; each of their nodes is an object of whoever has put it there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._documents = mongomock.MongoClient().registry.clusters

    def kind(self, call: Call) -> str:
        match (call.method, *call.path):
            case ("POST", "clusters", "query"):
                return LIST
            case ("POST", *_):
                return CHANGE if call.path[-1] == "addNode" else CREATE
            case ("PUT", *_):
                return CHANGE
            case ("DELETE", *_):
                return DELETE
        return GET

    def serve(self, call: Call) -> Answer:
        match (call.method, *call.path):
            case ("POST", "clusters", "query"):
                return self._query(call.body)
            case ("POST", "clusters"):
                return self._make(call, call.body)
            case ("POST", "api", "createCluster"):
                return self._parse(call)
            case (method, "clusters", id_):
                return self._one(call, method, id_)
        return Answer(404, {"error": "no such route"})

    def _query(self, body: Any) -> Answer:
        asked = body.get("query", body) if isinstance(body, dict) else {}
        moment = self._world.now - self._world.list_lag
        found = list(self._documents.find(asked))
        if self._world.list_lag:
            shown = {
                each.id
                for each in self._world.things
                if each.kind == "cluster" and each.exists(moment)
            }
            found = [each for each in found if each["id"] in shown]
        return Answer(200, [_told(each) for each in found])

    def _parse(self, call: Call) -> Answer:
        try:
            values = call.body["body"]["spec"]["values"]
        except (KeyError, TypeError):
            return Answer(400, {"error": "Invalid JSON input"})
        answer = self._make(call, {name: values[name] for name in _COPIED if name in values})
        result = answer.body if answer.status == 200 else [False, answer.body["error"]]
        return Answer(200, {"success": True, "task_id": "", "result": result})

    def _make(self, call: Call, sent: Json) -> Answer:
        id_ = sent.get("id")
        if not id_:
            return Answer(500, {"error": "Cluster validation failed: id: Path `id` is required."})
        if self._documents.find_one({"id": id_}):
            return Answer(500, {"error": f'E11000 duplicate key error: {{ id: "{id_}" }}'})
        document = {"status": "live", "reputation": 100, **copy.deepcopy(sent)}
        host = document.get("config", {}).get("publicHostname", "")
        document.setdefault("config", {}).setdefault(
            "urlMap",
            {
                "controllerService": f"http://{host}:32000/controller",
                "metricsService": f"http://{host}:32000/metrics",
                "blocksQuery": f"http://{host}:32000/blocks",
                "publicGateway": f"http://{host}:32000",
                "parameterUpdater": f"http://{host}:32000/mgmt",
            },
        )
        self._documents.insert_one(document)
        self._world.add(call.actor, "aios", "cluster", id_, id_, {"made_in": ()}).sent = sent
        self._note_nodes(PLATFORM if call.actor == OURS else call.actor, id_)
        return Answer(200, _told(self._documents.find_one({"id": id_})))

    def _one(self, call: Call, method: str, id_: str) -> Answer:
        document = self._documents.find_one({"id": id_})
        if document is None:
            return Answer(404, {"error": "Cluster not found"})
        if method == "GET":
            return Answer(200, _told(document))
        if method == "PUT":
            return self._update(call, id_)
        if not call.ignored:
            self._remove(call, id_)
        return Answer(200, {"message": "Cluster deleted"})

    def _update(self, call: Call, id_: str) -> Answer:
        sent: Json = call.body if isinstance(call.body, dict) else {}
        operators = sent if any(name.startswith("$") for name in sent) else {"$set": sent}
        try:
            if not call.ignored:
                self._documents.update_one({"id": id_}, operators)
        except Exception as error:  # noqa: BLE001 - as the service: any failure is a 500
            return Answer(500, {"error": str(error)})
        if not call.ignored:
            paths = [path for each in operators.values() for path in each]
            if any(not path.startswith("nodes.nodeData") for path in paths):
                self._note_change(call, id_, paths)
            self._note_nodes(call.actor, id_)
        return Answer(200, _told(self._documents.find_one({"id": id_})))

    def _note_change(self, call: Call, id_: str, paths: list[str]) -> None:
        """Totals and counts follow whoever adds a node, so they change nobody's object."""
        totals = ("gpus", "vcpus", "memory", "swap", "storage", "network", "nodes")
        if any(path.split(".")[0] not in totals for path in paths):
            thing = self._world.find("aios", "cluster", id_)
            assert thing
            self._world.record(call.actor, f"changed {', '.join(paths)} of", thing)

    def _remove(self, call: Call, id_: str) -> None:
        self._documents.delete_one({"id": id_})
        thing = self._world.find("aios", "cluster", id_)
        assert thing
        for node in self._nodes_of(id_):
            self._world.remove(call.actor, node, 0)
        self._world.remove(call.actor, thing, 0)

    def _nodes_of(self, id_: str) -> list[Thing]:
        return [each for each in self._world.all_of("aios", "node") if each.data["cluster"] == id_]

    def _note_nodes(self, actor: str, id_: str) -> None:
        """What the document says of nodes now, as objects that come, change and go."""
        document = self._documents.find_one({"id": id_}) or {}
        entries: list[Json] = (document.get("nodes") or {}).get("nodeData") or []
        told = {each.get("id"): each for each in entries}
        for thing in self._nodes_of(id_):
            entry = told.pop(thing.name, None)
            if entry is None:
                self._world.remove(actor, thing, 0)
            elif entry != thing.data["entry"]:
                self._world.change(actor, thing, entry=copy.deepcopy(entry))
        for name, entry in told.items():
            data = {"cluster": id_, "entry": copy.deepcopy(entry), "made_in": [id_]}
            thing = self._world.add(actor, "aios", "node", f"{id_}/{name}", name, data)
            thing.sent = entry


def _told(document: Json | None) -> Json:
    assert document is not None
    return {**document, "_id": str(document["_id"]), "__v": 0}
