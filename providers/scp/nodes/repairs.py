"""Which nodes are broken, and which of them a run makes anew: by what was last seen. Pure.

SCP has no call that repairs a server: a broken one is deleted and made again. So a repair is about
one server, by its id: it does nothing to the server that came in its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.records import Verdict
from gpuform.providers.repairing import Decision, Fleet, decide, faults_in, is_unusable_for
from gpuform.providers.scp.nodes.states import is_leaving
from gpuform.schemas.certification import NodeFailure
from gpuform.schemas.repair import Cause, NodeFault, RepairPolicy
from gpuform.schemas.scp.moments import unix_time
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED

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
