"""The smallest Mongo updates that make a record as declared: pure.

An update is the body of a PUT (AIOS registry reference, 'Cluster registry APIs'). Mongo applies one
body to one record as a whole, and refuses a body that changes an array and an element of it; so
entries of `nodes.nodeData` may take several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import (
    declared_cluster,
    declared_node,
    entry_of,
    to_wire,
    total_of,
    wire_name,
)
from gpuform.schemas.aios.parts import NodeInputs
from gpuform.schemas.aios.totals import NODE_COUNT, PATHS, totals, value_at
from gpuform.schemas.rules import FieldRules, rules_of
from gpuform.schemas.values import same

Values = Mapping[str, Any]
Body = dict[str, dict[str, Any]]

NODE_DATA: Final = "nodes.nodeData"
IDEMPOTENT: Final = frozenset({"$set", "$unset"})
"""The operators that may be sent twice."""

_BY_ITS_ENTRIES: Final = "nodes.node_data"
_NO_RULES: Final = FieldRules()


class _Absent:
    """The type of what is to be removed."""


_ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Placed:
    """Changed fields of the entry that stands at `index`; it has to be the one of `node_id`."""

    index: int
    node_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """One body, and the entries that it finds by their place."""

    body: Body
    placed: tuple[Placed, ...] = ()

    @property
    def is_idempotent(self) -> bool:
        return set(self.body) <= IDEMPOTENT


def changed_fields(rules: Mapping[str, FieldRules], before: Values, after: Values) -> Body:
    """`$set` and `$unset` of the dotted paths that differ, but of entries of nodes.

    `before` has what was declared last time as last seen, `after` what is declared now: a field no
    longer declared goes back to its default, or is left as it is.
    """
    return _body(_differences(rules, before, after, "", ""))


def cluster_requests(
    fields: Body, found: wire.Cluster, before: Sequence[Values], after: Sequence[Values]
) -> list[Request]:
    """What makes the entries of a record as declared, the changed fields in the last request.

    Entries that are the same in both declarations are left alone, whatever `found` has.
    """
    old, new = ({each["id"]: each for each in entries} for entries in (before, after))
    touched = [id_ for id_ in {**new, **old} if not same(old.get(id_), new.get(id_))]
    numbers = {id_: sum(each.id == id_ for each in found.nodes.node_data) for id_ in touched}
    here = [id_ for id_ in touched if numbers[id_] == 1 and id_ in new]
    gone = [id_ for id_ in touched if numbers[id_] and id_ not in here]
    made = [new[id_] for id_ in touched if id_ in new and id_ not in here]
    requests = [Request(body) for body in (_pull(gone), _push(made)) if body]
    in_place = [(placed, body) for id_ in here for placed, body in entry_change(found, new[id_])]
    if in_place:
        merged = _merged(*(body for _, body in in_place))
        requests.insert(0, Request(merged, tuple(placed for placed, _ in in_place)))
    if not requests:
        return [Request(fields)] if fields else []
    last = requests[-1]
    return [*requests[:-1], Request(_merged(last.body, fields), last.placed)]


def with_sums(
    fields: Body, found: wire.Cluster, before: Sequence[Values], after: Sequence[Values]
) -> Body:
    """The changed fields and, where entries change, each sum that the record has otherwise."""
    if same(list(before), list(after)):
        return fields
    now, sums = declared_cluster(found), totals(after)
    stale = {path: value for path, value in sums.items() if not same(value_at(now, path), value)}
    wired = {".".join(map(wire_name, path.split("."))): value for path, value in stale.items()}
    if not wired:
        return fields
    return {**fields, "$set": {**to_wire(_NO_RULES, wired), **fields.get("$set", {})}}


def entry_change(found: wire.Cluster, node: Values) -> Iterator[tuple[Placed, Body]]:
    """The changed fields of one entry; nothing when it is as declared, or not there."""
    for index, entry in enumerate(found.nodes.node_data):
        if entry.id == node["id"]:
            rules, prefix = rules_of(NodeInputs), f"{NODE_DATA}.{index}."
            body = _body(_differences(rules, declared_node(entry), node, "", prefix))
            if body:
                yield Placed(index, entry.id), body
            return


def node_added(node: Values) -> Body:
    """Adds an entry, and what it has to the sums: both at once, or nothing."""
    return _merged(_push([node]), _increase({NODE_COUNT: 1}, [node], []))


def node_removed(found: wire.Cluster, node_id: str) -> Body:
    """Removes the entries of an id, and what they have from the sums."""
    gone = [declared_node(each) for each in found.nodes.node_data if each.id == node_id]
    return _merged(_pull([node_id]), _increase({NODE_COUNT: -len(gone)}, [], gone))


def node_changed(found: wire.Cluster, node: Values) -> Request | None:
    """Changes the fields of an entry that differ, and the sums by as much; None when none does.

    `node` has the entry's `id` and what may change.
    """
    for placed, body in entry_change(found, node):
        before = declared_node(found.nodes.node_data[placed.index])
        after = {**before, **node}
        return Request(_merged(body, _increase({}, [after], [before])), (placed,))
    return None


def _differences(
    rules: Mapping[str, FieldRules], before: Values, after: Values, place: str, path: str
) -> Iterator[tuple[str, Any]]:
    """Dotted paths with their new values; `place` is the declared one, `path` the registry's."""
    for name, field in rules.items():
        own, here = f"{place}{name}", f"{path}{wire_name(name)}"
        if not field.is_compared or field.immutable or own == _BY_ITS_ENTRIES:
            continue
        old, new = before.get(name), after.get(name)
        if new is None and old is not None and field.default is not None:
            new = field.default.value
        if new is None or field.is_same(old, new):
            continue
        if field.inner and isinstance(new, Mapping):
            yield from _differences(field.inner, old or {}, new, f"{own}.", f"{here}.")
        else:
            yield from _free_differences(field, old, new, here)


def _free_differences(
    rules: FieldRules, old: Any, new: Any, path: str
) -> Iterator[tuple[str, Any]]:
    """Those of a value that may be anything, key by key while the keys can stand in a path."""
    keyed = not rules.nested and isinstance(old, Mapping) and isinstance(new, Mapping)
    if not keyed or not all(map(_is_plain, {**old, **new})) or not new:
        yield path, to_wire(rules, new)
        return
    for key in {**new, **old}:
        if key not in new:
            yield f"{path}.{key}", _ABSENT
        elif key not in old or not same(old[key], new[key]):
            yield from _free_differences(rules, old.get(key), new[key], f"{path}.{key}")


def _is_plain(key: str) -> bool:
    """Whether a key means itself in a dotted path."""
    return bool(key) and "." not in key and not key.startswith("$") and not key.isdigit()


def _body(differences: Iterator[tuple[str, Any]]) -> Body:
    found = list(differences)
    changed = {path: value for path, value in found if value is not _ABSENT}
    removed = {path: "" for path, value in found if value is _ABSENT}
    return {
        **({"$set": changed} if changed else {}),
        **({"$unset": removed} if removed else {}),
    }


def _push(nodes: Sequence[Values]) -> Body:
    entries = [entry_of(node) for node in nodes]
    if not entries:
        return {}
    return {"$push": {NODE_DATA: entries[0] if len(entries) == 1 else {"$each": entries}}}


def _pull(ids: Sequence[str]) -> Body:
    if not ids:
        return {}
    return {"$pull": {NODE_DATA: {"id": ids[0] if len(ids) == 1 else {"$in": list(ids)}}}}


def _increase(counts: Mapping[str, int], come: Sequence[Values], go: Sequence[Values]) -> Body:
    """`$inc` of the sums that change."""
    steps = {path: total_of(come, path) - total_of(go, path) for path in PATHS}
    found = {path: step for path, step in {**counts, **steps}.items() if step}
    wired = {".".join(map(wire_name, path.split("."))): step for path, step in found.items()}
    return {"$inc": to_wire(_NO_RULES, wired)} if wired else {}


def _merged(*bodies: Body) -> Body:
    merged: Body = {}
    for body in bodies:
        for operator, fields in body.items():
            merged[operator] = {**merged.get(operator, {}), **fields}
    return merged
