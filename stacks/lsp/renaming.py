"""Rename a declaration in all files of a project: entries, references, settings, tests.

Deployed resources keep their objects by an alias. `server` calls this module.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from gpuform.schemas.topology import NAME_PATTERN, SECTIONS
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    list_scalars,
)
from gpuform.stacks.engine.project import Project
from gpuform.stacks.lsp.aliases import (
    RenameRefused,
    SourceEdit,
    apply_edits,
    build_alias_edits,
    group_edits_by_file,
    list_case_config_keys,
    list_case_resources,
)
from gpuform.stacks.lsp.cursor import ExpressionPath, NamedEntry, Span
from gpuform.stacks.lsp.sources import SourceFile, check_topology, parse_source
from gpuform.stacks.lsp.topology_text import TopologyText
from gpuform.stacks.multi_stack import list_stacks_with_settings
from gpuform.stacks.topology.scope import parse_template

_RENAMED: Final = (*SECTIONS, "config", "inputs", "stack_references")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_TESTS: Final = "tests"


def find_renameable(
    topology: TopologyText, line: int, column: int
) -> tuple[NamedEntry, Span] | None:
    """Return the renameable entry at a position and the span of the name, or None.

    Outputs and modules cannot be renamed.
    """
    file_and_entry = topology.find_meant_entry(line, column)
    if file_and_entry is None or file_and_entry[1].section not in _RENAMED:
        return None
    entry = file_and_entry[1]
    if topology.is_same_file(file_and_entry[0]) and entry.span.contains(line, column):
        return entry, entry.span
    reference = topology.outline.find_reference_at(line, column)
    return None if reference is None else (entry, reference[0].spans[1])


def build_rename_edits(
    topology: TopologyText, entry: NamedEntry, new_name: str
) -> list[SourceEdit]:
    """Return all edits for giving an entry a new name, in topologies, settings and test files.

    A resource of a project with stacks gets its earlier name as an alias, which keeps its object.

    Raises:
        RenameRefused: the name is not valid or is taken, a file is not valid YAML, or the edits
            would change what the files mean.
    """
    sources = topology.sources.list_sharing(topology.path)
    _require_free_name(new_name, entry, sources)
    edits = [*_build_name_edits(sources, entry, new_name)]
    if entry.section == "inputs":
        module_inputs = topology.sources.find_module_inputs(topology.path, entry.name)
        edits += [SourceEdit(path, span, new_name) for path, span in module_inputs]
    # Before the alias is added: the alias of an entry with `for_each` has a reference of its own.
    _require_same_references(sources, edits, entry, new_name)
    if entry.section == "config":
        edits += _build_settings_edits(topology, entry.name, new_name)
    elif entry.section in SECTIONS:
        edits += build_alias_edits(topology, entry, new_name, edits)
    # Test files come after this check: they are not part of the topology.
    _require_valid(topology, edits, entry)
    if topology.project is not None:
        edits += _build_test_edits(topology, topology.project, sources, entry, new_name)
    return edits


def _require_free_name(name: str, entry: NamedEntry, sources: Sequence[SourceFile]) -> None:
    """Raise RenameRefused if the name is not valid or taken, or a file is not valid YAML."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise RenameRefused(
            f"{name!r} is not a valid name",
            hint="use letters, digits, hyphens, underscores and dots",
        )
    for source in sources:
        _require_readable(source)
        if source.find_entry(entry.section, name) is not None:
            raise RenameRefused(
                f"{entry.section}.{name} already exists", hint="choose another name"
            )


def _require_readable(source: SourceFile) -> None:
    """Raise RenameRefused if the file has a problem, because names are unknown then."""
    problem = next(iter(source.problems), None)
    if problem is not None:
        raise RenameRefused(
            f"{problem.position}: {problem.message}: the names in this file are unknown",
            hint="correct the file before you rename",
        )


def _build_name_edits(
    sources: Sequence[SourceFile], entry: NamedEntry, new_name: str
) -> Iterator[SourceEdit]:
    """Yield the edits of the entry's own name and of the references to the entry."""
    for source in sources:
        declared_entry = source.find_entry(entry.section, entry.name)
        if declared_entry is not None:
            yield SourceEdit(source.path, declared_entry.span, new_name)
        for reference in source.references:
            if reference.steps[:2] == (entry.section, entry.name):
                yield _build_reference_edit(source, reference, new_name)


def _build_reference_edit(
    source: SourceFile, reference: ExpressionPath, new_name: str
) -> SourceEdit:
    """Return the edit of one reference, with brackets around a name like `my-key`."""
    root, span = reference.spans[:2]
    line = source.lines[span.line]
    # In `a . b` blanks may stand between the dot and the name.
    dot = line.rfind(".", 0, span.begin)
    is_dotted = dot >= 0 and not line[dot + 1 : span.begin].strip()
    if not is_dotted or _IDENTIFIER.fullmatch(new_name):
        return SourceEdit(source.path, span, new_name)
    # The quote that the value around it is not in.
    quote = '"' if source.get_quote_around(root) == "'" else "'"
    return SourceEdit(source.path, Span(span.line, dot, span.end), f"[{quote}{new_name}{quote}]")


def _require_same_references(
    sources: Sequence[SourceFile], edits: Iterable[SourceEdit], entry: NamedEntry, new_name: str
) -> None:
    """Raise RenameRefused unless the edited files have equal references, with the new name."""
    edits_by_file = group_edits_by_file(edits)
    for source in sources:
        edited_text = apply_edits(source.text, edits_by_file.get(source.path, ()))
        edited_source = parse_source(source.path, edited_text)
        expected_references = [
            (root, new_name if root == entry.section and step == entry.name else step)
            for root, step in _list_references(source.root)
        ]
        if (
            edited_source.problems
            or list(_list_references(edited_source.root)) != expected_references
        ):
            raise RenameRefused(
                f"{source.path.name} refers to {entry.section}.{entry.name} in a way that "
                "cannot be renamed automatically",
                hint="rename it by hand, and check the result with `gpuform validate`",
            )


def _require_valid(topology: TopologyText, edits: Iterable[SourceEdit], entry: NamedEntry) -> None:
    """Raise RenameRefused if a topology without problems has one after the edits."""
    edits_by_file = group_edits_by_file(edits)
    namespaces = topology.sources.namespaces
    before = {source.path: source.text for namespace in namespaces for source in namespace}
    after = {path: apply_edits(text, edits_by_file.get(path, ())) for path, text in before.items()}
    for main_source, *_ in namespaces:
        # A topology that has problems already does not show whether the edits add one.
        if check_topology(main_source.path, {**topology.open_texts, **before}):
            continue
        problems_by_file = check_topology(main_source.path, {**topology.open_texts, **after})
        for problem in (problems[0] for problems in problems_by_file.values()):
            raise RenameRefused(
                f"{entry.section}.{entry.name} cannot be renamed: {problem.message}",
                hint=problem.hint or "rename it by hand",
            )


def _list_references(root: Node) -> Iterator[tuple[str, str]]:
    """Yield the root and the first step of each reference in the file's expressions."""
    for scalar in list_scalars(root):
        template = parse_template(scalar, Diagnostics())
        for reference in template.references if template else ():
            first_step = reference.steps[0] if reference.steps else ""
            yield reference.root, first_step if isinstance(first_step, str) else ""


def _build_settings_edits(
    topology: TopologyText, old_name: str, new_name: str
) -> Iterator[SourceEdit]:
    """Yield the edits of a configuration key in the settings of the project and all stacks.

    Raises:
        RenameRefused: a file has the new key already, or is not valid YAML.
    """
    project = topology.project
    if project is None:
        return
    paths = [project.path, *map(project.get_settings_path, list_stacks_with_settings(project))]
    for path in paths:
        source = _read_source(topology, path)
        _require_readable(source)
        config = source.root.get("config")
        for key, entry in config.entries.items() if isinstance(config, MappingNode) else ():
            if key in (new_name, f"{project.name}:{new_name}"):
                raise RenameRefused(
                    f"{path.name} already has {key}", hint="choose another name, or remove the key"
                )
            # Settings may have the key with the project's namespace or without it.
            if key in (old_name, f"{project.name}:{old_name}"):
                key_span = source.get_span(entry.position, key)
                yield SourceEdit(
                    path, Span(key_span.line, key_span.end - len(old_name), key_span.end), new_name
                )


def _read_source(topology: TopologyText, path: Path) -> SourceFile:
    """Parse a file, with the text from the editor or else from disk. Raises OSError."""
    source = topology.open_texts.get(path.resolve())
    if source is None:
        source = path.read_text(encoding="utf-8", errors="replace")
    return parse_source(path, source)


def _build_test_edits(
    topology: TopologyText,
    project: Project,
    sources: Sequence[SourceFile],
    entry: NamedEntry,
    new_name: str,
) -> Iterator[SourceEdit]:
    """Yield the edits of names in test files, as far as a name is unambiguous.

    Nothing for entries other than configuration and resources. Raises RenameRefused if a test file
    is not valid YAML.
    """
    old_name = entry.name
    if entry.section == "config":
        list_names = list_case_config_keys
        find_offset: Callable[[str], int | None] = {old_name: 0}.get
    elif entry.section in SECTIONS:
        list_names = list_case_resources
        find_offset = _match_resource_name(topology, sources, entry)
    else:
        return
    for path in sorted((project.directory / _TESTS).glob("*.y*ml")):
        source = _read_source(topology, path)
        _require_readable(source)
        for written_name, position in list_names(source.root):
            offset = find_offset(written_name)
            if offset is not None:
                written_span = source.get_span(position, written_name)
                name_begin = written_span.begin + offset
                yield SourceEdit(
                    path, Span(written_span.line, name_begin, name_begin + len(old_name)), new_name
                )


def _match_resource_name(
    topology: TopologyText, sources: Sequence[SourceFile], entry: NamedEntry
) -> Callable[[str], int | None]:
    """Return a function from a name in a test case to the offset of the resource's name.

    The name may be alone, behind its section, before the key of an instance, or behind the name of
    a module. The function returns None for other and for ambiguous names.
    """
    section, old_name = entry.section, entry.name
    other_names = {
        (other_section, name)
        for other_section in SECTIONS
        for source in sources
        for name in source.list_names(other_section)
    }
    other_names.discard((section, old_name))
    is_repeated_entry = any(source.has_for_each(section, old_name) for source in sources)
    modules = [
        (node.text, module.get("for_each") is not None)
        for _, module in topology.sources.list_inclusions(topology.path)
        if isinstance(node := module.get("name"), ScalarNode)
    ]

    def find_offset(written_name: str) -> int | None:
        name_in_section = written_name.removeprefix(f"{section}.")
        offset = len(written_name) - len(name_in_section)
        for module, is_repeated in modules:
            module_prefix, name_suffix = f"{module}-", f"-{old_name}"
            if name_in_section == f"{module}{name_suffix}" or (
                is_repeated
                and name_in_section.startswith(module_prefix)
                and name_in_section.endswith(name_suffix)
            ):
                return offset + len(name_in_section) - len(old_name)
        if modules or not (
            name_in_section == old_name
            or (is_repeated_entry and name_in_section.startswith(f"{old_name}-"))
        ):
            return None
        rival_names = (
            name for other_section, name in other_names if other_section == section or not offset
        )
        # `train-a` may be the instance `a` of `train`, or another entry.
        is_clear = not any(
            name_in_section == name or name_in_section.startswith(f"{name}-")
            for name in rival_names
        )
        return offset if is_clear else None

    return find_offset
