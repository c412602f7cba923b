"""Store the registry's records, as Mongoose casts, completes and checks them (the document's
schema).

A new record is checked as a whole. An update is cast, and what the schema does not have is dropped
without a word; required fields are not checked again.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from gpuform.providers.emulator.aios.mongo import failed, not_found, updated
from gpuform.providers.emulator.store import Store

Json = Any
Document = dict[str, Any]
Kind = Any
"""`"text"`, `"number"`, `"flag"`, `"mixed"`, a list of one kind, or an object of kinds."""

_ID = "_id"
_COUNT = {"count": "number"}
_STORAGE = {"disks": "number", "size": "number"}
_NETWORK = {"interfaces": "number", "txBandwidth": "number", "rxBandwidth": "number"}
_NODE = {
    "id": "text",
    "gpus": {
        "count": "number",
        "memory": "number",
        "gpus": [{"modelName": "text", "memory": "number", _ID: "text"}],
        "features": ["text"],
        "modelNames": ["text"],
    },
    "vcpus": _COUNT,
    "memory": "number",
    "swap": "number",
    "storage": _STORAGE,
    "network": _NETWORK,
    _ID: "text",
}
_URL_PATHS = {
    "controllerService": "/controller",
    "metricsService": "/metrics",
    "blocksQuery": "/blocks",
    "publicGateway": "",
    "parameterUpdater": "/mgmt",
}
CLUSTER: dict[str, Kind] = {
    "id": "text",
    "regionId": "text",
    "status": "text",
    "nodes": {"count": "number", "nodeData": [_NODE]},
    "gpus": {"count": "number", "memory": "number"},
    "vcpus": _COUNT,
    "memory": "number",
    "swap": "number",
    "storage": _STORAGE,
    "network": _NETWORK,
    "config": {
        "policyExecutorId": "text",
        "policyExecutionMode": "text",
        "customPolicySystem": "mixed",
        "publicHostname": "text",
        "useGateway": "flag",
        "actionsPolicyMap": "mixed",
        "urlMap": dict.fromkeys(_URL_PATHS, "text"),
        _ID: "text",
    },
    "tags": ["text"],
    "clusterMetadata": {
        "name": "text",
        "description": "text",
        "owner": "text",
        "email": "text",
        "countries": ["text"],
        "miscContactInfo": "mixed",
        "additionalInfo": "mixed",
        _ID: "text",
    },
    "reputation": "number",
}
_OPTIONAL = {
    _ID,
    "regionId",
    "reputation",
    "policyExecutorId",
    "policyExecutionMode",
    "customPolicySystem",
    "useGateway",
    "actionsPolicyMap",
    "email",
    "countries",
    "miscContactInfo",
    "additionalInfo",
}
_DEFAULTS: Document = {"policyExecutorId": "", "policyExecutionMode": "local", "useGateway": True}
_NUMBER = re.compile(r"\d+")


def new_record(given: Document, new_id: Callable[[], str]) -> Document:
    """A record as it is kept, with all that Mongoose and the system add. Raises ApiError."""
    record: Document = _cast(CLUSTER, given, "")
    config = record.get("config")
    if isinstance(config, dict) and "publicHostname" in config:
        base = f"http://{config['publicHostname']}:32000"
        derived = {name: base + path for name, path in _URL_PATHS.items()}
        config["urlMap"] = {**derived, **config.get("urlMap", {})}
    missing = _missing(CLUSTER, record, "")
    if missing:
        told = ", ".join(f"{path}: Path `{path}` is required." for path in missing)
        raise failed(f"clusters validation failed: {told}")
    return {_ID: new_id(), **with_ids(record, new_id), "__v": 0}


def cast_update(update: Document) -> dict[str, Document]:
    """An update in operators, cast, without what the schema does not have. Raises ApiError."""
    plain = [name for name in update if not name.startswith("$")]
    if plain and len(plain) < len(update):
        raise failed("Update document requires operators and fields, not both")
    operators = {"$set": update} if plain else update
    return {
        operator: {
            path: value
            if operator in ("$unset", "$pull")
            else _operand(kind, value, path, is_item=operator in ("$push", "$addToSet"))
            for path, value in fields.items()
            if (kind := _kind_at(path)) is not None
        }
        for operator, fields in operators.items()
        if isinstance(fields, dict)
    }


def with_ids(record: Document, new_id: Callable[[], str]) -> Document:
    """With an `_id` for each subdocument that has none: entries of nodes, GPUs, typed objects."""
    found: Document = _identified(CLUSTER, record, new_id)
    return found


def _identified(kind: Kind, value: Json, new_id: Callable[[], str]) -> Json:
    if isinstance(kind, list) and isinstance(value, list):
        return [_identified(kind[0], item, new_id) for item in value]
    if not (isinstance(kind, dict) and isinstance(value, dict)):
        return value
    inner = {name: _identified(kind.get(name), item, new_id) for name, item in value.items()}
    if _ID in kind and _ID not in inner:
        inner[_ID] = new_id()
    return inner


def _operand(kind: Kind, value: Json, path: str, *, is_item: bool) -> Json:
    """What an operator has for a path: a value of its kind, one item of a list, or `$each`."""
    if not is_item or not isinstance(kind, list):
        return _cast(kind, value, path)
    if isinstance(value, dict) and isinstance(value.get("$each"), list):
        return {**value, "$each": [_cast(kind[0], item, path) for item in value["$each"]]}
    return _cast(kind[0], value, path)


def _kind_at(path: str) -> Kind:
    """The kind of a dotted path; None where the schema has no such path."""
    kind: Kind = CLUSTER
    for name in path.split("."):
        if kind == "mixed":
            return kind
        if isinstance(kind, list) and _NUMBER.fullmatch(name):
            kind = kind[0]
        else:
            kind = kind.get(name) if isinstance(kind, dict) else None
    return kind


def _cast(kind: Kind, value: Json, path: str) -> Json:
    if kind == "mixed" or value is None:
        return value
    if isinstance(kind, list):
        items = value if isinstance(value, list) else [value]
        return [_cast(kind[0], item, path) for item in items]
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise failed(f"Cast to Object failed at path `{path}`")
        return _with_defaults(kind, value, path)
    return _scalar(kind, value, path)


def _with_defaults(kind: dict[str, Kind], value: Document, path: str) -> Document:
    cast = {
        name: _cast(kind[name], item, f"{path}.{name}" if path else name)
        for name, item in value.items()
        if name in kind
    }
    for name, inner in kind.items():
        if name not in cast and (name in _DEFAULTS or isinstance(inner, list)):
            cast[name] = _DEFAULTS.get(name, [])
    return cast


def _scalar(kind: str, value: Json, path: str) -> Json:
    if kind == "number" and isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            pass
    is_flag = isinstance(value, bool)
    right = {
        "number": isinstance(value, int | float) and not is_flag,
        "text": isinstance(value, str),
        "flag": is_flag,
    }
    if right[kind]:
        return value
    if kind == "text" and isinstance(value, int | float) and not is_flag:
        return str(value)
    wanted = {"number": "Number", "text": "string", "flag": "Boolean"}[kind]
    raise failed(f'Cast to {wanted} failed for value of type {type(value).__name__} at "{path}"')


def _missing(kind: Kind, value: Json, path: str) -> list[str]:
    """The required paths without a value."""
    if isinstance(kind, list):
        items = value if isinstance(value, list) else []
        return [
            lost
            for at, item in enumerate(items)
            for lost in _missing(kind[0], item, f"{path}.{at}")
        ]
    if not isinstance(kind, dict):
        return []
    found: list[str] = []
    for name, inner in kind.items():
        here = f"{path}.{name}" if path else name
        has = isinstance(value, dict) and value.get(name) not in (None, "")
        if has:
            found += _missing(inner, value[name], here)
        elif name not in _OPTIONAL:
            found += _missing(inner, {}, here) if isinstance(inner, dict) else [here]
    return found


_KIND = "aios.cluster"


class Records:
    """To be used within one transaction."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self._now = now

    def all(self) -> list[Document]:
        """Oldest first."""
        return [json.loads(body) for body in self._store.list_all(_KIND)]

    def get(self, cluster_id: str) -> Document:
        body = self._store.get(_KIND, cluster_id)
        if body is None:
            raise not_found()
        record: Document = json.loads(body)
        return record

    def add(self, given: Document) -> Document:
        """Raises ApiError for what is not valid, and for an id that is taken."""
        record = new_record(given, self._new_id)
        self._refuse_taken(record["id"])
        self._keep(record)
        return record

    def update(self, cluster_id: str, update: Document) -> Document:
        """The record after a Mongo update; nothing changes when it is refused."""
        before = self.get(cluster_id)
        after = with_ids(updated(before, cast_update(update)), self._new_id)
        if after.get("id") != cluster_id:
            self._refuse_taken(after.get("id"))
            self.remove(cluster_id)
        self._keep(after)
        return after

    def remove(self, cluster_id: str) -> None:
        self.get(cluster_id)
        self._store.put(_KIND, cluster_id, "{}", gone_at=self._now)
        self._store.remove_expired(self._now)

    def _keep(self, record: Document) -> None:
        self._store.put(_KIND, str(record.get("id")), json.dumps(record))

    def _refuse_taken(self, cluster_id: object) -> None:
        if self._store.get(_KIND, str(cluster_id)) is not None:
            raise failed(
                "E11000 duplicate key error collection: aios.clusters index: id_1 dup key: "
                f'{{ id: "{cluster_id}" }}'
            )

    def _new_id(self) -> str:
        """24 hexadecimal digits, of which the first eight are the time, as MongoDB makes them."""
        return f"{int(self._now):08x}{self._store.create_id().replace('-', '')[:16]}"
