"""Values as Python programs have them, in lines of at most 100 characters."""

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gpuform.stacks.authoring.declared import ConfigValue, Mixed, Reference, Value

WIDTH: Final = 100
STEP: Final = 4


@dataclass(frozen=True, slots=True)
class Code:
    """An expression of Python, as it is written."""

    text: str


Names = Callable[[Reference | ConfigValue], str]
"""The variable of a resource or of a configuration value."""


def variable(name: str) -> str:
    """A name as a variable: what Python does not allow becomes an underscore."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not made or made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or keyword.issoftkeyword(made) else made


def literal(value: Value, names: Names) -> str:
    """The value in one line; `Code` may stand in it at any depth."""
    if isinstance(value, Code):
        return value.text
    if isinstance(value, Reference):
        first, *rest = value.steps or ("id",)
        return f"{names(value)}.{first}{''.join(map(_subscript, rest))}"
    if isinstance(value, ConfigValue):
        return names(value)
    if isinstance(value, Mixed):
        return _formatted(value, names)
    if isinstance(value, Mapping):
        items = (f"{text(str(key))}: {literal(item, names)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item, names) for item in value)}]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    return repr(value)


def text(value: str) -> str:
    """A text in double quotes."""
    single = repr(f"'{value}")  # with a single quote inside, repr() prefers double ones
    if single.startswith('"'):
        return f'"{single[2:]}'
    return '"' + single[3:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def argument(begin: str, value: Value, indent: int, names: Names) -> list[str]:
    """The lines of an argument or an item: `begin`, the value and a comma."""
    return _lines(f"{' ' * indent}{begin}", value, indent, names, ",")


def statement(begin: str, value: Value, end: str, names: Names) -> list[str]:
    """The lines of a statement that ends with the value and `end`."""
    return _lines(begin, value, 0, names, end)


def _lines(begin: str, value: Value, indent: int, names: Names, end: str) -> list[str]:
    line = f"{begin}{literal(value, names)}{end}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return [line]
    inner = indent + STEP
    if isinstance(value, Mapping):
        items = [argument(f"{text(str(key))}: ", item, inner, names) for key, item in value.items()]
        opener, closer = "{", "}"
    else:
        items = [argument("", item, inner, names) for item in value]
        opener, closer = "[", "]"
    lines = [line for item in items for line in item]
    return [f"{begin}{opener}", *lines, f"{' ' * indent}{closer}{end}"]


def _subscript(step: str | int) -> str:
    """Of the value of an output, which holds plain objects and lists."""
    return f"[{text(step) if isinstance(step, str) else step}]"


def _formatted(mixed: Mixed, names: Names) -> str:
    """`pulumi.Output.format`, whose text doubles braces."""
    template, values = "", []
    for part in mixed.parts:
        if isinstance(part, str):
            template += part.replace("{", "{{").replace("}", "}}")
        else:
            template += "{}"
            values.append(literal(part, names))
    return f"pulumi.Output.format({', '.join([text(template), *values])})"
