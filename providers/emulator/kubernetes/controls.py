"""Let tests change a cluster's Kubernetes past its API, under `/_emulator/kubernetes/`."""

from typing import Any

from flask import Response, request
from pydantic import BaseModel, Field

from gpuform.providers.emulator.kubernetes import verbs
from gpuform.providers.emulator.kubernetes.controllers import (
    find_running_cluster,
    load_current_objects,
    reconcile_objects,
)
from gpuform.providers.emulator.kubernetes.kinds import (
    CLAIM,
    NAMESPACE,
    NODE,
    POD,
    KubernetesSettings,
    StatusError,
)
from gpuform.providers.emulator.kubernetes.nodes import set_readiness
from gpuform.providers.emulator.kubernetes.objects import ClusterObjects
from gpuform.providers.emulator.kubernetes.pods import RUNS_FOR, end_pods, list_ended_pods
from gpuform.providers.emulator.kubernetes.verbs import ObjectAddress
from gpuform.providers.emulator.routing import PlatformControls, RouteTable, answer_json


class _PodBody(BaseModel, extra="forbid"):
    """A pod for the API to run."""

    name: str
    namespace: str = "default"
    node: str | None = None
    """The node where the pod runs; None: any node that takes the pod."""
    runs_for: float | None = Field(default=None, ge=0)
    """Seconds of the clock that the pod runs; None: until somebody ends the pod."""
    grace: int = Field(default=30, ge=0)
    gpus: int = Field(default=0, ge=0)
    labels: dict[str, str] = {}
    claims: list[str] = []


class _NodeBody(BaseModel, extra="forbid"):
    """The readiness of a node."""

    ready: bool


class KubernetesControls(PlatformControls):
    """Add pods, break nodes, list how pods ended, remove claims; set the installed software."""

    settings = KubernetesSettings

    def _list_routes(self) -> RouteTable:
        """Return the routes by which tests add pods, change nodes and remove volume claims."""
        return (
            ("POST", "/<cluster_id>/pods", self._add_pod),
            ("POST", "/<cluster_id>/nodes/<name>", self._set_node),
            ("GET", "/<cluster_id>/ended", self._list_ended_pods),
            ("DELETE", "/<cluster_id>/<namespace>/<name>", self._remove_claim),
        )

    def _add_pod(self, cluster_id: str) -> Response:
        """Create the pod in the body for a test, without the cluster's token, and answer the pod.

        The pod's namespace is created if missing, and the pod has been scheduled if a node takes
        it. Raises `StatusError`: 404 without a running control plane, 409 for a name in use, 422
        for an invalid pod.
        """
        body = _PodBody.model_validate_json(request.get_data())
        objects = self._load_objects(cluster_id)
        if objects.get(NAMESPACE, body.namespace) is None:
            # A test's pod brings its namespace along.
            objects.add(NAMESPACE, {"metadata": {"name": body.namespace}})
        pod = verbs.create_object(objects, ObjectAddress(POD, body.namespace), _build_pod(body))
        reconcile_objects(self._store, objects)
        return answer_json(objects.get(POD, pod["metadata"]["name"], body.namespace), 201)

    def _set_node(self, cluster_id: str, name: str) -> Response:
        """Set whether a node is Ready, as the body says, and answer the node.

        Raises `StatusError` 404.
        """
        body = _NodeBody.model_validate_json(request.get_data())
        objects = self._load_objects(cluster_id)
        node = verbs.get_object(objects, ObjectAddress(NODE, name=name))
        changed_node = set_readiness(node, objects.now, ready=body.ready)
        return answer_json(objects.replace(NODE, node, changed_node))

    def _list_ended_pods(self, cluster_id: str) -> Response:
        """Answer how each ended pod of a cluster ended, oldest first.

        The entries are those of `list_ended_pods`. First brings the cluster to the present time.
        The answers stay after the end of the cluster, which kills the pods that still ran.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = find_running_cluster(self._store, cluster_id, now)
        if cluster is not None:
            load_current_objects(self._store, cluster, now)
        else:  # pods that still ran ended with the cluster
            objects = ClusterObjects(self._store, cluster_id, now)
            nodes = (str(pod["spec"].get("nodeName")) for pod in objects.list_objects(POD))
            end_pods(self._store, cluster_id, objects, dict.fromkeys(nodes, now))
        return answer_json(list_ended_pods(self._store, cluster_id))

    def _remove_claim(self, cluster_id: str, namespace: str, name: str) -> Response:
        """Remove a volume claim at once, even one in use, and answer the claim's last state.

        Raises `StatusError` 404.
        """
        objects = self._load_objects(cluster_id)
        claim = verbs.get_object(objects, ObjectAddress(CLAIM, namespace, name))
        # Without regard to finalizers, like a deletion in etcd itself.
        return answer_json(objects.remove(CLAIM, claim))

    def _load_objects(self, cluster_id: str) -> ClusterObjects:
        """Return the cluster's objects, brought to the clock's present time and stored.

        Raises `StatusError` 404 without a running control plane.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = find_running_cluster(self._store, cluster_id, now)
        if cluster is None:
            raise StatusError(404, f"cluster {cluster_id!r}: no control plane runs now")
        return load_current_objects(self._store, cluster, now)


def _build_pod(body: _PodBody) -> dict[str, Any]:
    """Return the Kubernetes object of a test's pod: GPUs, claims, grace period and run time."""
    resources = {"limits": {"nvidia.com/gpu": str(body.gpus)}} if body.gpus else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "job", "resources": resources}],
        "terminationGracePeriodSeconds": body.grace,
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in body.claims
        ],
    }
    if body.node is not None:
        spec["nodeName"] = body.node
    annotations = {} if body.runs_for is None else {RUNS_FOR: str(body.runs_for)}
    metadata = {"name": body.name, "labels": body.labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}
