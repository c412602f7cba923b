"""Compare what `gpuform explain` says of an object with what a test knows of its runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from gpuform.schemas.timeline import LifeEvent
from gpuform.stacks.engine.store import Backend, read_sealed
from gpuform.stacks.explain.life import derive_events
from gpuform.stacks.explain.recorded_runs import list_stored_objects, read_recorded_runs

LifeEnd = Literal["created", "deleted"]

_EXPLAINED: Final[Mapping[LifeEnd, Collection[str]]] = {
    "created": ("created", "added", "imported", "read"),
    "deleted": ("deleted", "removed", "missing", "forgotten"),
}


def read_events(backend: Backend, project: str, stack: str) -> list[LifeEvent]:
    """Return everything that a stack's history and state say about its objects."""
    present = read_sealed(backend, project, stack).snapshot.resources
    runs = read_recorded_runs(backend.open_history(project, stack))
    return derive_events(runs, list_stored_objects(present))


def select_events(events: Sequence[LifeEvent], object_id: str) -> list[LifeEvent]:
    """Return the events of one object or node."""
    return [event for event in events if object_id in (event.id, event.node_id)]


def find_wrong_end(
    label: str, end: LifeEnd, runs: Collection[int], events: Sequence[LifeEvent]
) -> Iterator[str]:
    """Yield a text if the events name none of the runs that have created or deleted the object."""
    named = {
        number
        for event in events
        if event.action in _EXPLAINED[end]
        for number in (event.run, *event.begun_by)
    }
    if not named & {*runs}:
        shown = [(it.action, it.run, it.begun_by, it.node) for it in events]
        yield f"{label} was {end} by one of the runs {runs}, not by {shown}"
