"""Count and group the requests that change something, and disturb the run at one of them.

`RehearsalTransport` carries all requests of a rehearsal to the emulator in this process. `player`
learns the points from an undisturbed run, and gives the transport an interruption afterwards.
`worker` builds a `LearnedPlan` of that run, from which `hazards` lists what can go wrong.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Final

import httpx

from gpuform.providers.emulator.app import move_clock
from gpuform.providers.emulator.server import Server
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.values import find_reachable
from gpuform.stacks.engine.planning import Op, Step, StepStarted
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.operations.runs.callbacks import OperationEvent, RunStarted
from gpuform.stacks.rehearsing.fleet import FleetState, Owner
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.testing.cases import get_address

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
        """Return the common key of requests of one kind."""
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
        """Return True if the request may create or change an object: no delete."""
        return self.op not in _DELETING_OPS and self.method != "DELETE"


def format_address(type_: str, urn: str, *, with_stack: bool) -> str:
    """Return a resource's address, with the stack if asked for: storage/dev shared_volumes.data."""
    stack, project = get_stack_and_project(urn)
    prefix = f"{project}/{stack} " if with_stack else ""
    return f"{prefix}{get_address(type_, urn)}"


_DELETING_OPS: Final = (Op.DELETE, Op.DELETE_REPLACED, Op.DISCARD_REPLACED)


_SORT_KEY: Final = attrgetter("group", "urn", "number")


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
    for point in sorted(points, key=_SORT_KEY):
        groups.setdefault(point.group, []).append(point)
    result = []
    for members in groups.values():
        largest = sorted(members, key=lambda point: -count_gpus(point.urn))
        # A dict, for a point may be first, last and largest at once.
        chosen = list(dict.fromkeys([members[0], largest[0], members[-1], *largest]))[:limit]
        result.append(PointGroup(members, sorted(chosen, key=_SORT_KEY)))
    return result


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
        """Note the step which begins: the requests after this event belong to the step."""
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
        """Forward a request to the emulator, interrupted as planned, and return the answer.

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
        sent = (urn, request.method, request.url.path)
        self.has_met_target = sent == (target.urn, target.method, target.path)
        return self.has_met_target

    def _add_point(self, number: int, request: httpx.Request) -> None:
        """Add a point for a request; requests outside of a step (a recovery's) are no points."""
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


_NAME_PROPERTIES: Final = ("cluster_name", "cluster_fabric_name", "name")


@dataclass(frozen=True, slots=True)
class LearnedPlan:
    """What the undisturbed run has shown.

    Attributes:
        changes: the plan's changes by URN.
        groups: the requests that change something.
        owners: the owner of each resource's GPUs, by URN.
        before, after: the fleet at the start and at the end.
        samples: the fleet over the clock.
        names_stacks: whether addresses have the name of their stack.
    """

    changes: Mapping[str, ResourceChange]
    groups: Sequence[PointGroup]
    owners: Mapping[str, Owner]
    before: FleetState
    after: FleetState
    samples: Sequence[FleetState]
    names_stacks: bool = False

    def list_working_nodes(self, point: Point, owner: Owner) -> list[str]:
        """Return the owner's nodes working before the run, after the point, and at the end."""
        nodes = set(self.after.nodes)
        for state in self.samples:
            # Of several samples of one time the last one counts: it has the point's effect.
            if state.at == point.at or state is self.before:
                nodes &= state.nodes
        return sorted(node for platform, name, node in nodes if (platform, name) == owner)

    def list_chosen(self) -> Iterator[tuple[PointGroup, Point]]:
        """Yield each point to play with the group of the point."""
        for group in self.groups:
            for point in group.chosen:
                yield group, point

    def count_gpus(self, urn: str) -> int:
        """Return the GPUs of a resource, before or after the change, whichever is more."""
        owner = self.owners.get(urn)
        if owner is None:
            return 0
        return max(self.before.working.get(owner, 0), self.after.working.get(owner, 0))

    def list_riskiest(self, limit: int) -> list[str]:
        """Return the URNs of at most `limit` changed resources, the largest possible loss first.

        Replaced and deleted ones come before others, and then those with more GPUs.
        """
        changed = [item for item in self.changes.values() if item.action.is_change]

        def rank_change(change: ResourceChange) -> tuple[bool, int, str]:
            is_kept = change.action not in (PlanAction.REPLACE, PlanAction.DELETE)
            return is_kept, -self.count_gpus(change.urn), change.urn

        return [change.urn for change in sorted(changed, key=rank_change)[:limit]]

    def format_address(self, point: Point) -> str:
        """Return the address of a point's resource: clusters.train."""
        return format_address(point.type, point.urn, with_stack=self.names_stacks)

    def list_stack_ends(self) -> list[tuple[Point, Point]]:
        """Return the last request of each stack with the first one of the next stack."""
        points = sorted(
            (p for group in self.groups for p in group.points), key=attrgetter("number")
        )
        return [
            (point, following)
            for point, following in pairwise(points)
            if get_stack_and_project(point.urn) != get_stack_and_project(following.urn)
        ]

    @property
    def has_late_deletions(self) -> bool:
        """Return True if the plan deletes something which a failed run would leave.

        These are resources that are declared no longer, and clusters that are replaced create
        first.
        """
        replaced: set[str] = set()
        points = (point for group in self.groups for point in group.points)
        for point in sorted(points, key=attrgetter("number")):
            if point.op is Op.DELETE or (point.op is Op.DELETE_REPLACED and point.urn in replaced):
                return True
            if point.op is Op.CREATE_REPLACEMENT:
                replaced.add(point.urn)
        return False

    def is_after_deletion(self, point: Point) -> bool:
        """Return True if an earlier request has deleted an object or nodes of the same resource."""
        return any(
            other.urn == point.urn
            and other.number < point.number
            and (other.op is Op.DELETE_REPLACED or other.method == "DELETE")
            for group in self.groups
            for other in group.points
        )


def find_owners(resources: Sequence[ResourceState], owners: set[Owner]) -> dict[str, Owner]:
    """Return the cluster or fabric of each resource with GPUs, by URN."""
    owners_by_urn: dict[str, Owner] = {}
    for resource in resources:
        kind = find_kind(resource.type)
        if kind is None or resource.delete:
            continue
        for name in _NAME_PROPERTIES:
            owner = (kind[0], str(resource.outputs.get(name) or resource.inputs.get(name) or ""))
            if owner in owners:
                owners_by_urn.setdefault(resource.urn, owner)
    return owners_by_urn


def find_urns_by_owner(
    learned: LearnedPlan, dependencies: Mapping[str, set[str]]
) -> dict[Owner, frozenset[str]]:
    """Return the resources of each owner, with all direct and indirect dependencies."""
    urns: dict[Owner, frozenset[str]] = {}
    for urn, owner in learned.owners.items():
        needed_urns = find_reachable([urn], lambda urn: dependencies.get(urn, ()))
        urns[owner] = urns.get(owner, frozenset()) | needed_urns
    return urns


def find_prices(plan: Plan) -> dict[str, tuple[str, float]]:
    """Return currency and price of a GPU-hour by platform, of the dearest GPUs in the plan."""
    prices: dict[str, tuple[str, float]] = {}
    for change in plan.changes:
        for usage in filter(None, (change.before, change.after)):
            for expense in usage.expenses:
                if expense.what == "gpus" and expense.hourly and expense.amount:
                    price = (expense.currency, expense.hourly / expense.amount)
                    dearest_price = prices.get(expense.platform)
                    if dearest_price is None or price[1] > dearest_price[1]:
                        prices[expense.platform] = price
    return prices


def list_differences(plan: Plan, rehearsed: Plan) -> tuple[str, ...]:
    """Return a line for each resource with different actions in the plan and on the emulator."""
    rehearsed_actions = {change.urn: change.action for change in rehearsed.changes}
    lines = []
    for change in plan.changes:
        action = rehearsed_actions.pop(change.urn, PlanAction.SAME)
        if action != change.action and (action.is_change or change.action.is_change):
            address = get_address(change.type, change.urn)
            lines.append(f"{address}: the plan says {change.action}, the emulator plans {action}")
    by_urn = {change.urn: change for change in rehearsed.changes}
    for urn, action in rehearsed_actions.items():
        if action.is_change:
            address = get_address(by_urn[urn].type, urn)
            lines.append(f"{address}: the plan has no change, the emulator plans {action}")
    return tuple(sorted(lines))
