"""Plan and write labels, annotations and objects in a cluster's own Kubernetes.

Only keys that nobody else has set are written, and the API refuses each write to a node that
changed since it was read. Written values are recorded. A later run removes values that are no
longer desired, if they still are as recorded. `stacks/operations/topology_export` calls
`plan_changes` and `apply_changes`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from gpuform.providers.errors import ApiError, Conflict, NotFound, UnknownOutcome
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient, retry_on_conflict
from gpuform.providers.kubernetes.scheduler import NODES_PATH
from gpuform.stacks.topology_export.manifests import (
    OWNER_ANNOTATION,
    Manifest,
    NodeMetadata,
    OwnedObject,
    WriteRecord,
    WriteRecords,
    build_document,
)
from gpuform.stacks.topology_export.model import NoTopology

_NODE_PREFIX: Final = "node/"
_GROUPS_PATH: Final = "/apis"
_GROUP_AND_VERSION: Final = re.compile(r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/")


class KeyAction(StrEnum):
    """Say what happens to one key or object; the last four actions write nothing.

    LEFT: gpuform wrote the value, but somebody else has changed it since, so it is not removed.
    CONFLICT: somebody else has set the value. ABSENT: the cluster has no such node.
    """

    SET = "set"
    CHANGE = "change"
    REMOVE = "remove"
    SAME = "same"
    LEFT = "left"
    CONFLICT = "conflict"
    ABSENT = "absent"


WRITING_ACTIONS: Final = frozenset({KeyAction.SET, KeyAction.CHANGE, KeyAction.REMOVE})
"""The actions that write to the cluster."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one key of a node, or of one object.

    `where` is `node/NAME` or `RESOURCE/NAME`. `part` is `labels`, `annotations`, or empty for an
    object. None as a value means that the key is not set.
    """

    action: KeyAction
    where: str
    part: str = ""
    key: str = ""
    current_value: str | None = None
    desired_value: str | None = None


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """A Kubernetes cluster, the record of what gpuform wrote there, and the stack's owner label."""

    client: KubernetesClient
    records: WriteRecords
    record: WriteRecord
    owner_label: str


def plan_changes(target: ExportTarget, manifests: Sequence[Manifest]) -> list[Change]:
    """Return the changes that `apply_changes` would make, with reads only.

    Without manifests, everything recorded is removed. Raises GpuformError if the API does not
    answer.
    """
    desired_nodes, objects = _split_manifests(manifests)
    nodes = {node["metadata"]["name"]: node for node in target.client.list_objects(NODES_PATH)}
    changes = [_plan_object_change(target, manifest) for manifest in objects]
    served_paths = _find_served_paths(target, objects).values()
    for name in sorted({*desired_nodes, *target.record.nodes}):
        if name in nodes:
            changes += _plan_node_changes(target.record, nodes[name], desired_nodes.get(name))
        elif name in desired_nodes:
            # A node of the platform may not have joined the cluster.
            changes.append(Change(KeyAction.ABSENT, f"{_NODE_PREFIX}{name}"))
    paths = {_build_object_path(manifest) for manifest in objects}
    for path in reversed(list(dict.fromkeys(served_paths))):
        if path is not None and path not in paths:
            changes += _plan_removal(target, path)
    return changes


def apply_changes(target: ExportTarget, manifests: Sequence[Manifest]) -> list[Change]:
    """Write the manifests, remove recorded values that are not desired, and return the changes.

    Reads each node and object again right before the write. Changes `target.record` and saves it,
    also after a failure. Raises GpuformError if the API refuses or does not answer, and NoTopology
    for an object that changes meanwhile.
    """
    desired_nodes, objects = _split_manifests(manifests)
    changes: list[Change] = []
    served_paths = _find_served_paths(target, objects)
    # Software that is not installed now may come back with its objects: their record stays.
    unserved_paths = {path for path, served_path in served_paths.items() if served_path is None}
    target.record.objects = list(
        dict.fromkeys(served_path or path for path, served_path in served_paths.items())
    )
    # First of all: a run that is killed after a write must find the value in the record.
    _record_planned_writes(target, plan_changes(target, manifests), objects)
    try:
        for manifest in objects:
            changes += [_write_object(target, manifest)]
        for name in sorted({*desired_nodes, *target.record.nodes}):
            changes += _write_node(target, name, desired_nodes.get(name))
        paths = {_build_object_path(manifest) for manifest in objects}
        # A copy: removals shorten the list. Objects written last may depend on earlier ones.
        for path in reversed([*target.record.objects]):
            if path not in paths and path not in unserved_paths:
                changes += _remove_object(target, path)
    finally:
        target.records.save(target.record)
    return changes


def _split_manifests(
    manifests: Sequence[Manifest],
) -> tuple[dict[str, NodeMetadata], list[OwnedObject]]:
    nodes = [manifest for manifest in manifests if isinstance(manifest, NodeMetadata)]
    objects = [manifest for manifest in manifests if isinstance(manifest, OwnedObject)]
    return {manifest.name: manifest for manifest in nodes}, objects


def _find_served_paths(
    target: ExportTarget, objects: Iterable[OwnedObject]
) -> dict[str, str | None]:
    """Return for each recorded API path the path in a version that the cluster serves now.

    An object of `objects` gets the path of its manifest. Another one keeps its recorded version if
    that is still served, and else gets the version that the cluster prefers. None stands for an
    object whose API group is not served. Sends one read if an object of an API group is recorded.
    """
    recorded_paths = target.record.objects
    if not any(map(_GROUP_AND_VERSION.match, recorded_paths)):
        return {path: path for path in recorded_paths}
    versions_by_group = _list_served_versions(target.client)
    # One object has a path in each served version. Kueue 0.15 to 0.19 serve v1beta1 and v1beta2:
    # the older path of a desired object must not be removed as if it were another object.
    desired_paths = {
        _replace_version(path, ""): path
        for path in (_build_object_path(manifest) for manifest in objects)
    }

    def find_served_path(path: str) -> str | None:
        match = _GROUP_AND_VERSION.match(path)
        if match is None:
            return path
        versions = versions_by_group.get(match["group"])
        if not versions:
            return None
        # Kueue 0.20 serves no v1beta1: an object that was written so is found as v1beta2 alone.
        is_served = match["version"] in versions
        served_path = path if is_served else _replace_version(path, versions[0])
        return desired_paths.get(_replace_version(path, ""), served_path)

    return {path: find_served_path(path) for path in recorded_paths}


def _replace_version(path: str, version: str) -> str:
    """Return the API path of an object with another version; core objects keep their path."""
    return _GROUP_AND_VERSION.sub(rf"/apis/\g<group>/{version}/", path)


def _record_planned_writes(
    target: ExportTarget, changes: Iterable[Change], objects: Iterable[OwnedObject]
) -> None:
    """Save the planned values and objects before any write.

    A killed run leaves nothing unrecorded.
    """
    record = target.record
    for change in changes:
        if change.action in {KeyAction.SET, KeyAction.CHANGE} and change.desired_value is not None:
            node = change.where.removeprefix(_NODE_PREFIX)
            record.add_value(node, change.part, change.key, change.desired_value)
    record.objects = list(dict.fromkeys([*record.objects, *map(_build_object_path, objects)]))
    target.records.save(record)


def _iterate_metadata(manifest: NodeMetadata | None) -> Iterator[tuple[str, str, str]]:
    """Yield the part (`labels` or `annotations`), key and value of each entry; nothing for None."""
    if manifest is not None:
        yield from (("labels", key, value) for key, value in manifest.labels.items())
        yield from (("annotations", key, value) for key, value in manifest.annotations.items())


def _plan_node_changes(
    record: WriteRecord, node: Mapping[str, Any], manifest: NodeMetadata | None
) -> Iterator[Change]:
    """Yield the change of each desired key of a node, and of each recorded key no longer desired.

    None as `manifest` means that no key is desired. No request is sent.
    """
    name = str(node["metadata"]["name"])
    where = f"{_NODE_PREFIX}{name}"
    desired_values = {(part, key): value for part, key, value in _iterate_metadata(manifest)}
    for (part, key), value in desired_values.items():
        current_value = _get_metadata_value(node, part, key)
        action = KeyAction.CONFLICT
        if current_value is None:
            action = KeyAction.SET
        elif current_value == value:
            action = KeyAction.SAME
        elif record.is_ours(name, part, key, current_value):
            action = KeyAction.CHANGE
        yield Change(action, where, part, key, current_value, value)
    # Recorded keys that no manifest has any more.
    for part, key in list(record.iterate_keys(name)):
        current_value = _get_metadata_value(node, part, key)
        if (part, key) not in desired_values and current_value is not None:
            is_ours = record.is_ours(name, part, key, current_value)
            action = KeyAction.REMOVE if is_ours else KeyAction.LEFT
            yield Change(action, where, part, key, current_value, None)


def _get_metadata_value(node: Mapping[str, Any], part: str, key: str) -> str | None:
    """Return the node's value of a label or annotation as text, or None if it is not set.

    `part` is `labels` or `annotations`.
    """
    value = (node["metadata"].get(part) or {}).get(key)
    return None if value is None else str(value)


def _write_node(target: ExportTarget, name: str, manifest: NodeMetadata | None) -> list[Change]:
    """Write a node's labels and annotations, and return the changes.

    In the target's record, the node has then only values that gpuform wrote. None as `manifest`
    removes the recorded values. The record is not saved.
    """
    changes: list[Change] = []
    retry_on_conflict(partial(_patch_node, target, name, manifest, changes))
    record = target.record
    owned_values = {
        (change.part, change.key): change.desired_value
        for change in changes
        if change.action in WRITING_ACTIONS
        or (
            change.action is KeyAction.SAME
            and change.current_value is not None
            and record.is_ours(name, change.part, change.key, change.current_value)
        )
    }
    # The record may name more: values planned by a run that was killed before it sent them.
    record.nodes.pop(name, None)
    for (part, key), value in owned_values.items():
        record.replace_value(name, part, key, value)
    return changes


def _patch_node(
    target: ExportTarget, name: str, manifest: NodeMetadata | None, changes: list[Change]
) -> None:
    """Read the node, replace the content of `changes`, and send one patch with all of them.

    A missing node is ABSENT. Raises Conflict for a node that somebody changes meanwhile.
    """
    # After a conflict this is called again with a node that somebody changed.
    changes.clear()
    try:
        node = target.client.get_object(NODES_PATH + build_path(name))
    except NotFound:
        if manifest is not None:
            changes.append(Change(KeyAction.ABSENT, f"{_NODE_PREFIX}{name}"))
        return
    changes += _plan_node_changes(target.record, node, manifest)
    metadata: dict[str, Any] = {}
    for change in changes:
        if change.action in WRITING_ACTIONS:
            metadata.setdefault(change.part, {})[change.key] = change.desired_value
    if metadata:
        version = node["metadata"]["resourceVersion"]
        # With a version, the API refuses the patch of a node that changed since it was read.
        patch = {"metadata": {"resourceVersion": version, **metadata}}
        target.client.patch_object(NODES_PATH + build_path(name), patch)


def _build_object_path(manifest: OwnedObject) -> str:
    return _build_collection_path(manifest) + build_path(manifest.name)


def _build_collection_path(manifest: OwnedObject) -> str:
    """Return the API path to which a new object of the manifest's kind is posted."""
    version = manifest.api_version
    # Kubernetes serves its core group, such as `v1`, under /api.
    api_path = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace_path = f"/namespaces{build_path(manifest.namespace)}" if manifest.namespace else ""
    return f"{api_path}{namespace_path}/{manifest.plural}"


def _format_location(path: str) -> str:
    """Return the last two parts of an object's API path: RESOURCE/NAME."""
    return "/".join(path.split("/")[-2:])


def _find_object(target: ExportTarget, path: str) -> Mapping[str, Any] | None:
    """Return the object at an API path, or None if it does not exist."""
    try:
        return target.client.get_object(path)
    except NotFound:
        return None


def _is_owned(target: ExportTarget, existing_object: Mapping[str, Any]) -> bool:
    """Return True if the object's owner annotation names the target's stack."""
    annotations = existing_object["metadata"].get("annotations") or {}
    return bool(annotations.get(OWNER_ANNOTATION) == target.owner_label)


def _plan_object_change(target: ExportTarget, manifest: OwnedObject) -> Change:
    """Return the change that would write an object: SET if missing, CHANGE or SAME if owned.

    An object of another owner is a CONFLICT. Only a read is sent.
    """
    path = _build_object_path(manifest)
    existing_object = _find_object(target, path)
    where = _format_location(path)
    if existing_object is None:
        return Change(KeyAction.SET, where)
    if not _is_owned(target, existing_object):
        return Change(KeyAction.CONFLICT, where)
    is_same = all(existing_object.get(name) == value for name, value in manifest.content.items())
    return Change(KeyAction.SAME if is_same else KeyAction.CHANGE, where)


def _plan_removal(target: ExportTarget, path: str) -> Iterator[Change]:
    existing_object = _find_object(target, path)
    if existing_object is not None:
        action = KeyAction.REMOVE if _is_owned(target, existing_object) else KeyAction.LEFT
        yield Change(action, _format_location(path))


def _write_object(target: ExportTarget, manifest: OwnedObject) -> Change:
    """Create or change an object, record its path, and return the change.

    An object of another owner stays as it is, and its path leaves the record. The record is not
    saved. Raises NoTopology if the namespace does not exist, if the object changes meanwhile, or if
    Kubernetes refuses the change.
    """
    path = _build_object_path(manifest)
    change = _plan_object_change(target, manifest)
    if change.action is KeyAction.SET:
        try:
            target.client.create_object(
                _build_collection_path(manifest), build_document(manifest, target.owner_label)
            )
        except NotFound:
            raise NoTopology(
                f"namespace {manifest.namespace} not found in the cluster: gpuform would "
                f"write {_format_location(path)} there",
                hint="pass the namespace of Slurm: --namespace NAME",
            ) from None
        # Plan again: an equal object counts as created by this run.
        except (Conflict, UnknownOutcome):  # somebody was first, or it was made after all
            change = _plan_object_change(target, manifest)
            if change.action is KeyAction.SET:
                raise
            if change.action is KeyAction.SAME:
                change = replace(change, action=KeyAction.SET)
    elif change.action is KeyAction.CHANGE:
        retry_on_conflict(partial(_patch_object, target, manifest))
    recorded_paths = target.record.objects
    # Somebody else's object must never be removed by a later run.
    if change.action is KeyAction.CONFLICT:
        target.record.objects = [other for other in recorded_paths if other != path]
    elif path not in recorded_paths:
        recorded_paths.append(path)
    return change


def _patch_object(target: ExportTarget, manifest: OwnedObject) -> None:
    """Replace the content of an object of the stack.

    Raises NoTopology if it was deleted or has another owner by now, or if Kubernetes refuses the
    new content.
    """
    existing_object = _find_object(target, _build_object_path(manifest))
    if existing_object is None or not _is_owned(target, existing_object):
        raise NoTopology(
            f"another program changed {_format_location(_build_object_path(manifest))} meanwhile",
            hint="run the command again",
        )
    content = {
        # A merge patch keeps members that it does not name: None removes them.
        name: {**dict.fromkeys(existing_object.get(name) or {}), **value}
        for name, value in manifest.content.items()
    }
    version, path = existing_object["metadata"]["resourceVersion"], _build_object_path(manifest)
    try:
        target.client.patch_object(path, {"metadata": {"resourceVersion": version}, **content})
    except ApiError as error:
        if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        # Before Kueue 0.20, the levels of a Topology never change.
        raise NoTopology(
            f"{_format_location(path)} cannot be changed: {error.message}",
            hint="if no workload uses it, remove what gpuform wrote and write it again: "
            "--remove, then --apply",
        ) from None


def _remove_object(target: ExportTarget, path: str) -> Iterator[Change]:
    """Delete a recorded object, and yield the removal; nothing for a missing object.

    An object of another owner stays (LEFT). The path leaves the record in every case.
    """
    existing_object = _find_object(target, path)
    if existing_object is not None and _is_owned(target, existing_object):
        # The uid keeps an object that was recreated under the same name meanwhile.
        uid = existing_object["metadata"]["uid"]
        # Somebody else may have deleted the object meanwhile.
        with suppress(NotFound):
            target.client.delete_object(path, {"preconditions": {"uid": uid}})
        yield Change(KeyAction.REMOVE, _format_location(path))
    elif existing_object is not None:
        yield Change(KeyAction.LEFT, _format_location(path))
    target.record.objects = [other for other in target.record.objects if other != path]


def find_served_version(
    client: KubernetesClient, group: str, preferred_version: str, product: str
) -> str:
    """Return the served `GROUP/VERSION`: `preferred_version` if possible, else the API's choice.

    `product` names the software in the message. Raises NoTopology if the API does not serve the
    group, and GpuformError if it does not answer.
    """
    versions = _list_served_versions(client).get(group)
    if not versions:
        raise NoTopology(
            f"{product} is not installed in this cluster: its Kubernetes does not serve {group}",
            hint=f"install {product} in the cluster first; gpuform does not install it",
        )
    return f"{group}/{preferred_version if preferred_version in versions else versions[0]}"


def _list_served_versions(client: KubernetesClient) -> dict[str, list[str]]:
    """Return the versions of each API group that the cluster serves, the preferred one first.

    Raises GpuformError if the API does not answer.
    """
    # The list of groups is readable also without the custom resources.
    return {
        str(group.get("name")): [
            str(version.get("version"))
            for version in (group.get("preferredVersion"), *(group.get("versions") or ()))
            if version
        ]
        for group in client.get_object(_GROUPS_PATH).get("groups") or ()
    }
