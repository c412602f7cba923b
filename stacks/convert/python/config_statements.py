"""Write the statements for configuration variables: read a value, and refuse values beyond limits.

`program` calls `render_config_statements` for each variable of the topology.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from gpuform.stacks.convert.python.operators import NUMBER_KINDS
from gpuform.stacks.declaration_writer.declarations import ConfigEntry
from gpuform.stacks.declaration_writer.python_program import (
    PythonNames,
    quote_text,
    render_config_read,
    render_literal,
)
from gpuform.stacks.topology.declarations import (
    ConfigVariable,
)

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
