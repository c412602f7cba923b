"""What an API server fills in and refuses when an object is created or changed."""

import re
from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import (
    CERTIFICATION,
    CLAIM,
    CONFIG_MAP,
    FLAVOR,
    NAMESPACE,
    POD,
    TOPOLOGY,
    Kind,
    StatusError,
    invalid,
)
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, amount
from gpuform.providers.emulator.kubernetes.storage import PROTECTION, default_class, grows

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_LABEL_KEY = re.compile(
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_HOST = "kubernetes.io/hostname"
_LEVELS = 16
_CATEGORIES = 64
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
    _check_labels(kind, new)
    if kind is CLAIM:
        return _new_claim(objects, new)
    if kind is POD:
        return _new_pod(new)
    if kind is CERTIFICATION:
        _check_certification(new)
        return {**new, "status": {}}
    if kind in {TOPOLOGY, FLAVOR}:
        _check_kueue(kind, new)
    has_status = kind not in {CONFIG_MAP, TOPOLOGY, FLAVOR, NAMESPACE}
    return {**new, "status": new.get("status") or {}} if has_status else new


def check_change(objects: Objects, kind: Kind, old: Object, new: Object) -> None:
    """Raises StatusError for a change that is not allowed."""
    name = old["metadata"]["name"]
    for word in ("name", "namespace", "uid", "creationTimestamp"):
        if new["metadata"].get(word) != old["metadata"].get(word):
            raise invalid(kind.name, name, [(f"metadata.{word}", "field is immutable")])
    _check_labels(kind, new)
    if kind in {TOPOLOGY, FLAVOR}:
        _check_kueue(kind, new)
        _check_kueue_change(kind, old, new)
    if kind is CERTIFICATION and old["spec"] != new.get("spec"):
        raise invalid(kind.name, name, [("spec", "spec is immutable after creation")])
    if kind is CLAIM:
        _check_claim_change(objects, old, new)
    if kind is POD and _placed(old) != _placed(new):
        told = "Forbidden: pod updates may not change fields other than the image"
        raise invalid(kind.name, name, [("spec", told)])


def _check_labels(kind: Kind, new: Object) -> None:
    """As the API checks `metadata.labels` (Kubernetes' page 'Labels and Selectors')."""
    name = new["metadata"]["name"]
    for key, value in (new["metadata"].get("labels") or {}).items():
        if not _LABEL_KEY.match(key):
            raise invalid(kind.name, name, [("metadata.labels", f"Invalid value: {key!r}")])
        if not isinstance(value, str) or not _LABEL_VALUE.match(value):
            raise invalid(kind.name, name, [("metadata.labels", f"Invalid value: {value!r}")])


def _check_certification(new: Object) -> None:
    """The rules of the engine's own definition (api/v1alpha1)."""
    name, spec = new["metadata"]["name"], new.get("spec") or {}
    categories = spec.get("categories") or []
    problems = []
    if not isinstance(spec.get("target"), dict):
        problems.append(("spec.target", "Required value"))
    if not 0 < len(categories) <= _CATEGORIES:
        problems.append(("spec.categories", f"must have 1 to {_CATEGORIES} items"))
    for at, category in enumerate(categories):
        if not category.get("domain") or not category.get("variant"):
            problems.append((f"spec.categories[{at}]", "domain and variant: Required value"))
    if problems:
        raise invalid("Certification", name, problems)


def _check_kueue(kind: Kind, new: Object) -> None:
    """The rules of Kueue's own definitions (apis/kueue/v1beta2)."""
    name, spec = new["metadata"]["name"], new.get("spec") or {}
    if kind is FLAVOR:
        if spec.get("topologyName") and not spec.get("nodeLabels"):
            told = "at least one nodeLabel is required when topology is set"
            raise invalid(kind.name, name, [("spec", told)])
        return
    levels = [level.get("nodeLabel", "") for level in spec.get("levels") or []]
    problem = ""
    if not 0 < len(levels) <= _LEVELS:
        problem = f"must have at least 1 and at most {_LEVELS} items"
    elif len({*levels}) < len(levels):
        problem = "must be unique"
    elif _HOST in levels[:-1]:
        problem = f"the {_HOST} label can only be used at the lowest level of topology"
    elif not all(_LABEL_KEY.match(level) for level in levels):
        problem = "spec.levels[].nodeLabel in body should match the pattern of a label"
    if problem:
        raise invalid(kind.name, name, [("spec.levels", problem)])


def _check_kueue_change(kind: Kind, old: Object, new: Object) -> None:
    name = new["metadata"]["name"]
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if kind is FLAVOR and before.get("topologyName") not in {None, after.get("topologyName")}:
        told = "topologyName is immutable when topologyName is set"
        raise invalid(kind.name, name, [("spec", told)])
    if kind is TOPOLOGY and before["levels"] != after["levels"]:
        lowest = {each["levels"][-1]["nodeLabel"] for each in (before, after)}
        if lowest != {_HOST}:
            told = f"levels are mutable only when {_HOST} is the lowest level before and after"
            raise invalid(kind.name, name, [("spec.levels", told)])


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
