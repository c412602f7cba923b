"""Find notices about the resources of a run or a state, and demand evidence before something ends.

`gpuform expire` takes its decisions by a clock and often without a person: `ProvenCalendar`
compares observations with what each decision needs. Planning and `gpuform status` call the
functions for notices.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.context import (
    Clock,
    ProviderContext,
    format_duration,
    get_run_context,
    use_context,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import (
    DESTROY_EXPIRED,
    START_BY_SCHEDULE,
    STOP_BY_SCHEDULE,
    Decision,
    NotEnoughEvidence,
    Observation,
    require_evidence,
)
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import list_end_notices
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.values import PropertyMap
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
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.schedule.calendar import TimeTable, find_start
from gpuform.stacks.topology_export.model import list_fabric_notices

_OBSERVED = (Op.REFRESH, Op.IMPORT, Op.READ, Op.READ_REPLACEMENT)
"""Operations whose new entry was observed during the run."""


def list_step_notices(
    steps: Sequence[Step], now: float, *, is_emulated: bool = False
) -> tuple[Notice, ...]:
    """Return the notices to users about the resources a run keeps or replaces.

    Args:
        steps: all steps of the run.
        now: the present time in Unix seconds.
        is_emulated: whether `now` is the time of an emulator's clock.
    """
    observations = [
        observation for step in steps if (observation := _find_step_observation(step)) is not None
    ]
    return (
        *_build_notices(observations, now, is_emulated=is_emulated),
        *_list_replacement_notices(steps),
    )


def list_entry_notices(
    entries: Iterable[ResourceState],
    now: float,
    before: Mapping[str, PropertyMap] = MappingProxyType({}),
    *,
    is_emulated: bool = False,
) -> tuple[Notice, ...]:
    """Return the notices to users about the resources of a state, from the outputs.

    Notices are, for example, a coming expiry, a stopped node or an account without credit.

    Args:
        entries: the entries of the state, with the last observed outputs.
        now: the present time in Unix seconds.
        before: by URN, the outputs before the last observation. Only resources in this mapping get
            notices of what changed on the platform.
        is_emulated: whether `now` is the time of an emulator's clock.
    """
    entries = [*entries]
    observations = [(entry, entry.outputs, before.get(entry.urn)) for entry in entries]
    return (
        *_build_notices(observations, now, is_emulated=is_emulated),
        *_list_due_notices(entries),
    )


def list_step_exposures(steps: Iterable[Step]) -> tuple[Exposure, ...]:
    """Return the publicly open ports of the stack's own resources after a run."""
    exposures: list[Exposure] = []
    for step in steps:
        observation = _find_step_observation(step)
        if observation is None:
            continue
        entry, outputs, _ = observation
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None or not entry.custom or entry.external or entry.delete:
            continue
        exposure = lifecycle.hooks.get_exposure(
            to_plain_properties(entry.inputs), to_plain_properties(outputs)
        )
        if exposure is not None:
            identity = {"urn": entry.urn, "name": name_of(entry.urn)}
            exposures.append(exposure.model_copy(update=identity))
    return tuple(exposures)


def is_out_of_credit(notices: Iterable[Notice]) -> bool:
    """Return True if something stopped because an account has no credit left."""
    return any(notice.kind is NoticeKind.CREDIT for notice in notices)


_Observation = tuple[ResourceState, PropertyMap, PropertyMap | None]
"""An entry, its observed outputs, and the stored outputs if it was observed just now."""


def _find_step_observation(step: Step) -> _Observation | None:
    """Return the new entry of a step with the observed outputs, empty for a new object.

    Returns None for a skipped step, and for one without a new entry. The third part is the outputs
    stored before, for a step that reads the object.
    """
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


def _build_notices(
    observations: Iterable[_Observation], now: float, *, is_emulated: bool
) -> tuple[Notice, ...]:
    """Return the notices of each resource, then of fabrics, then of accounts without credit.

    `now` and `is_emulated` are as for `list_entry_notices`.
    """
    notices: list[Notice] = []
    credited: list[_ResourceCredit] = []
    placed: list[tuple[str, ResourcePlacement]] = []
    for entry, outputs, before in observations:
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None or not entry.custom or entry.delete:
            continue
        values, observed = to_plain_properties(entry.inputs), to_plain_properties(outputs)
        name = name_of(entry.urn)
        identity = {"urn": entry.urn, "name": name}
        # Of what is only read, somebody else declares the rest.
        resource_notices: list[Notice] = []
        if not entry.external:
            start = find_start(entry, outputs, now, is_emulated=is_emulated)
            resource_notices += (
                *list_end_notices(values, start, now),
                *lifecycle.hooks.list_notices(values, observed, now),
            )
        resource_notices += (
            lifecycle.hooks.find_observed_news(to_plain_properties(before), observed)
            if before is not None
            else ()
        )
        notices += [notice.model_copy(update=identity) for notice in resource_notices]
        credit = None if entry.external else lifecycle.hooks.get_credit(values, observed)
        if credit is not None:
            credited.append(_ResourceCredit(entry.urn, name, lifecycle.platform, credit))
        placement = None if entry.external else lifecycle.hooks.get_placement(observed)
        if placement is not None:
            placed.append((entry.urn, placement))
    return (*notices, *list_fabric_notices(placed), *_list_credit_notices(credited))


def _list_due_notices(entries: Iterable[ResourceState]) -> Iterator[Notice]:
    """Yield notices of the next run's changes which no changed declaration has caused.

    A plan lists these changes itself.
    """
    for entry in entries:
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None or not entry.custom or entry.delete or entry.external:
            continue
        identity = {"urn": entry.urn, "name": name_of(entry.urn)}
        outputs, inputs = to_plain_properties(entry.outputs), to_plain_properties(entry.inputs)
        for notice in lifecycle.hooks.find_due_notices(outputs, inputs):
            yield notice.model_copy(update=identity)


def _list_replacement_notices(steps: Iterable[Step]) -> Iterator[Notice]:
    """Yield a notice for each replacement described by the resource's lifecycle."""
    for step in steps:
        new = step.new
        lifecycle = find_lifecycle(new.type) if step.op is Op.REPLACE and new is not None else None
        if lifecycle is None or new is None:
            continue
        inputs = to_plain_properties(new.inputs)
        rollout_note = lifecycle.hooks.describe_replacement(step.keys, inputs)
        if rollout_note:
            name = name_of(new.urn)
            yield Notice(kind=NoticeKind.ROLLOUT, text=rollout_note, urn=new.urn, name=name)


@dataclass(frozen=True, slots=True)
class _ResourceCredit:
    """Hold the credit state of one resource."""

    urn: str
    name: str
    platform: str
    credit: Credit


def _list_credit_notices(resource_credits: Iterable[_ResourceCredit]) -> Iterator[Notice]:
    """Yield the notices for each platform with something stopped for lack of credit.

    The last notice of a platform says what stops or is deleted next.
    """
    by_platform: dict[str, list[_ResourceCredit]] = {}
    for credit in resource_credits:
        by_platform.setdefault(credit.platform, []).append(credit)
    for platform_credits in by_platform.values():
        if any(credit.credit.state is not CreditState.RUNS for credit in platform_credits):
            yield from _list_account_notices(platform_credits)


def _list_account_notices(account_credits: list[_ResourceCredit]) -> Iterator[Notice]:
    """Yield the credit notice of each resource, then a notice of the platform's next stop."""
    for resource in account_credits:
        if resource.credit.text:
            yield Notice(
                kind=NoticeKind.CREDIT,
                text=resource.credit.text,
                at=resource.credit.at,
                urn=resource.urn,
                name=resource.name,
            )
    # What has stopped is nearer to its end than what still runs.
    nearest = sorted(
        account_credits, key=lambda resource: resource.credit.state is CreditState.RUNS
    )
    losses = [
        f"{resource.name}: {resource.credit.next}" for resource in nearest if resource.credit.next
    ]
    warning = f"without new credit: {'; '.join(losses)}. " if losses else ""
    next_steps = f"{warning}Add credit to the account, then run `gpuform up` again"
    yield Notice(kind=NoticeKind.CREDIT, text=next_steps)


LARGEST_SKEW_S: Final = 300.0
"""The largest difference between this machine's clock and a platform's for an end to count."""


@dataclass(slots=True)
class ExpiryObserver:
    """Observations of clocks and of GPU work for a run. Safe for many threads.

    Args:
        settings: where credentials and addresses of the platforms come from.
        clock: by which the run decides.
    """

    settings: Settings
    clock: Clock
    _seconds_ahead: dict[str, float | None] = field(default_factory=dict)

    def record_clock_skew(self, platform: str, seconds_ahead: float | None) -> None:
        """Record by how many seconds this machine's clock is ahead of an answer's Date.

        None is an answer without a Date. Of several answers the one that differs most counts.
        """
        largest_skew = self._seconds_ahead.get(platform)
        if largest_skew is None or (
            seconds_ahead is not None and abs(seconds_ahead) > abs(largest_skew)
        ):
            self._seconds_ahead[platform] = seconds_ahead

    def get_clock_skew(self, platform: str) -> float | None:
        """Return the seconds by which this machine's clock is ahead, or None if unknown."""
        # Then the run decides by the platforms' own clock.
        return 0.0 if self.clock.is_platforms else self._seconds_ahead.get(platform)

    def observe_clock(self, platform: str, *, needs_date: bool) -> Observation:
        """Return whether the clock of this machine agrees with the platform's.

        Args:
            platform: whose answers the run has read just now.
            needs_date: whether evidence is missing if no answer has the platform's time.
        """
        ahead = self.get_clock_skew(platform)
        if ahead is None:
            message = f"no response of {platform} had a Date header to compare with"
            missing = [message] if needs_date else []
        elif abs(ahead) > LARGEST_SKEW_S:
            way = "ahead of" if ahead > 0 else "behind"
            missing = [f"it is {format_duration(abs(ahead))} {way} the clock of {platform}"]
        else:
            missing = []
        return Observation("this machine's clock", missing)

    def observe_work(self, entry: ResourceState) -> Observation | None:
        """Return the platform's measurement of GPU work, or None if nothing is measured.

        An error of the platform is missing evidence, and not raised.
        """
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None:
            return None
        try:
            with use_context(ProviderContext(clock=self.clock)):
                return lifecycle.hooks.observe_gpu_work(self.settings, entry.id)
        except GpuformError as error:
            return Observation(lifecycle.platform, [error.message])


_CLOCK_HINT: Final = (
    "set this machine's clock, for example with NTP; or destroy the resource by hand with "
    "`gpuform destroy --target NAME`, or declare its state"
)
_WORK_HINT: Final = (
    "run the command again when the work has ended, "
    f"or skip the wait with --allow {Permission.EVICT_JOBS}"
)


@dataclass(slots=True)
class ProvenCalendar:
    """A calendar of the engine: the changes due by a time table for which the evidence suffices.

    `refusals` is filled, by URN, with the reason why a due change is not made, in a preview or in
    the run.
    """

    table: TimeTable
    observer: ExpiryObserver
    refusals: MutableMapping[str, GpuformError]

    def __call__(self, entry: ResourceState) -> DueChange | None:
        due, lifecycle = self.table(entry), find_lifecycle(entry.type)
        if due is None or lifecycle is None:
            return due
        # `IdleWatch` has its own evidence.
        if self.table.find_due_by_time(entry, self.table.now) is None:
            return due  # by idleness, which has looked at its use already
        try:
            self._require_evidence(due, entry, lifecycle)
        except NotEnoughEvidence as error:
            self.refusals[entry.urn] = error
            return None
        ahead = self.observer.get_clock_skew(lifecycle.platform) or 0.0
        # By the platform's clock as well: never earlier than declared.
        return due if self.table.is_due_at(entry, due, self.table.now - max(0.0, ahead)) else None

    def _require_evidence(
        self, due: DueChange, entry: ResourceState, lifecycle: type[Lifecycle[Any, Any]]
    ) -> None:
        """Raise NotEnoughEvidence if the evidence for a due change does not suffice.

        Evidence is the agreement of clocks and a measurement of work, which is not needed for a
        start, with the permission to evict jobs, or where nobody measures. A resource that is
        already off or on as due needs none.
        """
        is_off, power = lifecycle.hooks.is_off(to_plain_properties(entry.outputs)), lifecycle.power
        stops = due.inputs is not None and power is not None and power.field in due.inputs
        if due.inputs is not None and stops == is_off:
            return  # it is so already
        decision = DESTROY_EXPIRED if due.inputs is None else _STOP_OR_START[stops]
        name = name_of(entry.urn)
        # A stop can be undone, a deletion cannot.
        needs_date = decision is DESTROY_EXPIRED
        agreement = self.observer.observe_clock(lifecycle.platform, needs_date=needs_date)
        require_evidence(decision, name, agreement, hint=_CLOCK_HINT)
        work = None if decision is START_BY_SCHEDULE else self.observer.observe_work(entry)
        # Nobody measures it: the plan says so, as of nodes without a scheduler.
        if work is not None and Permission.EVICT_JOBS not in get_run_context().permissions:
            require_evidence(decision, name, work, hint=_WORK_HINT)


_STOP_OR_START: Final[Mapping[bool, Decision]] = {True: STOP_BY_SCHEDULE, False: START_BY_SCHEDULE}
