"""Many readers, few requests: those who ask while a request is on the wire share the next one.

A list answer serves readers that asked before it was sent, and those whom the state of an earlier
moment will do (`ProviderContext.fresh_since`): a refresh of any number of objects takes one list.

Gone is only what is not contradicted. Absence from a list is confirmed by a look at the object
alone, for a list may lag behind. That nobody finds it there is confirmed by the list, and by one
other object of the list, the witness, that has to be found: a list that fails or is itself not
found, one that still shows the object, and a witness that nobody finds either are errors.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import Cancelled, Contradicted, GpuformError, NotFound
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import FORGET_OBJECT

T = TypeVar("T")

GATHERING = 0.005
"""Seconds that a request waits for more readers at most, where the one before had several.

It waits no longer than half of what that one has taken."""


@dataclass(eq=False)
class _Round(Generic[T]):
    """The readers that one request serves; closed when it is sent."""

    news: threading.Condition
    readers: int = 0
    asked: set[str] = field(default_factory=set)
    wants_all: bool = False
    as_of: float | None = None
    sent_at: float = 0.0
    is_over: bool = False
    answer: "_Answer[T] | None" = None
    error: GpuformError | None = None

    @property
    def only(self) -> str | None:
        """The one id asked for, if there is no more to ask."""
        return next(iter(self.asked)) if len(self.asked) == 1 and not self.wants_all else None


@dataclass(eq=False)
class _Answer(Generic[T]):
    """What a request has shown, by ids: all there is when it `is_whole`.

    A list `is_vouched` for when its witness was found; a `doubt` says why it was not.
    """

    sent_at: float
    items: Mapping[str, T]
    is_whole: bool = False
    vouching: threading.Lock = field(default_factory=threading.Lock)
    is_vouched: bool = False
    doubt: GpuformError | None = None


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
        self._lock = threading.Lock()
        self._is_busy = False
        self._is_crowded = False
        self._next: _Round[T] = self._round()
        self._kept: _Answer[T] | None = None  # the last whole list, for those whom it will do
        self._last_as_of: float | None = None
        self._took = 0.0

    def all(self) -> Sequence[T]:
        """Return every object, from a list sent after this was called (or `fresh_since`)."""
        return list(self._read(None).items.values())

    def one(self, id_: str) -> T:
        """One object as it is now.

        Raises NotFound when it is gone, Contradicted when only some of the answers say so.
        """
        try:
            found = self._read(id_)
        except NotFound as error:
            self._refuse_contradicted(id_, error)
            raise error.with_traceback(None) from None
        if id_ in found.items:
            return found.items[id_]
        return self._alone(id_, found if found.is_whole else None)

    def alone(self, id_: str) -> T:
        """As `one`, by a request of its own: a list may not tell everything of an object."""
        return self._alone(id_)

    def _alone(self, id_: str, listed: "_Answer[T] | None" = None) -> T:
        """`listed` is a list that has not got it."""
        try:
            return self._look(id_)
        except NotFound as error:
            self._refuse_contradicted(id_, error, listed)
            raise

    def _look(self, id_: str) -> T:
        found = self._fetch_one(id_)
        if self._id_of(found) != id_:
            raise Contradicted(
                f"{id_} was asked for, and the answer is about another object",
                method="GET",
                path=id_,
                status=200,
                hint="check the base URL, and the proxy on the way",
            )
        return found

    def _refuse_contradicted(
        self, id_: str, error: NotFound, listed: "_Answer[T] | None" = None
    ) -> None:
        """Return if the platform's list agrees that the object does not exist.

        Raises:
            Contradicted: the list shows the object, was not found itself, or shows others that the
                platform does not find either.
            GpuformError: the list could not be read.
        """
        listed = listed or self._read(None)
        missing = ["it still shows it"] if id_ in listed.items else []
        gaps = find_gaps(FORGET_OBJECT, Observation("its answer"), Observation("its list", missing))
        if gaps:
            raise contradicted(error, "; ".join(gaps))
        with listed.vouching:
            if not listed.is_vouched and listed.doubt is None:
                try:
                    self._vouch(listed.items, error)
                    listed.is_vouched = True
                except Cancelled:
                    raise
                except GpuformError as doubt:
                    listed.doubt = doubt
        if listed.doubt is not None:
            raise listed.doubt.with_traceback(None)

    def _vouch(self, listed: Mapping[str, T], error: NotFound) -> None:
        """Looks at an object that is known to exist. One that is no longer listed has just gone."""
        witness = next(iter(listed), None)
        if witness is None:
            return
        try:
            self._look(witness)
        except NotFound:
            if witness in self._by_id(self._fetch_list(self._fetch_all)):
                raise contradicted(error, "neither is another found, which it lists") from None

    def _read(self, id_: str | None) -> _Answer[T]:
        while True:
            answer = self._shared(id_)
            if answer is not None:
                return answer

    def _shared(self, id_: str | None) -> _Answer[T] | None:
        """The answer of a round; None when who led it was interrupted: others ask again."""
        as_of = get_current_context().fresh_since
        with self._lock:
            if as_of is not None and self._kept and self._kept.sent_at >= as_of:
                return self._kept
            round_ = self._next
            round_.readers += 1
            round_.as_of = round_.as_of if as_of is None else as_of
            if id_ is None:
                round_.wants_all = True
            else:
                round_.asked.add(id_)
            try:
                round_.news.wait_for(lambda: round_.is_over or self._leads(round_))
            except BaseException:
                round_.news.notify()  # another one has to lead
                raise
            leads = self._leads(round_)
            self._is_busy = self._is_busy or leads
        if leads:
            self._lead(round_)
        if round_.error is not None:
            raise round_.error.with_traceback(None)
        return round_.answer

    def _round(self) -> _Round[T]:
        return _Round(threading.Condition(self._lock))

    def _leads(self, round_: _Round[T]) -> bool:
        return round_ is self._next and not self._is_busy

    def _lead(self, round_: _Round[T]) -> None:
        """Sends the request of a round. What interrupts its leader is raised here alone."""
        try:
            if self._is_crowded:
                time.sleep(min(GATHERING, self._took / 2))
            with self._lock:
                self._next = self._round()
                round_.sent_at = time.monotonic()
            round_.answer = self._ask(round_)
        except Cancelled:
            raise
        except GpuformError as error:
            round_.error = error
        finally:
            with self._lock:
                if self._next is round_:
                    self._next = self._round()
                self._is_busy, self._is_crowded = False, round_.readers > 1
                self._took = time.monotonic() - round_.sent_at
                round_.is_over = True
                round_.news.notify_all()
                self._next.news.notify()

    def _ask(self, round_: _Round[T]) -> _Answer[T]:
        first = round_.as_of is None or round_.as_of != self._last_as_of
        self._last_as_of = round_.as_of
        if round_.only is not None and first:
            return _Answer(round_.sent_at, {round_.only: self._look(round_.only)})
        if self._fetch_some is not None and round_.as_of is None and not round_.wants_all:
            fetch_asked = partial(self._fetch_some, round_.asked)
            return _Answer(round_.sent_at, self._by_id(self._fetch_list(fetch_asked)))
        found = self._fetch_list(self._fetch_all)
        answer = _Answer(round_.sent_at, self._by_id(found), is_whole=True)
        if round_.as_of is not None:
            self._kept = answer
        return answer

    def _fetch_list(self, fetch: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return what `fetch` lists; a list that is not found is no list without objects.

        Raises:
            Contradicted: the platform answered the list itself with its 404, as it does for an API
                version that has ended. Passed on, it would read as the 404 of the object.
        """
        try:
            return fetch()
        except NotFound as error:
            raise Contradicted(
                f"{error.message}; but a list exists even if it is empty: nothing is forgotten",
                method=error.method,
                path=error.path,
                status=error.status,
                hint="check the base URL and the API version in it: has that version ended?",
            ) from None

    def _by_id(self, found: Sequence[T]) -> Mapping[str, T]:
        return {self._id_of(each): each for each in found}


def contradicted(error: NotFound, because: str) -> Contradicted:
    """The error of a 404 that something else the platform says speaks against."""
    return Contradicted(
        f"{error.message}; but {because}: nothing is forgotten",
        method=error.method,
        path=error.path,
        status=error.status,
        hint="run it again in a few minutes; if it stays so, check the base URL, the project "
        "of the key, and the proxy on the way",
    )
