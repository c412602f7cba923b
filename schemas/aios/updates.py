"""Build the smallest Mongo updates that make a record as declared. Nothing here sends a request.

The provider's `records` module sends them. An update is the body of a PUT (AIOS registry reference,
'Cluster registry APIs'). Mongo applies one body to one record at once, and refuses a body that
changes an array and an element of it, so that entries of `nodes.nodeData` may take several.
The registry finds a record by its id alone: no body can address an entry but by its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import (
    declared_cluster,
    declared_node,
    entry_of,
    to_wire,
    wire_name,
)
from gpuform.schemas.aios.parts import NODE_COUNT, PATHS, NodeInputs, told_totals, value_at
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import is_equal

Values = Mapping[str, Any]
Body = dict[str, dict[str, Any]]

NODE_DATA: Final = "nodes.nodeData"
REPEATABLE: Final = frozenset({"$set", "$unset", "$pull"})
"""The operators that have the same effect when they are sent twice."""

_BY_ITS_ENTRIES: Final = "nodes.node_data"
_NO_RULES: Final = FieldRules()
_SUM_PATHS: Final = {
    ".".join(map(wire_name, path.split("."))): path for path in (NODE_COUNT, *PATHS)
}
"""The declared path of each sum by that on the wire."""


class _Absent:
    """The type of a value that is to be removed."""


_ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Placed:
    """Changed fields of the entry that stands at `index`, which has to be that of `node_id`.

    `fields` has the new values by their dotted paths within the entry.
    """

    index: int
    node_id: str
    fields: Mapping[str, Any]

    def is_in(self, entry: wire.Node | None) -> bool:
        """Return whether `entry` has all the new values."""
        if entry is None:
            return False
        document = entry_of(declared_node(entry))
        return all(_is_at(document, path, value) for path, value in self.fields.items())


@dataclass(frozen=True, slots=True)
class Request:
    """One body, the entries that it finds by their place, and the ids of those that it adds."""

    body: Body
    placed: tuple[Placed, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice has the effect of sending it once, whoever else writes."""
        return not self.placed and set(self.body) <= REPEATABLE

    def is_shown_by(self, record: wire.Cluster) -> bool:
        """Return whether `record` has what this adds and changes by place."""
        return all(map(record.entry, self.added)) and all(
            placed.is_in(record.entry(placed.node_id)) for placed in self.placed
        )

    def has_set_sums_of(self, record: wire.Cluster) -> bool:
        """Return whether `record` has the sums that this sets, as it has right after this."""
        now = declared_cluster(record)
        sums = {wired: value_at(now, path) for wired, path in _SUM_PATHS.items()}
        values = self.body.get("$set", {})
        return all(is_equal(sums[path], value) for path, value in values.items() if path in sums)

    def strays(self, before: wire.Cluster, record: wire.Cluster) -> list[tuple[wire.Node, Placed]]:
        """Return the entries of others that got values of this, each with those values.

        `before` is the record right before the request: what had the values then got none. An
        entry comes to the place of another one only when entries in front of it leave.
        """
        return [
            (entry, placed)
            for placed in self.placed
            if not placed.is_in(record.entry(placed.node_id))
            for entry in record.nodes.node_data
            if placed.is_in(entry)
            and not placed.is_in(before.entry(entry.id))
            and _may_have_moved(entry.id, placed.index, before, record)
        ]


NOTHING: Final = Request({"$pull": {NODE_DATA: {"id": {"$in": []}}}})
"""Changes nothing. Its answer is the record as it is, where a GET may be older."""


def changed_fields(rules: Mapping[str, FieldRules], before: Values, after: Values) -> Body:
    """`$set` and `$unset` of the dotted paths that differ, but of entries of nodes.

    `before` has what was declared last time as last seen, `after` what is declared now: a field no
    longer declared goes back to its default, or is left as it is.
    """
    return _body(_differences(rules, before, after, "", ""))


def has_sums(fields: Body) -> bool:
    """Return whether changed fields have a sum among them."""
    return fields != without_sums(fields)


def without_sums(fields: Body) -> Body:
    """Return changed fields without those that are sums over the nodes of a record."""
    kept = {
        operator: {path: value for path, value in values.items() if path not in _SUM_PATHS}
        for operator, values in fields.items()
    }
    return {operator: values for operator, values in kept.items() if values}


def entries_request(
    record: wire.Cluster, before: Sequence[Values], after: Sequence[Values]
) -> Request | None:
    """Return the next update that makes the entries of `record` as declared, or None.

    Entries that are the same in both declarations are left alone, whatever the record has. The sums
    are those of all entries, whoever declares them.
    """
    old, new = ({each["id"]: each for each in entries} for entries in (before, after))
    touched = [id_ for id_ in {**new, **old} if not is_equal(old.get(id_), new.get(id_))]
    numbers = {id_: sum(each.id == id_ for each in record.nodes.node_data) for id_ in touched}
    here = [id_ for id_ in touched if numbers[id_] == 1 and id_ in new]
    changes = [change for id_ in here if (change := _entry_change(record, new[id_]))]
    if changes:
        return _with_sums(record, [new[each.node_id] for each in changes], placed=changes)
    gone = [id_ for id_ in touched if numbers[id_] and id_ not in here]
    if gone:
        return _with_sums(record, removed=[e for e in record.nodes.node_data if e.id in gone])
    made = [new[id_] for id_ in touched if id_ in new and not numbers[id_]]
    return _with_sums(record, made) if made else sums_request(record)


def sums_request(record: wire.Cluster) -> Request | None:
    """Return the update that sets the sums of a record to those of its entries, or None."""
    body = _sums(record, map(declared_node, record.nodes.node_data))
    return Request(body) if body else None


def node_added(record: wire.Cluster, node: Values) -> Request:
    """Return the update that adds an entry, and sets the sums with it."""
    return _with_sums(record, [node])


def node_removed(record: wire.Cluster, node_id: str, object_id: str | None) -> Request:
    """Return the update that removes the entries of an id, and sets the sums without them.

    With Mongo's `object_id` no other entry of the same id is removed.
    """
    removed = [
        each
        for each in record.nodes.node_data
        if each.id == node_id and object_id in (None, wire.own_id(each.object_id))
    ]
    removed = removed or [wire.Node(id=node_id, object_id=object_id)]
    return _with_sums(record, removed=removed)


def node_changed(record: wire.Cluster, node: Values) -> Request | None:
    """Return the update that changes the fields of an entry that differ, and the sums; or None.

    `node` has the entry's `id` and what may change.
    """
    change = _entry_change(record, node)
    if change is None:
        return sums_request(record)
    return _with_sums(record, [node], placed=[change])


def last_removed(record: wire.Cluster, node: Values) -> Request:
    """Return the update that removes the entry of `node` that was added last, and no other one.

    Without an id of Mongo's it is found by all that it has.
    """
    last = [each for each in record.nodes.node_data if each.id == node["id"]][-1]
    object_id = wire.own_id(last.object_id)
    wanted = {"_id": object_id} if object_id else dict(_leaves(entry_of(declared_node(last)), ""))
    return Request({"$pull": {NODE_DATA: {"id": last.id, **wanted}}})


def put_back(
    record: wire.Cluster, node_id: str, former: wire.Node | None, fields: Values
) -> Request | None:
    """Return the update that gives an entry its former values of `fields` back, or None."""
    found = [at for at, each in enumerate(record.nodes.node_data) if each.id == node_id]
    if former is None or not found:
        return None
    document = entry_of(declared_node(former))
    values = {path: value_at(document, path) for path in fields}
    values = {path: _ABSENT if each is None else each for path, each in values.items()}
    placed = Placed(found[0], node_id, values)
    return None if placed.is_in(record.nodes.node_data[found[0]]) else _placed_request([placed])


def stray_removals(fields: Values) -> tuple[Request, Request]:
    """Return the updates that remove what a change by place has made behind the last entry.

    That is an entry with the new values and no id, after nulls that fill the array up to it.
    """
    values = {path: each for path, each in fields.items() if isinstance(each, str | int | float)}
    made = {"id": {"$exists": False}, **values}
    return Request({"$pull": {NODE_DATA: made}}), Request({"$pull": {NODE_DATA: None}})


def _entry_change(record: wire.Cluster, node: Values) -> Placed | None:
    """Return the changed fields of an entry; None when it is as declared, or not there."""
    for index, entry in enumerate(record.nodes.node_data):
        if entry.id == node["id"]:
            found = dict(
                _differences(get_field_rules(NodeInputs), declared_node(entry), node, "", "")
            )
            return Placed(index, entry.id, found) if found else None
    return None


def _with_sums(
    record: wire.Cluster,
    nodes: Sequence[Values] = (),
    *,
    removed: Sequence[wire.Node] = (),
    placed: Sequence[Placed] = (),
) -> Request:
    """Return the update that adds `nodes`, or changes them where they are placed, with the sums."""
    stay = [declared_node(each) for each in record.nodes.node_data if each not in removed]
    if placed:
        new = {each["id"]: each for each in nodes}
        stay = [{**each, **new.get(each["id"], {})} for each in stay]
        request = _placed_request(placed)
    elif removed:
        request = Request(_pull(removed))
    else:
        stay = [*stay, *map(dict, nodes)]
        request = Request(_add(nodes), added=tuple(each["id"] for each in nodes))
    return Request(_merged(request.body, _sums(record, stay)), request.placed, request.added)


def _sums(record: wire.Cluster, entries: Iterable[Values]) -> Body:
    """Return the `$set` of each sum of `entries` that `record` has otherwise."""
    now, sums = declared_cluster(record), told_totals(list(entries))
    stale = {
        wired: sums[path]
        for wired, path in _SUM_PATHS.items()
        if path in sums and not is_equal(value_at(now, path), sums[path])
    }
    return {"$set": to_wire(_NO_RULES, stale)} if stale else {}


def _placed_request(placed: Sequence[Placed]) -> Request:
    found = [
        (f"{NODE_DATA}.{each.index}.{path}", value)
        for each in placed
        for path, value in each.fields.items()
    ]
    return Request(_body(iter(found)), tuple(placed))


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
        if new is None or field.is_equivalent(old, new):
            continue
        if field.nested_rules and isinstance(new, Mapping):
            yield from _differences(field.nested_rules, old or {}, new, f"{own}.", f"{here}.")
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
        elif key not in old or not is_equal(old[key], new[key]):
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


def _add(nodes: Sequence[Values]) -> Body:
    """Return the `$addToSet` of entries: one that is sent twice by a proxy is there once."""
    entries = [entry_of(node) for node in nodes]
    return {"$addToSet": {NODE_DATA: entries[0] if len(entries) == 1 else {"$each": entries}}}


def _pull(entries: Sequence[wire.Node]) -> Body:
    """Return the `$pull` of entries by their ids, and by Mongo's where each has one."""
    wanted = {"id": _one_of([each.id for each in entries])}
    object_ids = [wire.own_id(each.object_id) for each in entries]
    if all(object_ids):
        wanted["_id"] = _one_of(object_ids)
    return {"$pull": {NODE_DATA: wanted}}


def _one_of(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else {"$in": list(values)}


def _leaves(document: Values, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and value of everything in a document that is no object itself."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        elif not isinstance(value, list):  # the items of a list may have ids of Mongo's
            yield f"{path}{name}", value


def _may_have_moved(node_id: str, to: int, before: wire.Cluster, record: wire.Cluster) -> bool:
    """Return whether so many entries left that one in `record` may have stood at `to` meanwhile.

    An entry that is behind now has left, too: somebody removed and added the entry again.
    """
    ids, ids_now = ([each.id for each in it.nodes.node_data] for it in (before, record))
    at = ids.index(node_id) if node_id in ids else len(ids)
    left = set(ids[:at]) - set(ids_now[: ids_now.index(node_id)])
    return len(left) >= at - to > 0


def _is_at(document: Values, path: str, value: Any) -> bool:
    found = value_at(document, path)
    return found is None if value is _ABSENT else is_equal(found, value)


def _merged(*bodies: Body) -> Body:
    merged: Body = {}
    for body in bodies:
        for operator, fields in body.items():
            merged[operator] = {**merged.get(operator, {}), **fields}
    return merged
