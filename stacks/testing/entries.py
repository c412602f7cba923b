"""The entries of a topology, as the configuration of one run expands them."""

from collections.abc import Iterator
from typing import Any

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.language_host import topology_of
from gpuform.stacks.engine.project import Project
from gpuform.stacks.testing.report import EntrySeen
from gpuform.stacks.topology.declarations import Group, Instance, ModuleInstance, Repetition
from gpuform.stacks.topology.offline import surroundings_of
from gpuform.stacks.topology.planning import plan as plan_topology
from gpuform.stacks.topology.scope import Scope


def entries_of(project: Project, stack: str) -> list[EntrySeen] | None:
    """Those of a project's topology, modules included, with the stack's configuration.

    None where the program is Python; none of a topology that cannot be expanded.
    """
    topology = topology_of(project.program)
    if topology is None:
        return None
    problems = Diagnostics()
    file = topology.path
    planned = plan_topology(file, surroundings_of(file, stack, project), problems)
    if problems:
        return []
    return [
        _seen(group, scope.names.module)
        for scope in Scope(planned.names).every()
        for group in scope.groups_here()
    ]


def _seen(group: Group[Any], module: ModuleInstance | None) -> EntrySeen:
    return EntrySeen(
        group.declaration.address,
        str(group.declaration.place),
        tuple(each.address for each in group.instances.values()),
        tuple(sorted(group.absent)),
        group.declaration.when is not None,
        tuple(_names(group, module)),
    )


def _names(group: Group[Any], module: ModuleInstance | None) -> Iterator[str]:
    """What the resources of an entry are called, also those that are left out."""
    keys = {*group.instances, *group.absent, *(["*"] if group.open else [])}
    for key in keys:
        made = Repetition(group.declaration, key, module=module)
        if all(isinstance(each, Instance) for each in group.instances.values()):
            yield from (made.name, f"{group.declaration.section}.{made.name}")
        if key in group.absent:  # a module that is left out has not been looked into
            yield from (f"{made.name}-*", f"*.{made.name}-*")
