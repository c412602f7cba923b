"""Read YAML files into node trees with positions, and report duplicates, limits and wrong values.

Every reader of a YAML file that a person writes calls `read_file`, `read_text`, or `read_checked`,
which also validates the values against a model; topologies call `report_problems` with the nodes of
their entries. PyYAML parses the events; this module composes the nodes itself, to report duplicate
keys and to enforce limits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.models import InputModel, Problem
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    find_key_position,
    find_nearest_node,
    parse_path,
    parse_plain_scalar,
    to_plain_value,
)
from gpuform.stacks.document.syntax_errors import (
    DEEPEST,
    LINE_BREAK,
    LOADER,
    QUOTE_IT,
    TOO_DEEP,
    describe_syntax_error,
)

MOST_NODES: Final = 500_000
"""Values of one file, each counted as often as aliases repeat it; long texts count for more."""
_TEXT_OF_ONE: Final = 64
"""Characters that count for one value."""
_LONGEST_SHOWN: Final = 60

_REFERRING_TAGS = ("!Ref", "!GetAtt", "!Sub", "!ImportValue", "!reference")
"""Of CloudFormation and GitLab."""
_REFERRING_TAG_HINT = "write a reference as {{ SECTION.NAME.PROPERTY }}"
_TEXT_TAG = "tag:yaml.org,2002:str"


class Unreadable(Exception):
    """An error, already reported, after which nothing of the text can be read."""


class Composer:
    """Composes the node tree of one YAML text; `start` gives the file of the positions.

    Reports errors to `problems`.
    """

    def __init__(self, text: str, start: SourcePosition, problems: Diagnostics) -> None:
        self.start, self.problems = start, problems
        self.lines = LINE_BREAK.split(text)
        self.events: Iterator[Any] = iter(LOADER(text).get_event, None)
        self.anchors: dict[str, tuple[Node, int, int] | None] = {}
        """By name: the node, how many values it counts for, and its depth; None inside itself."""
        self.count = self.deepest = 0

    def compose_document(self) -> Node | None:
        """Compose the only document of the text, or return None if the text is empty.

        Raises:
            Unreadable: reading cannot continue after an error that is already reported.
            yaml.MarkedYAMLError: the text is not YAML.
        """
        document: Node | None = None
        for event in self.events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if event.tags:
                raise self.report_fatal_problem(event, "tag", "tags are not supported: remove %TAG")
            if document is not None:
                raise self.report_fatal_problem(
                    event, "shape", "the file must contain one document: remove this `---`"
                )
            document = self.compose_node(next(self.events), 0)
        return document

    def compose_node(self, event: Any, depth: int) -> Node:
        """Compose the node that begins with `event`. Remember its size and depth for aliases."""
        if isinstance(event, yaml.AliasEvent):
            return self.resolve_alias(event, depth)
        count_before, anchor, deepest_outside = self.count, event.anchor, self.deepest
        # Measure the depth of this node alone: an alias adds it to its own depth.
        self.deepest = 0
        self.count_values(event, 1, depth)
        if anchor:
            # None marks an anchor inside which an alias of itself would never end.
            self.anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self.compose_scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.reject_tag(event)
            node = self.compose_sequence(event, depth)
        else:
            self.reject_tag(event)
            node = self.compose_mapping(event, depth)
        if anchor:
            self.anchors[anchor] = node, self.count - count_before, self.deepest - depth
        self.deepest = max(self.deepest, deepest_outside)
        return node

    def resolve_alias(self, event: Any, depth: int) -> Node:
        """Return the node of an alias; report an unknown one and return a null.

        Count its values again, so that aliases cannot grow without limit. Raises Unreadable for an
        alias inside its own value.
        """
        name = event.anchor
        if name not in self.anchors:
            self.report_problem(event, "alias", f"no anchor &{name} precedes this alias")
            return ScalarNode(self.get_position(event), None)
        anchored = self.anchors[name]
        if anchored is None:
            raise self.report_fatal_problem(
                event, "alias", f"the value &{name} contains its own alias *{name}"
            )
        node, count, height = anchored
        self.count_values(event, count, depth + height)
        return node

    def compose_scalar(self, event: Any) -> ScalarNode:
        """Compose a scalar; only one without quotes becomes a number, a boolean or null."""
        # A long text costs memory as several values do.
        self.count += len(event.value) // _TEXT_OF_ONE
        plain = event.implicit[0] and event.tag != "!"
        if event.tag not in (None, "!", _TEXT_TAG):
            self.reject_tag(event)
        value = parse_plain_scalar(event.value) if plain else event.value
        return ScalarNode(self.get_position(event), value, event.value)

    def compose_sequence(self, start: Any, depth: int) -> SequenceNode:
        """Read events to the end of a sequence and return its node."""
        items = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.compose_node(event, depth + 1))
        return SequenceNode(self.get_position(start), tuple(items))

    def compose_mapping(self, start: Any, depth: int) -> MappingNode:
        """Compose a mapping. Its own keys override the keys that `<<` merges.

        A number or boolean as a key counts as text. Null, lists and objects as keys, and repeated
        keys, are reported and left out.
        """
        entries: dict[str, Entry] = {}
        merged: list[tuple[Any, Node]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
            # In quotes, `<<` is a key like any other.
            is_merge = is_merge and event.implicit[0]
            key = self.compose_node(event, depth + 1)
            value = self.compose_node(next(self.events), depth + 1)
            # Merged after the loop: own keys win wherever `<<` stands.
            if is_merge:
                merged.append((event, value))
            elif not isinstance(key, ScalarNode) or key.value is None:
                hint = QUOTE_IT if self.is_bare_expression(start, event) else ""
                self.report_problem(event, "key", "a key must be text", hint)
            elif key.text in entries:
                first = entries[key.text].position
                name = key.text[:_LONGEST_SHOWN]
                message = f"the key {name!r} occurs twice: first in line {first.line}"
                self.report_problem(event, "duplicate", message, "keep one of the two")
            else:
                entries[key.text] = Entry(key.position, value)
        for merge, value in merged:
            for source in self.list_merged_mappings(merge, value):
                for inherited, entry in source.entries.items():
                    entries.setdefault(inherited, entry)
        return MappingNode(self.get_position(start), entries)

    def list_merged_mappings(self, event: Any, value: Node) -> Iterator[MappingNode]:
        """Yield the mappings named by a merge key, the one with the highest precedence first."""
        for item in value.items if isinstance(value, SequenceNode) else (value,):
            if isinstance(item, MappingNode):
                yield item
            else:
                self.report_problem(
                    event, "merge", "<< merges mappings: write the alias of a mapping, *name"
                )

    def is_bare_expression(self, start: Any, key: Any) -> bool:
        """Return True if a mapping used as a key is an expression `{{ }}` without quotes."""
        mark = start.start_mark
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        return isinstance(key, yaml.MappingStartEvent) and line[mark.column :].startswith("{{")

    def reject_tag(self, event: Any) -> None:
        """Report any YAML tag except `!` as a problem."""
        if event.tag not in (None, "!"):
            message = f"the tag {event.tag[:_LONGEST_SHOWN]} is not supported: remove it"
            hint = _REFERRING_TAG_HINT if event.tag in _REFERRING_TAGS else ""
            self.report_problem(event, "tag", message, hint)

    def count_values(self, event: Any, number: int, depth: int) -> None:
        """Count `number` values at `depth` before the caller composes them.

        Raises:
            Unreadable: the file has more than `MOST_NODES` values or is nested deeper than
                `DEEPEST`.
        """
        self.count += number
        self.deepest = max(self.deepest, depth)
        if self.deepest > DEEPEST:
            raise self.report_fatal_problem(event, "limit", TOO_DEEP)
        if self.count > MOST_NODES:
            raise self.report_fatal_problem(
                event,
                "limit",
                f"more than {MOST_NODES} values, including those that aliases repeat",
            )

    def get_position(self, event: Any) -> SourcePosition:
        """Return the position in the file where a YAML event begins."""
        mark = event.start_mark
        return self.start._replace(line=mark.line + 1, column=mark.column + 1)

    def report_problem(self, event: Any, rule: str, message: str, hint: str = "") -> None:
        """Add a problem at the position of an event to the problems."""
        self.problems.add(self.get_position(event), rule, message, hint)

    def report_fatal_problem(self, event: Any, rule: str, message: str) -> Unreadable:
        """Report a problem and return the exception to raise."""
        self.report_problem(event, rule, message)
        return Unreadable()


LARGEST: Final = 10_000_000
"""The maximum size of one file in bytes."""
_FORBIDDEN: Final = re.compile(
    r"[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that YAML excludes or that only some YAML versions treat as line breaks."""


_unsaved: ContextVar[Mapping[Path, str]] = ContextVar("unsaved", default=MappingProxyType({}))


@contextmanager
def use_unsaved_texts(texts: Mapping[Path, str]) -> Iterator[None]:
    """Read files with an editor's unsaved texts while the context is active.

    `texts` maps resolved paths to unsaved texts. The language server uses this context for its
    checks.
    """
    token = _unsaved.set(texts)
    try:
        yield
    finally:
        _unsaved.reset(token)


def read_source_text(path: Path) -> str:
    """Return the text of a file, unsaved or from disk, without a byte order mark.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: the file is not UTF-8.
    """
    unsaved_text = _find_unsaved_text(path)
    return path.read_text(encoding="utf-8-sig") if unsaved_text is None else unsaved_text


def _find_unsaved_text(path: Path) -> str | None:
    """Return the unsaved text of a file without a byte order mark, or None without one."""
    unsaved_texts = _unsaved.get()
    unsaved_text = unsaved_texts.get(path.resolve()) if unsaved_texts else None
    return None if unsaved_text is None else unsaved_text.removeprefix("\ufeff")


def read_file(
    path: Path,
    file_label: str,
    problems: Diagnostics,
    included: tuple[SourcePosition, ...] = (),
    *,
    is_outside_project: bool = False,
) -> MappingNode:
    """Read a YAML file and return the top-level mapping. Add every problem to `problems`.

    The mapping is empty if the file cannot be read or parsed; after other problems it holds the
    readable part. An editor's unsaved text (`use_unsaved_texts`) counts in place of the file.
    `file_label` is the name of the file in messages, `included` the positions of the `include`
    entries that led to the file. With `is_outside_project`, messages show nothing of the file's
    content.
    """
    start = SourcePosition(file_label, included=included, is_outside_project=is_outside_project)
    empty_mapping = MappingNode(start)
    if (source_text := _find_unsaved_text(path)) is not None:
        return _compose_mapping(source_text, start, problems)
    try:
        with path.open("rb") as file:
            # One byte more than allowed shows a larger file without reading it whole.
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a character that no path has
        reason = error.strerror if isinstance(error, OSError) else error
        problems.add(start, "file", f"cannot be read: {reason}")
        return empty_mapping
    if len(data) > LARGEST:
        problems.add(start, "limit", f"the file has more than {LARGEST} bytes")
        return empty_mapping
    try:
        source_text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        position = _find_end_position(data[: error.start].decode(), start)
        problems.add(position, "syntax", "this is not UTF-8 text", "save the file as UTF-8")
        return empty_mapping
    return _compose_mapping(source_text, start, problems)


def read_text(text: str, file_label: str, problems: Diagnostics) -> MappingNode:
    """Read a YAML text and return the top-level mapping, as `read_file` does."""
    return _compose_mapping(text, SourcePosition(file_label), problems)


def _compose_mapping(text: str, start: SourcePosition, problems: Diagnostics) -> MappingNode:
    """Return the mapping of a file's text; empty for an empty text or after a fatal error.

    Any content other than a mapping is a problem. `start` gives the file of the positions.
    """
    empty_mapping = MappingNode(start)
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        position = _find_end_position(text[: forbidden.start()], start)
        message = f"the character U+{ord(forbidden[0]):04X} must not appear unescaped"
        hint = "remove it, or write its \\u code in double quotes"
        problems.add(position, "syntax", message, hint)
        return empty_mapping
    composer = Composer(text, start, problems)
    try:
        root = composer.compose_document()
    except yaml.MarkedYAMLError as error:
        problems.add(*describe_syntax_error(error, composer.lines, start))
        return empty_mapping
    except Unreadable:  # the problem has been noted
        return empty_mapping
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return empty_mapping
    if not isinstance(root, MappingNode):
        problems.add(root.position, "shape", "the file must contain keys with values")
        return empty_mapping
    return root


def _find_end_position(before: str, start: SourcePosition) -> SourcePosition:
    """Return the position after `before`, the beginning of a file; `start` gives the file."""
    lines = LINE_BREAK.split(before)
    return start._replace(line=len(lines), column=len(lines[-1]) + 1)


def read_checked(
    path: Path, file_label: str, model: type[InputModel], problems: Diagnostics
) -> tuple[MappingNode, dict[str, Any]]:
    """Read the file at `path` and validate all values against `model`.

    `file_label` is the name of the file in messages. Returns the tree and the values; wrong values
    stay. If `problems` holds any problem after reading, an earlier one included, nothing is
    validated and the values are empty. Adds every problem to `problems`.
    """
    root = read_file(path, file_label, problems)
    # The model would report what is missing from a tree that was read only in part.
    if problems:
        return root, {}
    values, model_problems = validate_inputs(model, to_plain_value(root))
    report_problems(model_problems, root, "", problems)
    return root, values


def report_problems(
    model_problems: Iterable[Problem], root: Node, address: str, problems: Diagnostics
) -> None:
    """Add `model_problems` to `problems`, each at the position of the wrong value.

    `address` is the property path of `root`, empty for the root of a file.
    """
    for problem in model_problems:
        position, rule, reason = _locate_problem(root, problem)
        path = f"{address}.{problem.path}" if address else problem.path
        problems.add_once(position, rule, reason, f"{path}: {reason}")


def _locate_problem(root: Node, problem: Problem) -> tuple[SourcePosition, str, str]:
    """Return the position, the rule and the reason with which to report a problem of a value.

    `root` is the validated node. The rule is the name of the broken check: `unknown-key` or
    `value`. The reason is that of the problem; for a number or a boolean in place of a text it also
    recommends quotes.
    """
    steps = list(parse_path(problem.path))
    if problem.reason.startswith(KEY_PROBLEM_PREFIXES):
        return find_key_position(root, steps), "unknown-key", problem.reason
    node = find_nearest_node(root, steps)
    reason = problem.reason
    # A number or boolean without quotes is the usual cause.
    if reason.startswith("must be text") and isinstance(node, ScalarNode):
        reason = f'must be text, not {node.text}: write it in quotes, "{node.text}"'
    return node.position, "value", reason
