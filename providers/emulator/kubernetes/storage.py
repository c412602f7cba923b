"""Bind claims to volumes: to shared volumes of the platform, or to ones that a class provisions.

`controllers` calls this module at every request. The platform's document ('Kubernetes PVCs') gives
the two forms of claim and the name of the local class; that there is a default class beside it,
which also provisions volumes, is ours.
"""

from typing import Any

from gpuform.providers.emulator.clock import get_value_at
from gpuform.providers.emulator.kubernetes.kinds import CLAIM, POD, STORAGE_CLASS, VOLUME
from gpuform.providers.emulator.kubernetes.objects import ClusterObjects, Object, parse_quantity
from gpuform.providers.emulator.kubernetes.pods import is_done, list_claims
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.operations import TogetherOperations

LOCAL_CLASS = "local-storage-class"
SHARED_CLASS = "shared-storage-class"
PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
_BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
_DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_WAIT_FOR_CONSUMER = "WaitForFirstConsumer"


def sync_volumes(store: Store, objects: ClusterObjects, cluster: Cluster) -> None:
    """Store the two storage classes where missing, and the cluster's shared volume as a volume.

    Name and present size of the PersistentVolume are those of the shared volume; a cluster without
    one gets the classes alone.
    """
    for storage_class in (
        _build_class(LOCAL_CLASS, _WAIT_FOR_CONSUMER),
        _build_class(SHARED_CLASS, "Immediate", is_default=True),
    ):
        if objects.get(STORAGE_CLASS, storage_class["metadata"]["name"]) is None:
            objects.add(STORAGE_CLASS, storage_class)
    # Only clusters with a shared volume have a PersistentVolume from the start.
    if cluster.volume_id is None:
        return
    volume = TogetherOperations(store, objects.now).get_volume(cluster.volume_id)
    size = f"{get_value_at(volume.sizes, objects.now)}Ti"
    old = objects.get(VOLUME, volume.volume_name)
    if old is None:
        # Retain: the platform's volume outlives every claim.
        new = _build_volume(volume.volume_name, size, SHARED_CLASS, ["ReadWriteMany"], "Retain")
        objects.add(VOLUME, new)
        return
    objects.replace(VOLUME, old, {**old, "spec": {**old["spec"], "capacity": {"storage": size}}})


def sync_claims(objects: ClusterObjects) -> None:
    """Bind waiting claims, resize bound ones, remove deleted unused ones, and release volumes.

    A bound claim whose volume is gone becomes Lost. A deleted claim with finalizers of others only
    loses the protection.
    """
    pods = [pod for pod in objects.list_objects(POD) if not is_done(pod)]
    # A pod that is done uses no claim any more.
    used_keys = {(pod["metadata"]["namespace"], name) for pod in pods for name in list_claims(pod)}
    for claim in objects.list_objects(CLAIM):
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        if "deletionTimestamp" in claim["metadata"] and key not in used_keys:
            # The protection goes when no pod uses the claim; other finalizers are their owners' to
            # remove.
            remaining_finalizers = [
                finalizer
                for finalizer in claim["metadata"]["finalizers"]
                if finalizer != PROTECTION_FINALIZER
            ]
            if remaining_finalizers:
                metadata = {**claim["metadata"], "finalizers": remaining_finalizers}
                objects.replace(CLAIM, claim, {**claim, "metadata": metadata})
            else:
                objects.remove(CLAIM, claim)
        elif claim["status"]["phase"] == "Bound":
            objects.replace(CLAIM, claim, _resize_claim(objects, claim))
        else:
            _bind_claim(objects, claim, is_used=key in used_keys)
    _release_volumes(objects)


def can_grow(objects: ClusterObjects, claim: Object) -> bool:
    """Return whether the storage class of a claim lets the claim grow; False without a class."""
    name = claim["spec"].get("storageClassName")
    storage_class = objects.get(STORAGE_CLASS, name) if name else None
    return bool(storage_class and storage_class.get("allowVolumeExpansion"))


def find_default_class(objects: ClusterObjects) -> str | None:
    """Return the name of the default storage class, or None."""
    for storage_class in objects.list_objects(STORAGE_CLASS):
        if (
            storage_class["metadata"].get("annotations", {}).get(_DEFAULT_CLASS_ANNOTATION)
            == "true"
        ):
            return str(storage_class["metadata"]["name"])
    return None


def _bind_claim(objects: ClusterObjects, claim: Object, *, is_used: bool) -> None:
    """Bind a claim to its named volume or to a new one, and store claim and volume.

    The claim stays as it is while the named volume is missing or unsuitable, or, without a named
    volume, while a pod is awaited or the storage class is unknown.
    """
    volume_name = claim["spec"].get("volumeName")
    if volume_name:
        volume = objects.get(VOLUME, volume_name)
        if volume is None or not _is_suitable(volume, claim):
            return
    elif _should_provision(objects, claim, is_used=is_used):
        volume = objects.add(VOLUME, _build_volume_for(claim))
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
    # A claim that names its volume was bound by its author, not by the controller.
    if not volume_name:
        annotations = {**metadata.get("annotations", {}), _BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        metadata = {**metadata, "annotations": annotations}
    bound = {**claim, "metadata": metadata, "spec": spec, "status": status}
    objects.replace(CLAIM, claim, bound)


def _should_provision(objects: ClusterObjects, claim: Object, *, is_used: bool) -> bool:
    """Return whether the claim's class provisions a volume now: at once, or when a pod uses it.

    False without a known class.
    """
    name = claim["spec"].get("storageClassName")
    storage_class = objects.get(STORAGE_CLASS, name) if name else None
    return storage_class is not None and (
        is_used or storage_class.get("volumeBindingMode") != _WAIT_FOR_CONSUMER
    )


def _is_suitable(volume: Object, claim: Object) -> bool:
    """Return whether a volume is free and has the class, the modes and the size of a claim."""
    spec, claim_spec = volume["spec"], claim["spec"]
    holder = spec.get("claimRef", {}).get("uid")
    return (
        holder in {None, claim["metadata"]["uid"]}
        and set(claim_spec["accessModes"]) <= set(spec["accessModes"])
        and claim_spec.get("storageClassName") == spec.get("storageClassName")
        and parse_quantity(claim_spec["resources"]["requests"]["storage"])
        <= parse_quantity(spec["capacity"]["storage"])
    )


def _resize_claim(objects: ClusterObjects, claim: Object) -> Object:
    """Return a bound claim with its volume's size, or in phase Lost if the volume is gone.

    A provisioned volume grows with the claim, and is stored; the claim is not.
    """
    volume = objects.get(VOLUME, claim["spec"]["volumeName"])
    # The platform has deleted the volume under its claim.
    if volume is None:
        return {**claim, "status": {**claim["status"], "phase": "Lost"}}
    requests = claim["spec"]["resources"]["requests"]
    capacity = volume["spec"]["capacity"]
    if _is_provisioned(volume) and parse_quantity(requests["storage"]) > parse_quantity(
        capacity["storage"]
    ):
        capacity = {"storage": requests["storage"]}
        objects.replace(
            VOLUME, volume, {**volume, "spec": {**volume["spec"], "capacity": capacity}}
        )
    return {**claim, "status": {**claim["status"], "capacity": capacity}}


def _release_volumes(objects: ClusterObjects) -> None:
    """Make the volumes of removed claims available again; remove the provisioned ones."""
    uids = {claim["metadata"]["uid"] for claim in objects.list_objects(CLAIM)}
    for volume in objects.list_objects(VOLUME):
        holder = volume["spec"].get("claimRef")
        if holder is None or holder["uid"] in uids:
            continue
        if _is_provisioned(volume):
            objects.remove(VOLUME, volume)
        else:
            spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
            free = {**volume, "spec": spec, "status": {"phase": "Available"}}
            objects.replace(VOLUME, volume, free)


def _is_provisioned(volume: Object) -> bool:
    """Return whether the volume was provisioned for a claim, rather than by the platform."""
    return bool(volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete")


def _build_class(name: str, mode: str, *, is_default: bool = False) -> Object:
    """Return a storage class object; `mode` is `volumeBindingMode`."""
    return {
        "metadata": {
            "name": name,
            "annotations": {_DEFAULT_CLASS_ANNOTATION: "true"} if is_default else {},
        },
        "provisioner": f"{name}.emulator.gpuform.dev",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": True,
    }


def _build_volume_for(claim: Object) -> Object:
    """Return a new PersistentVolume with the size, class and modes of a claim."""
    spec = claim["spec"]
    size, modes = spec["resources"]["requests"]["storage"], spec["accessModes"]
    name = f"pvc-{claim['metadata']['uid']}"
    return _build_volume(name, size, spec["storageClassName"], modes, "Delete")


def _build_volume(
    name: str, size: str, storage_class: str, modes: list[str], policy: str
) -> Object:
    """Return an available PersistentVolume with the access modes and the reclaim policy."""
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": modes,
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": policy,
        "volumeMode": "Filesystem",
        "csi": {"driver": f"{storage_class}.emulator.gpuform.dev", "volumeHandle": name},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
