"""Plan `gpuform expire` runs, and keep the records of expired resources.

Every run creates an `Expiry`, because an update must not recreate an expired resource. Times and
idle checks are those of `stacks/schedule`.
"""

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
from gpuform.stacks.operations.opening.environments import read_config
from gpuform.stacks.schedule.calendar import (
    ExpiredResources,
    IdleWatch,
    TimeTable,
    is_end_unknown,
    select_timed,
)
from gpuform.stacks.schedule.noticing import ExpiryObserver, ProvenCalendar


@dataclass(slots=True)
class Expiry:
    """The expiry times of a stack's resources, at one moment and as the preview showed them."""

    stack: Stack
    clock: Clock
    now: float
    expired: ExpiredResources
    idle: IdleWatch
    _refusals: dict[str, GpuformError] = field(default_factory=dict)
    _previewed_deletions: Mapping[str, bool] | None = None

    @classmethod
    def for_stack(cls, stack: Stack, clock: Clock) -> Self:
        """Build the expiry of a stack at the present moment of `clock`."""
        # Decrypted when a value is asked for: most runs need no configuration here.
        environ = stack.run_context.environ
        settings = Settings(config=lambda key: read_config(stack).get(key), environ=environ)
        watch = IdleWatch(settings, clock, Intents(EphemeralRecords(stack.get_intents().records)))
        return cls(stack, clock, clock.now(), ExpiredResources(stack), watch)

    def build_options(self, options: Options) -> Options:
        """Return the engine's options of an `expire` run.

        The run selects and refreshes the resources with an end, running hours or an idle limit;
        other targets of `options` are ignored. After a preview only the changes that it showed are
        due. Also sets where idle checks are recorded: nowhere in a preview.
        """
        urns = [entry.urn for entry in select_timed(self.stack.snapshot.resources)]
        dependents = options.selection.target_dependents
        intents = self.stack.get_intents()
        self.idle.intents = (
            # A preview's idle checks are not recorded: looking must not shorten the idle time.
            Intents(EphemeralRecords(intents.records)) if options.preview else intents
        )
        # A person may take hours to confirm: what is due must still be due now.
        synchronized_now = synchronize_clock(self.clock).now()
        table = TimeTable(
            self.now,
            self._previewed_deletions,
            self.idle,
            synchronized_now,
            is_emulated=self.clock.is_platforms,
        )
        observer = ExpiryObserver(self.idle.settings, self.clock)
        return replace(
            options,
            refresh=bool(urns),
            selection=Selection(targets=UrnPatterns(urns), target_dependents=dependents),
            calendar=ProvenCalendar(table, observer, self._refusals),
            on_clock_skew=observer.record_clock_skew,
        )

    def record_expired(self, outcome: Outcome) -> None:
        """Record the previewed deletions as expired, and limit the run to the preview.

        Recorded before the deletion, so that an interrupted run does not recreate them.
        """
        self._previewed_deletions = {
            change.urn: change.action == "delete" for change in outcome.planned
        }
        entries = [
            entry
            for entry in self.stack.snapshot.resources
            if self._previewed_deletions.get(entry.urn)
        ]
        self.expired.add(entries, self.now)

    @property
    def refusals(self) -> list[str]:
        """Return why due resources are left unchanged, one text each."""
        errors = self._refusals.values()
        return [
            f"{error.message}\n  {error.hint}" if error.hint else error.message for error in errors
        ]

    def list_names_with_unknown_end(self, outcome: Outcome) -> list[str]:
        """Return the names of resources with a time to live whose creation time is unknown."""
        return [
            name_of(entry.urn)
            for entry in select_timed(outcome.snapshot.resources)
            if is_end_unknown(entry, self.now, is_emulated=self.clock.is_platforms)
        ]

    def forget_existing(self, outcome: Outcome) -> None:
        """Remove the records of expired resources which exist after the run."""
        self.expired.forget_recreated(_list_urns(outcome))


def _list_urns(outcome: Outcome) -> Collection[str]:
    """Return the URNs of the resources in the state after a run, without old objects."""
    return {entry.urn for entry in outcome.snapshot.resources if not entry.delete}
