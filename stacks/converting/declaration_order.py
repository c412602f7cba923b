"""The order of a program's statements: whole entries, each after those that it refers to."""

from collections.abc import Sequence

from gpuform.stacks.converting.errors import NotConverted
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics
from gpuform.stacks.document.nodes import Node, scalars
from gpuform.stacks.topology.declarations import Declaration
from gpuform.stacks.topology.planning import Planned
from gpuform.stacks.topology.scope import template_of


def ordered(planned: Planned) -> list[Declaration]:
    """The entries of a topology. Raises NotConverted for those that need each other."""
    every = [
        each
        for of_section in planned.topology.declarations.values()
        for each in of_section.values()
    ]
    needs: dict[str, dict[str, Declaration]] = {each.address: {} for each in every}
    for resource in planned.resources:
        own = resource.instance.declaration
        for needed in resource.needs():
            if needed.declaration is not own:
                needs[own.address][needed.declaration.address] = needed.declaration
    for each in every:
        if planned.names.groups[each.section][each.name].open:
            needs[each.address].update(_named_in(each, planned))
    for each in every:
        if each.for_each is not None and each in _named_by([each.for_each], planned):
            message = f"the for_each of {each.address} refers to its own instances"
            hint = "write them as entries of their own"
            raise NotConverted([Diagnostic(each.for_each.place, "order", message, hint)])
    done: dict[str, Declaration] = {}
    for first in every:
        _visit(first, needs, done)
    return list(done.values())


def _named_in(declaration: Declaration, planned: Planned) -> dict[str, Declaration]:
    """What an entry whose instances are not known here refers to by name."""
    entries = (*declaration.properties.values(), *declaration.options.values())
    named = _named_by([entry.node for entry in entries], planned)
    return {other.address: other for other in named if other is not declaration}


def _named_by(nodes: Sequence[Node], planned: Planned) -> list[Declaration]:
    found = []
    for scalar in (scalar for node in nodes for scalar in scalars(node)):
        template = template_of(scalar, Diagnostics())
        for need in template.needs if template else ():
            of_section = planned.topology.declarations.get(need.root, {})
            other = of_section.get(str(need.steps[0])) if need.steps else None
            found += [other] if other is not None else []
    return found


def _visit(
    first: Declaration,
    needs: dict[str, dict[str, Declaration]],
    done: dict[str, Declaration],
) -> None:
    """Not recursive: a chain may be as long as the topology."""
    path: dict[str, Declaration] = {}
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
