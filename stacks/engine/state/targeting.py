"""Select a run's resources (`--target`, `--exclude`, `--replace`), by URN or by a unique name."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import ResourceState
from gpuform.stacks.engine.urn import is_noise, type_of


class UrnPatterns:
    """URNs as people name them: whole, with `*` (within a part) and `**`, or by the name alone."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        self.given = tuple(dict.fromkeys(given))
        self._literals = {text for text in self.given if not _is_pattern(text)}
        patterns = [_expression(text) for text in self.given if _is_pattern(text)]
        self._pattern = re.compile("|".join(patterns), re.DOTALL) if patterns else None

    def __bool__(self) -> bool:
        return bool(self.given)

    def __contains__(self, urn: str) -> bool:
        if urn in self._literals:
            return True
        return self._pattern is not None and self._pattern.fullmatch(urn) is not None

    def missing(self, urns: Iterable[str]) -> list[str]:
        """What was given and fits none of the URNs."""
        known = set(urns)
        unknown = (UrnPatterns([text]) for text in self.given if text not in known)
        return [each.given[0] for each in unknown if not any(urn in each for urn in known)]


def nearest(given: str, urns: Iterable[str]) -> list[str]:
    """The URNs that somebody may have meant by what fits none of them, the nearest first.

    A pattern is matched with whole URNs; one that would fit names was meant for these.
    """
    by_name: dict[str, str] = {}
    for urn in urns:
        by_name.setdefault(urn if given.startswith("urn:") else urn.rpartition("::")[2], urn)
    if "*" in given:
        meant = UrnPatterns([f"**::{given}"])
        return [urn for urn in by_name.values() if urn in meant]
    return [by_name[name] for name in get_close_matches(given, by_name, n=3)]


def _is_pattern(text: str) -> bool:
    return "*" in text or not text.startswith("urn:")


def _expression(text: str) -> str:
    if "*" not in text:
        return f".*::{re.escape(text)}"
    parts = ["[^:]*".join(map(re.escape, part.split("*"))) for part in text.split("**")]
    return f"(?:{'.*'.join(parts)})"


class NothingSelected(EngineError):
    """What was selected is nowhere; `texts` is that, as it was given."""

    def __init__(self, message: str, hint: str | None, texts: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.texts = tuple(texts)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a run is limited to, as given; nothing given is everything.

    With `target_dependents` (`exclude_dependents`) it is also what depends on the targets (the
    excluded). `replace` names resources to be replaced whatever their inputs say.
    """

    targets: UrnPatterns = field(default_factory=UrnPatterns)
    excludes: UrnPatterns = field(default_factory=UrnPatterns)
    replace: UrnPatterns = field(default_factory=UrnPatterns)
    target_dependents: bool = False
    exclude_dependents: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether some resources are left as they are."""
        return bool(self.targets) or bool(self.excludes)

    def unmatched(self, urns: Iterable[str], where: str = "the stack") -> Iterator[NothingSelected]:
        """An error for each thing given that fits none of the URNs, with the nearest names."""
        urns = list(urns)
        for flag, given in self.flags():
            for text in UrnPatterns(given).missing(urns):
                message = f"{flag} {text} fits no resource of {where}"
                yield NothingSelected(message, _meant(text, urns), [text])

    def require(self, urns: Iterable[str]) -> None:
        """Raises NothingSelected when something given fits none of the URNs."""
        errors = list(self.unmatched(urns))
        if errors:
            hints = dict.fromkeys(error.hint or "" for error in errors)
            message = "; ".join(each.message for each in errors)
            texts = [text for each in errors for text in each.texts]
            raise NothingSelected(message, "\n".join(hints), texts)

    def flags(self) -> Iterator[tuple[str, Sequence[str]]]:
        """What was given, by flag; what is a target and to be replaced is of one flag."""
        targets, replace = self.targets.given, self.replace.given
        both = [text for text in targets if text in replace]
        yield "--target-replace", both
        yield "--target", [text for text in targets if text not in both]
        yield "--replace", [text for text in replace if text not in both]
        yield "--exclude", self.excludes.given


def _meant(given: str, urns: Iterable[str]) -> str:
    near = nearest(given, (urn for urn in urns if not is_noise(type_of(urn))))
    if not near:
        return "`gpuform state list` shows what there is; a URN, a name, or a pattern with * or **"
    if "*" in given:
        names = ", ".join(urn.rpartition("::")[2] for urn in near[:3])
        return f"a pattern is for whole URNs: '**::{given}' fits {names}"
    if given.startswith("urn:"):  # all of a stack's are much alike
        return f"did you mean {near[0]}?"
    return f"did you mean {' or '.join(urn.rpartition('::')[2] for urn in near)}?"


@dataclass(slots=True)
class Chosen:
    """The resources of one run that a selection has met so far, dependents included.

    Resources are to be shown in an order in which what they need comes first.
    """

    selection: Selection
    _met: set[str] = field(default_factory=set)

    def includes(self, resource: ResourceState) -> bool:
        """Whether the run is to touch a resource."""
        selection = self.selection
        if selection.targets:
            return self._meets(resource, selection.targets, selection.target_dependents)
        if selection.excludes:
            return not self._meets(resource, selection.excludes, selection.exclude_dependents)
        return True

    def _meets(self, resource: ResourceState, named: UrnPatterns, dependents: bool) -> bool:
        met = resource.urn in named or (
            dependents and any(urn in self._met or urn in named for urn in graph.needs(resource))
        )
        if met:
            self._met.add(resource.urn)
        return met


def deletable(selection: Selection, resources: Sequence[ResourceState]) -> set[str]:
    """The URNs that a delete phase may delete, by the state that the last run left.

    Targets are deleted with all that needs them; what is excluded stays with all that it needs.
    """
    urns = {resource.urn for resource in resources}
    if selection.targets:
        named = {urn for urn in urns if urn in selection.targets}
        return graph.with_dependents(resources, named)
    if selection.excludes:
        kept = {urn for urn in urns if urn in selection.excludes}
        if selection.exclude_dependents:
            kept = graph.with_dependents(resources, kept)
        return urns - graph.with_needs(resources, kept)
    return urns


class NoSuchResource(EngineError):
    """Nothing in the state is called that, or more than one resource is."""

    help_page = "guides/state-for-a-team"


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
