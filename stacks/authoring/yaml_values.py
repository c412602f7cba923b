"""Write values as topology files have them: read again, each means exactly what it meant."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.topology import SECTIONS, get_reference_fields
from gpuform.stacks.authoring.declared import (
    ConfigValue,
    Declared,
    Entry,
    Mixed,
    Reference,
    Value,
    Variable,
)
from gpuform.stacks.document.nodes import parse_plain_scalar
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.expressions.values import has_foreign_reference

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
    read: Any = parse_plain_scalar(written)
    return written if read == value else _quoted(f"{{{{ {written} }}}}")


def _text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and _is_text_anywhere(text) else _quoted(text)


def _is_text_anywhere(text: str) -> bool:
    """Whether every reader of YAML takes it for text, whichever version it follows."""
    with suppress(ValueError):
        float(text)
        return False
    tag = _RESOLVER.resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call] # as PyYAML has it
    return tag == _TEXT and isinstance(parse_plain_scalar(text), str)


def _quoted(text: str) -> str:
    """In double quotes, with escapes that both JSON and YAML have, and YAML's own."""
    return escape_invisible(json.dumps(text, ensure_ascii=False))


def topology_text(declared: Declared) -> str:
    """The file that declares this, and nothing else."""
    return "\n".join("".join(f"{line}\n" for line in part) for part in _parts(declared))


def members(declared: Declared) -> dict[str, dict[str, Mapping[str, Value] | Value]]:
    """Top-level key -> name -> what the file has under it, in the order of a file."""
    found: dict[str, dict[str, Mapping[str, Value] | Value]] = {
        "config": {each.name: _variable(each) for each in declared.variables}
    }
    for section in SECTIONS:
        of_section = (entry for entry in declared.entries if entry.section == section)
        found[section] = {entry.name: entry_members(entry) for entry in of_section}
    found["outputs"] = dict(declared.outputs)
    return {key: names for key, names in found.items() if names}


def entry_members(entry: Entry) -> dict[str, Value]:
    """What the entry says: its platform, its properties in the model's order, its options."""
    short_of = {field: short for short, field in get_reference_fields(entry.model).items()}
    order = {name: place for place, name in enumerate(entry.model.model_fields)}
    said: dict[str, Value] = {"platform": entry.platform}
    for name in sorted(entry.properties, key=lambda each: order.get(each, len(order))):
        value = entry.properties[name]
        is_resource = isinstance(value, Reference) and not value.steps
        said[short_of.get(name, name) if is_resource else name] = value
    if entry.options:
        said["options"] = dict(entry.options)
    return said


def lines_of(names: Mapping[str, Value], indent: int, step: int = STEP) -> list[str]:
    """The lines of entries under a top-level key; objects stand in lines of their own."""
    return [line for name, value in names.items() for line in _entry(name, value, indent, step)]


def _entry(name: str, value: Value, indent: int, step: int) -> Sequence[str]:
    if not isinstance(value, Mapping) or "platform" not in value:
        return member(name, value, indent)
    inner = [line for key, item in value.items() for line in member(key, item, indent + step)]
    return [f"{' ' * indent}{key(name)}:", *inner]


def _parts(declared: Declared) -> Iterator[list[str]]:
    for key, names in members(declared).items():
        yield [f"{key}:", *lines_of(names, STEP)]


def _variable(variable: Variable) -> Mapping[str, Value]:
    return dict(variable.said)
