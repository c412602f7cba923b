"""Store the registry's records, as Mongoose casts, completes and checks them.

`routes` calls this module. The schema is the document's. A new record is checked completely. An
update is cast, and fields that the schema does not have are dropped without an error; required
fields are not checked again.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from gpuform.providers.emulator.aios.mongo import apply_update, make_not_found, make_server_error
from gpuform.providers.emulator.store import Store

Json = Any
Document = dict[str, Any]
Kind = Any
"""`"text"`, `"number"`, `"flag"`, `"mixed"`, a list of one kind, or an object of kinds."""

_ID = "_id"
_COUNT_SCHEMA = {"count": "number"}
_STORAGE_SCHEMA = {"disks": "number", "size": "number"}
_NETWORK_SCHEMA = {"interfaces": "number", "txBandwidth": "number", "rxBandwidth": "number"}
_NODE_SCHEMA = {
    "id": "text",
    "gpus": {
        "count": "number",
        "memory": "number",
        "gpus": [{"modelName": "text", "memory": "number", _ID: "text"}],
        "features": ["text"],
        "modelNames": ["text"],
    },
    "vcpus": _COUNT_SCHEMA,
    "memory": "number",
    "swap": "number",
    "storage": _STORAGE_SCHEMA,
    "network": _NETWORK_SCHEMA,
    _ID: "text",
}
_URL_PATHS = {
    "controllerService": "/controller",
    "metricsService": "/metrics",
    "blocksQuery": "/blocks",
    "publicGateway": "",
    "parameterUpdater": "/mgmt",
}
CLUSTER_SCHEMA: dict[str, Kind] = {
    "id": "text",
    "regionId": "text",
    "status": "text",
    "nodes": {"count": "number", "nodeData": [_NODE_SCHEMA]},
    "gpus": {"count": "number", "memory": "number"},
    "vcpus": _COUNT_SCHEMA,
    "memory": "number",
    "swap": "number",
    "storage": _STORAGE_SCHEMA,
    "network": _NETWORK_SCHEMA,
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
# Fields that the document's schema does not require.
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


def build_record(values: Document, new_id: Callable[[], str]) -> Document:
    """Return a new record of a cluster: `values` cast, completed and checked as by Mongoose.

    Added are defaults, addresses derived from `publicHostname` (addresses in `values` win), missing
    ids made by `new_id`, and the version `__v`. Fields outside of the schema are dropped. Raises
    `Refusal` 500 for a value that cannot be cast, and for required fields without a value.
    """
    record: Document = _cast_value(CLUSTER_SCHEMA, values, "")
    config = record.get("config")
    if isinstance(config, dict) and "publicHostname" in config:
        base = f"http://{config['publicHostname']}:32000"
        derived = {name: base + path for name, path in _URL_PATHS.items()}
        # Addresses that the caller gives win over derived ones.
        config["urlMap"] = {**derived, **config.get("urlMap", {})}
    missing = _find_missing(CLUSTER_SCHEMA, record, "")
    if missing:
        message = ", ".join(f"{path}: Path `{path}` is required." for path in missing)
        raise make_server_error(f"clusters validation failed: {message}")
    return {_ID: new_id(), **add_ids(record, new_id), "__v": 0}


def cast_update(update: Document) -> dict[str, Document]:
    """Return a Mongo update with operands cast to the schema; plain fields become `$set`.

    Fields that the schema does not have are dropped, and operators whose operand is no object;
    operands of `$unset` and `$pull` stay as they are. Raises `Refusal` 500 for plain fields beside
    operators, and for a value that cannot be cast.
    """
    plain = [name for name in update if not name.startswith("$")]
    if plain and len(plain) < len(update):
        raise make_server_error("Update document requires operators and fields, not both")
    # Mongoose reads plain fields as `$set`.
    operators = {"$set": update} if plain else update
    return {
        operator: {
            path: value
            if operator in ("$unset", "$pull")
            else _cast_operand(kind, value, path, is_item=operator in ("$push", "$addToSet"))
            for path, value in fields.items()
            if (kind := _find_kind(path)) is not None
        }
        for operator, fields in operators.items()
        if isinstance(fields, dict)
    }


def add_ids(record: Document, new_id: Callable[[], str]) -> Document:
    """Return a copy of the record with an `_id` in each typed object that lacks one.

    These are nodes, GPUs, the config and the metadata; `new_id` makes the ids.
    """
    completed: Document = _add_ids(CLUSTER_SCHEMA, record, new_id)
    return completed


def _add_ids(kind: Kind, value: Json, new_id: Callable[[], str]) -> Json:
    """Return a copy of `value` with an `_id` in each object that lacks the `_id` of its kind."""
    if isinstance(kind, list) and isinstance(value, list):
        return [_add_ids(kind[0], item, new_id) for item in value]
    if not (isinstance(kind, dict) and isinstance(value, dict)):
        return value
    inner = {name: _add_ids(kind.get(name), item, new_id) for name, item in value.items()}
    if _ID in kind and _ID not in inner:
        inner[_ID] = new_id()
    return inner


def _cast_operand(kind: Kind, value: Json, path: str, *, is_item: bool) -> Json:
    """Return an operator's operand, cast to the kind of its path.

    With `is_item` and a kind that is a list, the operand is one item of the list or an object with
    `$each`.
    """
    if not is_item or not isinstance(kind, list):
        return _cast_value(kind, value, path)
    if isinstance(value, dict) and isinstance(value.get("$each"), list):
        return {**value, "$each": [_cast_value(kind[0], item, path) for item in value["$each"]]}
    return _cast_value(kind[0], value, path)


def _find_kind(path: str) -> Kind:
    """Return the kind of a dotted path, or None for a path outside of the schema.

    All paths below a `mixed` field are `mixed`; below a list only paths with an index have a kind.
    """
    kind: Kind = CLUSTER_SCHEMA
    for name in path.split("."):
        if kind == "mixed":
            return kind
        if isinstance(kind, list) and _NUMBER.fullmatch(name):
            kind = kind[0]
        else:
            kind = kind.get(name) if isinstance(kind, dict) else None
    return kind


def _cast_value(kind: Kind, value: Json, path: str) -> Json:
    """Return `value` as Mongoose casts values to a kind; null and `mixed` values stay as they are.

    A single value becomes a list of one where the kind is a list. Objects lose members outside of
    the kind and get missing defaults and lists. Raises `Refusal` 500 where the cast is impossible.
    `path` is for the error.
    """
    if kind == "mixed" or value is None:
        return value
    if isinstance(kind, list):
        items = value if isinstance(value, list) else [value]
        return [_cast_value(kind[0], item, path) for item in items]
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise make_server_error(f"Cast to Object failed at path `{path}`")
        return _cast_object(kind, value, path)
    return _cast_scalar(kind, value, path)


def _cast_object(kind: dict[str, Kind], value: Document, path: str) -> Document:
    """Return an object with cast members and defaults, without members outside of the kind."""
    cast = {
        name: _cast_value(kind[name], item, f"{path}.{name}" if path else name)
        for name, item in value.items()
        if name in kind
    }
    # Mongoose fills in defaults, and empty arrays for lists.
    for name, inner in kind.items():
        if name not in cast and (name in _DEFAULTS or isinstance(inner, list)):
            cast[name] = _DEFAULTS.get(name, [])
    return cast


def _cast_scalar(kind: str, value: Json, path: str) -> Json:
    """Return `value` as a number, text or flag; a text of digits becomes a number if needed.

    A number becomes a text likewise. Raises `Refusal` 500 for any other value of another kind.
    """
    if kind == "number" and isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            pass
    # In Python a bool is an int, in the schema it is no number.
    is_flag = isinstance(value, bool)
    is_of_kind = {
        "number": isinstance(value, int | float) and not is_flag,
        "text": isinstance(value, str),
        "flag": is_flag,
    }
    if is_of_kind[kind]:
        return value
    if kind == "text" and isinstance(value, int | float) and not is_flag:
        return str(value)
    type_names = {"number": "Number", "text": "string", "flag": "Boolean"}[kind]
    raise make_server_error(
        f'Cast to {type_names} failed for value of type {type(value).__name__} at "{path}"'
    )


def _find_missing(kind: Kind, value: Json, path: str) -> list[str]:
    """Return the dotted paths of required fields whose value is missing, null or "".

    A missing object gives the paths of the required fields in it; an empty list is a value.
    """
    if isinstance(kind, list):
        items = value if isinstance(value, list) else []
        return [
            missing_path
            for index, item in enumerate(items)
            for missing_path in _find_missing(kind[0], item, f"{path}.{index}")
        ]
    if not isinstance(kind, dict):
        return []
    missing_paths: list[str] = []
    for name, inner in kind.items():
        inner_path = f"{path}.{name}" if path else name
        has_value = isinstance(value, dict) and value.get(name) not in (None, "")
        if has_value:
            missing_paths += _find_missing(inner, value[name], inner_path)
        elif name not in _OPTIONAL:
            missing_paths += (
                _find_missing(inner, {}, inner_path) if isinstance(inner, dict) else [inner_path]
            )
    return missing_paths


_KIND = "aios.cluster"


class RegistryRecords:
    """The records of the registry, to be used within one transaction."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self._now = now

    def list_all(self) -> list[Document]:
        """Return all records, oldest first."""
        return [json.loads(body) for body in self._store.list_all(_KIND)]

    def get(self, cluster_id: str) -> Document:
        """Return a record by the cluster's id. Raises `Refusal` 404."""
        body = self._store.get(_KIND, cluster_id)
        if body is None:
            raise make_not_found()
        record: Document = json.loads(body)
        return record

    def add(self, values: Document) -> Document:
        """Add a record of `values`, and return the completed record.

        Raises `Refusal` 500 for invalid values, and for a cluster's id that has a record already.
        """
        record = build_record(values, self._create_id)
        self._refuse_duplicate(record["id"])
        self._save(record)
        return record

    def update(self, cluster_id: str, update: Document) -> Document:
        """Apply a Mongo update to a cluster's record, store the record and return the changed one.

        Raises `Refusal` 404 without a record, and 500 for a refused update, which changes nothing.
        An update may change the cluster's id, but raises 500 if the new id has a record already.
        Required fields are not checked again.
        """
        before = self.get(cluster_id)
        after = add_ids(apply_update(before, cast_update(update)), self._create_id)
        if after.get("id") != cluster_id:
            self._refuse_duplicate(after.get("id"))
            # The store knows a record by the cluster's id, which an update may change.
            self.remove(cluster_id)
        self._save(after)
        return after

    def remove(self, cluster_id: str) -> None:
        """Remove the record of a cluster.

        Raises `Refusal` 404 without a record.
        """
        # Raises 404 for an unknown id.
        self.get(cluster_id)
        self._store.put(_KIND, cluster_id, "{}", gone_at=self._now)
        self._store.remove_expired(self._now)

    def _save(self, record: Document) -> None:
        """Store a record under its cluster's id, in place of an earlier record."""
        self._store.put(_KIND, str(record.get("id")), json.dumps(record))

    def _refuse_duplicate(self, cluster_id: object) -> None:
        """Raise `Refusal` 500, MongoDB's E11000, if a record has the cluster id already."""
        if self._store.get(_KIND, str(cluster_id)) is not None:
            raise make_server_error(
                # MongoDB's own words: clients know the case by them.
                "E11000 duplicate key error collection: aios.clusters index: id_1 dup key: "
                f'{{ id: "{cluster_id}" }}'
            )

    def _create_id(self) -> str:
        """Return 24 hexadecimal digits, the first eight being the time, as MongoDB makes ids."""
        return f"{int(self._now):08x}{self._store.create_id().replace('-', '')[:16]}"
