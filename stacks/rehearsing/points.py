"""Count the requests that change something, group them, and disturb the run at one of them.

`RehearsalTransport` carries all requests of a rehearsal to the emulator in this process. `player`
learns the points from an undisturbed run, and gives the transport an interruption afterwards.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx

from gpuform.providers.emulator.app import move_clock
from gpuform.providers.emulator.server import Server
from gpuform.stacks.engine.planning import Op, Step, StepStarted
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.operations.runs.callbacks import OperationEvent, RunStarted
from gpuform.stacks.testing.case_run import get_address

_CONTROL_PREFIX: Final = "/_emulator/"
_CLOCK_PATH: Final = "/_emulator/clock"
_READING_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_ID_SEGMENT: Final = re.compile(r"[^/]*\d[^/]*|[^/]{24,}")


@dataclass(frozen=True, slots=True)
class Point:
    """A request of the undisturbed run that changes something.

    Attributes:
        number: the request's number among all requests that are not reads, from 1.
        urn, type: the resource whose step sends the request.
        op: the step.
        method, path: the request; `path` begins with the platform's prefix.
        at: the clock's time in Unix seconds.
    """

    number: int
    urn: str
    type: str
    op: Op
    method: str
    path: str
    at: float

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Return what requests of the same kind have in common."""
        # A version like `v1` stays: it is no id.
        segments = (
            "*"
            if _ID_SEGMENT.fullmatch(segment) and not re.fullmatch(r"v\d.*", segment)
            else segment
            for segment in self.path.split("/")
        )
        return self.type, str(self.op), self.method, "/".join(segments)

    @property
    def is_creating(self) -> bool:
        """Return True if the step creates or changes an object, and the request is not a delete."""
        return self.op not in _DELETING_OPS and self.method != "DELETE"


def format_address(type_: str, urn: str, *, with_stack: bool) -> str:
    """Return a resource's address, with its stack if asked for: storage/dev shared_volumes.data."""
    stack, project = get_stack_and_project(urn)
    prefix = f"{project}/{stack} " if with_stack else ""
    return f"{prefix}{get_address(type_, urn)}"


_DELETING_OPS: Final = (Op.DELETE, Op.DELETE_REPLACED, Op.DISCARD_REPLACED)


@dataclass(frozen=True, slots=True)
class PointGroup:
    """Points of one kind of change, in their order, of which `chosen` are played."""

    points: Sequence[Point]
    chosen: Sequence[Point]


def group_points(
    points: Iterable[Point], count_gpus: Callable[[str], int], limit: int
) -> list[PointGroup]:
    """Group the points by kind of change, and choose at most `limit` of each group.

    Chosen are the first point, that of the resource with the most GPUs, the last one, and then
    those of the resources with the most GPUs. Groups and points are sorted, by resource before the
    order of requests: in which order a run changes independent resources is chance.

    Args:
        points: the points, in any order.
        count_gpus: returns the GPUs of a resource by its URN.
        limit: at least 2.
    """
    groups: dict[tuple[str, str, str, str], list[Point]] = {}
    for point in sorted(points, key=_get_sort_key):
        groups.setdefault(point.group, []).append(point)
    result = []
    for members in groups.values():
        largest = sorted(members, key=lambda point: -count_gpus(point.urn))
        # A dict, for a point may be first, last and largest at once.
        chosen = list(dict.fromkeys([members[0], largest[0], members[-1], *largest]))[:limit]
        result.append(PointGroup(members, sorted(chosen, key=_get_sort_key)))
    return result


def _get_sort_key(point: Point) -> tuple[tuple[str, ...], str, int]:
    return point.group, point.urn, point.number


class RequestLost(httpx.ReadError):
    """The connection of a request broke; nobody knows whether the request had an effect."""


@dataclass(slots=True)
class Interruption:
    """What happens at chosen requests of a run; both callbacks receive the request's number.

    `before` is called before the request reaches the emulator, `after` when its effect is stored.
    They may raise `RequestLost`. In a run that continues another one, `target` is the only request
    that they may disturb: they are not called for another one with its number. Such a run begins
    with a step of the resource `first_urn`.
    """

    before: Callable[[int], None] = lambda _number: None
    after: Callable[[int], None] = lambda _number: None
    target: Point | None = None
    first_urn: str = ""


@dataclass(slots=True)
class RequestObserver:
    """Counts the requests of one run, and collects the points if `learns` is set.

    `on_clock` is called after each move of the clock and each request that is not a read, `on_step`
    with each step that begins. `count` is the number of requests so far: of those that are not
    reads, and `has_met_target` says whether the target of the interruption was among them.
    """

    server: Server
    on_clock: Callable[[], None]
    on_step: Callable[[Step], None]
    interruption: Interruption = field(default_factory=Interruption)
    learns: bool = False
    points: list[Point] = field(default_factory=list)
    count: int = 0
    has_met_target: bool = False
    _first_count: int = field(init=False)
    _sampled_changes: int = -1
    _step: tuple[str, str, Op] | None = None

    def __post_init__(self) -> None:
        self._first_count = self.count

    def follow_steps(self, event: OperationEvent) -> None:
        """Note the step that begins: the requests that follow belong to that step."""
        # Only an undisturbed run has a preview, which may look by POST, as in the AIOS registry:
        # every run counts from its own beginning.
        if isinstance(event, RunStarted) and not event.preview:
            self.count = self._first_count
        # Unchanged resources have steps as well, beside the one that changes something.
        if isinstance(event, StepStarted) and not event.planning and event.step.op is not Op.SAME:
            state = event.step.state
            self._step = (event.step.urn, state.type, event.step.op)
            self.on_step(event.step)

    def handle(
        self, request: httpx.Request, forward: Callable[[httpx.Request], httpx.Response]
    ) -> httpx.Response:
        """Forward a request to the emulator with the interruption around it, and return the answer.

        Raises RequestLost where the interruption does.
        """
        store = self.server.store
        if request.url.path == _CLOCK_PATH:
            # Past the application: nearly half of all requests ask for the time.
            answer = move_clock(store, self.server.clock, request.read())
            # An answer without a move changes no fleet.
            if request.method != "GET" or self._sampled_changes != store.change_count:
                self.on_clock()
                self._sampled_changes = store.change_count
            return httpx.Response(200, json=answer, request=request)
        if request.url.path.startswith(_CONTROL_PREFIX):
            response = forward(request)
            self.on_clock()
            return response
        if request.method in _READING_METHODS:
            return forward(request)
        self.count += 1
        number = self.count
        if not self._should_disturb(number, request):
            response = forward(request)
            self.on_clock()
            return response
        self.interruption.before(number)
        changes_before = store.change_count
        response = forward(request)
        has_changed = store.change_count != changes_before
        if self.learns and response.status_code < 400 and has_changed:
            self._add_point(number, request)
        self.on_clock()
        self.interruption.after(number)
        # A hazard may have changed what counts as lost.
        self._sampled_changes = -1
        return response

    def _should_disturb(self, number: int, request: httpx.Request) -> bool:
        """Return False if another request than the target has the target's number."""
        target = self.interruption.target
        if target is None or number != target.number:
            return True
        urn = self._step[0] if self._step is not None else ""
        self.has_met_target = (urn, request.method, request.url.path) == (
            target.urn,
            target.method,
            target.path,
        )
        return self.has_met_target

    def _add_point(self, number: int, request: httpx.Request) -> None:
        """Add a point; requests outside of a step, such as those of a recovery, are no points."""
        if self._step is not None:
            urn, type_, op = self._step
            now = self.server.clock.now()
            self.points.append(Point(number, urn, type_, op, request.method, request.url.path, now))


class RehearsalTransport(httpx.BaseTransport):
    """A transport whose requests an observer sees. Each run has a transport of its own.

    Clients and clocks of gpuform are shared by transport, so none of an earlier run is used again.
    """

    def __init__(self, inner: httpx.BaseTransport, observer: RequestObserver) -> None:
        self._inner = inner
        self._observer = observer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._observer.handle(request, self._inner.handle_request)
