"""Decide which broken nodes a run repairs, and show the repairs as changes of a plan.

Platforms call `choose_repairs` with faults that schedulers and their own APIs report. Pure, except
for `--allow repair` and nodes that a person requests, which come from the run's permissions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gpuform.providers.context import ProviderContext, get_run_context
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.evidence import REPAIR_NODE, Observation, find_gaps
from gpuform.providers.permissions import Permission, compute_repair_key
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.repair import (
    NO_REPAIR,
    FaultCause,
    NodeFault,
    NodeRepair,
    RepairPolicy,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.values import contains_unknown

Policy = TypeVar("Policy", bound=RepairPolicy)

_CAUSES_BY_PRIORITY: Final = tuple(FaultCause)
"""Which cause counts when several sources report the same node as broken."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of one object, and how its platform can repair a node.

    `allowed_modes` are the modes that the policy permits, in the platform's words; the first is the
    default. `all_modes` are all that the platform has. An approval cannot change a proposed repair
    to one of `create_only_modes`. `unhealthy_names` are nodes that any source reports as unusable,
    `repairing_names` nodes whose repair has begun. `instance_ids` has the platform's id of each
    node. A requested mode of `withdrawal_modes` is left to the platform's own code.
    """

    node_names: Collection[str]
    allowed_modes: Sequence[str]
    all_modes: Collection[str]
    create_only_modes: Collection[str] = ()
    unhealthy_names: Collection[str] = ()
    repairing_names: Collection[str] = ()
    instance_ids: Mapping[str, str] = field(default_factory=dict)
    withdrawal_modes: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class UnrepairedFault:
    """A fault that this run does not repair, and the reason."""

    fault: NodeFault
    reason: str


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """The repairs that are due, in their order, and at most `max_parallel` at a time.

    `node_names` are all nodes of the object. A `refusal` is raised where a plan or an update would
    do what a person requests and the platform does not allow.
    """

    due_repairs: Sequence[NodeRepair] = ()
    unrepaired: Sequence[UnrepairedFault] = ()
    max_parallel: int = 1
    node_names: Collection[str] = ()
    refusal: GpuformError | None = None


def parse_repair_policy(inputs: Mapping[str, Any], policy_type: type[Policy]) -> Policy | None:
    """Return the repair policy in inputs, or None if the policy is missing or unknown yet.

    Raises:
        ValidationError: the inputs were not validated, and the policy is invalid.
    """
    declared = inputs.get("repair")
    if not isinstance(declared, Mapping) or contains_unknown(declared):
        return None
    return policy_type.model_validate(declared)


def parse_faults(outputs: Mapping[str, Any]) -> list[NodeFault]:
    """Return the node faults in a resource's outputs; none from states of older versions."""
    raw_faults = outputs.get("faults")
    try:
        return (
            [NodeFault.model_validate(raw_fault) for raw_fault in raw_faults]
            if isinstance(raw_faults, list)
            else []
        )
    # States of older versions have faults in another form.
    except ValidationError:
        return []


def build_faults(
    cause: FaultCause,
    broken_nodes: Iterable[tuple[str, str, str]],
    known_faults: Iterable[NodeFault] = (),
    now: str = "",
) -> list[NodeFault]:
    """Return a fault of `cause` for each broken node: its name, its machine, and the reason.

    A fault that `known_faults` does not have begins at `now`; empty if nobody reports a time.
    """
    since_by_instance = {
        fault.instance: fault.since for fault in known_faults if fault.cause == cause
    }
    return [
        NodeFault(
            node=name,
            cause=cause,
            because=because,
            since=since_by_instance.get(instance, now),
            instance=instance,
        )
        for name, instance, because in broken_nodes
    ]


def find_overheated_faults(
    context: ProviderContext,
    label: str,
    measure: Callable[[], Mapping[str, str]],
    nodes: Iterable[tuple[str, str]],
    known_faults: Iterable[NodeFault] = (),
    now: str = "",
) -> list[NodeFault]:
    """Return a fault for each overheated node; none, with a skipped check, without measurements.

    Args:
        context: receives why the check was skipped.
        label: the nodes, for the skipped check.
        measure: returns the reasons by the names of hot nodes.
        nodes: the name and the machine of each node.
        known_faults: see `build_faults`.
        now: see `build_faults`.

    Raises:
        Cancelled: the run was interrupted.
    """
    try:
        reasons = measure()
    except Cancelled:
        raise
    except GpuformError as error:
        context.on_skipped_check(f"the temperature of {label}: {error.message}")
        return []
    hot_nodes = ((name, machine, reasons[name]) for name, machine in nodes if name in reasons)
    return build_faults(FaultCause.OVERHEATED, hot_nodes, known_faults, now)


def choose_repairs(
    policy: RepairPolicy | None, faults: Sequence[NodeFault], fleet: Fleet
) -> RepairDecision:
    """Return which faults to repair now, and why the others are not.

    A node that a person requests by name is repaired whatever the policy says, and only once. A
    requested node that the object does not have, or whose repair has begun, is left out, and so is
    a request to end a repair. With more than `max_unhealthy` unusable nodes, or `max_parallel`
    repairs in progress, only requested nodes are repaired.

    Raises:
        GpuformError: a person requests a repair mode that the platform does not have, or one to
            which the platform's proposed repair of the node cannot be changed.
    """
    requested_modes = get_run_context().requested_repairs
    fault_by_node = _find_fault_by_node(policy, faults, fleet)
    due_repairs: list[NodeRepair] = []
    unrepaired: list[UnrepairedFault] = []
    general_reason = _find_general_reason_against(
        policy, {*fleet.unhealthy_names, *fault_by_node}, fleet
    )
    # A requested node has its own repair below: two requests for one node would be two repairs.
    for fault in fault_by_node.values():
        if fault.node in requested_modes:
            continue
        reason = _find_reason_against(policy, fault, fleet) or general_reason
        if reason is not None:
            unrepaired.append(UnrepairedFault(fault, reason))
        else:
            due_repairs.append(_to_node_repair(fault, _choose_mode(fault, fleet)))
    requested_repairs = [
        _build_requested_repair(name, mode, fault_by_node, fleet)
        for name, mode in requested_modes.items()
        if name in fleet.node_names and name not in fleet.repairing_names
        if mode not in fleet.withdrawal_modes
    ]
    max_parallel = 1 if policy is None else policy.parallel
    return RepairDecision(
        (*requested_repairs, *due_repairs), unrepaired, max_parallel, fleet.node_names
    )


def _find_fault_by_node(
    policy: RepairPolicy | None, faults: Sequence[NodeFault], fleet: Fleet
) -> dict[str, NodeFault]:
    """Return the main fault of each existing node without a repair in progress.

    Faults that no repair removes (NO_REPAIR) come last, and causes in the policy before others. If
    the platform proposes a repair for the node, the main fault gets the id and mode of the
    proposal, so that approving the fault approves the proposal, and the mode that the proposal's
    evidence asks for, except NO_REPAIR.
    """
    causes = policy.causes if policy is not None else ()

    def get_sort_key(fault: NodeFault) -> tuple[bool, bool, int, str]:
        # A fault that no repair removes must not hide another fault of the node.
        is_useless = fault.advised == NO_REPAIR
        return is_useless, fault.cause not in causes, _get_cause_rank(fault), fault.node

    fault_by_node: dict[str, NodeFault] = {}
    for fault in sorted(faults, key=get_sort_key):
        # A fault of a node that has left, or whose repair has begun, asks for no further repair.
        if fault.node not in fleet.node_names or fault.node in fleet.repairing_names:
            continue
        main_fault = fault_by_node.setdefault(fault.node, fault)
        if fault.id and not main_fault.id:
            proposal = {"id": fault.id, "mode": fault.mode}
            # NO_REPAIR is about the proposal's evidence only; the main fault still needs a repair.
            if not main_fault.advised and fault.advised != NO_REPAIR:
                proposal |= {"advised": fault.advised, "rule": fault.rule}
            fault_by_node[fault.node] = main_fault.model_copy(update=proposal)
    return fault_by_node


def _get_cause_rank(fault: NodeFault) -> int:
    """Return the rank of a fault's cause: 0 counts first, an unknown cause last."""
    return (
        _CAUSES_BY_PRIORITY.index(FaultCause(fault.cause))
        if fault.cause in set(FaultCause)
        else len(_CAUSES_BY_PRIORITY)
    )


def _find_reason_against(policy: RepairPolicy | None, fault: NodeFault, fleet: Fleet) -> str | None:
    """Return why the policy does not allow to repair this node, or None if it does.

    Reasons are a missing policy, the cause, a rule against any repair, the mode, and a missing
    review of the plan.
    """
    if policy is None:
        return "no `repair` is declared"
    if fault.cause not in policy.causes:
        return f"repair.on has no {fault.cause}"
    if fault.advised == NO_REPAIR:
        return fault.rule
    if not _choose_mode(fault, fleet):
        return f"repair.modes does not list {fault.mode}"
    if not policy.is_automatic and not _is_reviewed(fault):
        return "the repair needs a review of the plan"
    return None


def _is_reviewed(fault: NodeFault) -> bool:
    """Return True if a reviewed plan shows this repair, or the run allows every repair."""
    # `--allow repair` approves every repair, a reviewed plan only the repairs that it shows.
    run = get_run_context()
    return Permission.REPAIR in run.permissions or compute_repair_key(fault) in run.reviewed_repairs


def _find_general_reason_against(
    policy: RepairPolicy | None, unhealthy_names: Collection[str], fleet: Fleet
) -> str | None:
    """Return why no node may be repaired now, or None; also None without a policy.

    Reasons are too many unhealthy nodes, and too many repairs in progress.
    """
    if policy is None:
        return None
    broken_names, node_count = {*unhealthy_names, *fleet.repairing_names}, len(fleet.node_names)
    # So many broken nodes point to a common cause, which repairs of nodes would not remove.
    if len(broken_names) > policy.compute_max_unhealthy(node_count):
        return (
            f"{len(broken_names)} of {node_count} nodes are unhealthy, more than "
            f"repair.max_unhealthy ({policy.limit}) allows: the cause may not be the nodes"
        )
    repairing_count = len(fleet.repairing_names)
    if repairing_count >= policy.parallel:
        return (
            f"{repairing_count} repairs are running, and repair.max_parallel is {policy.parallel}"
        )
    return None


def _choose_mode(fault: NodeFault, fleet: Fleet) -> str:
    """Return the first allowed mode of: the rule's, the platform's proposed mode, the policy's.

    A mode to which the platform cannot change its proposed repair is skipped. Return "" if no mode
    is left.
    """
    return next(
        (
            mode
            for mode in (fault.advised, fault.mode, *fleet.allowed_modes)
            if mode in fleet.allowed_modes
            if mode == fault.mode or not fault.id or mode not in fleet.create_only_modes
        ),
        "",
    )


def _build_requested_repair(
    name: str, mode: str, fault_by_node: Mapping[str, NodeFault], fleet: Fleet
) -> NodeRepair:
    """Return the repair of a node at a person's request; without a `mode`, gpuform chooses one.

    The node need not be broken.

    Raises:
        GpuformError: the platform has no such mode, or cannot change its proposed repair to the
            mode.
    """
    if mode and mode not in fleet.all_modes:
        raise GpuformError(
            f"node {name}: the platform has no repair {mode}",
            hint=f"use one of {', '.join([*fleet.all_modes, *fleet.withdrawal_modes])}",
        )
    fault = fault_by_node.get(name)
    # Together's approve request cannot set HOST_POWER_CYCLE (SDK, `clusters.remediations.approve`).
    if fault is not None and fault.id and mode in fleet.create_only_modes and mode != fault.mode:
        raise GpuformError(
            f"node {name}: its proposed repair ({fault.mode}) cannot be changed to {mode}",
            hint="approve the proposal as it is, or end it first: --mode REJECT",
        )
    # The node need not be broken: a person's request is reason enough.
    if fault is None:
        instance = fleet.instance_ids.get(name, "")
        fault = NodeFault(node=name, cause=FaultCause.ASKED, because="requested", instance=instance)
    return _to_node_repair(fault, mode or _choose_mode(fault, fleet))


def _to_node_repair(fault: NodeFault, mode: str) -> NodeRepair:
    """Return the repair of a faulty node by `mode`, with the facts of the fault."""
    return NodeRepair(
        node=fault.node,
        mode=mode,
        cause=fault.cause,
        because=fault.because,
        since=fault.since,
        proposed=fault.mode,
        id=fault.id,
        instance=fault.instance,
        rule=fault.rule if mode == fault.advised else "",
    )


BEFORE_REPAIR = "broken"
"""How a plan shows a node before its repair."""


def build_repair_changes(
    decision: RepairDecision, *, replaces: bool = False
) -> Iterator[FieldChange]:
    """Yield a change of the plan for each due repair; `replaces`: the object itself is replaced."""
    limit_text = f"{decision.max_parallel} at a time"
    repair_count = sum(not repair.is_withdrawal for repair in decision.due_repairs)
    for repair in decision.due_repairs:
        # A node whose repair a person requests may be healthy: it is not called broken.
        before = "in use" if repair.cause == FaultCause.ASKED else BEFORE_REPAIR
        because = f"{repair.evidence}; {limit_text}" if repair_count > 1 else repair.evidence
        if repair.is_withdrawal:
            before, because = repair.proposed, repair.evidence
        elif repair.proposed and repair.proposed != repair.mode:
            because += f"; the platform proposed {repair.proposed}"
        path = f'repair["{repair.node}"]'
        yield FieldChange(
            path, Action.UPDATE, before, repair.mode, replaces, because=because, repair=repair
        )


def describe_repair(repair: NodeRepair) -> str:
    """Return a repair as a sentence, for messages outside of plans."""
    if repair.is_withdrawal:
        return (
            f"ends the repair of node {repair.node} by {repair.proposed} ({repair.mode}): "
            f"{repair.evidence}"
        )
    return f"repairs node {repair.node} by {repair.mode}: {repair.evidence}"


def build_due_repair_notices(decision: RepairDecision) -> Iterator[Notice]:
    """Yield a notice for each broken node which the next `up` or `repair` repairs.

    A repair that a person has requested by name gives no notice: the node need not be broken.
    """
    for repair in decision.due_repairs:
        if repair.cause == FaultCause.ASKED:
            continue
        message = (
            f"node {repair.node} is broken: {repair.evidence}. To repair it by {repair.mode}, "
            "run `gpuform repair`"
        )
        yield Notice(kind=NoticeKind.REPAIR, text=message, at=repair.since)


def build_unrepaired_notices(decision: RepairDecision) -> Iterator[Notice]:
    """Yield a notice for each broken node left unrepaired, with the reason."""
    for unrepaired in decision.unrepaired:
        fault = unrepaired.fault
        proposal = f"; the platform proposes {fault.mode}" if fault.mode else ""
        since = f", since {fault.since}" if fault.since else ""
        message = (
            f"node {fault.node} is broken: {fault.because}{since}{proposal}. Not repaired: "
            f"{unrepaired.reason}"
        )
        yield Notice(kind=NoticeKind.REPAIR, text=message, at=fault.since)


def is_unusable_for(
    grace_s: float, *, unusable_since: float | None, now: float, created_at: float | None = None
) -> bool:
    """Return True if a node has been unusable for at least `grace_s` seconds.

    False if the time is unknown, in the future, or before the machine was created.

    Args:
        grace_s: how long a node may be unusable without being repaired, in seconds.
        unusable_since: when the node became unusable, in unix seconds; None if unknown.
        now: the platform's time, in unix seconds.
        created_at: when the machine was created, in unix seconds; None if unknown.
    """
    missing = []
    if unusable_since is None:
        missing.append("the report does not say since when the node is unusable")
    # A time before the machine existed, or in the future, is a stale or wrong clock: it proves no
    # duration.
    elif unusable_since > now or (created_at is not None and unusable_since < created_at):
        missing.append("the reported time is before the node's creation or in the future")
    elif now - unusable_since < grace_s:
        missing.append(f"the node is unusable for {now - unusable_since:.0f} of {grace_s:.0f} s")
    return not find_gaps(REPAIR_NODE, Observation("the node's scheduler", missing))
