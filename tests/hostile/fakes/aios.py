"""Fake AIOS's registry and parser from their reference, documents and updates with mongomock."""

import copy
from collections import Counter
from typing import Any

import mongomock
from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.simulation import OURS, PLATFORM, Json, PlatformObject, Simulation

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

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        client = mongomock.MongoClient()
        self._documents = client.registry.clusters
        self._replica = client.registry.replica
        self._history: dict[str, list[tuple[float, Json | None]]] = {}
        """Of each cluster: when it changed, and its document from then on, None without one."""

    def classify_request(self, request: PlatformRequest) -> str:
        match (request.method, *request.path):
            case ("POST", "clusters", "query"):
                return LIST
            case ("POST", *_):
                return CHANGE if request.path[-1] == "addNode" else CREATE
            case ("PUT", *_):
                return CHANGE
            case ("DELETE", *_):
                return DELETE
        return GET

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"error": "Cluster not found" if status == 404 else text})

    def serve(self, request: PlatformRequest) -> Answer:
        answer = self._serve(request)
        self._record_history()
        return answer

    def _record_history(self) -> None:
        """Store each changed document, for later lagging reads."""
        documents = {item["id"]: item for item in self._documents.find({})}
        for id_ in documents.keys() | self._history.keys():
            versions = self._history.setdefault(id_, [])
            if not versions or versions[-1][1] != documents.get(id_):
                versions.append((self._simulation.now, copy.deepcopy(documents.get(id_))))

    def _find_documents_at(self, moment: float) -> list[Json]:
        """Return the documents at an earlier moment."""
        past = (
            [document for since, document in versions if since <= moment]
            for versions in self._history.values()
        )
        return [documents[-1] for documents in past if documents and documents[-1] is not None]

    def _serve(self, request: PlatformRequest) -> Answer:
        match (request.method, *request.path):
            case ("POST", "clusters", "query"):
                return self._query(request.body)
            case ("POST", "clusters"):
                return self._create_cluster(request, request.body)
            case ("POST", "api", "createCluster"):
                return self._create_by_parser(request)
            case (method, "clusters", id_):
                return self._route_cluster(request, method, id_)
        return Answer(404, {"error": "no such route"})

    def _query(self, body: Any) -> Answer:
        query_filter = body.get("query", body) if isinstance(body, dict) else {}
        lag = max(self._simulation.list_lag, self._simulation.behavior.list_delay)
        self._replica.delete_many({})
        for document in self._find_documents_at(self._simulation.now - lag):
            self._replica.insert_one(copy.deepcopy(document))
        return Answer(
            200, [_drop_internal_fields(item) for item in self._replica.find(query_filter)]
        )

    def _create_by_parser(self, request: PlatformRequest) -> Answer:
        try:
            values = request.body["body"]["spec"]["values"]
        except (KeyError, TypeError):
            return Answer(400, {"error": "Invalid JSON input"})
        answer = self._create_cluster(
            request, {name: values[name] for name in _COPIED if name in values}
        )
        result = answer.body if answer.status == 200 else [False, answer.body["error"]]
        return Answer(200, {"success": True, "task_id": "", "result": result})

    def _create_cluster(self, request: PlatformRequest, sent: Json) -> Answer:
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
        self._simulation.add_object(
            request.actor, "aios", "cluster", id_, id_, {"made_in": ()}
        ).sent = sent
        self._record_nodes(PLATFORM if request.actor == OURS else request.actor, id_)
        return Answer(200, _drop_internal_fields(self._documents.find_one({"id": id_})))

    def _route_cluster(self, request: PlatformRequest, method: str, id_: str) -> Answer:
        if method == "GET":
            past = self._find_documents_at(
                self._simulation.now - self._simulation.behavior.get_delay
            )
            matching_documents = [document for document in past if document["id"] == id_]
            return (
                Answer(200, _drop_internal_fields(matching_documents[0]))
                if matching_documents
                else self.refuse(404, "")
            )
        if self._documents.find_one({"id": id_}) is None:
            return self.refuse(404, "")
        if method == "PUT":
            return self._update_cluster(request, id_)
        if not request.ignored:
            self._delete_cluster(request, id_)
        return Answer(200, {"message": "Cluster deleted"})

    def _update_cluster(self, request: PlatformRequest, id_: str) -> Answer:
        sent: Json = request.body if isinstance(request.body, dict) else {}
        operators = sent if any(name.startswith("$") for name in sent) else {"$set": sent}
        try:
            if not request.ignored:
                self._documents.update_one({"id": id_}, operators)
        except Exception as error:  # noqa: BLE001 - as the service: any failure is a 500
            return Answer(500, {"error": str(error)})
        if not request.ignored:
            paths = [path for operator in operators.values() for path in operator]
            if any(not path.startswith("nodes.nodeData") for path in paths):
                self._record_change(request, id_, paths)
            self._record_nodes(request.actor, id_)
        return Answer(200, _drop_internal_fields(self._documents.find_one({"id": id_})))

    def _record_change(self, request: PlatformRequest, id_: str, paths: list[str]) -> None:
        """Record a change; totals and counts change with added nodes, and are nobody's change."""
        totals = ("gpus", "vcpus", "memory", "swap", "storage", "network", "nodes")
        if any(path.split(".")[0] not in totals for path in paths):
            platform_object = self._simulation.find_object("aios", "cluster", id_)
            assert platform_object
            self._simulation.record_action(
                request.actor, f"changed {', '.join(paths)} of", platform_object
            )

    def _delete_cluster(self, request: PlatformRequest, id_: str) -> None:
        self._documents.delete_one({"id": id_})
        platform_object = self._simulation.find_object("aios", "cluster", id_)
        assert platform_object
        for node in self._list_nodes(id_):
            self._simulation.delete_object(request.actor, node, 0)
        self._simulation.delete_object(request.actor, platform_object, 0)

    def _list_nodes(self, id_: str) -> list[PlatformObject]:
        return [
            item
            for item in self._simulation.list_existing("aios", "node")
            if item.data["cluster"] == id_
        ]

    def _record_nodes(self, actor: str, id_: str) -> None:
        """Record the document's current nodes as appearing, changing and vanishing objects."""
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
        for platform_object in self._list_nodes(id_):
            entry_now = documented_nodes.pop(platform_object.id, None)
            if entry_now is None:
                self._simulation.delete_object(actor, platform_object, 0)
            elif entry_now != platform_object.data["entry"]:
                self._simulation.change_object(
                    actor, platform_object, entry=copy.deepcopy(entry_now)
                )
        for key, entry in documented_nodes.items():
            data = {"cluster": id_, "entry": copy.deepcopy(entry), "made_in": [id_]}
            platform_object = self._simulation.add_object(
                actor, "aios", "node", key, str(entry.get("id")), data
            )
            platform_object.sent = entry
        self._compare_sums(actor, id_, document, entries)

    def _compare_sums(self, actor: str, id_: str, document: Json, entries: list[Json]) -> None:
        """Record whether new totals of another writer fit the entries."""
        platform_object = self._simulation.find_object("aios", "cluster", id_)
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
