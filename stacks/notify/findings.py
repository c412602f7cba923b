"""Find what rules may report about the resources of a state, whatever operation has read them.

The reports of operations call `list_state_occurrences` with the state at the end of an operation.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from gpuform.providers.errors import GpuformError
from gpuform.schemas.notify import NotifyEvent
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.notify.sending import Occurrence
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_lifecycle

SOON_S: Final = 3 * 86400.0
"""How many seconds before an end the event `expiring` occurs."""

STATE_EVENTS: Final = frozenset(
    {
        NotifyEvent.EXPIRING,
        NotifyEvent.REPAIR_PROPOSED,
        NotifyEvent.CERTIFICATION_FAILED,
        NotifyEvent.CREDIT_LOW,
    }
)
"""The events that `list_state_occurrences` finds."""


def list_state_occurrences(
    entries: Iterable[ResourceState], notices: Iterable[Notice], now: float
) -> list[Occurrence]:
    """Return what rules may report about resources.

    Args:
        entries: the resources, with their last observed outputs.
        notices: the notices about them.
        now: the present time in Unix seconds.
    """
    own = [entry for entry in entries if entry.custom and not (entry.delete or entry.external)]
    return [
        *_list_endings(notices, now),
        *_list_lost_credit(notices),
        *(repair for entry in own for repair in _list_proposed_repairs(entry)),
        *(failure for entry in own for failure in _list_failed_certifications(entry)),
    ]


def _list_endings(notices: Iterable[Notice], now: float) -> Iterator[Occurrence]:
    """Yield the ends within `SOON_S`, and those that are due."""
    for notice in notices:
        # A notice of an idle rule has no moment.
        if notice.kind is not NoticeKind.EXPIRY or not notice.at:
            continue
        if datetime.fromisoformat(notice.at).timestamp() - now <= SOON_S:
            text = f"{notice.name}: {notice.text}"
            yield Occurrence(NotifyEvent.EXPIRING, notice.urn, notice.at, text)


def _list_lost_credit(notices: Iterable[Notice]) -> Iterator[Occurrence]:
    """Yield what a platform has stopped, or will stop, for lack of credit."""
    for notice in notices:
        if notice.kind is NoticeKind.CREDIT:
            text = f"{notice.name}: {notice.text}" if notice.name else notice.text
            # Texts of what comes next count down; the moment of a stop stays.
            yield Occurrence(NotifyEvent.CREDIT_LOW, notice.urn, notice.at, text)


def _list_proposed_repairs(entry: ResourceState) -> Iterator[Occurrence]:
    """Yield each broken node, with the repair that gpuform or the platform proposes, if any."""
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return
    name = name_of(entry.urn)
    try:
        decision = lifecycle.hooks.decide_repairs(
            to_plain_properties(entry.outputs), to_plain_properties(entry.inputs)
        )
    # GPUFORM_REPAIR requests something that the platform does not allow.
    except GpuformError:
        return
    for repair in decision.due_repairs:
        yield build_repair_occurrence(NotifyEvent.REPAIR_PROPOSED, entry.urn, repair)
    for unrepaired in decision.unrepaired:
        fault = unrepaired.fault
        proposal = f"; proposed repair: {fault.mode}" if fault.mode else ""
        yield Occurrence(
            NotifyEvent.REPAIR_PROPOSED,
            f"{entry.urn}::{fault.node}",
            f"{fault.cause}/{fault.mode}/{fault.id}",
            f"{name}: node {fault.node} is broken: {fault.because}{proposal}; not repaired by "
            f"itself: {unrepaired.reason}",
        )


def build_repair_occurrence(event: NotifyEvent, urn: str, repair: NodeRepair) -> Occurrence:
    """Return the occurrence of a planned or done repair of a node."""
    return Occurrence(
        event,
        f"{urn}::{repair.node}",
        f"{repair.cause}/{repair.mode}/{repair.id}",
        f"{name_of(urn)}: node {repair.node}, repair {repair.mode}: {repair.evidence}",
    )


def _list_failed_certifications(entry: ResourceState) -> Iterator[Occurrence]:
    """Yield one occurrence for each node that has not passed its tests."""
    failures = to_plain_properties(entry.outputs).get("failures")
    is_certification = entry.type.endswith(":Certification")
    if not is_certification or not isinstance(failures, list):
        return
    for failure in failures:
        node, category = str(failure.get("node")), str(failure.get("category"))
        yield Occurrence(
            NotifyEvent.CERTIFICATION_FAILED,
            f"{entry.urn}::{node}::{category}",
            str(failure.get("at")),
            f"{name_of(entry.urn)}: node {node} failed {category}: {failure.get('because')}",
        )
