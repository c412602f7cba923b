"""A kubeconfig as its user wrote it: entries are added and taken out, no other character changes.

Block and flow style (JSON), comments and line breaks stay. A text that would not say exactly what
was intended afterwards is refused instead: anchors, tags and merge keys can make it so.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpuform.stacks.engine.errors import EngineError

SECTIONS: Final = ("clusters", "contexts", "users")
CURRENT: Final = "current-context"
HEAD: Final[dict[str, str]] = {"apiVersion": "v1", "kind": "Config"}

Before = dict[str, str | None]
"""What stood behind the keys that were filled; None for those that were not there."""

_KIND_OF: Final = dict.fromkeys((CURRENT, *HEAD), "a text")
_NULL: Final = "tag:yaml.org,2002:null"
_BOM: Final = "\ufeff"
_START: Final = re.compile(r"^---[^\r\n]*", re.MULTILINE)
_DASH: Final = re.compile(r"^ *-(?=\s)", re.MULTILINE)


class NotEdited(EngineError):
    """A file that only a person can edit."""


@dataclass(frozen=True, slots=True)
class _Pair:
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


class KubeconfigText:
    """A text that has been read. `where` names it in messages."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._bom = _BOM if text.startswith(_BOM) else ""
        self._body = text[len(self._bom) :]
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._root, self.meaning = self._read()
        self._pairs = self._members()

    @property
    def current(self) -> str:
        """The current context; empty when there is none."""
        pair = self._pairs.get(CURRENT)
        return "" if pair is None or pair.is_empty else str(pair.value.value)

    def entries(self, section: str) -> dict[str, Mapping[str, Any]]:
        """Name -> what the entry holds, under `cluster`, `context` or `user`."""
        found: dict[str, Mapping[str, Any]] = {}
        for name, each in zip(self._names(section), self.meaning.get(section) or (), strict=True):
            held = each.get(section.removesuffix("s")) if isinstance(each, dict) else None
            if name is not None:
                found[name] = held if isinstance(held, dict) else {}
        return found

    def line_of(self, section: str, name: str) -> int:
        """Where an entry begins, counted from 1."""
        return int(self._item(section, name)[1].start_mark.line) + 1

    def before(self, *keys: str) -> Before:
        """What stands behind these keys, as far as it goes when they are filled."""
        found: Before = {}
        for key in keys:
            pair = self._pairs.get(key)
            if pair is None:
                found[key] = None
            elif key == CURRENT or (pair.is_empty and not self._is_flow_list(pair)):
                found[key] = self._body[pair.colon : pair.end]
        return found

    def added(self, section: str, name: str, held: Mapping[str, Any]) -> Self:
        """With an entry of a name that is not there yet."""
        entry = {"name": name, section.removesuffix("s"): held}
        wanted = {**self.meaning, section: [entry, *(self.meaning.get(section) or [])]}
        return self._with_body(self._with_item(section, entry))._checked(wanted)

    def without(self, section: str, name: str, before: Before) -> Self:
        """Without an entry; an emptied section is as it was before, if that is known."""
        at, item = self._item(section, name)
        left = [each for n, each in enumerate(self.meaning[section]) if n != at]
        if left:
            made = self._with_body(self._without_item(section, at))
            return made._checked({**self.meaning, section: left})
        wanted = {key: value for key, value in self.meaning.items() if key != section}
        if section in before and before[section] is None:
            return self._with_body(self._without_key(section, item))._checked(wanted)
        made = self._with_body(self._emptied(section, item, before.get(section)))
        if made.meaning.get(section):
            raise self._problem(f"{section} cannot be emptied", self._pairs[section].key)
        return made._checked({**wanted, section: made.meaning.get(section)})

    def with_current(self, name: str) -> Self:
        """With this context as the current one."""
        return self._with_scalar(CURRENT, name)

    def with_former(self, before: str | None) -> Self:
        """With what stood behind `current-context` once, or without the key."""
        pair = self._pairs[CURRENT]
        if before is None:
            wanted = {key: value for key, value in self.meaning.items() if key != CURRENT}
            return self._with_body(self._without_key(CURRENT, pair.value))._checked(wanted)
        made = self._with_body(self._body[: pair.colon] + before + self._body[pair.end :])
        return made._checked({**self.meaning, CURRENT: made.meaning.get(CURRENT)})

    def with_head(self) -> Self:
        """With `apiVersion` and `kind`, which it has not got yet."""
        document = self
        for key in reversed(HEAD):
            document = document._with_scalar(key, HEAD[key])
        return document

    def without_head(self, before: Before) -> Self:
        """Without these keys, if they came with gpuform and nothing else is left."""
        document = self
        if set(self.meaning) == set(HEAD) == {key for key in HEAD if before.get(key, "") is None}:
            for key in HEAD:
                pair = document._pairs[key]
                wanted = {k: v for k, v in document.meaning.items() if k != key}
                made = document._with_body(document._without_key(key, pair.value))
                document = made._checked(wanted)
        return document

    def _read(self) -> tuple[MappingNode | None, dict[str, Any]]:
        readable = self._body
        if "\t" in readable and _is_json(readable):
            readable = readable.replace("\t", " ")  # YAML wants no tabs between JSON's parts
        try:
            loader = yaml.SafeLoader(readable)
            root = loader.get_single_node()
            # Merge keys are gone from a node once it is constructed.
            members = list(root.value) if isinstance(root, MappingNode) else []
            meaning = None if root is None else loader.construct_document(root)
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

    def _members(self) -> dict[str, _Pair]:
        found: dict[str, _Pair] = {}
        for key, value in self._root.value if self._root else ():
            name = str(key.value)
            if name not in (*SECTIONS, CURRENT, *HEAD):
                continue
            if name in found:
                raise self._problem(f"{name} is there twice", key)
            colon = self._body.index(":", key.end_mark.index) + 1
            pair = found[name] = _Pair(key, value, colon)
            if value.end_mark.index < colon:
                raise self._problem(f"{name} is an alias of something else", key)
            if not pair.is_empty and isinstance(value, SequenceNode) != (name in SECTIONS):
                raise self._problem(f"{name} is not {_KIND_OF.get(name, 'a list')}", key)
        for name in (*SECTIONS, CURRENT):
            if self.meaning.get(name) and name not in found:
                raise NotEdited(f"{self.where}: {name} comes with a merge key: write it out")
        return found

    def _names(self, section: str) -> list[str | None]:
        """As they are written: `no` and `007` are names, too."""
        pair = self._pairs.get(section)
        items = pair.value.value if pair and not pair.is_empty else []
        found: list[str | None] = []
        for item in items if isinstance(items, list) else ():
            members = item.value if isinstance(item, MappingNode) else ()
            found.append(next((str(v.value) for k, v in members if k.value == "name"), None))
        return found

    def _item(self, section: str, name: str) -> tuple[int, Node]:
        at = self._names(section).index(name)
        return at, self._pairs[section].value.value[at]

    def _with_item(self, section: str, entry: Mapping[str, Any]) -> str:
        pair = self._pairs.get(section)
        if pair is None:
            return self._with_key(section, [entry])
        value = pair.value
        if self._is_flow_list(pair):
            at = self._body.index("[", value.start_mark.index) + 1
            return self._into_flow(at, json.dumps(entry, ensure_ascii=False), bool(value.value))
        if not pair.is_empty:
            return self._with_lines(pair.colon, _block([entry], self._column_of(value)))
        head, tail = self._body[: pair.colon], self._body[pair.end :]
        if self._is_flow:
            return f"{head} {json.dumps([entry], ensure_ascii=False)}{tail}"
        lines = _block([entry], pair.key.start_mark.column)
        return self._with_lines(pair.colon, lines, head + tail)

    def _is_flow_list(self, pair: _Pair) -> bool:
        """Whether entries are put into its brackets: in lines they are easier to read."""
        value = pair.value
        is_flow = isinstance(value, SequenceNode) and bool(value.flow_style)
        return is_flow and (bool(value.value) or self._is_flow)

    def _without_item(self, section: str, at: int) -> str:
        """Without one of several."""
        sequence: Any = self._pairs[section].value
        items = sequence.value
        if not sequence.flow_style:
            return self._without_lines(self._dash(sequence, at), _end(items[at]))
        if at + 1 < len(items):
            begin, end = items[at].start_mark.index, items[at + 1].start_mark.index
        else:
            begin, end = items[at - 1].end_mark.index, items[at].end_mark.index
        return self._body[:begin] + self._body[end:]

    def _emptied(self, section: str, item: Node, before: str | None) -> str:
        pair = self._pairs[section]
        if getattr(pair.value, "flow_style", False):
            kept = self._body[: item.start_mark.index] + self._body[item.end_mark.index :]
            if before is None:
                return kept
            return self._body[: pair.colon] + before + self._body[pair.end :]
        text = self._without_lines(self._dash(pair.value, 0), _end(item))
        return text[: pair.colon] + (" []" if before is None else before) + text[pair.colon :]

    def _with_scalar(self, key: str, value: str) -> Self:
        pair, wanted = self._pairs.get(key), {**self.meaning, key: value}
        if pair is None:
            return self._with_body(self._with_key(key, value))._checked(wanted)
        said = f" {json.dumps(value, ensure_ascii=False)}"
        text = self._body[: pair.colon] + said + self._body[pair.end :]
        return self._with_body(text)._checked(wanted)

    def _with_key(self, key: str, value: Any) -> str:
        """With a new key, before all others: what comes last may end in many ways."""
        if self._is_flow and self._root is not None:
            at = self._body.index("{", self._root.start_mark.index) + 1
            member = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            return self._into_flow(at, member, bool(self._root.value))
        if self._root is None:
            lines = _block({key: value}, 0)
            start = _START.search(self._body)
            if start:
                return self._with_lines(start.end(), lines)
            return "".join(self._ended(lines)) + self._body
        first = self._root.value[0][0]
        at = self._line_start(first.start_mark.index)
        lines = self._ended(_block({key: value}, first.start_mark.column))
        return self._body[:at] + "".join(lines) + self._body[at:]

    def _without_key(self, key: str, last: Node) -> str:
        pair = self._pairs[key]
        if not self._is_flow:
            return self._without_lines(pair.key.start_mark.index, max(pair.colon, _end(last)))
        members = self._root.value if self._root else []
        keys = [each for each, _ in members]
        at = next(n for n, each in enumerate(keys) if each is pair.key)
        if at + 1 < len(keys):
            begin, end = keys[at].start_mark.index, keys[at + 1].start_mark.index
        elif at:
            begin, end = members[at - 1][1].end_mark.index, pair.end
        else:
            begin, end = keys[at].start_mark.index, pair.end
        return self._body[:begin] + self._body[end:]

    @property
    def _is_flow(self) -> bool:
        return bool(self._root is not None and self._root.flow_style)

    def _into_flow(self, at: int, member: str, is_followed: bool) -> str:
        """Before the first member, in a line of its own where that one has it."""
        space = re.compile(r"\s*").match(self._body, at)
        lead = space[0] if space and is_followed else ""
        return self._body[:at] + lead + member + ("," if is_followed else "") + self._body[at:]

    def _with_lines(self, after: int, lines: list[str], text: str | None = None) -> str:
        """With these lines after the one in which something stands."""
        text = self._body if text is None else text
        at = text.find("\n", after) + 1
        if at:
            return text[:at] + "".join(self._ended(lines)) + text[at:]
        return text + self._break + self._break.join(lines)

    def _without_lines(self, begin: int, end: int) -> str:
        """Without the lines from one place to another."""
        first = self._line_start(begin)
        last = self._body.find("\n", end) + 1
        if last:
            return self._body[:first] + self._body[last:]
        return self._body[:first].removesuffix("\n").removesuffix("\r")

    def _ended(self, lines: list[str]) -> list[str]:
        return [line + self._break for line in lines]

    def _line_start(self, at: int) -> int:
        return self._body.rfind("\n", 0, at) + 1

    def _dash(self, sequence: Node, at: int) -> int:
        """Where the dash of an item stands: between it and what is before it."""
        item = sequence.value[at]
        before = _end(sequence.value[at - 1]) if at else sequence.start_mark.index
        begin = before if at else self._line_start(before)
        found = _DASH.search(self._body, begin, item.start_mark.index)
        if found is None:
            raise self._problem("an entry cannot be told from what is around it", item)
        return found.end() - 1

    def _column_of(self, sequence: Node) -> int:
        dash = self._dash(sequence, 0)
        return dash - self._line_start(dash)

    def _with_body(self, body: str) -> Self:
        return type(self)(self._bom + body, self.where)

    def _checked(self, wanted: Mapping[str, Any]) -> Self:
        """The same, which has to say what is wanted and nothing else."""
        if self.meaning != wanted:
            raise NotEdited(
                f"{self.where}: the file cannot be edited as it is written",
                hint="Nothing was changed. Let kubectl write it anew (any `kubectl config set-...` "
                "does), or choose another file with --file.",
            )
        return self

    def _problem(self, message: str, node: Node) -> NotEdited:
        return NotEdited(
            f"{_place(self.where, node.start_mark)}: {message}",
            hint="Nothing was changed. Correct the file, or choose another one with --file.",
        )


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


def _end(node: Any) -> int:
    """Where its last character is: the end of a block is behind what follows it."""
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    end = int(node.end_mark.index)
    is_open = isinstance(node, ScalarNode) and node.style in ("|", ">")
    return end - 1 if is_open else end


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _place(where: str, mark: Any) -> str:
    return f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
