"""The pods of Slurm in a SLURM cluster, as Slinky runs and labels them: on the control plane."""

from gpuform.providers.emulator.kubernetes.kinds import NAMESPACE, POD
from gpuform.providers.emulator.kubernetes.objects import Objects, timestamp
from gpuform.providers.emulator.together.clusters import Cluster

_NAMESPACE = "slurm"
_PODS = {
    "slurm-controller-0": ("slurmctld", "controller"),
    "slurm-login-slinky-5c76c76644-cj9s9": ("login", "login"),
}
"""Name -> the application, which names its container too, and the component."""


def run_slurm(objects: Objects, cluster: Cluster) -> None:
    """Both pods run as long as the cluster is one of Slurm."""
    is_slurm = cluster.settings.cluster_type == "SLURM"
    if is_slurm and objects.get(NAMESPACE, _NAMESPACE) is None:
        phase = {"phase": "Active"}
        objects.add(NAMESPACE, {"metadata": {"name": _NAMESPACE}, "status": phase})
    for name, (application, component) in _PODS.items():
        pod = objects.get(POD, name, _NAMESPACE)
        if pod is not None and not is_slurm:
            objects.remove(POD, pod)
        elif pod is None and is_slurm:
            labels = {
                "app.kubernetes.io/name": application,
                "app.kubernetes.io/instance": "slurm",
                "app.kubernetes.io/component": component,
            }
            image = f"ghcr.io/slinkyproject/{application}:25.05"
            home = f"{cluster.settings.cluster_name}-control-0"
            spec = {"nodeName": home, "containers": [{"name": application, "image": image}]}
            status = {
                "phase": "Running",
                "startTime": timestamp(objects.now),
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            metadata = {"name": name, "namespace": _NAMESPACE, "labels": labels}
            objects.add(POD, {"metadata": metadata, "spec": spec, "status": status})
