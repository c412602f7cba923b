"""Prove that something is due before it ends: two clocks that agree, and GPUs that nobody uses.

`gpuform expire` takes its decisions by a clock and often without a person: `proving` compares these
observations with what each decision needs.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
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
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.stacks.engine.executing import Due
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.schedule.calendar import TimeTable

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
                return lifecycle.observe_work(self.settings, entry.id)
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

    def __call__(self, entry: ResourceState) -> Due | None:
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
        self, due: Due, entry: ResourceState, lifecycle: type[Lifecycle[Any, Any]]
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
        if work is not None and Permission.EVICT_JOBS not in permissions.given():
            require_evidence(decision, name, work, hint=_WORK_HINT)


_STOP_OR_START: Final[Mapping[bool, Decision]] = {True: STOP_BY_SCHEDULE, False: START_BY_SCHEDULE}
