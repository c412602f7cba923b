"""Fake AIOS's registry and parser from their reference, documents and updates with mongomock."""

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
    """Clusters are documents; each of their nodes is an object of the client that added it."""

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
        documents = {item["id"]: item for item in self._documents.find({})}
        for id_ in documents.keys() | self._history.keys():
            versions = self._history.setdefault(id_, [])
            if not versions or versions[-1][1] != documents.get(id_):
                versions.append((self._world.now, copy.deepcopy(documents.get(id_))))

    def _documents_of(self, moment: float) -> list[Json]:
        """Return the documents at an earlier moment."""
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
                return self._find_one(call, method, id_)
        return Answer(404, {"error": "no such route"})

    def _query(self, body: Any) -> Answer:
        query_filter = body.get("query", body) if isinstance(body, dict) else {}
        lag = max(self._world.list_lag, self._world.behavior.list_delay)
        self._replica.delete_many({})
        for document in self._documents_of(self._world.now - lag):
            self._replica.insert_one(copy.deepcopy(document))
        return Answer(
            200, [_drop_internal_fields(item) for item in self._replica.find(query_filter)]
        )

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
        return Answer(200, _drop_internal_fields(self._documents.find_one({"id": id_})))

    def _find_one(self, call: Call, method: str, id_: str) -> Answer:
        if method == "GET":
            past = self._documents_of(self._world.now - self._world.behavior.get_delay)
            matching_documents = [document for document in past if document["id"] == id_]
            return (
                Answer(200, _drop_internal_fields(matching_documents[0]))
                if matching_documents
                else self.refuse(404, "")
            )
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
            paths = [path for operator in operators.values() for path in operator]
            if any(not path.startswith("nodes.nodeData") for path in paths):
                self._note_change(call, id_, paths)
            self._note_nodes(call.actor, id_)
        return Answer(200, _drop_internal_fields(self._documents.find_one({"id": id_})))

    def _note_change(self, call: Call, id_: str, paths: list[str]) -> None:
        """Record a change; totals and counts change with added nodes, and are nobody's change."""
        totals = ("gpus", "vcpus", "memory", "swap", "storage", "network", "nodes")
        if any(path.split(".")[0] not in totals for path in paths):
            platform_object = self._world.get("aios", "cluster", id_)
            assert platform_object
            self._world.record(call.actor, f"changed {', '.join(paths)} of", platform_object)

    def _remove(self, call: Call, id_: str) -> None:
        self._documents.delete_one({"id": id_})
        platform_object = self._world.get("aios", "cluster", id_)
        assert platform_object
        for node in self._nodes_of(id_):
            self._world.remove(call.actor, node, 0)
        self._world.remove(call.actor, platform_object, 0)

    def _nodes_of(self, id_: str) -> list[Thing]:
        return [item for item in self._world.all_of("aios", "node") if item.data["cluster"] == id_]

    def _note_nodes(self, actor: str, id_: str) -> None:
        """Record the document's current nodes as objects that appear, change and vanish."""
        document = self._documents.find_one({"id": id_}) or {}
        entries: list[Json] = (document.get("nodes") or {}).get("nodeData") or []
        occurrences: Counter[str] = Counter()
        documented_nodes: dict[str, Json] = {}
        for entry in entries:
            name = str(entry.get("id"))
            occurrences[name] += 1
            number = occurrences[name]
            documented_nodes[f"{id_}/{name}" if number == 1 else f"{id_}/{name} again {number}"] = (
                entry
            )
        for platform_object in self._nodes_of(id_):
            entry_now = documented_nodes.pop(platform_object.id, None)
            if entry_now is None:
                self._world.remove(actor, platform_object, 0)
            elif entry_now != platform_object.data["entry"]:
                self._world.change(actor, platform_object, entry=copy.deepcopy(entry_now))
        for key, entry in documented_nodes.items():
            data = {"cluster": id_, "entry": copy.deepcopy(entry), "made_in": [id_]}
            platform_object = self._world.add(
                actor, "aios", "node", key, str(entry.get("id")), data
            )
            platform_object.sent = entry
        self._compare_sums(actor, id_, document, entries)

    def _compare_sums(self, actor: str, id_: str, document: Json, entries: list[Json]) -> None:
        """Note whether the totals that somebody has just written fit the entries."""
        platform_object = self._world.get("aios", "cluster", id_)
        if platform_object is not None:
            count = (document.get("nodes") or {}).get("count")
            memory = sum(entry.get("memory") or 0 for entry in entries)
            is_sound = count == len(entries) and document.get("memory") == memory
            platform_object.data["sums"] = (
                actor,
                is_sound,
                f"{count} nodes, {len(entries)} entries",
            )


def _drop_internal_fields(document: Json | None) -> Json:
    assert document is not None
    return {**document, "_id": str(document["_id"]), "__v": 0}
