"""Write loops and the statements of configuration, and order the entries by dependencies.

`program` calls this module. The statements of configuration read a variable's value, and refuse
values beyond limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NoReturn

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import sort_by_dependencies
from gpuform.stacks.convert import NotConverted
from gpuform.stacks.convert.python.expressions import (
    NUMBER_KINDS,
    ExpressionWriter,
    reject_reference,
)
from gpuform.stacks.convert.python.references import LoopVariables
from gpuform.stacks.declaration_writer.declarations import ConfigEntry
from gpuform.stacks.declaration_writer.python_program import (
    Code,
    PythonNames,
    quote_text,
    render_config_read,
    render_literal,
    render_statement,
)
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    list_scalars,
)
from gpuform.stacks.topology.declarations import (
    MODULES,
    ConfigVariable,
    Declaration,
    Inclusion,
    Instance,
    Repeatable,
)
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import contains_template, parse_template

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
        placeholder = (_VALUE_PLACEHOLDER, f"{{{name}!r}}")
        for character, replacement in (("{", "{{"), ("}", "}}"), placeholder):
            message = message.replace(character, replacement)
        yield f"    raise pulumi.RunError(f{message})"


def _list_limits(
    variable: ConfigVariable, name: str, names: PythonNames
) -> Iterator[tuple[str, str]]:
    """Yield refused values, each as a condition and as the reason in words."""
    fields = variable.fields
    if (choices := fields.get("enum")) is not None:
        reason = f"is not one of {', '.join(map(str, choices))}"
        yield f"{name} not in {render_literal(choices, names)}", reason
    if variable.type in NUMBER_KINDS:
        for field, sign, word in (("minimum", "<", "less"), ("maximum", ">", "more")):
            if (limit := fields.get(field)) is not None:
                yield f"{name} {sign} {_render_number(limit)}", f"is {word} than {limit:g}"
        if step := fields.get("multiple_of"):
            yield _render_remainder(name, step, variable.type), f"is not a multiple of {step:g}"
    if variable.type in ("string", "array"):
        # A minimum of 0 refuses nothing.
        if shortest := fields.get("min_length"):
            yield f"len({name}) < {shortest}", f"is shorter than {shortest}"
        if (longest := fields.get("max_length")) is not None:
            yield f"len({name}) > {longest}", f"is longer than {longest}"
    if (pattern := fields.get("pattern")) and variable.type == "string":
        yield f"not re.fullmatch({quote_text(pattern)}, {name})", f"does not match {pattern}"


def _render_remainder(name: str, step: float, type_: str) -> str:
    """Return Python code for the remainder of the variable `name` divided by `step`."""
    if type_ == "integer" and Fraction(str(step)).denominator == 1:
        return f"{name} % {_render_number(step)}"
    # Fractions of the written numbers are exact: 0.3 is a multiple of 0.1, unlike in floats.
    return f"Fraction(str({name})) % Fraction({quote_text(_render_number(step))})"


def _render_number(value: float) -> str:
    """Return a number as Python code, without a fraction if the number is integral."""
    return str(int(value)) if float(value).is_integer() else repr(value)


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
        node = declaration.for_each
        if node is not None and declaration in _find_declarations_in([node], planned):
            message = f"the for_each of {declaration.address} refers to its own instances"
            hint = "write the instances as separate entries"
            raise NotConverted([DocumentDiagnostic(node.position, "order", message, hint)])
    return sort_by_dependencies(
        declarations,
        lambda declaration: dependencies[declaration.address].values(),
        _refuse_cycle,
    )


def _refuse_cycle(cycle: Sequence[Repeatable]) -> NoReturn:
    addresses = " -> ".join(declaration.address for declaration in cycle)
    message = f"the instances of these entries depend on each other: {addresses}"
    hint = "write the instances as separate entries, or remove one of the references"
    raise NotConverted([DocumentDiagnostic(cycle[0].position, "order", message, hint)])


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
    named = _find_declarations_in(nodes, planned)
    return {other.address: other for other in named if other is not declaration}


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


_KIND_BY_TYPE: Final[Mapping[type, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean",
}  # fmt: skip
_OUTPUT_ROOTS: Final = frozenset({*SECTIONS, MODULES, "stack_references"})

KindsByPath = Mapping[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class LoopHeader:
    """The lines of a loop's head, and the loop's variables."""

    lines: tuple[str, ...]
    loop: LoopVariables


def build_loop_header(
    declaration: Repeatable, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader | None:
    """Return the loop of an entry with `for_each`, or None for a single resource."""
    node = declaration.for_each
    if node is None:
        return None
    if isinstance(node, MappingNode):
        return _build_map_header(declaration, node, planned, outside)
    if isinstance(node, SequenceNode) and not any(map(contains_template, list_scalars(node))):
        return _build_list_header(node)
    return _build_expression_header(declaration, node, planned, outside)


def _build_map_header(
    declaration: Repeatable, node: MappingNode, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader:
    """Return a loop over the items of an object, in the order of the plan.

    In this order an instance can refer to earlier instances of the same entry.
    """
    instances = (resource.instance for resource in planned.resources)
    own_keys = (instance.key for instance in instances if instance.declaration is declaration)
    keys = dict.fromkeys([*own_keys, *node.entries])
    values = {
        key: outside.convert_value(node.entries[key].node) for key in keys if key in node.entries
    }
    # The literal is in the order of the plan, and Python's loop keeps this order.
    lines = render_statement("for key, value in ", values, ".items():", outside.references.names)
    secret_references = {("config", (name,)) for name in outside.references.secret}
    holds_outputs = any(
        reference.root in _OUTPUT_ROOTS
        or (reference.root, reference.steps[:1]) in secret_references
        for scalar in list_scalars(node)
        if (template := parse_template(scalar, Diagnostics()))
        for reference in template.references
    )
    return LoopHeader(
        tuple(lines),
        LoopVariables("key", "value", _find_common_kinds(values), holds_outputs=holds_outputs),
    )


def _build_list_header(node: SequenceNode) -> LoopHeader:
    """Return the loop over the items of a `for_each` list without templates.

    Texts are their own keys; other items get their text as key.
    """
    items = [item.value for item in node.items if isinstance(item, ScalarNode)]
    # In a loop over a list, each item is key and value.
    if all(isinstance(item, str) for item in items):
        line = f"for key in {render_literal(items, reject_reference)}:"
        return LoopHeader((line,), LoopVariables("key", "key", {(): "string"}))
    kinds: KindsByPath = {(): "integer"} if all(type(item) is int for item in items) else {}
    return LoopHeader(
        (f"for value in {render_literal(items, reject_reference)}:",),
        LoopVariables("str(value)", "value", kinds),
    )


def _build_expression_header(
    declaration: Repeatable, node: Node, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader:
    """Return a loop over the result of an expression.

    If the plan does not know the result, the program decides between list and object when it runs.
    """
    value = outside.convert_value(node)
    code = render_literal(value, reject_reference)
    # The plan may not know the items yet, but `range` gives a list in any case.
    if code.startswith("range("):
        return LoopHeader(
            (f"for value in {code}:",), LoopVariables("str(value)", "value", {(): "integer"})
        )
    group = planned.get_group(declaration)
    items = [instance.item for instance in group.instances.values()]
    # The items of a list are their own keys.
    is_list = [str(item) for item in items] == list(group.instances)
    # The plan knows all instances: their keys show whether the value is a list or an object.
    if items and not group.open and is_list:
        return LoopHeader((f"for value in {code}:",), LoopVariables("str(value)", "value", {}))
    if items and not group.open:
        return LoopHeader(
            (f"for key, value in {code}.items():",), LoopVariables("key", "value", {})
        )
    return LoopHeader(
        (
            f"items = {code}",
            "if isinstance(items, list):",
            "    items = {str(item): item for item in items}",
            "for key, value in items.items():",
        ),
        LoopVariables("key", "value", {}),
    )


def _find_common_kinds(values: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the kind at each path of the values, for paths with one kind in all values."""
    kinds_by_path: dict[tuple[str, ...], set[str]] = {}
    for value in values.values():
        for path, kind in _list_kinds(value, ()):
            kinds_by_path.setdefault(path, set()).add(kind)
    return {path: kinds.pop() for path, kinds in kinds_by_path.items() if len(kinds) == 1}


def _list_kinds(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """Return the path and kind of a value and, for an object, of each of its members at any depth.

    The kind is `any` for a Python expression and for a type that has no kind.
    """
    if isinstance(value, Mapping):
        inner = [
            inner_kind
            for key, item in value.items()
            for inner_kind in _list_kinds(item, (*path, key))
        ]
        return [(path, "object"), *inner]
    return [(path, "any" if isinstance(value, Code) else _KIND_BY_TYPE.get(type(value), "any"))]
