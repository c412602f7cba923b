"""Send each step to the nodes once: many nodes by one request where SCP allows that, else several
requests at a time.

A node is told one thing at a time, and only when it is at rest.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Protocol, TypeVar

from gpuform.providers import permissions
from gpuform.providers.context import PASSING
from gpuform.providers.errors import ApiError, Cancelled, GpuformError, NotFound
from gpuform.providers.http import contradicted
from gpuform.providers.permissions import Permission
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.planning import (
    DeclaredNode,
    Fabric,
    differences,
    has_other_public_ip,
    locked,
)
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_AT_REST

T = TypeVar("T")

THREADS = 16


def in_parallel(jobs: Sequence[Callable[[], T]]) -> list[T | GpuformError]:
    """The result of each job, or the GpuformError that it raised, in their order."""

    def outcome(job: Callable[[], T]) -> T | GpuformError:
        try:
            return job()
        except GpuformError as error:
            return error

    if len(jobs) < 2:
        return [outcome(job) for job in jobs]
    with ThreadPoolExecutor(min(THREADS, len(jobs))) as pool:
        futures = [pool.submit(copy_context().run, outcome, job) for job in jobs]
        return [future.result() for future in futures]


Pair = tuple[NodeOutputs, DeclaredNode]


class Watched(Protocol):
    """Who looks at the nodes, and wants to know what the platform does not tell."""

    def assigned(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:
        """The node has got this public IP."""

    def expect_end(self, nodes: Sequence[NodeOutputs]) -> None:
        """Note nodes that are about to be deleted."""


class NodeSteps:
    """What one call tells nodes. `refused` says by name what a node did not do, and why."""

    def __init__(self, client: ScpClient, nodes: Watched) -> None:
        self._client = client
        self._nodes = nodes
        self._asked: set[tuple[str, str]] = set()
        self._unlocked: set[str] = set()
        self._missed: set[tuple[str, frozenset[str]]] = set()
        self.refused: dict[str, str] = {}

    @property
    def has_deleted(self) -> bool:
        """Whether nodes are gone because of this call."""
        return any(step == "delete" for _, step in self._asked)

    def delete(self, ending: Sequence[NodeOutputs]) -> bool:
        """Deletes nodes by one request; locked ones have to be allowed. Whether any was told to."""
        nodes = [node for node in ending if self._is_new(node, "delete")]
        if not nodes:
            return False
        self._unlock(nodes)
        ids = [node.id for node in nodes]
        self._nodes.expect_end(nodes)
        self._do("delete", nodes, partial(self._client.delete_nodes, ids))
        return True

    def adjust(self, kept: Sequence[Pair], fabric: Fabric, fabric_id: str | None) -> bool:
        """Tells each node its next step towards its declaration. Whether any was told one."""
        steps: dict[str, list[Pair]] = defaultdict(list)
        for node, wanted in kept:
            step = self.next_step(node, wanted, fabric)
            if step and self._is_new(node, step):
                steps[step].append((node, wanted))
        for step, pairs in steps.items():
            self._take(step, pairs, fabric_id)
        return bool(steps)

    def next_step(self, node: NodeOutputs, wanted: DeclaredNode, fabric: Fabric) -> str:
        """What a node has to do next; empty when it is as declared, or cannot be told anything."""
        if node.state not in NODE_AT_REST:
            return ""
        fields = {each.field for each in differences(node, wanted, fabric)}
        if "lock_enabled" in fields and not wanted.lock_enabled:
            return "unlock"
        if "state" in fields:
            return "start" if wanted.state == "RUNNING" else "stop"
        if {"nat_enabled", "public_ip_address_id"} & fields:
            is_off = not wanted.nat_enabled or has_other_public_ip(node, wanted)
            return "release_nat" if node.policy_use_nat and is_off else "assign_nat"
        if {"cluster_fabric_id", "cluster_fabric_name"} & fields:
            return "move"
        is_opened = node.id in self._unlocked and wanted.lock_enabled is None
        return "lock" if "lock_enabled" in fields or (is_opened and not node.lock_enabled) else ""

    def _take(self, step: str, pairs: Sequence[Pair], fabric_id: str | None) -> None:
        nodes = [node for node, _ in pairs]
        ids = [node.id for node in nodes]
        if step == "start":
            self._do(step, nodes, partial(self._client.start_nodes, ids))
        elif step == "stop":
            self._unlock(nodes)
            self._do(step, nodes, partial(self._client.stop_nodes, ids))
        elif step == "move":
            self._move(nodes, fabric_id)
        else:
            self._each(step, pairs)

    def _move(self, nodes: Sequence[NodeOutputs], fabric_id: str | None) -> None:
        before: dict[str, list[NodeOutputs]] = defaultdict(list)
        for node in nodes:
            if node.cluster_fabric_id and fabric_id:
                before[node.cluster_fabric_id].append(node)
        for source, members in before.items():
            ids = [node.id for node in members]
            send = partial(self._client.modify_members, source, fabric_id or "", ids)
            self._do("move", members, send)

    def _each(self, step: str, pairs: Sequence[Pair]) -> None:
        """A step that the platform takes for one node at a time."""

        def send(node: NodeOutputs, wanted: DeclaredNode) -> None:
            if step == "assign_nat":
                self._client.assign_nat(node.id, wanted.public_ip_address_id or "")
                self._nodes.assigned(node, wanted.public_ip_address_id)
            elif step == "release_nat":
                self._client.release_nat(node.id)
            elif step == "unlock":
                self._client.unlock_node(node.id)
            else:
                self._client.lock_node(node.id)

        jobs = [partial(self._do, step, [pair[0]], partial(send, *pair)) for pair in pairs]
        _raise_first(in_parallel(jobs))

    def _unlock(self, nodes: Sequence[NodeOutputs]) -> None:
        """Unlocks what is about to be deleted or stopped, if that is allowed."""
        shut = [node for node in nodes if node.lock_enabled]
        if not shut:
            return
        permissions.require(Permission.UNLOCK, locked([node.gpu_node_name for node in shut]))
        _raise_first(in_parallel([partial(self._client.unlock_node, node.id) for node in shut]))
        self._unlocked.update(node.id for node in shut)

    def _is_new(self, node: NodeOutputs, step: str) -> bool:
        return (node.id, step) not in self._asked and node.gpu_node_name not in self.refused

    def _do(self, step: str, nodes: Sequence[NodeOutputs], send: Callable[[], None]) -> None:
        """Sends a request. One that is refused is noted, and not repeated.

        So is one for nodes that are still there after the platform has said that one of them is
        gone.
        """
        told = (step, frozenset(node.id for node in nodes))
        try:
            send()
        except NotFound as error:
            if told not in self._missed:
                self._missed.add(told)  # one of them is gone: the next look knows
                return
            self._refuse(nodes, contradicted(error, "it still shows them all"))
        except ApiError as error:
            if isinstance(error, PASSING):
                raise
            self._refuse(nodes, error)
        else:
            self._asked.update((node.id, step) for node in nodes)

    def _refuse(self, nodes: Sequence[NodeOutputs], error: ApiError) -> None:
        self.refused.update({node.gpu_node_name: error.message for node in nodes})


def _raise_first(outcomes: Sequence[object]) -> None:
    """Raises an interruption first, else the first error, if there is any."""
    errors = [each for each in outcomes if isinstance(each, GpuformError)]
    for error in sorted(errors, key=lambda each: not isinstance(each, Cancelled)):
        raise error
