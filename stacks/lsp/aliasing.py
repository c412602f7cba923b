"""Add the alias that keeps the object of a renamed resource, and rename it in test files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.lsp.cursor import Named, Span
from gpuform.stacks.lsp.sources import Source, source_of
from gpuform.stacks.lsp.topologies import TopologyText
from gpuform.stacks.multi_stack import list_stacks_with_settings


class RenameRefused(EngineError):
    """A name that cannot be given."""

    help_page = "guides/editors"


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of a file that is replaced; nothing where a text is put in."""

    path: Path
    span: Span
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits of its file."""
    lines = text.splitlines(keepends=True) or [""]
    for edit in sorted(edits, key=lambda each: each.span, reverse=True):
        line = lines[edit.span.line]
        lines[edit.span.line] = line[: edit.span.begin] + edit.text + line[edit.span.end :]
    return "".join(lines)


def by_file(edits: Iterable[Edit]) -> Mapping[Path, list[Edit]]:
    """The edits of each file."""
    found: dict[Path, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.path, []).append(edit)
    return found


_ANCHOR: Final = re.compile(r"&\S+\s*")


def aliases_for(
    topology: TopologyText, named: Named, new: str, edits: Sequence[Edit]
) -> list[Edit]:
    """The earlier name of a resource that gets a new one by the edits; nothing where no stack can
    have it.

    Raises RenameRefused where an alias cannot keep its object, or would take another one's.
    """
    if topology.project is None or not list_stacks_with_settings(topology.project):
        return []
    sources = topology.sources.of(topology.path)
    head = _head(topology, named)
    for other in (name for source in sources for name in source.names(named.section)):
        if other != named.name and _has_alias(sources, named.section, other, f"{head}{new}"):
            raise RenameRefused(
                f"{named.section}.{other} was called {new} before, and a stack may have it under "
                "that name",
                hint="choose another name, or apply the earlier rename first and take its alias "
                "out",
            )
    found = list(_alias(sources, named, head, new))
    _require_own_alias(sources, [*edits, *found], named.section, f"{head}{named.name}")
    return found


def _alias(sources: Sequence[Source], named: Named, head: str, new: str) -> Iterator[Edit]:
    for source in sources:
        entry = source.entry(named.section, named.name)
        if entry is None:
            continue
        repeats = source.repeats(named.section, named.name)
        names = (f"{head}{each}" for each in (named.name, new))
        earlier, now = (f'"{each}-{{{{ each.key }}}}"' if repeats else each for each in names)
        options = entry.get("options")
        aliases = options.get("aliases") if isinstance(options, MappingNode) else None
        for alias in aliases.items if isinstance(aliases, SequenceNode) else ():
            before = alias.get("name") if isinstance(alias, MappingNode) else None
            if isinstance(before, ScalarNode) and before.text == now.strip('"'):
                yield Edit(
                    source.path, source.span(before.position, before.text), earlier.strip('"')
                )
                return
        if options is not None and source.is_shared(entry.entries["options"]):
            raise _shared(named.section, named.name)
        if isinstance(aliases, SequenceNode):
            yield _put_in(source, aliases, f"{{name: {earlier}}}")
        elif isinstance(options, MappingNode):
            yield _put_in(source, options, f"aliases: [{{name: {earlier}}}]")
        elif options is not None:  # there are none in it yet
            key = source.span(entry.entries["options"].position, "options")
            at = Span(key.line, key.end + 1, key.end + 1)
            yield Edit(source.path, at, f" {{aliases: [{{name: {earlier}}}]}}")
        else:
            yield _put_in(source, entry, f"options: {{aliases: [{{name: {earlier}}}]}}")


def _require_own_alias(
    sources: Sequence[Source], edits: Sequence[Edit], section: str, name: str
) -> None:
    """Two resources with one earlier name would both ask for its object."""
    changed = by_file(edits)
    after = [
        source_of(each.path, edited(each.text, changed.get(each.path, ()))) for each in sources
    ]
    names = (each for source in after for each in source.names(section))
    if sum(_has_alias(after, section, each, name) for each in names) != 1:
        raise _shared(section, name)


def _has_alias(sources: Sequence[Source], section: str, name: str, earlier: str) -> bool:
    """Whether a resource, or each of its instances, was called so before."""
    for source in sources:
        entry = source.entry(section, name)
        options = entry.get("options") if entry is not None else None
        aliases = options.get("aliases") if isinstance(options, MappingNode) else None
        for alias in aliases.items if isinstance(aliases, SequenceNode) else ():
            node = alias.get("name") if isinstance(alias, MappingNode) else None
            if isinstance(node, ScalarNode) and re.fullmatch(
                rf"{re.escape(earlier)}(-\{{\{{.*)?", node.text
            ):
                return True
    return False


def _shared(section: str, name: str) -> RenameRefused:
    return RenameRefused(
        f"{section}.{name} has options that stand elsewhere, or that others share",
        hint="give it options of its own before you rename it",
    )


def _head(topology: TopologyText, named: Named) -> str:
    """What the whole name of the resource begins with: nothing, or the one module that it is in."""
    including = [
        (source, module.get("name"), module.get("for_each"))
        for source, module in topology.sources.including(topology.path)
    ]
    if not including:
        return ""
    (source, name, repeated), *others = including
    is_outer = source in topology.sources.namespaces[0]
    if others or repeated is not None or not is_outer or not isinstance(name, ScalarNode):
        raise RenameRefused(
            f"{named.section}.{named.name} has another whole name in each instance of its module, "
            "so that no alias can keep the objects of stacks",
            hint="rename it by hand, and its deployed resources by `gpuform state rename`",
        )
    return f"{name.text}-"


def _put_in(source: Source, node: MappingNode | SequenceNode, text: str) -> Edit:
    """One more first item of a mapping or a list, in the form that it has."""
    line, column = node.position.line - 1, node.position.column - 1
    anchor = _ANCHOR.match(source.lines[line], column)
    column = anchor.end() if anchor else column
    if source.lines[line][column : column + 1] in ("{", "["):
        at = Span(line, column + 1, column + 1)
        is_empty = not (node.entries if isinstance(node, MappingNode) else node.items)
        return Edit(source.path, at, text if is_empty else f"{text}, ")
    if anchor:  # the first item is on another line
        own = node.entries.values() if isinstance(node, MappingNode) else node.items
        places = [each.position for each in own]
        first = min(places, key=lambda place: (place.line, place.column))
        line, column = first.line - 1, first.column - 1
        if isinstance(node, SequenceNode):
            column = source.lines[line].rfind("-", 0, column)
    dash = "- " if isinstance(node, SequenceNode) else ""
    at = Span(line, column, column)
    return Edit(source.path, at, f"{dash}{text}{source.line_end}{' ' * column}")


_KEYS_OF_EXPECT: Final = ("plan", "properties", "replaced_by", "resources")
_LISTS_OF_CASE: Final = ("target", "exclude", "replace")
_CONFIGURED: Final = ("config", "secrets")


def resource_names(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """The resources that the cases of a file name, as they are written, each with its place."""
    for case in _cases(root):
        expect = case.get("expect")
        if isinstance(expect, MappingNode):
            for name in _KEYS_OF_EXPECT:
                yield from _keys(expect.get(name))
            yield from _items(expect.get("absent"))
        for name in _LISTS_OF_CASE:
            yield from _items(case.get(name))


def config_names(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """The configuration keys that the cases of a file set."""
    defaults = root.get("defaults")
    for case in (*([defaults] if isinstance(defaults, MappingNode) else ()), *_cases(root)):
        for name in _CONFIGURED:
            yield from _keys(case.get(name))


def _cases(root: MappingNode) -> Iterator[MappingNode]:
    cases = root.get("cases")
    entries = cases.entries.values() if isinstance(cases, MappingNode) else ()
    yield from (each.node for each in entries if isinstance(each.node, MappingNode))


def _keys(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    if isinstance(node, MappingNode):
        yield from ((key, entry.position) for key, entry in node.entries.items())


def _items(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    if isinstance(node, SequenceNode):
        scalars = (each for each in node.items if isinstance(each, ScalarNode))
        yield from ((each.text, each.position) for each in scalars)
