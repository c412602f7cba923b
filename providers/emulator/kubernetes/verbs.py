"""What is done to an object: create, replace, patch, delete, evict."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from gpuform.providers.emulator.kubernetes.admission import admitted, check_change
from gpuform.providers.emulator.kubernetes.controllers import budgets_of
from gpuform.providers.emulator.kubernetes.errors import StatusError, conflict, not_found
from gpuform.providers.emulator.kubernetes.kinds import BUDGET, NAMESPACE, POD, Kind
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, timestamp
from gpuform.providers.emulator.kubernetes.patching import patched
from gpuform.providers.emulator.kubernetes.pods import evicted, is_active

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
