"""Declare how nodes are removed without harm to jobs, and where Slurm's commands run.

The inputs of the platforms use these models; `gpuform.providers.draining` carries them out.
Certifications run Slurm's commands in the same ways.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import Field

from gpuform.schemas.models import FrozenModel, InputModel, Problem, optional_field
from gpuform.schemas.values import UNKNOWN

_SETTINGS_BY_METHOD = {
    "exec": ("namespace", "pod_selector", "container"),
    "ssh": ("host", "user", "port", "sudo"),
    "local": ("sudo",),
}
"""The settings of each value of `via`."""


class SlurmInputs(InputModel):
    """How gpuform reaches a cluster's Slurm. A setting of gpuform, never sent to the platform.

    The defaults fit Slinky, Slurm on Kubernetes: `scontrol` runs in the pod of the Slurm
    controller, which has the rights of Slurm's administrator.
    """

    via: Literal["exec", "ssh", "local"] = Field(
        default="exec",
        description="exec in a pod through the cluster's Kubernetes, ssh to a login node, or local "
        "where Slurm's commands are installed on this machine.",
        examples=["ssh"],
    )
    namespace: str = Field(
        default="slurm", min_length=1, description="exec: namespace of Slurm.", examples=["slurm"]
    )
    pod_selector: str = Field(
        default="app.kubernetes.io/name=slurmctld",
        min_length=1,
        description="exec: labels of the pods in which commands can be run; a running one is used.",
        examples=["app.kubernetes.io/component=login"],
    )
    # Slinky's names of its controller's container and labels.
    container: str = Field(
        default="slurmctld",
        min_length=1,
        description="exec: the container of the pod.",
        examples=["login"],
    )
    host: str = Field(
        default="slurm-login",
        pattern=r"^[A-Za-z0-9_]",  # nothing that ssh takes for an option
        description="ssh: the login node, or a Host of your SSH configuration.",
        examples=["slurm-login"],
    )
    user: str | None = optional_field(
        "ssh: name to log in with; the name in your SSH configuration when not declared.",
        pattern=r"^[A-Za-z0-9_]",
        examples=["ada"],
    )
    port: int | None = optional_field(
        "ssh: port of the login node.", ge=1, le=65535, examples=[2222]
    )
    sudo: bool | None = optional_field(
        "Whether to run changing commands with `sudo`, without a password; true by "
        "default with ssh.",
        examples=[False],
    )
    drain_by: Literal["scontrol", "slinky"] = Field(
        default="scontrol",
        description="How nodes are drained: scontrol, or slinky for an annotation of the nodes' "
        "pods, which Slinky 1.3 and newer follow.",
        examples=["slinky"],
    )

    @property
    def access(self) -> "SlurmInputs":
        """Return the settings for access to Slurm's commands, with defaults for all others."""
        return self.model_copy(update={"drain_by": "scontrol"})

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each setting of a way of access other than `via`."""
        via = values.get("via", "exec")
        if via not in _SETTINGS_BY_METHOD:
            return
        for name in values:
            methods = [
                method for method, settings in _SETTINGS_BY_METHOD.items() if name in settings
            ]
            if methods and via not in methods:
                yield Problem(name, f"is a setting of via: {' and '.join(methods)}, not of {via}")


OnBusy = Literal["wait", "fail", "evict"]

DEFAULT_WAIT_MINUTES: Final = 60
"""How long to wait for running jobs if nothing is declared."""


class DrainInputs(InputModel):
    """What to do about the jobs on nodes before their GPUs are removed."""

    on_busy: OnBusy | None = optional_field(
        "While jobs run on the nodes: wait until the jobs have ended (default), "
        "fail at once, or evict the jobs.",
        examples=["fail"],
    )
    wait_minutes: int | None = optional_field(
        f"How long to wait for jobs, in minutes; {DEFAULT_WAIT_MINUTES} if not "
        "declared. If jobs still run after this time, no node is removed.",
        ge=1,
        examples=[240],
    )

    @property
    def policy(self) -> OnBusy:
        """The declared policy for running jobs (wait, fail or evict); wait if not declared."""
        return self.on_busy or "wait"

    @property
    def job_wait_s(self) -> float:
        """The longest wait for jobs on nodes to be removed, in seconds: declared or default."""
        return 60.0 * (self.wait_minutes or DEFAULT_WAIT_MINUTES)

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if `wait_minutes` is declared although `on_busy` is fail."""
        if values.get("on_busy") == "fail" and values.get("wait_minutes") is not None:
            yield Problem("wait_minutes", "conflicts with on_busy fail, which does not wait")


class ChosenDrainInputs(DrainInputs):
    """The jobs on removed nodes, and which nodes are removed when a cluster shrinks."""

    nodes: list[str] | None = optional_field(
        "Names of all nodes to remove when the cluster shrinks; by default failed "
        "nodes first, then cordoned or drained, then idle, then the newest ones.",
        examples=[["train-worker-3"]],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the drain's problems, and one for each node in `nodes` listed twice."""
        yield from super().find_problems(values)
        names = values.get("nodes")
        if isinstance(names, list):
            for index, name in enumerate(names):
                # Two names that are not known yet may be those of two nodes.
                if name is not UNKNOWN and name in names[:index]:
                    yield Problem(f"nodes[{index}]", f"{name} is listed twice: name each node once")


class KubernetesInputs(InputModel):
    """The Kubernetes that schedules jobs on the nodes. A node has the same name there."""

    kubeconfig: str | None = optional_field(
        "Path of a kubeconfig on this machine; ~/.kube/config when not declared.",
        min_length=1,
        examples=["~/.kube/train"],
    )
    context: str | None = optional_field(
        "Context in the kubeconfig; the current one if not declared.",
        min_length=1,
        examples=["train"],
    )


class ScheduledDrainInputs(DrainInputs):
    """What to do about the jobs on removed nodes, and which scheduler to ask."""

    kubernetes: KubernetesInputs | None = optional_field(
        "The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform "
        "does not look for jobs.",
        examples=[{"kubeconfig": "~/.kube/train"}],
    )
    slurm: SlurmInputs | None = optional_field(
        "The Slurm to ask for jobs; exec needs kubernetes, too.",
        examples=[{"via": "ssh", "host": "slurm-login"}],
    )

    @property
    def has_scheduler(self) -> bool:
        """Return True if a Kubernetes or Slurm scheduler is declared, to be drained first."""
        return self.kubernetes is not None or self.slurm is not None

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the drain's problems, and one for each setting whose scheduler is not declared.

        Slurm by `exec`, which is the default, needs `kubernetes`, too, and so does `drain_by:
        slinky`.
        """
        yield from super().find_problems(values)
        slurm = values.get("slurm")
        is_exec = isinstance(slurm, Mapping) and slurm.get("via", "exec") == "exec"
        # `exec` runs Slurm's commands in a pod
        if is_exec and values.get("kubernetes") is None:
            yield Problem(
                "slurm.via",
                "is exec by default, and exec needs kubernetes: declare kubernetes, or via ssh",
            )
        is_by_pods = isinstance(slurm, Mapping) and slurm.get("drain_by") == "slinky"
        if is_by_pods and not is_exec and values.get("kubernetes") is None:
            yield Problem(
                "slurm.drain_by", "slinky annotates pods: declare kubernetes, or drain_by scontrol"
            )
        if slurm is None and values.get("kubernetes") is None:
            for name in ("on_busy", "wait_minutes"):
                if values.get(name) is not None:
                    yield Problem(
                        name, "needs a scheduler that reports jobs: declare kubernetes or slurm"
                    )


class PoolDrainInputs(ScheduledDrainInputs, ChosenDrainInputs):
    """What to do about the jobs on a pool's removed nodes, and which nodes to remove first."""


class RunningJob(FrozenModel):
    """A job that ends when its node is removed."""

    id: str = Field(description="The scheduler's id: namespace/pod, or the job's number.")
    name: str = Field(description="Name of the job.")
    user: str = Field(default="", description="Owner of the job; empty: unknown.")

    def __str__(self) -> str:
        """Return `7 evaluate (ada)`, or `ml/train-0` where the id contains the name."""
        name = f" {self.name}" if self.name not in self.id else ""
        return f"{self.id}{name}{f' ({self.user})' if self.user else ''}"


RESIZED: Final = "resized"
"""The reason of a node that stays, and has fewer GPUs afterwards."""

UNCHOSEN: Final = "unchosen"
"""The reason of a node without a name: nobody knows yet which node the platform removes."""

_SHRINK_REASONS: Final = frozenset(
    {"named", "failed", "cordoned", "idle", "newest", RESIZED, UNCHOSEN}
)
"""The reasons of `RemovedNode` of an object that shrinks to a declared number."""


class RemovedNode(FrozenModel):
    """A node whose GPUs are removed."""

    name: str = Field(description="Name of the node on the platform; empty: not known yet.")
    because: str = Field(
        description="Why this node is removed: named, failed, cordoned, idle or newest when "
        "the cluster shrinks, or unchosen if nobody knows yet which nodes those are; resized if "
        "the node stays with fewer GPUs; otherwise deleted, replaced, stopped, moved or repaired."
    )
    gpus: int | None = optional_field("GPUs that are removed with the node; null: unknown.", ge=0)
    jobs: tuple[RunningJob, ...] = Field(
        default=(), description="The jobs that run on the node now."
    )


class RemovedNodes(FrozenModel):
    """The nodes whose GPUs are removed, as they were when the plan was made.

    Before a node is removed its jobs are checked again: no node with a running job is removed.
    """

    scheduler: str = Field(
        default="",
        description="The scheduler that reported the jobs, such as Kubernetes; empty: none did, "
        "and the jobs are unknown.",
    )
    on_busy: str = Field(
        default="", description="What to do about running jobs: wait, fail or evict."
    )
    wait_minutes: int = Field(default=0, description="How many minutes to wait for the jobs.")
    nodes: tuple[RemovedNode, ...] = Field(description="The removed nodes.")
    max_gpus: int | None = optional_field(
        "The most GPUs that may be removed, where automatic scaling may add nodes after the plan; "
        "null: no more than those of the nodes.",
        ge=0,
    )

    @property
    def has_known_jobs(self) -> bool:
        """True if a scheduler has reported the jobs on the nodes."""
        return bool(self.scheduler)

    @property
    def busy(self) -> tuple[RemovedNode, ...]:
        """The nodes of this removal on which jobs run."""
        return tuple(node for node in self.nodes if node.jobs)

    @property
    def is_shrinking(self) -> bool:
        """True if nodes are removed because the cluster shrinks: none is replaced or repaired."""
        return any(node.because in _SHRINK_REASONS for node in self.nodes)

    @property
    def evicts_jobs(self) -> bool:
        """Return True if jobs run on the nodes now and are ended, because `on_busy` is `evict`."""
        return self.on_busy == "evict" and bool(self.busy)

    def count_gpus(self) -> int | None:
        """Return how many GPUs are removed at most; None if a number is unknown."""
        gpus = _sum_gpus(self.nodes)
        return gpus if gpus is None or self.max_gpus is None else max(gpus, self.max_gpus)

    @property
    def may_grow(self) -> bool:
        """True if automatic scaling may add nodes, so that more are removed than the plan names."""
        return self.max_gpus is not None and self.count_gpus() != _sum_gpus(self.nodes)

    def count_lost_gpus(self) -> int | None:
        """Return how many GPUs an update removes for good; None if a number is unknown.

        Nodes that are replaced, repaired, stopped or moved keep their GPUs, or get new ones.
        """
        lost_reasons = {*_SHRINK_REASONS, "deleted"}
        return _sum_gpus([node for node in self.nodes if node.because in lost_reasons])

    def count_nodes(self, repaired_names: Collection[str] = ()) -> int:
        """Return how many nodes are removed, stopped or moved, without repaired and resized ones.

        `repaired_names` are nodes whose repair the plan shows: it may replace them. A shrink that
        removes such a node counts.
        """
        return sum(
            node.because not in ("repaired", RESIZED)
            and not (node.because == "replaced" and node.name in repaired_names)
            for node in self.nodes
        )

    def add_unnamed_nodes(self, count: int, because: str, gpus: int) -> "RemovedNodes":
        """Return a copy with `count` more nodes, none if negative, each with so many GPUs."""
        unnamed_node = RemovedNode(name="", because=because, gpus=gpus)
        return self.model_copy(update={"nodes": (*self.nodes, *[unnamed_node] * count)})


def _sum_gpus(nodes: Collection[RemovedNode]) -> int | None:
    """Return the sum of the GPUs of the nodes; None if a number is unknown."""
    numbers = [node.gpus for node in nodes]
    return None if None in numbers else sum(number or 0 for number in numbers)
