"""Use a cluster's Slurm as the scheduler of its nodes: list jobs, drain, resume and requeue.

Lifecycles get the declared scheduler from `create_declared_scheduler`; commands are sent by a
`CommandRunner`, and `parsing` parses what they print.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from gpuform.providers.draining import ScheduledNode, Scheduler, SlurmOnKubernetes
from gpuform.providers.environment import require_scheduler_access
from gpuform.providers.errors import GpuformError, PermissionDenied, Unreachable
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig, parse_kubeconfig
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler, list_node_states
from gpuform.providers.slurm.parsing import (
    LIST_JOBS_COMMAND,
    LIST_NODES_COMMAND,
    SlurmNode,
    build_running_jobs_command,
    parse_jobs,
    parse_nodes,
    parse_running_jobs,
)
from gpuform.providers.slurm.processes import (
    CommandOutput,
    CommandRunner,
    LocalCommandRunner,
    SshCommandRunner,
)
from gpuform.schemas.policies.drain import RunningJob, ScheduledDrainInputs, SlurmInputs
from gpuform.schemas.safe_text import escape_invisible

T = TypeVar("T")

_SLINKY_REASON = "slurm-operator:"
"""The begin of the reasons of Slinky's operator (its page "NodeSet Operations")."""
_OWNED_REASON = re.compile(r"gpuform: (?P<label>.*?)(?:; before: (?P<before>.*))?")


class SlurmScheduler:
    """The Slurm of one cluster as a `Scheduler`. Names of nodes are Slurm's NodeNames.

    The label of a cordon is part of the drain's reason, `gpuform: LABEL`, where administrators see
    it. `withdraw_requests` ends drains that a run with `drain_by: slinky` has requested.
    """

    name: ClassVar[str] = "Slurm"

    def __init__(
        self,
        commands: CommandRunner,
        withdraw_requests: Callable[[Collection[str], str], None] | None = None,
    ) -> None:
        self._commands = commands
        self._withdraw_requests = withdraw_requests

    def list_nodes(self) -> Sequence[ScheduledNode]:
        """Return every node with the jobs on the node.

        A COMPLETING job counts for the nodes that it still holds.

        PrivateData may hide the jobs of other users: a busy node without visible jobs gets a
        nameless one.
        """
        nodes = self._list_slurm_nodes()
        # Asked last, so that no job is missed that started in between.
        jobs = run_and_parse(self._commands, "nodes", LIST_JOBS_COMMAND, parse_jobs)
        return [_to_scheduled_node(node, jobs.get(node.name, ())) for node in nodes]

    def get_nodes_by_name(self) -> Mapping[str, SlurmNode]:
        """Return every node by name, without jobs, by one command."""
        return {node.name: node for node in self._list_slurm_nodes()}

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Drain nodes with `owner_label` in the reason; drained nodes keep the old reason.

        The reason of a node that is down is kept behind the label.

        Raises:
            GpuformError: Slurm does not have one of the nodes (then none is drained), or refuses.
            ValueError: the label cannot stand in a reason.
        """
        if (
            not owner_label.isprintable()
            or owner_label != owner_label.strip()
            or "; before: " in owner_label
        ):
            raise ValueError(f"{owner_label!r} cannot be part of the reason of a node")
        nodes = {node.name: node for node in self._list_slurm_nodes()}
        if missing := sorted(set(node_names) - set(nodes)):
            raise GpuformError(
                f"Slurm ({self._commands.label}) has no node {', '.join(missing)}",
                hint="compare with `sinfo -N`: gpuform drains nodes by their NodeName",
            )
        undrained_nodes = [nodes[name] for name in node_names if not nodes[name].is_drained]
        # One command for all, but for nodes that are down for a reason: it is kept behind ours.
        for previous_reason in sorted({node.reason for node in undrained_nodes}):
            reason = f"gpuform: {owner_label}" + (
                f"; before: {previous_reason}" if previous_reason else ""
            )
            names_to_drain = [
                node.name for node in undrained_nodes if node.reason == previous_reason
            ]
            self._update_nodes(names_to_drain, "State=DRAIN", f"Reason={reason}")

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        """End the drain of nodes with `owner_label`; a node which is down stays down.

        A reason that a node had before the drain is set again. Missing nodes are skipped. A request
        to Slinky with `owner_label` is withdrawn.
        """
        nodes = [node for node in self._list_slurm_nodes() if node.name in node_names]
        # A request that Slinky has not seen yet counts, too: it would drain the node later.
        maybe_requested = [
            node.name
            for node in nodes
            if not node.is_drained or node.reason.startswith(_SLINKY_REASON)
        ]
        # The state may not have the setting yet with which a run was killed that asked Slinky.
        if maybe_requested and self._withdraw_requests is not None:
            # Who may not list pods has requested nothing.
            with suppress(PermissionDenied):
                self._withdraw_requests(maybe_requested, owner_label)
        owned_nodes = [node for node in nodes if _get_owner_label(node) == owner_label]
        if owned_nodes:
            # RESUME would also declare a node as usable that went down in the meantime.
            self._update_nodes([node.name for node in owned_nodes], "State=UNDRAIN")
        for node in owned_nodes:
            if previous_reason := _get_previous_reason(node):
                self._update_nodes([node.name], f"Reason={previous_reason}")

    def evict(self, node_names: Collection[str]) -> None:
        """Requeue the jobs on nodes, and cancel jobs which cannot be requeued.

        Slurm requeues batch jobs, unless they were submitted with --no-requeue, and never
        interactive ones (srun, salloc). A job on several nodes ends on all of them. COMPLETING jobs
        are ending already. Nodes that Slurm does not have are skipped, and nothing waits for the
        jobs' end.

        Raises:
            GpuformError: a command fails, and a job still runs.
        """
        present = sorted({node.name for node in self._list_slurm_nodes()} & set(node_names))
        if not present:
            return
        jobs = run_and_parse(
            self._commands, "nodes", build_running_jobs_command(present), parse_running_jobs
        )
        requeued = [job for job, can_requeue in jobs.items() if can_requeue]
        cancelled = [job for job, can_requeue in jobs.items() if not can_requeue]
        if requeued:
            self._end_jobs(("scontrol", "requeue", ",".join(requeued)), present, requeued)
        if cancelled:
            self._end_jobs(("scancel", *cancelled), present, cancelled)

    def _end_jobs(self, command: Sequence[str], node_names: list[str], jobs: list[str]) -> None:
        """Run a command which ends `jobs`; ignore a failure if none of the jobs runs any more.

        Raises:
            GpuformError: the command fails, and a job still runs.
        """
        output = self._commands.run(command, is_change=True)
        # Slurm also refuses jobs that have just ended, which is what was wanted.
        if output.exit_code and set(jobs) & set(
            run_and_parse(
                self._commands, "nodes", build_running_jobs_command(node_names), parse_running_jobs
            )
        ):
            raise build_command_error(command, output, self._commands.label)

    def _list_slurm_nodes(self) -> list[SlurmNode]:
        """Return every node in the output of `scontrol show node`."""
        return run_and_parse(self._commands, "nodes", LIST_NODES_COMMAND, parse_nodes)

    def _update_nodes(self, names: Iterable[str], *settings: str) -> None:
        """Run `scontrol update` with `settings` for the named nodes, at least one.

        Raises:
            GpuformError: the command fails.
        """
        command = ("scontrol", "update", f"NodeName={','.join(names)}", *settings)
        output = self._commands.run(command, is_change=True)
        if output.exit_code:
            raise build_command_error(command, output, self._commands.label)


def run_and_parse(
    commands: CommandRunner, subject: str, command: Sequence[str], parse: Callable[[str], T]
) -> T:
    """Run a command which changes nothing, and return the parsed output.

    `subject` is what the output is about: jobs or nodes.

    Raises:
        GpuformError: the command fails, or `parse` raises ValueError for the output.
    """
    output = commands.run(command)
    if output.exit_code:
        raise build_command_error(command, output, commands.label)
    try:
        return parse(output.stdout)
    except ValueError as error:
        raise GpuformError(
            f"`{' '.join(command[:3])}` printed unexpected output ({commands.label}): "
            f"{escape_invisible(str(error))}",
            hint=f"gpuform does not guess the state of {subject}: run the command there and look "
            "at the line",
        ) from error


def create_command_runner(
    inputs: SlurmInputs, *, kubeconfig: str | None = None, cluster: str = "of this Slurm"
) -> CommandRunner:
    """Return a runner of Slurm's commands, as `inputs` declare; nothing is sent yet.

    Args:
        inputs: the declared `slurm`.
        kubeconfig: YAML of the cluster's own kubeconfig, needed for `via: exec`.
        cluster: the cluster's name for messages.

    Raises:
        GpuformError: the kubeconfig is missing, or this run may not use this Slurm.
    """
    if inputs.via != "exec":
        require_scheduler_access(inputs, f"Slurm by {inputs.via}")
    if inputs.via == "ssh":
        return SshCommandRunner(inputs)
    if inputs.via == "local":
        return LocalCommandRunner(sudo=bool(inputs.sudo))
    if not kubeconfig:
        raise GpuformError(
            f"cluster {cluster} has no kubeconfig yet, and gpuform needs it to ask its Slurm",
            hint="wait until the cluster is ready, or declare `slurm: {via: ssh}`",
        )
    from gpuform.providers.slurm.processes import PodCommandRunner  # noqa: PLC0415 - who logs in needs none

    if inputs.access != SlurmInputs():  # which pod runs the commands is somebody's choice
        require_scheduler_access(
            inputs, "Slurm by exec", parse_kubeconfig(kubeconfig, cluster).cluster.server
        )
    return PodCommandRunner(inputs, kubeconfig, cluster)


def create_slurm_scheduler(
    inputs: SlurmInputs, *, kubeconfig: str | None = None, cluster: str = "of this Slurm"
) -> SlurmScheduler:
    """Return the scheduler for the Slurm of a cluster.

    Arguments and errors are those of `create_command_runner`.
    """
    return SlurmScheduler(create_command_runner(inputs, kubeconfig=kubeconfig, cluster=cluster))


def create_draining_scheduler(
    inputs: SlurmInputs, *, kubeconfig: str | None = None, cluster: str = "of this Slurm"
) -> Scheduler:
    """Return the scheduler that drains the nodes of a cluster's Slurm, as `inputs` declare.

    Arguments and errors are those of `create_command_runner`; `drain_by: slinky` needs the
    kubeconfig, too.
    """
    commands = create_command_runner(inputs, kubeconfig=kubeconfig, cluster=cluster)
    if not kubeconfig:
        if inputs.drain_by == "scontrol":
            return SlurmScheduler(commands)
        raise GpuformError(
            f"cluster {cluster} has no kubeconfig, and gpuform needs it to ask Slinky for a drain",
            hint="declare the Kubernetes of the cluster, or `slurm: {drain_by: scontrol}`",
        )
    # A module that uses this one.
    from gpuform.providers.slurm.slinky import DrainRequests, SlinkyScheduler  # noqa: PLC0415

    requests = DrainRequests(get_kubernetes_client(kubeconfig, cluster), inputs.namespace)
    if inputs.drain_by == "scontrol":
        return SlurmScheduler(commands, requests.withdraw)
    return SlinkyScheduler(SlurmScheduler(commands), requests)


def _to_scheduled_node(node: SlurmNode, jobs: Iterable[RunningJob]) -> ScheduledNode:
    """Return a node of Slurm with its jobs, for draining.

    A busy node without visible jobs gets a job of unknown name: Slurm may hide the jobs of others.
    """
    visible_jobs = tuple(jobs)
    # Slurm's PrivateData can hide the jobs of other users: a busy node must not look idle.
    hidden_jobs = (
        (RunningJob(id="unknown", name="not reported by Slurm"),)
        if node.is_busy and not visible_jobs
        else ()
    )
    return ScheduledNode(
        name=node.name,
        is_cordoned=node.is_drained,
        is_failed=node.is_failed,
        owner_label=_get_owner_label(node),
        jobs=visible_jobs + hidden_jobs,
        addresses=node.addresses,
    )


def _get_owner_label(node: SlurmNode) -> str | None:
    """Return the label of the node's cordon; None if not drained, or drained by somebody else."""
    match = _OWNED_REASON.fullmatch(node.reason) if node.is_drained else None
    return match and match["label"]


def _get_previous_reason(node: SlurmNode) -> str | None:
    """Return the reason a node had in Slurm before `cordon`, or None."""
    match = _OWNED_REASON.fullmatch(node.reason)
    return match and match["before"]


_REMEDIES = (
    (
        "a password is required",
        "let sudo run scontrol without a password, or declare `sudo: false`",
    ),
    ("invalid user id", "use an operator or administrator of Slurm: another user, or sudo"),
    ("permission denied", "use an operator or administrator of Slurm: another user, or sudo"),
    (
        "invalid node name",
        "the node was removed just now: run the command again, and compare with `sinfo -N`",
    ),
    (
        "configuration source",
        "Slurm is not configured there: run the command where `sinfo` answers",
    ),
    (
        "not found",
        "Slurm's commands are not installed there: run the command where `sinfo` answers",
    ),
)
_NO_ANSWER_MESSAGES = ("unable to contact", "connect failure", "timed out", "communication")


def build_command_error(command: Sequence[str], output: CommandOutput, label: str) -> GpuformError:
    """Return the error for a command with another exit code than 0, with a remedy if known.

    The error is Unreachable if slurmctld did not answer the command.
    """
    printed = " ".join(output.stderr.split()) or " ".join(output.stdout.split())
    printed = escape_invisible(printed) or "no message"
    message = (
        f"`{' '.join(command[:3])}` failed ({label}, exit code {output.exit_code}): {printed[:300]}"
    )
    lower_case = printed.lower()
    if any(sign in lower_case for sign in _NO_ANSWER_MESSAGES):
        return Unreachable(
            message, hint="slurmctld does not answer: check it there with `scontrol ping`"
        )
    hint = next((remedy for part, remedy in _REMEDIES if part in lower_case), None)
    return GpuformError(message, hint=hint or "run the command there by hand to see more")


def create_declared_scheduler(inputs: ScheduledDrainInputs, label: str) -> Scheduler:
    """Return the declared scheduler, or both in one if Kubernetes and Slurm are declared.

    Reads the declared kubeconfig; no request is sent. `label` names the object with the nodes in
    messages.

    Raises:
        GpuformError: no scheduler is declared, its kubeconfig cannot be used, or this run may not
            ask the scheduler.
    """
    kube, slurm = inputs.kubernetes, inputs.slurm
    if kube is None and slurm is None:
        raise GpuformError(
            f"nodes of {label} are cordoned, and no scheduler is declared that can uncordon them",
            hint="declare drain.kubernetes or drain.slurm as before",
        )
    kubeconfig = None if kube is None else load_declared_kubeconfig(kube)
    kubernetes_scheduler = (
        None
        if kubeconfig is None
        else KubernetesScheduler(get_kubernetes_client(kubeconfig, label))
    )
    if slurm is None:
        assert kubernetes_scheduler is not None  # noqa: S101 - one of the two is declared
        return kubernetes_scheduler
    slurm_jobs = create_draining_scheduler(slurm, kubeconfig=kubeconfig, cluster=label)
    return (
        slurm_jobs
        if kubernetes_scheduler is None
        else SlurmOnKubernetes(kubernetes_scheduler, slurm_jobs, slurm.namespace, {})
    )


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """Why a scheduler cannot use a node, or "", and since when (UTC, or "")."""

    problem: str = ""
    problem_since: str = ""


def list_node_conditions(inputs: ScheduledDrainInputs, label: str) -> dict[str, NodeCondition]:
    """Return for each node whether the declared schedulers can use the node, by node name.

    Each scheduler is asked once. A node that is only cordoned or drained has no problem. A problem
    in Kubernetes hides one in Slurm.

    Raises:
        GpuformError: a scheduler cannot be asked.
    """
    kube, slurm = inputs.kubernetes, inputs.slurm
    kubeconfig = None if kube is None else load_declared_kubeconfig(kube)
    conditions = {}
    for name, state in (
        {} if kubeconfig is None else list_node_states(get_kubernetes_client(kubeconfig, label))
    ).items():
        problem = "" if state.is_ready else f"NotReady: {state.not_ready_reason} (Kubernetes)"
        conditions[name] = NodeCondition(problem, state.not_ready_since)
    slurm_nodes = (
        {}
        if slurm is None
        else create_slurm_scheduler(slurm, kubeconfig=kubeconfig, cluster=label).get_nodes_by_name()
    )
    for name, node in slurm_nodes.items():
        if name not in conditions or (node.is_failed and not conditions[name].problem):
            reason = f", {node.reason}" if node.reason else ""
            problem = f"{node.unusable_states}{reason} (Slurm)" if node.is_failed else ""
            conditions[name] = NodeCondition(problem)
    return conditions
