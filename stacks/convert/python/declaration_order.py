"""Order the entries and modules of a topology by dependencies, for the statements of a program."""

from collections.abc import Sequence

from gpuform.stacks.convert.errors import NotConverted
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic
from gpuform.stacks.document.nodes import Entry, Node, list_scalars
from gpuform.stacks.topology.declarations import (
    MODULES,
    Declaration,
    Inclusion,
    Instance,
    Repeatable,
)
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import parse_template


def order_declarations(planned: PlannedTopology) -> list[Repeatable]:
    """Return the entries and modules of a topology, each after all dependencies.

    Raises:
        NotConverted: entries depend on each other in a cycle, or a `for_each` refers to its own
            instances.
    """
    declarations: list[Repeatable] = [
        *planned.topology.modules.values(),
        *(
            declaration
            for section in planned.topology.declarations.values()
            for declaration in section.values()
        ),
    ]
    dependencies: dict[str, dict[str, Repeatable]] = {
        declaration.address: {} for declaration in declarations
    }
    for resource in planned.resources:
        dependent = _find_top_level_declaration(resource.instance)
        for dependency in map(_find_top_level_declaration, resource.list_dependencies()):
            # Instances of one entry may depend on each other: the order of the loop takes care of
            # them.
            if dependency is not dependent:
                dependencies[dependent.address][dependency.address] = dependency
    for declaration in declarations:
        named_declarations = _find_named_declarations(declaration, planned)
        modules = {
            key: named_declaration
            for key, named_declaration in named_declarations.items()
            if named_declaration.section == MODULES
        }
        # The plan knows the dependencies of known instances; else the names in the text count.
        has_known_instances = (
            declaration.section != MODULES and not planned.get_group(declaration).open
        )
        dependencies[declaration.address].update(
            modules if has_known_instances else named_declarations
        )
    for declaration in declarations:
        # The loop would read the variable that the loop itself fills.
        if declaration.for_each is not None and declaration in _find_declarations_in(
            [declaration.for_each], planned
        ):
            message = f"the for_each of {declaration.address} refers to its own instances"
            hint = "write the instances as separate entries"
            raise NotConverted(
                [DocumentDiagnostic(declaration.for_each.position, "order", message, hint)]
            )
    ordered: dict[str, Repeatable] = {}
    for declaration in declarations:
        _visit(declaration, dependencies, ordered)
    return list(ordered.values())


def _find_top_level_declaration(instance: Instance) -> Repeatable:
    """Return the declaration in the topology's own files: the entry, or the module around it."""
    module = instance.module
    # Modules stay files, so the program names only the outermost one.
    while module is not None and module.module is not None:
        module = module.module
    return module.declaration if module is not None else instance.declaration


def _find_named_declarations(
    declaration: Repeatable, planned: PlannedTopology
) -> dict[str, Repeatable]:
    """Return the declarations named in an entry or in a module's arguments, by address."""
    entries: list[Entry] = []
    if isinstance(declaration, Declaration):
        entries = [*declaration.properties.values(), *declaration.options.values()]
    elif isinstance(declaration, Inclusion):
        entries = list(declaration.arguments.values())
    nodes = [entry.node for entry in entries]
    nodes += [node for node in (declaration.for_each, declaration.when) if node is not None]
    named_declarations = _find_declarations_in(nodes, planned)
    return {
        named_declaration.address: named_declaration
        for named_declaration in named_declarations
        if named_declaration is not declaration
    }


def _find_declarations_in(nodes: Sequence[Node], planned: PlannedTopology) -> list[Repeatable]:
    """Return the entries and modules that templates in the nodes refer to, with repetitions."""
    named_declarations: list[Repeatable] = []
    for scalar in (scalar for node in nodes for scalar in list_scalars(node)):
        template = parse_template(scalar, Diagnostics())
        for reference in template.references if template else ():
            name = str(reference.steps[0]) if reference.steps else ""
            named: Repeatable | None = planned.topology.declarations.get(reference.root, {}).get(
                name
            )
            if reference.root == MODULES:
                named = planned.topology.modules.get(name)
            named_declarations += [named] if named is not None else []
    return named_declarations


def _visit(
    first: Repeatable,
    dependencies: dict[str, dict[str, Repeatable]],
    ordered: dict[str, Repeatable],
) -> None:
    """Add `first` to `ordered`, after all dependencies.

    Not recursive: a chain may be as long as the topology.
    """
    path: dict[str, Repeatable] = {}
    pending = [(first, False)]
    while pending:
        declaration, is_complete = pending.pop()
        if is_complete:
            del path[declaration.address]
            ordered[declaration.address] = declaration
        elif declaration.address in path:
            cycle = [*list(path)[list(path).index(declaration.address) :], declaration.address]
            message = f"the instances of these entries depend on each other: {' -> '.join(cycle)}"
            hint = "write the instances as separate entries, or remove one of the references"
            raise NotConverted([DocumentDiagnostic(declaration.position, "order", message, hint)])
        elif declaration.address not in ordered:
            path[declaration.address] = declaration
            pending.append((declaration, True))
            pending += [
                (dependency, False)
                for dependency in reversed(list(dependencies[declaration.address].values()))
            ]
