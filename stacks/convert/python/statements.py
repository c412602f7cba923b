"""Order the entries of a topology by dependencies, and write the statements of its configuration.

`program` calls this module. Statements read a variable's value, and refuse values beyond limits.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from gpuform.stacks.convert import NotConverted
from gpuform.stacks.convert.python.operators import NUMBER_KINDS
from gpuform.stacks.declaration_writer.declarations import ConfigEntry
from gpuform.stacks.declaration_writer.python_program import (
    PythonNames,
    quote_text,
    render_config_read,
    render_literal,
)
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic
from gpuform.stacks.document.nodes import Entry, Node, list_scalars
from gpuform.stacks.topology.declarations import (
    MODULES,
    ConfigVariable,
    Declaration,
    Inclusion,
    Instance,
    Repeatable,
)
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import parse_template

_VALUE_PLACEHOLDER: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for the value in a message until braces are escaped."""


def render_config_statements(
    variable: ConfigVariable, names: PythonNames, *, secret: bool
) -> list[str]:
    """Return the statements for reading a configuration variable and checking the limits.

    `secret` is also True for a variable that only the settings of a stack keep secret: its value is
    checked once it is resolved, and messages do not show it.
    """
    fields = {**variable.fields, "secret": secret}
    read_statement = render_config_read(ConfigEntry(variable.name, fields), names)
    name, _, getter = read_statement.partition(" = ")
    checks = list(_render_checks(variable, "value" if secret else name, names, secret=secret))
    if not checks:
        return [read_statement]
    if not secret:
        return [read_statement, *checks]
    # A secret is an output: its limits can only be checked when it is resolved.
    function = f"checked_{name}"
    body = [f"    {line}" for line in checks]
    assignment = f"{name} = pulumi.Output.from_input({getter}).apply({function})"
    return ["", f"def {function}(value):", *body, "    return value", "", "", assignment]


def _render_checks(
    variable: ConfigVariable, name: str, names: PythonNames, *, secret: bool
) -> Iterator[str]:
    """Yield lines that raise an error if the variable `name` breaks a limit of its declaration.

    The error shows the refused value, unless `secret` is set.
    """
    for condition, reason in _list_limits(variable, name, names):
        yield f"if {condition}:"
        if secret:
            message = quote_text(f"config.{variable.name}: its value {reason}")
            yield f"    raise pulumi.RunError({message})"
            continue
        message = quote_text(f"config.{variable.name}: {_VALUE_PLACEHOLDER} {reason}")
        # The message becomes an f-string: its own braces are doubled before the value is put in.
        for character, replacement in (
            ("{", "{{"),
            ("}", "}}"),
            (_VALUE_PLACEHOLDER, f"{{{name}!r}}"),
        ):
            message = message.replace(character, replacement)
        yield f"    raise pulumi.RunError(f{message})"


def _list_limits(
    variable: ConfigVariable, name: str, names: PythonNames
) -> Iterator[tuple[str, str]]:
    """Yield refused values, each as a condition and as the reason in words."""
    fields = variable.fields
    if fields.get("enum") is not None:
        choices = fields["enum"]
        yield (
            f"{name} not in {render_literal(choices, names)}",
            f"is not one of {_format_choices(choices)}",
        )
    if variable.type in NUMBER_KINDS:
        if fields.get("minimum") is not None:
            yield (
                f"{name} < {_render_number(fields['minimum'])}",
                f"is less than {fields['minimum']:g}",
            )
        if fields.get("maximum") is not None:
            yield (
                f"{name} > {_render_number(fields['maximum'])}",
                f"is more than {fields['maximum']:g}",
            )
        if fields.get("multiple_of"):
            step = fields["multiple_of"]
            yield _render_remainder(name, step, variable.type), f"is not a multiple of {step:g}"
    if variable.type in ("string", "array"):
        # A minimum of 0 refuses nothing.
        if fields.get("min_length"):
            yield f"len({name}) < {fields['min_length']}", f"is shorter than {fields['min_length']}"
        if fields.get("max_length") is not None:
            yield f"len({name}) > {fields['max_length']}", f"is longer than {fields['max_length']}"
    if fields.get("pattern") and variable.type == "string":
        pattern = quote_text(fields["pattern"])
        yield f"not re.fullmatch({pattern}, {name})", f"does not match {fields['pattern']}"


def _render_remainder(name: str, step: float, type_: str) -> str:
    """Return Python code for the remainder of the variable `name` divided by `step`."""
    if type_ == "integer" and Fraction(str(step)).denominator == 1:
        return f"{name} % {_render_number(step)}"
    # Fractions of the written numbers are exact: 0.3 is a multiple of 0.1, unlike in floats.
    return f"Fraction(str({name})) % Fraction({quote_text(_render_number(step))})"


def _render_number(value: float) -> str:
    """Return a number as Python code, without a fraction if the number is integral."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def _format_choices(choices: list[Any]) -> str:
    """Return the allowed values as one text, separated by commas."""
    return ", ".join(map(str, choices))


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
