"""The order of a program's statements: whole entries, each after those that it refers to."""

from collections.abc import Sequence

from gpuform.stacks.converting.errors import NotConverted
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics
from gpuform.stacks.document.nodes import Entry, Node, scalars
from gpuform.stacks.topology.declarations import MODULES, Declaration, Inclusion, Repeatable
from gpuform.stacks.topology.instances import Instance
from gpuform.stacks.topology.planning import Planned
from gpuform.stacks.topology.scope import template_of


def ordered(planned: Planned) -> list[Repeatable]:
    """The entries and modules of a topology. Raises NotConverted for those that need each other."""
    every: list[Repeatable] = [
        *planned.topology.modules.values(),
        *(e for found in planned.topology.declarations.values() for e in found.values()),
    ]
    needs: dict[str, dict[str, Repeatable]] = {each.address: {} for each in every}
    for resource in planned.resources:
        own = _outermost(resource.instance)
        for needed in map(_outermost, resource.needs()):
            if needed is not own:
                needs[own.address][needed.address] = needed
    for each in every:
        named = _named_in(each, planned)
        modules = {key: other for key, other in named.items() if other.section == MODULES}
        is_known = each.section != MODULES and not planned.group(each).open
        needs[each.address].update(modules if is_known else named)
    for each in every:
        if each.for_each is not None and each in _named_by([each.for_each], planned):
            message = f"the for_each of {each.address} refers to its own instances"
            hint = "write them as entries of their own"
            raise NotConverted([Diagnostic(each.for_each.place, "order", message, hint)])
    done: dict[str, Repeatable] = {}
    for first in every:
        _visit(first, needs, done)
    return list(done.values())


def _outermost(instance: Instance) -> Repeatable:
    """What declares it in the topology's own files: an entry, or the module that it is in."""
    module = instance.module
    while module is not None and module.module is not None:
        module = module.module
    return module.declaration if module is not None else instance.declaration


def _named_in(declared: Repeatable, planned: Planned) -> dict[str, Repeatable]:
    """What is referred to by name in an entry, or in what a module is given."""
    entries: list[Entry] = []
    if isinstance(declared, Declaration):
        entries = [*declared.properties.values(), *declared.options.values()]
    elif isinstance(declared, Inclusion):
        entries = list(declared.given.values())
    nodes = [entry.node for entry in entries]
    nodes += [node for node in (declared.for_each, declared.when) if node is not None]
    named = _named_by(nodes, planned)
    return {other.address: other for other in named if other is not declared}


def _named_by(nodes: Sequence[Node], planned: Planned) -> list[Repeatable]:
    found: list[Repeatable] = []
    for scalar in (scalar for node in nodes for scalar in scalars(node)):
        template = template_of(scalar, Diagnostics())
        for need in template.needs if template else ():
            name = str(need.steps[0]) if need.steps else ""
            other: Repeatable | None = planned.topology.declarations.get(need.root, {}).get(name)
            if need.root == MODULES:
                other = planned.topology.modules.get(name)
            found += [other] if other is not None else []
    return found


def _visit(
    first: Repeatable,
    needs: dict[str, dict[str, Repeatable]],
    done: dict[str, Repeatable],
) -> None:
    """Not recursive: a chain may be as long as the topology."""
    path: dict[str, Repeatable] = {}
    rest = [(first, False)]
    while rest:
        each, is_end = rest.pop()
        if is_end:
            del path[each.address]
            done[each.address] = each
        elif each.address in path:
            way = [*list(path)[list(path).index(each.address) :], each.address]
            message = f"instances of these need each other back and forth: {' -> '.join(way)}"
            hint = "write them as entries of their own, or take out one of the references"
            raise NotConverted([Diagnostic(each.place, "order", message, hint)])
        elif each.address not in done:
            path[each.address] = each
            rest.append((each, True))
            rest += [(need, False) for need in reversed(list(needs[each.address].values()))]
