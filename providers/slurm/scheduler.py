"""Use a cluster's Slurm as the scheduler of its nodes, through Slurm's own commands."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from gpuform.providers.draining import ScheduledNode, Scheduler, SlurmOnKubernetes
from gpuform.providers.environment import require_asked
from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.kubeconfig import declared_kubeconfig, parts_of
from gpuform.providers.kubernetes.nodes import node_states
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.processes import Commands, LocalCommands, Output, SshCommands
from gpuform.providers.slurm.reading import (
    SHOW_JOBS,
    SHOW_NODES,
    Node,
    read_ending,
    read_jobs,
    read_nodes,
    show_ending,
)
from gpuform.schemas.policies.drain import RunningJob, ScheduledDrainInputs
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.slurm import SlurmInputs

T = TypeVar("T")

_MARKED = re.compile(r"gpuform: (?P<mark>.*?)(?:; before: (?P<before>.*))?")


class SlurmScheduler:
    """The Slurm of one cluster; see `Scheduler`. Names of nodes are NodeNames of Slurm.

    A mark stands in the reason of a drain, `gpuform: MARK`, where every administrator sees it.
    """

    name: ClassVar[str] = "Slurm"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def nodes(self) -> Sequence[ScheduledNode]:
        """Every node with its jobs. A COMPLETING job still runs on the nodes that it holds.

        A node on which something runs that Slurm does not tell (PrivateData hides other people's
        jobs) has a job all the same, without a name.
        """
        nodes = self._look()
        # Asked last, so that no job is missed that started in between.
        jobs = self._read(SHOW_JOBS, read_jobs)
        return [_scheduled(node, jobs.get(node.name, ())) for node in nodes]

    def states(self) -> Mapping[str, Node]:
        """Every node by its name, without its jobs: one command."""
        return {node.name: node for node in self._look()}

    def cordon(self, names: Collection[str], mark: str) -> None:
        """Drains nodes with `mark` in the reason; those that are drained keep their reason.

        Raises GpuformError, and drains none, when Slurm does not have one of them.
        """
        if not mark.isprintable() or mark != mark.strip() or "; before: " in mark:
            raise ValueError(f"{mark!r} cannot stand in the reason of a node")
        found = {node.name: node for node in self._look()}
        if missing := sorted(set(names) - set(found)):
            raise GpuformError(
                f"Slurm ({self._commands.place}) has no node {', '.join(missing)}",
                hint="compare with `sinfo -N`: nodes are drained by their NodeName",
            )
        open_ones = [found[name] for name in names if not found[name].is_drained]
        # One command for all, but for nodes that are down for a reason: it is kept behind ours.
        for before in sorted({node.reason for node in open_ones}):
            reason = f"gpuform: {mark}" + (f"; before: {before}" if before else "")
            drained = [node.name for node in open_ones if node.reason == before]
            self._update(drained, "State=DRAIN", f"Reason={reason}")

    def uncordon(self, names: Collection[str], mark: str) -> None:
        """Ends the drain of those whose reason is still `mark`; a node that is down stays down."""
        ours = [node for node in self._look() if node.name in names and _mark(node) == mark]
        if ours:
            # RESUME would also declare a node as usable that went down in the meantime.
            self._update([node.name for node in ours], "State=UNDRAIN")
        for node in ours:
            if before := _before(node):
                self._update([node.name], f"Reason={before}")

    def evict(self, names: Collection[str]) -> None:
        """Requeues the jobs on nodes, and cancels those that cannot be requeued.

        Batch jobs go back into the queue unless they were submitted with --no-requeue; interactive
        ones (srun, salloc) are cancelled. A job on several nodes ends on all of them. One that is
        COMPLETING ends already.
        """
        present = sorted({node.name for node in self._look()} & set(names))
        if not present:
            return
        jobs = self._read(show_ending(present), read_ending)
        requeued = [job for job, can_requeue in jobs.items() if can_requeue]
        cancelled = [job for job, can_requeue in jobs.items() if not can_requeue]
        if requeued:
            self._end(("scontrol", "requeue", ",".join(requeued)), present, requeued)
        if cancelled:
            self._end(("scancel", *cancelled), present, cancelled)

    def _end(self, command: Sequence[str], names: list[str], jobs: list[str]) -> None:
        """Runs a command that ends jobs; what it refuses is an error if one of them runs on."""
        output = self._commands.run(command, is_change=True)
        if output.code and set(jobs) & set(self._read(show_ending(names), read_ending)):
            raise refused(command, output, self._commands.place)

    def _look(self) -> list[Node]:
        return self._read(SHOW_NODES, read_nodes)

    def _update(self, names: Iterable[str], *settings: str) -> None:
        command = ("scontrol", "update", f"NodeName={','.join(names)}", *settings)
        output = self._commands.run(command, is_change=True)
        if output.code:
            raise refused(command, output, self._commands.place)

    def _read(self, command: Sequence[str], reading: Callable[[str], T]) -> T:
        output = self._commands.run(command)
        if output.code:
            raise refused(command, output, self._commands.place)
        try:
            return reading(output.stdout)
        except ValueError as error:
            raise GpuformError(
                f"what `{' '.join(command[:3])}` printed ({self._commands.place}) cannot be read: "
                f"{error}",
                hint="nothing is guessed about nodes with jobs: run it there and look at the line",
            ) from error


def slurm_commands(
    inputs: SlurmInputs, *, kubeconfig: str | None = None, cluster: str = "of this Slurm"
) -> Commands:
    """Where the commands of a cluster's Slurm are run, as `inputs` say.

    `kubeconfig` is the text (YAML) of the cluster's own, needed for `via: exec`, and `cluster` what
    people call the cluster. Nothing is asked yet. Raises GpuformError without a kubeconfig, and for
    a Slurm that this run may not ask.
    """
    if inputs.via != "exec":
        require_asked(inputs, f"Slurm by {inputs.via}")
    if inputs.via == "ssh":
        return SshCommands(inputs)
    if inputs.via == "local":
        return LocalCommands(sudo=bool(inputs.sudo))
    if not kubeconfig:
        raise GpuformError(
            f"cluster {cluster} has no kubeconfig yet, and its Slurm is asked through it",
            hint="wait until the cluster is ready, or ask by `slurm: {via: ssh}`",
        )
    from gpuform.providers.slurm.pods import PodCommands  # noqa: PLC0415 - who logs in needs none

    if inputs != SlurmInputs():  # which pod runs the commands is somebody's choice
        require_asked(inputs, "Slurm by exec", parts_of(kubeconfig, cluster).cluster.server)
    return PodCommands(inputs, kubeconfig, cluster)


def slurm_scheduler(
    inputs: SlurmInputs, *, kubeconfig: str | None = None, cluster: str = "of this Slurm"
) -> SlurmScheduler:
    """The Slurm of a cluster, asked as `slurm_commands` has it."""
    return SlurmScheduler(slurm_commands(inputs, kubeconfig=kubeconfig, cluster=cluster))


def _scheduled(node: Node, jobs: Iterable[RunningJob]) -> ScheduledNode:
    told = tuple(jobs)
    hidden = (
        (RunningJob(id="unknown", name="not told by Slurm"),) if node.is_busy and not told else ()
    )
    return ScheduledNode(
        name=node.name,
        is_cordoned=node.is_drained,
        is_failed=node.is_failed,
        mark=_mark(node),
        jobs=told + hidden,
        addresses=node.addresses,
    )


def _mark(node: Node) -> str | None:
    """What `cordon` wrote on it; nothing is left of it once the drain has ended."""
    marked = _MARKED.fullmatch(node.reason) if node.is_drained else None
    return marked and marked["mark"]


def _before(node: Node) -> str | None:
    """The reason that it had before `cordon`."""
    marked = _MARKED.fullmatch(node.reason)
    return marked and marked["before"]


_REMEDIES = (
    ("a password is required", "let sudo run scontrol without a password, or say `sudo: false`"),
    ("invalid user id", "it needs an operator or administrator of Slurm: another user, or sudo"),
    ("permission denied", "it needs an operator or administrator of Slurm: another user, or sudo"),
    ("invalid node name", "the node has just left: try again, and compare with `sinfo -N`"),
    ("configuration source", "Slurm is not configured there: run it where `sinfo` answers"),
    ("not found", "Slurm's commands are not installed there: run it where `sinfo` answers"),
)
_SILENT = ("unable to contact", "connect failure", "timed out", "communication")


def refused(command: Sequence[str], output: Output, place: str) -> GpuformError:
    """The error for a command that ended with another code than 0."""
    told = " ".join(output.stderr.split()) or " ".join(output.stdout.split())
    told = escape_invisible(told) or "it said nothing"
    message = f"`{' '.join(command[:3])}` failed ({place}, exit code {output.code}): {told[:300]}"
    said = told.lower()
    if any(each in said for each in _SILENT):
        return Unreachable(message, hint="slurmctld does not answer: see `scontrol ping` there")
    hint = next((remedy for part, remedy in _REMEDIES if part in said), None)
    return GpuformError(message, hint=hint or "run it there by hand to see more")


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
