"""The AIOS registry and its parser, from their reference; documents and updates by mongomock."""

import copy
from collections import Counter
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
        client = mongomock.MongoClient()
        self._documents = client.registry.clusters
        self._replica = client.registry.replica
        self._history: dict[str, list[tuple[float, Json | None]]] = {}
        """Of each cluster: when it changed, and its document from then on, None without one."""

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

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"error": "Cluster not found" if status == 404 else text})

    def serve(self, call: Call) -> Answer:
        answer = self._serve(call)
        self._remember()
        return answer

    def _remember(self) -> None:
        """Keep each document that this request has changed, for the reads that lag behind."""
        documents = {each["id"]: each for each in self._documents.find({})}
        for id_ in documents.keys() | self._history.keys():
            versions = self._history.setdefault(id_, [])
            if not versions or versions[-1][1] != documents.get(id_):
                versions.append((self._world.now, copy.deepcopy(documents.get(id_))))

    def _documents_of(self, moment: float) -> list[Json]:
        """Return the documents as they were."""
        past = (
            [document for since, document in versions if since <= moment]
            for versions in self._history.values()
        )
        return [documents[-1] for documents in past if documents and documents[-1] is not None]

    def _serve(self, call: Call) -> Answer:
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
        lag = max(self._world.list_lag, self._world.behavior.list_delay)
        self._replica.delete_many({})
        for document in self._documents_of(self._world.now - lag):
            self._replica.insert_one(copy.deepcopy(document))
        return Answer(200, [_told(each) for each in self._replica.find(asked)])

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
        if method == "GET":
            past = self._documents_of(self._world.now - self._world.behavior.get_delay)
            found = [each for each in past if each["id"] == id_]
            return Answer(200, _told(found[0])) if found else self.refuse(404, "")
        if self._documents.find_one({"id": id_}) is None:
            return self.refuse(404, "")
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
            thing = self._world.get("aios", "cluster", id_)
            assert thing
            self._world.record(call.actor, f"changed {', '.join(paths)} of", thing)

    def _remove(self, call: Call, id_: str) -> None:
        self._documents.delete_one({"id": id_})
        thing = self._world.get("aios", "cluster", id_)
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
        occurrences: Counter[str] = Counter()
        told: dict[str, Json] = {}
        for entry in entries:
            name = str(entry.get("id"))
            occurrences[name] += 1
            number = occurrences[name]
            told[f"{id_}/{name}" if number == 1 else f"{id_}/{name} again {number}"] = entry
        for thing in self._nodes_of(id_):
            entry_now = told.pop(thing.id, None)
            if entry_now is None:
                self._world.remove(actor, thing, 0)
            elif entry_now != thing.data["entry"]:
                self._world.change(actor, thing, entry=copy.deepcopy(entry_now))
        for key, entry in told.items():
            data = {"cluster": id_, "entry": copy.deepcopy(entry), "made_in": [id_]}
            thing = self._world.add(actor, "aios", "node", key, str(entry.get("id")), data)
            thing.sent = entry
        self._compare_sums(actor, id_, document, entries)

    def _compare_sums(self, actor: str, id_: str, document: Json, entries: list[Json]) -> None:
        """Note whether the totals that somebody has just written fit the entries."""
        thing = self._world.get("aios", "cluster", id_)
        if thing is not None:
            count = (document.get("nodes") or {}).get("count")
            memory = sum(each.get("memory") or 0 for each in entries)
            is_sound = count == len(entries) and document.get("memory") == memory
            thing.data["sums"] = (actor, is_sound, f"{count} nodes, {len(entries)} entries")


def _told(document: Json | None) -> Json:
    assert document is not None
    return {**document, "_id": str(document["_id"]), "__v": 0}
