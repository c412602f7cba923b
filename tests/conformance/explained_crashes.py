"""Record the runs around a kill, and check that `gpuform explain` knows what each of them did.

The killed run has only the beginning of its entry in the history, as every killed run. What it and
the other runs did is known from the objects of the platform before and after each of them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.stacks import DeclaredResource, EmbeddedStack, Result
from support.stacks.lives import LifeEnd, find_wrong_end, read_events, select_events

from gpuform.providers.context import SystemClock
from gpuform.providers.records import Intents
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry, RunHistory
from gpuform.stacks.operations.runs.run_log import RunLogger, Stopwatch, list_unfinished_steps

PROJECT: Final = "conformance"
_FILE: Final = "before.json"


@dataclass
class RecordedStack(EmbeddedStack):
    """A stack whose runs are recorded in its history, with their logs, as operations do.

    A run that is killed has its beginning recorded before, and no end: `is_recorded` is False.
    """

    is_recorded: bool = True

    def get_intents(self) -> Intents:
        return Intents(self.records)

    @property
    def history(self) -> RunHistory:
        return self._backend.open_history(PROJECT, "dev")

    def begin_killed_run(self) -> None:
        """Record the beginning of the run that is killed, outside of the counted writes."""
        self.history.begin(_build_entry("update", IN_PROGRESS))

    def run(
        self,
        operation: Any,
        *declared: DeclaredResource,
        preview: bool = False,
        refresh: bool = False,
    ) -> Result:
        if preview or not self.is_recorded:
            return super().run(operation, *declared, preview=preview, refresh=refresh)
        unfinished = list_unfinished_steps(cast("Any", self))
        result = super().run(operation, *declared, refresh=refresh)
        logger = RunLogger(Stopwatch(SystemClock()))
        for event in self.events:
            logger(event)
        plan = Plan(project=PROJECT, stack="dev", operation=operation, summary={})
        assert self.outcome is not None, result.errors
        log = logger.build_log(plan, cast("Any", self), self.outcome)
        log = log.model_copy(update={"unfinished": unfinished})
        entry = _build_entry(operation, "succeeded" if result.ok else "failed")
        self.history.add(entry, log=log.model_dump_json(exclude_defaults=True).encode())
        return result

    def assert_lives_are_explained(self, known: "KnownObjects") -> None:
        """Assert that the history names the run that created or deleted each object."""
        events = read_events(self._backend, PROJECT, "dev")
        problems = [
            problem
            for object_id, end, runs in known.list_ends(len(self.history.names))
            for problem in find_wrong_end(object_id, end, runs, select_events(events, object_id))
        ]
        assert problems == [], problems


@dataclass(frozen=True)
class KnownObjects:
    """The statuses of the platform's objects by id: before the killed run, after it, and now.

    `killed_run` is its number in the history.
    """

    before: Mapping[str, str]
    killed_run: int
    at_kill: Mapping[str, str]
    now: Mapping[str, str]
    leaving: frozenset[str]

    @staticmethod
    def save(folder: Path, stack: RecordedStack, objects: Mapping[str, str]) -> None:
        """Keep what is there before the killed run, whose beginning is recorded already."""
        (folder / _FILE).write_text(json.dumps([objects, len(stack.history.names)]))

    @classmethod
    def load(
        cls,
        folder: Path,
        at_kill: Mapping[str, str],
        now: Mapping[str, str],
        kinds: Iterable[KindDescription],
    ) -> Self:
        before, killed_run = json.loads((folder / _FILE).read_text())
        leaving = frozenset(status for kind in kinds for status in kind.deleting_statuses)
        return cls(before, killed_run, at_kill, now, leaving)

    def list_ends(self, count: int) -> Iterator[tuple[str, LifeEnd, Sequence[int]]]:
        """Yield id, what happened, and the runs of which one did it, of `count` runs."""
        later = range(self.killed_run + 1, count + 1)
        # Somebody else has created what no run before could: the killed run or a later imports it.
        first_runs = range(1, self.killed_run if self.killed_run > 1 else count + 1)
        for object_id in self.before:
            yield object_id, "created", first_runs
        for object_id in self.at_kill.keys() - self.before.keys():
            yield object_id, "created", [self.killed_run]
        for object_id in self.now.keys() - self.at_kill.keys():
            yield object_id, "created", later
        for object_id in self._select_present(self.before) - self._select_present(self.at_kill):
            yield object_id, "deleted", [self.killed_run]
        for object_id in self._select_present(self.at_kill) - self._select_present(self.now):
            yield object_id, "deleted", later

    def _select_present(self, objects: Mapping[str, str]) -> set[str]:
        """Return the ids of the objects that nobody is deleting."""
        return {object_id for object_id, status in objects.items() if status not in self.leaving}


def list_statuses(platform: Platform, kinds: Iterable[KindDescription]) -> dict[str, str]:
    """Return the statuses of the platform's objects of some kinds, by id."""
    return {
        item["id"]: item["status"].lower() for kind in kinds for item in platform.list_objects(kind)
    }


def _build_entry(kind: str, result: str) -> HistoryEntry:
    return HistoryEntry(kind=kind, result=result, start_time=1, end_time=1)
