"""Values as topology files have them: read again, each means exactly what it meant."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from gpuform.schemas.visible import visible
from gpuform.stacks.authoring.declared import ConfigValue, Mixed, Reference, Value
from gpuform.stacks.document.scalars import value_of
from gpuform.stacks.expressions.foreign import has_foreign_reference
from gpuform.stacks.expressions.template import has_expression

WIDTH: Final = 100
STEP: Final = 2
_RESOLVER: Final = Resolver()
_TEXT: Final = "tag:yaml.org,2002:str"
_LARGEST: Final = 2**53
_LONGEST_KEY: Final = 120
_PLAIN: Final = re.compile(
    r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./(][A-Za-z0-9_./@+()-]*)*"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expression_of(value: Reference | ConfigValue) -> str:
    """The expression, without its braces."""
    if isinstance(value, ConfigValue):
        return f"config{_step(value.name)}"
    steps = (value.name, *([] if value.key is None else [value.key]), *value.steps)
    return value.section + "".join(map(_step, steps))


def scalar(value: Value) -> str:
    """A value that is no list and no object, as it is written."""
    if isinstance(value, Reference | ConfigValue):
        return _quoted(f"{{{{ {expression_of(value)} }}}}")
    if isinstance(value, Mixed):
        return _quoted("".join(map(_part, value.parts)))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if has_expression(value) or has_foreign_reference(value):
        return _quoted(f"{{{{ {_literal(value)} }}}}")
    return _text(value)


def key(name: str) -> str:
    """A key of an object."""
    return _quoted(name) if name == "<<" or len(name) > _LONGEST_KEY else _text(name)


def flow(value: Value) -> str:
    """The value in one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key(name)}: {flow(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    return scalar(value)


def member(name: str, value: Value, indent: int) -> list[str]:
    """The lines of `name: value`: one if it fits."""
    begin = f"{' ' * indent}{key(name)}:"
    line = f"{begin} {flow(value)}"
    if not isinstance(value, Mapping | list | tuple) or not value or len(line) <= WIDTH:
        return [line]
    return [begin, *_block(value, indent + STEP)]


def _block(value: Value, indent: int) -> list[str]:
    """The lines of a list or object that has something."""
    if isinstance(value, Mapping):
        return [line for name, item in value.items() for line in member(name, item, indent)]
    lines = []
    for item in value:
        dash = f"{' ' * indent}- "
        if isinstance(item, Mapping | list | tuple) and item and len(dash + flow(item)) > WIDTH:
            first, *rest = _block(item, indent + STEP)
            lines += [dash + first.lstrip(" "), *rest]
        else:
            lines.append(dash + flow(item))
    return lines


def _step(step: str | int) -> str:
    if isinstance(step, str) and _NAME.fullmatch(step):
        return f".{step}"
    return f"[{step if isinstance(step, int) else _literal(step)}]"


def _part(part: str | Reference | ConfigValue) -> str:
    if isinstance(part, str):
        # Jinja2 takes a brace for its own beside another one, and turns "\r" into "\n".
        return f"{{{{ {_literal(part)} }}}}" if set(part) & {"{", "\r"} else part
    return f"{{{{ {expression_of(part)} }}}}"


def _literal(text: str) -> str:
    """The text as Jinja2's string."""
    escaped = text.encode("unicode-escape").decode("ascii").replace("'", "\\'")
    return f"'{escaped}'"


def _number(value: int | float) -> str:  # noqa: PYI041 - they are written differently
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        value = int(value)
    written = repr(value)
    if not isfinite(value) or (isinstance(value, int) and abs(value) > _LARGEST):
        raise ValueError(f"{written} is no number that a file can hold")
    read: Any = value_of(written)
    return written if read == value else _quoted(f"{{{{ {written} }}}}")


def _text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and _is_text_anywhere(text) else _quoted(text)


def _is_text_anywhere(text: str) -> bool:
    """Whether every reader of YAML takes it for text, whichever version it follows."""
    with suppress(ValueError):
        float(text)
        return False
    tag = _RESOLVER.resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call] # as PyYAML has it
    return tag == _TEXT and isinstance(value_of(text), str)


def _quoted(text: str) -> str:
    """In double quotes, with escapes that both JSON and YAML have, and YAML's own."""
    return visible(json.dumps(text, ensure_ascii=False))
