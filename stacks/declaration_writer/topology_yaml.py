"""Render declarations as a topology file; each value means the same when the file is read again.

`convert` renders complete files here; `edits` renders the lines that it adds to a person's file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.topology import SECTIONS, get_reference_fields
from gpuform.stacks.declaration_writer.declarations import (
    Declarations,
    DeclaredReference,
    EachReference,
    InterpolatedText,
    ModuleReference,
    Reference,
    ResourceEntry,
    Value,
)
from gpuform.stacks.document.nodes import parse_plain_scalar
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.expressions.values import has_foreign_reference

WIDTH: Final = 100
STEP: Final = 2
_RESOLVER: Final = Resolver()
_TEXT: Final = "tag:yaml.org,2002:str"
# Numbers become floats in a state, which are exact only up to here.
_LARGEST: Final = 2**53
_LONGEST_KEY: Final = 120
_PLAIN: Final = re.compile(
    r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./(][A-Za-z0-9_./@+()-]*)*"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render_expression(value: Reference) -> str:
    """Return the expression of a reference, without braces."""
    steps: tuple[str | int | EachReference, ...]
    if isinstance(value, EachReference):
        root, steps = "each", value.steps
    elif isinstance(value, DeclaredReference):
        key = value.key if isinstance(value.key, EachReference) else str(value.key)
        keys = () if value.key is None else (key,)
        root, steps = value.section, (value.name, *keys, *value.steps)
    else:
        root = value.root if isinstance(value, ModuleReference) else "config"
        steps = (value.name, *value.steps)
    return root + "".join(map(_render_step, steps))


def render_scalar(value: Value) -> str:
    """Return the YAML of a value other than a list or an object.

    A text that looks like an expression is written as an expression that evaluates to this text.

    Raises:
        ValueError: the number is infinite, not a number, or an integer that a float cannot hold.
    """
    if isinstance(value, Reference):
        return _quote(f"{{{{ {render_expression(value)} }}}}")
    if isinstance(value, InterpolatedText):
        return _quote("".join(map(_render_text_part, value.parts)))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _render_number(value)
    if has_expression(value) or has_foreign_reference(value):
        return _quote(f"{{{{ {_quote_jinja_text(value)} }}}}")
    return _render_text(value)


def render_key(name: str) -> str:
    """Return the YAML of an object's key."""
    # An unquoted `<<` is YAML 1.1's merge key, not a name.
    return _quote(name) if name == "<<" or len(name) > _LONGEST_KEY else _render_text(name)


def render_flow(value: Value) -> str:
    """Return a value on one line, with lists in brackets and objects in braces."""
    if isinstance(value, Mapping):
        members = (f"{render_key(name)}: {render_flow(item)}" for name, item in value.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(render_flow, value))}]"
    return render_scalar(value)


def render_member(name: str, value: Value, indent: int) -> list[str]:
    """Return the lines of `name: value`: one line if it fits into the width."""
    begin = f"{' ' * indent}{render_key(name)}:"
    line = f"{begin} {render_flow(value)}"
    if not isinstance(value, Mapping | list | tuple) or not value or len(line) <= WIDTH:
        return [line]
    return [begin, *_render_block(value, indent + STEP)]


def _render_block(value: Value, indent: int) -> list[str]:
    if isinstance(value, Mapping):
        return [line for name, item in value.items() for line in render_member(name, item, indent)]
    lines = []
    for item in value:
        dash = f"{' ' * indent}- "
        line = dash + render_flow(item)
        if isinstance(item, Mapping | list | tuple) and item and len(line) > WIDTH:
            first, *rest = _render_block(item, indent + STEP)
            lines += [dash + first.lstrip(" "), *rest]
        else:
            lines.append(line)
    return lines


def _render_step(step: str | int | EachReference) -> str:
    if isinstance(step, EachReference):
        return f"[{render_expression(step)}]"
    if isinstance(step, str) and _NAME.fullmatch(step):
        return f".{step}"
    return f"[{step if isinstance(step, int) else _quote_jinja_text(step)}]"


def _render_text_part(part: str | Reference) -> str:
    """Return a part of a text for a template; references become `{{ ... }}`."""
    if isinstance(part, str):
        # Beside another brace, Jinja2 reads a brace as a delimiter; it also turns "\r" into "\n".
        return f"{{{{ {_quote_jinja_text(part)} }}}}" if set(part) & {"{", "\r"} else part
    return f"{{{{ {render_expression(part)} }}}}"


def _quote_jinja_text(content: str) -> str:
    # Jinja2 decodes its literals with the same codec.
    escaped = content.encode("unicode-escape").decode("ascii").replace("'", "\\'")
    return f"'{escaped}'"


def _render_number(value: int | float) -> str:  # noqa: PYI041 - rendered differently
    """Return the YAML of a number; a template if YAML reads the number differently.

    Raises:
        ValueError: the number is not finite, or an integer too large for a file.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        value = int(value)
    number_text = repr(value)
    if not isfinite(value) or (isinstance(value, int) and abs(value) > _LARGEST):
        raise ValueError(f"a file cannot hold the number {number_text}")
    # gpuform reads a plain `1e-07` as text: only an expression can hold such a number.
    parsed: Any = parse_plain_scalar(number_text)
    return number_text if parsed == value else _quote(f"{{{{ {number_text} }}}}")


def _render_text(content: str) -> str:
    """Return the YAML of a text, in quotes unless all YAML readers read the bare text as text."""
    is_plain = _PLAIN.fullmatch(content) and _is_text_for_every_reader(content)
    return content if is_plain else _quote(content)


def _is_text_for_every_reader(content: str) -> bool:
    """Return whether readers of YAML 1.1 and 1.2 read the plain scalar as text."""
    # `1e3` is a number in YAML 1.2, but text for PyYAML's resolver.
    with suppress(ValueError):
        float(content)
        return False
    # This resolver knows YAML 1.1, in which `no` is a boolean.
    tag = _RESOLVER.resolve(ScalarNode, content, (True, False))  # type: ignore[no-untyped-call] # as PyYAML has it
    return tag == _TEXT and isinstance(parse_plain_scalar(content), str)


def _quote(content: str) -> str:
    """Return the text in double quotes, with escapes known to both JSON and YAML."""
    return escape_invisible(json.dumps(content, ensure_ascii=False))


def render_topology(declarations: Declarations) -> str:
    """Return a complete topology file with only the given declarations."""
    return "\n".join(
        "".join(f"{line}\n" for line in section_lines)
        for section_lines in _render_sections(declarations)
    )


def build_sections(declarations: Declarations) -> dict[str, dict[str, Mapping[str, Value] | Value]]:
    """Return the content of the file by top-level key and name, in the order of a file.

    Top-level keys without members are left out.
    """
    sections: dict[str, dict[str, Mapping[str, Value] | Value]] = {
        key: {variable.name: dict(variable.fields) for variable in variables}
        for key, variables in (("inputs", declarations.inputs), ("config", declarations.variables))
    }
    for section in SECTIONS:
        section_entries = (entry for entry in declarations.entries if entry.section == section)
        sections[section] = {entry.name: build_entry_members(entry) for entry in section_entries}
    sections["outputs"] = dict(declarations.outputs)
    return {key: names for key, names in sections.items() if names}


def build_entry_members(entry: ResourceEntry) -> dict[str, Value]:
    """Return the members of an entry: platform, properties and options.

    Properties are in the order of the model. A property that refers to a resource gets its short
    name: `volume` for `volume_id`.
    """
    short_names = {field: short for short, field in get_reference_fields(entry.model).items()}
    members: dict[str, Value] = {"platform": entry.platform}
    if entry.for_each is not None:
        members["for_each"] = entry.for_each
    for name, value in entry.sort_properties():
        # A short name such as `volume` takes only a reference to a resource; the full name takes
        # any value.
        is_resource = isinstance(value, DeclaredReference) and not value.steps
        members[short_names.get(name, name) if is_resource else name] = value
    if entry.options:
        members["options"] = dict(entry.options)
    return members


def render_members(names: Mapping[str, Value], indent: int, step: int = STEP) -> list[str]:
    """Return the lines of a top-level key's members; an object with `platform` is an entry.

    `indent` is the column of the members, `step` the further indentation of an entry's content.
    """
    lines = []
    for name, value in names.items():
        if isinstance(value, Mapping) and "platform" in value:
            lines.append(f"{' ' * indent}{render_key(name)}:")
            for key, item in value.items():
                lines += _render_entry_member(key, item, indent + step)
        else:
            lines += render_member(name, value, indent)
    return lines


def _render_entry_member(name: str, value: Value, indent: int) -> list[str]:
    """Return the lines of an entry's member; each item of `for_each` gets a line of its own."""
    if name == "for_each" and isinstance(value, Mapping):
        return [f"{' ' * indent}for_each:", *_render_block(value, indent + STEP)]
    return render_member(name, value, indent)


def _render_sections(declarations: Declarations) -> Iterator[list[str]]:
    if declarations.modules:
        includes = [
            {
                "file": module.file,
                "name": module.name,
                **({} if module.for_each is None else {"for_each": module.for_each}),
                "with": dict(module.arguments),
            }
            for module in declarations.modules
        ]
        yield ["include:", *_render_block(includes, STEP)]
    for key, names in build_sections(declarations).items():
        yield [f"{key}:", *render_members(names, STEP)]
