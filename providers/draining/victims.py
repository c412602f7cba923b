"""Which nodes go when there are to be fewer. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.draining.schedulers import ScheduledNode
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RunningJob

PATH: Final = "drain.nodes"

_SHOWN: Final = 20


@dataclass(frozen=True)
class Worker:
    """A node that could go, under its platform's name.

    `aliases` are other names by which it may be named, or known to the scheduler, as by its
    `addresses`. `is_failed` is the platform's word. `scheduled` is what the scheduler says of it;
    None: it does not know it, or `doubt` says why nobody can tell which of its nodes it is.
    """

    name: str
    aliases: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    is_failed: bool = False
    scheduled: ScheduledNode | None = None
    doubt: str = ""

    @property
    def jobs(self) -> tuple[RunningJob, ...]:
        """The jobs that run on it."""
        return self.scheduled.jobs if self.scheduled else ()

    @property
    def is_cordoned(self) -> bool:
        """Whether its scheduler gives it no new jobs."""
        return self.scheduled is not None and self.scheduled.is_cordoned

    def is_called(self, name: str) -> bool:
        """Whether it has this name."""
        return name == self.name or name in self.aliases


@dataclass(frozen=True)
class Victim:
    """A node that goes, and why this one: named, failed, cordoned, idle or newest."""

    worker: Worker
    because: str


def choose(workers: Sequence[Worker], count: int, named: Sequence[str] = ()) -> list[Victim]:
    """The `count` nodes that go: the named ones, else those that are missed least.

    That is failed ones, then cordoned ones, then idle ones, then the newest; among equals those
    without jobs, then the newest, which without a time are the last of `workers`. Names are those
    that `problems` has nothing against.
    """
    if named:
        chosen = [each for name in named for each in workers if each.is_called(name)]
        return [Victim(each, "named") for each in chosen]
    ages = {id(each): (_joined(each), at) for at, each in enumerate(workers)}
    newest = sorted(workers, key=lambda each: ages[id(each)], reverse=True)
    ranked = sorted(newest, key=lambda each: (_RANKS.index(_rank(each)), bool(each.jobs)))
    return [Victim(each, _rank(each)) for each in ranked[:count]]


def problems(present: Sequence[Worker], count: int, named: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the names of the nodes that are to go; none is no problem."""
    known = ", ".join(each.name for each in present[:_SHOWN])
    known += ", ..." if len(present) > _SHOWN else ""
    found: list[Worker | None] = []
    for at, name in enumerate(named):
        meant = next((each for each in present if each.is_called(name)), None)
        if meant is None:
            yield Problem(f"{PATH}[{at}]", f"there is no node {name}; there are {known}")
        elif meant in found:
            yield Problem(f"{PATH}[{at}]", f"{name} is a node that is named before")
        found.append(meant)
    if named and len(named) != count:
        nodes = "node goes" if count == 1 else "nodes go"
        yield Problem(
            PATH,
            f"names {len(named)}, and {count} {nodes}: name as many, or none to let them be chosen",
        )


_RANKS: Final = ("failed", "cordoned", "idle", "newest")


def _rank(worker: Worker) -> str:
    if worker.is_failed or (worker.scheduled and worker.scheduled.is_failed):
        return "failed"
    if worker.is_cordoned:
        return "cordoned"
    return "newest" if worker.jobs else "idle"


def _joined(worker: Worker) -> float:
    since = worker.scheduled.since if worker.scheduled else None
    return since or 0.0
