"""The names that expressions have in a stack: those of its topology, and what its state has."""

from collections.abc import Iterable
from dataclasses import replace

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.lifecycles import kind_of
from gpuform.stacks.topology.declarations import Declaration
from gpuform.stacks.topology.instances import ALONE, Group, Instance
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.scope import Scope

Key = tuple[str, str, str]
"""A resource by platform, kind and name: topologies have one of each."""

_SECTION_OF = {kind: section for section, kind in SECTIONS.items()}


def by_key(entries: Iterable[ResourceState]) -> dict[Key, ResourceState]:
    """The resources of a state, without old objects that wait for their deletion."""
    found = {}
    for entry in entries:
        kind = kind_of(entry.type)
        if kind is not None and not entry.delete:
            found[(*kind, name_of(entry.urn))] = entry
    return found


def key_of(instance: Instance) -> Key:
    """What a declared resource has in a state."""
    own = instance.declaration
    return own.platform, own.kind, instance.name


def with_stored(names: Names, keys: Iterable[Key]) -> Names:
    """The names with an entry for each other resource of the state, those in modules among them."""
    declared = {key_of(each) for each in Scope(names).resources_here()}
    groups: dict[str, dict[str, Group[Instance]]] = {
        section: dict(found) for section, found in names.groups.items()
    }
    for key in keys:
        section, name = _SECTION_OF[key[1]], key[2]
        if key not in declared and name not in groups[section]:
            groups[section][name] = _stored(section, key)
    return replace(names, groups=groups)


def _stored(section: str, key: Key) -> Group[Instance]:
    declaration = Declaration(
        section=section,
        name=key[2],
        place=SourcePosition(""),
        platform=key[0],
        properties={},
        options={},
    )
    return Group(declaration, {ALONE: Instance(declaration)})
