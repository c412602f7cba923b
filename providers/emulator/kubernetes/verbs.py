"""Create, replace, patch, delete and evict objects, without HTTP.

`routes` and `controllers` call this module. PATCH takes JSON merge patch, strategic merge patch and
JSON patch.
"""

from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.kubernetes.admission import check_change, complete_new_object
from gpuform.providers.emulator.kubernetes.kinds import (
    BUDGET,
    NAMESPACE,
    POD,
    Kind,
    StatusError,
    make_conflict,
    make_not_found,
)
from gpuform.providers.emulator.kubernetes.objects import ClusterObjects, Object
from gpuform.providers.emulator.kubernetes.pods import is_active, list_budgets, mark_evicted

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

# Lists that a strategic patch merges by a key of their items (the API's `patchMergeKey`).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
}
_PLAIN_LISTS = {"finalizers"}


def apply_patch(old: dict[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """Return the object after a patch of the content type `content_type`.

    Raises `StatusError`: 415 for an unknown content type, 400 or 422 for a bad patch.
    """
    if content_type == JSON_PATCH:
        return _apply_json_patch(old, patch)
    if content_type not in {MERGE_PATCH, STRATEGIC_PATCH}:
        raise StatusError(415, f"the body of the request was in an unknown format: {content_type}")
    if not isinstance(patch, dict):
        raise StatusError(400, "a merge patch is a JSON object")
    merged: dict[str, Any] = _merge(old, patch, is_strategic=content_type == STRATEGIC_PATCH)
    return merged


def _merge(old: Any, patch: Any, *, is_strategic: bool, name: str = "") -> Any:
    """Return a copy of `old` with a patch applied: null removes a member, objects are merged.

    Other values replace old ones. Only a strategic patch merges lists, as the field `name` says,
    and has directives.
    """
    if is_strategic and isinstance(patch, list) and isinstance(old, list):
        return _merge_list(old, patch, name)
    if not isinstance(patch, dict):
        return deepcopy(patch)
    patch = dict(patch)
    # Directives of strategic merge patches; a plain merge patch has no such keys.
    directive = patch.pop("$patch", None) if is_strategic else None
    new = deepcopy(old) if isinstance(old, dict) and directive != "replace" else {}
    for key, value in patch.items():
        if is_strategic and key.startswith("$"):
            _apply_directive(new, key, value)
        elif value is None or (is_strategic and _is_deletion(value)):
            new.pop(key, None)
        else:
            new[key] = _merge(new.get(key), value, is_strategic=is_strategic, name=key)
    return new


def _is_deletion(value: Any) -> bool:
    """Return whether a strategic patch asks to delete an item: `$patch: delete`."""
    return isinstance(value, dict) and value.get("$patch") == "delete"


def _merge_list(old: list[Any], patch: list[Any], name: str) -> list[Any]:
    """Return the list of the field `name` after a strategic patch: merged, extended or replaced.

    Lists of objects with a known merge key are merged, finalizers extended, all others replaced.
    """
    if name in _PLAIN_LISTS:
        return [*old, *(value for value in patch if value not in old)]
    key = _MERGE_KEYS.get(name)
    if key is None:
        return deepcopy(patch)
    # By the merge key: an item of the patch changes the old item of its key.
    new = {item[key]: deepcopy(item) for item in old}
    for item in patch:
        if item == {"$patch": "replace"}:
            return [other for other in deepcopy(patch) if "$patch" not in other]
        if item.get("$patch") == "delete":
            new.pop(item[key], None)
        else:
            new[item[key]] = _merge(new.get(item[key]), item, is_strategic=True)
    return list(new.values())


def _apply_directive(new: dict[str, Any], directive: str, values: Any) -> None:
    """Apply `$deleteFromPrimitiveList/...` or `$retainKeys` to `new`, in place; ignore others."""
    # The order of list items, which `$setElementOrder` gives, is of no consequence here.
    verb, _, name = directive.partition("/")
    if verb == "$deleteFromPrimitiveList" and name in new:
        new[name] = [value for value in new[name] if value not in values]
    if verb == "$retainKeys":
        for key in set(new) - set(values):
            del new[key]


def _apply_json_patch(old: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return an object after the steps of a JSON patch (RFC 6902). Raises `StatusError` 422."""
    document = {"": deepcopy(old)}
    try:
        for step in patch:
            _apply_step(document, step)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, message, reason="Invalid") from error
    result: dict[str, Any] = document[""]
    return result


def _apply_step(document: dict[str, Any], step: dict[str, Any]) -> None:
    """Apply one step of a JSON patch to `document` (`{"": object}`), in place.

    Raises KeyError, IndexError, TypeError or ValueError for a step that cannot be applied.
    """
    operation, path = step["op"], step["path"]
    if operation in {"move", "copy"}:
        value = deepcopy(_resolve_path(document, step["from"]))
        if operation == "move":
            _apply_step(document, {"op": "remove", "path": step["from"]})
        _apply_step(document, {"op": "add", "path": path, "value": value})
        return
    if operation == "test":
        if _resolve_path(document, path) != step["value"]:
            raise ValueError(f"testing path {path} failed")
        return
    if operation not in {"add", "replace", "remove"}:
        raise ValueError(f"unknown operation {operation!r}")
    parent, last = _resolve_parent(document, path)
    if isinstance(parent, list):
        _apply_to_list(parent, last, step)
        return
    if operation != "add":
        del parent[last]  # KeyError for a missing member
    if operation != "remove":
        parent[last] = step["value"]


def _apply_to_list(items: list[Any], last: str, step: dict[str, Any]) -> None:
    """Add, replace or remove the item at index `last` (`-`: the end), in place, as a step says."""
    index = len(items) if last == "-" else int(last)
    if step["op"] != "add":
        del items[index]
    if step["op"] != "remove":
        items.insert(index, step["value"])


def _resolve_parent(document: dict[str, Any], path: str) -> tuple[Any, str]:
    """Return the object or list around the target of a JSON pointer, and the last key."""
    folder, _, last = path.rpartition("/")
    return _resolve_path(document, folder) if path else document, _unescape(last)


def _resolve_path(document: dict[str, Any], path: str) -> Any:
    """Return the value at a JSON pointer.

    Raises KeyError, IndexError, TypeError or ValueError for a pointer to nothing.
    """
    value: Any = document[""]
    for part in path.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[_unescape(part)]
    return value


def _unescape(part: str) -> str:
    """Return a part of a JSON pointer with `~1` and `~0` decoded."""
    return part.replace("~1", "/").replace("~0", "~")


_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True)
class ObjectAddress:
    """An object, or a list of objects; `name` and `part` (the subresource) may be empty."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    part: str = ""


def get_object(objects: ClusterObjects, address: ObjectAddress) -> Object:
    """Return the object at an address. Raises `StatusError` 404."""
    stored_object = objects.get(address.kind, address.name, address.namespace)
    if stored_object is None:
        raise make_not_found(address.kind.resource, address.name)
    return stored_object


def create_object(objects: ClusterObjects, address: ObjectAddress, body: Object) -> Object:
    """Store a new object in the address's namespace and return it with the server's additions.

    Raises `StatusError`: 409 for a name in use, 400, 404 or 422 for an object that is refused.
    """
    kind = address.kind
    if body.get("kind", kind.name) != kind.name:
        raise StatusError(400, f"the object provided is a {body['kind']}, not a {kind.name}")
    new = complete_new_object(objects, kind, body, address.namespace)
    name = new["metadata"]["name"]
    # Last: a malformed object is refused for its form, also if its name is taken.
    if objects.get(kind, name, address.namespace) is not None:
        raise StatusError(
            409,
            f'{kind.resource} "{name}" already exists',
            reason="AlreadyExists",
            details={"name": name, "kind": kind.plural},
        )
    return objects.add(kind, new)


def replace_object(objects: ClusterObjects, address: ObjectAddress, body: Object) -> Object:
    """Replace an object by the body, at `status` only its status, and return the new object.

    An object being deleted is removed with its last finalizer. Raises `StatusError`: 404, 409 for
    an old version or another uid, 422 or 403 for a forbidden change.
    """
    old = get_object(objects, address)
    return _store_change(objects, address, old, body)


def patch_object(
    objects: ClusterObjects, address: ObjectAddress, body: Any, content_type: str
) -> Object:
    """Patch an object, at `status` only its status, and return the new object.

    An object being deleted is removed with its last finalizer. Raises `StatusError`: 404, 409 for
    an old version or another uid, 400, 415 or 422 for a bad patch, 422 or 403 for a forbidden
    change.
    """
    old = get_object(objects, address)
    return _store_change(objects, address, old, apply_patch(old, body, content_type))


def _store_change(
    objects: ClusterObjects, address: ObjectAddress, old: Object, new: Object
) -> Object:
    """Store a change: `status` alone at that subresource, everything but `status` elsewhere.

    Returns the stored object. Removes an object being deleted, other than a pod, whose last
    finalizer is gone. Raises `StatusError`: 409 for an old version or another uid, 422 or 403 for a
    forbidden change.
    """
    new_metadata = new.get("metadata", {})
    # A client that sends the version it has read wants to know of a change in between.
    if new_metadata.get("resourceVersion") not in {None, "", old["metadata"]["resourceVersion"]}:
        raise make_conflict(address.kind.resource, address.name)
    if new_metadata.get("uid") not in {None, "", old["metadata"]["uid"]}:
        raise make_conflict(address.kind.resource, address.name)
    if address.part == "status":
        return objects.replace(address.kind, old, {**old, "status": new.get("status", {})})
    fixed_fields = {
        field: old["metadata"][field]
        for field in ("uid", "creationTimestamp", "generation", "deletionTimestamp")
        if field in old["metadata"]
    }
    metadata = {
        **new_metadata,
        **{field: new_metadata.get(field) or value for field, value in fixed_fields.items()},
    }
    new = {**new, "metadata": metadata}
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]
    check_change(objects, address.kind, old, new)
    changed = objects.replace(address.kind, old, new)
    # The last finalizer is gone: a deleted object was only waiting for this.
    if (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and address.kind is not POD
    ):
        return objects.remove(address.kind, changed)
    return changed


def delete_object(objects: ClusterObjects, address: ObjectAddress, options: Object) -> Object:
    """Delete an object and return its last state: pods after their grace period, others at once.

    Any other object than a pod is only marked if it has finalizers, and removed with the last one;
    a second delete changes nothing. Objects of a deleted namespace are removed at once, even with
    finalizers. Raises `StatusError`: 404, 409 if a precondition in `options` fails.
    """
    old = get_object(objects, address)
    _check_preconditions(address, old, options)
    if address.kind is POD:
        return _end_pod(objects, old, options.get("gracePeriodSeconds"))
    if old["metadata"].get("finalizers"):
        if "deletionTimestamp" in old["metadata"]:
            return old
        metadata = {**old["metadata"], "deletionTimestamp": format_timestamp(objects.now)}
        return objects.replace(address.kind, old, {**old, "metadata": metadata})
    if address.kind is NAMESPACE:
        for kind, item in list(objects.list_all()):
            if kind.is_namespaced and item["metadata"]["namespace"] == address.name:
                objects.remove(kind, item)
    return objects.remove(address.kind, old)


def evict_pod(objects: ClusterObjects, address: ObjectAddress, body: Object) -> None:
    """Delete a pod after its grace period if the disruption budget allows an eviction.

    A pod that is pending, done or being deleted costs no budget. Raises `StatusError`: 429 if the
    budget forbids it, 404, 409 if a precondition fails, 500 for a pod with two budgets.
    """
    pod = get_object(objects, address)
    options = body.get("deleteOptions") or {}
    _check_preconditions(address, pod, options)
    # A pod that does not run yet costs no budget.
    if is_active(pod) and pod["status"].get("phase") != "Pending":
        _use_budget(objects, pod)
        pod = objects.replace(POD, pod, mark_evicted(pod, objects.now))
    _end_pod(objects, pod, options.get("gracePeriodSeconds"))


def _check_preconditions(address: ObjectAddress, old: Object, options: Object) -> None:
    """Raise `StatusError` 409 if a delete's uid or resourceVersion is not the object's."""
    preconditions = options.get("preconditions") or {}
    for field in ("uid", "resourceVersion"):
        if field in preconditions and preconditions[field] != old["metadata"][field]:
            raise make_conflict(address.kind.resource, address.name)


def _use_budget(objects: ClusterObjects, pod: Object) -> None:
    """Count and store one disruption on the pod's budget, if there is one.

    Raises `StatusError`: 429 when the budget allows none, 500 for more than one budget.
    """
    budgets = list_budgets(objects, pod)
    # Kubernetes' own limitation.
    if len(budgets) > 1:
        raise StatusError(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    for budget in budgets:
        status = budget["status"]
        if status.get("disruptionsAllowed", 0) > 0:
            new_status = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
            # At once, so that a second eviction at the same moment finds the budget used.
            objects.replace(BUDGET, budget, {**budget, "status": new_status})
            continue
        cause = (
            f"The disruption budget {budget['metadata']['name']} needs "
            f"{status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
        raise StatusError(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [{"reason": "DisruptionBudget", "message": cause}]},
        )


def _end_pod(objects: ClusterObjects, pod: Object, grace: int | None) -> Object:
    """Begin the grace period of a pod, or remove a pod at once; return the pod.

    Without `grace` the pod's own seconds count; a grace period that has begun is not changed.
    Pending and static pods, and those with 0 seconds, are removed.
    """
    seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
    is_waiting = pod["status"].get("phase") == "Pending"
    is_mirror = _MIRROR in pod["metadata"].get("annotations", {})
    # Nothing has to end: the pod does not run yet, or is a mirror that its kubelet shows again.
    if not seconds or is_waiting or is_mirror:
        return objects.remove(POD, pod)
    metadata = {
        "deletionTimestamp": format_timestamp(ceil(objects.now + seconds)),
        "deletionGracePeriodSeconds": seconds,
        **pod["metadata"],  # a second delete does not prolong the first
    }
    return objects.replace(POD, pod, {**pod, "metadata": metadata})
