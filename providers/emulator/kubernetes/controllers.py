"""Run the controllers of an emulated cluster, and bring its objects to the time of the clock.

`routes` calls this module at every request: nothing runs in the background. The controllers are
those of replica sets, stateful sets, jobs, daemon sets and pod disruption budgets, of the readiness
engine and of Slinky. `KubernetesControls` lets tests change a cluster past its API, under
`/_emulator/kubernetes/`.
"""

import math
from typing import Any

from flask import Response, request
from pydantic import BaseModel, Field

from gpuform.providers.emulator.kubernetes import verbs
from gpuform.providers.emulator.kubernetes.kinds import (
    BUDGET,
    CLAIM,
    DAEMON_SET,
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Kind,
    KubernetesSettings,
    StatusError,
)
from gpuform.providers.emulator.kubernetes.nodes import (
    find_reboots,
    run_slinky,
    set_readiness,
    sync_nodes,
    sync_slurm_pods,
)
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    is_selected,
)
from gpuform.providers.emulator.kubernetes.pods import (
    RUNS_FOR,
    end_pods,
    is_active,
    is_done,
    is_healthy,
    list_ended_pods,
    place_pods,
)
from gpuform.providers.emulator.kubernetes.readiness import run_engine
from gpuform.providers.emulator.kubernetes.storage import sync_claims, sync_volumes
from gpuform.providers.emulator.kubernetes.verbs import ObjectAddress
from gpuform.providers.emulator.routing import PlatformControls, RouteTable, answer_json
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import TogetherApiError
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.operations import TogetherOperations


def run_controllers(store: Store, objects: ClusterObjects) -> None:
    """Create the missing pods of all controllers once, update their statuses, remove orphans.

    Controllers are daemon sets, replica sets, stateful sets and jobs; those being deleted are
    skipped. Orphans are objects of any kind all of whose owners are gone. Surplus pods are not
    removed, and a status counts the pods from before.
    """
    _remove_orphans(objects)
    pods: dict[str, list[Object]] = {}
    for pod in objects.list_objects(POD):
        for owner in pod["metadata"].get("ownerReferences", []):
            pods.setdefault(owner["uid"], []).append(pod)
    for kind, list_missing in (
        (DAEMON_SET, _list_missing_daemons),
        (REPLICA_SET, _list_missing_replicas),
        (STATEFUL_SET, _list_missing_members),
        (JOB, _list_missing_tasks),
    ):
        for owner in objects.list_objects(kind):
            own_pods = pods.get(owner["metadata"]["uid"], [])
            # A controller that is being deleted makes no pods any more.
            if "deletionTimestamp" in owner["metadata"]:
                continue
            for name, node in list_missing(store, objects, owner, own_pods):
                objects.add(POD, _build_pod(kind, owner, name, node))
            objects.replace(kind, owner, {**owner, "status": _build_status(kind, owner, own_pods)})


_MissingPods = list[tuple[str, str | None]]


def _list_missing_daemons(
    store: Store, objects: ClusterObjects, owner: Object, own_pods: list[Object]
) -> _MissingPods:
    """Return name and node of a new pod for each node without a pod of the daemon set.

    Pods that have succeeded or failed do not count. Cordoned nodes get a pod, too.
    """
    used_nodes = {pod["spec"].get("nodeName") for pod in own_pods if not is_done(pod)}
    nodes = [node["metadata"]["name"] for node in objects.list_objects(NODE)]
    return [(_create_pod_name(store, owner), node) for node in nodes if node not in used_nodes]


def _list_missing_replicas(
    store: Store, _: ClusterObjects, owner: Object, own_pods: list[Object]
) -> _MissingPods:
    """Return names of new pods, as many as active pods are missing to a replica set's `replicas`.

    Each name stands with None: the scheduler chooses the node.
    """
    missing = owner["spec"].get("replicas", 1) - sum(map(is_active, own_pods))
    return [(_create_pod_name(store, owner), None) for _ in range(missing)]


def _list_missing_members(
    _store: Store, _: ClusterObjects, owner: Object, own_pods: list[Object]
) -> _MissingPods:
    """Return the numbered names of a stateful set's missing pods.

    Each name stands with None: the scheduler chooses the node. A number is free when the old pod is
    gone.
    """
    used_names = {pod["metadata"]["name"] for pod in own_pods}
    # Fixed names: a member's volume and address belong to its number.
    names = [
        f"{owner['metadata']['name']}-{index}" for index in range(owner["spec"].get("replicas", 1))
    ]
    return [(name, None) for name in names if name not in used_names]


def _list_missing_tasks(
    store: Store, _: ClusterObjects, owner: Object, own_pods: list[Object]
) -> _MissingPods:
    """Return names of new pods for a job: up to `parallelism`, no more than missing completions.

    Each name stands with None: the scheduler chooses the node. Active pods count.
    """
    succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in own_pods)
    remaining = owner["spec"].get("completions", 1) - succeeded
    # A job runs no more pods than it still needs completions.
    target = min(owner["spec"].get("parallelism", 1), remaining)
    return [
        (_create_pod_name(store, owner), None)
        for _ in range(target - sum(map(is_active, own_pods)))
    ]


def _create_pod_name(store: Store, owner: Object) -> str:
    """Return a new pod's name: the owner's name and five characters of a new id."""
    return f"{owner['metadata']['name']}-{store.create_id()[:5]}"


def _build_pod(kind: Kind, owner: Object, name: str, node: str | None) -> Object:
    """Return a pod from the owner's template, on `node` or for the scheduler (None)."""
    template = owner["spec"]["template"]
    spec: dict[str, Any] = {**template["spec"]}
    if node is not None:
        spec["nodeName"] = node
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        # As controllers write it; nothing here waits for it.
        "blockOwnerDeletion": True,
    }
    metadata = {
        **template.get("metadata", {}),
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference],
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _build_status(kind: Kind, owner: Object, own_pods: list[Object]) -> dict[str, Any]:
    """Return a controller's `status`: how many of `own_pods` run, and if a job is complete."""
    running = sum(pod["status"].get("phase") == "Running" for pod in own_pods)
    if kind is JOB:
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in own_pods)
        # A job is complete by its completions, however many pods failed.
        is_complete = succeeded >= owner["spec"].get("completions", 1)
        conditions = [{"type": "Complete", "status": "True"}] if is_complete else []
        return {"active": running, "succeeded": succeeded, "conditions": conditions}
    if kind is DAEMON_SET:
        return {
            "currentNumberScheduled": len(own_pods),
            "desiredNumberScheduled": len(own_pods),
            "numberReady": running,
            "numberMisscheduled": 0,
        }
    return {"replicas": len(own_pods), "readyReplicas": running, "availableReplicas": running}


def _remove_orphans(objects: ClusterObjects) -> None:
    """Remove the objects all of whose owners are gone (background deletion)."""
    uids = {candidate["metadata"]["uid"] for _, candidate in objects.list_all()}
    for kind, candidate in list(objects.list_all()):
        owners = candidate["metadata"].get("ownerReferences") or []
        if owners and all(owner["uid"] not in uids for owner in owners):
            objects.remove(kind, candidate)


def update_budgets(objects: ClusterObjects) -> None:
    """Store the present status of every disruption budget: how many pods may be evicted now."""
    for budget in objects.list_objects(BUDGET):
        objects.replace(
            BUDGET, budget, {**budget, "status": _compute_budget_status(objects, budget)}
        )


def _compute_budget_status(objects: ClusterObjects, budget: Object) -> dict[str, int]:
    """Return the status of a budget: healthy, expected and desired pods, allowed disruptions.

    Pods that have succeeded or failed do not count.
    """
    selector = budget["spec"].get("selector")
    pods = [
        pod
        for pod in objects.list_objects(POD, budget["metadata"]["namespace"])
        if is_selected(selector, pod["metadata"].get("labels", {})) and not is_done(pod)
    ]
    expected, healthy = _count_expected_pods(objects, pods), sum(map(is_healthy, pods))
    desired = _compute_desired_healthy(budget, expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        # Without expected pods nothing may be evicted, as in Kubernetes.
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
    }


def _count_expected_pods(objects: ClusterObjects, pods: list[Object]) -> int:
    """Return how many pods the owners of `pods` should run in all.

    Of an owner without `replicas`, and for a pod without a known owner, one pod is expected.
    """
    owners = {
        owner["uid"]: (owner["kind"], owner["name"], pod["metadata"]["namespace"])
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences", [])
    }
    # Owners of unknown kinds have no scale: their pods count as they are.
    kinds = {kind.name: kind for kind in KINDS}
    controllers = [
        objects.get(kinds[kind], *name_and_namespace)
        for kind, *name_and_namespace in owners.values()
        if kind in kinds
    ]
    scaled = {
        controller["metadata"]["uid"]: controller
        for controller in controllers
        if controller and "spec" in controller
    }
    unowned = sum(
        not any(owner["uid"] in scaled for owner in pod["metadata"].get("ownerReferences", []))
        for pod in pods
    )
    return unowned + sum(
        int(controller["spec"].get("replicas", 1)) for controller in scaled.values()
    )


def _compute_desired_healthy(budget: Object, expected: int) -> int:
    """Return how many of `expected` pods a disruption budget requires to stay healthy."""
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        return max(0, expected - _resolve_count(spec["maxUnavailable"], expected))
    return _resolve_count(spec.get("minAvailable", 0), expected)


def _resolve_count(value: int | str, total: int) -> int:
    """Return a number, or a share of `total` (`50%`), rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(total * int(value[:-1]) / 100)
    return int(value)


_SYSTEM_NAMESPACE = "kube-system"
_PLUGIN = {"name": "nvidia-device-plugin", "namespace": _SYSTEM_NAMESPACE}


def find_running_cluster(store: Store, cluster_id: str, now: float) -> Cluster | None:
    """Return the cluster if all its control plane nodes run at `now`, else None."""
    try:
        cluster = TogetherOperations(store, now).get_cluster(cluster_id)
    except TogetherApiError:
        return None
    return cluster if cluster.has_control_plane(now) else None


def load_current_objects(store: Store, cluster: Cluster, now: float) -> ClusterObjects:
    """Bring a cluster's objects to `now`, store all changes, and return the objects.

    Nodes, volumes and Slurm's pods follow the platform, pods end, and all controllers run. A new
    cluster gets its first objects. Call this function within a transaction.
    """
    objects = ClusterObjects(store, cluster.cluster_id, now)
    # No object was ever stored: this is the first look at a new cluster.
    if objects.version == 0:
        _create_initial_objects(objects)
    # Nodes first: what pods and volumes become follows from them.
    departed_nodes = sync_nodes(objects, cluster)
    sync_slurm_pods(objects, cluster)
    sync_volumes(store, objects, cluster)
    # Pods end before controllers run, so that a lost pod is replaced at the same request.
    end_pods(store, cluster.cluster_id, objects, departed_nodes, find_reboots(cluster, now))
    reconcile_objects(store, objects)
    return objects


def reconcile_objects(store: Store, objects: ClusterObjects) -> None:
    """Run all controllers once and store the changes: pods, claims, placement, budgets, software.

    The software are the readiness engine and Slinky.
    """
    _create_proxy_pods(objects)
    run_controllers(store, objects)
    sync_claims(objects)
    # Claims before pods, for a pod waits for its claims; and again after, for some claims wait for
    # a pod.
    place_pods(objects)
    sync_claims(objects)
    update_budgets(objects)
    run_engine(store, objects)
    cluster = find_running_cluster(store, objects.cluster_id, objects.now)
    if cluster is not None:
        run_slinky(store, objects, cluster)


def _create_initial_objects(objects: ClusterObjects) -> None:
    """Create the objects of a new cluster: namespaces, and the GPU plugin's daemon set."""
    for name in ("default", _SYSTEM_NAMESPACE):
        objects.add(NAMESPACE, {"metadata": {"name": name}, "status": {"phase": "Active"}})
    labels = {"app": _PLUGIN["name"]}
    container = {"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    # A pod on every node that a drain has to leave alone.
    objects.add(DAEMON_SET, {"metadata": _PLUGIN, "spec": spec, "status": {}})


def _create_proxy_pods(objects: ClusterObjects) -> None:
    """Create the static kube-proxy pod of each node without one.

    No API request can delete a static pod.
    """
    for node in objects.list_objects(NODE):
        name = node["metadata"]["name"]
        if objects.get(POD, f"kube-proxy-{name}", _SYSTEM_NAMESPACE) is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "controller": True}
            metadata = {
                "name": f"kube-proxy-{name}",
                "namespace": _SYSTEM_NAMESPACE,
                "annotations": {"kubernetes.io/config.mirror": node["metadata"]["uid"]},
                "ownerReferences": [{**owner, "uid": node["metadata"]["uid"]}],
            }
            container = {"name": "kube-proxy", "image": "registry.k8s.io/kube-proxy:v1.32.0"}
            spec = {"nodeName": name, "containers": [container]}
            objects.add(POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


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
        """Create the pod in the body for a test, without the cluster's token; answer with the pod.

        The pod's namespace is created if missing, and the pod has been scheduled if a node takes
        it. Raises `StatusError`: 404 without a running control plane, 409 for a name in use, 422
        for an invalid pod.
        """
        body = _PodBody.model_validate_json(request.get_data())
        objects = self._load_objects(cluster_id)
        if objects.get(NAMESPACE, body.namespace) is None:
            # A test's pod brings its namespace along.
            objects.add(NAMESPACE, {"metadata": {"name": body.namespace}})
        pod = verbs.create_object(
            objects, ObjectAddress(POD, body.namespace), _build_test_pod(body)
        )
        reconcile_objects(self._store, objects)
        return answer_json(objects.get(POD, pod["metadata"]["name"], body.namespace), 201)

    def _set_node(self, cluster_id: str, name: str) -> Response:
        """Set whether a node is Ready, as the body says, and answer with the node.

        Raises `StatusError` 404.
        """
        body = _NodeBody.model_validate_json(request.get_data())
        objects = self._load_objects(cluster_id)
        node = verbs.get_object(objects, ObjectAddress(NODE, name=name))
        changed_node = set_readiness(node, objects.now, ready=body.ready)
        return answer_json(objects.replace(NODE, node, changed_node))

    def _list_ended_pods(self, cluster_id: str) -> Response:
        """Answer with how each ended pod of a cluster ended, oldest first.

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
        """Remove a volume claim at once, even one in use, and answer with the claim's last state.

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


def _build_test_pod(body: _PodBody) -> dict[str, Any]:
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
