"""Fewer nodes of a pool: which ones, and that no job runs on them when they are deleted.

SCP's API knows no scheduler: the stack says who gives the nodes their jobs, if anybody does. The
platform deletes the very nodes that it is told.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.calls import Call
from gpuform.providers.draining import (
    Draining,
    Scheduler,
    ShrinkingObject,
    SlurmOnKubernetes,
    Worker,
    conclude,
    not_told,
    problems,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.kubeconfig import flattened
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drain, Drains
from gpuform.providers.scp.nodes import Plan, is_leaving
from gpuform.providers.slurm import slurm_scheduler
from gpuform.schemas.scale_down import Leaving
from gpuform.schemas.scp.inputs import KubernetesInputs, PoolScaleDownInputs
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED


class PoolRemoval:
    """What takes nodes away from the pool of this id; `declared` are its canonical inputs."""

    def __init__(self, call: Call, id_: str, declared: dict[str, Any]) -> None:
        self._call = call
        self._id = id_
        self._what = f"pool {declared.get('gpu_node_name_prefix') or id_}"
        self._is_counted = declared.get("nodes") is None
        self._wanted = PoolScaleDownInputs.model_validate(declared.get("scale_down") or {})

    @property
    def earlier(self) -> Drain | None:
        """A removal that was begun, by this run or an earlier one."""
        return Drains.beside(self._call.intents).find(self._id)

    @property
    def chosen(self) -> Sequence[str]:
        """The names of the nodes that go first, because no job runs on them."""
        return self.earlier.chosen if self.earlier else ()

    def clear(self, found: Plan, nodes: Sequence[NodeOutputs]) -> None:
        """Before nodes go: chooses them, and waits until no job runs on them.

        Raises GpuformError when they must not go; then all is as it was.
        """
        if not found.delete:
            return
        self._refuse_names(found, nodes)
        if self._wanted.has_scheduler:
            draining = self._draining(found, nodes)
            draining.asking(draining.clear(len(found.delete)))

    def leaving(self, found: Plan, nodes: Sequence[NodeOutputs]) -> Leaving | None:
        """The nodes that would go now, for a plan; None where none goes or nobody tells which."""
        if not found.delete:
            return None
        self._refuse_names(found, nodes)
        if not self._wanted.has_scheduler:
            names = ", ".join(node.gpu_node_name for node in found.delete)
            self._call.on_unchecked(
                f"whether jobs run on {names}, which {self._what} loses: nobody is declared who "
                "could tell (scale_down.kubernetes or scale_down.slurm)"
            )
            return None
        try:
            draining = self._draining(found, nodes)
        except GpuformError as error:
            not_told(self._call, self._what, error)
            return None
        return draining.leaving(len(found.delete))

    def conclude(self, nodes: Sequence[NodeOutputs]) -> None:
        """Uncordons what is left of a removal; `nodes` are those that there are.

        Raises GpuformError when nodes stay cordoned.
        """
        drain = self.earlier
        if drain is None or any(is_leaving(node.state) for node in nodes):
            return
        conclude(self._call, drain, self._scheduler(), [node.gpu_node_name for node in nodes])

    def _refuse_names(self, found: Plan, nodes: Sequence[NodeOutputs]) -> None:
        named = self._wanted.nodes or ()
        told = [str(each) for each in problems(_workers(nodes), len(found.delete), named)]
        if told:
            raise GpuformError(f"{self._what}: {'; '.join(told)}")

    def _draining(self, found: Plan, nodes: Sequence[NodeOutputs]) -> Draining:
        wanted, going = self._wanted, [node.gpu_node_name for node in found.delete]
        if not self._is_counted:
            wanted = wanted.model_copy(update={"nodes": going})
        named = wanted.nodes or ()
        able = [node for node in nodes if not node.lock_enabled or node.gpu_node_name in named]
        if Permission.UNLOCK in permissions.given() or len(able) < len(going):
            able = list(nodes)  # the permission is asked for before a locked one is deleted
        live = _workers(able)
        return Draining(
            self._call, ShrinkingObject(self._id, self._what, live), self._scheduler(), wanted
        )

    def _scheduler(self) -> Scheduler:
        """Raises GpuformError when nobody can be asked."""
        kube, slurm = self._wanted.kubernetes, self._wanted.slurm
        if kube is None and slurm is None:
            raise GpuformError(
                f"nodes of {self._what} are cordoned, and nobody is declared who could uncordon "
                "them",
                hint="declare scale_down.kubernetes or scale_down.slurm as before",
            )
        text = None if kube is None else _kubeconfig(kube)
        pods = None if text is None else KubernetesScheduler(client_by(text, self._what))
        if slurm is None:
            assert pods is not None  # noqa: S101 - one of the two is declared
            return pods
        jobs = slurm_scheduler(slurm, kubeconfig=text, cluster=self._what)
        return jobs if pods is None else SlurmOnKubernetes(pods, jobs, slurm.namespace, {})


def _workers(nodes: Sequence[NodeOutputs]) -> list[Worker]:
    """Those that could go, the oldest first."""
    live = [node for node in nodes if not is_leaving(node.state)]
    live.sort(key=lambda node: (node.created_at or "", node.gpu_node_name))
    return [
        Worker(node.gpu_node_name, aliases=(node.id,), is_failed=node.state in NODE_FAILED)
        for node in live
    ]


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
                f"scale_down.kubernetes.kubeconfig: {path} has no current context",
                hint="declare scale_down.kubernetes.context",
            )
        return str(yaml.safe_dump(flattened(config, path.parent)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuformError(
            f"scale_down.kubernetes.kubeconfig: {path} cannot be read ({type(error).__name__})",
            hint="declare the path of a kubeconfig",
        ) from None


def _refuse_unknown(context: str, config: Mapping[str, Any], path: Path) -> None:
    names = [each.get("name") for each in config.get("contexts") or () if isinstance(each, dict)]
    if context not in names:
        raise GpuformError(
            f"scale_down.kubernetes.context: {path} has no context {context}; it has "
            f"{', '.join(map(str, names)) or 'none'}"
        )
