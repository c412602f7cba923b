"""Who gives nodes their jobs, where the platform knows no scheduler and the stack names one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.providers.draining import Scheduler, SlurmOnKubernetes
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.kubeconfig import flattened
from gpuform.providers.kubernetes.nodes import node_states
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.scheduler import slurm_scheduler
from gpuform.schemas.drain import KubernetesInputs, ScheduledDrainInputs


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
    text = None if kube is None else _kubeconfig(kube)
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
    text = None if kube is None else _kubeconfig(kube)
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


def _kubeconfig(declared: KubernetesInputs) -> str:
    """The YAML of the declared kubeconfig, with its context as the current one."""
    import yaml  # noqa: PLC0415 - only who asks a Kubernetes pays for it

    path = Path(declared.kubeconfig or "~/.kube/config").expanduser()
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            return ""  # whoever reads it says that it is none
        if declared.context is not None:
            _refuse_unknown(declared.context, config, path)
            config["current-context"] = declared.context
        elif not config.get("current-context"):
            raise GpuformError(
                f"drain.kubernetes.kubeconfig: {path} has no current context",
                hint="declare drain.kubernetes.context",
            )
        return str(yaml.safe_dump(flattened(config, path.parent)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuformError(
            f"drain.kubernetes.kubeconfig: {path} cannot be read ({type(error).__name__})",
            hint="declare the path of a kubeconfig",
        ) from None


def _refuse_unknown(context: str, config: Mapping[str, Any], path: Path) -> None:
    names = [each.get("name") for each in config.get("contexts") or () if isinstance(each, dict)]
    if context not in names:
        raise GpuformError(
            f"drain.kubernetes.context: {path} has no context {context}; it has "
            f"{', '.join(map(str, names)) or 'none'}"
        )
