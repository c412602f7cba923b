"""The engine's objects in a cluster: certifications, and what belongs to them.

Facts are from its API reference ('Certification'). Its API group has changed its name between
versions, so that the cluster is asked for it. The spec of a certification never changes: other
tests are another certification.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from gpuform.providers.certifying import Unreadable
from gpuform.providers.errors import Conflict, GpuformError, NotFound, ServerError
from gpuform.providers.http import at
from gpuform.providers.kubernetes.client import KubernetesClient, Object
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.readiness_wire import Certification, Measurement, Workflow

GROUPS: Final = ("nvcre.nvidia.com", "cre.nvidia.com")
"""The groups that its versions have, the newest first."""

_VERSION: Final = "v1alpha1"
OWNER: Final = "gpuform.dev/urn"
"""The annotation that says which resource a certification was made for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a certification is."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ReadinessEngine:
    """The engine of one cluster. Every method raises GpuformErrors only."""

    kubernetes: KubernetesClient
    api: str
    """Group and version of its API."""

    def find(self, place: Place) -> Certification | None:
        """The certification of that name, whoever made it."""
        path = self._at(place)
        try:
            return _certification(self.kubernetes.get(path), path)
        except NotFound:
            return None

    def create(self, body: Object) -> None:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        self.kubernetes.create(self._folder(body["metadata"]["namespace"]), body)

    def delete(self, place: Place, uid: str) -> None:
        """Begins to delete that very certification, with all that belongs to it."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        try:
            self.kubernetes.delete(self._at(place), options)
        except (NotFound, Conflict):
            return

    def workflow(self, namespace: str, name: str) -> Workflow | None:
        """What runs one category. Raises Unreadable for what has not its form."""
        path = f"/apis/{self.api}/namespaces{at(namespace)}/workflows{at(name)}"
        try:
            return Workflow.model_validate(self.kubernetes.get(path))
        except NotFound:
            return None
        except ValidationError:
            raise Unreadable(f"workflow {namespace}/{name} has an unexpected form") from None

    def measurements(self, namespace: str) -> list[Measurement]:
        """What was measured in a namespace: one request for each of the two kinds."""
        found = []
        for plural in ("bandwidthmeasurements", "goodputmeasurements"):
            path = f"/apis/{self.api}/namespaces{at(namespace)}/{plural}"
            try:
                listed = self.kubernetes.list(path)
            except NotFound:
                continue  # a version without this kind
            for each in listed:
                with suppress(ValidationError):  # what cannot be read has measured nothing
                    found.append(Measurement.model_validate(each))
        return found

    def config_map(self, namespace: str, name: str) -> Object | None:
        """A list of nodes that the engine has kept."""
        try:
            return self.kubernetes.get(f"/api/v1/namespaces{at(namespace)}/configmaps{at(name)}")
        except NotFound:
            return None

    def _folder(self, namespace: str) -> str:
        return f"/apis/{self.api}/namespaces{at(namespace)}/certifications"

    def _at(self, place: Place) -> str:
        return self._folder(place.namespace) + at(place.name)


def engine_of(kubernetes: KubernetesClient, cluster: str) -> ReadinessEngine:
    """The engine of a cluster. `cluster` is what people call it.

    Raises GpuformError where it is not installed: nothing is ever installed for somebody.
    """
    listed = kubernetes.get("/apis").get("groups")
    served: dict[str, set[str]] = {}
    for group in listed if isinstance(listed, list) else ():
        if isinstance(group, Mapping):
            versions = group.get("versions")
            told = versions if isinstance(versions, list) else []
            served[str(group.get("name"))] = {
                str(each.get("version")) for each in told if isinstance(each, Mapping)
            }
    for group in GROUPS:
        if _VERSION in served.get(group, ()):
            return ReadinessEngine(kubernetes, f"{group}/{_VERSION}")
    others = [f"{group}/{version}" for group in GROUPS for version in served.get(group, ())]
    if others:
        raise GpuformError(
            f"cluster {cluster} has the Cluster Readiness Engine in another version of its API "
            f"({', '.join(sorted(others))}); gpuform knows {_VERSION}",
            hint="install a version of the engine with that API, or use a newer gpuform",
        )
    raise GpuformError(
        f"cluster {cluster} has no Cluster Readiness Engine: its Kubernetes serves neither "
        f"{' nor '.join(GROUPS)}",
        hint="install it, `nvcrectl setup init` with this cluster's kubeconfig (NVIDIA's page "
        "'Install'); gpuform installs nothing in a cluster",
    )


def manifest(
    api: str, place: Place, categories: Sequence[CategoryInputs], nodes: Sequence[str], urn: str
) -> dict[str, Any]:
    """A certification of these nodes. A floor is a threshold of the engine, too."""
    return {
        "apiVersion": api,
        "kind": "Certification",
        "metadata": {
            "name": place.name,
            "namespace": place.namespace,
            "annotations": {OWNER: urn},
        },
        "spec": {
            "target": {"nodeNames": sorted(nodes)},
            "categories": [_category(each) for each in categories],
        },
    }


def _category(category: CategoryInputs) -> dict[str, Any]:
    options = dict(category.options or {})
    if category.required is not None:
        options["thresholds"] = {category.measured_metric: f"value >= {category.required:.12g}"}
    body: dict[str, Any] = {"domain": category.domain, "variant": category.variant}
    return {**body, "options": options} if options else body


def _certification(body: Object, path: str) -> Certification:
    try:
        return Certification.model_validate(body)
    except ValidationError:
        raise ServerError(
            f"Kubernetes: GET {path} answered in an unexpected form",
            method="GET",
            path=path,
            status=200,
        ) from None
