"""Parse and check the files of a project that share their names, with the span of each name.

Unlike `cursor`, this module reads YAML: a file that is not valid YAML has no entries here. Problems
are those that `gpuform validate` reports for saved files.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.document.reading import read_text, use_unsaved_texts
from gpuform.stacks.document.syntax_errors import LINE_BREAK, LOADER
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project
from gpuform.stacks.lsp.cursor import (
    NAMED_SECTIONS,
    ExpressionPath,
    NamedEntry,
    Span,
    find_references,
)
from gpuform.stacks.topology.files import get_inclusions
from gpuform.stacks.topology.planning import plan, read_plan_context

_EXPRESSION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class SourceFile:
    """A parsed YAML file. With `problems`, the tree is incomplete."""

    path: Path
    text: str
    root: MappingNode
    problems: Diagnostics = field(default_factory=Diagnostics)

    def find_entry(self, section: str, name: str) -> NamedEntry | None:
        """Return the entry of a section with the span of the name, or None.

        The entry's last line is the line of the name.
        """
        entries = self.root.get(section)
        entry = entries.entries.get(name) if isinstance(entries, MappingNode) else None
        if entry is None:
            return None
        span = self.get_span(entry.position, name)
        return NamedEntry(section, name, span, span.line)

    def find_entry_at(self, line: int, column: int) -> NamedEntry | None:
        """Return the entry whose name is under the cursor, or None."""
        entries = (
            self.find_entry(section, name)
            for section in NAMED_SECTIONS
            for name in self.list_names(section)
        )
        return next(
            (entry for entry in entries if entry and entry.span.contains(line, column)), None
        )

    def list_names(self, section: str) -> list[str]:
        """Return the names in a section, in the order of the text."""
        entries = self.root.get(section)
        return list(entries.entries) if isinstance(entries, MappingNode) else []

    def find_fields(self, section: str, name: str) -> MappingNode | None:
        """Return the fields of an entry, or None if the entry is missing or is no mapping."""
        entries = self.root.get(section)
        fields = entries.get(name) if isinstance(entries, MappingNode) else None
        return fields if isinstance(fields, MappingNode) else None

    def has_for_each(self, section: str, name: str) -> bool:
        """Return whether an entry has a `for_each`."""
        entry = self.find_fields(section, name)
        return entry is not None and entry.get("for_each") is not None

    def is_shared(self, entry: Entry) -> bool:
        """Return whether several mappings share the entry, by a YAML alias or a merge."""
        return sum(other_entry is entry for other_entry in _list_entries(self.root)) > 1

    @property
    def line_ending(self) -> str:
        """Return the line ending of the file, for inserted lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def get_quote_around(self, span: Span) -> str:
        """Return the quote around the value with an expression at a span, or an empty text."""
        for event in self._expression_events:
            begin, end = event.start_mark, event.end_mark
            if (begin.line, begin.column) <= (span.line, span.begin) < (end.line, end.column):
                return event.style if event.style in ("'", '"') else ""
        return ""

    def get_span(self, position: SourcePosition, text: str) -> Span:
        """Return the span of a text at a position, without quotes."""
        line, begin = position.line - 1, position.column - 1
        # The parser's position of a quoted text is that of the quote.
        begin += self.lines[line][begin : begin + 1] in ("'", '"')
        return Span(line, begin, begin + len(text))

    def get_text(self, span: Span) -> str:
        """Return the file's text at a span, such as a name to rename."""
        return self.lines[span.line][span.begin : span.end]

    @cached_property
    def lines(self) -> Sequence[str]:
        """Return the file's lines without line ends."""
        # str.splitlines also breaks at form feeds and other characters, at which gpuform's reader
        # does not.
        return LINE_BREAK.split(self.text)

    @cached_property
    def references(self) -> Sequence[ExpressionPath]:
        """Return the references in all expressions in the order of the text, not in comments."""
        return list(self._find_references())

    @cached_property
    def _expression_events(self) -> Sequence[Any]:
        """Return the YAML scalar events of the file with an expression in the value."""
        # The tree has no end positions and no quotes of scalars: the events have both.
        events = yaml.parse(self.text, Loader=LOADER)
        return [
            event for event in events if isinstance(event, yaml.ScalarEvent) and "{{" in event.value
        ]

    def _find_references(self) -> Iterator[ExpressionPath]:
        """Yield the references in all expressions of the file."""
        ends = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(self.text))]
        for event in self._expression_events:
            begin = event.start_mark.index
            # Escaped quotes would end a quoted text inside the expression.
            written = _blank_escapes(self.text[begin : event.end_mark.index])
            for expression in _EXPRESSION.finditer(written):
                begin_of_expression = begin + expression.start(1)
                yield from find_references(
                    expression[1], partial(_to_line_and_column, ends, begin_of_expression)
                )

    def list_modules(self) -> Iterator[MappingNode]:
        """Yield the modules in the file's `include`."""
        for node in get_inclusions(self.root, Diagnostics()):
            if isinstance(node, MappingNode):
                yield node


@dataclass(frozen=True)
class Sources:
    """All files of a project's topology, by namespace: the files that share their names."""

    namespaces: Sequence[Sequence[SourceFile]]

    @classmethod
    def read_project(
        cls, path: Path, project: Project | None, texts: Mapping[Path, str]
    ) -> "Sources":
        """Read the project's topology with all modules, and `path` in any case.

        `texts` are the texts of open files, by resolved path; other files are read from disk, and
        missing ones are skipped. Without a project only the files around `path` are read.
        """
        main_topology = None if project is None else _find_topology(project)
        reader = _SourceReader(texts)
        for topology_path in (main_topology, path):
            if topology_path is not None and not reader.has_read(topology_path):
                reader.read(topology_path)
        return cls(reader.namespaces)

    def list_sharing(self, path: Path) -> list[SourceFile]:
        """Return the files in the namespaces of a file, with the file itself."""
        path = path.resolve()
        own_namespaces = [
            namespace for namespace in self.namespaces if any(it.path == path for it in namespace)
        ]
        return list({source.path: source for it in own_namespaces for source in it}.values())

    def list_inclusions(self, path: Path) -> Iterator[tuple[SourceFile, MappingNode]]:
        """Yield the inclusions of a file's namespace as a module, each with the including file."""
        own_paths = {source.path for source in self.list_sharing(path)}
        known_inclusions: set[tuple[Path, SourcePosition]] = set()
        for source in (it for namespace in self.namespaces for it in namespace):
            for module in source.list_modules():
                key = source.path, module.position
                is_own = _resolve_module_file(module, source.path) in own_paths
                if is_own and key not in known_inclusions:
                    known_inclusions.add(key)
                    yield source, module

    def find_module_inputs(self, path: Path, name: str) -> list[tuple[Path, Span]]:
        """Return where inclusions of the file as a module pass an input."""
        spans = []
        for source, module in self.list_inclusions(path):
            values = module.get("with")
            if isinstance(values, MappingNode) and name in values.entries:
                position = values.entries[name].position
                spans.append((source.path, source.get_span(position, name)))
        return spans


def _find_topology(project: Project) -> Path | None:
    """Return the project's topology, or None if the project has a program or no files."""
    try:
        topology = find_topology(project.program)
    except EngineError:  # its program is not there
        return None
    return None if topology is None else topology.path


class _SourceReader:
    """Read files once each, by namespace."""

    def __init__(self, texts: Mapping[Path, str]) -> None:
        self._texts = texts
        self._started_paths: set[Path] = set()
        self.namespaces: list[list[SourceFile]] = []

    def has_read(self, path: Path) -> bool:
        """Return True if a file is part of a namespace already read."""
        return any(
            source.path == path.resolve() for namespace in self.namespaces for source in namespace
        )

    def read(self, path: Path) -> None:
        # Modules may include each other in a cycle, which validation reports.
        if path.resolve() in self._started_paths:
            return
        self._started_paths.add(path.resolve())
        namespace = list(self._read_with_included(path, set()))
        self.namespaces.append(namespace)
        for source in namespace:
            for module in source.list_modules():
                module_path = _resolve_module_file(module, source.path)
                if module_path is not None and module_path.is_file():
                    self.read(module_path)

    def _read_with_included(self, path: Path, known_paths: set[Path]) -> Iterator[SourceFile]:
        """Yield a file and the files included there by path, except for `known_paths`."""
        path = path.resolve()
        text = self._texts.get(path)
        # A new file may be open in the editor and not be on disk yet.
        if path in known_paths or (text is None and not path.is_file()):
            return
        known_paths.add(path)
        source = parse_source(path, path.read_text("utf-8", "replace") if text is None else text)
        yield source
        for node in get_inclusions(source.root, Diagnostics()):
            if isinstance(node, ScalarNode):
                yield from self._read_with_included(path.parent / node.text, known_paths)


@lru_cache(maxsize=64)
def parse_source(path: Path, source: str) -> SourceFile:
    """Parse the text of a file.

    Results are cached: an editor asks about the same text many times.
    """
    problems = Diagnostics()
    root = read_text(source, path.name, problems)
    return SourceFile(path, source, root, problems)


def _list_entries(node: Node) -> Iterator[Entry]:
    """Yield the entries of all mappings in the node, at any depth.

    An entry that YAML's anchors share between several mappings is yielded for each of them.
    """
    if isinstance(node, MappingNode):
        for entry in node.entries.values():
            yield entry
            yield from _list_entries(entry.node)
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _list_entries(item)


def _blank_escapes(written: str) -> str:
    """Return the text of a scalar with each escaped quote replaced by a blank and the quote.

    The length does not change, so that positions stay right. A scalar without quotes is returned
    unchanged.
    """
    escaped = {'"': '\\"', "'": "''"}.get(written[:1])
    return written.replace(escaped, f" {written[0]}") if escaped else written


def _resolve_module_file(module: MappingNode, including_path: Path) -> Path | None:
    """Return the path of a module's file, or None if `file` is missing or not a text.

    The path in the text is relative to the including file.
    """
    node = module.get("file")
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return None
    return (including_path.parent / node.value).resolve()


def _to_line_and_column(line_starts: Sequence[int], begin: int, offset: int) -> tuple[int, int]:
    """Return line and column, from 0, of the character `offset` places after `begin`.

    `line_starts` are the offsets of the lines in the complete text.
    """
    # Line breaks inside a scalar count: an expression may span several lines.
    line = bisect_right(line_starts, begin + offset) - 1
    return line, begin + offset - line_starts[line]


_TOKEN: Final = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1|[^\s:,\[\]{}#]+(?:[:][^\s,\[\]{}]+)*|.""")


def check_topology(
    path: Path, open_texts: Mapping[Path, str]
) -> dict[Path, list[DocumentDiagnostic]]:
    """Return the problems of a topology and of all included files, by file.

    `open_texts` are the texts of files that are open in the editor, by resolved path; other files
    are read from disk. Files without problems are missing in the result. If the project cannot be
    read, this is the only problem.
    """
    problems = Diagnostics()
    with use_unsaved_texts(open_texts):
        try:
            plan(path, read_plan_context(path, None), problems)
        except EngineError as error:  # a project that cannot be read
            position = SourcePosition(str(path))
            return {
                path: [DocumentDiagnostic(position, "project", error.message, error.hint or "")]
            }
    problems_by_file: dict[Path, list[DocumentDiagnostic]] = {}
    for problem in problems:
        # Positions name files relative to the current folder.
        problems_by_file.setdefault((Path.cwd() / problem.position.file).resolve(), []).append(
            problem
        )
    return problems_by_file


def get_problem_span(problem: DocumentDiagnostic, lines: Sequence[str]) -> Span:
    """Return the span of the word at a problem; an empty one if the position is behind the text."""
    line = min(problem.position.line - 1, max(len(lines) - 1, 0))
    problem_line = lines[line].rstrip("\r\n") if lines else ""
    begin = min(problem.position.column - 1, len(problem_line))
    token = _TOKEN.match(problem_line, begin)
    return Span(line, begin, token.end() if token else begin)
