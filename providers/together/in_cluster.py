"""What is kept in the Kubernetes of a Together cluster: its id, and the way there.

The kubeconfig is fetched from the platform for each verb and kept in memory alone.
"""

from dataclasses import dataclass

from gpuform.providers.errors import GpuformError, NotFound, NotReady
from gpuform.providers.kubernetes.client import KubernetesClient, client_by
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster_view import decoded_kube_config
from gpuform.schemas.together import wire
from gpuform.schemas.together.statuses import ClusterStatus


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
