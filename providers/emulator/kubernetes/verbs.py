"""Create, replace, patch, delete and evict an object.

PATCH takes JSON merge patch, strategic merge patch and JSON patch.
"""

from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any

from gpuform.providers.emulator.kubernetes.admission import admitted, check_change
from gpuform.providers.emulator.kubernetes.controllers import budgets_of
from gpuform.providers.emulator.kubernetes.kinds import (
    BUDGET,
    NAMESPACE,
    POD,
    Kind,
    StatusError,
    conflict,
    not_found,
)
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, timestamp
from gpuform.providers.emulator.kubernetes.pods import evicted, is_active

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

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


def patched(old: dict[str, Any], patch: Any, form: str) -> dict[str, Any]:
    """A new object. Raises StatusError: 415 for another form, 400 or 422 for a bad patch."""
    if form == JSON:
        return _json_patched(old, patch)
    if form not in {MERGE, STRATEGIC}:
        raise StatusError(415, f"the body of the request was in an unknown format: {form}")
    if not isinstance(patch, dict):
        raise StatusError(400, "a merge patch is a JSON object")
    merged: dict[str, Any] = _merged(old, patch, is_strategic=form == STRATEGIC)
    return merged


def _merged(old: Any, patch: Any, *, is_strategic: bool, name: str = "") -> Any:
    if is_strategic and isinstance(patch, list) and isinstance(old, list):
        return _merged_list(old, patch, name)
    if not isinstance(patch, dict):
        return deepcopy(patch)
    patch = dict(patch)
    directive = patch.pop("$patch", None) if is_strategic else None
    new = deepcopy(old) if isinstance(old, dict) and directive != "replace" else {}
    for key, value in patch.items():
        if is_strategic and key.startswith("$"):
            _delete_plain(new, key, value)
        elif value is None or (is_strategic and _is_deletion(value)):
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value, is_strategic=is_strategic, name=key)
    return new


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get("$patch") == "delete"


def _merged_list(old: list[Any], patch: list[Any], name: str) -> list[Any]:
    if name in _PLAIN_LISTS:
        return [*old, *(value for value in patch if value not in old)]
    key = _MERGE_KEYS.get(name)
    if key is None:
        return deepcopy(patch)
    new = {item[key]: deepcopy(item) for item in old}
    for item in patch:
        if item == {"$patch": "replace"}:
            return [each for each in deepcopy(patch) if "$patch" not in each]
        if item.get("$patch") == "delete":
            new.pop(item[key], None)
        else:
            new[item[key]] = _merged(new.get(item[key]), item, is_strategic=True)
    return list(new.values())


def _delete_plain(new: dict[str, Any], directive: str, values: Any) -> None:
    """`$deleteFromPrimitiveList/finalizers`; the order of list items is of no consequence here."""
    what, _, name = directive.partition("/")
    if what == "$deleteFromPrimitiveList" and name in new:
        new[name] = [value for value in new[name] if value not in values]
    if what == "$retainKeys":
        for key in set(new) - set(values):
            del new[key]


def _json_patched(old: dict[str, Any], patch: Any) -> dict[str, Any]:
    whole = {"": deepcopy(old)}
    try:
        for step in patch:
            _apply(whole, step)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        told = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, told, reason="Invalid") from error
    result: dict[str, Any] = whole[""]
    return result


def _apply(whole: dict[str, Any], step: dict[str, Any]) -> None:
    operation, path = step["op"], step["path"]
    if operation in {"move", "copy"}:
        value = deepcopy(_looked_up(whole, step["from"]))
        if operation == "move":
            _apply(whole, {"op": "remove", "path": step["from"]})
        _apply(whole, {"op": "add", "path": path, "value": value})
        return
    if operation == "test":
        if _looked_up(whole, path) != step["value"]:
            raise ValueError(f"testing path {path} failed")
        return
    if operation not in {"add", "replace", "remove"}:
        raise ValueError(f"unknown operation {operation!r}")
    parent, last = _parent(whole, path)
    if isinstance(parent, list):
        _apply_to_list(parent, last, step)
        return
    if operation != "add":
        del parent[last]  # it has to be there
    if operation != "remove":
        parent[last] = step["value"]


def _apply_to_list(items: list[Any], last: str, step: dict[str, Any]) -> None:
    at = len(items) if last == "-" else int(last)
    if step["op"] != "add":
        del items[at]
    if step["op"] != "remove":
        items.insert(at, step["value"])


def _parent(whole: dict[str, Any], path: str) -> tuple[Any, str]:
    folder, _, last = path.rpartition("/")
    return _looked_up(whole, folder) if path else whole, _unescaped(last)


def _looked_up(whole: dict[str, Any], path: str) -> Any:
    here: Any = whole[""]
    for part in path.split("/")[1:]:
        here = here[int(part)] if isinstance(here, list) else here[_unescaped(part)]
    return here


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True)
class ObjectAddress:
    """Which object, or which list of them; `name` and `part` (its subresource) may be empty."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    part: str = ""


def get(objects: Objects, place: ObjectAddress) -> Object:
    found = objects.get(place.kind, place.name, place.namespace)
    if found is None:
        raise not_found(place.kind.resource, place.name)
    return found


def create(objects: Objects, place: ObjectAddress, body: Object) -> Object:
    kind = place.kind
    if body.get("kind", kind.name) != kind.name:
        raise StatusError(400, f"the object provided is a {body['kind']}, not a {kind.name}")
    new = admitted(objects, kind, body, place.namespace)
    name = new["metadata"]["name"]
    if objects.get(kind, name, place.namespace) is not None:
        raise StatusError(
            409,
            f'{kind.resource} "{name}" already exists',
            reason="AlreadyExists",
            details={"name": name, "kind": kind.plural},
        )
    return objects.add(kind, new)


def replace(objects: Objects, place: ObjectAddress, body: Object) -> Object:
    old = get(objects, place)
    return _changed(objects, place, old, body)


def patch(objects: Objects, place: ObjectAddress, body: Any, form: str) -> Object:
    old = get(objects, place)
    return _changed(objects, place, old, patched(old, body, form))


def _changed(objects: Objects, place: ObjectAddress, old: Object, new: Object) -> Object:
    """`status` belongs to its own subresource, the rest to the object."""
    given = new.get("metadata", {})
    if given.get("resourceVersion") not in {None, "", old["metadata"]["resourceVersion"]}:
        raise conflict(place.kind.resource, place.name)
    if given.get("uid") not in {None, "", old["metadata"]["uid"]}:
        raise conflict(place.kind.resource, place.name)
    if place.part == "status":
        return objects.replace(place.kind, old, {**old, "status": new.get("status", {})})
    kept = {
        word: old["metadata"][word]
        for word in ("uid", "creationTimestamp", "generation", "deletionTimestamp")
        if word in old["metadata"]
    }
    metadata = {**given, **{word: given.get(word) or value for word, value in kept.items()}}
    new = {**new, "metadata": metadata}
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]
    check_change(objects, place.kind, old, new)
    changed = objects.replace(place.kind, old, new)
    if "deletionTimestamp" in metadata and not metadata.get("finalizers") and place.kind is not POD:
        return objects.remove(place.kind, changed)
    return changed


def delete(objects: Objects, place: ObjectAddress, options: Object) -> Object:
    """Pods end after their grace period, what has finalizers when they are gone."""
    old = get(objects, place)
    _check_preconditions(place, old, options)
    if place.kind is POD:
        return _end(objects, old, options.get("gracePeriodSeconds"))
    if old["metadata"].get("finalizers"):
        if "deletionTimestamp" in old["metadata"]:
            return old
        metadata = {**old["metadata"], "deletionTimestamp": timestamp(objects.now)}
        return objects.replace(place.kind, old, {**old, "metadata": metadata})
    if place.kind is NAMESPACE:
        for kind, each in list(objects.all()):
            if kind.is_namespaced and each["metadata"]["namespace"] == place.name:
                objects.remove(kind, each)
    return objects.remove(place.kind, old)


def evict(objects: Objects, place: ObjectAddress, body: Object) -> None:
    """Delete a pod if its disruption budget allows it; else 429 with the budget as the cause."""
    pod = get(objects, place)
    options = body.get("deleteOptions") or {}
    _check_preconditions(place, pod, options)
    if is_active(pod) and pod["status"].get("phase") != "Pending":
        _charge(objects, pod)
        pod = objects.replace(POD, pod, evicted(pod, objects.now))
    _end(objects, pod, options.get("gracePeriodSeconds"))


def _check_preconditions(place: ObjectAddress, old: Object, options: Object) -> None:
    wanted = options.get("preconditions") or {}
    for word in ("uid", "resourceVersion"):
        if word in wanted and wanted[word] != old["metadata"][word]:
            raise conflict(place.kind.resource, place.name)


def _charge(objects: Objects, pod: Object) -> None:
    budgets = budgets_of(objects, pod)
    if len(budgets) > 1:
        raise StatusError(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    for budget in budgets:
        status = budget["status"]
        if status.get("disruptionsAllowed", 0) > 0:
            left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
            objects.replace(BUDGET, budget, {**budget, "status": left})
            continue
        told = (
            f"The disruption budget {budget['metadata']['name']} needs "
            f"{status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
        raise StatusError(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [{"reason": "DisruptionBudget", "message": told}]},
        )


def _end(objects: Objects, pod: Object, grace: int | None) -> Object:
    seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
    is_waiting = pod["status"].get("phase") == "Pending"
    is_mirror = _MIRROR in pod["metadata"].get("annotations", {})
    if not seconds or is_waiting or is_mirror:
        return objects.remove(POD, pod)
    metadata = {
        "deletionTimestamp": timestamp(ceil(objects.now + seconds)),
        "deletionGracePeriodSeconds": seconds,
        **pod["metadata"],  # a second delete does not prolong the first
    }
    return objects.replace(POD, pod, {**pod, "metadata": metadata})
