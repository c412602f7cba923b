"""Pulumi's dependent replacements: what cannot stay while a resource is deleted to be replaced."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import resource_diff
from gpuform.stacks.engine.provider_host import ProviderHost
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
            self._users = graph.users(self.base)
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
        is_tree = all(len(graph.needs(each) & replaced) == 1 for each in asked)
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
        diff = resource_diff.compare(self.host, replace(dependent, init_errors=[]), goal)
        return diff.replaces or None


def _can_be_replaced(dependent: ResourceState) -> bool:
    if dependent.external or is_provider(dependent.type):
        return False
    return not (dependent.delete and dependent.protect)
