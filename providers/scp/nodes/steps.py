"""Send each step to the nodes once: many nodes by one request, or several requests at a time.

`PoolReconciler` and `GpuNodeOperations` call this module after each look at the nodes. A node gets
one step at a time, and only when it is RUNNING or STOPPED.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, Protocol, TypeVar

from gpuform.providers.context import TRANSIENT_ERRORS, get_run_context
from gpuform.providers.errors import ApiError, Cancelled, GpuformError, NotFound
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.permissions import Permission
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.planning import (
    DeclaredNode,
    TargetFabric,
    find_differences,
    format_locked_nodes,
    has_other_public_ip,
)
from gpuform.schemas.scp.outputs import STABLE_NODE_STATES, NodeOutputs, NodeState

T = TypeVar("T")

_LOOKS_BEFORE_ROLLBACK: Final = 3
"""How many looks must show a changed node without the change: a list may be a little old."""

THREADS = 16
"""How many requests `run_in_parallel` sends at a time."""


def run_in_parallel(jobs: Sequence[Callable[[], T]]) -> list[T | GpuformError]:
    """Run the jobs in threads, and return each result or GpuformError, in order.

    Any other exception of a job is raised.
    """

    def run_job(job: Callable[[], T]) -> T | GpuformError:
        try:
            return job()
        except GpuformError as error:
            return error

    if len(jobs) < 2:
        return [run_job(job) for job in jobs]
    with ThreadPoolExecutor(min(THREADS, len(jobs))) as pool:
        # A thread starts without context variables: permissions and settings are in them.
        futures = [pool.submit(copy_context().run, run_job, job) for job in jobs]
        return [future.result() for future in futures]


KeptNode = tuple[NodeOutputs, DeclaredNode]


class NodeObserver(Protocol):
    """Observer of the nodes: it also remembers what the platform does not return."""

    def record_public_ip(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:
        """Record the public IP assigned to a node."""

    def expect_deletion(self, nodes: Sequence[NodeOutputs]) -> None:
        """Note nodes whose deletion is about to be requested."""


class NodeSteps:
    """The steps that one call sends to nodes; `refusals` has by name why a step was refused."""

    def __init__(self, client: ScpClient, nodes: NodeObserver) -> None:
        self._client = client
        self._nodes = nodes
        self._sent_steps: set[tuple[str, str]] = set()
        self._unlocked_ids: set[str] = set()
        self._edited_ids: set[str] = set()
        """Nodes that were seen while they carried out the last step of this call."""
        self._looks_after_edit: Counter[tuple[str, str]] = Counter()
        self._missed_steps: set[tuple[str, frozenset[str]]] = set()
        self.refusals: dict[str, str] = {}

    @property
    def has_deleted(self) -> bool:
        """Return True if SCP has accepted a deletion from this call."""
        return any(step == "delete" for _, step in self._sent_steps)

    def delete_nodes(self, deleted_nodes: Sequence[NodeOutputs]) -> bool:
        """Delete nodes by one request, and return True if a request was sent.

        Nodes whose deletion was sent before or refused are skipped. Locked nodes are unlocked
        first. A refused deletion is no error, and is in `refusals` afterwards.

        Raises:
            GpuformError: the platform does not answer or refuses to unlock a node, or the
                permission to unlock is missing.
        """
        nodes = [node for node in deleted_nodes if self._is_new(node, "delete")]
        if not nodes:
            return False
        self._unlock_nodes(nodes)
        ids = [node.id for node in nodes]
        # Before the request: a node that vanishes after a lost answer is gone and not missing.
        self._nodes.expect_deletion(nodes)
        self._send("delete", nodes, partial(self._client.delete_nodes, ids))
        return True

    def send_next_steps(
        self, kept_nodes: Sequence[KeptNode], fabric: TargetFabric, fabric_id: str | None
    ) -> bool:
        """Send to each node the next step towards the declaration; return True if any step was new.

        A step that the platform refuses counts as new, too, and is in `refusals` afterwards.
        `fabric_id` is the id of the target fabric; None moves no node.

        Raises:
            GpuformError: the platform does not answer or refuses to unlock a node for a start or
                stop, or the permission to unlock is missing.
        """
        steps: dict[str, list[KeptNode]] = defaultdict(list)
        for node, declared_node in kept_nodes:
            step = self.find_next_step(node, declared_node, fabric)
            if step and self._is_new(node, step):
                steps[step].append((node, declared_node))
            elif step:
                self._note_rollback(node, step)
            elif node.state == NodeState.EDITING:
                self._edited_ids.add(node.id)
        for step, pairs in steps.items():
            self._send_step(step, pairs, fabric_id)
        return bool(steps)

    def find_next_step(
        self, node: NodeOutputs, declared_node: DeclaredNode, fabric: TargetFabric
    ) -> str:
        """Return the next step of a node; empty if no step is needed or possible now.

        A step is unlock, start, stop, release_nat, assign_nat, move or lock.
        """
        if node.state not in STABLE_NODE_STATES:
            return ""
        fields = {difference.field for difference in find_differences(node, declared_node, fabric)}
        # Unlocked first and locked last: a locked node takes no other step.
        if "lock_enabled" in fields and not declared_node.lock_enabled:
            return "unlock"
        if "state" in fields:
            return "start" if declared_node.state == "RUNNING" else "stop"
        if {"nat_enabled", "public_ip_address_id"} & fields:
            # Another public IP is two steps: SCP assigns one only to a node that has none.
            is_released = not declared_node.nat_enabled or has_other_public_ip(node, declared_node)
            return "release_nat" if node.policy_use_nat and is_released else "assign_nat"
        if {"cluster_fabric_id", "cluster_fabric_name"} & fields:
            return "move"
        # This call has unlocked the node to start or stop it: it gets its lock back.
        was_unlocked = node.id in self._unlocked_ids and declared_node.lock_enabled is None
        return (
            "lock" if "lock_enabled" in fields or (was_unlocked and not node.lock_enabled) else ""
        )

    def _send_step(self, step: str, pairs: Sequence[KeptNode], fabric_id: str | None) -> None:
        """Send one step to nodes: start, stop and move for many by one request, others one by one.

        Locked nodes are unlocked before a start or stop, which needs a permission. A refusal is
        recorded. Without `fabric_id`, the target of a move, no move is sent.
        """
        nodes = [node for node, _ in pairs]
        ids = [node.id for node in nodes]
        power_requests = {"start": self._client.start_nodes, "stop": self._client.stop_nodes}
        if step in power_requests:
            self._unlock_nodes(nodes)
            self._send(step, nodes, partial(power_requests[step], ids))
        elif step == "move":
            self._move_nodes(nodes, fabric_id)
        else:
            self._send_to_each(step, pairs)

    def _move_nodes(self, nodes: Sequence[NodeOutputs], fabric_id: str | None) -> None:
        """Send one move request for each source fabric of the nodes.

        Skips nodes without a known fabric; without `fabric_id`, the target, nothing is sent.
        """
        before: dict[str, list[NodeOutputs]] = defaultdict(list)
        for node in nodes:
            # A request names one source fabric (reference, 'Modify Cluster Fabric Members').
            if node.cluster_fabric_id and fabric_id:
                before[node.cluster_fabric_id].append(node)
        for source, members in before.items():
            ids = [node.id for node in members]
            send = partial(self._client.modify_members, source, fabric_id or "", ids)
            self._send("move", members, send)

    def _send_to_each(self, step: str, pairs: Sequence[KeptNode]) -> None:
        """Send a step to several nodes, each by a separate request.

        A refusal is recorded. Raises the first other GpuformError after all requests have ended.
        """

        def send_to_node(node: NodeOutputs, declared_node: DeclaredNode) -> None:
            if step == "assign_nat":
                self._client.assign_nat(node.id, declared_node.public_ip_address_id or "")
                self._nodes.record_public_ip(node, declared_node.public_ip_address_id)
            elif step == "release_nat":
                self._client.release_nat(node.id)
            elif step == "unlock":
                self._client.unlock_node(node.id)
            else:
                self._client.lock_node(node.id)

        # Lock, unlock and NAT requests name one node in their path.
        jobs = [
            partial(self._send, step, [pair[0]], partial(send_to_node, *pair)) for pair in pairs
        ]
        _raise_first(run_in_parallel(jobs))

    def _unlock_nodes(self, nodes: Sequence[NodeOutputs]) -> None:
        """Unlock the locked nodes for a deletion, start or stop, and remember the ids.

        Raises:
            GpuformError: the run has no permission to unlock, or SCP refuses or does not answer.
        """
        locked_nodes = [node for node in nodes if node.lock_enabled]
        if not locked_nodes:
            return
        get_run_context().require_permission(
            Permission.UNLOCK, format_locked_nodes([node.gpu_node_name for node in locked_nodes])
        )
        # SCP unlocks one node by a request (reference, 'Unlock GPU Node').
        _raise_first(
            run_in_parallel([partial(self._client.unlock_node, node.id) for node in locked_nodes])
        )
        self._unlocked_ids.update(node.id for node in locked_nodes)

    def _note_rollback(self, node: NodeOutputs, step: str) -> None:
        """Record a refusal if SCP has carried out a step of this call and taken the step back.

        SCP accepts the public IP of a node, edits the node, and may then roll the change back
        (Samsung's Terraform provider v6, `gpunode_public_nat_ip`).
        """
        if node.id not in self._edited_ids or node.gpu_node_name in self.refusals:
            return
        # One look may be older than the end of the change.
        self._looks_after_edit[node.id, step] += 1
        if self._looks_after_edit[node.id, step] >= _LOOKS_BEFORE_ROLLBACK:
            self.refusals[node.gpu_node_name] = (
                f"SCP accepted the step {step} and rolled it back: look at the node in SCP's "
                "console, then run the command again"
            )

    def _is_new(self, node: NodeOutputs, step: str) -> bool:
        """Return True if this call has not sent the step to the node, and no step was refused."""
        return (node.id, step) not in self._sent_steps and node.gpu_node_name not in self.refusals

    def _send(self, step: str, nodes: Sequence[NodeOutputs], send: Callable[[], None]) -> None:
        """Send a request, and record the success or the refusal: neither is sent again.

        The first NotFound for the same nodes is ignored; the second is a refusal: the platform
        still shows all of them. Transient errors, such as rate limits, are raised.
        """
        step_key = (step, frozenset(node.id for node in nodes))
        try:
            send()
        except NotFound as error:
            if step_key not in self._missed_steps:
                self._missed_steps.add(step_key)  # one of them is gone: the next look knows
                return
            self._record_refusal(nodes, build_contradiction_error(error, "it still shows them all"))
        except ApiError as error:
            # Transient errors (rate limits, outages) are left to the next poll.
            if isinstance(error, TRANSIENT_ERRORS):
                raise
            self._record_refusal(nodes, error)
        else:
            self._sent_steps.update((node.id, step) for node in nodes)
            self._edited_ids.difference_update(node.id for node in nodes)

    def _record_refusal(self, nodes: Sequence[NodeOutputs], error: ApiError) -> None:
        """Record the platform's message as the refusal of every one of the nodes."""
        self.refusals.update({node.gpu_node_name: error.message for node in nodes})


def _raise_first(outcomes: Sequence[object]) -> None:
    """Raise an interruption first, else the first error, if there is one."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, GpuformError)]
    for error in sorted(errors, key=lambda item: not isinstance(item, Cancelled)):
        raise error
