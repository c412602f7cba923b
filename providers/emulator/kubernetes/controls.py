"""What tests do to a cluster's API from the side, under `/_emulator/kubernetes/`."""

from typing import Any

from flask import Response, request
from pydantic import BaseModel, ConfigDict, Field

from gpuform.providers.emulator.kubernetes import verbs
from gpuform.providers.emulator.kubernetes.controllers import brought_to, running_cluster, settle
from gpuform.providers.emulator.kubernetes.kinds import CLAIM, NAMESPACE, NODE, POD, StatusError
from gpuform.providers.emulator.kubernetes.nodes import with_readiness
from gpuform.providers.emulator.kubernetes.objects import Objects
from gpuform.providers.emulator.kubernetes.pods import RUNS_FOR, end_pods, ended
from gpuform.providers.emulator.kubernetes.readiness import EngineSettings
from gpuform.providers.emulator.kubernetes.verbs import ObjectAddress
from gpuform.providers.emulator.routing import PlatformControls, RouteTable, answer_json


class _Pod(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    namespace: str = "default"
    node: str | None = None
    """Where it runs; else on any node that takes it."""
    runs_for: float | None = Field(default=None, ge=0)
    """Seconds of the clock; None: until somebody ends it."""
    grace: int = Field(default=30, ge=0)
    gpus: int = Field(default=0, ge=0)
    labels: dict[str, str] = {}
    claims: list[str] = []


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ready: bool


class KubernetesControls(PlatformControls):
    settings = EngineSettings

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/<cluster_id>/pods", self._add_pod),
            ("POST", "/<cluster_id>/nodes/<name>", self._set_node),
            ("GET", "/<cluster_id>/ended", self._list_ended),
            ("DELETE", "/<cluster_id>/<namespace>/<name>", self._remove_claim),
        )

    def _add_pod(self, cluster_id: str) -> Response:
        wanted = _Pod.model_validate_json(request.get_data())
        objects = self._objects(cluster_id)
        if objects.get(NAMESPACE, wanted.namespace) is None:
            objects.add(NAMESPACE, {"metadata": {"name": wanted.namespace}})
        made = verbs.create(objects, ObjectAddress(POD, wanted.namespace), _pod(wanted))
        settle(self._store, objects)
        return answer_json(objects.get(POD, made["metadata"]["name"], wanted.namespace), 201)

    def _set_node(self, cluster_id: str, name: str) -> Response:
        wanted = _Node.model_validate_json(request.get_data())
        objects = self._objects(cluster_id)
        node = verbs.get(objects, ObjectAddress(NODE, name=name))
        changed = with_readiness(node, objects.now, ready=wanted.ready)
        return answer_json(objects.replace(NODE, node, changed))

    def _list_ended(self, cluster_id: str) -> Response:
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = running_cluster(self._store, cluster_id, now)
        if cluster is not None:
            brought_to(self._store, cluster, now)
        else:  # what still ran has ended with the cluster
            objects = Objects(self._store, cluster_id, now)
            nodes = (str(pod["spec"].get("nodeName")) for pod in objects.of(POD))
            end_pods(self._store, cluster_id, objects, dict.fromkeys(nodes, now))
        return answer_json(ended(self._store, cluster_id))

    def _remove_claim(self, cluster_id: str, namespace: str, name: str) -> Response:
        """It is gone at once, whoever uses it."""
        objects = self._objects(cluster_id)
        claim = verbs.get(objects, ObjectAddress(CLAIM, namespace, name))
        return answer_json(objects.remove(CLAIM, claim))

    def _objects(self, cluster_id: str) -> Objects:
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = running_cluster(self._store, cluster_id, now)
        if cluster is None:
            raise StatusError(404, f"no cluster {cluster_id!r} has a control plane now")
        return brought_to(self._store, cluster, now)


def _pod(wanted: _Pod) -> dict[str, Any]:
    asked = {"limits": {"nvidia.com/gpu": str(wanted.gpus)}} if wanted.gpus else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "job", "resources": asked}],
        "terminationGracePeriodSeconds": wanted.grace,
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in wanted.claims
        ],
    }
    if wanted.node is not None:
        spec["nodeName"] = wanted.node
    annotations = {} if wanted.runs_for is None else {RUNS_FOR: str(wanted.runs_for)}
    metadata = {"name": wanted.name, "labels": wanted.labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}
