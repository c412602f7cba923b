"""Check new and changed objects, and fill in what an API server fills in.

`verbs` calls this module before it stores anything. Broken rules are `StatusError`s in the API
server's own words.
"""

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
    KubernetesSettings,
    StatusError,
    make_invalid,
)
from gpuform.providers.emulator.kubernetes.objects import ClusterObjects, Object, parse_quantity
from gpuform.providers.emulator.kubernetes.storage import (
    PROTECTION_FINALIZER,
    can_grow,
    find_default_class,
)

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
# Kubernetes' page 'Labels and Selectors': an optional DNS prefix, then up to 63 characters.
_LABEL_KEY = re.compile(
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_HOST_LABEL = "kubernetes.io/hostname"
_MAX_LEVELS = 16
_MAX_CATEGORIES = 64
_ACCESS_MODES = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}


def complete_new_object(objects: ClusterObjects, kind: Kind, new: Object, namespace: str) -> Object:
    """Return a checked copy of a new object, with the API server's additions; store nothing.

    Added are the namespace, the `status`, and defaults of pods and claims; fields that the server
    decides are removed. A given `status` is kept, but for pods, claims and Certifications. Raises
    `StatusError`: 400 for another namespace, 404 for a missing namespace, 422 for a broken rule.
    """
    metadata = {**new.get("metadata", {})}
    name = metadata.get("name", "")
    if kind.is_namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            message = "the namespace of the object does not match the namespace on the request"
            raise StatusError(400, message)
        # Before the object itself is judged, as the API server does.
        if objects.get(NAMESPACE, namespace) is None:
            details = {"name": namespace, "kind": "namespaces"}
            raise StatusError(404, f'namespaces "{namespace}" not found', details=details)
    if not _NAME.match(name):
        raise make_invalid(kind.name, name, [("metadata.name", f"Invalid value: {name!r}")])
    # The server decides these alone, whatever a client sends.
    for field in ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"):
        metadata.pop(field, None)
    new = {**new, "metadata": metadata}
    _check_labels(kind, new)
    if kind is CLAIM:
        return _complete_claim(objects, new)
    if kind is POD:
        return _complete_pod(new)
    if kind is CERTIFICATION:
        _check_certification(new)
        return {**new, "status": {}}
    if kind in {TOPOLOGY, FLAVOR}:
        _check_kueue(kind, new)
    # These kinds have no status subresource: a status would be a field like any other.
    has_status = kind not in {CONFIG_MAP, TOPOLOGY, FLAVOR, NAMESPACE}
    return {**new, "status": new.get("status") or {}} if has_status else new


def check_change(objects: ClusterObjects, kind: Kind, old: Object, new: Object) -> None:
    """Raise `StatusError` 422 or 403 if Kubernetes forbids the change from `old` to `new`.

    Emulated are the rules of identities, labels, Kueue, Certifications and claims, and that a pod
    stays on its node; all other fields may change.
    """
    name = old["metadata"]["name"]
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new["metadata"].get(field) != old["metadata"].get(field):
            raise make_invalid(kind.name, name, [(f"metadata.{field}", "field is immutable")])
    _check_labels(kind, new)
    if kind in {TOPOLOGY, FLAVOR}:
        _check_kueue(kind, new)
        has_old_kueue = KubernetesSettings.load(objects.store).has_old_kueue
        _check_kueue_change(kind, old, new, has_old_kueue=has_old_kueue)
    # The engine's definition makes the spec immutable.
    if kind is CERTIFICATION and old["spec"] != new.get("spec"):
        raise make_invalid(kind.name, name, [("spec", "spec is immutable after creation")])
    if kind is CLAIM:
        _check_claim_change(objects, old, new)
    if kind is POD and _get_node_name(old) != _get_node_name(new):
        message = "Forbidden: pod updates may not change fields other than the image"
        raise make_invalid(kind.name, name, [("spec", message)])


def _check_labels(kind: Kind, new: Object) -> None:
    """Raise `StatusError` 422 for a label whose name or value Kubernetes forbids.

    The rules are those of Kubernetes' page 'Labels and Selectors'.
    """
    name = new["metadata"]["name"]
    for key, value in (new["metadata"].get("labels") or {}).items():
        if not _LABEL_KEY.match(key):
            raise make_invalid(kind.name, name, [("metadata.labels", f"Invalid value: {key!r}")])
        if not isinstance(value, str) or not _LABEL_VALUE.match(value):
            raise make_invalid(kind.name, name, [("metadata.labels", f"Invalid value: {value!r}")])


def _check_certification(new: Object) -> None:
    """Raise `StatusError` 422 for a Certification without a target or with wrong categories.

    The rules are those of the readiness engine's definition (api/v1alpha1).
    """
    name, spec = new["metadata"]["name"], new.get("spec") or {}
    categories = spec.get("categories") or []
    problems = []
    if not isinstance(spec.get("target"), dict):
        problems.append(("spec.target", "Required value"))
    if not 0 < len(categories) <= _MAX_CATEGORIES:
        problems.append(("spec.categories", f"must have 1 to {_MAX_CATEGORIES} items"))
    for at, category in enumerate(categories):
        if not category.get("domain") or not category.get("variant"):
            problems.append((f"spec.categories[{at}]", "domain and variant: Required value"))
    if problems:
        raise make_invalid("Certification", name, problems)


def _check_kueue(kind: Kind, new: Object) -> None:
    """Raise `StatusError` 422 for an invalid Kueue object.

    These are a flavor with a topology but without node labels, and a topology whose levels are
    none, too many, repeated or malformed, or have the host above the lowest one. The rules are
    those of Kueue's own definitions (apis/kueue/v1beta2).
    """
    name, spec = new["metadata"]["name"], new.get("spec") or {}
    if kind is FLAVOR:
        if spec.get("topologyName") and not spec.get("nodeLabels"):
            message = "at least one nodeLabel is required when topology is set"
            raise make_invalid(kind.name, name, [("spec", message)])
        return
    levels = [level.get("nodeLabel", "") for level in spec.get("levels") or []]
    problem = ""
    if not 0 < len(levels) <= _MAX_LEVELS:
        problem = f"must have at least 1 and at most {_MAX_LEVELS} items"
    elif len({*levels}) < len(levels):
        problem = "must be unique"
    elif _HOST_LABEL in levels[:-1]:
        problem = f"the {_HOST_LABEL} label can only be used at the lowest level of topology"
    elif not all(_LABEL_KEY.match(level) for level in levels):
        problem = "spec.levels[].nodeLabel in body should match the pattern of a label"
    if problem:
        raise make_invalid(kind.name, name, [("spec.levels", problem)])


def _check_kueue_change(kind: Kind, old: Object, new: Object, *, has_old_kueue: bool) -> None:
    """Raise `StatusError` 422 for a change of a Kueue object's immutable fields.

    A flavor's topology never changes once set. A topology's levels change only if the host is the
    lowest one before and after. Before Kueue 0.20, neither levels nor the node labels of a flavor
    with a topology change (release notes of 0.20, and the definitions of 0.18 and 0.19).
    """
    name = new["metadata"]["name"]
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if has_old_kueue and kind is TOPOLOGY and before["levels"] != after["levels"]:
        raise make_invalid(kind.name, name, [("spec.levels", "field is immutable")])
    if (
        has_old_kueue
        and kind is FLAVOR
        and before.get("topologyName")
        and before.get("nodeLabels") != after.get("nodeLabels")
    ):
        message = "nodeLabels are immutable when topologyName is set"
        raise make_invalid(kind.name, name, [("spec", message)])
    if kind is FLAVOR and before.get("topologyName") not in {None, after.get("topologyName")}:
        message = "topologyName is immutable when topologyName is set"
        raise make_invalid(kind.name, name, [("spec", message)])
    if kind is TOPOLOGY and before["levels"] != after["levels"]:
        lowest = {spec["levels"][-1]["nodeLabel"] for spec in (before, after)}
        if lowest != {_HOST_LABEL}:
            message = (
                f"levels are mutable only when {_HOST_LABEL} is the lowest level both before and "
                "after the change"
            )
            raise make_invalid(kind.name, name, [("spec.levels", message)])


def _complete_pod(new: Object) -> Object:
    """Return a new pod with default grace period and restart policy, in phase Pending.

    Raises `StatusError` 422 for a pod without containers.
    """
    spec = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", **new.get("spec", {})}
    if not spec.get("containers"):
        raise make_invalid("Pod", new["metadata"]["name"], [("spec.containers", "Required value")])
    return {**new, "spec": spec, "status": {"phase": "Pending"}}


def _complete_claim(objects: ClusterObjects, new: Object) -> Object:
    """Return a new claim with defaults, the protection finalizer and phase Pending.

    Raises `StatusError` 422 for missing or unknown access modes, and without a positive size.
    """
    name, spec = new["metadata"]["name"], {**new.get("spec", {})}
    modes = spec.get("accessModes") or []
    requested_size = (spec.get("resources") or {}).get("requests", {}).get("storage")
    problems = []
    if not modes:
        problems.append(("spec.accessModes", "Required value: at least 1 access mode is required"))
    elif not set(modes) <= _ACCESS_MODES:
        problems.append(("spec.accessModes", f"Unsupported value: {modes}"))
    if requested_size is None:
        problems.append(("spec.resources[storage]", "Required value"))
    elif not _is_positive(requested_size):
        problems.append(("spec.resources[storage]", "Invalid value: must be greater than zero"))
    if problems:
        raise make_invalid("PersistentVolumeClaim", name, problems)
    # Defaults that the API server writes into the object; clients compare them with their own.
    spec.setdefault("volumeMode", "Filesystem")
    if "storageClassName" not in spec and (class_name := find_default_class(objects)):
        spec["storageClassName"] = class_name
    # The protection keeps a claim while a pod uses it.
    finalizers = sorted({*new["metadata"].get("finalizers", []), PROTECTION_FINALIZER})
    metadata = {**new["metadata"], "finalizers": finalizers}
    return {**new, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _check_claim_change(objects: ClusterObjects, old: Object, new: Object) -> None:
    """Raise `StatusError` for any change of a claim's spec but a bound claim's growth.

    422 for a forbidden change or a smaller size, 403 where the storage class does not let claims
    grow.
    """
    name = old["metadata"]["name"]
    old_size, new_size = _get_requested_size(old), _get_requested_size(new)
    is_bound = old["status"]["phase"] == "Bound"
    if _drop_size(old) != _drop_size(new) or (old_size != new_size and not is_bound):
        message = (
            "Forbidden: spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        raise make_invalid("PersistentVolumeClaim", name, [("spec", message)])
    if not _is_positive(new_size):
        message = "Invalid value: must be greater than zero"
        raise make_invalid("PersistentVolumeClaim", name, [("spec.resources[storage]", message)])
    if parse_quantity(new_size) < parse_quantity(old_size):
        message = "Forbidden: field can not be less than previous value"
        path = "spec.resources.requests.storage"
        raise make_invalid("PersistentVolumeClaim", name, [(path, message)])
    # Growth needs a class that allows it; the class itself never changes after the creation.
    if parse_quantity(new_size) > parse_quantity(old_size) and not can_grow(objects, old):
        raise StatusError(
            403,
            f'persistentvolumeclaims "{name}" is forbidden: only dynamically provisioned pvc can '
            "be resized and the storageclass that provisions the pvc must support resize",
        )


def _get_requested_size(claim: Object) -> Any:
    """Return the storage size requested by a volume claim, or None."""
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")


def _drop_size(claim: Object) -> dict[str, Any]:
    """Return a claim's spec without `resources`, which has the requested size, for comparison."""
    return {key: value for key, value in claim["spec"].items() if key != "resources"}


def _is_positive(quantity: Any) -> bool:
    """Return whether a value is a valid Kubernetes quantity above zero."""
    try:
        return parse_quantity(quantity) > 0
    except ValueError:
        return False


def _get_node_name(pod: Object) -> Any:
    """Return the name of the node of a pod, or None for an unscheduled pod."""
    return pod["spec"].get("nodeName")
