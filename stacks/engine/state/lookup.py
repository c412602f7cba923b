"""Entries of a state as people name them: by URN, or by a name that only one resource has."""

from collections.abc import Iterable, Sequence

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state.checkpoint import ResourceState
from gpuform.stacks.engine.state.targeting import UrnPatterns, nearest


class NoSuchResource(EngineError):
    """Nothing in the state is called that, or more than one resource is."""

    page = "guides/state-for-a-team"


def locate(entries: Sequence[ResourceState], given: str) -> list[ResourceState]:
    """The entries of one resource: one, and those of its old objects that wait for deletion.

    Raises NoSuchResource, with the nearest names.
    """
    patterns = UrnPatterns([given])
    found = [entry for entry in entries if entry.urn in patterns]
    urns = list(dict.fromkeys(entry.urn for entry in found))
    if len(urns) == 1:
        return found
    if urns:
        raise NoSuchResource(
            f"{given!r} could be any of {len(urns)} resources:" + _lines(urns),
            hint="name one by its URN",
        )
    near = nearest(given, (entry.urn for entry in entries))
    raise NoSuchResource(
        f"the state has no resource {given!r}",
        hint=f"did you mean:{_lines(near)}" if near else "`gpuform state list` shows what it has",
    )


def locate_live(entries: Sequence[ResourceState], given: str) -> ResourceState:
    """The entry of a resource that does not wait for deletion. Raises NoSuchResource."""
    found = locate(entries, given)
    live = [entry for entry in found if not entry.delete]
    if not live:
        raise NoSuchResource(
            f"{found[0].urn} only waits for its deletion", hint="`gpuform up` deletes it"
        )
    return live[0]


def locate_object(entries: Sequence[ResourceState], given: str, id_: str | None) -> ResourceState:
    """The entry of one object: of a resource with old objects, the one with this id.

    Raises NoSuchResource.
    """
    found = locate(entries, given)
    wanted = found if id_ is None else [entry for entry in found if entry.id == id_]
    if len(wanted) == 1:
        return wanted[0]
    ids = _lines(f"{e.id or '(no id)'}{' (waits for deletion)' * e.delete}" for e in found)
    if id_ is None:
        raise NoSuchResource(
            f"{found[0].urn} stands for {len(found)} objects:{ids}", hint="choose one with --id ID"
        )
    raise NoSuchResource(f"{found[0].urn} has no object {id_!r}", hint=f"it has:{ids}")


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)
