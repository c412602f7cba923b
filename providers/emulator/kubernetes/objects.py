"""Store the objects of one cluster's API, each change with a version, and select objects.

All modules of `kubernetes` use `ClusterObjects`, which keeps the objects of a cluster in the
emulator's store. Selection is by labels and by fields, as list requests ask for it.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.kubernetes.kinds import KIND_BY_PLURAL, Kind, StatusError
from gpuform.providers.emulator.store import Store

Object = dict[str, Any]
"""JSON with apiVersion, kind and metadata. Nobody changes what `ClusterObjects` returns."""


@dataclass(frozen=True)
class WatchEvent:
    """A change as a watch sends it; `kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    version: int
    object: Object


class ClusterObjects:
    """The objects of one cluster, within a transaction of the store."""

    def __init__(self, store: Store, cluster_id: str, now: float) -> None:
        self.store = store
        self.cluster_id = cluster_id
        self._object_kind = f"kubernetes/{cluster_id}"
        self._removed_kind = f"kubernetes/{cluster_id}/removed"
        self.now = now
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._created: dict[str, int] = {}
        for body in store.list_all(self._object_kind):
            entry = json.loads(body)
            stored_object = entry["object"]
            self._objects.setdefault(entry["kind"], {})[_get_key(stored_object)] = stored_object
            self._created[stored_object["metadata"]["uid"]] = entry["created"]
        # 0 for a cluster whose API nobody has asked yet.
        self.version = int(store.get(f"{self._object_kind}/version", "") or 0)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return the stored object, or None; `namespace` is "" for cluster-wide kinds."""
        return self._objects.get(kind.plural, {}).get((namespace, name))

    def list_objects(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """Return a kind's objects in one namespace (None: in all), by namespace and name."""
        items = sorted(self._objects.get(kind.plural, {}).items())
        return [item for (item_namespace, _), item in items if namespace in {None, item_namespace}]

    def list_all(self) -> Iterator[tuple[Kind, Object]]:
        """Yield every object with the object's kind; objects may be removed meanwhile."""
        for plural in list(self._objects):
            for item in list(self._objects[plural].values()):
                yield KIND_BY_PLURAL[plural], item

    def add(self, kind: Kind, new: Object) -> Object:
        """Store a new object and return the object with uid, version, creation time and generation.

        A uid and a creation time in `new` stay as they are.
        """
        metadata = {
            **new.get("metadata", {}),
            "uid": new.get("metadata", {}).get("uid") or self.store.create_id(),
            "creationTimestamp": new.get("metadata", {}).get("creationTimestamp")
            or format_timestamp(self.now),
            "generation": 1,
        }
        identity = {"apiVersion": kind.api_version, "kind": kind.name}
        return self._save(kind, {**new, **identity, "metadata": metadata})

    def replace(self, kind: Kind, old: Object, new: Object) -> Object:
        """Store `new` in place of `old` and return the stored object; `old` if nothing differs.

        Each change raises the version, a change of the spec the generation, too.
        """
        if _drop_version(old) == _drop_version(new):
            # A write that changes nothing gets no version, so that watches stay silent.
            return old
        metadata = {**new["metadata"]}
        # The generation counts changes of the spec alone, as in Kubernetes.
        if old.get("spec") != new.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        return self._save(kind, {**new, "metadata": metadata})

    def remove(self, kind: Kind, old: Object) -> Object:
        """Remove an object at once, and return its last state with a new version, for watches."""
        last = self._set_next_version(old)
        namespace, name = _get_key(old)
        del self._objects[kind.plural][namespace, name]
        self.store.remove(self._object_kind, f"{kind.plural}/{namespace}/{name}")
        # Kept for ever: a watch may ask for changes since any version.
        entry = {"kind": kind.plural, "object": last}
        self.store.put(self._removed_kind, str(self.version), json.dumps(entry))
        return last

    def list_events(self, kind: Kind, since: int) -> list[WatchEvent]:
        """Return the last change of each object of a kind after the version `since`, oldest first.

        An object that was added, changed and removed has one event: DELETED. For `since` 0 these
        are the present objects as ADDED, as for a watch without a version ("Get State and Start at
        Any" in Kubernetes' documentation of watches).
        """
        changed = [
            WatchEvent(
                "ADDED" if self._created[item["metadata"]["uid"]] > since else "MODIFIED",
                get_version(item),
                item,
            )
            for item in self.list_objects(kind)
            if get_version(item) > since
        ]
        removed_bodies = self.store.list_all(self._removed_kind) if since else ()
        entries = map(json.loads, removed_bodies)
        removed_objects = [entry["object"] for entry in entries if entry["kind"] == kind.plural]
        changed += [
            WatchEvent("DELETED", get_version(item), item)
            for item in removed_objects
            if get_version(item) > since
        ]
        return sorted(changed, key=lambda event: event.version)

    def _save(self, kind: Kind, new: Object) -> Object:
        """Store an object with the next version and return the stored object."""
        new = self._set_next_version(deepcopy(new))
        namespace, name = _get_key(new)
        self._objects.setdefault(kind.plural, {})[namespace, name] = new
        # The version at the first save shows a watch whether an object is ADDED or MODIFIED.
        created = self._created.setdefault(new["metadata"]["uid"], self.version)
        entry = {"kind": kind.plural, "created": created, "object": new}
        self.store.put(self._object_kind, f"{kind.plural}/{namespace}/{name}", json.dumps(entry))
        return new

    def _set_next_version(self, new: Object) -> Object:
        """Raise and store the cluster's version; return the object with this `resourceVersion`."""
        self.version += 1
        self.store.put(f"{self._object_kind}/version", "", str(self.version))
        return {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}


def get_version(content: Object) -> int:
    """Return the `resourceVersion` of a Kubernetes object as a number."""
    return int(content["metadata"]["resourceVersion"])


def parse_timestamp(timestamp: str) -> float:
    """Return a time of the Kubernetes API (ISO 8601) in unix seconds."""
    return datetime.fromisoformat(timestamp).timestamp()


def _get_key(content: Object) -> tuple[str, str]:
    """Return namespace and name of an object; the namespace is "" for cluster-wide kinds."""
    metadata = content["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _drop_version(content: Object) -> Object:
    """Return an object without `resourceVersion` and `generation`, to compare contents."""
    metadata = {**content["metadata"], "resourceVersion": None, "generation": None}
    return {**content, "metadata": metadata}


_QUANTITY = re.compile(
    r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$", re.ASCII
)
# Suffixes of quantities: Ki is 1024, k is 1000.
_BINARY = {f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_DECIMAL |= {letter: Decimal(10) ** (3 * at) for at, letter in enumerate("kMGTPE", start=1)}


def parse_quantity(quantity: object) -> Decimal:
    """Return a quantity (`1Ti`, `500m`) as a number. Raises ValueError."""
    match = _QUANTITY.match(str(quantity))
    if match is None:
        raise ValueError(f"quantities must match the regular expression, not {quantity!r}")
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * (_BINARY.get(suffix or "") or _DECIMAL.get(suffix or "", Decimal(1)))


_IN_TERM = re.compile(r"^\s*([^\s!=,]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL_TERM = re.compile(r"^\s*([^\s!=]+)\s*(==|=|!=)\s*([^\s!=]*)\s*$")
_PRESENCE_TERM = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


def matches_labels(selector: str, labels: dict[str, str]) -> bool:
    """Return whether labels meet all requirements of a `labelSelector`; "" selects everything.

    Raises `StatusError` 400 for a malformed selector.
    """
    # Commas within parentheses separate values, not requirements.
    return all(
        _matches_label_term(term, labels) for term in re.split(r",(?![^(]*\))", selector) if term
    )


def _matches_label_term(term: str, labels: dict[str, str]) -> bool:
    """Return whether labels meet one requirement of a `labelSelector`, such as `app in (a,b)`.

    Raises `StatusError` 400 for a malformed one.
    """
    if match := _IN_TERM.match(term):
        key, operator, values = match.groups()
        is_in = labels.get(key) in {value.strip() for value in values.split(",")}
        return is_in == (operator == "in")
    if match := _EQUAL_TERM.match(term):
        key, operator, value = match.groups()
        return (labels.get(key) == value) == (operator != "!=")
    if match := _PRESENCE_TERM.match(term):
        return (match[2] in labels) != bool(match[1])
    raise StatusError(400, f"unable to parse requirement: {term!r}")


def is_selected(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector object selects labels; None selects nothing, {} everything."""
    if selector is None:
        return False
    required_labels = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in required_labels.items()):
        return False
    return all(
        _meets_requirement(requirement, labels)
        for requirement in selector.get("matchExpressions") or []
    )


def _meets_requirement(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether labels meet one `matchExpressions` entry: In, NotIn, Exists, DoesNotExist."""
    key, values = requirement["key"], requirement.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[requirement["operator"]]


def matches_fields(selector: str, content: dict[str, Any]) -> bool:
    """Return whether an object meets a `fieldSelector`, on any field with a plain value.

    A missing field equals "", but a missing `spec.unschedulable` equals "false". Raises
    `StatusError` 400 for a malformed selector.
    """
    for term in filter(None, selector.split(",")):
        match = _EQUAL_TERM.match(term)
        if match is None:
            raise StatusError(400, f"invalid field selector {term!r}")
        path, operator, value = match.groups()
        field_value: Any = content
        for name in path.split("."):
            field_value = field_value.get(name) if isinstance(field_value, dict) else None
        shown_value = (
            str(field_value).lower() if isinstance(field_value, bool) else str(field_value or "")
        )
        # A node that was never cordoned has no such field, and clients select it with `=false`.
        if path == "spec.unschedulable" and field_value is None:
            shown_value = "false"
        if (shown_value == value) != (operator != "!="):
            return False
    return True
