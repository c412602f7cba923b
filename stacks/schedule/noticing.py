"""Find what a person should know of the resources of a run or a state, and prove that something is
due before it ends.

`gpuform expire` takes its decisions by a clock and often without a person: `proving` compares these
observations with what each decision needs.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import Clock, ProviderContext, format_duration, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Decision, NotEnoughEvidence, Observation, require_evidence
from gpuform.providers.evidence.decisions import (
    DESTROY_EXPIRED,
    START_BY_SCHEDULE,
    STOP_BY_SCHEDULE,
)
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import list_end_notices
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.schemas.resource_facts import (
    Credit,
    CreditState,
    Exposure,
    Notice,
    NoticeKind,
    ResourcePlacement,
)
from gpuform.stacks.engine.executing import DueChange
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.schedule.calendar import TimeTable, find_start
from gpuform.stacks.topology_export.checks import fabric_notices

_OBSERVED = (Op.REFRESH, Op.IMPORT, Op.READ, Op.READ_REPLACEMENT)
"""Steps whose new entry is what was just seen."""


def notices_of_steps(
    steps: Sequence[Step], now: float, *, is_emulated: bool = False
) -> tuple[Notice, ...]:
    """Of all resources that a run leaves, or replaces.

    `now` is in Unix seconds; `is_emulated` says that it is by an emulator's clock.
    """
    seen = [found for step in steps if (found := _of_step(step)) is not None]
    return (*_notices(seen, now, is_emulated=is_emulated), *_of_replacements(steps))


def notices_of_entries(
    entries: Iterable[ResourceState],
    now: float,
    before: Mapping[str, PropertyMap] = MappingProxyType({}),
    *,
    is_emulated: bool = False,
) -> tuple[Notice, ...]:
    """Of the resources of a state, as they were last seen.

    `before` are, by URN, the outputs that the state has of those that were looked at now.
    `is_emulated` says that `now` is by an emulator's clock.
    """
    entries = [*entries]
    found = [(entry, entry.outputs, before.get(entry.urn)) for entry in entries]
    return (*_notices(found, now, is_emulated=is_emulated), *_of_runs_to_come(entries))


def exposures_of_steps(steps: Iterable[Step]) -> tuple[Exposure, ...]:
    """The ports open to the whole world of all resources that a run leaves."""
    found: list[Exposure] = []
    for step in steps:
        seen = _of_step(step)
        if seen is None:
            continue
        entry, outputs, _ = seen
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.external or entry.delete:
            continue
        exposure = lifecycle.get_exposure(told(entry.inputs), told(outputs))
        if exposure is not None:
            named = {"urn": entry.urn, "name": name_of(entry.urn)}
            found.append(exposure.model_copy(update=named))
    return tuple(found)


def is_out_of_credit(notices: Iterable[Notice]) -> bool:
    """Whether something has stopped because an account has no credit left."""
    return any(notice.kind is NoticeKind.CREDIT for notice in notices)


_Seen = tuple[ResourceState, PropertyMap, PropertyMap | None]
"""An entry, what was last seen of its object, and what the state had, if that was seen just now."""


def _of_step(step: Step) -> _Seen | None:
    """The entry that a step leaves, and what was last seen of its object."""
    new = step.new
    if new is None or step.skipped:
        return None
    if step.op in _OBSERVED:
        return new, new.outputs, step.old.outputs if step.old is not None else None
    is_other = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
    if is_other or step.old is None:
        return new, {}, None
    if not new.created and new.inputs.get("ttl") is not None:
        # A preview has not done the step, which keeps when the object was created.
        new = replace(new, created=step.old.created)
    return new, step.old.outputs, None


def _notices(found: Iterable[_Seen], now: float, *, is_emulated: bool) -> tuple[Notice, ...]:
    """Of each resource by itself, then of where nodes are, and what lack of credit does to all."""
    notices: list[Notice] = []
    credited: list[_Credited] = []
    placed: list[tuple[str, ResourcePlacement]] = []
    for entry, outputs, before in found:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.delete:
            continue
        values, seen, name = told(entry.inputs), told(outputs), name_of(entry.urn)
        named = {"urn": entry.urn, "name": name}
        # Of what is only read, somebody else declares the rest.
        own: list[Notice] = []
        if not entry.external:
            start = find_start(entry, outputs, now, is_emulated=is_emulated)
            own += (
                *list_end_notices(values, start, now),
                *lifecycle.list_notices(values, seen, now),
            )
        own += lifecycle.find_observed_news(told(before), seen) if before is not None else ()
        notices += [notice.model_copy(update=named) for notice in own]
        credit = None if entry.external else lifecycle.get_credit(values, seen)
        if credit is not None:
            credited.append(_Credited(entry.urn, name, lifecycle.platform, credit))
        placement = None if entry.external else lifecycle.get_placement(seen)
        if placement is not None:
            placed.append((entry.urn, placement))
    return (*notices, *fabric_notices(placed), *_credit_notices(credited))


def _of_runs_to_come(entries: Iterable[ResourceState]) -> Iterator[Notice]:
    """What the next run does by itself; a plan has it as changes."""
    for entry in entries:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.delete or entry.external:
            continue
        named = {"urn": entry.urn, "name": name_of(entry.urn)}
        for notice in lifecycle.find_due_notices(told(entry.outputs), told(entry.inputs)):
            yield notice.model_copy(update=named)


def _of_replacements(steps: Iterable[Step]) -> Iterator[Notice]:
    for step in steps:
        new = step.new
        lifecycle = lifecycle_of(new.type) if step.op is Op.REPLACE and new is not None else None
        if lifecycle is None or new is None:
            continue
        text = lifecycle.describe_replacement(step.keys, told(new.inputs))
        if text:
            name = name_of(new.urn)
            yield Notice(kind=NoticeKind.ROLLOUT, text=text, urn=new.urn, name=name)


@dataclass(frozen=True, slots=True)
class _Credited:
    """What its platform's lifecycle says of one resource."""

    urn: str
    name: str
    platform: str
    credit: Credit


def _credit_notices(found: Iterable[_Credited]) -> Iterator[Notice]:
    """Nothing for platforms where nothing has stopped. What is lost next comes last."""
    by_platform: dict[str, list[_Credited]] = {}
    for each in found:
        by_platform.setdefault(each.platform, []).append(each)
    for those in by_platform.values():
        if any(each.credit.state is not CreditState.RUNS for each in those):
            yield from _of_account(those)


def _of_account(those: list[_Credited]) -> Iterator[Notice]:
    for each in those:
        if each.credit.text:
            yield Notice(
                kind=NoticeKind.CREDIT,
                text=each.credit.text,
                at=each.credit.at,
                urn=each.urn,
                name=each.name,
            )
    # What has stopped is nearer to its end than what still runs.
    nearest = sorted(those, key=lambda each: each.credit.state is CreditState.RUNS)
    lost = [f"{each.name}: {each.credit.next}" for each in nearest if each.credit.next]
    told = f"next without credit: {'; '.join(lost)}. " if lost else ""
    text = f"{told}Add credit to the account, then run `gpuform up` again"
    yield Notice(kind=NoticeKind.CREDIT, text=text)


LARGEST_SKEW_S: Final = 300.0
"""How far this machine's clock and a platform's may be apart for an end of time to count."""


@dataclass(slots=True)
class ExpiryObserver:
    """What a run has heard of clocks, and asks about work. Safe for many threads.

    Args:
        settings: where credentials and addresses of the platforms come from.
        clock: by which the run decides.
    """

    settings: Settings
    clock: Clock
    _seconds_ahead: dict[str, float | None] = field(default_factory=dict)

    def hear_clock(self, platform: str, seconds_ahead: float | None) -> None:
        """Note how far this machine's clock is ahead of a platform's, by the Date of an answer.

        None is an answer without a Date. Of several answers the one that differs most counts.
        """
        known = self._seconds_ahead.get(platform)
        if known is None or (seconds_ahead is not None and abs(seconds_ahead) > abs(known)):
            self._seconds_ahead[platform] = seconds_ahead

    def seconds_ahead(self, platform: str) -> float | None:
        """Return how far this machine's clock is ahead of a platform's; None if nobody knows."""
        return 0.0 if self.clock.is_platforms else self._seconds_ahead.get(platform)

    def observe_clock(self, platform: str, *, needs_date: bool) -> Observation:
        """Return whether the clock of this machine agrees with the platform's.

        Args:
            platform: whose answers the run has read just now.
            needs_date: whether it is a gap that no answer told the platform's time.
        """
        ahead = self.seconds_ahead(platform)
        if ahead is None:
            missing = [f"no answer of {platform} has a Date that confirms it"] if needs_date else []
        elif abs(ahead) > LARGEST_SKEW_S:
            way = "ahead of" if ahead > 0 else "behind"
            missing = [f"it is {format_duration(abs(ahead))} {way} the clock of {platform}"]
        else:
            missing = []
        return Observation("this machine's clock", missing)

    def observe_work(self, entry: ResourceState) -> Observation | None:
        """Return what the platform measures of an object's GPUs; None if it measures nothing."""
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        try:
            with use_context(ProviderContext(clock=self.clock)):
                return lifecycle.observe_gpu_work(self.settings, entry.id)
        except GpuformError as error:
            return Observation(lifecycle.platform, [error.message])


_CLOCK_HINT: Final = (
    "set this machine's clock and keep it right (NTP); or do it by hand: `gpuform destroy "
    "--target NAME`, or declare the state"
)
_WORK_HINT: Final = (
    f"run it again when the work has ended; --allow {Permission.EVICT_JOBS} does it all the same"
)


@dataclass(slots=True)
class ProvenCalendar:
    """A calendar of the engine's: what a time table says, where the evidence suffices.

    `refusals` gets, by URN, why something that is due is left as it is: in a preview or in the run.
    """

    table: TimeTable
    observer: ExpiryObserver
    refusals: MutableMapping[str, GpuformError]

    def __call__(self, entry: ResourceState) -> DueChange | None:
        due, lifecycle = self.table(entry), lifecycle_of(entry.type)
        if due is None or lifecycle is None:
            return due
        if self.table.by_time(entry, self.table.now) is None:
            return due  # by idleness, which has looked at its use already
        try:
            self._require_evidence(due, entry, lifecycle)
        except NotEnoughEvidence as error:
            self.refusals[entry.urn] = error
            return None
        ahead = self.observer.seconds_ahead(lifecycle.platform) or 0.0
        # By the platform's clock as well: never earlier than declared.
        return due if self.table.is_due_at(entry, due, self.table.now - max(0.0, ahead)) else None

    def _require_evidence(
        self, due: DueChange, entry: ResourceState, lifecycle: type[Lifecycle[Any, Any]]
    ) -> None:
        """Raise NotEnoughEvidence if something that is due may not be done yet."""
        is_off, power = lifecycle.is_off(told(entry.outputs)), lifecycle.power
        stops = due.inputs is not None and power is not None and power.field in due.inputs
        if due.inputs is not None and stops == is_off:
            return  # it is so already
        decision = DESTROY_EXPIRED if due.inputs is None else _STOP_OR_START[stops]
        name = name_of(entry.urn)
        needs_date = decision is DESTROY_EXPIRED
        agreement = self.observer.observe_clock(lifecycle.platform, needs_date=needs_date)
        require_evidence(decision, name, agreement, hint=_CLOCK_HINT)
        work = None if decision is START_BY_SCHEDULE else self.observer.observe_work(entry)
        # Nobody measures it: the plan says so, as of nodes without a scheduler.
        if work is not None and Permission.EVICT_JOBS not in permissions.get_permissions():
            require_evidence(decision, name, work, hint=_WORK_HINT)


_STOP_OR_START: Final[Mapping[bool, Decision]] = {True: STOP_BY_SCHEDULE, False: START_BY_SCHEDULE}
