"""The files of a project that share their names, with each place where one is written.

Unlike an outline this reads YAML as YAML: a file that is none has no such places.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.document.reading import LINE_BREAK, LOADER, read_text
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project
from gpuform.stacks.lsp.cursor import NAMED, Named, Reference, Span, references_in
from gpuform.stacks.topology.files import get_inclusions

_EXPRESSION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A file of YAML. `problems` are those of its form; then its tree is not whole."""

    path: Path
    text: str
    root: MappingNode
    problems: Diagnostics = field(default_factory=Diagnostics)

    def declared(self, section: str, name: str) -> Named | None:
        """The entry of a section, where its name is written."""
        entries = self.root.get(section)
        entry = entries.entries.get(name) if isinstance(entries, MappingNode) else None
        if entry is None:
            return None
        span = self.span(entry.position, name)
        return Named(section, name, span, span.line)

    def declaration_at(self, line: int, column: int) -> Named | None:
        """The declaration whose name is under the cursor."""
        declared = (self.declared(each, name) for each in NAMED for name in self.names(each))
        return next((each for each in declared if each and each.span.holds(line, column)), None)

    def names(self, section: str) -> list[str]:
        """The names in a section, in their order."""
        entries = self.root.get(section)
        return list(entries.entries) if isinstance(entries, MappingNode) else []

    def entry(self, section: str, name: str) -> MappingNode | None:
        """What an entry of a section says."""
        entries = self.root.get(section)
        found = entries.get(name) if isinstance(entries, MappingNode) else None
        return found if isinstance(found, MappingNode) else None

    def repeats(self, section: str, name: str) -> bool:
        """Whether an entry has an instance for each of something."""
        entry = self.entry(section, name)
        return entry is not None and entry.get("for_each") is not None

    def is_shared(self, entry: Entry) -> bool:
        """Whether more than one mapping has an entry, by an alias or a merge."""
        return sum(each is entry for each in _entries(self.root)) > 1

    @property
    def line_end(self) -> str:
        """How its lines end."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def quote_at(self, span: Span) -> str:
        """The quote that the value around a place is written in; empty without one."""
        held = (each for each in self._scalars if each[0] <= (span.line, span.begin) < each[1])
        return next((quote for _, _, quote in held), "")

    def span(self, place: SourcePosition, text: str) -> Span:
        """Where a text is written that begins at a place, in quotes or without."""
        line, begin = place.line - 1, place.column - 1
        begin += self.lines[line][begin : begin + 1] in ("'", '"')
        return Span(line, begin, begin + len(text))

    def text_of(self, span: Span) -> str:
        """What is written there."""
        return self.lines[span.line][span.begin : span.end]

    @cached_property
    def lines(self) -> Sequence[str]:
        """Without their ends."""
        return LINE_BREAK.split(self.text)

    @cached_property
    def references(self) -> Sequence[Reference]:
        """All that expressions name, in the order of the text; not what comments say."""
        return list(self._references())

    @cached_property
    def _events(self) -> Sequence[Any]:
        """The scalars with expressions."""
        events = yaml.parse(self.text, Loader=LOADER)
        return [e for e in events if isinstance(e, yaml.ScalarEvent) and "{{" in e.value]

    @property
    def _scalars(self) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
        for event in self._events:
            begin, end = event.start_mark, event.end_mark
            style = event.style if event.style in ("'", '"') else ""
            yield (begin.line, begin.column), (end.line, end.column), style

    def _references(self) -> Iterator[Reference]:
        ends = [0, *(found.end() for found in LINE_BREAK.finditer(self.text))]
        for event in self._events:
            begin = event.start_mark.index
            written = _unescaped(self.text[begin : event.end_mark.index])
            for found in _EXPRESSION.finditer(written):
                at = begin + found.start(1)
                yield from references_in(found[1], partial(_place, ends, at))

    def modules(self) -> Iterator[MappingNode]:
        """What it includes as modules."""
        for node in get_inclusions(self.root, Diagnostics()):
            if isinstance(node, MappingNode):
                yield node


@dataclass(frozen=True)
class Sources:
    """All files of a project's topology, by the namespaces that they make."""

    namespaces: Sequence[Sequence[Source]]

    @classmethod
    def around(cls, path: Path, project: Project | None, texts: Mapping[Path, str]) -> "Sources":
        """Those of the project's topology and its modules; `path` is among them in any case."""
        main = None if project is None else _topology_of(project)
        reading = _Reading(texts)
        for each in (main, path):
            if each is not None and not reading.has(each):
                reading.read(each)
        return cls(reading.namespaces)

    def of(self, path: Path) -> list[Source]:
        """The files that share their names with one, and it itself."""
        path = path.resolve()
        mine = [each for each in self.namespaces if any(one.path == path for one in each)]
        return list({source.path: source for each in mine for source in each}.values())

    def including(self, path: Path) -> Iterator[tuple[Source, MappingNode]]:
        """What includes a file, or one that shares its names, as a module; in which file."""
        own = {source.path for source in self.of(path)}
        seen: set[tuple[Path, SourcePosition]] = set()
        for source in (one for each in self.namespaces for one in each):
            for module in source.modules():
                key = source.path, module.position
                if key not in seen and _file_of(module, source.path) in own:
                    seen.add(key)
                    yield source, module

    def given(self, path: Path, name: str) -> list[tuple[Path, Span]]:
        """Where the modules that a file is, are given an input."""
        found = []
        for source, module in self.including(path):
            given = module.get("with")
            entry = given.entries.get(name) if isinstance(given, MappingNode) else None
            if entry is not None:
                found.append((source.path, source.span(entry.position, name)))
        return found


def _topology_of(project: Project) -> Path | None:
    try:
        found = find_topology(project.program)
    except EngineError:  # its program is not there
        return None
    return None if found is None else found.path


class _Reading:
    def __init__(self, texts: Mapping[Path, str]) -> None:
        self._texts = texts
        self._begun: set[Path] = set()
        self.namespaces: list[list[Source]] = []

    def has(self, path: Path) -> bool:
        return any(each.path == path.resolve() for space in self.namespaces for each in space)

    def read(self, path: Path) -> None:
        """The namespace that begins at a file, and those of the modules in it."""
        if path.resolve() in self._begun:
            return
        self._begun.add(path.resolve())
        space = list(self._with_included(path, set()))
        self.namespaces.append(space)
        for source in space:
            for module in source.modules():
                other = _file_of(module, source.path)
                if other is not None and other.is_file():
                    self.read(other)

    def _with_included(self, path: Path, seen: set[Path]) -> Iterator[Source]:
        path = path.resolve()
        text = self._texts.get(path)
        if path in seen or (text is None and not path.is_file()):
            return
        seen.add(path)
        source = source_of(path, path.read_text("utf-8", "replace") if text is None else text)
        yield source
        for node in get_inclusions(source.root, Diagnostics()):
            if isinstance(node, ScalarNode):
                yield from self._with_included(path.parent / node.text, seen)


@lru_cache(maxsize=64)
def source_of(path: Path, text: str) -> Source:
    """The file with a text."""
    problems = Diagnostics()
    root = read_text(text, path.name, problems)
    return Source(path, text, root, problems)


def _entries(node: Node) -> Iterator[Entry]:
    """Those at any depth, as often as mappings have them."""
    if isinstance(node, MappingNode):
        for entry in node.entries.values():
            yield entry
            yield from _entries(entry.node)
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _entries(item)


def _unescaped(written: str) -> str:
    """A scalar as it is written, with a blank for what escapes a quote: each character stays."""
    escaped = {'"': '\\"', "'": "''"}.get(written[:1])
    return written.replace(escaped, f" {written[0]}") if escaped else written


def _file_of(module: MappingNode, beside: Path) -> Path | None:
    node = module.get("file")
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return None
    return (beside.parent / node.value).resolve()


def _place(ends: Sequence[int], begin: int, offset: int) -> tuple[int, int]:
    line = bisect_right(ends, begin + offset) - 1
    return line, begin + offset - ends[line]
