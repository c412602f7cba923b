"""Match registrations to old state entries by URN or alias, and find Pulumi's dependent
replacements.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import steps
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Alias, Read, Registration, UrnParts, alias_urns
from gpuform.stacks.engine.state import ResourceState, graph
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.values import UNKNOWN


@dataclass(frozen=True, slots=True)
class DependentReplacement:
    """A dependent that cannot outlive the resource, and the properties that say so."""

    resource: ResourceState
    keys: Sequence[str] = ()


@dataclass(slots=True)
class DependentReplacements:
    """The dependents among the entries that the last run left, in their order."""

    base: Sequence[ResourceState]
    host: ProviderHost
    _users: dict[str, list[int]] = field(default_factory=dict)

    def of(self, root: ResourceState, spared: Collection[str]) -> list[DependentReplacement]:
        """The dependents that are replaced together with `root`, in the order of the state.

        Not those in `spared`: what this run has dealt with does not depend on `root` any more.
        A dependent is, when it is `deleted_with` a replaced resource, when `root` itself is in its
        `replace_with`, or when a property that comes from a replaced one asks for its replacement.
        So is what waits for its deletion, unless it is protected.
        """
        return self._found(root, spared)[0]

    def compare(
        self, roots: Iterable[ResourceState], spared: Collection[str]
    ) -> Iterator[tuple[str, EngineError]]:
        """Asks the providers what would be replaced with each root; the URNs of which they cannot
        tell, and why.

        Where each of what is replaced needs only one other, its own dependents are known with it.
        """
        known: set[str] = set()
        for root in roots:
            if root.urn in known:
                continue
            try:
                known |= self._found(root, spared)[1]
            except EngineError as error:
                yield root.urn, error

    def _found(
        self, root: ResourceState, spared: Collection[str]
    ) -> tuple[list[DependentReplacement], set[str]]:
        """The dependents; and the URNs of the replaced where no dependent needs two of them."""
        if not self._users:
            self._users = graph.index_dependents(self.base)
        replaced = {root.urn}
        found: list[DependentReplacement] = []
        # Only what needs a replaced one can be: the others need not be looked at.
        waiting = [*self._users.get(root.urn, ())]  # a heap, of each place once
        met = set(waiting)
        while waiting:
            place = heapq.heappop(waiting)
            dependent = self.base[place]
            if dependent.urn == root.urn or dependent.urn in spared:
                continue
            if not _can_be_replaced(dependent):
                continue
            keys = self._keys(dependent, replaced)
            if keys is not None:
                replaced.add(dependent.urn)
                found.append(DependentReplacement(dependent, keys))
                for user in self._users.get(dependent.urn, ()):
                    if user > place and user not in met:
                        met.add(user)
                        heapq.heappush(waiting, user)
            elif root.urn in dependent.replace_with and not dependent.delete:
                found.append(DependentReplacement(dependent, ["replace_with"]))
        asked = (self.base[place] for place in met)
        is_tree = all(len(graph.find_dependency_urns(each) & replaced) == 1 for each in asked)
        return found, replaced if is_tree else set()

    def _keys(self, dependent: ResourceState, replaced: set[str]) -> Sequence[str] | None:
        """The properties that ask for its replacement; None when it stays."""
        if not dependent.custom:
            return None
        if dependent.deleted_with in replaced:
            return ["deleted_with"]
        touched = [
            key
            for key, urns in dependent.property_dependencies.items()
            if key in dependent.inputs and not replaced.isdisjoint(urns)
        ]
        if not touched:
            return None
        goal = replace(dependent, inputs={**dependent.inputs, **dict.fromkeys(touched, UNKNOWN)})
        diff = steps.compare(self.host, replace(dependent, init_errors=[]), goal)
        return diff.replaces or None


def _can_be_replaced(dependent: ResourceState) -> bool:
    if dependent.external or is_provider(dependent.type):
        return False
    return not (dependent.delete and dependent.protect)


@dataclass(slots=True)
class OldEntries:
    """The live entries that the last run left, and who has taken which of them.

    `seen` holds the registrations and reads of this run by URN, `renamed` the new URN of each
    entry that was found by an alias.
    """

    stack: str
    project: str
    entries: dict[str, ResourceState]
    seen: dict[str, Registration | Read] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    _used_aliases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def among(cls, stack: str, project: str, base: Iterable[ResourceState]) -> "OldEntries":
        return cls(stack, project, {entry.urn: entry for entry in base if not entry.delete})

    def take(self, declared: Registration | Read) -> ResourceState | None:
        """The entry that a resource of the program stands for, None for a new one.

        Raises EngineError when another resource of this run has its URN or that entry.
        """
        first = self.seen.get(declared.urn)
        if first is not None:
            raise EngineError(
                f"two resources have the URN {declared.urn}: one from {first.place}, one from "
                f"{declared.place}",
                hint="give one of them another name",
            )
        self.seen[declared.urn] = declared
        taker = self.renamed.get(declared.urn)
        if taker is not None:
            raise EngineError(
                f"{declared.urn} is declared at {declared.place}, and {taker} already has it as "
                "an alias",
                hint="remove the alias, or give the new resource another name",
            )
        for urn in (declared.urn, *self._aliases(declared)):
            if urn in self.entries:
                if urn != declared.urn:
                    self._rename(urn, declared)
                return self.entries[urn]
        return None

    def keep_name(self, old: ResourceState, declared: Registration | Read) -> None:
        """An entry that was found by an alias is not touched: it keeps the name that it has."""
        if self.renamed.pop(old.urn, None) is not None:
            self.seen[old.urn] = declared

    def _aliases(self, declared: Registration | Read) -> Sequence[str]:
        named = UrnParts(self.stack, self.project, declared.parent, declared.type, declared.name)
        own: Sequence[Alias] = declared.aliases if isinstance(declared, Registration) else ()
        return alias_urns(named, own, self._used_aliases)

    def _rename(self, alias: str, declared: Registration | Read) -> None:
        taker = alias if alias in self.seen else self.renamed.get(alias)
        if taker is not None:
            raise EngineError(
                f"{declared.urn} has the alias {alias}, which {taker} in this program stands for "
                "already",
                hint="remove the alias, or that other resource",
            )
        self.renamed[alias] = declared.urn
        self._used_aliases[declared.urn] = alias
