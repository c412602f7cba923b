"""Match registrations to old state entries, and find Pulumi's dependent replacements.

The step generator calls this module for every registration, and before every replacement in which
the old object is deleted first. The provider host compares dependents with their changed inputs.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuform.providers.values import UNKNOWN
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning import steps
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Alias, Read, Registration, UrnParts, list_alias_urns
from gpuform.stacks.engine.state import ResourceState, graph
from gpuform.stacks.engine.urn import is_provider


@dataclass(frozen=True, slots=True)
class DependentReplacement:
    """A dependent that must be replaced too, and its properties that require the replacement.

    `position` is the index of the dependent's entry in the old state.
    """

    resource: ResourceState
    position: int
    keys: Sequence[str] = ()


@dataclass(slots=True)
class DependentReplacements:
    """Finds dependents among the entries that the last run left, in their order."""

    base: Sequence[ResourceState]
    host: ProviderHost
    _user_positions: dict[str, list[int]] = field(default_factory=dict)

    def find_dependents(
        self, root: ResourceState, spared: Collection[str]
    ) -> list[DependentReplacement]:
        """Return the dependents to replace together with `root`, in the order of the state.

        Entries in `spared` are left out: this run has already planned them, so that they do not
        depend on `root` any more. A dependent is replaced when it is `deleted_with` a replaced
        resource, when its `replace_with` names `root`, or when its provider requires a replacement
        for a property that comes from a replaced resource. Entries that wait for their deletion are
        included, unless they are protected; external objects and providers are not.
        """
        return self._find_replaced(root, spared)[0]

    def find_incomparable_roots(
        self, roots: Iterable[ResourceState], spared: Collection[str]
    ) -> Iterator[tuple[str, EngineError]]:
        """Yield URN and error of each root with a dependent that its provider cannot compare.

        Asks the providers which dependents would be replaced together with each root; dependents in
        `spared` are left out. If each replaced resource depends on only one other, the answer for a
        root also covers the roots among its dependents, and no provider is asked again.
        """
        compared_urns: set[str] = set()
        for root in roots:
            if root.urn in compared_urns:
                continue
            try:
                compared_urns |= self._find_replaced(root, spared)[1]
            except EngineError as error:
                yield root.urn, error

    def _find_replaced(
        self, root: ResourceState, spared: Collection[str]
    ) -> tuple[list[DependentReplacement], set[str]]:
        """Return the dependents of `root` to replace, and all replaced URNs if they form a tree.

        In a tree each visited entry depends on one replaced resource only; otherwise the set is
        empty.
        """
        if not self._user_positions:
            self._user_positions = graph.index_dependents(self.base)
        replaced = {root.urn}
        dependents: list[DependentReplacement] = []
        # Pulumi's calculateDependentReplacements walks all entries after the root in the order of
        # the state. The heap keeps this order, and visits only users of a replaced resource.
        waiting_positions = [*self._user_positions.get(root.urn, ())]
        visited_positions = set(waiting_positions)
        while waiting_positions:
            position = heapq.heappop(waiting_positions)
            dependent = self.base[position]
            if dependent.urn == root.urn or dependent.urn in spared:
                continue
            if not _can_be_replaced(dependent):
                continue
            keys = self._find_replacing_keys(dependent, replaced)
            if keys is not None:
                replaced.add(dependent.urn)
                dependents.append(DependentReplacement(dependent, position, keys))
                for user in self._user_positions.get(dependent.urn, ()):
                    if user > position and user not in visited_positions:
                        visited_positions.add(user)
                        heapq.heappush(waiting_positions, user)
            elif root.urn in dependent.replace_with and not dependent.delete:
                dependents.append(DependentReplacement(dependent, position, ["replace_with"]))
        visited_entries = (self.base[position] for position in visited_positions)
        is_tree = all(
            len(graph.find_dependency_urns(entry) & replaced) == 1 for entry in visited_entries
        )
        return dependents, replaced if is_tree else set()

    def _find_replacing_keys(
        self, dependent: ResourceState, replaced: set[str]
    ) -> Sequence[str] | None:
        """Return the properties forcing a replacement of `dependent`, or None if there is none.

        Its provider is asked about the properties that come from a replaced resource.
        `deleted_with` counts
        as a property; `depends_on` alone forces nothing, and a component is never replaced.
        """
        if not dependent.custom:
            return None
        if dependent.deleted_with in replaced:
            return ["deleted_with"]
        affected_keys = [
            key
            for key, urns in dependent.property_dependencies.items()
            if key in dependent.inputs and not replaced.isdisjoint(urns)
        ]
        # A dependency by `depends_on` alone replaces nothing, as in Pulumi.
        if not affected_keys:
            return None
        # The comparison that Pulumi's engine makes: old inputs, with the properties that come from
        # a replaced resource unknown.
        goal = replace(
            dependent, inputs={**dependent.inputs, **dict.fromkeys(affected_keys, UNKNOWN)}
        )
        # Old init errors have nothing to do with the root: `#initerror` must not match here.
        diff = steps.compare_with_goal(self.host, replace(dependent, init_errors=[]), goal)
        return diff.replaces or None


def _can_be_replaced(dependent: ResourceState) -> bool:
    """Return False for external objects, providers, and protected entries marked for deletion."""
    # Nobody can create again an object that is only read, and a provider resource has no object.
    if dependent.external or is_provider(dependent.type):
        return False
    return not (dependent.delete and dependent.protect)


@dataclass(slots=True)
class OldEntries:
    """The live entries that the last run left, matched to the declarations of this run.

    `positions` maps the URN of each live entry to its index in the old state. `declared` maps URNs
    to the registrations and reads of this run, `new_urns` maps the old URN of each entry that an
    alias matched to its new URN.
    """

    stack: str
    project: str
    entries: dict[str, ResourceState]
    positions: dict[str, int]
    declared: dict[str, Registration | Read] = field(default_factory=dict)
    new_urns: dict[str, str] = field(default_factory=dict)
    _used_aliases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_state(cls, stack: str, project: str, base: Iterable[ResourceState]) -> "OldEntries":
        """Return the live entries of the state `base`: those not marked for deletion.

        `stack` and `project` are the names of the stack and its project, for the URNs of aliases.
        """
        # An entry with `delete: true` has its replacement already and is never an old state.
        live = [(position, entry) for position, entry in enumerate(base) if not entry.delete]
        return cls(
            stack,
            project,
            {entry.urn: entry for _, entry in live},
            {entry.urn: position for position, entry in live},
        )

    def match_entry(self, declaration: Registration | Read) -> ResourceState | None:
        """Return the old entry of a declared resource, or None for a new resource.

        Records the declaration: call once for each. An entry of another URN is found by an alias.

        Raises:
            EngineError: another resource of this run has the same URN or matched the same entry.
        """
        earlier = self.declared.get(declaration.urn)
        if earlier is not None:
            raise EngineError(
                f"two resources have the URN {declaration.urn}: one from {earlier.place}, one from "
                f"{declaration.place}",
                hint="give one of them another name",
            )
        self.declared[declaration.urn] = declaration
        owner_urn = self.new_urns.get(declaration.urn)
        if owner_urn is not None:
            raise EngineError(
                f"{declaration.urn} is declared at {declaration.place}, but it is already an "
                f"alias of {owner_urn}",
                hint="remove the alias, or give the new resource another name",
            )
        # Pulumi's order: the entry of the own URN, else the first alias that has an entry.
        for urn in (declaration.urn, *self._list_alias_urns(declaration)):
            if urn in self.entries:
                if urn != declaration.urn:
                    self._record_alias(urn, declaration)
                return self.entries[urn]
        return None

    def keep_old_urn(self, old: ResourceState, declaration: Registration | Read) -> None:
        """Undo the renaming of `old` by an alias, because no step touches the entry.

        The old URN then counts as declared by `declaration`. Without a renaming nothing changes.
        """
        if self.new_urns.pop(old.urn, None) is not None:
            self.declared[old.urn] = declaration

    def _list_alias_urns(self, declaration: Registration | Read) -> Sequence[str]:
        """List the old URNs under which the declared resource may be in the state, best first."""
        urn_parts = UrnParts(
            self.stack, self.project, declaration.parent, declaration.type, declaration.name
        )
        aliases: Sequence[Alias] = (
            declaration.aliases if isinstance(declaration, Registration) else ()
        )
        return list_alias_urns(urn_parts, aliases, self._used_aliases)

    def _record_alias(self, alias: str, declaration: Registration | Read) -> None:
        """Record that the declaration renames the entry. Raises EngineError if it is used."""
        owner_urn = alias if alias in self.declared else self.new_urns.get(alias)
        if owner_urn is not None:
            raise EngineError(
                f"{declaration.urn} has the alias {alias}, which {owner_urn} in this program "
                "uses already",
                hint="remove the alias, or that other resource",
            )
        self.new_urns[alias] = declaration.urn
        self._used_aliases[declaration.urn] = alias
