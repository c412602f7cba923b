"""The configuration of a topology as statements of a Python program, with its limits."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from gpuform.stacks.authoring.declared import Variable
from gpuform.stacks.authoring.python_text import PythonNames, setting
from gpuform.stacks.authoring.python_values import literal, text
from gpuform.stacks.topology.declarations import ConfigVariable

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
