"""What an API server fills in and refuses when an object is created or changed."""

import re
from typing import Any

from gpuform.providers.emulator.kubernetes.errors import StatusError, invalid
from gpuform.providers.emulator.kubernetes.kinds import CLAIM, NAMESPACE, POD, Kind
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, amount
from gpuform.providers.emulator.kubernetes.storage import PROTECTION, default_class, grows

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_MODES = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}


def admitted(objects: Objects, kind: Kind, new: Object, namespace: str) -> Object:
    """A new object, complete. Raises StatusError."""
    metadata = {**new.get("metadata", {})}
    name = metadata.get("name", "")
    if kind.is_namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            told = "the namespace of the object does not match the namespace on the request"
            raise StatusError(400, told)
        if objects.get(NAMESPACE, namespace) is None:
            details = {"name": namespace, "kind": "namespaces"}
            raise StatusError(404, f'namespaces "{namespace}" not found', details=details)
    if not _NAME.match(name):
        raise invalid(kind.name, name, [("metadata.name", f"Invalid value: {name!r}")])
    for word in ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"):
        metadata.pop(word, None)
    new = {**new, "metadata": metadata}
    if kind is CLAIM:
        return _new_claim(objects, new)
    if kind is POD:
        return _new_pod(new)
    return new if kind is NAMESPACE else {**new, "status": new.get("status") or {}}


def check_change(objects: Objects, kind: Kind, old: Object, new: Object) -> None:
    """Raises StatusError for a change that is not allowed."""
    name = old["metadata"]["name"]
    for word in ("name", "namespace", "uid", "creationTimestamp"):
        if new["metadata"].get(word) != old["metadata"].get(word):
            raise invalid(kind.name, name, [(f"metadata.{word}", "field is immutable")])
    if kind is CLAIM:
        _check_claim_change(objects, old, new)
    if kind is POD and _placed(old) != _placed(new):
        told = "Forbidden: pod updates may not change fields other than the image"
        raise invalid(kind.name, name, [("spec", told)])


def _new_pod(new: Object) -> Object:
    spec = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", **new.get("spec", {})}
    if not spec.get("containers"):
        raise invalid("Pod", new["metadata"]["name"], [("spec.containers", "Required value")])
    return {**new, "spec": spec, "status": {"phase": "Pending"}}


def _new_claim(objects: Objects, new: Object) -> Object:
    name, spec = new["metadata"]["name"], {**new.get("spec", {})}
    modes = spec.get("accessModes") or []
    asked = (spec.get("resources") or {}).get("requests", {}).get("storage")
    problems = []
    if not modes:
        problems.append(("spec.accessModes", "Required value: at least 1 access mode is required"))
    elif not set(modes) <= _MODES:
        problems.append(("spec.accessModes", f"Unsupported value: {modes}"))
    if asked is None:
        problems.append(("spec.resources[storage]", "Required value"))
    elif not _is_positive(asked):
        problems.append(("spec.resources[storage]", "Invalid value: must be greater than zero"))
    if problems:
        raise invalid("PersistentVolumeClaim", name, problems)
    spec.setdefault("volumeMode", "Filesystem")
    if "storageClassName" not in spec and (given := default_class(objects)):
        spec["storageClassName"] = given
    finalizers = sorted({*new["metadata"].get("finalizers", []), PROTECTION})
    metadata = {**new["metadata"], "finalizers": finalizers}
    return {**new, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _check_claim_change(objects: Objects, old: Object, new: Object) -> None:
    name = old["metadata"]["name"]
    had, asked = _size(old), _size(new)
    is_bound = old["status"]["phase"] == "Bound"
    if _without_size(old) != _without_size(new) or (had != asked and not is_bound):
        told = (
            "Forbidden: spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        raise invalid("PersistentVolumeClaim", name, [("spec", told)])
    if not _is_positive(asked):
        told = "Invalid value: must be greater than zero"
        raise invalid("PersistentVolumeClaim", name, [("spec.resources[storage]", told)])
    if amount(asked) < amount(had):
        told = "Forbidden: field can not be less than previous value"
        path = "spec.resources.requests.storage"
        raise invalid("PersistentVolumeClaim", name, [(path, told)])
    if amount(asked) > amount(had) and not grows(objects, old):
        raise StatusError(
            403,
            f'persistentvolumeclaims "{name}" is forbidden: only dynamically provisioned pvc can '
            "be resized and the storageclass that provisions the pvc must support resize",
        )


def _size(claim: Object) -> Any:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")


def _without_size(claim: Object) -> dict[str, Any]:
    return {key: value for key, value in claim["spec"].items() if key != "resources"}


def _is_positive(text: Any) -> bool:
    try:
        return amount(text) > 0
    except ValueError:
        return False


def _placed(pod: Object) -> Any:
    return pod["spec"].get("nodeName")
