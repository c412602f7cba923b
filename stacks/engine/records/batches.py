"""Records as batches: one write to the backend serves all that wait for theirs to be kept.

A batch is an object that holds records by name; null is one that was removed. Later batches count
before earlier ones. One in which nothing counts any more is removed, the earlier ones first, so
that nothing that was removed comes back.
"""

import json
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpuform.providers.records import Fields, parsed
from gpuform.stacks.engine.store import Storage

MANY = 64
"""So many batches become one: who reads them asks for each."""
_SUFFIX = ".json"

Change = Mapping[str, Fields | None]


class Batches:
    """The batches in a folder of a storage; not safe for threads.

    `current` is what counts of each record.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._names: dict[str, set[str]] = {}  # by batch, in their order
        self._holders: dict[str, list[str]] = {}  # by record, its batches in their order
        self._needed: dict[str, str | None] = {}  # by record, the batch that is kept for it
        self._needs: dict[str, int] = {}  # by batch, for how many records it is kept
        self._touched: set[str] = set()
        self.current: dict[str, Fields | None] = {}

    def read(self) -> None:
        """Reads what is there. Raises GpuformError for a batch that is damaged."""
        for entry in self._storage.entries(self._folder):
            found = self._storage.read(entry.name) if entry.name.endswith(_SUFFIX) else None
            if found is not None:
                self._take(entry.name, parsed(found.data, self._storage.where(entry.name)))

    def write(self, change: Change) -> None:
        """Keeps a batch, and removes those that it has made needless."""
        if len(self._names) >= MANY:
            change = {**{k: v for k, v in self.current.items() if v is not None}, **change}
        name = f"{self._folder}/{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        last = next(reversed(self._names), "")
        if name <= last:  # the clock was put back
            name = f"{last.removesuffix(_SUFFIX)}+{_SUFFIX}"
        self._storage.write(name, json.dumps(change, indent=1).encode())
        self._take(name, change)
        while needless := sorted(batch for batch in self._touched if not self._needs[batch]):
            self._storage.delete(*needless)
            self._drop(needless)
        self._touched = set()

    def _take(self, batch: str, change: Change) -> None:
        self.current.update(change)
        self._names[batch], self._needs[batch] = set(change), 0
        self._touched.add(batch)
        for name in change:
            self._holders.setdefault(name, []).append(batch)
            self._weigh(name)

    def _drop(self, needless: Collection[str]) -> None:
        self._touched = set()
        names = [name for batch in needless for name in self._names.pop(batch)]
        for batch in needless:
            del self._needs[batch]
        for name in names:
            left = [batch for batch in self._holders[name] if batch in self._names]
            self._holders[name] = left
            if left:
                self._weigh(name)
            else:
                del self._holders[name], self._needed[name], self.current[name]

    def _weigh(self, name: str) -> None:
        """The last batch is kept for a record: for ever, or while an earlier one has what was
        removed."""
        holders, before = self._holders[name], self._needed.get(name)
        is_kept = self.current[name] is not None or len(holders) > 1
        after = holders[-1] if is_kept else None
        self._needed[name] = after
        for batch, more in ((before, -1), (after, 1)):
            if batch in self._needs:
                self._needs[batch] += more
        self._touched |= {batch for batch in (before, holders[-1]) if batch in self._needs}


class GroupCommit:
    """Lets many threads write batches: those that come while one is written share the next."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._waiting = _Round(threading.Condition(self._lock))
        self._is_writing = False

    def write(self, change: Change) -> None:
        """Returns when it is kept. Raises what the write of its batch has raised."""
        with self._lock:
            round_ = self._waiting
            round_.change.update(change)
            try:
                round_.news.wait_for(lambda: round_.is_over or not self._is_writing)
            except BaseException:
                round_.news.notify()  # another one has to lead
                raise
            leads = not round_.is_over
            if leads:
                self._is_writing = True
                self._waiting = _Round(threading.Condition(self._lock))
        if leads:
            self._lead(round_)
        if round_.error is not None:
            raise round_.error

    def _lead(self, round_: "_Round") -> None:
        try:
            self._batches.write(round_.change)
        except BaseException as error:  # noqa: BLE001 - raised by all who share the batch
            round_.error = error
        finally:
            with self._lock:
                self._is_writing, round_.is_over = False, True
                round_.news.notify_all()
                self._waiting.news.notify()


@dataclass(eq=False, slots=True)
class _Round:
    """What is written together; `news` tells its threads that it is over, or one to lead."""

    news: threading.Condition
    change: dict[str, Fields | None] = field(default_factory=dict)
    is_over: bool = False
    error: BaseException | None = None
