"""A topology as an editor has it: which files it is made of, and what is asked about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, find_project, find_topology_file
from gpuform.stacks.expressions.filters import FILTERS
from gpuform.stacks.expressions.sandbox import SANDBOX
from gpuform.stacks.lsp.cursor import Cursor, Named, Outline, Reference, Span
from gpuform.stacks.lsp.sources import Sources, source_of
from gpuform.stacks.lsp.vocabulary import Word, outputs_of, values_of, words_at

_HEAD: Final = re.compile(r"^#.*\$schema=\S*topology\.schema\.json", re.MULTILINE)
_ABOUT: Final = {
    "config": "The stack's configuration.",
    "inputs": "The values that a module is given.",
    "each": "Key and value of this instance of `for_each`.",
    "modules": "The modules that are included, by name.",
    "stack_references": "Outputs of other stacks.",
    "pulumi": "The names of the running stack and its project.",
}
_RESOURCES: Final = ("depends_on", "parent", "deleted_with", "replace_with")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_ITEM: Final = re.compile(r"\s*-\s")
_BARE_ITEM: Final = re.compile(r"\s*-\s+[\w./-]*")
_FILE: Final = re.compile(r"""\bfile\s*:\s*["']?([^\s"',}]+)""")
_NO_TOPOLOGY: Final = re.compile(r"(?i)Pulumi\.|gates\.|prices\.|stacks\.")
_PARTS: Final = {"each": ("key", "value"), "pulumi": ("stack", "project")}


@dataclass(frozen=True, slots=True)
class Completion:
    """Something that can be written at the cursor: `name`, or what is to be put in `instead`, in
    the place of so many characters before the cursor.
    """

    name: str
    kind: str
    text: str = ""
    is_first: bool = False
    instead: str = ""
    of: int = 0


@dataclass(frozen=True)
class TopologyText:
    """The text of one file, saved or not. `others` are the texts of further open files."""

    path: Path
    text: str
    others: Mapping[Path, str] = field(default_factory=dict)

    @cached_property
    def outline(self) -> Outline:
        return Outline.of(self.text)

    @cached_property
    def project(self) -> Project | None:
        try:
            return find_project(self.path.parent)
        except EngineError:
            return None

    @cached_property
    def sources(self) -> Sources:
        """The files of the project's topology, this text among them."""
        return Sources.around(
            self.path, self.project, {**self.others, self.path.resolve(): self.text}
        )

    @property
    def is_topology(self) -> bool:
        """Whether the file is one: by its project, its first line, or what it holds."""
        if self.path.name.startswith("Pulumi.") or self.path.suffix not in (".yaml", ".yml"):
            return False
        if _HEAD.search(self.text[:1000]):
            return True
        found = find_topology_file(self.path.parent)
        if found is not None and found.name == self.path.name:
            return True
        is_declaring = any(section in SECTIONS for section, _ in self.outline.declared)
        return self.project is not None and is_declaring

    @cached_property
    def modules(self) -> dict[str, Path]:
        """The files of the modules that the text includes, by their names."""
        own = next((each for each in self.sources.of(self.path) if self.is_own(each.path)), None)
        inclusions = own.modules() if own is not None else ()
        pairs = ((each.get("name"), each.get("file")) for each in inclusions)
        return {
            name.text: self.path.parent / file.text
            for name, file in pairs
            if isinstance(name, ScalarNode) and isinstance(file, ScalarNode)
        }

    def completions(self, line: int, column: int) -> list[Completion]:
        """What can be written there, what has to be before the rest."""
        cursor = Cursor.at(self.outline.lines, line, column)
        if cursor.kind == "nothing":
            return []
        if cursor.kind == "expression" and cursor.path[:1] in (("config",), ("inputs",)):
            return []
        if cursor.kind == "expression":
            found = self._in_expression(cursor)
            return [self._in_brackets(each, cursor, line, column) for each in found]
        if cursor.path[:1] == ("include",):
            found = self._of_inclusion(cursor, line)
            if found and cursor.path != ("include",):
                return found
        if cursor.kind == "value" and cursor.path[-1:] and cursor.path[-1] in _RESOURCES:
            return [
                Completion(f'"{{{{ {section}.{name} }}}}"', "value")
                for section in SECTIONS
                for name in self._names(section)
                if _IDENTIFIER.fullmatch(name) and (section, name) != cursor.path[:2]
            ]
        platform = self._platform(cursor.path)
        if cursor.kind == "value":
            values = values_of(cursor.path, platform)
            return [Completion(value, "value") for value in values]
        words = words_at(cursor.path, platform).values()
        is_bare = cursor.path == ("include",) and _BARE_ITEM.fullmatch(
            self.outline.lines[line][:column]
        )
        files = self._of_inclusion(cursor, line) if is_bare else []
        return files + [
            Completion(word.name, "property", _described(word), word.is_required)
            for word in words
            if word.name not in cursor.siblings
        ]

    def hover(self, line: int, column: int) -> str:
        """What the word under the cursor means, in Markdown; nothing where nobody knows."""
        found = self.outline.reference_at(line, column)
        if found is not None:
            return self._about_reference(*found)
        word = self._word_at(line, column, r"[\w.-]+")
        if word is None:
            return ""
        cursor = Cursor.at(self.outline.lines, line, word.start())
        known = words_at(cursor.path, self._platform(cursor.path)).get(word[0])
        return f"**{known.name}** ({known.type})\n\n{known.text}" if known is not None else ""

    def definition(self, line: int, column: int) -> tuple[Path, Named | None] | None:
        """Where what is under the cursor is declared: the file, and the entry in it, if any."""
        found = self.outline.reference_at(line, column)
        if found is not None:
            steps = found[0].steps
            if steps[0] == "modules" and len(steps) > 1:
                return self._in_module(steps)
            return self._declared(steps[0], steps[1]) if len(steps) > 1 else None
        word = self._word_at(line, column, r"[\w./-]+")
        if word is not None and word[0].endswith((".yaml", ".yml")):
            path = self.path.parent / word[0]
            return (path, None) if path.is_file() else None
        own = self._own_at(line, column)
        return None if own is None else (self.path, own)

    def uses(self, section: str, name: str) -> list[tuple[Path, Span]]:
        """Where expressions name a declaration, in all files that share its name."""
        outlines = {source.path: source.references for source in self.sources.of(self.path)}
        if not outlines:
            outlines = {self.path: list(self.outline.references())}
        found = [
            (path, reference.spans[1])
            for path, references in outlines.items()
            for reference in references
            if reference.steps[:2] == (section, name)
        ]
        return found + (self.sources.given(self.path, name) if section == "inputs" else [])

    def meant(self, line: int, column: int) -> tuple[Path, Named] | None:
        """The declaration that is under the cursor, or referred to there, and its file."""
        own = self._own_at(line, column)
        if own is not None:
            return self.path, own
        found = self.outline.reference_at(line, column)
        if found is None or len(found[0].steps) < 2 or found[1] != 1:
            return None
        return self._declared(found[0].steps[0], found[0].steps[1])

    def _own_at(self, line: int, column: int) -> Named | None:
        found = self.outline.declaration_at(line, column)
        if found is not None:
            return found
        own = (each for each in self.sources.of(self.path) if self.is_own(each.path))
        return next((each.declaration_at(line, column) for each in own), None)

    def is_own(self, path: Path) -> bool:
        """Whether a path is that of this text."""
        return path.resolve() == self.path.resolve()

    def _declared(self, section: str, name: str) -> tuple[Path, Named] | None:
        """The declaration of that name, in this text or in one that shares its names."""
        own = self.outline.declared.get((section, name))
        if own is not None:
            return self.path, own
        for source in self.sources.of(self.path):
            named = source.declared(section, name)
            if named is not None:
                return source.path, named
        return None

    def _names(self, section: str) -> list[str]:
        """Those of this text, and those of files that share its names."""
        own = self.outline.names(section)
        others = self.sources.of(self.path)
        return list(
            dict.fromkeys([*own, *(name for each in others for name in each.names(section))])
        )

    def _has(self, name: str, cursor: Cursor) -> bool:
        """Whether an expression at the cursor can begin with the name."""
        if name == "each":
            return cursor.path[:1] == ("include",) or cursor.path[:1] in {(s,) for s in SECTIONS}
        if name == "modules":
            return bool(self.modules)
        return name in ("config", "pulumi") or bool(self._names(name))

    def _keys(self, section: str, name: str) -> list[str] | None:
        """The keys of an entry's instances, as far as they are written; None where it has one."""
        entries = (each.entry(section, name) for each in self.sources.of(self.path))
        return _keys_of(next((each.get("for_each") for each in entries if each is not None), None))

    def _keys_of_module(self, name: str) -> list[str] | None:
        """The same of a module that the files include."""
        modules = (one for each in self.sources.of(self.path) for one in each.modules())
        for module in modules:
            own = module.get("name")
            if isinstance(own, ScalarNode) and own.text == name:
                return _keys_of(module.get("for_each"))
        return None

    def _in_brackets(self, found: Completion, cursor: Cursor, line: int, column: int) -> Completion:
        """A name that is no word of expressions stands in brackets, not behind a dot."""
        typed = len(re.split(r"\.|\[", cursor.prefix)[-1])
        begin = column - typed - 1
        text = self.outline.lines[line]
        if _IDENTIFIER.fullmatch(found.name) or text[begin : begin + 1] != ".":
            return found
        outside = re.findall(r"[\"']", text[: text.rfind("{{", 0, column)])
        quote = '"' if outside[-1:] == ["'"] else "'"
        return replace(found, instead=f"[{quote}{found.name}{quote}]", of=typed + 1)

    def _of_inclusion(self, cursor: Cursor, line: int) -> list[Completion]:
        """The inputs of the module at a line, or files that can be included."""
        if cursor.kind == "key" and cursor.path[-1] == "with":
            return [
                Completion(each, "property")
                for each in self._inputs_given(line)
                if each not in cursor.siblings
            ]
        is_file = cursor.path == ("include",) or cursor.path[-1] == "file"
        return [Completion(name, "value") for name in self._beside()] if is_file else []

    def _inputs_given(self, line: int) -> list[str]:
        """The inputs of the module whose inclusion is written around a line."""
        lines = self.outline.lines
        begin = next((at for at in range(line, -1, -1) if _ITEM.match(lines[at])), line)
        end = next((at for at in range(line + 1, len(lines)) if _ITEM.match(lines[at])), len(lines))
        found = _FILE.search("\n".join(lines[begin:end]))
        if found is None:
            return []
        path = self.path.parent / found[1]
        return source_of(path, self._text_of(path)).names("inputs")

    def _beside(self) -> list[str]:
        """The YAML files in the folder that may be topologies."""
        found = (each for end in ("yaml", "yml") for each in self.path.parent.glob(f"*.{end}"))
        names = (each.name for each in found if not self.is_own(each))
        return sorted(each for each in names if not _NO_TOPOLOGY.match(each))

    def _platform_of(self, section: str, name: str) -> str | None:
        """That of a declaration, wherever it is."""
        own = self.outline.declared.get((section, name))
        if own is not None:
            return self.outline.value_of(own, "platform")
        entries = (each.entry(section, name) for each in self.sources.of(self.path))
        entry = next((each for each in entries if each is not None), None)
        node = None if entry is None else entry.get("platform")
        return node.text if isinstance(node, ScalarNode) else None

    def _word_at(self, line: int, column: int, pattern: str) -> re.Match[str] | None:
        """The word under the cursor, or right before it."""
        text = self.outline.lines[line] if line < len(self.outline.lines) else ""
        words = re.finditer(pattern, text)
        return next((word for word in words if word.start() <= column <= word.end()), None)

    def _in_module(self, steps: tuple[str, ...]) -> tuple[Path, Named | None] | None:
        path = self.modules.get(steps[1])
        if path is None or not path.is_file():
            return None
        source = source_of(path, self._text_of(path))
        # Behind the name of a module may be the key of its instance.
        outputs = (source.declared("outputs", name) for name in steps[2:4])
        return path, next((each for each in outputs if each is not None), None)

    def _text_of(self, path: Path) -> str:
        text = self.others.get(path.resolve())
        if text is None:
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
        return text

    def _platform(self, path: tuple[str, ...]) -> str | None:
        """The platform of the entry that a place is in."""
        if len(path) < 2 or path[0] not in SECTIONS:
            return None
        # Names may be written twice in a text that is being typed: the one around the place counts.
        found = self.outline.declared.get((path[0], path[1]))
        return None if found is None else self.outline.value_of(found, "platform")

    def _in_expression(self, cursor: Cursor) -> list[Completion]:
        if cursor.after:
            words = FILTERS if cursor.after == "|" else SANDBOX.tests
            return [Completion(name, "filter") for name in sorted(words) if name.isidentifier()]
        *steps, _ = re.split(r"\.|\[[\"']?|[\"']?\]\.?", cursor.prefix)
        if not steps:
            sections = [each for each in SECTIONS if self._names(each)]
            about = {name: text for name, text in _ABOUT.items() if self._has(name, cursor)}
            known = {**about, **dict.fromkeys(sections, "Resources of this file.")}
            return [Completion(name, "variable", text) for name, text in known.items()]
        first, *rest = steps
        if first in _PARTS and not rest:
            return [Completion(name, "variable") for name in _PARTS[first]]
        if first == "modules":
            return self._of_modules(rest)
        if not rest:
            return [Completion(name, "name") for name in self._names(first)]
        return self._of_resource(first, rest) if first in SECTIONS else []

    def _of_resource(self, first: str, rest: list[str]) -> list[Completion]:
        """The keys of its instances, and what it or one of them gives out."""
        if rest[0] not in self._names(first):
            return []
        keys = self._keys(first, rest[0])
        if keys is not None and len(rest) == 1:
            return [Completion(key, "name") for key in keys]
        if len(rest) > (1 if keys is None else 2):
            return []
        outputs = outputs_of(first, self._platform_of(first, rest[0])).values()
        return [Completion(word.name, "output", _described(word)) for word in outputs]

    def _of_modules(self, rest: list[str]) -> list[Completion]:
        if not rest:
            return [Completion(name, "name") for name in self.modules]
        path = self.modules.get(rest[0])
        keys = self._keys_of_module(rest[0])
        if keys is not None and len(rest) == 1:
            return [Completion(key, "name") for key in keys]
        names = [] if path is None else source_of(path, self._text_of(path)).names("outputs")
        return [Completion(name, "output") for name in names]

    def _about_reference(self, reference: Reference, at: int) -> str:
        first, *rest = reference.steps
        if at == 0:
            kind = SECTIONS.get(first)
            if first in FILTERS and kind is None and first not in _ABOUT:
                return f"**{first}**, a filter"
            return (
                f"**{first}**\n\n{_ABOUT.get(first) or f'{kind} resources of this file.'}"
                if (first in _ABOUT or kind)
                else ""
            )
        found = self._declared(first, rest[0])
        if found is None:
            return ""
        path, named = found
        place = f"declared in line {named.span.line + 1}"
        place += "" if self.is_own(path) else f" of {path.name}"
        platform = self._platform_of(first, rest[0])
        if first not in SECTIONS or at == 1:
            kind = f"{SECTIONS[first]} on {platform or '?'}" if first in SECTIONS else first
            return f"**{first}.{rest[0]}**: {kind}, {place}"
        word = outputs_of(first, platform).get(rest[1])
        if word is None:
            return ""
        return f"**{first}.{rest[0]}.{word.name}** ({word.type})\n\n{word.text}"


def _keys_of(repeated: Node | None) -> list[str] | None:
    """The keys of `for_each`, as far as they are written; None where there is none."""
    if isinstance(repeated, MappingNode):
        return list(repeated.entries)
    if isinstance(repeated, SequenceNode):
        return [each.text for each in repeated.items if isinstance(each, ScalarNode)]
    return None if repeated is None else []


def _described(word: Word) -> str:
    return f"{word.type}\n\n{word.text}".strip()
