"""Find broken nodes, by their declared scheduler and by Lens, and decide which of them a run
recreates.

SCP has no call that repairs a server: a broken one is deleted and made again. So a repair is about
one server, by its id: it does nothing to the server that came in its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import answered
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.kubernetes.nodes import time_within
from gpuform.providers.lens.lookups import overheated
from gpuform.providers.lifetime import written
from gpuform.providers.operations import Settings
from gpuform.providers.records import Verdict, Verdicts
from gpuform.providers.repairing import (
    Decision,
    Fleet,
    decide,
    faults_in,
    is_unusable_for,
    repair_of,
)
from gpuform.providers.scp.nodes.planning import is_leaving
from gpuform.providers.slurm import Condition, declared_conditions
from gpuform.schemas.policies.certification import NodeFailure
from gpuform.schemas.policies.drain import PoolDrainInputs
from gpuform.schemas.policies.repair import Cause, NodeFault, RepairInputs, RepairPolicy
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED, NodeState, unix_time

OWNER: Final = "scp"
"""By what failed certifications are kept: ids of nodes are unique on all of SCP."""

REMAKE: Final = "REMAKE"
"""The one way to repair a node."""

_MODES: Final = (REMAKE,)


def decided(
    policy: RepairPolicy | None, seen: Mapping[str, Any], nodes: Sequence[NodeOutputs]
) -> Decision:
    """What a run does about these nodes, of which the outputs `seen` tell the faults.

    Without a policy failed nodes are made anew by every update, and none is left as broken.
    """
    live = [node for node in nodes if not is_leaving(node.state)]
    known = faults_in(seen)
    fleet = Fleet(
        nodes=[node.gpu_node_name for node in live],
        modes=_MODES,
        every=_MODES,
        unhealthy=[node.gpu_node_name for node in live if node.trouble],
        instances={node.gpu_node_name: node.id for node in live},
    )
    decision = decide(policy, [*failures(live, known), *kept(live, known)], fleet)
    return decision if policy is not None else replace(decision, held=())


def failures(
    nodes: Iterable[NodeOutputs], known: Sequence[NodeFault], now: str = ""
) -> list[NodeFault]:
    """The nodes that the platform calls broken; `known` are the faults that were seen before.

    One that was not seen before is broken since `now`, for the platform does not tell.
    """
    since = {each.instance: each.since for each in known if each.cause == Cause.PLATFORM}
    return [
        NodeFault(
            node=node.gpu_node_name,
            cause=Cause.PLATFORM,
            because=f"its state is {node.state}",
            since=since.get(node.id, now),
            instance=node.id,
        )
        for node in nodes
        if node.state in NODE_FAILED
    ]


def kept(nodes: Iterable[NodeOutputs], known: Sequence[NodeFault]) -> list[NodeFault]:
    """Those of the faults seen before that others than the platform tell, of what is there yet."""
    there = {node.id for node in nodes}
    return [each for each in known if each.cause != Cause.PLATFORM and each.instance in there]


def unusable(nodes: Iterable[NodeOutputs], patience: float, now: float) -> Iterator[NodeFault]:
    """The nodes that their scheduler cannot use for `patience` seconds at `now`."""
    for node in nodes:
        since, created = unix_time(node.unusable_since), unix_time(node.created_at)
        if node.trouble and is_unusable_for(patience, since=since, now=now, created=created):
            yield NodeFault(
                node=node.gpu_node_name,
                cause=Cause.NOT_READY,
                because=node.trouble,
                since=node.unusable_since or "",
                instance=node.id,
            )


def uncertified(nodes: Iterable[NodeOutputs], verdicts: Iterable[Verdict]) -> Iterator[NodeFault]:
    """The nodes that have failed a certification."""
    told = [NodeFailure.model_validate(each) for one in verdicts for each in one.failures]
    failed = {each.machine: each for each in told}
    for node in nodes:
        if (failure := failed.get(node.id)) is not None:
            yield NodeFault(
                node=node.gpu_node_name,
                cause=Cause.FAILED_CERTIFICATION,
                because=f"{failure.category}: {failure.because}",
                since=failure.at,
                instance=node.id,
            )


def hot(
    nodes: Iterable[NodeOutputs], measured: Mapping[str, str], known: Sequence[NodeFault], now: str
) -> list[NodeFault]:
    """The nodes that are too hot, by their names, with what is `measured`."""
    since = {each.instance: each.since for each in known if each.cause == Cause.OVERHEATED}
    return [
        NodeFault(
            node=node.gpu_node_name,
            cause=Cause.OVERHEATED,
            because=measured[node.gpu_node_name],
            since=since.get(node.id, now),
            instance=node.id,
        )
        for node in nodes
        if node.gpu_node_name in measured
    ]


_LONGEST: Final = 200


@dataclass(frozen=True)
class Inspection:
    """Looks at the nodes of one resource; `what` is for people, `declared` its canonical inputs."""

    call: ProviderContext
    settings: Settings
    what: str
    declared: Mapping[str, Any]

    def faults(self, nodes: Sequence[NodeOutputs]) -> tuple[Sequence[NodeOutputs], list[NodeFault]]:
        """The nodes with what their scheduler says of them, and those that are broken.

        Only who looks asks others than the platform, and only for a declared `repair`. Who cannot
        be asked is told to the call, and says nothing.
        """
        known, now = faults_in(self.call.known), self.call.clock.now()
        found = failures(nodes, known, written(now))
        policy = repair_of(self.declared, RepairInputs)
        if policy is None:
            return nodes, found
        if not self.call.only_looks:
            return nodes, [*found, *kept(nodes, known)]
        running = [node for node in nodes if node.state == NodeState.RUNNING]
        found += uncertified(running, self.verdicts())
        if running and self._drain.has_scheduler:
            told = self._with_conditions(running, known, written(now))
            nodes = [told.get(node.id, node) for node in nodes]
            found += unusable(nodes, policy.patience, now)
        if running and policy.max_temperature is not None:
            try:
                measured = self.measured(running, policy.max_temperature)
                found += hot(running, measured, known, written(now))
            except Cancelled:
                raise
            except GpuformError as error:
                self.call.on_unchecked(f"how hot the nodes of {self.what} are: {error.message}")
        return nodes, found

    def verdicts(self) -> list[Verdict]:
        """What certifications of the stack hold against nodes of SCP."""
        return Verdicts.beside(self.call.intents).of(OWNER)

    def conditions(self, nodes: Sequence[NodeOutputs]) -> dict[str, Condition]:
        """What the scheduler says of nodes, by their ids, of those that it knows.

        Raises GpuformError when it cannot be asked.
        """
        told = answered(self.call, lambda: declared_conditions(self._drain, self.what))
        found = ((node, told.get(node.gpu_node_name) or told.get(node.id)) for node in nodes)
        return {node.id: condition for node, condition in found if condition is not None}

    def measured(self, nodes: Sequence[NodeOutputs], limit: float) -> Mapping[str, str]:
        """What is wrong with those that are hotter than `limit`, by name; raises GpuformError."""
        names = [node.gpu_node_name for node in nodes]
        return answered(self.call, lambda: overheated(self.settings, names, limit))

    @property
    def _drain(self) -> PoolDrainInputs:
        return PoolDrainInputs.model_validate(self.declared.get("drain") or {})

    def _with_conditions(
        self, running: Sequence[NodeOutputs], known: Sequence[NodeFault], now: str
    ) -> dict[str, NodeOutputs]:
        """By their ids, with why the scheduler cannot use them, and since when as far as known."""
        try:
            conditions = self.conditions(running)
        except Cancelled:
            raise
        except GpuformError as error:
            self.call.on_unchecked(
                f"whether the scheduler can use the nodes of {self.what}: {error.message}"
            )
            return {}
        if not conditions:
            self.call.on_unchecked(
                f"whether the scheduler can use the nodes of {self.what}: it knows none of them"
            )
        before = self._unusable_before(running, known)
        return {
            node.id: node.model_copy(
                update={
                    "trouble": conditions[node.id].trouble[:_LONGEST],
                    # Nobody tells, or not of this machine: it is as long as we have seen it.
                    "unusable_since": self._believed(node, conditions[node.id].since, now)
                    or self._believed(node, before.get(node.id), now)
                    or now,
                }
            )
            for node in running
            if node.id in conditions and conditions[node.id].trouble
        }

    @staticmethod
    def _believed(node: NodeOutputs, since: str | None, now: str) -> str:
        """Return `since` if the machine existed then; its name may have been another one's."""
        created, latest = unix_time(node.created_at), unix_time(now)
        assert latest is not None  # noqa: S101 - we have written it
        return time_within(since, created, latest)

    def _unusable_before(
        self, running: Sequence[NodeOutputs], known: Sequence[NodeFault]
    ) -> dict[str, str]:
        """Since when each could not be used, by what was seen before."""
        nodes = self.call.known.get("gpu_nodes")
        alone = {"id": running[0].id, **self.call.known}
        seen = nodes.values() if isinstance(nodes, Mapping) else [alone]
        told = {str(n["id"]): str(n["unusable_since"]) for n in seen if n.get("unusable_since")}
        faults = {each.instance: each.since for each in known if each.cause == Cause.NOT_READY}
        return faults | told
