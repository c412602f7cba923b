"""Build the alias of a renamed resource, and find the names in test files.

The alias keeps the deployed object of the resource. `renaming` calls this module.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.lsp.cursor import NamedEntry, Span
from gpuform.stacks.lsp.sources import SourceFile, parse_source
from gpuform.stacks.lsp.topology_text import TopologyText
from gpuform.stacks.multi_stack import list_stacks_with_settings


class RenameRefused(EngineError):
    """A rename that is not possible; no file is changed."""

    help_page = "guides/editors"


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """A replacement of a part of a file; an empty span inserts the text."""

    path: Path
    span: Span
    new_text: str


def apply_edits(source: str, edits: Iterable[SourceEdit]) -> str:
    """Return the text after the edits of one file, whose spans must not overlap."""
    lines = source.splitlines(keepends=True) or [""]
    # From the end to the beginning: an edit does not move the spans of earlier ones.
    for edit in sorted(edits, key=lambda item: item.span, reverse=True):
        line = lines[edit.span.line]
        lines[edit.span.line] = line[: edit.span.begin] + edit.new_text + line[edit.span.end :]
    return "".join(lines)


def group_edits_by_file(edits: Iterable[SourceEdit]) -> Mapping[Path, list[SourceEdit]]:
    """Return the edits of a rename by file."""
    edits_by_file: dict[Path, list[SourceEdit]] = {}
    for edit in edits:
        edits_by_file.setdefault(edit.path, []).append(edit)
    return edits_by_file


_ANCHOR: Final = re.compile(r"&\S+\s*")


def build_alias_edits(
    topology: TopologyText, entry: NamedEntry, new_name: str, name_edits: Sequence[SourceEdit]
) -> list[SourceEdit]:
    """Return the edits for an alias with the earlier name of a renamed resource.

    Empty without a project, or without a stack of the project: then no object has the earlier name.
    `name_edits` are the other edits of the rename.

    Raises:
        RenameRefused: an alias cannot keep the object, or another resource has the new name as an
            alias.
    """
    # Without a stack nothing is deployed under the earlier name.
    if topology.project is None or not list_stacks_with_settings(topology.project):
        return []
    sources = topology.sources.list_sharing(topology.path)
    name_prefix = _get_name_prefix(topology, entry)
    for other in (name for source in sources for name in source.list_names(entry.section)):
        full_name = f"{name_prefix}{new_name}"
        if other != entry.name and _has_alias(sources, entry.section, other, full_name):
            raise RenameRefused(
                f"{entry.section}.{other} has the earlier name {new_name} in its aliases, and a "
                "stack may still use that name",
                hint="choose another name, or apply the earlier rename and remove its alias first",
            )
    alias_edits = list(_build_entry_alias(sources, entry, name_prefix, new_name))
    _require_unique_alias(
        sources, [*name_edits, *alias_edits], entry.section, f"{name_prefix}{entry.name}"
    )
    return alias_edits


def _build_entry_alias(
    sources: Sequence[SourceFile], named_entry: NamedEntry, name_prefix: str, new_name: str
) -> Iterator[SourceEdit]:
    """Yield the edit of the entry: a changed alias for a rename back, or a new alias.

    The entry's options and their `aliases` are added if they are missing. No edit without the
    entry.

    Raises:
        RenameRefused: other entries share the options.
    """
    for source in sources:
        entry = source.find_fields(named_entry.section, named_entry.name)
        if entry is None:
            continue
        is_repeated = source.has_for_each(named_entry.section, named_entry.name)
        full_names = (f"{name_prefix}{full_name}" for full_name in (named_entry.name, new_name))
        earlier_name, present_name = (
            f'"{full_name}-{{{{ each.key }}}}"' if is_repeated else full_name
            for full_name in full_names
        )
        for alias in _list_alias_names(entry):
            # A rename back: an alias with the resource's own name would mean nothing.
            if alias.text == present_name.strip('"'):
                span = source.get_span(alias.position, alias.text)
                yield SourceEdit(source.path, span, earlier_name.strip('"'))
                return
        options = entry.get("options")
        aliases = options.get("aliases") if isinstance(options, MappingNode) else None
        # An alias in shared options would be an alias of every entry that shares them.
        if options is not None and source.is_shared(entry.entries["options"]):
            raise _shared_options_error(named_entry.section, named_entry.name)
        if isinstance(aliases, SequenceNode):
            yield _insert_first_item(source, aliases, f"{{name: {earlier_name}}}")
        elif isinstance(options, MappingNode):
            yield _insert_first_item(source, options, f"aliases: [{{name: {earlier_name}}}]")
        elif options is not None:  # `options:` without a value
            key = source.get_span(entry.entries["options"].position, "options")
            span = Span(key.line, key.end + 1, key.end + 1)
            yield SourceEdit(source.path, span, f" {{aliases: [{{name: {earlier_name}}}]}}")
        else:
            yield _insert_first_item(
                source, entry, f"options: {{aliases: [{{name: {earlier_name}}}]}}"
            )


def _require_unique_alias(
    sources: Sequence[SourceFile], edits: Sequence[SourceEdit], section: str, name: str
) -> None:
    """Raise RenameRefused unless exactly one resource has the alias after the edits.

    Two resources with one earlier name would both claim its object.
    """
    edits_by_file = group_edits_by_file(edits)
    edited_sources = [
        parse_source(source.path, apply_edits(source.text, edits_by_file.get(source.path, ())))
        for source in sources
    ]
    entry_names = (
        entry_name for source in edited_sources for entry_name in source.list_names(section)
    )
    owners = [it for it in entry_names if _has_alias(edited_sources, section, it, name)]
    if len(owners) != 1:
        raise _shared_options_error(section, name)


def _list_alias_names(entry: MappingNode | None) -> Iterator[ScalarNode]:
    """Yield the old names in an entry's option `aliases`."""
    options = entry.get("options") if entry is not None else None
    aliases = options.get("aliases") if isinstance(options, MappingNode) else None
    for alias in aliases.items if isinstance(aliases, SequenceNode) else ():
        name = alias.get("name") if isinstance(alias, MappingNode) else None
        if isinstance(name, ScalarNode):
            yield name


def _has_alias(sources: Sequence[SourceFile], section: str, name: str, earlier_name: str) -> bool:
    """Return whether an entry, or each instance of the entry, has the alias.

    `earlier_name` is the full name without the key of an instance.
    """
    pattern = re.compile(rf"{re.escape(earlier_name)}(-\{{\{{.*)?")
    return any(
        pattern.fullmatch(alias.text)
        for source in sources
        for alias in _list_alias_names(source.find_fields(section, name))
    )


def _shared_options_error(section: str, name: str) -> RenameRefused:
    """Build the refusal of a rename for an entry with options shared by other entries."""
    return RenameRefused(
        f"{section}.{name} shares its options with other entries",
        hint="write the options in the entry itself before you rename it",
    )


def _get_name_prefix(topology: TopologyText, entry: NamedEntry) -> str:
    """Return the prefix of the resource's full name: empty, or the name of its one module.

    Raises:
        RenameRefused: the file is included as a module more than once, with a `for_each`, or inside
            of another module.
    """
    inclusions = [
        (source, module.get("name"), module.get("for_each"))
        for source, module in topology.sources.list_inclusions(topology.path)
    ]
    if not inclusions:
        return ""
    (source, module_name, for_each), *other_inclusions = inclusions
    # The project's own topology is the first one that is read.
    is_in_main_topology = source in topology.sources.namespaces[0]
    if (
        other_inclusions
        or for_each is not None
        or not is_in_main_topology
        or not isinstance(module_name, ScalarNode)
    ):
        raise RenameRefused(
            f"{entry.section}.{entry.name} has a different full name in each instance of its "
            "module: no alias can keep the objects of deployed stacks",
            hint="rename it by hand, and its deployed resources by `gpuform state rename`",
        )
    return f"{module_name.text}-"


def _insert_first_item(
    source: SourceFile, node: MappingNode | SequenceNode, item_text: str
) -> SourceEdit:
    """Return the edit for a new first item of a mapping or list, in the present style."""
    line, column = node.position.line - 1, node.position.column - 1
    # The parser's position of an anchored node is that of the anchor.
    anchor = _ANCHOR.match(source.lines[line], column)
    column = anchor.end() if anchor else column
    if source.lines[line][column : column + 1] in ("{", "["):
        span = Span(line, column + 1, column + 1)
        is_empty = not (node.entries if isinstance(node, MappingNode) else node.items)
        return SourceEdit(source.path, span, item_text if is_empty else f"{item_text}, ")
    if anchor:  # the first item is on another line
        items = node.entries.values() if isinstance(node, MappingNode) else node.items
        positions = [item.position for item in items]
        first = min(positions, key=lambda position: (position.line, position.column))
        line, column = first.line - 1, first.column - 1
        if isinstance(node, SequenceNode):
            column = source.lines[line].rfind("-", 0, column)
    # Block style: the new item comes before the first one, at the same column.
    dash = "- " if isinstance(node, SequenceNode) else ""
    span = Span(line, column, column)
    return SourceEdit(source.path, span, f"{dash}{item_text}{source.line_ending}{' ' * column}")


_EXPECT_MAPPINGS: Final = ("plan", "properties", "replaced_by", "resources")
_CASE_LISTS: Final = ("target", "exclude", "replace")
_CONFIG_MAPPINGS: Final = ("config", "secrets")


def list_case_resources(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """Yield the resource names in a test file's cases, as written, with positions."""
    for case in _list_cases(root):
        expect = case.get("expect")
        if isinstance(expect, MappingNode):
            for name in _EXPECT_MAPPINGS:
                yield from _list_keys(expect.get(name))
            yield from _list_items(expect.get("absent"))
        for name in _CASE_LISTS:
            yield from _list_items(case.get(name))


def list_case_config_keys(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """Yield the configuration keys in a test file's cases and defaults, with positions."""
    defaults = root.get("defaults")
    for case in (*([defaults] if isinstance(defaults, MappingNode) else ()), *_list_cases(root)):
        for name in _CONFIG_MAPPINGS:
            yield from _list_keys(case.get(name))


def _list_cases(root: MappingNode) -> Iterator[MappingNode]:
    cases = root.get("cases")
    entries = cases.entries.values() if isinstance(cases, MappingNode) else ()
    yield from (entry.node for entry in entries if isinstance(entry.node, MappingNode))


def _list_keys(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    """Yield the keys of a mapping with positions; nothing for None and other nodes."""
    if isinstance(node, MappingNode):
        yield from ((key, entry.position) for key, entry in node.entries.items())


def _list_items(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    """Yield the scalar items of a list as texts with positions; nothing for other nodes."""
    if isinstance(node, SequenceNode):
        scalars = (scalar for scalar in node.items if isinstance(scalar, ScalarNode))
        yield from ((scalar.text, scalar.position) for scalar in scalars)
