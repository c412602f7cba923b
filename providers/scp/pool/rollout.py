"""Replaces nodes of a pool some at a time: the next ones when the last ones take jobs again.

So does a repair: there the nodes that are broken anyway, and are left so, do not count as away.

The old nodes go before the new ones come, for there are no spare GPUs. Nothing is remembered: what
the nodes are tells what is left to do, so that a killed rollout goes on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.draining import Worker
from gpuform.providers.errors import GpuformError
from gpuform.providers.scp.nodes import NodeTaking, Plan, Replacement, is_leaving, replacement
from gpuform.schemas.policies.drain import Leaving, PoolDrainInputs
from gpuform.schemas.policies.repair import RolloutInputs
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_AT_REST, NODE_FAILED

STEP: Final = 7200.0
"""Seconds until a step's nodes have to be there: the official Terraform provider waits as long."""

JOIN: Final = 1800.0
"""Seconds until a node that is RUNNING has to have joined its scheduler."""

_SHOWN: Final = 12


@dataclass(frozen=True)
class Pace:
    """How fast nodes are replaced: as a `rollout` declares it, and `parallel` repairs at a time.

    `broken` are the nodes that are broken and stay so.
    """

    rollout: RolloutInputs | None = None
    parallel: int | None = None
    broken: Collection[str] = field(default=())

    def __bool__(self) -> bool:
        return self.rollout is not None or self.parallel is not None

    def room(self, nodes: int) -> int:
        """How many of so many nodes may be away at a time."""
        rooms = [] if self.rollout is None else [self.rollout.room(nodes)]
        return min([*rooms, *([] if self.parallel is None else [self.parallel])])

    @property
    def seconds(self) -> float:
        """The pause after each step."""
        return 0.0 if self.rollout is None else self.rollout.seconds

    @property
    def stops(self) -> bool:
        """Whether nothing more is replaced once a new node has failed."""
        return self.rollout is None or self.rollout.on_failure != "continue"


class Rollout:
    """The replacements of one call.

    `is_due` is asked right before a node is taken, whether it is to be replaced yet.
    """

    def __init__(
        self,
        call: ProviderContext,
        pace: Pace,
        taking: NodeTaking,
        is_due: Callable[[Replacement], bool] = lambda _: True,
    ) -> None:
        self._call = call
        self._pace = pace
        self._taking = taking
        self._is_still_due = is_due
        self._batch: Sequence[str] = ()
        self._replaced = set[str]()
        self._is_due = False
        self._changing: dict[str, float] = {}
        self._joining: dict[str, float] = {}
        self.is_joining = False

    def patience(self, found: Plan) -> float:
        """Seconds that these replacements may take, without the waits for jobs."""
        if not self._pace:
            return 0.0
        return len(found.replace) * (STEP + JOIN + self._pace.seconds)

    def ordered(self, leaving: Leaving | None) -> Leaving | None:
        """The nodes that go in the order in which they would go now."""
        if not self._pace or leaving is None:
            return leaving
        nodes = sorted(leaving.nodes, key=lambda node: bool(node.jobs))
        return leaving.model_copy(update={"nodes": tuple(nodes)})

    def step(self, found: Plan, nodes: Sequence[NodeOutputs], refused: Mapping[str, str]) -> Plan:
        """The plan with those replacements alone that may begin now; the others wait.

        `refused` has, by name, why the platform did not make or delete a node. Sleeps for the pause
        between two steps. Raises GpuformError when the next one must not begin, or the scheduler
        cannot be asked.
        """
        if not self._pace or not (found.replace or self._batch):
            return found
        left = [each for each in found.replace if each.name not in refused]
        found = replace(found, replace=left)
        begun = [each for each in left if each.name in self._batch]
        if begun:
            return _only(found, begun)
        held = _only(found, ())
        if self._is_changing(found, nodes, refused):
            return held
        if not {each.name for each in left} & {*self._taking.chosen}:
            self._taking.conclude(nodes)
        workers = _by_name(self._taking.seen(nodes))
        away = self._away(found, workers, refused)
        if self.is_joining:
            return held
        room = self._pace.room(len(nodes)) - len(away)
        kept = {
            name: f"was not deleted ({why})"
            for name, why in refused.items()
            if name in self._replaced
        }
        self._refuse_to_go_on({**kept, **away}, left, room)
        if not left:
            return held
        if self._is_due:
            self._is_due = False
            self._wait(self._pace.seconds)
            return held
        first = self._first(left, workers, _within(room, nodes))
        if not first:
            return held
        self._batch = [each.name for each in first]
        self._replaced.update(self._batch)
        self._is_due = True
        return _only(found, first)

    def _first(
        self, left: Sequence[Replacement], workers: Mapping[str, Worker] | None, room: int
    ) -> list[Replacement]:
        found: list[Replacement] = []
        for each in sorted(left, key=lambda each: self._rank(each, workers)):
            if len(found) < room and self._is_still_due(each):
                found.append(each)
        return found

    def _is_changing(
        self, found: Plan, nodes: Sequence[NodeOutputs], refused: Collection[str]
    ) -> bool:
        """Whether nodes come or go, so that more of them are away than will be."""
        names = {wanted.name for wanted in found.create} - {*refused}
        names |= {node.gpu_node_name for node in nodes if is_leaving(node.state)}
        settled = NODE_AT_REST | NODE_FAILED
        names |= {node.gpu_node_name for node, _ in found.keep if node.state not in settled}
        now = self._call.clock.now()
        self._changing = {name: self._changing.get(name, now) for name in sorted(names)}
        late = [name for name, since in self._changing.items() if now - since > STEP]
        if late:
            raise GpuformError(f"{_listed(late)} did not come back in {format_duration(STEP)}")
        return bool(names)

    def _away(
        self, found: Plan, workers: Mapping[str, Worker] | None, refused: Mapping[str, str]
    ) -> dict[str, str]:
        """The nodes that take no jobs and are not about to be replaced, and why."""
        missing = [each.name for each in found.create if each.name in refused]
        away = {name: f"was refused ({refused[name]})" for name in missing}
        self.is_joining = False
        # Those that are broken anyway do not count where nodes are only repaired.
        is_broken = self._pace.broken if self._pace.parallel is not None else ()
        for node, wanted in found.keep:
            name = node.gpu_node_name
            if name in is_broken and name not in self._replaced:
                continue
            if node.state in NODE_FAILED:
                away[name] = f"is {node.state}"
            elif replacement(node, wanted):
                away[name] = "was made otherwise than declared"
            elif wanted.state == "RUNNING" and workers is not None and _is_useless(workers, name):
                away[name] = "has not joined its scheduler"
                now = self._call.clock.now()
                self.is_joining |= now - self._joining.setdefault(node.id, now) < JOIN
        return away

    def _refuse_to_go_on(
        self, away: Mapping[str, str], left: Sequence[Replacement], room: int
    ) -> None:
        failed = away.keys() & self._replaced
        stops = self._pace.stops or not left
        if not (failed and stops) and (room > 0 or not left):
            return
        reasons = "; ".join(f"{name} {why}" for name, why in sorted(away.items()))
        waiting = [each.name for each in left]
        if not waiting:
            raise GpuformError(reasons)
        what, limit = ("rollout", "rollout.max_unavailable")
        if all(each.is_repair for each in left):
            what, limit = ("repair", "repair.max_parallel")
        raise GpuformError(
            f"the {what} has stopped: {reasons}; {_listed(waiting)} is as before",
            hint=f"run it again to go on when that is well, or raise {limit}",
        )

    def _rank(
        self, each: Replacement, workers: Mapping[str, Worker] | None
    ) -> tuple[bool, bool, bool, str]:
        """Who goes first: whom an earlier run chose, who is out of use, who has no job."""
        worker = (workers or {}).get(each.name)
        is_failed = each.node.state in NODE_FAILED
        is_failed |= workers is not None and _is_useless(workers, each.name)
        has_jobs = worker is not None and bool(worker.jobs)
        return each.name not in self._taking.chosen, not is_failed, has_jobs, each.name

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._call.on_progress(f"pausing for {format_duration(seconds)}")
            self._call.sleep(seconds)


def rollout_text(declared: Mapping[str, Any], found: Plan, nodes: int) -> str:
    """How these replacements go in a pool of so many nodes; empty where they are no rollout."""
    if declared.get("rollout") is None or not found.replace:
        return ""
    wanted = RolloutInputs.model_validate(declared["rollout"])
    drain = PoolDrainInputs.model_validate(declared.get("drain") or {})
    names = [each.name for each in found.replace]
    room = min(wanted.room(nodes), len(names))
    steps, asked = -(-len(names) // room), drain.has_scheduler
    waits = drain.patience if asked and drain.policy != "fail" else 0.0
    longest = steps * (waits + STEP + (JOIN if asked else 0.0)) + (steps - 1) * wanted.seconds
    order = ", those without jobs first" if asked and steps > 1 else ""
    return f"{room} at a time: {_listed(names)}{order}; it takes {format_duration(longest)} at most"


def _only(found: Plan, these: Sequence[Replacement]) -> Plan:
    waiting = [each for each in found.replace if each not in these]
    return replace(found, replace=these, waiting=waiting)


def _by_name(workers: Sequence[Worker] | None) -> Mapping[str, Worker] | None:
    return None if workers is None else {each.name: each for each in workers}


def _is_useless(workers: Mapping[str, Worker], name: str) -> bool:
    """Whether its scheduler does not know it, or cannot use it."""
    worker = workers.get(name)
    return worker is None or worker.scheduled is None or worker.scheduled.is_failed


def _within(room: int, nodes: Sequence[NodeOutputs]) -> int:
    """A fabric ends with its last node: one stays, where there is one."""
    return max(1, min(room, len(nodes) - 1))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
