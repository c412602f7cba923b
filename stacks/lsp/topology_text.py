"""Answer questions about a topology in an editor: completion, hovers, definitions, references.

`server` calls `TopologyText` with the saved or unsaved text of an open file.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.engine.project import Project, find_project, find_topology_file
from gpuform.stacks.expressions.sandbox import FILTERS, SANDBOX
from gpuform.stacks.lsp.cursor import Cursor, ExpressionPath, NamedEntry, Outline, Span
from gpuform.stacks.lsp.sources import SourceFile, Sources, parse_source
from gpuform.stacks.lsp.vocabulary import Word, find_outputs, find_words, list_values

_SCHEMA_COMMENT: Final = re.compile(r"^#.*\$schema=\S*topology\.schema\.json", re.MULTILINE)
_ROOT_DESCRIPTIONS: Final = {
    "config": "The stack's configuration.",
    "inputs": "The values passed to a module.",
    "each": "The key and the value of this instance of `for_each`.",
    "modules": "The included modules, by name.",
    "stack_references": "Outputs of other stacks.",
    "pulumi": "The names of the running stack and its project.",
}
_RESOURCE_OPTIONS: Final = ("depends_on", "parent", "deleted_with", "replace_with")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_LIST_ITEM: Final = re.compile(r"\s*-\s")
_PLAIN_LIST_ITEM: Final = re.compile(r"\s*-\s+[\w./-]*")
_FILE_KEY: Final = re.compile(r"""\bfile\s*:\s*["']?([^\s"',}]+)""")
_OTHER_FILES: Final = re.compile(r"(?i)Pulumi\.|gates\.|prices\.|stacks\.")
_ROOT_FIELDS: Final = {"each": ("key", "value"), "pulumi": ("stack", "project")}


@dataclass(frozen=True, slots=True)
class Completion:
    """A word for the cursor.

    With `replacement`, this text replaces `replaced_length` characters before the cursor; otherwise
    the editor completes `name`. `is_first` completions are required ones, shown before the others.
    """

    name: str
    kind: str
    documentation: str = ""
    is_first: bool = False
    replacement: str = ""
    replaced_length: int = 0


@dataclass(frozen=True)
class TopologyText:
    """The text of one file, saved or not. `open_texts` are the texts of other open files."""

    path: Path
    text: str
    open_texts: Mapping[Path, str] = field(default_factory=dict)

    @cached_property
    def outline(self) -> Outline:
        return Outline.from_text(self.text)

    @cached_property
    def project(self) -> Project | None:
        """Return the Pulumi project around the topology file, or None."""
        try:
            return find_project(self.path.parent)
        except EngineError:
            return None

    @cached_property
    def sources(self) -> Sources:
        """Return the files of the project's topology, with this text."""
        return Sources.read_project(
            self.path, self.project, {**self.open_texts, self.path.resolve(): self.text}
        )

    @property
    def is_topology(self) -> bool:
        """Return whether the file is a topology: by project, first lines, or sections."""
        # Settings also have a section `config`, with another meaning.
        if self.path.name.startswith("Pulumi.") or self.path.suffix not in (".yaml", ".yml"):
            return False
        # Modules have any file name: a comment that names the schema marks them.
        if _SCHEMA_COMMENT.search(self.text[:1000]):
            return True
        project_topology = find_topology_file(self.path.parent)
        if project_topology is not None and project_topology.name == self.path.name:
            return True
        is_declaring = any(section in SECTIONS for section, _ in self.outline.entries)
        return self.project is not None and is_declaring

    @cached_property
    def module_paths(self) -> dict[str, Path]:
        """Return the files of the modules included by this file itself, by the modules' names."""
        pairs = (
            (inclusion.get("name"), inclusion.get("file"))
            for source in self._own_sources
            for inclusion in source.list_modules()
        )
        return {
            name.text: self.path.parent / file.text
            for name, file in pairs
            if isinstance(name, ScalarNode) and isinstance(file, ScalarNode)
        }

    @cached_property
    def _shared_sources(self) -> Sequence[SourceFile]:
        """Return the files sharing one namespace with this file, and this file."""
        return self.sources.list_sharing(self.path)

    @property
    def _own_sources(self) -> list[SourceFile]:
        """Return this file; nothing without a valid text."""
        return [source for source in self._shared_sources if self.is_same_file(source.path)]

    def list_completions(self, line: int, column: int) -> list[Completion]:
        """Return the words for the cursor, required ones marked as first.

        No words inside of comments and quoted texts, and where users choose the text.
        """
        cursor = Cursor.locate(self.outline.lines, line, column)
        if cursor.kind == "nothing":
            return []
        # Declarations of configuration cannot contain expressions.
        if cursor.kind == "expression" and cursor.path[:1] in (("config",), ("inputs",)):
            return []
        if cursor.kind == "expression":
            return [
                self._to_bracket_completion(completion, cursor, line, column)
                for completion in self._complete_expression(cursor)
            ]
        if cursor.path[:1] == ("include",):
            completions = self._complete_inclusion(cursor, line)
            if completions and cursor.path != ("include",):
                return completions
        if cursor.kind == "value" and cursor.path[-1:] and cursor.path[-1] in _RESOURCE_OPTIONS:
            return [
                # Without the quotes, YAML would read `{{` as the beginning of an object.
                Completion(f'"{{{{ {section}.{name} }}}}"', "value")
                for section in SECTIONS
                for name in self._list_names(section)
                if _IDENTIFIER.fullmatch(name) and (section, name) != cursor.path[:2]
            ]
        platform = self._get_platform_at(cursor.path)
        if cursor.kind == "value":
            return [Completion(value, "value") for value in list_values(cursor.path, platform)]
        words = find_words(cursor.path, platform).values()
        # A plain item of `include` is a file name; with a colon it becomes a module's field.
        is_bare = cursor.path == ("include",) and _PLAIN_LIST_ITEM.fullmatch(
            self.outline.lines[line][:column]
        )
        files = self._complete_inclusion(cursor, line) if is_bare else []
        return files + [
            Completion(word.name, "property", _describe_word(word), word.is_required)
            for word in words
            if word.name not in cursor.siblings
        ]

    def describe_at(self, line: int, column: int) -> str:
        """Return the description of the word under the cursor in Markdown, or an empty text."""
        reference_and_step = self.outline.find_reference_at(line, column)
        if reference_and_step is not None:
            return self._describe_reference(*reference_and_step)
        word = self._find_word(line, column, r"[\w.-]+")
        if word is None:
            return ""
        cursor = Cursor.locate(self.outline.lines, line, word.start())
        key = find_words(cursor.path, self._get_platform_at(cursor.path)).get(word[0])
        return f"**{key.name}** ({key.type})\n\n{key.description}" if key is not None else ""

    def find_definition(self, line: int, column: int) -> tuple[Path, NamedEntry | None] | None:
        """Return the declaration of the word under the cursor, or None.

        The result is a file and the entry in it; the entry is None where the word names a file.
        """
        reference_and_step = self.outline.find_reference_at(line, column)
        if reference_and_step is not None:
            steps = reference_and_step[0].steps
            # What a module declares is in its own file.
            if steps[0] == "modules" and len(steps) > 1:
                return self._find_module_output(steps)
            return self._find_entry(steps[0], steps[1]) if len(steps) > 1 else None
        word = self._find_word(line, column, r"[\w./-]+")
        if word is not None and word[0].endswith((".yaml", ".yml")):
            path = self.path.parent / word[0]
            return (path, None) if path.is_file() else None
        own_entry = self._find_own_entry(line, column)
        return None if own_entry is None else (self.path, own_entry)

    def find_uses(self, section: str, name: str) -> list[tuple[Path, Span]]:
        """Return where expressions refer to an entry, in all files of the namespace.

        For an input, the inclusions that pass a value are added.
        """
        references_by_file = {source.path: source.references for source in self._shared_sources}
        # The text is not valid YAML yet: its lines still show references.
        if not references_by_file:
            references_by_file = {self.path: list(self.outline.list_references())}
        spans = [
            (path, reference.spans[1])
            for path, references in references_by_file.items()
            for reference in references
            if reference.steps[:2] == (section, name)
        ]
        return spans + (
            self.sources.find_module_inputs(self.path, name) if section == "inputs" else []
        )

    def find_meant_entry(self, line: int, column: int) -> tuple[Path, NamedEntry] | None:
        """Return the file and the entry whose name is at the cursor, as key or in a reference.

        None for another step of a reference, such as its section.
        """
        own_entry = self._find_own_entry(line, column)
        if own_entry is not None:
            return self.path, own_entry
        reference_and_step = self.outline.find_reference_at(line, column)
        if reference_and_step is None or reference_and_step[1] != 1:
            return None
        section, name, *_ = reference_and_step[0].steps
        return self._find_entry(section, name)

    def _find_own_entry(self, line: int, column: int) -> NamedEntry | None:
        """Return the entry of this text whose name is under the cursor, or None."""
        entry = self.outline.find_entry_at(line, column)
        if entry is not None:
            return entry
        return next((source.find_entry_at(line, column) for source in self._own_sources), None)

    def is_same_file(self, path: Path) -> bool:
        """Return whether a path leads to the file of this text."""
        return path.resolve() == self.path.resolve()

    def _find_entry(self, section: str, name: str) -> tuple[Path, NamedEntry] | None:
        """Return the file and the entry, from this text or a file of the namespace, or None."""
        own_entry = self.outline.entries.get((section, name))
        if own_entry is not None:
            return self.path, own_entry
        entries = ((it.path, it.find_entry(section, name)) for it in self._shared_sources)
        return next(((path, entry) for path, entry in entries if entry is not None), None)

    def _list_names(self, section: str) -> list[str]:
        """Return the names of this text and of the other files of the namespace."""
        names = [name for source in self._shared_sources for name in source.list_names(section)]
        return list(dict.fromkeys([*self.outline.list_names(section), *names]))

    def _find_fields(self, section: str, name: str) -> MappingNode | None:
        """Return the fields of an entry in any of the files, or None."""
        entries = (source.find_fields(section, name) for source in self._shared_sources)
        return next((fields for fields in entries if fields is not None), None)

    def _has_root(self, name: str, cursor: Cursor) -> bool:
        """Return whether an expression at the cursor can begin with the name."""
        if name == "each":
            return cursor.path[:1] == ("include",) or cursor.path[:1] in {(s,) for s in SECTIONS}
        if name == "modules":
            return bool(self.module_paths)
        return name in ("config", "pulumi") or bool(self._list_names(name))

    def _list_instance_keys(self, section: str, name: str) -> list[str] | None:
        """Return the keys of an entry's instances, or None without a `for_each`.

        Keys that an expression computes are missing.
        """
        fields = self._find_fields(section, name)
        return _list_for_each_keys(None if fields is None else fields.get("for_each"))

    def _list_module_keys(self, name: str) -> list[str] | None:
        """Return the keys of a module's instances, or None without a `for_each` or a module."""
        for module in (it for source in self._shared_sources for it in source.list_modules()):
            module_name = module.get("name")
            if isinstance(module_name, ScalarNode) and module_name.text == name:
                return _list_for_each_keys(module.get("for_each"))
        return None

    def _to_bracket_completion(
        self, completion: Completion, cursor: Cursor, line: int, column: int
    ) -> Completion:
        """Return the completion, with brackets around a name like `my-key`.

        Such a name is no identifier, so that no dot can precede the name."""
        typed_length = len(re.split(r"\.|\[", cursor.prefix)[-1])
        begin = column - typed_length - 1
        line_text = self.outline.lines[line]
        if _IDENTIFIER.fullmatch(completion.name) or line_text[begin : begin + 1] != ".":
            return completion
        # The quote must differ from the one around the expression.
        outer_quotes = re.findall(r"[\"']", line_text[: line_text.rfind("{{", 0, column)])
        quote = '"' if outer_quotes[-1:] == ["'"] else "'"
        return replace(
            completion,
            replacement=f"[{quote}{completion.name}{quote}]",
            replaced_length=typed_length + 1,
        )

    def _complete_inclusion(self, cursor: Cursor, line: int) -> list[Completion]:
        """Return the inputs of the module at a line, or the files to include."""
        if cursor.kind == "key" and cursor.path[-1] == "with":
            return [
                Completion(input_name, "property")
                for input_name in self._list_module_inputs(line)
                if input_name not in cursor.siblings
            ]
        is_file = cursor.path == ("include",) or cursor.path[-1] == "file"
        return [Completion(name, "value") for name in self._list_yaml_files()] if is_file else []

    def _list_module_inputs(self, line: int) -> list[str]:
        """Return the inputs of the module whose inclusion is written around a line."""
        lines = self.outline.lines
        # The text may not parse yet: the lines from one dash to the next are the inclusion.
        begin = next((at for at in range(line, -1, -1) if _LIST_ITEM.match(lines[at])), line)
        end = next(
            (at for at in range(line + 1, len(lines)) if _LIST_ITEM.match(lines[at])), len(lines)
        )
        file_match = _FILE_KEY.search("\n".join(lines[begin:end]))
        if file_match is None:
            return []
        path = self.path.parent / file_match[1]
        return parse_source(path, self._read_text(path)).list_names("inputs")

    def _list_yaml_files(self) -> list[str]:
        """Return the names of other YAML files in the folder, without gpuform's own files."""
        paths = (path for end in ("yaml", "yml") for path in self.path.parent.glob(f"*.{end}"))
        names = (path.name for path in paths if not self.is_same_file(path))
        return sorted(name for name in names if not _OTHER_FILES.match(name))

    def _find_platform(self, section: str, name: str) -> str | None:
        """Return the platform of an entry in any of the files, or None."""
        # The outline reads lines, so that the platform is found while the text is not valid YAML.
        own_entry = self.outline.entries.get((section, name))
        if own_entry is not None:
            return self.outline.find_value(own_entry, "platform")
        fields = self._find_fields(section, name)
        node = None if fields is None else fields.get("platform")
        return node.text if isinstance(node, ScalarNode) else None

    def _find_word(self, line: int, column: int, pattern: str) -> re.Match[str] | None:
        """Return the word under or right before the cursor, or None."""
        line_text = self.outline.lines[line] if line < len(self.outline.lines) else ""
        words = re.finditer(pattern, line_text)
        return next((word for word in words if word.start() <= column <= word.end()), None)

    def _find_module_output(self, steps: tuple[str, ...]) -> tuple[Path, NamedEntry | None] | None:
        """Return the file of a module and the referenced output, or None without the module.

        The output is None if the reference names none.
        """
        path = self.module_paths.get(steps[1])
        if path is None or not path.is_file():
            return None
        source = parse_source(path, self._read_text(path))
        # Behind the name of a module may be the key of its instance.
        outputs = (source.find_entry("outputs", name) for name in steps[2:4])
        return path, next((output for output in outputs if output is not None), None)

    def _read_text(self, path: Path) -> str:
        source = self.open_texts.get(path.resolve())
        if source is None:
            with suppress(OSError):
                return path.read_text(encoding="utf-8", errors="replace")
        return source or ""

    def _get_platform_at(self, path: tuple[str, ...]) -> str | None:
        """Return the platform of the entry around a path of keys, or None."""
        if len(path) < 2 or path[0] not in SECTIONS:
            return None
        # Names may be written twice in a text that is being typed: the one around the place counts.
        entry = self.outline.entries.get((path[0], path[1]))
        return None if entry is None else self.outline.find_value(entry, "platform")

    def _complete_expression(self, cursor: Cursor) -> list[Completion]:
        """Return roots, names, keys, outputs or filters for the steps typed so far."""
        if cursor.operator:
            words = FILTERS if cursor.operator == "|" else SANDBOX.tests
            return [Completion(name, "filter") for name in sorted(words) if name.isidentifier()]
        *steps, _ = re.split(r"\.|\[[\"']?|[\"']?\]\.?", cursor.prefix)
        if not steps:
            sections = [section for section in SECTIONS if self._list_names(section)]
            roots = {
                name: description
                for name, description in _ROOT_DESCRIPTIONS.items()
                if self._has_root(name, cursor)
            }
            roots |= dict.fromkeys(sections, "Resources of this file.")
            return [Completion(name, "variable", text) for name, text in roots.items()]
        root, *rest = steps
        if root in _ROOT_FIELDS and not rest:
            return [Completion(name, "variable") for name in _ROOT_FIELDS[root]]
        if root == "modules":
            return self._complete_module(rest)
        if not rest:
            return [Completion(name, "name") for name in self._list_names(root)]
        return self._complete_resource(root, rest) if root in SECTIONS else []

    def _complete_resource(self, section: str, rest: list[str]) -> list[Completion]:
        """Return the keys of an entry's instances, or the outputs of the entry."""
        if rest[0] not in self._list_names(section):
            return []
        keys = self._list_instance_keys(section, rest[0])
        if keys is not None and len(rest) == 1:
            return [Completion(key, "name") for key in keys]
        if len(rest) > (1 if keys is None else 2):
            return []
        outputs = find_outputs(section, self._find_platform(section, rest[0])).values()
        return [Completion(word.name, "output", _describe_word(word)) for word in outputs]

    def _complete_module(self, steps: list[str]) -> list[Completion]:
        """Return module names, the keys of a module's instances, or the module's outputs."""
        if not steps:
            return [Completion(name, "name") for name in self.module_paths]
        path = self.module_paths.get(steps[0])
        keys = self._list_module_keys(steps[0])
        if keys is not None and len(steps) == 1:
            return [Completion(key, "name") for key in keys]
        if path is None:
            return []
        outputs = parse_source(path, self._read_text(path)).list_names("outputs")
        return [Completion(name, "output") for name in outputs]

    def _describe_reference(self, reference: ExpressionPath, step_index: int) -> str:
        """Return the description of one step of a reference in Markdown, empty if unknown."""
        root, *rest = reference.steps
        if step_index == 0:
            kind = SECTIONS.get(root)
            if root in FILTERS and kind is None and root not in _ROOT_DESCRIPTIONS:
                return f"**{root}**, a filter"
            description = _ROOT_DESCRIPTIONS.get(root) or (
                kind and f"{kind} resources of this file."
            )
            return f"**{root}**\n\n{description}" if description else ""
        file_and_entry = self._find_entry(root, rest[0])
        if file_and_entry is None:
            return ""
        path, entry = file_and_entry
        location = f"declared in line {entry.span.line + 1}"
        location += "" if self.is_same_file(path) else f" of {path.name}"
        platform = self._find_platform(root, rest[0])
        if root not in SECTIONS or step_index == 1:
            kind = f"{SECTIONS[root]} on {platform or '?'}" if root in SECTIONS else root
            return f"**{root}.{rest[0]}**: {kind}, {location}"
        word = find_outputs(root, platform).get(rest[1])
        if word is None:
            return ""
        return f"**{root}.{rest[0]}.{word.name}** ({word.type})\n\n{word.description}"


def _list_for_each_keys(for_each: Node | None) -> list[str] | None:
    """Return the keys written in a `for_each`, or None without a `for_each`.

    An expression has no written keys.
    """
    if isinstance(for_each, MappingNode):
        return list(for_each.entries)
    if isinstance(for_each, SequenceNode):
        return [item.text for item in for_each.items if isinstance(item, ScalarNode)]
    return None if for_each is None else []


def _describe_word(word: Word) -> str:
    """Return the type and the description of a key in Markdown, with an empty line between."""
    return f"{word.type}\n\n{word.description}".strip()
