"""Drain the nodes of Slurm on Kubernetes by a request to Slinky, which drains them in Slurm.

`scheduler` returns a `SlinkyScheduler` for `slurm: {drain_by: slinky}`. Slinky's slurm-operator 1.3
and newer drain the Slurm node of a NodeSet pod that has the annotation `DRAIN_REQUEST_ANNOTATION`
(release notes of 1.3.0, "NodeSet draining"), and end the drain when the annotation is gone, as long
as the reason in Slurm is their own (documentation of the operator, "NodeSet Operations"). When a
NodeSet shrinks, the operator removes the pods first that it has drained itself: a drain by
`scontrol` does not count there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import (
    KubernetesClient,
    KubernetesObject,
    retry_on_conflict,
)
from gpuform.providers.kubernetes.scheduler import OWNER_ANNOTATION, get_mapping
from gpuform.providers.slurm.scheduler import SlurmScheduler

DRAIN_REQUEST_ANNOTATION: Final = "nodeset.slinky.slurm.net/pod-cordon-requested"
"""The annotation of a NodeSet pod by which anybody asks Slinky to drain its Slurm node.

Its value is `true`, as that of `pod-cordon`, which the operator compares with `true`.
"""

HOSTNAME_LABEL: Final = "nodeset.slinky.slurm.net/pod-hostname"
"""The label of a NodeSet pod with its node's name in Slurm (`api/v1beta1/well_known.go`)."""

_MISSING_POD_HINT: Final = (
    "declare the namespace of Slurm (slurm: {namespace: ...}), or `drain_by: scontrol`"
)


class DrainRequests:
    """The requests for drains on the NodeSet pods in a namespace, each with a label of its owner.

    Nodes have their names in Slurm.
    """

    def __init__(self, client: KubernetesClient, namespace: str) -> None:
        self._client = client
        self._pods_path = f"/api/v1/namespaces{build_path(namespace)}/pods"
        self.namespace = namespace

    def list_pods(self) -> dict[str, KubernetesObject]:
        """Return the NodeSet pods by their nodes' names in Slurm, without pods being deleted."""
        pods = self._client.list_objects(self._pods_path, labelSelector=HOSTNAME_LABEL)
        return {
            str(get_mapping(pod["metadata"], "labels").get(HOSTNAME_LABEL)): pod
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }

    def request(self, listed_pod: KubernetesObject, owner_label: str) -> None:
        """Annotate a pod, unless its drain is requested already.

        Raises:
            NotFound: the pod was deleted since it was listed.
            Conflict: others have changed the pod during each of 20 attempts.
        """
        retry_on_conflict(partial(self._request_once, listed_pod, owner_label))

    def withdraw(self, node_names: Collection[str], owner_label: str) -> None:
        """Remove the annotations from the nodes' pods that have `owner_label`.

        Missing pods are skipped.

        Raises:
            Conflict: others have changed a pod during each of 20 attempts.
        """
        pods = self.list_pods()
        for name in node_names:
            if name in pods and get_owner_label(pods[name]) == owner_label:
                retry_on_conflict(partial(self._withdraw_once, pods[name], owner_label))

    def _request_once(self, listed_pod: KubernetesObject, owner_label: str) -> None:
        """Annotate a pod, or raise Conflict if the pod has changed since the read."""
        pod = self._client.get_object(self._get_path(listed_pod))
        # A request of somebody else keeps its meaning: a later uncordon must not withdraw it.
        if not _is_drain_requested(pod):
            self._annotate(pod, {DRAIN_REQUEST_ANNOTATION: "true", OWNER_ANNOTATION: owner_label})

    def _withdraw_once(self, listed_pod: KubernetesObject, owner_label: str) -> None:
        """Remove a pod's annotations if the pod still has the label; a missing pod is no error.

        Raises Conflict if the pod has changed since the read.
        """
        try:
            pod = self._client.get_object(self._get_path(listed_pod))
            if get_owner_label(pod) == owner_label:
                self._annotate(pod, {DRAIN_REQUEST_ANNOTATION: None, OWNER_ANNOTATION: None})
        except NotFound:
            return

    def _annotate(self, pod: KubernetesObject, annotations: Mapping[str, Any]) -> None:
        """Change annotations of a pod; raise Conflict if the pod has changed since the read."""
        version = pod["metadata"]["resourceVersion"]
        self._client.patch_object(
            self._get_path(pod),
            {"metadata": {"resourceVersion": version, "annotations": annotations}},
        )

    def _get_path(self, pod: KubernetesObject) -> str:
        """Return the API path of a Slinky worker's pod."""
        return self._pods_path + build_path(str(pod["metadata"]["name"]))


class SlinkyScheduler:
    """The Slurm of one cluster as a `Scheduler` whose nodes are drained by Slinky.

    Names of nodes are Slurm's NodeNames. Jobs are listed and ended by Slurm's commands. The label
    of a cordon is an annotation of the pod.
    """

    name: ClassVar[str] = "Slurm"

    def __init__(self, slurm: SlurmScheduler, requests: DrainRequests) -> None:
        self._slurm = slurm
        self._requests = requests

    def list_nodes(self) -> Sequence[ScheduledNode]:
        """Return every node with the jobs on the node.

        The list of jobs counts as incomplete while a drain is requested that Slinky has not begun:
        until then Slurm may start jobs there.
        """
        # Before Slurm: the jobs are asked last, so that none is missed that started in between.
        pods = self._requests.list_pods()

        def add_request(node: ScheduledNode) -> ScheduledNode:
            pod = pods.get(node.name)
            label = None if pod is None else get_owner_label(pod)
            if label is None:
                return node
            # Slinky leaves a node alone that does not respond, and Slurm starts no job there.
            is_closed = node.is_cordoned or node.is_failed
            reason = "" if is_closed else "Slinky has not drained it in Slurm yet"
            return replace(
                node,
                owner_label=label,
                incomplete_jobs_reason=node.incomplete_jobs_reason or reason,
            )

        return [add_request(node) for node in self._slurm.list_nodes()]

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Request the drain of nodes by annotations of their pods, with `owner_label` beside.

        Nodes that are drained in Slurm, or requested, already stay as they are.

        Raises:
            GpuformError: a node is missing in Slurm or has no pod; then nothing is requested.
            Conflict: others have changed a pod during each of 20 attempts.
        """
        nodes, pods = self._slurm.get_nodes_by_name(), self._requests.list_pods()
        _require_all(node_names, nodes, "Slurm has no node", "compare with `sinfo -N`")
        undrained_names = [name for name in node_names if not nodes[name].is_drained]
        _require_all(
            undrained_names,
            pods,
            f"namespace {self._requests.namespace} has no pod of Slinky for",
            _MISSING_POD_HINT,
        )
        for name in undrained_names:
            self._requests.request(pods[name], owner_label)

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Withdraw the requests with `owner_label`; Slinky then ends the drains.

        Drains by `scontrol` with this label, of a run before `drain_by` changed, are ended, too.
        Missing nodes and pods are skipped.
        """
        self._requests.withdraw(node_names, owner_label)
        self._slurm.uncordon(node_names, owner_label)

    def evict(self, node_names: Collection[str]) -> None:
        """Requeue or cancel the jobs on nodes, as `SlurmScheduler.evict`."""
        self._slurm.evict(node_names)


def _require_all(
    names: Iterable[str], known: Mapping[str, object], message: str, hint: str
) -> None:
    """Raise GpuformError with `message` and the names that are not in `known`, if any."""
    missing = sorted(set(names) - set(known))
    if missing:
        raise GpuformError(f"{message} {', '.join(missing)}", hint=hint)


def _is_drain_requested(pod: KubernetesObject) -> bool:
    """Return True if somebody has requested the drain of the pod's node."""
    annotations = get_mapping(pod["metadata"], "annotations")
    return annotations.get(DRAIN_REQUEST_ANNOTATION) == "true"


def get_owner_label(pod: KubernetesObject) -> str | None:
    """Return the label of gpuform's request on a pod, or None without one."""
    label = get_mapping(pod["metadata"], "annotations").get(OWNER_ANNOTATION)
    return str(label) if label is not None and _is_drain_requested(pod) else None
