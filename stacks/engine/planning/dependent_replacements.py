"""Pulumi's dependent replacements: what cannot stay while a resource is deleted to be replaced."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

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
        if not self._users:
            self._users = graph.users(self.base)
        replaced = {root.urn}
        found: list[DependentReplacement] = []
        for dependent in graph.dependents(self.base, self._users, root.urn):
            if dependent.urn in spared or not _can_be_replaced(dependent):
                continue
            keys = self._keys(dependent, replaced)
            if keys is not None:
                replaced.add(dependent.urn)
                found.append(DependentReplacement(dependent, keys))
            elif root.urn in dependent.replace_with and not dependent.delete:
                found.append(DependentReplacement(dependent, ["replace_with"]))
        return found

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
