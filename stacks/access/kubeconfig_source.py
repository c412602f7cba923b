"""Edit a kubeconfig's text and leave the rest as it is.

Whether a text says what is wanted after an edit is for the caller to see.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from gpuform.stacks.document.text_edits import (
    find_dash,
    find_item,
    find_line_start,
    find_member,
    find_next_line,
    insert_lines,
    remove_spans,
)
from gpuform.stacks.engine.errors import EngineError

SECTIONS: Final = ("clusters", "contexts", "users")
CURRENT: Final = "current-context"
HEAD: Final[dict[str, str]] = {"apiVersion": "v1", "kind": "Config"}

_KIND_OF: Final = dict.fromkeys((CURRENT, *HEAD), "a text")
_NULL: Final = "tag:yaml.org,2002:null"
_LOADERS: Final[tuple[Any, ...]] = (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader)
"""The fast one, and the one that knows all of JSON's escapes."""


class NotEdited(EngineError):
    """A file that only a person can edit."""

    help_page = "guides/access"


@dataclass(frozen=True, slots=True)
class Pair:
    """A top-level member; `colon` is where its value's part of the text begins."""

    key: Node
    value: Node
    colon: int

    @property
    def end(self) -> int:
        return max(self.colon, int(self.value.end_mark.index))

    @property
    def is_empty(self) -> bool:
        if isinstance(self.value, SequenceNode):
            return not self.value.value
        return self.value.tag == _NULL or self.value.value == ""


class Parts:
    """A text without its byte order mark, read. `where` names it in messages.

    `meaning` is what it says, `pairs` its members that matter here, by their names.
    """

    def __init__(self, body: str, where: str) -> None:
        self.body, self.where = body, where
        self.root, self.meaning = self._read()
        self.pairs = self._members()

    def _read(self) -> tuple[MappingNode | None, dict[str, Any]]:
        readable = self.body
        if "\t" in readable and _is_json(readable):
            readable = readable.replace("\t", " ")  # YAML wants no tabs between JSON's parts
        try:
            root, members, meaning = _parsed(readable)
        except yaml.MarkedYAMLError as error:
            raise NotEdited(
                f"{_place(self.where, error.problem_mark)}: this is not YAML that can be edited: "
                f"{error.problem or error.context}"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            kind = type(error).__name__
            raise NotEdited(f"{self.where}: this is not YAML that can be edited ({kind})") from None
        if root is None or meaning is None:
            return None, {}
        if not isinstance(root, MappingNode) or not isinstance(meaning, dict):
            raise NotEdited(f"{self.where}: this is no kubeconfig: it does not hold an object")
        root.value = members
        return root, meaning

    def _members(self) -> dict[str, Pair]:
        found: dict[str, Pair] = {}
        for key, value in self.root.value if self.root else ():
            name = str(key.value)
            if name not in (*SECTIONS, CURRENT, *HEAD):
                continue
            if name in found:
                raise self.problem(f"{name} is there twice", key)
            colon = self.body.index(":", key.end_mark.index) + 1
            pair = found[name] = Pair(key, value, colon)
            if value.end_mark.index < colon:
                raise self.problem(f"{name} is an alias of something else", key)
            if not pair.is_empty and isinstance(value, SequenceNode) != (name in SECTIONS):
                raise self.problem(f"{name} is not {_KIND_OF.get(name, 'a list')}", key)
        for name in (*SECTIONS, CURRENT):
            if self.meaning.get(name) and name not in found:
                raise NotEdited(f"{self.where}: {name} comes with a merge key: write it out")
        return found

    def list_names(self, section: str) -> list[str | None]:
        """Those of its entries, as they are written: `no` and `007` are names, too."""
        pair = self.pairs.get(section)
        items = pair.value.value if pair and not pair.is_empty else []
        found: list[str | None] = []
        for item in items if isinstance(items, list) else ():
            members = item.value if isinstance(item, MappingNode) else ()
            found.append(next((str(v.value) for k, v in members if k.value == "name"), None))
        return found

    def problem(self, message: str, node: Node) -> NotEdited:
        return NotEdited(
            f"{_place(self.where, node.start_mark)}: {message}",
            hint="Nothing was changed. Correct the file, or choose another one with --file.",
        )


def _parsed(text: str) -> tuple[Node | None, list[Any], Any]:
    """The root, its members and what they mean. Raises what YAML's loaders raise."""
    for kind in _LOADERS:
        loader = kind(text)
        try:
            root = loader.get_single_node()
            # Merge keys are gone from a node once it is constructed.
            members = list(root.value) if isinstance(root, MappingNode) else []
            return root, members, None if root is None else loader.construct_document(root)
        except yaml.YAMLError:
            if kind is yaml.SafeLoader:
                raise
    raise AssertionError("the last loader answers or raises")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _place(where: str, mark: Any) -> str:
    return f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where


_START: Final = re.compile(r"^---[^\r\n]*", re.MULTILINE)


class Source(Parts):
    """A text without its byte order mark. Every edit makes another text."""

    def item(self, section: str, name: str) -> tuple[int, Node]:
        """The number of an entry, and where it is."""
        at = self.list_names(section).index(name)
        return at, self.pairs[section].value.value[at]

    def with_item(self, section: str, entry: Mapping[str, Any]) -> str:
        """With an entry before all others: what comes last may end in many ways."""
        pair = self.pairs.get(section)
        if pair is None:
            return self.with_key(section, [entry])
        value: Any = pair.value
        if self.is_flow_list(pair):
            at = self.body.index("[", value.start_mark.index) + 1
            return self._into_flow(at, json.dumps(entry, ensure_ascii=False), bool(value.value))
        if not pair.is_empty:
            dash = find_dash(self.body, value, 0)
            lines = _block([entry], dash - find_line_start(self.body, dash))
            return insert_lines(self.body, find_next_line(self.body, pair.colon), lines)
        head, tail = self.body[: pair.colon], self.body[pair.end :]
        if self.is_flow:
            return f"{head} {json.dumps([entry], ensure_ascii=False)}{tail}"
        lines = _block([entry], pair.key.start_mark.column)
        return insert_lines(head + tail, find_next_line(head + tail, pair.colon), lines)

    def is_flow_list(self, pair: Pair) -> bool:
        """Whether entries are put into its brackets: in lines they are easier to read."""
        value = pair.value
        is_flow = isinstance(value, SequenceNode) and bool(value.flow_style)
        return is_flow and (bool(value.value) or self.is_flow)

    def without_item(self, section: str, at: int) -> str:
        """Return the text without one entry of several."""
        sequence: Any = self.pairs[section].value
        return remove_spans(self.body, [find_item(self.body, sequence, at)])

    def emptied(self, section: str, before: str | None) -> str:
        """Return the text without the only entry of a section.

        `before` is what stood in the place of the list; None leaves an empty list.
        """
        pair = self.pairs[section]
        sequence: Any = pair.value
        if sequence.flow_style and before is not None:
            return self.body[: pair.colon] + before + self.body[pair.end :]
        text = remove_spans(self.body, [find_item(self.body, sequence, 0)])
        if sequence.flow_style:
            return text
        return text[: pair.colon] + (" []" if before is None else before) + text[pair.colon :]

    def with_key(self, key: str, value: Any) -> str:
        """Return the text with a new key before all others."""
        if self.is_flow and self.root is not None:
            at = self.body.index("{", self.root.start_mark.index) + 1
            member = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            return self._into_flow(at, member, bool(self.root.value))
        if self.root is None:
            start = _START.search(self.body)
            at = find_next_line(self.body, start.end()) if start else 0
            return insert_lines(self.body, at, _block({key: value}, 0))
        first = self.root.value[0][0].start_mark
        lines = _block({key: value}, first.column)
        return insert_lines(self.body, find_line_start(self.body, first.index), lines)

    def without_key(self, key: str) -> str:
        """Return the text without a key and its value."""
        root: Any = self.root
        at = next(n for n, (each, _) in enumerate(root.value) if each is self.pairs[key].key)
        return remove_spans(self.body, [find_member(self.body, root, at)])

    @property
    def is_flow(self) -> bool:
        return bool(self.root is not None and self.root.flow_style)

    def _into_flow(self, at: int, member: str, is_followed: bool) -> str:
        """Before the first member, in a line of its own where that one has it."""
        space = re.compile(r"\s*").match(self.body, at)
        lead = space[0] if space and is_followed else ""
        return self.body[:at] + lead + member + ("," if is_followed else "") + self.body[at:]


class _Dumper(yaml.SafeDumper):
    """Texts in quotes: YAML's versions differ in what a bare word is."""

    def represent_mapping(
        self, tag: str, mapping: Any, flow_style: bool | None = None
    ) -> MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node


def _quoted(dumper: _Dumper, text: str) -> Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _quoted)


def _block(value: Any, column: int) -> list[str]:
    """Lines of YAML, so far from the left, without their breaks."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return [" " * column + line for line in text.splitlines()]
