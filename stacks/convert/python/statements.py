"""Order the statements of the written program, and write its configuration."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from gpuform.stacks.authoring.declared import Variable
from gpuform.stacks.authoring.python_text import PythonNames, literal, setting, text
from gpuform.stacks.convert.secret_values import NotConverted
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics
from gpuform.stacks.document.nodes import Entry, Node, scalars
from gpuform.stacks.topology.declarations import (
    MODULES,
    ConfigVariable,
    Declaration,
    Inclusion,
    Instance,
    Repeatable,
)
from gpuform.stacks.topology.planning import Planned
from gpuform.stacks.topology.scope import template_of

_HERE: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands in a message for the value until braces are escaped."""
_NUMBERS: Final = ("integer", "number")


def settings_of(variable: ConfigVariable, names: PythonNames, *, secret: bool) -> list[str]:
    """The statements that read a variable and refuse what its limits do not allow.

    `secret` is also what only a stack's settings keep secret.
    """
    said = {**variable.said, "secret": secret}
    read = setting(Variable(variable.name, said), names)
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
            yield f"    raise pulumi.RunError({text(f'config.{variable.name}: its value {why}')})"
            continue
        message = text(f"config.{variable.name}: {_HERE} {why}")
        for sign, written in (("{", "{{"), ("}", "}}"), (_HERE, f"{{{name}!r}}")):
            message = message.replace(sign, written)
        yield f"    raise pulumi.RunError(f{message})"


def _limits(variable: ConfigVariable, name: str, names: PythonNames) -> Iterator[tuple[str, str]]:
    """What is refused, as a condition and in words."""
    said = variable.said
    if said.get("enum") is not None:
        choices = said["enum"]
        yield f"{name} not in {literal(choices, names)}", f"is not one of {_listed(choices)}"
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
        pattern = text(said["pattern"])
        yield f"not re.fullmatch({pattern}, {name})", f"does not match {said['pattern']}"


def _remainder(name: str, step: float, type_: str) -> str:
    if type_ == "integer" and Fraction(str(step)).denominator == 1:
        return f"{name} % {_number(step)}"
    # Exactly, as it is written: 0.3 is a multiple of 0.1.
    return f"Fraction(str({name})) % Fraction({text(_number(step))})"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _listed(choices: list[Any]) -> str:
    return ", ".join(map(str, choices))


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
