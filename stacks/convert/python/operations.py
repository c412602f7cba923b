"""Convert operators, calls and filters of expressions to Python, and order the statements of the
written program.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Protocol

from jinja2 import nodes

from gpuform.stacks.convert.python.references import Found, References
from gpuform.stacks.convert.registered_options import NotConverted
from gpuform.stacks.declaration_writer.declarations import ConfigEntry
from gpuform.stacks.declaration_writer.python_program import (
    PythonNames,
    quote_text,
    render_config_read,
    render_literal,
)
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics
from gpuform.stacks.document.nodes import Entry, Node, list_scalars
from gpuform.stacks.expressions.template import find_references
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

_ARITHMETIC: Final[Mapping[type[nodes.BinExpr], str]] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
}
_COMPARISONS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}
_NUMBERS: Final = ("integer", "number")
ONE_LINE: Final = ("string", "integer")
"""Kinds whose text is the same in Python and in a topology."""


_PLAIN: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean"}


class NotTheSame(Exception):
    """The expression is left to `gpuform.stacks.expression`."""


class Writer(Protocol):
    """Writes expressions. Each method raises NotTheSame where Python could mean another thing."""

    @property
    def references(self) -> References:
        """Finds what references are."""

    def written(self, node: nodes.Expr) -> Found:
        """An expression of values that are known while planning."""

    def whole(self, piece: nodes.Expr) -> Found | None:
        """An expression that is a reference and nothing else; None for others."""

    def mixed(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """A text of several parts."""


def formatted(parts: Sequence[str | Found]) -> str:
    """An f-string, or the only part if that is a text."""
    if all(isinstance(part, str) for part in parts):
        return quote_text("".join(map(str, parts)))
    if len(parts) == 1 and isinstance(parts[0], Found) and parts[0].kind == "string":
        return parts[0].code
    inner = ""
    for part in parts:
        if isinstance(part, str):
            inner += quote_text(part)[1:-1].replace("{", "{{").replace("}", "}}")
        elif set(part.code) & {'"', "\\"}:
            raise NotTheSame  # Python 3.11 has neither inside the braces
        else:
            inner += f"{{{part.code}}}"
    return f'f"{inner}"'


def no_names(value: Any) -> str:
    """For values in which all that is no plain data is code already."""
    raise AssertionError(f"{value!r} is not code")


def _constant(_: Writer, node: Any) -> Found:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number"}
    return Found(render_literal(node.value, no_names), kinds.get(type(node.value), "any"))


def _arithmetic(writer: Writer, node: Any) -> Found:
    left, right = writer.written(node.left), writer.written(node.right)
    kinds = {left.kind, right.kind}
    texts = kinds == {"string"} and isinstance(node, nodes.Add)
    if not texts and not kinds <= set(_NUMBERS):
        raise NotTheSame
    kind = "string" if texts else "integer" if kinds == {"integer"} else "number"
    kind = "number" if isinstance(node, nodes.Div) else kind
    return Found(f"({left.code} {_ARITHMETIC[type(node)]} {right.code})", kind)


def _compared(writer: Writer, node: Any) -> Found:
    code = writer.written(node.expr).code
    for operand in node.ops:
        code += f" {_COMPARISONS[operand.op]} {writer.written(operand.expr).code}"
    return Found(f"({code})", "boolean")


def _joined(word: str) -> Callable[[Writer, Any], Found]:
    def join(writer: Writer, node: Any) -> Found:
        left, right = writer.written(node.left), writer.written(node.right)
        kind = left.kind if left.kind == right.kind else "any"
        return Found(f"({left.code} {word} {right.code})", kind)

    return join


def _not(writer: Writer, node: Any) -> Found:
    return Found(f"(not {writer.written(node.node).code})", "boolean")


def _chosen(writer: Writer, node: Any) -> Found:
    if node.expr2 is None:
        raise NotTheSame
    test, one, other = (writer.written(each) for each in (node.test, node.expr1, node.expr2))
    kind = one.kind if one.kind == other.kind else "any"
    return Found(f"({one.code} if {test.code} else {other.code})", kind)


def _list(writer: Writer, node: Any) -> Found:
    items = ", ".join(writer.written(item).code for item in node.items)
    return Found(f"[{items}]", "array")


def _concatenated(writer: Writer, node: Any) -> Found:
    texts = (each.value if isinstance(each, nodes.Const) else each for each in node.nodes)
    pieces = [text if isinstance(text, str | nodes.Expr) else nodes.Const(text) for text in texts]
    return Found(writer.mixed(pieces), "string")


def _call(writer: Writer, node: Any) -> Found:
    """`range`, and the lookups of platforms."""
    if node.dyn_args or node.dyn_kwargs:
        raise NotTheSame
    given = [writer.written(each).code for each in node.args]
    given += [f"{each.key}={writer.written(each.value).code}" for each in node.kwargs]
    called = ", ".join(given)
    if isinstance(node.node, nodes.Name) and node.node.name == "range":
        return Found(f"range({called})", "range")
    need = next((each for each in find_references(node.node) if each.node is node.node), None)
    found = writer.references.lookup(need) if need and len(need.steps) == 1 else None
    if found is None or found.model is None:
        raise NotTheSame
    return Found(f"{found.code}({called})", "models", model=found.model)


def _filtered(writer: Writer, node: Any) -> Found:
    """Of filters those that have one meaning: of texts, and of what lookups have found."""
    if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NotTheSame
    subject = writer.written(node.node)
    if node.name in ("lower", "upper") and subject.kind == "string" and not node.args:
        return Found(f"{subject.code}.{node.name}()", "string")
    if node.name in ("length", "count") and subject.kind in ("array", "models") and not node.args:
        return Found(f"len({subject.code})", "integer")
    if subject.kind == "models" and node.name == "selectattr" and len(node.args) == 3:
        attribute, test, wanted_ = node.args
        name = getattr(attribute, "value", None)
        fields = subject.model.model_fields if subject.model else {}
        if name in fields and getattr(test, "value", None) in ("eq", "equalto", "=="):
            wanted = writer.written(wanted_).code
            chosen = f"[each for each in {subject.code} if each.{name} == {wanted}]"
            return Found(chosen, "models", model=subject.model)
    if subject.kind == "models" and node.name == "first" and not node.args:
        code = subject.code
        # A chosen list is made for its first item only.
        first = f"next({code[1:-1]})" if code.startswith("[") else f"{code}[0]"
        return Found(first, "model", model=subject.model)
    raise NotTheSame


def _attribute(writer: Writer, node: Any) -> Found | None:
    """An attribute of what a lookup has found; everything else is a reference, or is left."""
    found = writer.whole(node)
    if found is not None:
        return found
    name = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    subject = writer.written(node.node)
    fields = subject.model.model_fields if subject.kind == "model" and subject.model else {}
    if name not in fields or fields[name].annotation not in _PLAIN:
        raise NotTheSame
    return Found(f"{subject.code}.{name}", _PLAIN[fields[name].annotation])


WRITERS: Final[Mapping[type[nodes.Node], Callable[[Writer, Any], Found | None]]] = {
    nodes.Const: _constant,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    nodes.Compare: _compared,
    nodes.And: _joined("and"),
    nodes.Or: _joined("or"),
    nodes.Not: _not,
    nodes.CondExpr: _chosen,
    nodes.List: _list,
    nodes.Concat: _concatenated,
    nodes.Call: _call,
    nodes.Filter: _filtered,
    nodes.Getattr: _attribute,
    nodes.Getitem: _attribute,
}


_HERE: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands in a message for the value until braces are escaped."""


def settings_of(variable: ConfigVariable, names: PythonNames, *, secret: bool) -> list[str]:
    """The statements that read a variable and refuse what its limits do not allow.

    `secret` is also what only a stack's settings keep secret.
    """
    said = {**variable.fields, "secret": secret}
    read = render_config_read(ConfigEntry(variable.name, said), names)
    name, _, value = read.partition(" = ")
    checks = list(_checks(variable, "value" if secret else name, names, secret=secret))
    if not checks:
        return [read]
    if not secret:
        return [read, *checks]
    function = f"checked_{name}"
    inner = [f"    {line}" for line in checks]
    call = f"{name} = pulumi.Output.from_input({value}).apply({function})"
    return ["", f"def {function}(value):", *inner, "    return value", "", "", call]


def _checks(
    variable: ConfigVariable, name: str, names: PythonNames, *, secret: bool
) -> Iterator[str]:
    for condition, why in _limits(variable, name, names):
        yield f"if {condition}:"
        if secret:
            message = quote_text(f"config.{variable.name}: its value {why}")
            yield f"    raise pulumi.RunError({message})"
            continue
        message = quote_text(f"config.{variable.name}: {_HERE} {why}")
        for sign, written in (("{", "{{"), ("}", "}}"), (_HERE, f"{{{name}!r}}")):
            message = message.replace(sign, written)
        yield f"    raise pulumi.RunError(f{message})"


def _limits(variable: ConfigVariable, name: str, names: PythonNames) -> Iterator[tuple[str, str]]:
    """What is refused, as a condition and in words."""
    said = variable.fields
    if said.get("enum") is not None:
        choices = said["enum"]
        yield f"{name} not in {render_literal(choices, names)}", f"is not one of {_listed(choices)}"
    if variable.type in _NUMBERS:
        if said.get("minimum") is not None:
            yield f"{name} < {_number(said['minimum'])}", f"is less than {said['minimum']:g}"
        if said.get("maximum") is not None:
            yield f"{name} > {_number(said['maximum'])}", f"is more than {said['maximum']:g}"
        if said.get("multiple_of"):
            step = said["multiple_of"]
            yield _remainder(name, step, variable.type), f"is not a multiple of {step:g}"
    if variable.type in ("string", "array"):
        if said.get("min_length"):
            yield f"len({name}) < {said['min_length']}", f"is shorter than {said['min_length']}"
        if said.get("max_length") is not None:
            yield f"len({name}) > {said['max_length']}", f"is longer than {said['max_length']}"
    if said.get("pattern") and variable.type == "string":
        pattern = quote_text(said["pattern"])
        yield f"not re.fullmatch({pattern}, {name})", f"does not match {said['pattern']}"


def _remainder(name: str, step: float, type_: str) -> str:
    if type_ == "integer" and Fraction(str(step)).denominator == 1:
        return f"{name} % {_number(step)}"
    # Exactly, as it is written: 0.3 is a multiple of 0.1.
    return f"Fraction(str({name})) % Fraction({quote_text(_number(step))})"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _listed(choices: list[Any]) -> str:
    return ", ".join(map(str, choices))


def ordered(planned: PlannedTopology) -> list[Repeatable]:
    """The entries and modules of a topology. Raises NotConverted for those that need each other."""
    every: list[Repeatable] = [
        *planned.topology.modules.values(),
        *(e for found in planned.topology.declarations.values() for e in found.values()),
    ]
    needs: dict[str, dict[str, Repeatable]] = {each.address: {} for each in every}
    for resource in planned.resources:
        own = _outermost(resource.instance)
        for needed in map(_outermost, resource.list_dependencies()):
            if needed is not own:
                needs[own.address][needed.address] = needed
    for each in every:
        named = _named_in(each, planned)
        modules = {key: other for key, other in named.items() if other.section == MODULES}
        is_known = each.section != MODULES and not planned.get_group(each).open
        needs[each.address].update(modules if is_known else named)
    for each in every:
        if each.for_each is not None and each in _named_by([each.for_each], planned):
            message = f"the for_each of {each.address} refers to its own instances"
            hint = "write them as entries of their own"
            raise NotConverted([Diagnostic(each.for_each.position, "order", message, hint)])
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


def _named_in(declared: Repeatable, planned: PlannedTopology) -> dict[str, Repeatable]:
    """What is referred to by name in an entry, or in what a module is given."""
    entries: list[Entry] = []
    if isinstance(declared, Declaration):
        entries = [*declared.properties.values(), *declared.options.values()]
    elif isinstance(declared, Inclusion):
        entries = list(declared.arguments.values())
    nodes = [entry.node for entry in entries]
    nodes += [node for node in (declared.for_each, declared.when) if node is not None]
    named = _named_by(nodes, planned)
    return {other.address: other for other in named if other is not declared}


def _named_by(nodes: Sequence[Node], planned: PlannedTopology) -> list[Repeatable]:
    found: list[Repeatable] = []
    for scalar in (scalar for node in nodes for scalar in list_scalars(node)):
        template = parse_template(scalar, Diagnostics())
        for need in template.references if template else ():
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
            raise NotConverted([Diagnostic(each.position, "order", message, hint)])
        elif each.address not in done:
            path[each.address] = each
            rest.append((each, True))
            rest += [(need, False) for need in reversed(list(needs[each.address].values()))]
