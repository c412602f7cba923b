"""Read, create and delete the objects of the Cluster Readiness Engine in a cluster.

`results` calls it. Facts are from the engine's API reference ('Certification'). The engine's API
group has changed its name between versions, so the cluster is asked for the group. The spec of a
certification never changes: other tests need a new certification.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gpuform.providers.certifying import UnreadableResult
from gpuform.providers.errors import Conflict, GpuformError, NotFound
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient, KubernetesObject, parse_object
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.readiness_wire import (
    CategoryStatus,
    Certification,
    FailedNode,
    Measurement,
    Reference,
    Workflow,
    find_true_condition,
    parse_failed_nodes,
    parse_group_nodes,
    parse_succeeded_nodes,
)

T = TypeVar("T")

API_GROUPS: Final = ("nvcre.nvidia.com", "cre.nvidia.com")
"""The API groups of the engine's versions, the newest first."""

_API_VERSION: Final = "v1alpha1"
OWNER_ANNOTATION: Final = "gpuform.dev/urn"
"""The annotation with the URN of the resource that a certification was created for."""


@dataclass(frozen=True, slots=True)
class CertificationName:
    """Namespace and name of a certification."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ReadinessEngine:
    """The engine of one cluster. Methods raise only GpuformErrors."""

    kubernetes: KubernetesClient
    api_version: str
    """Group and version of the engine's API, as `nvcre.nvidia.com/v1alpha1`."""

    def find_certification(self, name: CertificationName) -> Certification | None:
        """Return the certification called `name`, created by anybody, or None.

        Raises:
            ServerError: the object has another form.
        """
        path = self._get_path(name)
        try:
            return parse_object(Certification, self.kubernetes.get_object(path), path)
        except NotFound:
            return None

    def create_certification(self, body: KubernetesObject) -> None:
        """Create a certification by one request, which is never sent again.

        Raises:
            UnknownOutcome: the answer was lost.
        """
        self.kubernetes.create_object(
            self._get_collection_path(body["metadata"]["namespace"]), body
        )

    def delete_certification(self, name: CertificationName, uid: str) -> None:
        """Begin to delete the certification with uid `uid` and all dependent objects.

        A missing certification, or another one of the name, is left alone.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            # Foreground: the certification stays visible until its workflows and pods are gone.
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        try:
            self.kubernetes.delete_object(self._get_path(name), options)
        # Conflict: somebody has created another certification of this name since.
        except (NotFound, Conflict):
            return

    def find_workflow(self, namespace: str, name: str) -> Workflow | None:
        """Return the workflow of one category, or None.

        Raises:
            UnreadableResult: the object has another form.
        """
        workflows = f"/apis/{self.api_version}/namespaces{build_path(namespace)}/workflows"
        try:
            return Workflow.model_validate(self.kubernetes.get_object(workflows + build_path(name)))
        except NotFound:
            return None
        except ValidationError:
            raise UnreadableResult(f"workflow {namespace}/{name} has an unexpected form") from None

    def list_measurements(self, namespace: str) -> list[Measurement]:
        """Return the measurements in a namespace, by one request for each of the two kinds.

        A kind that the engine's version lacks, and an object in another form, are left out.
        """
        measurements = []
        for plural in ("bandwidthmeasurements", "goodputmeasurements"):
            path = f"/apis/{self.api_version}/namespaces{build_path(namespace)}/{plural}"
            try:
                raw_measurements = self.kubernetes.list_objects(path)
            except NotFound:
                continue  # a version without this kind
            for raw_measurement in raw_measurements:
                with suppress(ValidationError):  # what cannot be read has measured nothing
                    measurements.append(Measurement.model_validate(raw_measurement))
        return measurements

    def find_config_map(self, namespace: str, name: str) -> KubernetesObject | None:
        """Return the ConfigMap in which the engine keeps a list of nodes, or None."""
        try:
            return self.kubernetes.get_object(
                f"/api/v1/namespaces{build_path(namespace)}/configmaps{build_path(name)}"
            )
        except NotFound:
            return None

    def _get_collection_path(self, namespace: str) -> str:
        """Return the API path of all certifications in a namespace."""
        return f"/apis/{self.api_version}/namespaces{build_path(namespace)}/certifications"

    def _get_path(self, name: CertificationName) -> str:
        """Return the API path of one certification in the readiness engine."""
        return self._get_collection_path(name.namespace) + build_path(name.name)


def find_engine(kubernetes: KubernetesClient, cluster: str) -> ReadinessEngine:
    """Return the engine of a cluster; `cluster` is the cluster's name for messages.

    Raises:
        GpuformError: the engine is not installed, or has another version of the API. gpuform never
            installs it.
    """
    # `/apis` lists the API groups of the cluster: a missing group means a missing engine.
    groups = kubernetes.get_object("/apis").get("groups")
    versions_by_group: dict[str, set[str]] = {}
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, Mapping):
            versions = group.get("versions")
            version_list = versions if isinstance(versions, list) else []
            versions_by_group[str(group.get("name"))] = {
                str(version.get("version"))
                for version in version_list
                if isinstance(version, Mapping)
            }
    # The newest group first: a cluster in the middle of an upgrade serves both.
    for group in API_GROUPS:
        if _API_VERSION in versions_by_group.get(group, ()):
            return ReadinessEngine(kubernetes, f"{group}/{_API_VERSION}")
    others = [
        f"{group}/{version}" for group in API_GROUPS for version in versions_by_group.get(group, ())
    ]
    if others:
        raise GpuformError(
            f"cluster {cluster}: its Cluster Readiness Engine has another version of the API "
            f"({', '.join(sorted(others))}); gpuform knows {_API_VERSION}",
            hint="install a version of the engine with that API, or use a newer gpuform",
        )
    raise GpuformError(
        f"cluster {cluster} has no Cluster Readiness Engine: its Kubernetes serves neither "
        f"{' nor '.join(API_GROUPS)}",
        hint="install the engine with `nvcrectl setup init` and this cluster's kubeconfig (see "
        "NVIDIA's page 'Install'); gpuform installs nothing in a cluster",
    )


def build_certification(
    api_version: str,
    name: CertificationName,
    categories: Sequence[CategoryInputs],
    nodes: Sequence[str],
    urn: str,
) -> dict[str, Any]:
    """Return the body of a certification of `nodes`, with declared floors as thresholds.

    `urn` becomes the annotation `OWNER_ANNOTATION`, by which later runs recognize the
    certification.
    """
    return {
        "apiVersion": api_version,
        "kind": "Certification",
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "annotations": {OWNER_ANNOTATION: urn},
        },
        "spec": {
            # Sorted: the body depends on the nodes alone, not on their order.
            "target": {"nodeNames": sorted(nodes)},
            "categories": [_build_category(category) for category in categories],
        },
    }


def _build_category(category: CategoryInputs) -> dict[str, Any]:
    """Return a category for the spec of a certification, with a threshold for a declared floor.

    The threshold is the floor less the tolerance. The engine then fails the category by itself if a
    node is below the threshold.
    """
    options = dict(category.options or {})
    if category.required is not None:
        # The engine then fails the category by itself, and names the nodes below the floor.
        options["thresholds"] = {category.measured_metric: f"value >= {category.required:.12g}"}
    body: dict[str, Any] = {"domain": category.domain, "variant": category.variant}
    return {**body, "options": options} if options else body


class CategoryReports:
    """What the engine's objects report of one category; its creation fetches the workflow."""

    def __init__(
        self,
        engine: ReadinessEngine,
        namespace: str,
        status: CategoryStatus,
        measurements_by_job: Mapping[str, Sequence[Measurement]],
    ) -> None:
        self._engine = engine
        self.status = status
        self._namespace = namespace
        self._measurements_by_job = measurements_by_job
        self.workflow = self._find_workflow()

    @property
    def has_passed(self) -> bool:
        """Return True if the engine reports category and workflow as passed."""
        if self.status.status != "Succeeded":
            return False
        # The category's status alone is no proof: its workflow may report a failed validation.
        conditions = self.workflow.status.conditions if self.workflow is not None else ()
        return not any(
            find_true_condition(conditions, kind) for kind in ("Failed", "ValidationFailed")
        )

    def find_measured_value(self, job: str, metric: str) -> float | None:
        """Return the measured value of a job, the lowest of several, or None."""
        values = (
            measurement.get_value(metric) for measurement in self._measurements_by_job.get(job, ())
        )
        # The lowest, because each measurement of the job has to reach the floor.
        return min((value for value in values if value is not None), default=None)

    def read_nodes_by_group(self) -> dict[str, list[str]]:
        """Return each group's nodes, from the group's ConfigMap, else from the workflow.

        Empty without a workflow.

        Raises:
            UnreadableResult: the named ConfigMap is gone or has another form.
        """
        workflow = self.workflow
        if workflow is None:
            return {}
        nodes_in_workflow = {
            group.name: [*group.nodes] for group in workflow.status.orchestration.groups
        }
        return (
            self._read_config_map(workflow.status.group_nodes, parse_group_nodes)
            or nodes_in_workflow
        )

    def read_failed_nodes(self) -> list[FailedNode]:
        """Return the nodes which the engine lists as failed, each with a reason; [] without a list.

        The list is a ConfigMap that the category's status names, or else the workflow's.

        Raises:
            UnreadableResult: the named ConfigMap is gone or has another form.
        """
        reference = self.status.failed_nodes or (
            self.workflow.status.failed_nodes if self.workflow is not None else None
        )
        return self._read_config_map(reference, parse_failed_nodes) or []

    def read_succeeded_nodes(self) -> list[str] | None:
        """Return the names of the nodes which the engine lists as passed; None without a list.

        The list is a ConfigMap that the category's status names, or else the workflow's.

        Raises:
            UnreadableResult: the named ConfigMap is gone or has another form.
        """
        reference = self.status.succeeded_nodes or (
            self.workflow.status.succeeded_nodes if self.workflow is not None else None
        )
        return self._read_config_map(reference, parse_succeeded_nodes)

    def _find_workflow(self) -> Workflow | None:
        """Fetch the workflow which the category's status names; None if none is named or exists."""
        reference = self.status.workflow
        if reference is None or not reference.name:
            return None
        namespace = reference.namespace or self._namespace
        return self._engine.find_workflow(namespace, reference.name)

    def _read_config_map(
        self, reference: Reference | None, parse: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        """Fetch the ConfigMap of `reference` and return the content, or None without reference.

        Raises:
            UnreadableResult: the named ConfigMap is gone, or `parse` refuses the content.
        """
        if reference is None or not reference.name:
            return None
        config_map = self._engine.find_config_map(self._namespace, reference.name)
        label = f"the list of nodes {self._namespace}/{reference.name}"
        # The engine names the list with the nodes: without it they cannot be distinguished.
        if config_map is None:
            raise UnreadableResult(f"{label} not found: its results are unknown")
        try:
            return parse(config_map)
        except (ValueError, ValidationError) as error:
            problem = (
                "its nodes have an unexpected form"
                if isinstance(error, ValidationError)
                else str(error)
            )
            raise UnreadableResult(f"{label} cannot be read: {problem}") from None
