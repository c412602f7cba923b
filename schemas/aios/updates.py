"""Build the smallest Mongo updates that make a record as declared.

No function here sends a request.

The `records` module of the AIOS provider sends the updates. An update is the body of a PUT (AIOS
registry reference, 'Cluster registry APIs'). Mongo applies one body to one record atomically, and
refuses a body that changes both an array and an element of it, so changes of `nodes.nodeData` may
take several requests. The registry finds a record by its id alone: a body can address an entry only
by its index.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.parts import (
    NODE_COUNT,
    SUM_PATHS,
    NodeInputs,
    get_value,
    sum_reported_nodes,
)
from gpuform.schemas.aios.wire import (
    cluster_to_declared,
    entry_to_declared,
    node_to_entry,
    to_wire,
    to_wire_name,
)
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import is_equal

Values = Mapping[str, Any]
Body = dict[str, dict[str, Any]]

NODE_DATA: Final = "nodes.nodeData"
REPEATABLE: Final = frozenset({"$set", "$unset", "$pull"})
"""Operators that have the same effect when they are sent twice."""

_NODE_DATA_INPUT: Final = "nodes.node_data"
_NO_RULES: Final = FieldRules()
_SUM_PATHS: Final = {
    ".".join(map(to_wire_name, path.split("."))): path for path in (NODE_COUNT, *SUM_PATHS)
}
"""The declared path of each sum, by its path in the registry."""


class _RemovedValue:
    """The type of a value that is to be removed."""


_REMOVED: Final = _RemovedValue()


@dataclass(frozen=True, slots=True)
class EntryChange:
    """Changed fields of the entry at `index`, which must still be the entry of `node_id`.

    `fields` has the new values by their dotted paths within the entry.
    """

    index: int
    node_id: str
    fields: Mapping[str, Any]

    def is_in(self, entry: wire.Node | None) -> bool:
        """Return True if `entry` has all new values of this change; False for None."""
        # the entry was removed meanwhile
        if entry is None:
            return False
        document = node_to_entry(entry_to_declared(entry))
        return all(_has_value(document, path, value) for path, value in self.fields.items())


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """The body of one update, its changes of entries by index, and the ids of added entries."""

    body: Body
    entry_changes: tuple[EntryChange, ...] = ()
    added_ids: tuple[str, ...] = ()

    @property
    def is_repeatable(self) -> bool:
        """True if a repeated request has the effect of a single one."""
        return not self.entry_changes and set(self.body) <= REPEATABLE

    def is_applied_to(self, record: wire.Cluster) -> bool:
        """Return True if `record` has the entries added and changed by this request.

        Removed entries and other fields of the record are not compared.
        """
        return all(map(record.find_entry, self.added_ids)) and all(
            change.is_in(record.find_entry(change.node_id)) for change in self.entry_changes
        )

    def has_same_sums(self, record: wire.Cluster) -> bool:
        """Return True if the record already has the sums set by this request."""
        current = cluster_to_declared(record)
        sums = {wire_path: get_value(current, path) for wire_path, path in _SUM_PATHS.items()}
        values = self.body.get("$set", {})
        return all(is_equal(sums[path], value) for path, value in values.items() if path in sums)

    def find_stray_entries(
        self, before: wire.Cluster, record: wire.Cluster
    ) -> list[tuple[wire.Node, EntryChange]]:
        """Return other nodes' entries apparently changed by this request, each with the change.

        A request changes an entry by its index in the list, and the index belongs to another node
        once entries in front of it are removed or inserted. `before` is the record right before the
        request: an entry that had the values then did not get them from the request.
        """
        return [
            (entry, change)
            for change in self.entry_changes
            if not change.is_in(record.find_entry(change.node_id))
            for entry in record.nodes.node_data
            if change.is_in(entry)
            and not change.is_in(before.find_entry(entry.id))
            and _may_have_moved(entry.id, change.index, before, record)
        ]


EMPTY_UPDATE: Final = UpdateRequest({"$pull": {NODE_DATA: {"id": {"$in": []}}}})
"""Changes nothing. Its answer is the present record, while the answer of a GET may be older."""


def build_field_changes(rules: Mapping[str, FieldRules], before: Values, after: Values) -> Body:
    """Return `$set` and `$unset` of the differing dotted paths, without entries of nodes.

    `before` has the fields declared last time with the values last observed, `after` the fields
    declared now. A field that is no longer declared returns to its default, or stays as it is
    without one. Immutable fields are left out.
    """
    return _build_body(_find_differences(rules, before, after, "", ""))


def changes_sums(fields: Body) -> bool:
    """Return True if an update's body sets a sum over the nodes of a record."""
    return fields != remove_sums(fields)


def remove_sums(fields: Body) -> Body:
    """Return an update's body without the sums over the nodes of a record."""
    remaining = {
        operator: {path: value for path, value in values.items() if path not in _SUM_PATHS}
        for operator, values in fields.items()
    }
    return {operator: values for operator, values in remaining.items() if values}


def build_entries_request(
    record: wire.Cluster, before: Sequence[Values], after: Sequence[Values]
) -> UpdateRequest | None:
    """Return the next update towards the declared entries of `record`, or None if all are equal.

    Each update has one kind of change: first changed entries, then removed, then added ones, at
    last the sums alone. Entries that are equal in both declarations are not touched, whatever the
    record has. If the record has several entries of a changed node, all are removed, and the node
    is added again. The sums are computed over all entries, whoever declares them.
    """
    nodes_before, nodes_after = (
        {node["id"]: node for node in entries} for entries in (before, after)
    )
    changed_ids = [
        id_
        for id_ in {**nodes_after, **nodes_before}
        if not is_equal(nodes_before.get(id_), nodes_after.get(id_))
    ]
    entry_counts = {
        id_: sum(entry.id == id_ for entry in record.nodes.node_data) for id_ in changed_ids
    }
    ids_to_change = [id_ for id_ in changed_ids if entry_counts[id_] == 1 and id_ in nodes_after]
    changes = [
        change for id_ in ids_to_change if (change := _find_entry_change(record, nodes_after[id_]))
    ]
    # Mongo refuses a body that changes the array and an element, so changes come first, then
    # removals, then additions
    if changes:
        return _build_request_with_sums(
            record, [nodes_after[change.node_id] for change in changes], entry_changes=changes
        )
    ids_to_remove = [id_ for id_ in changed_ids if entry_counts[id_] and id_ not in ids_to_change]
    if ids_to_remove:
        return _build_request_with_sums(
            record,
            removed_entries=[
                entry for entry in record.nodes.node_data if entry.id in ids_to_remove
            ],
        )
    nodes_to_add = [
        nodes_after[id_] for id_ in changed_ids if id_ in nodes_after and not entry_counts[id_]
    ]
    return (
        _build_request_with_sums(record, nodes_to_add)
        if nodes_to_add
        else build_sums_request(record)
    )


def build_sums_request(record: wire.Cluster) -> UpdateRequest | None:
    """Return an update to set a record's sums to the sums over the entries; None if equal."""
    body = _build_sum_changes(record, map(entry_to_declared, record.nodes.node_data))
    return UpdateRequest(body) if body else None


def build_node_addition(record: wire.Cluster, node: Values) -> UpdateRequest:
    """Return an update to add a node's entry to the record and to set the new sums."""
    return _build_request_with_sums(record, [node])


def build_node_removal(record: wire.Cluster, node_id: str, object_id: str | None) -> UpdateRequest:
    """Return an update to remove the entries with a node's id and to set the new sums.

    With Mongo's `object_id` no other entry with the same id is removed. The update names the node
    also if the record shows no such entry.
    """
    entries = [
        entry
        for entry in record.nodes.node_data
        if entry.id == node_id and object_id in (None, wire.parse_object_id(entry.object_id))
    ]
    entries = entries or [wire.Node(id=node_id, object_id=object_id)]
    return _build_request_with_sums(record, removed_entries=entries)


def build_node_change(record: wire.Cluster, node: Values) -> UpdateRequest | None:
    """Return an update of a node's differing fields and of the sums, or None if all are equal.

    `node` has the entry's `id` and the fields that may change. Without an entry of the node in
    `record`, only the sums are updated.
    """
    change = _find_entry_change(record, node)
    if change is None:
        return build_sums_request(record)
    return _build_request_with_sums(record, [node], entry_changes=[change])


def build_last_entry_removal(record: wire.Cluster, node: Values) -> UpdateRequest:
    """Return an update to remove the last one of several entries of the same node.

    The record must have an entry of the node. Without an id of Mongo's, the entry is found by all
    of its values.
    """
    last_entry = [entry for entry in record.nodes.node_data if entry.id == node["id"]][-1]
    object_id = wire.parse_object_id(last_entry.object_id)
    # two entries with the same id can only be distinguished by Mongo's id or all values
    conditions = (
        {"_id": object_id}
        if object_id
        else dict(_iterate_leaves(node_to_entry(entry_to_declared(last_entry)), ""))
    )
    return UpdateRequest({"$pull": {NODE_DATA: {"id": last_entry.id, **conditions}}})


def build_restoring_request(
    record: wire.Cluster, node_id: str, former_entry: wire.Node | None, fields: Values
) -> UpdateRequest | None:
    """Return an update to restore a node's former values of `fields`, or None.

    None if there is no former entry, if the entry is gone, or if the entry has these values.
    """
    positions = [
        position for position, entry in enumerate(record.nodes.node_data) if entry.id == node_id
    ]
    if former_entry is None or not positions:
        return None
    document = node_to_entry(entry_to_declared(former_entry))
    values = {path: get_value(document, path) for path in fields}
    values = {path: _REMOVED if value is None else value for path, value in values.items()}
    change = EntryChange(positions[0], node_id, values)
    return (
        None
        if change.is_in(record.nodes.node_data[positions[0]])
        else _build_entry_changes_request([change])
    )


def build_stray_removals(fields: Values) -> tuple[UpdateRequest, UpdateRequest]:
    """Return two requests to remove the entries created by a change behind the last index.

    Mongo then creates an entry with the new values and no id, after nulls that fill the array up to
    the index: the first request removes this entry, the second one the nulls.
    """
    scalar_values = {
        path: value for path, value in fields.items() if isinstance(value, str | int | float)
    }
    stray_entry = {"id": {"$exists": False}, **scalar_values}
    return UpdateRequest({"$pull": {NODE_DATA: stray_entry}}), UpdateRequest(
        {"$pull": {NODE_DATA: None}}
    )


def _find_entry_change(record: wire.Cluster, node: Values) -> EntryChange | None:
    """Return the changeable fields in which a record's entry differs from the declared `node`.

    None if the record has no entry of the node, or if nothing differs.
    """
    for index, entry in enumerate(record.nodes.node_data):
        if entry.id == node["id"]:
            fields = dict(
                _find_differences(
                    get_field_rules(NodeInputs), entry_to_declared(entry), node, "", ""
                )
            )
            return EntryChange(index, entry.id, fields) if fields else None
    return None


def _build_request_with_sums(
    record: wire.Cluster,
    nodes: Sequence[Values] = (),
    *,
    removed_entries: Sequence[wire.Node] = (),
    entry_changes: Sequence[EntryChange] = (),
) -> UpdateRequest:
    """Return an update with added, removed or changed entries and the new sums.

    `nodes` are the declared nodes to add or, with `entry_changes`, the declared nodes that change.
    """
    resulting_nodes = [
        entry_to_declared(entry) for entry in record.nodes.node_data if entry not in removed_entries
    ]
    if entry_changes:
        changed_nodes = {node["id"]: node for node in nodes}
        resulting_nodes = [
            {**node, **changed_nodes.get(node["id"], {})} for node in resulting_nodes
        ]
        # the sums are part of the same body, so that no reader sees entries without their sums
        request = _build_entry_changes_request(entry_changes)
    elif removed_entries:
        request = UpdateRequest(_build_removal(removed_entries))
    else:
        resulting_nodes = [*resulting_nodes, *map(dict, nodes)]
        request = UpdateRequest(
            _build_addition(nodes), added_ids=tuple(node["id"] for node in nodes)
        )
    return UpdateRequest(
        _merge_bodies(request.body, _build_sum_changes(record, resulting_nodes)),
        request.entry_changes,
        request.added_ids,
    )


def _build_sum_changes(record: wire.Cluster, entries: Iterable[Values]) -> Body:
    """Return the `$set` of each sum over `entries` with another value in `record`."""
    current, sums = cluster_to_declared(record), sum_reported_nodes(list(entries))
    outdated = {
        wire_path: sums[path]
        for wire_path, path in _SUM_PATHS.items()
        # last writer wins in the registry: only differing paths are written
        if path in sums and not is_equal(get_value(current, path), sums[path])
    }
    return {"$set": to_wire(_NO_RULES, outdated)} if outdated else {}


def _build_entry_changes_request(entry_changes: Sequence[EntryChange]) -> UpdateRequest:
    """Return an update to set the new values of entries, addressed by their indexes."""
    fields = [
        (f"{NODE_DATA}.{change.index}.{path}", value)
        for change in entry_changes
        for path, value in change.fields.items()
    ]
    return UpdateRequest(_build_body(iter(fields)), tuple(entry_changes))


def _find_differences(
    rules: Mapping[str, FieldRules],
    before: Values,
    after: Values,
    declared_prefix: str,
    wire_prefix: str,
) -> Iterator[tuple[str, Any]]:
    """Yield the registry's dotted path and the new value of each differing field.

    Immutable fields and the entries of nodes are left out. An undeclared field counts with its
    default, and not at all without one. `declared_prefix` and `wire_prefix` are the object's paths
    in the declaration and in the registry.
    """
    for name, field in rules.items():
        declared_path, wire_path = f"{declared_prefix}{name}", f"{wire_prefix}{to_wire_name(name)}"
        if not field.is_compared or field.immutable or declared_path == _NODE_DATA_INPUT:
            continue
        old_value, new_value = before.get(name), after.get(name)
        if new_value is None and old_value is not None and field.default is not None:
            new_value = field.default.value
        if new_value is None or field.is_equivalent(old_value, new_value):
            continue
        if field.nested_rules and isinstance(new_value, Mapping):
            yield from _find_differences(
                field.nested_rules, old_value or {}, new_value, f"{declared_path}.", f"{wire_path}."
            )
        else:
            yield from _find_free_differences(field, old_value, new_value, wire_path)


def _find_free_differences(
    rules: FieldRules, old: Any, new: Any, path: str
) -> Iterator[tuple[str, Any]]:
    """Yield path and new value of each difference between two JSON values of any type.

    Objects are compared key by key where Mongo can address the keys in a dotted path; a key that is
    gone has the new value `_REMOVED`.
    """
    are_objects = not rules.nested and isinstance(old, Mapping) and isinstance(new, Mapping)
    # a key with a dot or a leading $ would change the meaning of the path
    if not are_objects or not all(map(_is_path_key, {**old, **new})) or not new:
        yield path, to_wire(rules, new)
        return
    for key in {**new, **old}:
        if key not in new:
            yield f"{path}.{key}", _REMOVED
        elif key not in old or not is_equal(old[key], new[key]):
            yield from _find_free_differences(rules, old.get(key), new[key], f"{path}.{key}")


def _is_path_key(key: str) -> bool:
    """Return True if a dotted path reads ``key`` as one key, and not as an operator or an index."""
    return bool(key) and "." not in key and not key.startswith("$") and not key.isdigit()


def _build_body(differences: Iterator[tuple[str, Any]]) -> Body:
    """Return Mongo's `$set` and `$unset` for pairs of dotted path and new value or `_REMOVED`."""
    fields = list(differences)
    changed = {path: value for path, value in fields if value is not _REMOVED}
    removed = {path: "" for path, value in fields if value is _REMOVED}
    return {**({"$set": changed} if changed else {}), **({"$unset": removed} if removed else {})}


def _build_addition(nodes: Sequence[Values]) -> Body:
    """Return the `$addToSet` of entries: an entry that a proxy sends twice is added once."""
    # `$push` would add the entry again when a proxy repeats the request
    entries = [node_to_entry(node) for node in nodes]
    return {"$addToSet": {NODE_DATA: entries[0] if len(entries) == 1 else {"$each": entries}}}


def _build_removal(entries: Sequence[wire.Node]) -> Body:
    """Return the `$pull` of entries by id, and by Mongo's ids if every entry has one."""
    conditions = {"id": _match_any([entry.id for entry in entries])}
    object_ids = [wire.parse_object_id(entry.object_id) for entry in entries]
    if all(object_ids):
        conditions["_id"] = _match_any(object_ids)
    return {"$pull": {NODE_DATA: conditions}}


def _match_any(values: Sequence[Any]) -> Any:
    """Return a Mongo condition for any of the values: the value itself, or `$in`."""
    return values[0] if len(values) == 1 else {"$in": list(values)}


def _iterate_leaves(document: Values, path: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of each field of a document, without objects and lists."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _iterate_leaves(value, f"{path}{name}.")
        elif not isinstance(value, list):  # the items of a list may have ids of Mongo's
            yield f"{path}{name}", value


def _may_have_moved(node_id: str, index: int, before: wire.Cluster, record: wire.Cluster) -> bool:
    """Return True if a node's entry may have been at `index` while a request was sent.

    `before` and `record` are the record before and after the request. The entry moves to a lower
    index when entries in front of it are removed, and to a higher one when others are inserted
    there. An entry that is now on the other side of it was moved by somebody, or removed and added
    again.
    """
    ids_before, ids_now = ([entry.id for entry in it.nodes.node_data] for it in (before, record))
    position_before = ids_before.index(node_id) if node_id in ids_before else len(ids_before)
    ahead_before = set(ids_before[:position_before])
    ahead_now = set(ids_now[: ids_now.index(node_id)])
    shift = index - position_before
    return 0 < -shift <= len(ahead_before - ahead_now) or 0 < shift <= len(ahead_now - ahead_before)


def _has_value(document: Values, path: str, value: Any) -> bool:
    """Return True if a document has the value at a dotted path, or nothing for `_REMOVED`."""
    current = get_value(document, path)
    return current is None if value is _REMOVED else is_equal(current, value)


def _merge_bodies(*bodies: Body) -> Body:
    """Return one update body with the fields of several, operator by operator; later ones win."""
    merged: Body = {}
    for body in bodies:
        for operator, fields in body.items():
            merged[operator] = {**merged.get(operator, {}), **fields}
    return merged
