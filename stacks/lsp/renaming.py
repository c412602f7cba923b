"""A new name for a declaration, wherever it is named; what is deployed keeps its objects."""

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
from gpuform.stacks.lsp.aliasing import (
    Edit,
    RenameRefused,
    aliases_for,
    by_file,
    config_names,
    edited,
    resource_names,
)
from gpuform.stacks.lsp.checking import check
from gpuform.stacks.lsp.cursor import Named, Reference, Span
from gpuform.stacks.lsp.sources import Source, source_of
from gpuform.stacks.lsp.topologies import TopologyText
from gpuform.stacks.multi_stack import list_stacks_with_settings
from gpuform.stacks.topology.scope import parse_template

_RENAMED: Final = (*SECTIONS, "config", "inputs", "stack_references")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_TESTS: Final = "tests"


def renameable(topology: TopologyText, line: int, column: int) -> tuple[Named, Span] | None:
    """What can be renamed at a place, and the part of the line that names it there."""
    found = topology.meant(line, column)
    if found is None or found[1].section not in _RENAMED:
        return None
    named = found[1]
    if topology.is_own(found[0]) and named.span.holds(line, column):
        return named, named.span
    reference = topology.outline.reference_at(line, column)
    return None if reference is None else (named, reference[0].spans[1])


def rename(topology: TopologyText, named: Named, name: str) -> list[Edit]:
    """All edits. A resource of a project with stacks gets its earlier name as an alias, so that
    its object stays. Raises RenameRefused for a name that is none or is taken, and where a file
    cannot be read.
    """
    sources = topology.sources.of(topology.path)
    _require_name(name, named, sources)
    edits = [*_of_names(sources, named, name)]
    if named.section == "inputs":
        places = topology.sources.given(topology.path, named.name)
        edits += [Edit(path, span, name) for path, span in places]
    _require_whole(sources, edits, named, name)
    if named.section == "config":
        edits += _in_settings(topology, named.name, name)
    elif named.section in SECTIONS:
        edits += aliases_for(topology, named, name, edits)
    _require_valid(topology, edits, named)
    if topology.project is not None:
        edits += _in_tests(topology, topology.project, sources, named, name)
    return edits


def _require_name(name: str, named: Named, sources: Sequence[Source]) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise RenameRefused(
            f"{name!r} is no name", hint="write letters, digits, hyphens, underscores and dots"
        )
    for source in sources:
        _require_readable(source)
        if source.declared(named.section, name) is not None:
            raise RenameRefused(
                f"{named.section}.{name} is there already", hint="choose another name"
            )


def _require_readable(source: Source) -> None:
    problem = next(iter(source.problems), None)
    if problem is not None:
        raise RenameRefused(
            f"{problem.position}: {problem.message}: what is named there is not known",
            hint="mend it before you rename",
        )


def _of_names(sources: Sequence[Source], named: Named, name: str) -> Iterator[Edit]:
    for source in sources:
        declared = source.declared(named.section, named.name)
        if declared is not None:
            yield Edit(source.path, declared.span, name)
        for reference in source.references:
            if reference.steps[:2] == (named.section, named.name):
                yield _of_reference(source, reference, name)


def _of_reference(source: Source, reference: Reference, name: str) -> Edit:
    """A name that is no word of expressions goes into brackets."""
    root, span = reference.spans[:2]
    line = source.lines[span.line]
    dot = line.rfind(".", 0, span.begin)
    is_dotted = dot >= 0 and not line[dot + 1 : span.begin].strip()
    if not is_dotted or _IDENTIFIER.fullmatch(name):
        return Edit(source.path, span, name)
    # The quote that the value around it is not in.
    quote = '"' if source.quote_at(root) == "'" else "'"
    return Edit(source.path, Span(span.line, dot, span.end), f"[{quote}{name}{quote}]")


def _require_whole(
    sources: Sequence[Source], edits: Iterable[Edit], named: Named, name: str
) -> None:
    """What the files name after the edits is what they named before, by the new name."""
    by_path = by_file(edits)
    for source in sources:
        text = edited(source.text, by_path.get(source.path, ()))
        after = source_of(source.path, text)
        wanted = [
            (root, name if root == named.section and step == named.name else step)
            for root, step in _needs(source.root)
        ]
        if after.problems or list(_needs(after.root)) != wanted:
            raise RenameRefused(
                f"{source.path.name} names {named.section}.{named.name} in a way that only a "
                "person can rename",
                hint="rename it by hand, and let `gpuform validate` check it",
            )


def _require_valid(topology: TopologyText, edits: Iterable[Edit], named: Named) -> None:
    """What was right before is right after."""
    by_path = by_file(edits)
    spaces = topology.sources.namespaces
    before = {source.path: source.text for space in spaces for source in space}
    after = {path: edited(text, by_path.get(path, ())) for path, text in before.items()}
    for first, *_ in spaces:
        if check(first.path, {**topology.others, **before}):
            continue
        found = check(first.path, {**topology.others, **after}).values()
        wrong = next((each for problems in found for each in problems), None)
        if wrong is not None:
            raise RenameRefused(
                f"{named.section}.{named.name} cannot be renamed so: {wrong.message}",
                hint=wrong.hint or "rename it by hand",
            )


def _needs(root: Node) -> Iterator[tuple[str, str]]:
    for scalar in list_scalars(root):
        template = parse_template(scalar, Diagnostics())
        for need in template.references if template else ():
            first = need.steps[0] if need.steps else ""
            yield need.root, first if isinstance(first, str) else ""


def _in_settings(topology: TopologyText, old: str, new: str) -> Iterator[Edit]:
    """The key in the settings of the project's stacks, and in those of the project itself."""
    project = topology.project
    if project is None:
        return
    paths = [project.path, *map(project.get_settings_path, list_stacks_with_settings(project))]
    for path in paths:
        source = _read(topology, path)
        _require_readable(source)
        config = source.root.get("config")
        for key, entry in config.entries.items() if isinstance(config, MappingNode) else ():
            if key in (new, f"{project.name}:{new}"):
                raise RenameRefused(
                    f"{path.name} has {key} already", hint="choose another name, or take it out"
                )
            if key in (old, f"{project.name}:{old}"):
                whole = source.span(entry.position, key)
                yield Edit(path, Span(whole.line, whole.end - len(old), whole.end), new)


def _read(topology: TopologyText, path: Path) -> Source:
    text = topology.others.get(path.resolve())
    if text is None:
        text = path.read_text(encoding="utf-8", errors="replace")
    return source_of(path, text)


def _in_tests(
    topology: TopologyText,
    project: Project,
    sources: Sequence[Source],
    named: Named,
    new: str,
) -> Iterator[Edit]:
    """The name in test files, where it is clear what is meant."""
    old = named.name
    if named.section == "config":
        find, spans = config_names, _whole(old)
    elif named.section in SECTIONS:
        find, spans = resource_names, _of_resource(topology, sources, named)
    else:
        return
    for path in sorted((project.directory / _TESTS).glob("*.y*ml")):
        source = _read(topology, path)
        _require_readable(source)
        for written, place in find(source.root):
            begin = spans(written)
            if begin is not None:
                whole = source.span(place, written)
                at = whole.begin + begin
                yield Edit(path, Span(whole.line, at, at + len(old)), new)


def _whole(name: str) -> Callable[[str], int | None]:
    return lambda written: 0 if written == name else None


def _of_resource(
    topology: TopologyText, sources: Sequence[Source], named: Named
) -> Callable[[str], int | None]:
    """Where a name that a case writes has the name of the resource: alone, behind its section,
    before the key of an instance, or behind the name of a module.
    """
    section, old = named.section, named.name
    others = {(each, name) for each in SECTIONS for one in sources for name in one.names(each)}
    others.discard((section, old))
    repeats = any(each.repeats(section, old) for each in sources)
    modules = [
        (node.text, module.get("for_each") is not None)
        for _, module in topology.sources.including(topology.path)
        if isinstance(node := module.get("name"), ScalarNode)
    ]

    def begins(written: str) -> int | None:
        base = written.removeprefix(f"{section}.")
        offset = len(written) - len(base)
        for module, is_repeated in modules:
            head, tail = f"{module}-", f"-{old}"
            if base == f"{module}{tail}" or (
                is_repeated and base.startswith(head) and base.endswith(tail)
            ):
                return offset + len(base) - len(old)
        if modules or not (base == old or (repeats and base.startswith(f"{old}-"))):
            return None
        rivals = (name for each, name in others if each == section or not offset)
        is_clear = not any(base == name or base.startswith(f"{name}-") for name in rivals)
        return offset if is_clear else None

    return begins
