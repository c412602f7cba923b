"""Read and change the volume claims of a cluster through the cluster's own Kubernetes API.

`volume_claim` and `certification` call this module. The kubeconfig is fetched from Together for
each operation and is kept in memory only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.providers.errors import Conflict, GpuformError, NotFound, NotReady
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import (
    KubernetesClient,
    KubernetesObject,
    get_kubernetes_client,
    parse_object,
)
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster_view import decode_kube_config
from gpuform.schemas.together import wire
from gpuform.schemas.together.outputs import ClusterStatus
from gpuform.schemas.together.wire import Claim


@dataclass(frozen=True)
class KubernetesObjectId:
    """Id of an object in a cluster's Kubernetes: `<cluster id>/<namespace>/<name>`."""

    cluster_id: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, id_text: str, kind: str) -> "KubernetesObjectId":
        """Parse an id from a state or an import.

        Args:
            id_text: the id.
            kind: the kind of object for the error message, as `volume claim`.

        Raises:
            GpuformError: `id_text` does not have three parts.
        """
        parts = id_text.split("/")
        if len(parts) != 3 or not all(parts):
            raise GpuformError(
                f"{id_text!r} is not the id of a {kind}",
                hint="write it as CLUSTER-ID/NAMESPACE/NAME, such as 4f1e.../default/shared-pvc",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.namespace}/{self.name}"


def connect_to_kubernetes(
    client: TogetherClient, cluster_id: str
) -> tuple[wire.Cluster, KubernetesClient] | None:
    """Return a cluster and a client of the cluster's Kubernetes API, or None for a deleted cluster.

    A cluster that is being deleted counts as deleted.

    Raises:
        NotReady: the cluster has no Kubernetes API yet.
    """
    cluster = client.get_cluster_listing().find_one(cluster_id)
    # its Kubernetes still answers for a while, and everything in it goes with it
    if cluster is None or cluster.status == ClusterStatus.DELETING:
        return None
    kubeconfig = decode_kube_config(cluster.kube_config.get_secret_value())
    if kubeconfig is None:
        raise NotReady(
            f"cluster {cluster.cluster_name} ({cluster_id}) has no Kubernetes API yet: it is "
            f"{cluster.status or 'not ready'}"
        )
    return cluster, get_kubernetes_client(kubeconfig, cluster.cluster_name, client.secrets)


def build_missing_cluster_error(cluster_id: str) -> GpuformError:
    """Return the error of an operation on a missing cluster."""
    return GpuformError(
        f"cluster {cluster_id} not found, or being deleted",
        hint="declare the id of an existing cluster: {{ clusters.NAME.id }}",
    )


_CORE_API = "/api/v1"
_BINDS_ON_FIRST_USE = "WaitForFirstConsumer"


class ClusterClaims:
    """The volume claims of one cluster. Every method raises nothing but GpuformErrors."""

    def __init__(self, kubernetes: KubernetesClient) -> None:
        self._kubernetes = kubernetes

    def find(self, claim_id: KubernetesObjectId) -> Claim | None:
        """Return the claim with the id `claim_id`, whoever created the claim, or None."""
        listing = self._kubernetes.get_shared_listing(_build_claims_path(claim_id))
        raw_claim = listing.find_one(claim_id.name)
        if raw_claim is None:
            return None
        return parse_object(Claim, raw_claim, _build_claim_path(claim_id))

    def create(self, claim_id: KubernetesObjectId, body: KubernetesObject) -> None:
        """Send the request to create a claim, once.

        Raises:
            UnknownOutcome: the answer was lost.
        """
        self._kubernetes.create_object(_build_claims_path(claim_id), body)

    def patch(self, claim_id: KubernetesObjectId, body: KubernetesObject) -> None:
        """Send a merge patch for a claim."""
        self._kubernetes.patch_object(_build_claim_path(claim_id), body)

    def delete(self, claim_id: KubernetesObjectId, uid: str | None) -> None:
        """Begin to delete the claim with this `uid`; None deletes whichever claim has the name.

        A missing claim is no error, and another claim of the name is left alone.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            # another claim may have got the name since: Kubernetes answers 409 then
            options["preconditions"] = {"uid": uid}
        try:
            self._kubernetes.delete_object(_build_claim_path(claim_id), options)
        except (NotFound, Conflict):
            # gone already, or replaced: either way there is nothing of ours to delete
            return

    def list_pods_using(self, claim_id: KubernetesObjectId) -> list[str]:
        """Return the names of the pods which mount the claim and have not ended."""
        pods = self._kubernetes.list_objects(
            f"{_CORE_API}/namespaces{build_path(claim_id.namespace)}/pods"
        )
        using_pods = [
            pod for pod in pods if claim_id.name in _list_claim_names(pod) and not _has_ended(pod)
        ]
        return [str(pod["metadata"]["name"]) for pod in using_pods]

    def has_first_use_binding(self, claim: Claim) -> bool:
        """Return True if the claim's storage class delays binding until a pod uses the claim.

        False for a claim without a class, or of a missing class. Whether the claim is bound is not
        asked.
        """
        class_name = claim.spec.storage_class_name
        if not class_name:
            return False
        try:
            storage_class = self._kubernetes.get_object(
                f"/apis/storage.k8s.io/v1/storageclasses{build_path(class_name)}"
            )
        except NotFound:
            return False
        return storage_class.get("volumeBindingMode") == _BINDS_ON_FIRST_USE

    def explain_pending(self, claim: Claim) -> str:
        """Return why a claim is not bound, as far as the persistent volume shows a reason.

        The caller has checked that the claim is Pending.
        """
        volume_name = claim.spec.volume_name
        if not volume_name:
            return "Pending"
        try:
            volume = self._kubernetes.get_object(
                f"{_CORE_API}/persistentvolumes{build_path(volume_name)}"
            )
        except NotFound:
            return (
                f"Pending: the cluster has no volume {volume_name!r}; "
                "attach the shared volume to the cluster"
            )
        holder = (volume.get("spec") or {}).get("claimRef") or {}
        if holder.get("uid") not in {None, claim.metadata.uid}:
            other_claim = f"{holder.get('namespace')}/{holder.get('name')}"
            return f"Pending: volume {volume_name!r} is bound to the claim {other_claim}"
        return f"Pending: volume {volume_name!r} exists and is not bound to the claim yet"


def connect_to_claims(client: TogetherClient, cluster_id: str) -> ClusterClaims | None:
    """Return the volume claims of a cluster, or None if the cluster is deleted.

    Raises:
        NotReady: the cluster has no Kubernetes API yet.
    """
    connection = connect_to_kubernetes(client, cluster_id)
    return None if connection is None else ClusterClaims(connection[1])


def _build_claims_path(claim_id: KubernetesObjectId) -> str:
    """Return the API path of all claims in the claim's namespace."""
    return f"{_CORE_API}/namespaces{build_path(claim_id.namespace)}/persistentvolumeclaims"


def _build_claim_path(claim_id: KubernetesObjectId) -> str:
    """Return the API path of the claim itself."""
    return _build_claims_path(claim_id) + build_path(claim_id.name)


def _has_ended(pod: Mapping[str, Any]) -> bool:
    """Return True if the pod has succeeded or failed, and so no longer holds a claim."""
    # Kubernetes keeps ended pods; only the others hold a claim
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _list_claim_names(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims mounted by a pod."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]
