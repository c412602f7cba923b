"""Volumes and claims: shared volumes as PersistentVolumes, claims bound to them or to local NVMe.

The platform's document ('Kubernetes PVCs') gives the two forms of claim and the name of the local
class; that there is a default class beside it, which also makes volumes, is ours.
"""

from typing import Any

from gpuform.providers.emulator.clock import get_value_at
from gpuform.providers.emulator.kubernetes.kinds import CLAIM, POD, STORAGE_CLASS, VOLUME
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, amount
from gpuform.providers.emulator.kubernetes.pods import claims_of, is_done
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.operations import TogetherOperations

LOCAL = "local-storage-class"
SHARED = "shared-storage-class"
PROTECTION = "kubernetes.io/pvc-protection"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_WAITS = "WaitForFirstConsumer"


def sync_volumes(store: Store, objects: Objects, cluster: Cluster) -> None:
    """The classes, and a PersistentVolume of its name and size for the shared volume."""
    for each in (_class(LOCAL, _WAITS), _class(SHARED, "Immediate", is_default=True)):
        if objects.get(STORAGE_CLASS, each["metadata"]["name"]) is None:
            objects.add(STORAGE_CLASS, each)
    if cluster.volume_id is None:
        return
    volume = TogetherOperations(store, objects.now).get_volume(cluster.volume_id)
    size = f"{get_value_at(volume.sizes, objects.now)}Ti"
    old = objects.get(VOLUME, volume.volume_name)
    if old is None:
        objects.add(VOLUME, _shared(volume.volume_name, size))
        return
    objects.replace(VOLUME, old, {**old, "spec": {**old["spec"], "capacity": {"storage": size}}})


def sync_claims(objects: Objects) -> None:
    """Claims are bound, grown and, when no pod uses them any more, removed; volumes let go."""
    pods = [pod for pod in objects.of(POD) if not is_done(pod)]
    used = {(pod["metadata"]["namespace"], name) for pod in pods for name in claims_of(pod)}
    for claim in objects.of(CLAIM):
        place = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        if "deletionTimestamp" in claim["metadata"] and place not in used:
            left = [each for each in claim["metadata"]["finalizers"] if each != PROTECTION]
            if left:
                metadata = {**claim["metadata"], "finalizers": left}
                objects.replace(CLAIM, claim, {**claim, "metadata": metadata})
            else:
                objects.remove(CLAIM, claim)
        elif claim["status"]["phase"] == "Bound":
            objects.replace(CLAIM, claim, _at_size(objects, claim))
        else:
            _bind(objects, claim, is_used=place in used)
    _let_go(objects)


def grows(objects: Objects, claim: Object) -> bool:
    """Whether the class of a claim lets it grow."""
    name = claim["spec"].get("storageClassName")
    found = objects.get(STORAGE_CLASS, name) if name else None
    return bool(found and found.get("allowVolumeExpansion"))


def default_class(objects: Objects) -> str | None:
    for each in objects.of(STORAGE_CLASS):
        if each["metadata"].get("annotations", {}).get(_DEFAULT) == "true":
            return str(each["metadata"]["name"])
    return None


def _bind(objects: Objects, claim: Object, *, is_used: bool) -> None:
    wanted = claim["spec"].get("volumeName")
    if wanted:
        volume = objects.get(VOLUME, wanted)
        if volume is None or not _fits(volume, claim):
            return
    elif _is_provided_now(objects, claim, is_used=is_used):
        volume = objects.add(VOLUME, _made_for(claim))
    else:
        return
    reference = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "uid": claim["metadata"]["uid"],
    }
    bound = {**volume, "spec": {**volume["spec"], "claimRef": reference}}
    objects.replace(VOLUME, volume, {**bound, "status": {"phase": "Bound"}})
    spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
    status = {
        "phase": "Bound",
        "accessModes": volume["spec"]["accessModes"],
        "capacity": volume["spec"]["capacity"],
    }
    metadata = claim["metadata"]
    if not wanted:
        annotations = {**metadata.get("annotations", {}), _BOUND_BY_CONTROLLER: "yes"}
        metadata = {**metadata, "annotations": annotations}
    bound = {**claim, "metadata": metadata, "spec": spec, "status": status}
    objects.replace(CLAIM, claim, bound)


def _is_provided_now(objects: Objects, claim: Object, *, is_used: bool) -> bool:
    """Whether its class makes a volume for it: at once, or when a pod uses it."""
    name = claim["spec"].get("storageClassName")
    found = objects.get(STORAGE_CLASS, name) if name else None
    return found is not None and (is_used or found.get("volumeBindingMode") != _WAITS)


def _fits(volume: Object, claim: Object) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    holder = spec.get("claimRef", {}).get("uid")
    return (
        holder in {None, claim["metadata"]["uid"]}
        and set(wanted["accessModes"]) <= set(spec["accessModes"])
        and wanted.get("storageClassName") == spec.get("storageClassName")
        and amount(wanted["resources"]["requests"]["storage"])
        <= amount(spec["capacity"]["storage"])
    )


def _at_size(objects: Objects, claim: Object) -> Object:
    """A bound claim has the size of its volume; one that was made for it grows along."""
    volume = objects.get(VOLUME, claim["spec"]["volumeName"])
    if volume is None:
        return {**claim, "status": {**claim["status"], "phase": "Lost"}}
    wanted = claim["spec"]["resources"]["requests"]
    capacity = volume["spec"]["capacity"]
    if _is_made(volume) and amount(wanted["storage"]) > amount(capacity["storage"]):
        capacity = {"storage": wanted["storage"]}
        objects.replace(
            VOLUME, volume, {**volume, "spec": {**volume["spec"], "capacity": capacity}}
        )
    return {**claim, "status": {**claim["status"], "capacity": capacity}}


def _let_go(objects: Objects) -> None:
    """Volumes of claims that are gone go along if they were made for them."""
    uids = {claim["metadata"]["uid"] for claim in objects.of(CLAIM)}
    for volume in objects.of(VOLUME):
        holder = volume["spec"].get("claimRef")
        if holder is None or holder["uid"] in uids:
            continue
        if _is_made(volume):
            objects.remove(VOLUME, volume)
        else:
            spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
            free = {**volume, "spec": spec, "status": {"phase": "Available"}}
            objects.replace(VOLUME, volume, free)


def _is_made(volume: Object) -> bool:
    """Whether it was made for a claim, rather than by the platform."""
    return bool(volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete")


def _class(name: str, mode: str, *, is_default: bool = False) -> Object:
    return {
        "metadata": {
            "name": name,
            "annotations": {_DEFAULT: "true"} if is_default else {},
        },
        "provisioner": f"{name}.emulator.gpuform.dev",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": True,
    }


def _shared(name: str, size: str) -> Object:
    return _volume(name, size, SHARED, ["ReadWriteMany"], "Retain")


def _made_for(claim: Object) -> Object:
    spec = claim["spec"]
    size, modes = spec["resources"]["requests"]["storage"], spec["accessModes"]
    name = f"pvc-{claim['metadata']['uid']}"
    return _volume(name, size, spec["storageClassName"], modes, "Delete")


def _volume(name: str, size: str, storage_class: str, modes: list[str], policy: str) -> Object:
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": modes,
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": policy,
        "volumeMode": "Filesystem",
        "csi": {"driver": f"{storage_class}.emulator.gpuform.dev", "volumeHandle": name},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
