"""Many readers, few requests: those who ask while a request is on the wire share the next one.

A list answer serves readers that asked before it was sent, and those whom the state of an earlier
moment will do (`Call.as_of`): a refresh of any number of objects takes one list. Absence from a
list is confirmed by a look at the object alone: a list may lag behind.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuform.providers.call import current_call
from gpuform.providers.errors import Cancelled, GpuformError

T = TypeVar("T")

GATHERING = 0.005
"""Seconds that a request waits for more readers, where the one before had several."""


@dataclass(eq=False)
class _Round(Generic[T]):
    """The readers that one request serves; closed when it is sent."""

    readers: int = 0
    asked: set[str] = field(default_factory=set)
    wants_all: bool = False
    as_of: float | None = None
    sent_at: float = 0.0
    is_over: bool = False
    answer: Mapping[str, T] | None = None
    error: GpuformError | None = None

    @property
    def only(self) -> str | None:
        """The one id asked for, if there is no more to ask."""
        return next(iter(self.asked)) if len(self.asked) == 1 and not self.wants_all else None


@dataclass(frozen=True)
class _Kept(Generic[T]):
    """The last whole list, for those whom it will do."""

    sent_at: float
    answer: Mapping[str, T]


class Listing(Generic[T]):
    """The objects of one kind that one client sees in one project; safe for many threads.

    `fetch_all` lists them, `fetch_one` looks at one by its id and raises NotFound when it is gone,
    `id_of` tells the id of a listed one. At most one shared request is on the wire at a time: a
    lone reader's is `fetch_one`, that of several is `fetch_all`, or `fetch_some` where the platform
    lists some by their ids.
    """

    def __init__(
        self,
        fetch_all: Callable[[], Sequence[T]],
        fetch_one: Callable[[str], T],
        id_of: Callable[[T], str],
        fetch_some: Callable[[Collection[str]], Sequence[T]] | None = None,
    ) -> None:
        self._fetch_all = fetch_all
        self._fetch_one = fetch_one
        self._id_of = id_of
        self._fetch_some = fetch_some
        self._changed = threading.Condition()
        self._is_busy = False
        self._is_crowded = False
        self._next: _Round[T] = _Round()
        self._kept: _Kept[T] | None = None
        self._last_as_of: float | None = None

    def all(self) -> Sequence[T]:
        """Every object, from a list that was sent after this was called (or `Call.as_of`)."""
        return list(self._read(None).values())

    def one(self, id_: str) -> T:
        """One object as it is now. Raises NotFound when it is gone."""
        found = self._read(id_)
        return found[id_] if id_ in found else self._fetch_one(id_)

    def _read(self, id_: str | None) -> Mapping[str, T]:
        while True:
            answer = self._shared(id_)
            if answer is not None:
                return answer

    def _shared(self, id_: str | None) -> Mapping[str, T] | None:
        """The answer of a round; None when who led it was interrupted: others ask again."""
        as_of = current_call().as_of
        with self._changed:
            if as_of is not None and self._kept and self._kept.sent_at >= as_of:
                return self._kept.answer
            round_ = self._next
            round_.readers += 1
            round_.as_of = round_.as_of if as_of is None else as_of
            if id_ is None:
                round_.wants_all = True
            else:
                round_.asked.add(id_)
            self._changed.wait_for(lambda: round_.is_over or self._leads(round_))
            leads = self._leads(round_)
            self._is_busy = self._is_busy or leads
        if leads:
            self._lead(round_)
        if round_.error is not None:
            raise round_.error.with_traceback(None)
        return round_.answer

    def _leads(self, round_: _Round[T]) -> bool:
        return round_ is self._next and not self._is_busy

    def _lead(self, round_: _Round[T]) -> None:
        """Sends the request of a round. What interrupts its leader is raised here alone."""
        try:
            if self._is_crowded:
                time.sleep(GATHERING)
            with self._changed:
                self._next = _Round()
                round_.sent_at = time.monotonic()
            round_.answer = self._ask(round_)
        except Cancelled:
            raise
        except GpuformError as error:
            round_.error = error
        finally:
            with self._changed:
                if self._next is round_:
                    self._next = _Round()
                self._is_busy, self._is_crowded = False, round_.readers > 1
                round_.is_over = True
                self._changed.notify_all()

    def _ask(self, round_: _Round[T]) -> Mapping[str, T]:
        first = round_.as_of is None or round_.as_of != self._last_as_of
        self._last_as_of = round_.as_of
        if round_.only is not None and first:
            return {round_.only: self._fetch_one(round_.only)}
        if self._fetch_some is not None and round_.as_of is None and not round_.wants_all:
            return self._by_id(self._fetch_some(round_.asked))
        answer = self._by_id(self._fetch_all())
        if round_.as_of is not None:
            self._kept = _Kept(round_.sent_at, answer)
        return answer

    def _by_id(self, found: Sequence[T]) -> Mapping[str, T]:
        return {self._id_of(each): each for each in found}
