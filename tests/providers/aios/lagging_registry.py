"""Serve a clusters registry, written from its document alone, with every fault it may have.

Updates and filters are mongomock's. A GET and a query show a record of up to 30 seconds ago, each
with its own lag. Answers are lost before or after the effect, proxies answer, queries omit nodes or
their details, and others write between any two requests.
"""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import mongomock

Json = dict[str, Any]

LONGEST_LAG = 30.0
NOTHING: Json = {"$pull": {"nodes.nodeData": {"id": {"$in": []}}}}
"""An update that changes nothing: gpuform reads a record with it."""
SUMS = {
    "gpus.count": ("gpus", "count"),
    "gpus.memory": ("gpus", "memory"),
    "vcpus.count": ("vcpus", "count"),
    "memory": ("memory",),
    "swap": ("swap",),
    "storage.disks": ("storage", "disks"),
    "storage.size": ("storage", "size"),
    "network.interfaces": ("network", "interfaces"),
    "network.txBandwidth": ("network", "txBandwidth"),
    "network.rxBandwidth": ("network", "rxBandwidth"),
}
_KNOWN = frozenset(
    (
        *("id", "regionId", "status", "nodes", "gpus", "vcpus", "memory", "swap", "storage"),
        *("network", "config", "tags", "clusterMetadata", "reputation"),
    )
)


@dataclass
class Clock:
    """A clock that moves while somebody sleeps, and a little with each request."""

    moment: float = 1_800_000_000.0
    is_platforms: bool = True

    def now(self) -> float:
        return self.moment

    def sleep(self, seconds: float, interrupted: Any) -> None:
        self.moment += seconds


@dataclass
class Faults:
    """How often each fault happens to a request, as a share of 1."""

    lag: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    proxy: float = 0.0
    partial: float = 0.0
    others: float = 0.0


@dataclass
class LaggingRegistry:
    """The registry and its Parser; `others` is called right before a request of ours is served."""

    seed: int
    clock: Clock = field(default_factory=Clock)
    faults: Faults = field(default_factory=Faults)
    has_entry_ids: bool = True
    envelope: str = "raw"
    others: Callable[[], None] = lambda: None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    fixed_lag: float | None = None
    """The age of answers to GET and query; None leaves the age to the faults."""
    next_write: str = ""
    """What happens to the next PUT or create: lost_before or lost_after."""
    query_has_nodes: bool = True

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._records = mongomock.MongoClient().registry.clusters
        self._versions: list[tuple[float, dict[str, Json]]] = [(0.0, {})]
        self._is_inside = False

    def get_record(self, cluster_id: str) -> Json | None:
        """Return the current record without lag, or None."""
        return copy.deepcopy(self._versions[-1][1].get(cluster_id))

    def create_transport(self) -> httpx.BaseTransport:
        return httpx.MockTransport(self.serve)

    def serve(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or b"null")
        path = request.url.path
        self.requests.append((request.method, path, body))
        self.clock.moment += 0.05
        if not self._is_inside and self.rng.random() < self.faults.others:
            self._is_inside = True
            try:
                self.others()
            finally:
                self._is_inside = False
        fault = self._choose_fault()
        if fault == "proxy":
            page = self.rng.choice([(404, "<h1>404</h1>"), (200, "sign in"), (502, "bad")])
            return httpx.Response(page[0], html=page[1], request=request)
        if fault == "lost_before":
            raise httpx.ReadError("closed", request=request)
        status, answer = self._answer(request.method, path.strip("/").split("/"), body)
        if fault == "lost_after":
            raise httpx.ReadError("closed", request=request)
        return httpx.Response(status, json=answer, request=request)

    def _choose_fault(self) -> str:
        drawn = self.rng.random()
        method, path, body = self.requests[-1]
        is_read = method == "GET" or path.endswith("/query") or body == NOTHING
        if self.next_write and not is_read:
            fault, self.next_write = self.next_write, ""
            return fault
        for name in ("proxy", "lost_before", "lost_after"):
            drawn -= getattr(self.faults, name)
            if drawn < 0:
                return name
        return ""

    def _answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        match (method, *path):
            case ("POST", "clusters", "query"):
                return 200, self._query(body)
            case ("POST", "api", "createCluster"):
                return self._create(body)
            case ("GET", "clusters", id_):
                record = self._get_shown_records().get(id_)
                return self._answer_record(record and self._omit_fields(record, 0.3))
            case ("PUT", "clusters", id_):
                return self.update(id_, body)
            case ("DELETE", "clusters", id_):
                if self._records.find_one({"id": id_}) is None:
                    return self._answer_record(None)
                self._records.delete_one({"id": id_})
                self._record_version()
                return 200, {"message": "Cluster deleted"}
        return 404, {"message": "no such route"}

    def _answer_record(self, record: Json | None) -> tuple[int, Any]:
        return (404, {"error": "Cluster not found"}) if record is None else (200, record)

    def _query(self, body: Any) -> list[Json]:
        """Return the matching records; a filter in the other envelope matches all."""
        is_wrapped = set(body) == {"query"}
        if is_wrapped == (self.envelope == "wrapped"):
            record_filter = body["query"] if is_wrapped else body
        else:
            record_filter = {}
        shown_records = mongomock.MongoClient().registry.clusters
        for record in self._get_shown_records().values():
            shown_records.insert_one(copy.deepcopy(record))
        records = [
            self._omit_fields(matching_record, 1.0)
            for matching_record in shown_records.find(record_filter)
        ]
        if self.query_has_nodes:
            return records
        return [
            {k: v for k, v in matching_record.items() if k != "nodes"}
            for matching_record in records
        ]

    def _create(self, body: Any) -> tuple[int, Any]:
        values = body["body"]["spec"]["values"]
        result: Any = [False, "E11000 duplicate key error"]
        if self._records.find_one({"id": values["id"]}) is None:
            record = {k: v for k, v in values.items() if k in _KNOWN and k != "status"}
            made = {"_id": self._create_id(), **copy.deepcopy(record), "status": "live"}
            self._records.insert_one(made)
            self._record_version()
            result = self.get_record(values["id"])
        return 200, {"success": True, "task_id": "", "result": result}

    def update(self, id_: str, body: Json) -> tuple[int, Any]:
        """Apply a Mongo update without paths outside of the schema."""
        known_fields = {
            operator: {p: v for p, v in fields.items() if p.split(".")[0] in _KNOWN}
            for operator, fields in body.items()
        }
        if self._records.find_one({"id": id_}) is None:
            return self._answer_record(None)
        try:
            self._records.update_one({"id": id_}, {o: f for o, f in known_fields.items() if f})
        except Exception as error:  # noqa: BLE001 - as the service: any failure is a 500
            return 500, {"error": str(error)}
        self._record_version()
        return 200, self.get_record(id_)

    def _record_version(self) -> None:
        """Give each entry an id, as Mongoose does, and store a new version of all records."""
        for record in list(self._records.find({})):
            entries = record.get("nodes", {}).get("nodeData", [])
            if self.has_entry_ids and any(entry and "_id" not in entry for entry in entries):
                entries = [entry and {"_id": self._create_id(), **entry} for entry in entries]
                update = {"$set": {"nodes.nodeData": entries}}
                self._records.update_one({"id": record["id"]}, update)
        records = {record["id"]: {**record, "__v": 0} for record in self._records.find({})}
        self._versions.append((self.clock.moment, copy.deepcopy(records)))

    def _create_id(self) -> str:
        return f"{int(self.clock.moment):08x}{self.rng.getrandbits(64):016x}"

    def _get_shown_records(self) -> dict[str, Json]:
        """Return the records of a random moment within the lag."""
        lag = self.rng.uniform(0, LONGEST_LAG) if self.rng.random() < self.faults.lag else 0.0
        moment = self.clock.moment - (lag if self.fixed_lag is None else self.fixed_lag)
        shown_records = next(records for at, records in reversed(self._versions) if at <= moment)
        return copy.deepcopy(shown_records)

    def _omit_fields(self, record: Json, share: float) -> Json:
        """Return the record, perhaps without nodes, or with only the ids of nodes."""
        if self.rng.random() >= self.faults.partial * share:
            return record
        if self.rng.random() < 0.5:
            return {name: value for name, value in record.items() if name != "nodes"}
        entries = [{"id": entry["id"]} for entry in record["nodes"]["nodeData"] if entry]
        return {**record, "nodes": {**record["nodes"], "nodeData": entries}}


def find_wrong_sums(record: Json) -> list[str]:
    """Return the paths of sums with other values than the sums of the record's entries."""
    entries = record["nodes"]["nodeData"]
    wrong = [] if record["nodes"]["count"] == len(entries) else ["nodes.count"]
    for name, path in SUMS.items():
        stored_sum = _get_number(record, path)
        if stored_sum != sum(_get_number(entry, path) for entry in entries):
            wrong.append(name)
    return wrong


def compute_sums(entries: list[Json]) -> Json:
    """Return the sums of entries by dotted path, like another correct writer."""
    sums = {name: sum(_get_number(entry, path) for entry in entries) for name, path in SUMS.items()}
    return {"nodes.count": len(entries), **sums}


def _get_number(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value or 0
