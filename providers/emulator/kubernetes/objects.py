"""Keep the objects of one cluster's API in the emulator's store, each change with a version, and
select them by labels and fields.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import BY_PLURAL, Kind, StatusError
from gpuform.providers.emulator.store import Store

Object = dict[str, Any]
"""JSON with apiVersion, kind and metadata. What `Objects` hands out is never changed in place."""


@dataclass(frozen=True)
class Event:
    """`kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    version: int
    object: Object


class Objects:
    """One cluster's objects, within a transaction of the store."""

    def __init__(self, store: Store, cluster_id: str, now: float) -> None:
        self._store = store
        self._kept = f"kubernetes/{cluster_id}"
        self._removed = f"kubernetes/{cluster_id}/removed"
        self.now = now
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._created: dict[str, int] = {}
        for body in store.list_all(self._kept):
            entry = json.loads(body)
            each = entry["object"]
            self._objects.setdefault(entry["kind"], {})[_place(each)] = each
            self._created[each["metadata"]["uid"]] = entry["created"]
        self.version = int(store.get(f"{self._kept}/version", "") or 0)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self._objects.get(kind.plural, {}).get((namespace, name))

    def of(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """By namespace and name."""
        found = sorted(self._objects.get(kind.plural, {}).items())
        return [each for (home, _), each in found if namespace in {None, home}]

    def all(self) -> Iterator[tuple[Kind, Object]]:
        for plural in list(self._objects):
            for each in list(self._objects[plural].values()):
                yield BY_PLURAL[plural], each

    def add(self, kind: Kind, new: Object) -> Object:
        """The object with a uid, a version and the time of its creation."""
        metadata = {
            **new.get("metadata", {}),
            "uid": new.get("metadata", {}).get("uid") or self._store.create_id(),
            "creationTimestamp": new.get("metadata", {}).get("creationTimestamp")
            or timestamp(self.now),
            "generation": 1,
        }
        identity = {"apiVersion": kind.api_version, "kind": kind.name}
        return self._keep(kind, {**new, **identity, "metadata": metadata})

    def replace(self, kind: Kind, old: Object, new: Object) -> Object:
        """`new` in the place of `old`, with a new version unless they are the same."""
        if _without_version(old) == _without_version(new):
            return old
        metadata = {**new["metadata"]}
        if old.get("spec") != new.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        return self._keep(kind, {**new, "metadata": metadata})

    def remove(self, kind: Kind, old: Object) -> Object:
        last = self._versioned(old)
        namespace, name = _place(old)
        del self._objects[kind.plural][namespace, name]
        self._store.remove(self._kept, f"{kind.plural}/{namespace}/{name}")
        entry = {"kind": kind.plural, "object": last}
        self._store.put(self._removed, str(self.version), json.dumps(entry))
        return last

    def events(self, kind: Kind, since: int) -> list[Event]:
        """What happened to objects of a kind after a version: the last change of each."""
        changed = [
            Event(
                "ADDED" if self._created[each["metadata"]["uid"]] > since else "MODIFIED",
                version(each),
                each,
            )
            for each in self.of(kind)
            if version(each) > since
        ]
        entries = (json.loads(body) for body in self._store.list_all(self._removed))
        gone = [entry["object"] for entry in entries if entry["kind"] == kind.plural]
        changed += [Event("DELETED", version(each), each) for each in gone if version(each) > since]
        return sorted(changed, key=lambda event: event.version)

    def _keep(self, kind: Kind, new: Object) -> Object:
        new = self._versioned(deepcopy(new))
        namespace, name = _place(new)
        self._objects.setdefault(kind.plural, {})[namespace, name] = new
        created = self._created.setdefault(new["metadata"]["uid"], self.version)
        entry = {"kind": kind.plural, "created": created, "object": new}
        self._store.put(self._kept, f"{kind.plural}/{namespace}/{name}", json.dumps(entry))
        return new

    def _versioned(self, new: Object) -> Object:
        self.version += 1
        self._store.put(f"{self._kept}/version", "", str(self.version))
        return {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}


def version(each: Object) -> int:
    return int(each["metadata"]["resourceVersion"])


def timestamp(moment: float) -> str:
    """Whole seconds, as the API has them."""
    return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")


def unix_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _place(each: Object) -> tuple[str, str]:
    metadata = each["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _without_version(each: Object) -> Object:
    metadata = {**each["metadata"], "resourceVersion": None, "generation": None}
    return {**each, "metadata": metadata}


_FORM = re.compile(
    r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$", re.ASCII
)
_BINARY = {f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_DECIMAL |= {letter: Decimal(10) ** (3 * at) for at, letter in enumerate("kMGTPE", start=1)}


def amount(text: object) -> Decimal:
    """Raises ValueError for what is no quantity."""
    found = _FORM.match(str(text))
    if found is None:
        raise ValueError(f"quantities must match the regular expression, not {text!r}")
    number, exponent, suffix = found.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * (_BINARY.get(suffix or "") or _DECIMAL.get(suffix or "", Decimal(1)))


_IN = re.compile(r"^\s*([^\s!=,]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=]+)\s*(==|=|!=)\s*([^\s!=]*)\s*$")
_PRESENT = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


def labels_match(text: str, labels: dict[str, str]) -> bool:
    """A `labelSelector`. Raises StatusError when it makes no sense."""
    return all(_label_holds(term, labels) for term in re.split(r",(?![^(]*\))", text) if term)


def _label_holds(term: str, labels: dict[str, str]) -> bool:
    if found := _IN.match(term):
        key, operator, values = found.groups()
        is_in = labels.get(key) in {value.strip() for value in values.split(",")}
        return is_in == (operator == "in")
    if found := _EQUAL.match(term):
        key, operator, value = found.groups()
        return (labels.get(key) == value) == (operator != "!=")
    if found := _PRESENT.match(term):
        return (found[2] in labels) != bool(found[1])
    raise StatusError(400, f"unable to parse requirement: {term!r}")


def selected(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """A LabelSelector object; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


def _holds(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[requirement["operator"]]


def fields_match(text: str, each: dict[str, Any]) -> bool:
    """A `fieldSelector`, on any field that holds a plain value."""
    for term in filter(None, text.split(",")):
        found = _EQUAL.match(term)
        if found is None:
            raise StatusError(400, f"invalid field selector {term!r}")
        path, operator, value = found.groups()
        here: Any = each
        for name in path.split("."):
            here = here.get(name) if isinstance(here, dict) else None
        shown = str(here).lower() if isinstance(here, bool) else str(here or "")
        if path == "spec.unschedulable" and here is None:
            shown = "false"
        if (shown == value) != (operator != "!="):
            return False
    return True
