"""Fold the instances of one Terraform resource into an entry with `for_each`.

`topology` calls `fold_instances` for topologies, whose entries can repeat; the names of the
instances, and so their URNs, are the same with and without `for_each`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    DeclaredReference,
    EachReference,
    ModuleReference,
    ResourceEntry,
    Value,
    convert_members,
    convert_references,
    find_references,
)

EACH_KEY = EachReference(("key",))


@dataclass(frozen=True, slots=True)
class RepeatedResource:
    """The instances of a resource with `count` or `for_each`: the entries' names by key."""

    section: str
    name: str
    names: Mapping[str, str]

    @property
    def address(self) -> str:
        """Return section and name of the entry for all instances."""
        return f"{self.section}.{self.name}"


def fold_instances(
    declarations: Declarations, repeated_resources: Sequence[RepeatedResource]
) -> Declarations:
    """Return the declarations with one entry for each repeated resource, where possible.

    Instances stay entries of their own if one of them is missing, if they declare different
    properties, or if a property differs and contains references: the ids to import must be known
    while planning, and a `for_each` with references is not.
    """
    entries = {entry.address: entry for entry in declarations.entries}
    folded: dict[str, ResourceEntry] = {}
    # A pool may refer to the volume of its own key: volumes come first in any order of folding.
    is_complete = False
    while not is_complete:
        renaming = _Renaming.for_folded(repeated_resources, folded)
        new = {
            resource.address: entry
            for resource in repeated_resources
            if resource.address not in folded and resource.address not in entries
            if (entry := _fold(resource, entries, renaming)) is not None
        }
        folded |= new
        is_complete = not new
    written: dict[str, ResourceEntry] = {}
    for entry in declarations.entries:
        resource, _ = renaming.instances.get((entry.section, entry.name), (None, ""))
        address = entry.address if resource is None else resource.address
        # An entry may have been folded before the resource that it refers to.
        written.setdefault(address, convert_members(folded.get(address, entry), renaming.rename))
    return replace(
        declarations,
        entries=list(written.values()),
        outputs=convert_references(dict(declarations.outputs), renaming.rename),
    )


@dataclass(frozen=True, slots=True)
class _Renaming:
    """Renames references to instances that are folded into one entry.

    `instances` maps section and name of each instance's entry to the resource and the instance's
    key.
    """

    instances: Mapping[tuple[str, str], tuple[RepeatedResource, str]]

    @classmethod
    def for_folded(
        cls, repeated_resources: Sequence[RepeatedResource], folded: Collection[str]
    ) -> "_Renaming":
        """Return the renaming for the resources of which `folded` has an entry with `for_each`."""
        return cls(
            {
                (resource.section, name): (resource, key)
                for resource in repeated_resources
                if resource.address in folded
                for key, name in resource.names.items()
            }
        )

    def rename(self, value: Value) -> Value:
        """Return a reference to a folded instance as a reference to its entry; others unchanged."""
        if isinstance(value, DeclaredReference):
            resource, key = self.instances.get((value.section, value.name), (None, ""))
            if resource is not None:
                return replace(value, name=resource.name, key=key)
        return value


def _fold(
    resource: RepeatedResource, entries: Mapping[str, ResourceEntry], renaming: _Renaming
) -> ResourceEntry | None:
    """Return the entry with `for_each` for all instances, or None if there cannot be one."""
    instances = {
        key: entries.get(f"{resource.section}.{name}") for key, name in resource.names.items()
    }
    present = {
        key: convert_members(entry, renaming.rename)
        for key, entry in instances.items()
        if entry is not None
    }
    if len(present) < 2 or len(present) < len(instances):
        return None
    first = next(iter(present.values()))
    items: dict[str, dict[str, Value]] = {key: {} for key in present}
    merged: list[dict[str, Value]] = []
    for members in ("properties", "options"):
        by_key = {key: dict(getattr(entry, members)) for key, entry in present.items()}
        if any(values.keys() != getattr(first, members).keys() for values in by_key.values()):
            return None
        merged.append({})
        for name in getattr(first, members):
            values = {key: entry_values[name] for key, entry_values in by_key.items()}
            value = _merge(name, values)
            if value is None:
                return None
            merged[-1][name] = value.value
            if value.is_item:
                for key, item in values.items():
                    items[key][name] = item
    properties, options = merged
    return replace(
        first, name=resource.name, properties=properties, options=options, for_each=items
    )


@dataclass(frozen=True, slots=True)
class _Merged:
    """A member of the folded entry; with `is_item`, each item of `for_each` has its own value."""

    value: Value
    is_item: bool = False


def _merge(name: str, values: Mapping[str, Value]) -> _Merged | None:
    """Return a member of the folded entry, or None if the instances have no common form."""
    first, *others = values.values()
    if all(value == first for value in others):
        return _Merged(first)
    by_key = {
        key: replace(value, key=EACH_KEY)
        for key, value in values.items()
        if isinstance(value, DeclaredReference) and value.key == key
    }
    if len(by_key) == len(values) and len(set(by_key.values())) == 1:
        return _Merged(next(iter(by_key.values())))
    all_values = list(values.values())
    if any(find_references(all_values, DeclaredReference, ConfigReference, ModuleReference)):
        return None
    return _Merged(EachReference(("value", name)), is_item=True)
