"""Decide which broken nodes a run repairs, by what was last observed, and show the repairs as
changes of a plan. Pure.

Only `--allow repair` and the nodes that somebody asks for come from elsewhere: the environment.

The platforms call it with what schedulers and their own states show.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gpuform.providers import permissions
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import REPAIR_NODE
from gpuform.providers.permissions import Permission
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.repair import FaultCause, NodeFault, NodeRepair, RepairPolicy
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.values import contains_unknown

Policy = TypeVar("Policy", bound=RepairPolicy)

_FIRST: Final = tuple(FaultCause)
"""Whose word goes before another's about one node."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of one object, by name, and how the platform can repair one.

    `modes` are those that may be used, in the platform's words, the first where nobody names one;
    `every` are all that there are. A proposal cannot be changed to one of `own`. `unhealthy` are
    the nodes that cannot be used, whoever says so; `under_way` those whose repair goes on already.
    """

    nodes: Collection[str]
    modes: Sequence[str]
    every: Collection[str]
    own: Collection[str] = ()
    unhealthy: Collection[str] = ()
    under_way: Collection[str] = ()
    instances: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """A fault that is left, and `why`."""

    fault: NodeFault
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """`due` in the order of their repair, `parallel` of them at a time, of all `nodes`."""

    due: Sequence[NodeRepair] = ()
    held: Sequence[Held] = ()
    parallel: int = 1
    nodes: Collection[str] = ()


def repair_of(values: Mapping[str, Any], kind: type[Policy]) -> Policy | None:
    """What canonical inputs declare; None where they say nothing, or that is not known yet."""
    declared = values.get("repair")
    if not isinstance(declared, Mapping) or contains_unknown(declared):
        return None
    return kind.model_validate(declared)


def faults_in(seen: Mapping[str, Any]) -> list[NodeFault]:
    """The faults that outputs tell of; states of older versions tell none."""
    told = seen.get("faults")
    try:
        return [NodeFault.model_validate(each) for each in told] if isinstance(told, list) else []
    except ValidationError:
        return []


def decide(policy: RepairPolicy | None, faults: Sequence[NodeFault], fleet: Fleet) -> Decision:
    """What is repaired now. Nobody is asked.

    A node that somebody asks for by name is repaired whatever is declared; two repairs of one node
    are one. Above `max_unhealthy` nothing is, but by name. Raises GpuformError for a way of repair
    that there is not.
    """
    asked = permissions.repairs_asked()
    worst = _worst(policy, faults, fleet)
    due: list[NodeRepair] = []
    held: list[Held] = []
    refusal = _refusal(policy, {*fleet.unhealthy, *worst}, fleet)
    for fault in worst.values():
        if fault.node in asked:
            continue
        why = _why_not(policy, fault, fleet) or refusal
        if why is not None:
            held.append(Held(fault, why))
        else:
            due.append(_repair(fault, _mode(fault, fleet)))
    named = [
        _named(name, mode, worst, fleet)
        for name, mode in asked.items()
        if name in fleet.nodes and name not in fleet.under_way
    ]
    parallel = 1 if policy is None else policy.parallel
    return Decision((*named, *due), held, parallel, fleet.nodes)


def _worst(
    policy: RepairPolicy | None, faults: Sequence[NodeFault], fleet: Fleet
) -> dict[str, NodeFault]:
    """One fault for each node that is there, and whose repair has not begun.

    What counts goes before what does not. A proposal that there is for the node is what is
    approved, whoever else says that it is broken.
    """
    causes = policy.causes if policy is not None else ()

    def rank(fault: NodeFault) -> tuple[bool, int, str]:
        return fault.cause not in causes, _rank(fault), fault.node

    found: dict[str, NodeFault] = {}
    for fault in sorted(faults, key=rank):
        if fault.node not in fleet.nodes or fault.node in fleet.under_way:
            continue
        chosen = found.setdefault(fault.node, fault)
        if fault.id and not chosen.id:
            proposal = {"id": fault.id, "mode": fault.mode}
            found[fault.node] = chosen.model_copy(update=proposal)
    return found


def _rank(fault: NodeFault) -> int:
    return _FIRST.index(FaultCause(fault.cause)) if fault.cause in set(FaultCause) else len(_FIRST)


def _why_not(policy: RepairPolicy | None, fault: NodeFault, fleet: Fleet) -> str | None:
    """What speaks against the repair of this node alone."""
    if policy is None:
        return "nothing is declared: `repair` would repair it"
    if fault.cause not in policy.causes:
        return f"repair.on has no {fault.cause}"
    if not _mode(fault, fleet):
        return f"{fault.mode} is none of repair.modes"
    if not policy.is_automatic and not _is_reviewed(fault):
        return "it waits for a review of the plan"
    return None


def _is_reviewed(fault: NodeFault) -> bool:
    if Permission.REPAIR in permissions.given():
        return True
    return permissions.repair_key(fault) in permissions.reviewed_repairs()


def _refusal(policy: RepairPolicy | None, unhealthy: Collection[str], fleet: Fleet) -> str | None:
    """What speaks against every repair."""
    if policy is None:
        return None
    broken, nodes = {*unhealthy, *fleet.under_way}, len(fleet.nodes)
    if len(broken) > policy.compute_max_unhealthy(nodes):
        return (
            f"{len(broken)} of {nodes} nodes are unhealthy, more than repair.max_unhealthy "
            f"({policy.limit}) lets be: the fault may not be the nodes'"
        )
    going = len(fleet.under_way)
    if going >= policy.parallel:
        return f"{going} repaired already, of at most {policy.parallel} at a time"
    return None


def _mode(fault: NodeFault, fleet: Fleet) -> str:
    """How it is repaired: as the platform proposes where that may be, else the first of all."""
    if fault.mode in fleet.modes:
        return fault.mode
    return next((each for each in fleet.modes if not fault.id or each not in fleet.own), "")


def _named(name: str, mode: str, worst: Mapping[str, NodeFault], fleet: Fleet) -> NodeRepair:
    """The repair of a node that somebody asks for; `mode` is empty where they leave it open."""
    if mode and mode not in fleet.every:
        raise GpuformError(
            f"node {name} cannot be repaired by {mode}",
            hint=f"ways to repair it are: {', '.join(fleet.every)}",
        )
    fault = worst.get(name)
    if fault is not None and fault.id and mode in fleet.own and mode != fault.mode:
        raise GpuformError(
            f"the proposed repair of node {name} ({fault.mode}) cannot be changed to {mode}",
            hint="approve it as it is, or reject it on the platform's own pages first",
        )
    if fault is None:
        instance = fleet.instances.get(name, "")
        fault = NodeFault(node=name, cause=FaultCause.ASKED, because="asked for", instance=instance)
    return _repair(fault, mode or _mode(fault, fleet))


def _repair(fault: NodeFault, mode: str) -> NodeRepair:
    return NodeRepair(
        node=fault.node,
        mode=mode,
        cause=fault.cause,
        because=fault.because,
        since=fault.since,
        proposed=fault.mode,
        id=fault.id,
        instance=fault.instance,
    )


BROKEN = "broken"
"""What a node is before its repair, in a plan."""


def changes_of(decision: Decision, *, replaces: bool = False) -> Iterator[FieldChange]:
    """A change for each node that is repaired, in their order; `replaces`: the object goes."""
    most = f"{decision.parallel} at a time"
    for each in decision.due:
        before = "in use" if each.cause == FaultCause.ASKED else BROKEN
        because = f"{each.evidence}; {most}" if len(decision.due) > 1 else each.evidence
        if each.proposed and each.proposed != each.mode:
            because += f"; {each.proposed} was proposed"
        path = f'repair["{each.node}"]'
        yield FieldChange(
            path, Action.UPDATE, before, each.mode, replaces, because=because, repair=each
        )


def repair_text(repair: NodeRepair) -> str:
    """A repair in words, where no plan tells it."""
    return f"repairs node {repair.node} by {repair.mode}: {repair.evidence}"


def due_notices(decision: Decision) -> Iterator[Notice]:
    """Yield a notice for each broken node that the next `up` or `repair` repairs.

    A repair that a person has asked for by name is none: the node need not be broken.
    """
    for each in decision.due:
        if each.cause == FaultCause.ASKED:
            continue
        text = f"node {each.node} is broken: {each.evidence}. `gpuform repair` does {each.mode}"
        yield Notice(kind=NoticeKind.REPAIR, text=text, at=each.since)


def notices_of(decision: Decision) -> Iterator[Notice]:
    """What is broken and not repaired, and why not."""
    for held in decision.held:
        fault = held.fault
        wish = f"; {fault.mode} is proposed" if fault.mode else ""
        since = f", since {fault.since}" if fault.since else ""
        text = (
            f"node {fault.node} is broken: {fault.because}{since}{wish}. Not repaired: {held.why}"
        )
        yield Notice(kind=NoticeKind.REPAIR, text=text, at=fault.since)


def is_unusable_for(
    patience: float, *, since: float | None, now: float, created: float | None = None
) -> bool:
    """Return whether a node cannot be used since `patience` seconds at `now`.

    Args:
        patience: how long a node may be unusable without being repaired, in seconds.
        since: since when it cannot be used, in unix seconds; None: nobody tells.
        now: the platform's time, in unix seconds.
        created: when the machine was made, in unix seconds, where the platform tells.
    """
    missing = []
    if since is None:
        missing.append("it does not say since when the node cannot be used")
    elif since > now or (created is not None and since < created):
        missing.append("the node cannot be used since a time at which it did not exist")
    elif now - since < patience:
        missing.append(f"the node cannot be used for {now - since:.0f} of {patience:.0f} s")
    return not find_gaps(REPAIR_NODE, Observation("the node's scheduler", missing))
