"""Follow the dependencies between the entries of a state, and select entries for a run.

The step generator, the step executor, `edits` and `state_move` follow, rename and drop references.
A run is limited to resources (`--target`, `--exclude`, `--replace`) by URN, pattern or unique name:
the step generator asks `SelectedResources`; state commands find single entries with `get_entries`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from gpuform.providers.values import ResourceReference
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import convert_leaves, find_reachable
from gpuform.stacks.engine.state.checkpoint import ResourceState
from gpuform.stacks.engine.urn import is_noise, type_of


def get_provider_urn(reference: str) -> str:
    """Return the URN in a provider reference, `<urn>::<id>`."""
    return reference.rpartition("::")[0]


def find_dependency_urns(resource: ResourceState, *, provider: bool = True) -> set[str]:
    """Return the URNs in the entry's dependencies, parent, `deleted_with` and `replace_with`.

    Args:
        resource: the entry.
        provider: with the URN of the entry's provider.
    """
    # The references that Pulumi's integrity check requires to stand earlier in a checkpoint.
    urns = set(resource.dependencies)
    for property_urns in resource.property_dependencies.values():
        urns.update(property_urns)
    urns.update(resource.replace_with)
    urns.update(urn for urn in (resource.parent, resource.deleted_with) if urn)
    if provider and resource.provider:
        urns.add(get_provider_urn(resource.provider))
    return urns


def index_dependents(resources: Sequence[ResourceState]) -> dict[str, list[int]]:
    """Return the indexes in `resources` of the direct dependents of each URN, by URN."""
    indexes_by_urn: dict[str, list[int]] = {}
    for index, resource in enumerate(resources):
        for urn in find_dependency_urns(resource):
            indexes_by_urn.setdefault(urn, []).append(index)
    return indexes_by_urn


def add_dependents(resources: Sequence[ResourceState], urns: Collection[str]) -> set[str]:
    """Return `urns` and the URNs of all direct and indirect dependents."""
    indexes = index_dependents(resources)
    return find_reachable(
        urns, lambda urn: [resources[index].urn for index in indexes.get(urn, ())]
    )


def add_dependencies(resources: Sequence[ResourceState], urns: Iterable[str]) -> set[str]:
    """Return `urns` and the URNs of all direct and indirect dependencies of live entries."""
    reached: set[str] = set()
    extend_with_dependencies(reached, index_live(resources), urns)
    return reached


def index_live(resources: Iterable[ResourceState]) -> dict[str, ResourceState]:
    """Return the entries not marked for deletion, by URN."""
    return {resource.urn: resource for resource in resources if not resource.delete}


def extend_with_dependencies(
    reached: set[str], entries: Mapping[str, ResourceState], urns: Iterable[str]
) -> None:
    """Add `urns` and all direct and indirect dependencies to `reached`.

    Args:
        reached: changed in place. Contains with each URN all its dependencies already, so that a
            URN in it needs no second visit.
        entries: the entries by URN.
        urns: the URNs to add.
    """
    waiting = [*urns]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting += find_dependency_urns(entries[urn]) if urn in entries else ()


def group_for_deletion(entries: Collection[ResourceState]) -> Iterator[list[ResourceState]]:
    """Yield groups of entries to delete together, dependents before dependencies.

    The members of a cycle are one group at the end, together with all their dependencies.
    """
    resources = list(entries)
    remaining_positions = set(range(len(resources)))
    positions_by_urn: dict[str, list[int]] = {}
    dependent_counts: Counter[str] = Counter()
    for position, resource in enumerate(resources):
        positions_by_urn.setdefault(resource.urn, []).append(position)
        dependent_counts.update(find_dependency_urns(resource) - {resource.urn})
    # Pulumi's antichains: the entries of one layer can be deleted in parallel.
    layer = [
        position
        for position, resource in enumerate(resources)
        if not dependent_counts[resource.urn]
    ]
    while layer:
        yield [resources[position] for position in layer]
        remaining_positions.difference_update(layer)
        following: list[int] = []
        for position in layer:
            resource = resources[position]
            for urn in find_dependency_urns(resource) - {resource.urn}:
                dependent_counts[urn] -= 1
                if not dependent_counts[urn]:
                    following += positions_by_urn.get(urn, ())
        layer = sorted(following)
    # A valid state has no cycle; the members of an invalid one are deleted together.
    if remaining_positions:
        yield [resources[position] for position in sorted(remaining_positions)]


def rename_references(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to all URNs outside of the properties."""

    def rename_all(urns: list[str]) -> list[str]:
        return [new(urn) for urn in urns]

    def rename_if_set(urn: str) -> str:
        return new(urn) if urn else ""

    provider = get_provider_urn(entry.provider)
    return replace(
        entry,
        urn=new(entry.urn),
        parent=rename_if_set(entry.parent),
        # A provider reference is the provider's URN, followed by `::` and the id.
        provider=entry.provider and new(provider) + entry.provider.removeprefix(provider),
        dependencies=rename_all(entry.dependencies),
        property_dependencies={
            k: rename_all(urns) for k, urns in entry.property_dependencies.items()
        },
        deleted_with=rename_if_set(entry.deleted_with),
        replace_with=rename_all(entry.replace_with),
        view_of=rename_if_set(entry.view_of),
    )


def rename_used_resources(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to the resource references in the properties.

    Secrets stay as they are, as under the Pulumi CLI.
    """

    def rename(value: Any) -> Any:
        return convert_leaves(
            value,
            lambda leaf: (
                replace(leaf, urn=new(leaf.urn)) if isinstance(leaf, ResourceReference) else leaf
            ),
        )

    return replace(
        entry,
        inputs=rename(entry.inputs),
        outputs=rename(entry.outputs),
        replacement_trigger=rename(entry.replacement_trigger),
    )


@dataclass(frozen=True, slots=True)
class DroppedReference:
    """A reference removed from an entry; `role` is Pulumi's word for the kind of reference."""

    entry: str
    role: str
    urn: str

    def describe(self) -> str:
        """Format a dropped reference as one line: entry, role and URN."""
        return f"{self.entry}: {self.role} {self.urn}"


def drop_references(
    entry: ResourceState, is_gone: Callable[[str], bool]
) -> tuple[ResourceState, list[DroppedReference]]:
    """Return the entry without references to missing resources, and the dropped references.

    Parents and providers stay: no entry is valid without them.
    """
    dropped: list[DroppedReference] = []

    def keep_existing(role: str, urns: list[str]) -> list[str]:
        dropped.extend(DroppedReference(entry.urn, role, urn) for urn in urns if is_gone(urn))
        return [urn for urn in urns if not is_gone(urn)]

    changed_entry = replace(
        entry,
        dependencies=keep_existing("dependency", entry.dependencies),
        property_dependencies={
            key: keep_existing(f"dependency of property {key!r}", urns)
            for key, urns in entry.property_dependencies.items()
        },
        replace_with=keep_existing("replaceWith", entry.replace_with),
        deleted_with="".join(
            keep_existing("deletedWith", [entry.deleted_with] if entry.deleted_with else [])
        ),
    )
    return (changed_entry if dropped else entry), dropped


class UrnPatterns:
    """URNs as users name them: complete, with `*` (within one part) and `**`, or by name alone."""

    def __init__(self, raw_patterns: Iterable[str] = ()) -> None:
        self.raw_patterns = tuple(dict.fromkeys(raw_patterns))
        self._literals = {pattern for pattern in self.raw_patterns if not _is_pattern(pattern)}
        regexes = [
            _to_regex(raw_pattern) for raw_pattern in self.raw_patterns if _is_pattern(raw_pattern)
        ]
        self._pattern = re.compile("|".join(regexes), re.DOTALL) if regexes else None

    def __bool__(self) -> bool:
        return bool(self.raw_patterns)

    def __contains__(self, urn: str) -> bool:
        if urn in self._literals:
            return True
        return self._pattern is not None and self._pattern.fullmatch(urn) is not None

    def find_unmatched(self, urns: Iterable[str]) -> list[str]:
        """Return the patterns without a match among the URNs."""
        known_urns = set(urns)
        candidates = (
            UrnPatterns([pattern]) for pattern in self.raw_patterns if pattern not in known_urns
        )
        return [
            candidate.raw_patterns[0]
            for candidate in candidates
            if not any(urn in candidate for urn in known_urns)
        ]


def find_nearest_urns(name_or_pattern: str, urns: Iterable[str]) -> list[str]:
    """Return the URNs probably meant by an unmatched name or pattern, the nearest first.

    For a name or URN these are at most three similar ones; for a pattern, those whose name matches.
    Of several URNs with one name, only the first is returned.
    """
    by_name: dict[str, str] = {}
    for urn in urns:
        by_name.setdefault(
            urn if name_or_pattern.startswith("urn:") else urn.rpartition("::")[2], urn
        )
    if "*" in name_or_pattern:
        name_patterns = UrnPatterns([f"**::{name_or_pattern}"])
        return [urn for urn in by_name.values() if urn in name_patterns]
    # Terraform and kubectl write the kind before the name: cluster.train, cluster/train.
    bare_name = re.split(r"[./]", name_or_pattern)[-1]
    if bare_name in by_name:
        return [by_name[bare_name]]
    return [by_name[name] for name in get_close_matches(name_or_pattern, by_name, n=3)]


def _is_pattern(pattern: str) -> bool:
    """Return True for a wildcard pattern or a name, False for a complete URN."""
    # A name alone matches the last part of any URN.
    return "*" in pattern or not pattern.startswith("urn:")


def _to_regex(pattern: str) -> str:
    """Convert a name, or a pattern with `*` and `**`, to a regular expression for URNs."""
    if "*" not in pattern:
        return f".*::{re.escape(pattern)}"
    # Pulumi's wildcards: `*` stays within one part of a URN, `**` does not.
    parts = ["[^:]*".join(map(re.escape, part.split("*"))) for part in pattern.split("**")]
    return f"(?:{'.*'.join(parts)})"


class NothingSelected(EngineError):
    """A selection that matches no resource; `texts` are the unmatched patterns as given."""

    def __init__(self, message: str, hint: str | None, texts: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.texts = tuple(texts)


@dataclass(frozen=True, slots=True)
class Selection:
    """The resources that a run is limited to; an empty selection is every resource.

    With `target_dependents` (`exclude_dependents`) the dependents of the targets (of the excluded
    resources) belong to them. `replace` names resources to replace whatever their inputs are.
    """

    targets: UrnPatterns = field(default_factory=UrnPatterns)
    excludes: UrnPatterns = field(default_factory=UrnPatterns)
    replace: UrnPatterns = field(default_factory=UrnPatterns)
    target_dependents: bool = False
    exclude_dependents: bool = False

    @property
    def is_limited(self) -> bool:
        """Return True if the run's selection leaves some resources unchanged."""
        return bool(self.targets) or bool(self.excludes)

    def find_unmatched_errors(
        self, urns: Iterable[str], where: str = "the stack"
    ) -> Iterator[NothingSelected]:
        """Yield an error with the nearest names for each pattern without a match among the URNs."""
        urns = list(urns)
        for flag, patterns in self.iterate_flags():
            for pattern in UrnPatterns(patterns).find_unmatched(urns):
                message = f"{flag} {pattern} matches no resource of {where}"
                yield NothingSelected(message, _format_suggestion(pattern, urns), [pattern])

    def require_matches(self, urns: Iterable[str]) -> None:
        """Raise NothingSelected if a pattern matches none of the URNs."""
        errors = list(self.find_unmatched_errors(urns))
        if errors:
            hints = dict.fromkeys(error.hint or "" for error in errors)
            message = "; ".join(error.message for error in errors)
            texts = [pattern for error in errors for pattern in error.texts]
            raise NothingSelected(message, "\n".join(hints), texts)

    def iterate_flags(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield each flag of the command for selections, with the flag's patterns or none.

        A pattern that is both a target and to be replaced belongs to --target-replace.
        """
        targets, replace = self.targets.raw_patterns, self.replace.raw_patterns
        both = [pattern for pattern in targets if pattern in replace]
        yield "--target-replace", both
        yield "--target", [pattern for pattern in targets if pattern not in both]
        yield "--replace", [pattern for pattern in replace if pattern not in both]
        yield "--exclude", self.excludes.raw_patterns


def _format_suggestion(pattern: str, urns: Iterable[str]) -> str:
    """Return a hint with the nearest names for an unmatched pattern."""
    nearest_urns = find_nearest_urns(pattern, (urn for urn in urns if not is_noise(type_of(urn))))
    if not nearest_urns:
        return (
            "write a URN, a name, or a pattern with * or **; `gpuform state list` lists the "
            "resources"
        )
    if "*" in pattern:
        names = ", ".join(urn.rpartition("::")[2] for urn in nearest_urns[:3])
        return f"a pattern is matched against complete URNs: '**::{pattern}' matches {names}"
    # All URNs of a stack look alike, so that only the nearest is worth a suggestion.
    if pattern.startswith("urn:"):
        return f"did you mean {nearest_urns[0]}?"
    return f"did you mean {' or '.join(urn.rpartition('::')[2] for urn in nearest_urns)}?"


@dataclass(slots=True)
class SelectedResources:
    """The resources of one run that a selection has matched so far, with dependents.

    Call `includes` in dependency order: a dependent is recognized by its dependencies.
    """

    selection: Selection
    _met: set[str] = field(default_factory=set)

    def includes(self, resource: ResourceState) -> bool:
        """Return True if the run may change `resource`, and remember a match for the dependents.

        Call in dependency order: a dependent is recognized only after its dependencies.
        """
        selection = self.selection
        if selection.targets:
            return self._is_matched(resource, selection.targets, selection.target_dependents)
        if selection.excludes:
            return not self._is_matched(resource, selection.excludes, selection.exclude_dependents)
        return True

    def _is_matched(self, resource: ResourceState, named: UrnPatterns, dependents: bool) -> bool:
        """Return True if the resource is named or, with `dependents`, depends on a matched one."""
        met = resource.urn in named or (
            dependents
            and any(urn in self._met or urn in named for urn in find_dependency_urns(resource))
        )
        if met:
            self._met.add(resource.urn)
        return met


def find_deletable_urns(selection: Selection, resources: Sequence[ResourceState]) -> set[str]:
    """Return the URNs free to be deleted under `selection`, by the state of the last run.

    Targets are deleted with all their dependents; an excluded resource stays with all its
    dependencies. With `exclude_dependents`, the dependents of excluded resources count as excluded.
    Without a selection all are free.
    """
    urns = {resource.urn for resource in resources}
    if selection.targets:
        named = {urn for urn in urns if urn in selection.targets}
        return add_dependents(resources, named)
    if selection.excludes:
        excluded_urns = {urn for urn in urns if urn in selection.excludes}
        if selection.exclude_dependents:
            excluded_urns = add_dependents(resources, excluded_urns)
        return urns - add_dependencies(resources, excluded_urns)
    return urns


class NoSuchResource(EngineError):
    """A name that matches no resource of the state, or more than one."""

    help_page = "guides/state-for-a-team"


def get_entries(entries: Sequence[ResourceState], name: str) -> list[ResourceState]:
    """Return the entries of one resource: the live one, and old ones marked for deletion.

    `name` is a name, a URN, or a pattern that matches one resource.

    Raises:
        NoSuchResource: no resource or several resources match; the hint has the nearest names.
    """
    patterns = UrnPatterns([name])
    matching_entries = [entry for entry in entries if entry.urn in patterns]
    urns = list(dict.fromkeys(entry.urn for entry in matching_entries))
    if len(urns) == 1:
        return matching_entries
    if urns:
        raise NoSuchResource(
            f"{name!r} is ambiguous: {len(urns)} resources match:" + _format_lines(urns),
            hint="pass the URN of one",
        )
    nearest_urns = find_nearest_urns(name, (entry.urn for entry in entries))
    raise NoSuchResource(
        f"the state has no resource {name!r}",
        hint=f"did you mean:{_format_lines(nearest_urns)}"
        if nearest_urns
        else "`gpuform state list` lists its resources",
    )


def get_live_entry(entries: Sequence[ResourceState], name: str) -> ResourceState:
    """Return the entry of a resource not marked for deletion. Raises NoSuchResource."""
    matching_entries = get_entries(entries, name)
    live = [entry for entry in matching_entries if not entry.delete]
    if not live:
        raise NoSuchResource(
            f"{matching_entries[0].urn} is pending deletion",
            hint="`gpuform up` deletes the resource",
        )
    return live[0]


def get_object_entry(entries: Sequence[ResourceState], name: str, id_: str | None) -> ResourceState:
    """Return the entry of one object; `id_` chooses among the objects of a resource.

    Raises:
        NoSuchResource: no resource matches, or `id_` is needed or unknown.
    """
    matching_entries = get_entries(entries, name)
    selected_entries = (
        matching_entries
        if id_ is None
        else [entry for entry in matching_entries if entry.id == id_]
    )
    if len(selected_entries) == 1:
        return selected_entries[0]
    ids = _format_lines(
        f"{e.id or '(no id)'}{' (waits for deletion)' * e.delete}" for e in matching_entries
    )
    if id_ is None:
        raise NoSuchResource(
            f"{matching_entries[0].urn} has {len(matching_entries)} objects:{ids}",
            hint="choose one with --id ID",
        )
    raise NoSuchResource(
        f"{matching_entries[0].urn} has no object {id_!r}", hint=f"its objects:{ids}"
    )


def _format_lines(lines: Iterable[str]) -> str:
    """Return each line indented, after a line break."""
    return "".join(f"\n  {line}" for line in lines)
