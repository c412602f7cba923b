"""Share requests among many readers: readers that ask during a request share the next one.

A list answers readers that asked before it was sent, and readers that accept an earlier moment
(`ProviderContext.get_freshness_limit`): a refresh of any number of objects takes one list.

An object is gone only if nothing contradicts. Its absence from a list is confirmed by a request for
the object alone, because a list may lag behind. A 404 of the object is confirmed by the list, and
by one other object of the list, its first, that must be found: a list that fails or is itself not
found, a list that still shows the object, and a first object that is not found either, are errors.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from gpuform.providers.context import ProviderContext, get_current_context
from gpuform.providers.errors import Cancelled, Contradicted, GpuformError, NotFound
from gpuform.providers.evidence import FORGET_OBJECT, Observation, find_gaps

T = TypeVar("T")

GATHERING = 0.005
"""Longest wait in seconds of a request for more readers, if the request before had several.

The wait is at most half of the duration of that request.
"""


@dataclass(eq=False)
class _Round(Generic[T]):
    """The readers of one shared request; closed when the request is sent."""

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
        """The id of the object to read if all readers ask for the same one, else None."""
        return next(iter(self.asked)) if len(self.asked) == 1 and not self.wants_all else None


@dataclass(eq=False)
class _Answer(Generic[T]):
    """The objects of an answer by their ids; all existing objects if `has_all_objects`.

    `is_vouched`: the first object of the list was found; `doubt` is the error if not.
    """

    sent_at: float
    items: Mapping[str, T]
    has_all_objects: bool = False
    vouching: threading.Lock = field(default_factory=threading.Lock)
    is_vouched: bool = False
    doubt: GpuformError | None = None


class Listing(Generic[T]):
    """The objects of one kind that one client sees in one project; safe for many threads.

    At most one shared request is in progress at a time: `fetch_one` for a single reader,
    `fetch_all` for several, or `fetch_some` where the platform lists objects by their ids.

    Args:
        fetch_all: lists all objects.
        fetch_one: reads one object by its id; raises NotFound.
        id_of: returns the id of a listed object.
        fetch_some: lists the objects with these ids.
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
        self._next_round: _Round[T] = self._create_round()
        self._kept_answer: _Answer[T] | None = (
            None  # the last whole list, for those whom it will do
        )
        self._last_as_of: float | None = None
        self._last_duration = 0.0

    def read_all(self) -> Sequence[T]:
        """Return every object, from a list sent after this call (or after `fresh_since`).

        Raises:
            GpuformError: the list cannot be read. A 404 for the list itself is Contradicted.
        """
        return list(self._read(None).items.values())

    def read_one(self, id_: str) -> T:
        """Return one object as the platform shows it now (or after `fresh_since` of the context).

        Raises:
            NotFound: the object is gone.
            Contradicted: the object's own answer says gone, and the platform's list disagrees.
            GpuformError: the platform does not answer.
        """
        try:
            answer = self._read(id_)
        except NotFound as error:
            self._refuse_contradicted(id_, error)
            # Many readers raise this one object: each would add its frames to those of the others.
            raise error.with_traceback(None) from None
        if id_ in answer.items:
            return answer.items[id_]
        return self.read_alone(id_, answer if answer.has_all_objects else None)

    def find_one(self, id_: str, is_complete: Callable[[T], bool] = lambda _: True) -> T | None:
        """Return one object as `read_one`, or None if the object is gone.

        An object that is not complete in the shared answer is read alone.
        """
        try:
            item = self.read_one(id_)
            return item if is_complete(item) else self.read_alone(id_)
        except NotFound:
            return None

    def read_alone(self, id_: str, listed: "_Answer[T] | None" = None) -> T:
        """Return one object by its own request, because a list may lack some of its fields.

        A 404 is compared with the platform's list: with `listed`, which lacks the object, or
        without it with a new one.

        Raises:
            NotFound: the object is gone.
            Contradicted: the object's own answer says gone, and the platform's list disagrees.
            GpuformError: the list cannot be read.
        """
        try:
            return self._fetch_checked(id_)
        except NotFound as error:
            self._refuse_contradicted(id_, error, listed)
            raise

    def _fetch_checked(self, id_: str) -> T:
        """Return one object by its own request.

        Raises Contradicted if the answer has another id.
        """
        item = self._fetch_one(id_)
        if self._id_of(item) != id_:
            raise Contradicted(
                f"{id_}: the platform answered about another object",
                method="GET",
                path=id_,
                status=200,
                hint="check the base URL, and the proxy on the way",
            )
        return item

    def _refuse_contradicted(
        self, id_: str, error: NotFound, listed: "_Answer[T] | None" = None
    ) -> None:
        """Raise Contradicted unless the platform's list confirms the 404 of an object.

        `error` is the 404; `listed` is a list without the object, if there is one already.

        Raises:
            Contradicted: the list shows the object, was not found itself, or shows others that the
                platform does not find either.
            GpuformError: the list could not be read.
        """
        listed = listed or self._read(None)
        missing = ["it still shows it"] if id_ in listed.items else []
        gaps = find_gaps(FORGET_OBJECT, Observation("its answer"), Observation("its list", missing))
        if gaps:
            raise build_contradiction_error(error, "; ".join(gaps))
        # Once for each list, however many of its objects are missed.
        with listed.vouching:
            if not listed.is_vouched and listed.doubt is None:
                try:
                    self._check_first_listed_object(listed.items, error)
                    listed.is_vouched = True
                except Cancelled:
                    raise
                except GpuformError as doubt:
                    listed.doubt = doubt
        if listed.doubt is not None:
            raise listed.doubt.with_traceback(None)

    def _check_first_listed_object(self, listed: Mapping[str, T], error: NotFound) -> None:
        """Raise Contradicted if the platform answers 404 for the first object of its own list.

        The 404 of an object that a second list no longer shows proves nothing: the object was
        deleted meanwhile.
        """
        first_id = next(iter(listed), None)
        if first_id is None:
            return
        try:
            self._fetch_checked(first_id)
        # The object may just have been deleted: only a list that still shows it contradicts.
        except NotFound:
            if first_id in self._index_by_id(self._fetch_list(self._fetch_all)):
                raise build_contradiction_error(
                    error,
                    "the platform does not find another object either, although its list "
                    "shows that object",
                ) from None

    def _read(self, id_: str | None) -> _Answer[T]:
        """Return the answer of a shared request with object `id_`, or all objects for None."""
        while True:
            answer = self._join_round(id_)
            if answer is not None:
                return answer

    def _join_round(self, id_: str | None) -> _Answer[T] | None:
        """Join the next shared request for a list and return the answer, or a kept fresh answer.

        None if the thread that sends the request was interrupted: the others ask again. Raises the
        request's error in every reader.
        """
        as_of = get_current_context().get_freshness_limit()
        with self._lock:
            # A refresh accepts any list that was sent after it began.
            if as_of is not None and self._kept_answer and self._kept_answer.sent_at >= as_of:
                return self._kept_answer
            round_ = self._next_round
            round_.readers += 1
            round_.as_of = round_.as_of if as_of is None else as_of
            if id_ is None:
                round_.wants_all = True
            else:
                round_.asked.add(id_)
            try:
                round_.news.wait_for(lambda: round_.is_over or self._is_leader(round_))
            except BaseException:
                round_.news.notify()  # another one has to lead
                raise
            leads = self._is_leader(round_)
            self._is_busy = self._is_busy or leads
        if leads:
            self._lead_round(round_)
        if round_.error is not None:
            raise round_.error.with_traceback(None)
        return round_.answer

    def _create_round(self) -> _Round[T]:
        """Return a new shared request for a list, without readers."""
        return _Round(threading.Condition(self._lock))

    def _is_leader(self, round_: _Round[T]) -> bool:
        """Return True if the calling thread must send the shared request for all readers."""
        return round_ is self._next_round and not self._is_busy

    def _lead_round(self, round_: _Round[T]) -> None:
        """Send a shared request, and give its answer or its error to all its readers.

        Raises only an interruption of this thread.
        """
        try:
            # Readers come in waves: a short wait lets one request serve more of them.
            if self._is_crowded:
                time.sleep(min(GATHERING, self._last_duration / 2))
            with self._lock:
                self._next_round = self._create_round()
                round_.sent_at = time.monotonic()
            round_.answer = self._fetch_round(round_)
        # This reader's interruption is none of the others': one of them sends the request again.
        except Cancelled:
            raise
        except GpuformError as error:
            round_.error = error
        finally:
            with self._lock:
                # An interruption while readers gather: later readers must not join a round that is
                # over.
                if self._next_round is round_:
                    self._next_round = self._create_round()
                self._is_busy, self._is_crowded = False, round_.readers > 1
                self._last_duration = time.monotonic() - round_.sent_at
                round_.is_over = True
                round_.news.notify_all()
                self._next_round.news.notify()

    def _fetch_round(self, round_: _Round[T]) -> _Answer[T]:
        """Return a shared request's answer: one object, the requested ones, or the list.

        One object if all readers ask for the same one, unless an earlier request had the same
        `fresh_since`. The requested ones if the platform can list by ids, and no reader accepts an
        earlier answer or wants all. A list for readers with `fresh_since` is kept for others.
        """
        first = round_.as_of is None or round_.as_of != self._last_as_of
        self._last_as_of = round_.as_of
        # A second reader of the same moment announces more: then one list serves all of them.
        if round_.only is not None and first:
            return _Answer(round_.sent_at, {round_.only: self._fetch_checked(round_.only)})
        if self._fetch_some is not None and round_.as_of is None and not round_.wants_all:
            fetch_asked = partial(self._fetch_some, round_.asked)
            return _Answer(round_.sent_at, self._index_by_id(self._fetch_list(fetch_asked)))
        items = self._fetch_list(self._fetch_all)
        answer = _Answer(round_.sent_at, self._index_by_id(items), has_all_objects=True)
        if round_.as_of is not None:
            self._kept_answer = answer
        return answer

    def _fetch_list(self, fetch: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return the objects that `fetch` lists. A 404 for a list does not count as an empty list.

        Raises:
            Contradicted: the platform answered the list itself with its 404, as it does for an API
                version that has ended. Passed on, it would read as the 404 of the object.
        """
        try:
            return fetch()
        except NotFound as error:
            raise Contradicted(
                f"{error.message}; but the platform must have such a list, even if it is "
                "empty: gpuform keeps the object in the state",
                method=error.method,
                path=error.path,
                status=error.status,
                hint="check the base URL and its API version, which may no longer be supported",
            ) from None

    def _index_by_id(self, items: Sequence[T]) -> Mapping[str, T]:
        """Return the objects of a platform's list by id."""
        return {self._id_of(item): item for item in items}


def build_contradiction_error(error: NotFound, reason: str) -> Contradicted:
    """Return the error for a 404 contradicted by another answer of the platform."""
    return Contradicted(
        f"{error.message}; but {reason}: gpuform keeps the object in the state",
        method=error.method,
        path=error.path,
        status=error.status,
        hint="run the command again in a few minutes; if the error persists, check the base "
        "URL, the project of the key, and the proxy on the way",
    )


class PlanningLists:
    """The lists of a platform that planning compares with, requested once for each client.

    A platform that does not answer is not asked again in this process: planning does not wait.
    """

    def __init__(self) -> None:
        self.answers: WeakKeyDictionary[Any, dict[str, Sequence[Any] | GpuformError]]
        self.answers = WeakKeyDictionary()
        self._warned_clients: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def get(self, client: object, name: str, fetch: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return a list by its name, requested by `fetch` on the first call for the client.

        Raises:
            GpuformError: the error of `fetch`, also of an earlier call.
        """
        # The lock stays taken during the request, so that a plan of many resources sends one.
        with self._lock:
            answers = self.answers.setdefault(client, {})
            if name not in answers:
                try:
                    answers[name] = fetch()
                except GpuformError as error:
                    answers[name] = error
            answer = answers[name]
        if isinstance(answer, GpuformError):
            # The error is raised again and again: it must not collect tracebacks.
            raise answer.with_traceback(None)
        return answer

    def report_unchecked(self, client: object, context: ProviderContext, message: str) -> None:
        """Report a skipped check of planning lists to the context, with the reason.

        In Pulumi's host, and without a resource, only the first report of each client is made.
        """
        # An engine collects these; Pulumi's hosts would show one per resource.
        if context.urn is None or context.is_pulumi_host:
            with self._lock:
                if client in self._warned_clients:
                    return
                self._warned_clients.add(client)
        context.on_skipped_check(message)
