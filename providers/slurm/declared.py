"""Who gives nodes their jobs, where the platform knows no scheduler and the stack names one."""

from dataclasses import dataclass

from gpuform.providers.draining import Scheduler, SlurmOnKubernetes
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.declared import declared_kubeconfig
from gpuform.providers.kubernetes.nodes import node_states
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.scheduler import slurm_scheduler
from gpuform.schemas.drain import ScheduledDrainInputs


def declared_scheduler(wanted: ScheduledDrainInputs, what: str) -> Scheduler:
    """The one that is declared; `what` the nodes belong to, for messages.

    Nothing is asked yet. Raises GpuformError when none is declared, or its kubeconfig cannot be
    read.
    """
    kube, slurm = wanted.kubernetes, wanted.slurm
    if kube is None and slurm is None:
        raise GpuformError(
            f"nodes of {what} are cordoned, and nobody is declared who could uncordon them",
            hint="declare drain.kubernetes or drain.slurm as before",
        )
    text = None if kube is None else declared_kubeconfig(kube)
    pods = None if text is None else KubernetesScheduler(client_by(text, what))
    if slurm is None:
        assert pods is not None  # noqa: S101 - one of the two is declared
        return pods
    jobs = slurm_scheduler(slurm, kubeconfig=text, cluster=what)
    return jobs if pods is None else SlurmOnKubernetes(pods, jobs, slurm.namespace, {})


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a scheduler can use a node: `trouble` says why not, and is empty where it can.

    `since` is when that began, in UTC; empty where it is not told.
    """

    trouble: str = ""
    since: str = ""


def declared_conditions(wanted: ScheduledDrainInputs, what: str) -> dict[str, Condition]:
    """Every node that a declared scheduler knows, by its name there; each is asked once.

    Raises GpuformError when one of them cannot be asked.
    """
    kube, slurm = wanted.kubernetes, wanted.slurm
    text = None if kube is None else declared_kubeconfig(kube)
    found = {}
    for name, state in ({} if text is None else node_states(client_by(text, what))).items():
        trouble = "" if state.is_ready else f"NotReady: {state.trouble} (Kubernetes)"
        found[name] = Condition(trouble, state.since)
    states = {} if slurm is None else slurm_scheduler(slurm, kubeconfig=text, cluster=what).states()
    for name, node in states.items():
        if name not in found or (node.is_failed and not found[name].trouble):
            reason = f", {node.reason}" if node.reason else ""
            trouble = f"{node.trouble}{reason} (Slurm)" if node.is_failed else ""
            found[name] = Condition(trouble)
    return found
