"""List the kinds of objects that the API serves, their discovery and settings, and error answers.

All modules of `kubernetes` use this one. API groups and versions differ between the versions of
readiness engine, Kueue and Slinky, so a setting says which ones are served.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from gpuform.providers.emulator.routing import PlatformSettings, Refusal

# What discovery promises for every kind.
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True)
class Kind:
    """A kind of object, as discovery describes it."""

    name: str
    plural: str
    version: str
    group: str = ""
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of objects: group and version, or the version alone."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def folder(self) -> str:
        """Return the path of the kind's group and version, such as `apis/apps/v1` or `api/v1`."""
        return f"apis/{self.api_version}" if self.group else f"api/{self.version}"

    @property
    def resource(self) -> str:
        """Return the kind's plural with its group as in messages: `jobs.batch`, or `pods` alone."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_STATUS = ("status",)
NAMESPACE = Kind("Namespace", "namespaces", "v1", is_namespaced=False, short_names=("ns",))
NODE = Kind("Node", "nodes", "v1", is_namespaced=False, short_names=("no",), subresources=_STATUS)
POD = Kind("Pod", "pods", "v1", short_names=("po",), subresources=("status", "eviction", "exec"))
VOLUME = Kind(
    "PersistentVolume",
    "persistentvolumes",
    "v1",
    is_namespaced=False,
    short_names=("pv",),
    subresources=_STATUS,
)
CLAIM = Kind(
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    "v1",
    short_names=("pvc",),
    subresources=_STATUS,
)
STORAGE_CLASS = Kind(
    "StorageClass",
    "storageclasses",
    "v1",
    "storage.k8s.io",
    is_namespaced=False,
    short_names=("sc",),
)
BUDGET = Kind(
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "v1",
    "policy",
    short_names=("pdb",),
    subresources=_STATUS,
)
REPLICA_SET = Kind(
    "ReplicaSet", "replicasets", "v1", "apps", short_names=("rs",), subresources=_STATUS
)
STATEFUL_SET = Kind(
    "StatefulSet", "statefulsets", "v1", "apps", short_names=("sts",), subresources=_STATUS
)
DAEMON_SET = Kind(
    "DaemonSet", "daemonsets", "v1", "apps", short_names=("ds",), subresources=_STATUS
)
JOB = Kind("Job", "jobs", "v1", "batch", subresources=_STATUS)
CONFIG_MAP = Kind("ConfigMap", "configmaps", "v1", short_names=("cm",))
TOPOLOGY = Kind("Topology", "topologies", "v1beta2", "kueue.x-k8s.io", is_namespaced=False)
"""A kind of Kueue, which every emulated cluster has."""
FLAVOR = Kind(
    "ResourceFlavor",
    "resourceflavors",
    "v1beta2",
    "kueue.x-k8s.io",
    is_namespaced=False,
    short_names=("rf",),
)

ENGINE_GROUP = "nvcre.nvidia.com"
"""The API group of NVIDIA's Cluster Readiness Engine, as its newer versions call it."""
CERTIFICATION = Kind(
    "Certification", "certifications", "v1alpha1", ENGINE_GROUP, subresources=_STATUS
)
WORKFLOW = Kind("Workflow", "workflows", "v1alpha1", ENGINE_GROUP, subresources=_STATUS)
BANDWIDTH = Kind(
    "BandwidthMeasurement",
    "bandwidthmeasurements",
    "v1alpha1",
    ENGINE_GROUP,
    subresources=_STATUS,
)
GOODPUT = Kind(
    "GoodputMeasurement", "goodputmeasurements", "v1alpha1", ENGINE_GROUP, subresources=_STATUS
)

KINDS = (
    NAMESPACE,
    NODE,
    POD,
    VOLUME,
    CLAIM,
    STORAGE_CLASS,
    BUDGET,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    CONFIG_MAP,
    TOPOLOGY,
    FLAVOR,
    CERTIFICATION,
    WORKFLOW,
    BANDWIDTH,
    GOODPUT,
)
KIND_BY_PATH = {(kind.folder, kind.plural): kind for kind in KINDS}
KIND_BY_PLURAL = {kind.plural: kind for kind in KINDS}
# The version that clients see; kubectl warns where it differs from its own by more than one.
VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"}


def find_discovery_document(
    path: str, served: Mapping[str, Sequence[str]]
) -> dict[str, Any] | None:
    """Return the discovery document at a path below the API's root, or None for another path.

    `served` has the `apiVersion`s under which kinds of a stored `apiVersion` are served, the
    preferred one first. An empty list hides the kinds; kinds that are missing there are served as
    they are stored.
    """
    if path == "version":
        return VERSION
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    kinds_by_version: dict[str, list[Kind]] = {}
    for kind in KINDS:
        # Software that is not installed has no kinds, and clients have to see so.
        for api_version in served.get(kind.api_version, (kind.api_version,)):
            kinds_by_version.setdefault(api_version, []).append(kind)
    versions_by_group: dict[str, list[str]] = {}
    for api_version in kinds_by_version:
        group, _, version = api_version.rpartition("/")
        versions_by_group.setdefault(group, []).append(version)
    groups = {
        group: _build_group(group, versions)
        for group, versions in versions_by_group.items()
        if group
    }
    if path == "apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}
    root, _, name = path.partition("/")
    if root == "apis" and name in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **groups[name]}
    if name not in kinds_by_version or (root == "apis") != ("/" in name):
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": name,
        "resources": [entry for kind in kinds_by_version[name] for entry in _list_resources(kind)],
    }


def _build_group(group: str, versions: Sequence[str]) -> dict[str, Any]:
    """Return the discovery entry of an API group: its name and its versions, preferred first."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _list_resources(kind: Kind) -> list[dict[str, Any]]:
    """Return the discovery entries of a kind: the resource itself and each subresource."""
    resource = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": _VERBS,
        "shortNames": list(kind.short_names),
    }
    return [resource, *(_build_subresource(kind, name) for name in kind.subresources)]


def _build_subresource(kind: Kind, name: str) -> dict[str, Any]:
    """Return the discovery entry of a kind's subresource, such as `eviction` or `exec`."""
    entry: dict[str, Any] = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": ["get", "patch", "update"],
    }
    if name == "eviction":
        entry |= {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
    if name == "exec":
        entry |= {"kind": "PodExecOptions", "verbs": ["create", "get"]}
    return entry


def build_openapi_index(base: str) -> dict[str, Any]:
    """Return the OpenAPI index: for each group and version the URL of the document.

    `base` is the path of the cluster's API.
    """
    folders = {kind.folder for kind in KINDS}
    urls = {
        folder: {"serverRelativeURL": f"{base}/openapi/v3/{folder}"} for folder in sorted(folders)
    }
    return {"paths": urls}


def find_openapi_document(folder: str) -> dict[str, Any] | None:
    """Return the OpenAPI document of a group and version, or None if nothing is served there.

    The document has only the PATCH operation of each kind. `folder` is a path such as
    `apis/apps/v1`.
    """
    kinds = [kind for kind in KINDS if kind.folder == folder]
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": {
            _build_openapi_path(kind): {"patch": _build_patch_operation(kind)} for kind in kinds
        },
    }


def _build_openapi_path(kind: Kind) -> str:
    """Return the path template of a kind's objects in the OpenAPI document."""
    namespace_part = "namespaces/{namespace}/" if kind.is_namespaced else ""
    return f"/{kind.folder}/{namespace_part}{kind.plural}/{{name}}"


def _build_patch_operation(kind: Kind) -> dict[str, Any]:
    """Return the OpenAPI entry of a kind's PATCH with the parameter `fieldValidation`.

    With this parameter clients leave the checks of fields to the server.
    """
    return {
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "kind": kind.name,
            "version": kind.version,
        },
    }


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Refusal):
    """Raised where the API refuses: answered with `status` and a Status object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(status, message)
        # Built here, so that a route needs no more than the error.
        self.body = build_failure_status(status, message, reason=reason, details=details)


def build_failure_status(
    status: int, message: str, *, reason: str | None = None, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the Status object for a failure with the HTTP status `status`.

    Without a `reason`, it is the usual one of the HTTP status.
    """
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(status, "Unknown"),
        **({"details": details} if details else {}),
        "code": status,
    }


def make_not_found(resource: str, name: str) -> StatusError:
    """Return the 404 for a missing object; `resource` is `Kind.resource`, such as `pods`."""
    details = {"name": name, "kind": resource}
    return StatusError(404, f'{resource} "{name}" not found', details=details)


def make_conflict(resource: str, name: str) -> StatusError:
    """Return the 409 for a request with an outdated `resourceVersion`, or with another `uid`.

    Another `uid` is that of an earlier object with the same name. `resource` is as in
    `make_not_found`.
    """
    message = (
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return StatusError(409, message, details={"name": name, "kind": resource})


def make_invalid(kind: str, name: str, problems: list[tuple[str, str]]) -> StatusError:
    """Return the 422 for an object; `problems` are pairs of a field's path and a message."""
    causes = [
        {"reason": "FieldValueInvalid", "message": message, "field": field}
        for field, message in problems
    ]
    listed_problems = ", ".join(f"{field}: {message}" for field, message in problems)
    return StatusError(
        422,
        f'{kind} "{name}" is invalid: {listed_problems}',
        details={"name": name, "kind": kind, "causes": causes},
    )


ServedVersions = Mapping[str, Sequence[str]]
"""For the `apiVersion` under which objects are stored, those under which the API serves them.

An empty list means that the software is not installed. Others are served as they are stored.
"""

_NOT_SERVED: Final = "the server could not find the requested resource"


class KubernetesSettings(PlatformSettings):
    """What tests can set of the software in all emulated clusters."""

    kind: ClassVar[str] = "kubernetes/engine"

    # The engine was renamed; clusters have the one or the other.
    group: Literal["nvcre.nvidia.com", "cre.nvidia.com", ""] = "nvcre.nvidia.com"
    """The engine's API group; empty where the engine is not installed."""
    seconds: float = Field(default=600, ge=0)
    """How long a category of the engine takes."""
    slow_nodes: dict[str, float] = Field(default_factory=dict)
    """Node -> GB/s of bus bandwidth that a job with the node reaches at most."""
    broken_nodes: dict[str, str] = Field(default_factory=dict)
    """Node -> the message with which each job on the node fails."""
    network_problem: str = ""
    """Why the engine finds no RDMA network: it then fails the next category that needs one.

    Empty where the network is found. Version 0.10 and newer fail the certification; before, the
    pods were attached to a network with a fixed name.
    """
    kueue_versions: tuple[Literal["v1beta1", "v1beta2"], ...] = ("v1beta2",)
    """The versions of Kueue's API, the preferred one first.

    Kueue 0.14 serves v1beta1, 0.15 to 0.19 serve both, and 0.20 serves v1beta2 (Kueue's release
    notes of 0.15 and 0.20). Empty where Kueue is not installed.
    """

    slinky: Literal["1.2", "1.3", ""] = "1.3"
    """The version of Slinky's operator in Slurm clusters; empty where it does nothing."""

    @property
    def has_old_kueue(self) -> bool:
        """Return whether Kueue is older than 0.20, which has ended v1beta1."""
        return "v1beta1" in self.kueue_versions

    @property
    def slinky_request(self) -> str:
        """Return the annotation of a pod by which others ask Slinky for a drain."""
        name = "pod-cordon" if self.slinky == "1.2" else "pod-cordon-requested"
        return f"nodeset.slinky.slurm.net/{name}"

    @property
    def served_versions(self) -> ServedVersions:
        """Return the versions that the API serves of the engine and of Kueue."""
        engine = f"{self.group}/{CERTIFICATION.version}"
        return {
            CERTIFICATION.api_version: (engine,) if self.group else (),
            TOPOLOGY.api_version: [
                f"{TOPOLOGY.group}/{version}" for version in self.kueue_versions
            ],
        }


def find_stored_path(path: str, served: ServedVersions) -> str:
    """Return the path with the version of stored objects in place of the version that is served.

    Raises `StatusError` 404 for a version that is stored, and not served.
    """
    root, *parts = path.split("/")
    requested = "/".join(parts[:2])
    if root != "apis":
        return path
    for stored, versions in served.items():
        if requested in versions:
            return "/".join((root, stored, *parts[2:]))
        if requested == stored:
            raise StatusError(404, _NOT_SERVED)
    return path


def rename_api_version(content: dict[str, Any], path: str) -> dict[str, Any]:
    """Return an object or list with the `apiVersion` of the requested API path.

    Only a group and version under `apis/` replace those of the content.
    """
    root, *parts = path.split("/")
    if root != "apis" or "/" not in str(content.get("apiVersion", "")):
        return content
    renamed = {**content, "apiVersion": "/".join(parts[:2])}
    if isinstance(items := renamed.get("items"), list):
        renamed["items"] = [rename_api_version(item, path) for item in items]
    return renamed
