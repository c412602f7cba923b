"""What `gpuform expire` adds to a run: what is due, what is remembered, and how it ends."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from gpuform.providers.context import Clock, synchronize_clock
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.stacks.engine.deployment import Options, Outcome
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import Selection, UrnPatterns
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.opening.worlds import config_of
from gpuform.stacks.schedule.calendar import Expired, IdleWatch, TimeTable, end_is_unknown, timed
from gpuform.stacks.schedule.noticing import ExpiryObserver, ProvenCalendar


@dataclass(slots=True)
class Expiry:
    """A stack and its ends of time, as a command goes by them: at one moment, and as it showed."""

    stack: Stack
    clock: Clock
    now: float
    expired: Expired
    idle: IdleWatch
    _refusals: dict[str, GpuformError] = field(default_factory=dict)
    _shown: Mapping[str, bool] | None = None

    @classmethod
    def of(cls, stack: Stack, clock: Clock) -> Self:
        # Read when something is asked: most runs do not need the configuration in the clear here.
        settings = Settings(config=lambda key: config_of(stack).get(key), environ=os.environ)
        watch = IdleWatch(settings, clock, Intents(EphemeralRecords(stack.intents().records)))
        return cls(stack, clock, clock.now(), Expired(stack), watch)

    def options(self, options: Options) -> Options:
        """Those of a run that does what is due: it reads what has an end or hours before."""
        urns = [entry.urn for entry in timed(self.stack.snapshot.resources)]
        dependents = options.selection.target_dependents
        kept = self.stack.intents()
        self.idle.intents = Intents(EphemeralRecords(kept.records)) if options.preview else kept
        later = synchronize_clock(self.clock).now()
        table = TimeTable(
            self.now, self._shown, self.idle, later, is_emulated=self.clock.is_platforms
        )
        observer = ExpiryObserver(self.idle.settings, self.clock)
        return replace(
            options,
            refresh=bool(urns),
            selection=Selection(targets=UrnPatterns(urns), target_dependents=dependents),
            calendar=ProvenCalendar(table, observer, self._refusals),
            on_clock=observer.hear_clock,
        )

    def begin(self, outcome: Outcome) -> None:
        """Nothing more is due than what the preview showed; what ends is remembered beforehand."""
        self._shown = {each.urn: each.action == "delete" for each in outcome.planned}
        entries = [each for each in self.stack.snapshot.resources if self._shown.get(each.urn)]
        self.expired.add(entries, self.now)

    @property
    def refusals(self) -> list[str]:
        """Why something that was due is left as it is, one text each."""
        errors = self._refusals.values()
        return [
            f"{error.message}\n  {error.hint}" if error.hint else error.message for error in errors
        ]

    def names_without_end(self, outcome: Outcome) -> list[str]:
        """Return the names of what has a time to live that counts from nobody knows when."""
        return [
            name_of(entry.urn)
            for entry in timed(outcome.snapshot.resources)
            if end_is_unknown(entry, self.now, is_emulated=self.clock.is_platforms)
        ]

    def settle(self, outcome: Outcome) -> None:
        """Forgets of what is remembered whatever is there after a run."""
        self.expired.settle(_there(outcome))


def _there(outcome: Outcome) -> Collection[str]:
    return {each.urn for each in outcome.snapshot.resources if not each.delete}
