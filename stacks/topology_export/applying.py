"""Labels, annotations and objects in a cluster's own Kubernetes: shown first, then written.

Only keys that nobody else has set are written, and each write is refused by the API when the node
was changed since it was read. What was written is recorded, and taken back when it is no longer
wanted: where it still has the value that was written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from gpuform.providers.errors import Conflict, NotFound, UnknownOutcome
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient, retry_on_conflict
from gpuform.providers.kubernetes.nodes import NODES_PATH
from gpuform.stacks.topology_export.manifests import (
    MARK,
    Manifest,
    NodeMetadata,
    WholeObject,
    Written,
    WrittenRecords,
    document,
)
from gpuform.stacks.topology_export.model import NoTopology

_NODE: Final = "node/"


class Action(StrEnum):
    """What happens to one key or object; nothing is done about the last four.

    LEFT was ours, and is somebody else's by now: it is not taken back.
    """

    SET = "set"
    CHANGE = "change"
    REMOVE = "remove"
    SAME = "same"
    LEFT = "left"
    CONFLICT = "conflict"
    ABSENT = "absent"


DONE: Final = frozenset({Action.SET, Action.CHANGE, Action.REMOVE})
"""The actions that write something."""


@dataclass(frozen=True, slots=True)
class Change:
    """One of them. `part` is labels, annotations, or empty for a whole object and its `where`.

    `there` is what is there now, `wanted` what will be; None stands for nothing.
    """

    action: Action
    where: str
    part: str = ""
    key: str = ""
    there: str | None = None
    wanted: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A Kubernetes, what is recorded of it, and the mark of the stack on its objects."""

    client: KubernetesClient
    records: WrittenRecords
    written: Written
    mark: str


def planned(target: Target, manifests: Sequence[Manifest]) -> list[Change]:
    """What writing these would do; without manifests, what taking all back would do.

    Sends reads alone. Raises GpuformError when the API cannot be asked.
    """
    wanted = {each.name: each for each in manifests if isinstance(each, NodeMetadata)}
    objects = [each for each in manifests if isinstance(each, WholeObject)]
    nodes = {each["metadata"]["name"]: each for each in target.client.list_objects(NODES_PATH)}
    changes = [_object_change(target, each) for each in objects]
    for name in sorted({*wanted, *target.written.nodes}):
        if name in nodes:
            changes += _node_changes(target.written, nodes[name], wanted.get(name))
        elif name in wanted:
            changes.append(Change(Action.ABSENT, f"{_NODE}{name}"))
    paths = {_path(each) for each in objects}
    for path in reversed(target.written.objects):
        if path not in paths:
            changes += _removal(target, path)
    return changes


def carried_out(target: Target, manifests: Sequence[Manifest]) -> list[Change]:
    """Writes them, and takes back what was written before and is no longer wanted.

    Each node and object is looked at again right before. The record names what is written before it
    is sent. Raises GpuformError; what was done until then is in the record.
    """
    wanted = {each.name: each for each in manifests if isinstance(each, NodeMetadata)}
    objects = [each for each in manifests if isinstance(each, WholeObject)]
    done: list[Change] = []
    _announce(target, planned(target, manifests), objects)
    try:
        for each in objects:
            done += [_write_object(target, each)]
        for name in sorted({*wanted, *target.written.nodes}):
            done += _write_node(target, name, wanted.get(name))
        paths = {_path(each) for each in objects}
        for path in reversed([*target.written.objects]):
            if path not in paths:
                done += _remove_object(target, path)
    finally:
        target.records.keep(target.written)
    return done


def _announce(target: Target, changes: Iterable[Change], objects: Iterable[WholeObject]) -> None:
    """Keeps what is about to be written, so that a run that is killed leaves nothing unknown."""
    written = target.written
    for each in changes:
        if each.action in {Action.SET, Action.CHANGE} and each.wanted is not None:
            written.announce(each.where.removeprefix(_NODE), each.part, each.key, each.wanted)
    written.objects = list(dict.fromkeys([*written.objects, *map(_path, objects)]))
    target.records.keep(written)


def _values(manifest: NodeMetadata | None) -> Iterator[tuple[str, str, str]]:
    if manifest is not None:
        yield from (("labels", key, value) for key, value in manifest.labels.items())
        yield from (("annotations", key, value) for key, value in manifest.annotations.items())


def _node_changes(
    written: Written, node: Mapping[str, Any], manifest: NodeMetadata | None
) -> Iterator[Change]:
    name = str(node["metadata"]["name"])
    where = f"{_NODE}{name}"
    wanted = {(part, key): value for part, key, value in _values(manifest)}
    for (part, key), value in wanted.items():
        there = _there(node, part, key)
        action = Action.CONFLICT
        if there is None:
            action = Action.SET
        elif there == value:
            action = Action.SAME
        elif written.is_ours(name, part, key, there):
            action = Action.CHANGE
        yield Change(action, where, part, key, there, value)
    for part, key in list(written.keys(name)):
        there = _there(node, part, key)
        if (part, key) not in wanted and there is not None:
            is_ours = written.is_ours(name, part, key, there)
            action = Action.REMOVE if is_ours else Action.LEFT
            yield Change(action, where, part, key, there, None)


def _there(node: Mapping[str, Any], part: str, key: str) -> str | None:
    found = (node["metadata"].get(part) or {}).get(key)
    return None if found is None else str(found)


def _write_node(target: Target, name: str, manifest: NodeMetadata | None) -> list[Change]:
    changes: list[Change] = []
    retry_on_conflict(partial(_write_node_once, target, name, manifest, changes))
    written = target.written
    kept = {
        (each.part, each.key): each.wanted
        for each in changes
        if each.action in DONE
        or (
            each.action is Action.SAME
            and each.there is not None
            and written.is_ours(name, each.part, each.key, each.there)
        )
    }
    written.nodes.pop(name, None)
    for (part, key), value in kept.items():
        written.note(name, part, key, value)
    return changes


def _write_node_once(
    target: Target, name: str, manifest: NodeMetadata | None, changes: list[Change]
) -> None:
    changes.clear()
    try:
        node = target.client.get_object(NODES_PATH + build_path(name))
    except NotFound:
        if manifest is not None:
            changes.append(Change(Action.ABSENT, f"{_NODE}{name}"))
        return
    changes += _node_changes(target.written, node, manifest)
    metadata: dict[str, Any] = {}
    for each in changes:
        if each.action in DONE:
            metadata.setdefault(each.part, {})[each.key] = each.wanted
    if metadata:
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, **metadata}}
        target.client.patch_object(NODES_PATH + build_path(name), patch)


def _path(manifest: WholeObject) -> str:
    return _folder(manifest) + build_path(manifest.name)


def _folder(manifest: WholeObject) -> str:
    version = manifest.api_version
    folder = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces{build_path(manifest.namespace)}" if manifest.namespace else ""
    return f"{folder}{place}/{manifest.plural}"


def _where(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _found(target: Target, path: str) -> Mapping[str, Any] | None:
    try:
        return target.client.get_object(path)
    except NotFound:
        return None


def _is_ours(target: Target, found: Mapping[str, Any]) -> bool:
    return (found["metadata"].get("annotations") or {}).get(MARK) == target.mark


def _object_change(target: Target, manifest: WholeObject) -> Change:
    path = _path(manifest)
    found = _found(target, path)
    where = _where(path)
    if found is None:
        return Change(Action.SET, where)
    if not _is_ours(target, found):
        return Change(Action.CONFLICT, where)
    same = all(found.get(name) == value for name, value in manifest.content.items())
    return Change(Action.SAME if same else Action.CHANGE, where)


def _removal(target: Target, path: str) -> Iterator[Change]:
    found = _found(target, path)
    if found is not None:
        action = Action.REMOVE if _is_ours(target, found) else Action.LEFT
        yield Change(action, _where(path))


def _write_object(target: Target, manifest: WholeObject) -> Change:
    path = _path(manifest)
    change = _object_change(target, manifest)
    if change.action is Action.SET:
        try:
            target.client.create_object(_folder(manifest), document(manifest, target.mark))
        except NotFound:
            raise NoTopology(
                f"the cluster has no namespace {manifest.namespace}, where {_where(path)} would be",
                hint="give the namespace of Slurm: --namespace NAME",
            ) from None
        except (Conflict, UnknownOutcome):  # somebody was first, or it was made after all
            change = _object_change(target, manifest)
            if change.action is Action.SET:
                raise
            change = Change(Action.SET if change.action is Action.SAME else change.action, path)
    elif change.action is Action.CHANGE:
        retry_on_conflict(partial(_change_object, target, manifest))
    objects = target.written.objects
    if change.action is Action.CONFLICT:
        target.written.objects = [each for each in objects if each != path]
    elif path not in objects:
        objects.append(path)
    return change


def _change_object(target: Target, manifest: WholeObject) -> None:
    """A merge patch: what is no longer wanted at the top of the content goes."""
    found = _found(target, _path(manifest))
    if found is None or not _is_ours(target, found):
        raise NoTopology(
            f"{_where(_path(manifest))} was changed by somebody else meanwhile",
            hint="run it again",
        )
    content = {
        name: {**dict.fromkeys(found.get(name) or {}), **value}
        for name, value in manifest.content.items()
    }
    version = found["metadata"]["resourceVersion"]
    target.client.patch_object(
        _path(manifest), {"metadata": {"resourceVersion": version}, **content}
    )


def _remove_object(target: Target, path: str) -> Iterator[Change]:
    found = _found(target, path)
    if found is not None and _is_ours(target, found):
        uid = found["metadata"]["uid"]
        with suppress(NotFound):
            target.client.delete_object(path, {"preconditions": {"uid": uid}})
        yield Change(Action.REMOVE, _where(path))
    elif found is not None:
        yield Change(Action.LEFT, _where(path))
    target.written.objects = [each for each in target.written.objects if each != path]


def served_version(client: KubernetesClient, group: str, wanted: str, what: str) -> str:
    """The group and version that this API serves: the wanted one, else the one it prefers.

    Raises NoTopology, with what to install, when it serves none.
    """
    groups = client.get_object("/apis").get("groups") or ()
    found = next((each for each in groups if each.get("name") == group), None)
    if found is None:
        raise NoTopology(
            f"there is no {what} in this cluster: its Kubernetes does not serve {group}",
            hint=f"install {what} there first, as its documentation says: gpuform does not",
        )
    versions = [str(each.get("groupVersion")) for each in found.get("versions") or ()]
    if f"{group}/{wanted}" in versions:
        return f"{group}/{wanted}"
    return str((found.get("preferredVersion") or {}).get("groupVersion") or versions[0])
