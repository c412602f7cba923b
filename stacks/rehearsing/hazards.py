"""Decide which hazards a plan meets at which requests, and let them happen on the emulator.

`list_plays` reads the points of the undisturbed run; `HazardInjector` carries out a play.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from gpuform.providers.emulator.server import Server
from gpuform.schemas.rehearsal import Hazard, HazardKind
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.rehearsing.fleet import (
    FleetRecorder,
    FleetState,
    Owner,
    StartedJob,
    break_node,
    send_control,
    start_job,
)
from gpuform.stacks.rehearsing.points import (
    Interruption,
    LearnedPlan,
    Point,
    PointGroup,
    RequestLost,
    format_address,
)

SLOWNESS: Final = 3.0
"""By what factor the platform is slower in the hazard `slow-platform`."""
OUTAGES: Final = (HazardKind.NO_CAPACITY, HazardKind.QUOTA, HazardKind.NO_CREDIT)
"""Hazards that last until the platform or somebody else ends them."""
STARTED_JOB: Final = "started-after-the-plan"
_RATE_LIMITED_REQUESTS: Final = 5
_RETRY_AFTER_S: Final = 30
_WRITING_METHODS: Final = ("POST", "PUT", "PATCH")

When = Literal["before", "after"]
_MOMENTS: Final[tuple[When, ...]] = ("before", "after")


@dataclass(frozen=True, slots=True)
class HazardPlay:
    """A hazard at a request; `point` is None for a hazard of the whole run.

    `owner` are the cluster's or fabric's GPUs that the hazard concerns, and `node` the node. With a
    `shortage` capacity is missing only for creates with these values.
    """

    hazard: Hazard
    point: Point | None = None
    when: When = "before"
    owner: Owner | None = None
    node: str = ""
    shortage: Mapping[str, Any] = field(default_factory=dict)


def list_plays(learned: LearnedPlan, kinds: Iterable[HazardKind]) -> list[HazardPlay]:
    """Return the plays of all hazards of `kinds`, in a fixed order."""
    listers: dict[HazardKind, Callable[[LearnedPlan], Iterator[HazardPlay]]] = {
        HazardKind.NO_CAPACITY: _list_no_capacity,
        HazardKind.LOST_REQUEST: _list_lost_requests,
        HazardKind.KILLED: _list_kills,
        HazardKind.NEVER_READY: _list_never_ready,
        HazardKind.NODE_FAILURE: _list_node_failures,
        HazardKind.NO_CREDIT: _list_no_credit,
        HazardKind.JOB_STARTS: _list_job_starts,
        HazardKind.QUOTA: _list_quotas,
        HazardKind.RATE_LIMIT: _list_rate_limits,
        HazardKind.SLOW_PLATFORM: _list_slow_platform,
    }
    # In the order of the enumeration, whatever the order on the command line.
    chosen_kinds = set(kinds)
    plays = [
        play
        for kind in HazardKind
        if kind in chosen_kinds and kind in listers
        for play in listers[kind](learned)
    ]
    return _distinguish_plays(plays)


def _distinguish_plays(plays: Sequence[HazardPlay]) -> list[HazardPlay]:
    """Return the plays, with the request added to each description shared by several plays."""
    counts = Counter(play.hazard.description for play in plays)
    named = []
    for play in plays:
        description, point = play.hazard.description, play.point
        if counts[description] > 1 and point is not None:
            # A run may send one kind of request several times for one resource.
            request = _format_request(point)
            named_request = "" if request in description else f": {request}"
            description += f", at request {point.number} of the run{named_request}"
            hazard = play.hazard.model_copy(update={"description": description})
            named.append(replace(play, hazard=hazard))
        else:
            named.append(play)
    return named


def _list_creates(learned: LearnedPlan) -> Iterator[tuple[PointGroup, Point]]:
    """Yield the chosen requests which may ask for GPUs."""
    for group, point in learned.list_chosen():
        # Requests to schedulers, such as those of a drain, ask for nothing.
        is_of_platform = point.path.split("/")[1] == learned.owners.get(point.urn, ("",))[0]
        if point.is_creating and is_of_platform and learned.count_gpus(point.urn):
            yield group, point


def _describe_moment(learned: LearnedPlan, point: Point) -> str:
    return " after its deletion" if learned.is_after_deletion(point) else ""


def _list_no_capacity(learned: LearnedPlan) -> Iterator[HazardPlay]:
    for group, point in _list_creates(learned):
        moment = _describe_moment(learned, point)
        description = f"no capacity for {learned.format_address(point)}{moment}"
        yield _play(HazardKind.NO_CAPACITY, description, group, point)


def _list_quotas(learned: LearnedPlan) -> Iterator[HazardPlay]:
    for group, point in _list_creates(learned):
        if point is group.points[0]:
            moment = _describe_moment(learned, point)
            description = f"a quota refuses {learned.format_address(point)}{moment}"
            yield _play_once(HazardKind.QUOTA, description, group)


def _list_never_ready(learned: LearnedPlan) -> Iterator[HazardPlay]:
    for group, point in _list_creates(learned):
        address = learned.format_address(point)
        description = f"what {point.method} starts for {address} never becomes ready"
        yield _play(HazardKind.NEVER_READY, description, group, point)


def _list_lost_requests(learned: LearnedPlan) -> Iterator[HazardPlay]:
    for group, point in learned.list_chosen():
        for when in _MOMENTS:
            description = f"{_describe_request(learned, point)} is lost {when} its effect"
            yield _play(HazardKind.LOST_REQUEST, description, group, point, when)


def _list_kills(learned: LearnedPlan) -> Iterator[HazardPlay]:
    boundaries = {following: point for point, following in learned.list_stack_ends()}
    for following, point in boundaries.items():
        names = ["/".join(reversed(get_stack_and_project(p.urn))) for p in (point, following)]
        description = f"the run is killed between the stacks {names[0]} and {names[1]}"
        hazard = Hazard(kind=HazardKind.KILLED, urn=following.urn, description=description)
        yield HazardPlay(hazard, following, "before")
    for group, point in learned.list_chosen():
        # Before another request than a create, a kill leaves what the previous request has left.
        for when in _MOMENTS if point.is_creating else _MOMENTS[1:]:
            if when == "before" and point in boundaries:
                continue
            description = f"the run is killed {when} {_describe_request(learned, point)}"
            yield _play(HazardKind.KILLED, description, group, point, when)


def _list_rate_limits(learned: LearnedPlan) -> Iterator[HazardPlay]:
    for group in learned.groups:
        point = group.points[0]
        request = _describe_request(learned, point)
        description = f"{request} is answered with 429 {_RATE_LIMITED_REQUESTS} times"
        yield _play_once(HazardKind.RATE_LIMIT, description, group)


def _list_slow_platform(learned: LearnedPlan) -> Iterator[HazardPlay]:
    if learned.groups:
        description = f"everything takes {SLOWNESS:g} times as long on the platform"
        yield HazardPlay(Hazard(kind=HazardKind.SLOW_PLATFORM, description=description))


def _list_no_credit(learned: LearnedPlan) -> Iterator[HazardPlay]:
    """Yield the end of the credit after the first request of each kind."""
    for group in learned.groups:
        point = group.points[0]
        description = f"the credit runs out after {_describe_request(learned, point)}"
        if point.path.split("/")[1] in _PLATFORMS_WITH_CREDIT:
            yield _play_once(HazardKind.NO_CREDIT, description, group, "after")


_PLATFORMS_WITH_CREDIT: Final = ("together",)


def _list_node_failures(learned: LearnedPlan) -> Iterator[HazardPlay]:
    """Yield the failure of a working node, in the middle of the update of the resource."""
    points_by_urn: dict[str, list[tuple[PointGroup, Point]]] = {}
    for group in learned.groups:
        for point in group.points:
            if point.op is Op.UPDATE:
                points_by_urn.setdefault(point.urn, []).append((group, point))
    for urn, points in points_by_urn.items():
        owner = learned.owners.get(urn)
        if owner is None:
            continue
        group, point = points[len(points) // 2]
        working = learned.list_working_nodes(point, owner)
        if working:
            address = learned.format_address(point)
            description = f"node {working[0]} of {address} fails during its update"
            play = _play(HazardKind.NODE_FAILURE, description, group, point, "after")
            yield replace(play, owner=owner, node=working[0])


def _list_job_starts(learned: LearnedPlan) -> Iterator[HazardPlay]:
    """Yield the start of a job on a node to be removed by the plan, for each resource."""
    removed: dict[Owner, list[str]] = {}
    for platform, name, node in sorted(learned.before.nodes - learned.after.nodes):
        removed.setdefault((platform, name), []).append(node)
    for urn, owner in sorted(learned.owners.items()):
        change = learned.changes.get(urn)
        is_replaced = change is not None and change.action in ("replace", "delete")
        nodes = removed.get(owner) or (
            sorted(n for p, o, n in learned.before.nodes if (p, o) == owner) if is_replaced else []
        )
        if nodes and change is not None and owner[0] in _PLATFORMS_WITH_JOBS:
            address = format_address(change.type, urn, with_stack=learned.names_stacks)
            hazard = Hazard(
                kind=HazardKind.JOB_STARTS,
                urn=urn,
                description=f"a job starts on {nodes[0]} of {address} after the plan was made",
            )
            yield HazardPlay(hazard, owner=owner, node=nodes[0])


_PLATFORMS_WITH_JOBS: Final = ("together",)
"""Platforms whose emulated clusters have a scheduler of their own."""


def _describe_request(learned: LearnedPlan, point: Point) -> str:
    """Return a request in words: POST compute/clusters of clusters.train."""
    return f"{_format_request(point)} of {learned.format_address(point)}"


def _format_request(point: Point) -> str:
    # The end of the path says what is requested; before it are versions and ids.
    *_, folder, last = point.group[-1].split("/")
    return f"{point.method} {folder}/{last}"


def _play(
    kind: HazardKind, description: str, group: PointGroup, point: Point, when: When = "before"
) -> HazardPlay:
    """Return a play at a point, which counts for a share of the group, the point included."""
    rest = len(group.points) - len(group.chosen)
    share = 1 + rest if point is group.chosen[-1] else 1
    hazard = Hazard(kind=kind, urn=point.urn, description=description, points=share)
    return HazardPlay(hazard, point, when)


def _play_once(
    kind: HazardKind, description: str, group: PointGroup, when: When = "before"
) -> HazardPlay:
    """Return a play at the first point of the group, which counts for the complete group."""
    point = group.points[0]
    hazard = Hazard(kind=kind, urn=point.urn, description=description, points=len(group.points))
    return HazardPlay(hazard, point, when)


@dataclass(slots=True)
class HazardInjector:
    """Lets one play happen on the emulator.

    Attributes:
        server: the emulator.
        play: the hazard.
        recorder: records the run; receives the broken nodes and what the hazard excuses.
        excused: GPUs that the hazard takes by itself, by owner; only of `no-credit`.
    """

    server: Server
    play: HazardPlay
    recorder: FleetRecorder
    excused: Mapping[Owner, int] = field(default_factory=dict)
    jobs: list[StartedJob] = field(default_factory=list)
    """The jobs that the hazard has started."""
    _is_met: bool = False

    @property
    def has_happened(self) -> bool:
        """Return True unless the run has not sent the play's request."""
        return self._is_met or self.play.point is None

    def begin(self) -> None:
        """Begin a hazard of the whole run, such as a slow platform, before the run."""
        kind = self.play.hazard.kind
        if kind is HazardKind.SLOW_PLATFORM:
            self._add_fault(slow=SLOWNESS, count=None)
        elif kind is HazardKind.JOB_STARTS and self.play.owner is not None:
            job = start_job(self.server, self.play.owner[1], self.play.node, STARTED_JOB)
            self.jobs.append(job)

    def end(self) -> None:
        """End the hazard: capacity, quota and credit are there again."""
        send_control(self.server, "DELETE", "faults", None)
        if self.play.hazard.kind is HazardKind.NO_CREDIT:
            _set_credit(self.server, is_exhausted=False)
            self.recorder.excused.clear()

    def build_interruption(self) -> Interruption:
        """Return the functions to call before and after the play's request."""
        point = self.play.point
        if point is None or self.play.hazard.kind is HazardKind.KILLED:
            return Interruption()

        def trigger_at_point(number: int) -> None:
            if number == point.number:
                self._is_met = True
                self._trigger_hazard(point)

        if self.play.when == "before":
            return Interruption(before=trigger_at_point)
        return Interruption(after=trigger_at_point)

    def _trigger_hazard(self, point: Point) -> None:
        """Let the hazard happen now. Raises RequestLost for a lost request."""
        kind, platform = self.play.hazard.kind, point.path.split("/")[1]
        if kind is HazardKind.LOST_REQUEST:
            raise RequestLost("the connection broke")
        if kind is HazardKind.NO_CAPACITY:
            rule = {"platform": platform, "sent": dict(self.play.shortage), "capacity": True}
            for method in _WRITING_METHODS:
                self._add_fault(**rule, method=method, count=None)
        elif kind is HazardKind.QUOTA:
            for method in _WRITING_METHODS:
                self._add_fault(platform=platform, method=method, status=403, count=None)
        elif kind is HazardKind.RATE_LIMIT:
            headers = {"Retry-After": str(_RETRY_AFTER_S)}
            fault = {"method": point.method, "status": 429, "headers": headers}
            self._add_fault(**fault, count=_RATE_LIMITED_REQUESTS)
        elif kind is HazardKind.NEVER_READY:
            self._add_fault(method=point.method, stuck=True)
        elif kind is HazardKind.NO_CREDIT:
            _set_credit(self.server, is_exhausted=True)
            self.recorder.excused.update(self.excused)
        elif kind is HazardKind.NODE_FAILURE and self.play.owner is not None:
            self._break_node(self.play.owner, self.play.node)

    def _break_node(self, owner: Owner, node: str) -> None:
        """Break a node for good; its GPUs are no loss: they fail without the plan as well."""
        platform, name = owner
        state = self.recorder.read(self.server.clock.now())
        if (platform, name, node) not in state.nodes:
            return
        break_node(self.server, platform, name, node)
        self.recorder.failed_nodes.add((platform, name, node))
        after = self.recorder.read(self.server.clock.now())
        self.recorder.excused[owner] = state.working.get(owner, 0) - after.working.get(owner, 0)

    def _add_fault(self, **rule: Any) -> None:
        send_control(self.server, "POST", "faults", rule)


def find_credit_loss(
    server: Server, before: FleetState, recorder: FleetRecorder
) -> dict[Owner, int]:
    """Exhaust the credit now, and return the number of GPUs which stop, by owner."""
    _set_credit(server, is_exhausted=True)
    after = recorder.read(server.clock.now())
    return {
        owner: gpus - after.working.get(owner, 0)
        for owner, gpus in before.working.items()
        if gpus > after.working.get(owner, 0)
    }


def _set_credit(server: Server, *, is_exhausted: bool) -> None:
    for platform in _PLATFORMS_WITH_CREDIT:
        send_control(server, "POST", f"{platform}/credit", {"exhausted": is_exhausted})
