"""Putting a state right that breaks the integrity rules, as far as `pulumi state repair` does.

Entries are sorted, references to what is not there are dropped. What cannot be put right without
losing something stays, and is told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.engine import urn
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import graph, integrity
from gpuform.stacks.engine.state.checkpoint import Manifest, ResourceState, Snapshot, magic_of
from gpuform.stacks.engine.state.graph import DroppedReference, rename_references, without


class NotRepairable(EngineError):
    """The state breaks a rule in a way that only a person can put right."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Repair:
    """A state that keeps the rules, and a line for each thing that was done to it."""

    snapshot: Snapshot
    done: list[str]


def repair(snapshot: Snapshot) -> Repair:
    """Puts a state right; a sound one stays as it is.

    Raises NotRepairable, with all that is wrong still.
    """
    if not integrity.verify(snapshot):
        return Repair(snapshot, [])
    done = []
    if snapshot.manifest.magic != magic_of(snapshot.manifest.version):
        done.append("the manifest's magic is made anew")
    done += [f"{name}: placed behind what it needs" for name in _too_early(snapshot.resources)]
    ordered = _sorted(snapshot.resources)
    pruned = list(_pruned(ordered, done))
    repaired = replace(snapshot, resources=pruned, manifest=Manifest())
    violations = integrity.verify(repaired)
    if violations:
        raise NotRepairable(
            "the state cannot be repaired without losing something:\n  " + "\n  ".join(violations),
            hint="Bring back an earlier state with `gpuform state repair --from-backup`, or "
            "correct it: `gpuform stack export --file F`, edit F, `gpuform stack import --file F`.",
        )
    return Repair(repaired, done)


def _too_early(entries: Sequence[ResourceState]) -> Iterator[str]:
    first = {entry.urn: place for place, entry in reversed([*enumerate(entries)])}
    for place, entry in enumerate(entries):
        if any(first.get(name, 0) > place for name in graph.needs(entry)):
            yield entry.urn


def _sorted(entries: Sequence[ResourceState]) -> list[ResourceState]:
    """Everything behind what it needs, and otherwise in the order that it had."""
    news = {entry.urn: entry for entry in entries if not entry.delete}
    olds = {entry.urn: entry for entry in entries if entry.delete}

    def needed(entry: ResourceState) -> Iterator[ResourceState]:
        # Old objects were made when there were no new ones.
        first, second = (olds, news) if entry.delete else (news, olds)
        for name in sorted(graph.needs(entry)):
            found = first.get(name) or second.get(name)
            if found is not None and found is not entry:
                yield found

    done: dict[int, ResourceState] = {}
    for root in entries:
        path = [(root, needed(root))]
        on_path = {id(root)}
        while path:
            entry, others = path[-1]
            following = next((o for o in others if id(o) not in done), None)
            if following is None:
                done.setdefault(id(entry), entry)
                path.pop()
                on_path.discard(id(entry))
                continue
            if id(following) in on_path:
                raise _cycle([e for e, _ in path], following)
            on_path.add(id(following))
            path.append((following, needed(following)))
    return list(done.values())


def _cycle(path: Sequence[ResourceState], back: ResourceState) -> NotRepairable:
    start = next(place for place, entry in enumerate(path) if entry is back)
    names = [entry.urn for entry in path[start:]]
    return NotRepairable(
        "the state cannot be repaired: these need each other in a circle:\n  " + "\n  ".join(names),
        hint="Bring back an earlier state with `gpuform state repair --from-backup`.",
    )


def _pruned(entries: Sequence[ResourceState], done: list[str]) -> Iterator[ResourceState]:
    """The entries without references to what is not there; `done` tells of each.

    A resource whose parent is gone stands under the stack: its URN loses the parent's type, and so
    do those of its children.
    """
    seen: dict[str, str] = {}
    for entry in entries:
        freed, dropped = without(entry, lambda name: name not in seen)
        current = rename_references(freed, lambda name: seen.get(name, name))
        current.urn = _urn_under(entry, seen)
        if entry.parent and entry.parent not in seen:
            dropped.append(DroppedReference(entry.urn, "parent", entry.parent))
            current.parent = ""
        done += [f"dropped: {each.describe()}, {_why(each)}" for each in dropped]
        if current.urn != entry.urn:
            done.append(f"{entry.urn} becomes {current.urn}")
        seen[entry.urn] = current.urn
        yield current


def _why(dropped: DroppedReference) -> str:
    return "which is itself" if dropped.urn == dropped.entry else "which is not there"


def _urn_under(entry: ResourceState, seen: dict[str, str]) -> str:
    """The URN as it follows from the parent, where that is gone or has another."""
    if not entry.parent or seen.get(entry.parent) == entry.parent or not urn.is_urn(entry.urn):
        return entry.urn
    return urn.under(entry.urn, seen.get(entry.parent, ""))
