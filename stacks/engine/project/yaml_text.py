"""Read version-controlled YAML files with positions, and edit them in place.

Project and stack settings call this module. An edit touches the lines of one entry and keeps
comments, order and everything else. Scalars follow YAML 1.2, as in the Pulumi CLI: `yes` and `1:30`
are text.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.text_edits import (
    append_lines,
    find_end,
    find_line_break,
    find_member,
    remove_spans,
)
from gpuform.stacks.engine.value_json import Json


class YamlError(EngineError):
    """An error in a YAML file; the message begins with file:line:column."""

    help_page = "reference/configuration"


def locate_error(file_label: str, node: Node, message: str, hint: str | None = None) -> YamlError:
    """Create an error whose message begins with the file, line and column of the node."""
    mark = node.start_mark
    return YamlError(f"{file_label}:{mark.line + 1}:{mark.column + 1}: {message}", hint)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own form


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        """Return True: a value that occurs twice is written twice, without anchor and alias."""
        return True


_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
for _name, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^({_pattern})$"), None)


def _represent_string(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    """Represent a text in YAML, double-quoted where readers would see another type.

    The Pulumi CLI quotes the same texts.
    """
    readings = [*_SCALARS.values(), _YAML_1_1_BOOL]
    quoted = _UNUSUAL_LINE_BREAK.search(text) or any(
        re.fullmatch(pattern, text) for pattern in readings
    )
    style = '"' if quoted else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


# Readers of YAML 1.1 take these words for true and false.
_YAML_1_1_BOOL = r"(?i:y|n|yes|no|on|off)"
# Only some readers take these characters for line breaks.
_UNUSUAL_LINE_BREAK = re.compile("[\r\x85\u2028\u2029]")
_Dumper.add_representer(str, _represent_string)


def parse(text: str, file_label: str) -> MappingNode | None:
    """Return the file's mapping, or None for an empty file. Raises YamlError."""
    try:
        root = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise YamlError(f"{file_label}:{at}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlError(f"{file_label}:1:1: not YAML: {error}") from error
    if root is None or (isinstance(root, ScalarNode) and not root.value):
        return None
    if not isinstance(root, MappingNode):
        raise locate_error(file_label, root, "the file must be a mapping of keys to values")
    return root


def get_entries(node: MappingNode, file_label: str) -> dict[str, tuple[ScalarNode, Node]]:
    """Return key and value nodes by key.

    Raises YamlError for duplicates and keys that are not scalars.
    """
    node_pairs: dict[str, tuple[ScalarNode, Node]] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise locate_error(file_label, key, "a key must be text")
        if key.value in node_pairs:
            raise locate_error(file_label, key, f"the key {key.value!r} occurs twice")
        node_pairs[key.value] = (key, value)
    return node_pairs


def convert_node(node: Node, file_label: str) -> Json:
    """Convert a node to plain data. Raises YamlError for a duplicate key or an invalid number."""
    if isinstance(node, MappingNode):
        return {
            key: convert_node(value, file_label)
            for key, (_, value) in get_entries(node, file_label).items()
        }
    if isinstance(node, SequenceNode):
        return [convert_node(item, file_label) for item in node.value]
    scalar = str(node.value)
    tag = node.tag.rsplit(":", 1)[-1]
    try:
        converted: Json = _PARSE_SCALAR.get(tag, str)(scalar)
    except ValueError:
        raise locate_error(file_label, node, f"{scalar!r} is not a valid {tag}") from None
    return converted


_PARSE_SCALAR: dict[str, Any] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    # Decimal, hexadecimal (`0x`) or octal (`0o`)
    "int": lambda text: int(text, 0) if text[:2] in ("0x", "0o") else int(text),
    # `.inf` and `.nan` are YAML's forms.
    "float": lambda text: float(
        text.replace(".inf", "inf").replace(".Inf", "inf").replace(".nan", "nan")
    ),
}


def dump(document: Json) -> str:
    """Write a YAML document in block style."""
    return yaml.dump(
        document,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=10**9,
    )


def set_entry(text: str, path: Sequence[str], value: Json, file_label: str) -> str:
    """Return the file's text with one entry set; `path` are the keys from the top to the entry.

    If the layout prevents the edit, the result is the complete document without comments.
    """
    root = parse(text, file_label)
    expected = convert_node(root, file_label) if root is not None else {}
    _set_in_document(expected, path, value)
    edited = _insert_entry(text, root, path, value, file_label)
    return _verify_edit(edited, expected, file_label)


def remove_entry(text: str, path: Sequence[str], file_label: str) -> str:
    """Return the file's text without one entry; unchanged if there is none.

    A mapping that the removal would leave empty is removed too. If the layout prevents the edit,
    the result is the complete document without comments.
    """
    root = parse(text, file_label)
    if root is None or _find_node(root, path, file_label) is None:
        return text
    parent = cast("MappingNode", _find_node(root, path[:-1], file_label))
    if len(path) > 1 and len(parent.value) == 1:
        return remove_entry(text, path[:-1], file_label)
    expected = convert_node(root, file_label)
    _remove_from_document(expected, path)
    at = list(get_entries(parent, file_label)).index(path[-1])
    return _verify_edit(remove_spans(text, [find_member(text, parent, at)]), expected, file_label)


def _verify_edit(edited: str, expected: Json, file_label: str) -> str:
    """Return the edited text or, if the content is not as expected, a rewritten document.

    A rewritten document has lost its comments.
    """
    try:
        root = parse(edited, file_label)
        if (convert_node(root, file_label) if root is not None else {}) == expected:
            return edited
    except YamlError:
        pass
    # An unusual layout can defeat the edit of single lines: then comments are lost, not values.
    return dump(expected) if expected else ""


def _set_in_document(document: Json, path: Sequence[str], value: Json) -> None:
    """Set the value at the path in place; missing or other values on the path become objects."""
    for key in path[:-1]:
        inner = document.get(key) if isinstance(document, dict) else None
        if isinstance(document, dict) and not isinstance(inner, dict):
            inner = document[key] = {}
        document = inner
    if isinstance(document, dict):
        document[path[-1]] = value


def _remove_from_document(document: Json, path: Sequence[str]) -> None:
    """Remove the key at the end of the path, in place; nothing without an object around the key."""
    for key in path[:-1]:
        document = document[key] if isinstance(document, dict) else None
    if isinstance(document, dict):
        del document[path[-1]]


def _find_node(node: Node, path: Sequence[str], file_label: str) -> Node | None:
    """Return the node at the path of keys, or None."""
    for key in path:
        if not isinstance(node, MappingNode) or key not in (
            node_entries := get_entries(node, file_label)
        ):
            return None
        node = node_entries[key][1]
    return node


def _insert_entry(
    text: str, root: MappingNode | None, path: Sequence[str], value: Json, file_label: str
) -> str:
    """Return the text with the value at `path`: in place of the old one, or else added.

    A new one is added to the deepest existing block of the path, else at the end of the file.
    """
    nested: Json = value
    for depth in range(len(path), 0, -1):
        parent = root if depth == 1 else root and _find_node(root, path[: depth - 1], file_label)
        if isinstance(parent, MappingNode) and parent.value and not parent.flow_style:
            return _write_member(text, parent, path[depth - 1], nested, file_label)
        nested = {path[depth - 1]: nested}
    return append_lines(text, root, dump(nested).rstrip("\n").split("\n"))


def _write_member(text: str, parent: MappingNode, key: str, value: Json, file_label: str) -> str:
    """Return the text with a member of a block: in place of the old one, or as the last one."""
    column = parent.value[0][0].start_mark.column
    lines = dump({key: value}).rstrip("\n").split("\n")
    node_entries = get_entries(parent, file_label)
    if key not in node_entries:
        return append_lines(text, parent, [" " * column + line for line in lines], column)
    start, stop = node_entries[key][0].start_mark.index, find_end(text, node_entries[key][1])
    member = f"{find_line_break(text)}{' ' * column}".join(lines)
    return text[:start] + member + text[stop:]
