"""Read and change the volume claims in a cluster, through the cluster's own Kubernetes.

The kubeconfig is fetched from the platform for each verb and kept in memory alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpuform.providers.errors import Conflict, GpuformError, NotFound, NotReady, ServerError
from gpuform.providers.http import at
from gpuform.providers.kubernetes.client import KubernetesClient, Object, client_by
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster_view import decoded_kube_config
from gpuform.schemas.together import wire
from gpuform.schemas.together.statuses import ClusterStatus
from gpuform.schemas.together.wire import Claim


@dataclass(frozen=True)
class ObjectId:
    """`<cluster id>/<namespace>/<name>`."""

    cluster_id: str
    namespace: str
    name: str

    @classmethod
    def parsed(cls, text: str, what: str) -> "ObjectId":
        """Raises GpuformError for what is no such id; `what` says of what kind it is to be."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise GpuformError(
                f"{text!r} is not the id of a {what}",
                hint="write it as CLUSTER-ID/NAMESPACE/NAME, such as 4f1e.../default/shared-pvc",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.namespace}/{self.name}"


def kubernetes_of(
    client: TogetherClient, cluster_id: str
) -> tuple[wire.Cluster, KubernetesClient] | None:
    """A cluster and its Kubernetes; None when it is gone, or on its way out.

    Raises NotReady while it has no Kubernetes API.
    """
    try:
        cluster = client.shared_clusters().one(cluster_id)
    except NotFound:
        return None
    if cluster.status == ClusterStatus.DELETING:
        return None
    kubeconfig = decoded_kube_config(cluster.kube_config.get_secret_value())
    if kubeconfig is None:
        raise NotReady(
            f"cluster {cluster.cluster_name} ({cluster_id}) has no Kubernetes API yet: it is "
            f"{cluster.status or 'not ready'}"
        )
    return cluster, client_by(kubeconfig, cluster.cluster_name, client.secrets)


def no_cluster(cluster_id: str) -> GpuformError:
    """The error of who needs a cluster that is not there."""
    return GpuformError(
        f"there is no cluster {cluster_id}, or it is being deleted",
        hint="give the id of a cluster that runs: {{ clusters.NAME.id }}",
    )


_CORE = "/api/v1"
_WAITS = "WaitForFirstConsumer"


class ClaimsOfCluster:
    """The claims of one cluster. Every method raises GpuformErrors only."""

    def __init__(self, kubernetes: KubernetesClient) -> None:
        self._kubernetes = kubernetes

    def find(self, place: ObjectId) -> Claim | None:
        """The claim of that name, whoever made it."""
        try:
            found = self._kubernetes.shared(_folder(place)).one(place.name)
        except NotFound:
            return None
        return _read(found, "GET", _at(place))

    def create(self, place: ObjectId, body: Object) -> None:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        self._kubernetes.create(_folder(place), body)

    def patch(self, place: ObjectId, body: Object) -> None:
        """A merge patch."""
        self._kubernetes.patch(_at(place), body)

    def delete(self, place: ObjectId, uid: str | None) -> None:
        """Begins to delete the claim with that uid: another one of its name is left alone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._kubernetes.delete(_at(place), options)
        except (NotFound, Conflict):
            return

    def users(self, place: ObjectId) -> list[str]:
        """The names of the pods that mount it and have not ended."""
        pods = self._kubernetes.list(f"{_CORE}/namespaces{at(place.namespace)}/pods")
        using = [pod for pod in pods if place.name in _claims_of(pod) and not _has_ended(pod)]
        return [str(pod["metadata"]["name"]) for pod in using]

    def waits_for_a_pod(self, claim: Claim) -> bool:
        """Whether its class binds a claim only when a pod uses it."""
        name = claim.spec.storage_class_name
        if not name:
            return False
        try:
            found = self._kubernetes.get(f"/apis/storage.k8s.io/v1/storageclasses{at(name)}")
        except NotFound:
            return False
        return found.get("volumeBindingMode") == _WAITS

    def why_pending(self, claim: Claim) -> str:
        """What keeps it from being bound, as far as the volume that it names tells."""
        name = claim.spec.volume_name
        if not name:
            return "Pending"
        try:
            volume = self._kubernetes.get(f"{_CORE}/persistentvolumes{at(name)}")
        except NotFound:
            return f"Pending: the cluster has no volume {name!r}; attach the shared volume to it"
        holder = (volume.get("spec") or {}).get("claimRef") or {}
        if holder.get("uid") not in {None, claim.metadata.uid}:
            theirs = f"{holder.get('namespace')}/{holder.get('name')}"
            return f"Pending: volume {name!r} is bound to the claim {theirs}"
        return f"Pending: volume {name!r} is there and not bound to it yet"


def claims_of(client: TogetherClient, cluster_id: str) -> ClaimsOfCluster | None:
    """The claims of a cluster; None when it is gone, or on its way out.

    Raises NotReady while it has no Kubernetes API.
    """
    found = kubernetes_of(client, cluster_id)
    return None if found is None else ClaimsOfCluster(found[1])


def _folder(place: ObjectId) -> str:
    return f"{_CORE}/namespaces{at(place.namespace)}/persistentvolumeclaims"


def _at(place: ObjectId) -> str:
    return _folder(place) + at(place.name)


def _read(body: Object, method: str, path: str) -> Claim:
    try:
        return Claim.model_validate(body)
    except ValidationError:
        raise ServerError(
            f"Kubernetes: {method} {path} answered in an unexpected form",
            method=method,
            path=path,
            status=200,
        ) from None


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _claims_of(pod: Mapping[str, Any]) -> list[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return [
        each["persistentVolumeClaim"]["claimName"]
        for each in volumes
        if "persistentVolumeClaim" in each
    ]
