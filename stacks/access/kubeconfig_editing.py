"""Edit a kubeconfig's text, and leave every other character as it is.

`kubeconfig_document` calls this module and checks that the edited text means what it should.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.text_edits import (
    find_dash,
    find_item,
    find_line_start,
    find_member,
    find_next_line,
    insert_lines,
    remove_spans,
)

SECTIONS: Final = ("clusters", "contexts", "users")
CURRENT_CONTEXT: Final = "current-context"
HEADER: Final[dict[str, str]] = {"apiVersion": "v1", "kind": "Config"}

_EXPECTED_TYPES: Final = dict.fromkeys((CURRENT_CONTEXT, *HEADER), "a text")
_NULL: Final = "tag:yaml.org,2002:null"
_LOADERS: Final[tuple[Any, ...]] = (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader)
"""The fast loader, and the slow one, which knows all escapes of JSON."""


class KubeconfigNotEdited(EngineError):
    """Raised for a file that only a person can edit."""

    help_page = "guides/access"


@dataclass(frozen=True, slots=True)
class TopLevelMember:
    """A top-level member; `colon` is the offset behind its colon, where the value's text begins."""

    key: Node
    value: Node
    colon: int

    @property
    def end(self) -> int:
        """Return the offset in the file behind the member's value."""
        return max(self.colon, int(self.value.end_mark.index))

    @property
    def is_empty(self) -> bool:
        """Return whether the value is null, an empty text or an empty list."""
        if isinstance(self.value, SequenceNode):
            return not self.value.value
        return self.value.tag == _NULL or self.value.value == ""


class ParsedKubeconfig:
    """A parsed text without its byte order mark. `file_label` names the file in messages.

    `content` is the content of the file, `members` are its sections, header and current context.
    """

    def __init__(self, body: str, file_label: str) -> None:
        self.body, self.file_label = body, file_label
        self.root, self.content = self._parse()
        self.members = self._find_members()

    def _parse(self) -> tuple[MappingNode | None, dict[str, Any]]:
        """Return the root node and the content of the file, or None and {} for an empty file.

        Raises:
            KubeconfigNotEdited: the text is not YAML that gpuform can edit, or not an object.
        """
        parsable = self.body
        # YAML forbids the tabs that JSON allows between its parts.
        if "\t" in parsable and _is_json(parsable):
            parsable = parsable.replace("\t", " ")
        try:
            root, members, content = _parse_yaml(parsable)
        except yaml.MarkedYAMLError as error:
            position = _format_position(self.file_label, error.problem_mark)
            raise KubeconfigNotEdited(
                f"{position}: gpuform cannot edit this YAML: {error.problem or error.context}"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            kind = type(error).__name__
            raise KubeconfigNotEdited(
                f"{self.file_label}: gpuform cannot edit this YAML ({kind})"
            ) from None
        if root is None or content is None:
            return None, {}
        if not isinstance(root, MappingNode) or not isinstance(content, dict):
            raise KubeconfigNotEdited(
                f"{self.file_label}: this is not a kubeconfig: its content is not an object"
            )
        root.value = members
        return root, content

    def _find_members(self) -> dict[str, TopLevelMember]:
        """Return a kubeconfig's top-level members by name; other names are left out.

        Raises:
            KubeconfigNotEdited: a member occurs twice, is an alias, has a wrong type, or comes from
                a merge key.
        """
        members: dict[str, TopLevelMember] = {}
        for key, value in self.root.value if self.root else ():
            name = str(key.value)
            if name not in (*SECTIONS, CURRENT_CONTEXT, *HEADER):
                continue
            # PyYAML keeps only the last of two equal keys and reports no error.
            if name in members:
                raise self.build_error(f"{name} occurs twice", key)
            colon = self.body.index(":", key.end_mark.index) + 1
            member = members[name] = TopLevelMember(key, value, colon)
            # The node of an alias is that of the anchor, which is earlier in the file.
            if value.end_mark.index < colon:
                raise self.build_error(f"{name} is a YAML alias", key)
            if not member.is_empty and isinstance(value, SequenceNode) != (name in SECTIONS):
                raise self.build_error(f"{name} is not {_EXPECTED_TYPES.get(name, 'a list')}", key)
        for name in (*SECTIONS, CURRENT_CONTEXT):
            if self.content.get(name) and name not in members:
                raise KubeconfigNotEdited(
                    f"{self.file_label}: {name} comes from a merge key: write the key itself"
                )
        return members

    def list_names(self, section: str) -> list[str | None]:
        """Return the names of a section's entries as written: `no` and `007` are names as well.

        None stands for an entry without a name.
        """
        member = self.members.get(section)
        items = member.value.value if member and not member.is_empty else []
        names: list[str | None] = []
        for item in items if isinstance(items, list) else ():
            item_members = item.value if isinstance(item, MappingNode) else ()
            names.append(
                next((str(value.value) for key, value in item_members if key.value == "name"), None)
            )
        return names

    def build_error(self, message: str, node: Node) -> KubeconfigNotEdited:
        """Return, without raising, the error with the message and the position of `node`."""
        return KubeconfigNotEdited(
            f"{_format_position(self.file_label, node.start_mark)}: {message}",
            hint="Nothing was changed. Correct the file, or choose another one with --file.",
        )


def _parse_yaml(source: str) -> tuple[Node | None, list[Any], Any]:
    """Return the root node, the members and the content; errors of YAML pass through."""
    for kind in _LOADERS:
        loader = kind(source)
        try:
            root = loader.get_single_node()
            # Construction removes the merge keys from a node.
            members = list(root.value) if isinstance(root, MappingNode) else []
            return root, members, None if root is None else loader.construct_document(root)
        except yaml.YAMLError:
            if kind is yaml.SafeLoader:
                raise
    raise AssertionError("the last loader answers or raises")


def _is_json(source: str) -> bool:
    """Return whether the source is JSON; False also for JSON that is nested too deeply."""
    try:
        json.loads(source)
    except (ValueError, RecursionError):
        return False
    return True


def _format_position(file_label: str, mark: Any) -> str:
    """Return `file:line:column` of a mark of the YAML parser, or only the file without a mark."""
    return f"{file_label}:{mark.line + 1}:{mark.column + 1}" if mark else file_label


_START: Final = re.compile(r"^---[^\r\n]*", re.MULTILINE)


class KubeconfigSource(ParsedKubeconfig):
    """An editable text without its byte order mark. Every edit returns another text."""

    def find_entry(self, section: str, name: str) -> tuple[int, Node]:
        """Return the index and the YAML node of a kubeconfig's entry."""
        index = self.list_names(section).index(name)
        return index, self.members[section].value.value[index]

    def add_entry(self, section: str, entry: Mapping[str, Any]) -> str:
        """Return the text with an entry before all others of the section.

        The end of a section has too many forms: comments and blank lines may belong to what
        follows.
        """
        member = self.members.get(section)
        if member is None:
            return self.add_key(section, [entry])
        value: Any = member.value
        if self.is_flow_list(member):
            position = self.body.index("[", value.start_mark.index) + 1
            entry_text = json.dumps(entry, ensure_ascii=False)
            return self._insert_into_flow(position, entry_text, bool(value.value))
        if not member.is_empty:
            dash = find_dash(self.body, value, 0)
            lines = _render_block([entry], dash - find_line_start(self.body, dash))
            return insert_lines(self.body, find_next_line(self.body, member.colon), lines)
        head, tail = self.body[: member.colon], self.body[member.end :]
        if self.is_flow:
            return f"{head} {json.dumps([entry], ensure_ascii=False)}{tail}"
        lines = _render_block([entry], member.key.start_mark.column)
        return insert_lines(head + tail, find_next_line(head + tail, member.colon), lines)

    def is_flow_list(self, member: TopLevelMember) -> bool:
        """Return whether new entries belong inside brackets; empty brackets become lines."""
        value = member.value
        is_flow = isinstance(value, SequenceNode) and bool(value.flow_style)
        return is_flow and (bool(value.value) or self.is_flow)

    def remove_entry(self, section: str, index: int) -> str:
        """Return the text without one entry of several."""
        sequence: Any = self.members[section].value
        return remove_spans(self.body, [find_item(self.body, sequence, index)])

    def empty_section(self, section: str, former_value: str | None) -> str:
        """Return the text without the only entry of a section.

        `former_value` replaces the list; None leaves an empty list.
        """
        member = self.members[section]
        sequence: Any = member.value
        if sequence.flow_style and former_value is not None:
            return self.body[: member.colon] + former_value + self.body[member.end :]
        remaining = remove_spans(self.body, [find_item(self.body, sequence, 0)])
        if sequence.flow_style:
            return remaining
        value = " []" if former_value is None else former_value
        return remaining[: member.colon] + value + remaining[member.colon :]

    def add_key(self, key: str, value: Any) -> str:
        """Return the text with a new key before all others."""
        if self.is_flow and self.root is not None:
            position = self.body.index("{", self.root.start_mark.index) + 1
            member = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            return self._insert_into_flow(position, member, bool(self.root.value))
        if self.root is None:
            start = _START.search(self.body)
            position = find_next_line(self.body, start.end()) if start else 0
            return insert_lines(self.body, position, _render_block({key: value}, 0))
        first = self.root.value[0][0].start_mark
        lines = _render_block({key: value}, first.column)
        return insert_lines(self.body, find_line_start(self.body, first.index), lines)

    def remove_key(self, key: str) -> str:
        """Return the kubeconfig's text without a top-level key and its value."""
        root: Any = self.root
        index = next(n for n, (node, _) in enumerate(root.value) if node is self.members[key].key)
        return remove_spans(self.body, [find_member(self.body, root, index)])

    @property
    def is_flow(self) -> bool:
        """Return whether the file is an object in braces, as JSON is."""
        return bool(self.root is not None and self.root.flow_style)

    def _insert_into_flow(self, position: int, member: str, is_followed: bool) -> str:
        """Return the text with a member before the first one.

        The new member gets a line of its own if the first one has a line of its own.
        """
        whitespace = re.compile(r"\s*").match(self.body, position)
        lead = whitespace[0] if whitespace and is_followed else ""
        comma = "," if is_followed else ""
        return f"{self.body[:position]}{lead}{member}{comma}{self.body[position:]}"


class _Dumper(yaml.SafeDumper):
    """Writes texts in quotes: versions of YAML differ in which plain words are texts."""

    def represent_mapping(
        self, tag: str, mapping: Any, flow_style: bool | None = None
    ) -> MappingNode:
        """Return the node of a mapping, whose keys have no quotes."""
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node


def _represent_text(dumper: _Dumper, value: str) -> Node:
    """Return the node of a text, always in double quotes."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')


_Dumper.add_representer(str, _represent_text)


def _render_block(value: Any, column: int) -> list[str]:
    """Return the lines of a value in YAML, indented to `column`, without line breaks."""
    # PyYAML breaks long texts into several lines by default, and certificates are long.
    rendered = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize
    )
    return [" " * column + line for line in rendered.splitlines()]
