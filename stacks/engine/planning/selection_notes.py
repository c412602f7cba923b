"""What a selection takes along or leaves beside what it names, in words."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.stacks.engine.state import ResourceState, Selection, graph
from gpuform.stacks.engine.urn import is_noise, is_urn, name_of

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class SelectionNotes:
    """A selection and the run that it limits.

    `base` is the state that the last run left; `declared` has the URNs of the program, `touched`
    those of what the run changes.
    """

    selection: Selection
    operation: str
    base: Sequence[ResourceState]
    declared: Collection[str]
    touched: Collection[str]

    def sentences(self) -> Iterator[str]:
        """Sentences about resources that nobody named and that the selection decides about."""
        selection, base = self.selection, self.base
        named = selection.targets or selection.excludes
        urns = {each.urn for each in base if each.urn in named}
        kind = "--target" if selection.targets else "--exclude"
        given = [pair for pair in selection.flags() if pair[0].startswith(kind) and pair[1]]
        flags = " ".join(f"{flag} {_joined(map(_named, texts))}" for flag, texts in given)
        if selection.targets and selection.target_dependents:
            also = self._listed(graph.with_dependents(base, urns), urns)
            if also:
                yield f"{flags} --target-dependents also takes: {also}"
        elif selection.targets and self.operation == "update":
            changed = urns.intersection(self.touched)
            left = self._shown(graph.with_dependents(base, changed) - urns.union(self.touched))
            if left:
                one = len(left) == 1
                noun = "1 dependent as it is" if one else f"{len(left)} dependents as they are"
                yield f"{flags} leaves {noun}: {_joined(name_of(each.urn) for each in left)}"
        elif selection.excludes:
            kept = graph.with_dependents(base, urns) if selection.exclude_dependents else urns
            if self.operation != "refresh":
                kept = kept | (graph.with_needs(base, kept) - set(self.declared))
            also = self._listed(kept, urns)
            if also:
                yield f"{flags} also keeps: {also}"

    def _shown(self, urns: Collection[str]) -> list[ResourceState]:
        entries = (each for each in self.base if each.urn in urns and not each.delete)
        return [each for each in entries if not is_noise(each.type)]

    def _listed(self, urns: Collection[str], named: Collection[str]) -> str:
        """Those that nobody named, and what each needs or is needed by."""
        members = self._shown(urns)
        texts: list[str] = []
        places: dict[str, int] = {}
        for place, entry in enumerate(members):
            places.setdefault(entry.urn, place)
        users = {urn: found[0] for urn, found in graph.users(members).items()}
        for entry in members:
            if entry.urn in named:
                continue
            needs = min((places[urn] for urn in graph.needs(entry) if urn in places), default=None)
            needed = None if needs is None else members[needs]
            user = members[users[entry.urn]] if entry.urn in users else None
            if needed is not None and (user is None or needed.urn in named):
                texts.append(f"{name_of(entry.urn)} (needs {name_of(needed.urn)})")
            elif user is not None:
                texts.append(f"{name_of(entry.urn)} ({name_of(user.urn)} needs it)")
        return _joined(texts)


def _named(given: str) -> str:
    """As people know it: a URN by its name alone."""
    return name_of(given) if is_urn(given) else given


def _joined(texts: Iterable[str]) -> str:
    texts = list(texts)
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
