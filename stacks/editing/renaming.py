"""A new name for a declaration, wherever it is named; what is deployed keeps its objects."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.schemas.topology import NAME, SECTIONS
from gpuform.stacks.editing.outline import KEY, Named, Span
from gpuform.stacks.editing.topologies import TopologyText
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.estate import stacks_with_settings

_RENAMED: Final = (*SECTIONS, "config", "inputs", "stack_references")


class RenameRefused(EngineError):
    """A name that cannot be given."""

    page = "guides/editors"


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of a file that is replaced; nothing where a text is put in."""

    path: Path
    span: Span
    text: str


def renameable(topology: TopologyText, line: int, column: int) -> tuple[Named, Span] | None:
    """What can be renamed at a place, and the part of the line that names it there."""
    named = topology.meant(line, column)
    if named is None or named.section not in _RENAMED:
        return None
    if named.span.holds(line, column):
        return named, named.span
    found = topology.outline.reference_at(line, column)
    return None if found is None else (named, found[0].spans[1])


def rename(topology: TopologyText, named: Named, name: str) -> list[Edit]:
    """All edits. A resource of a project with stacks gets its earlier name as an alias, so that
    its object stays. Raises RenameRefused for a name that is none, or is taken.
    """
    if not re.fullmatch(NAME, name):
        raise RenameRefused(
            f"{name!r} is no name", hint="write letters, digits, hyphens, underscores and dots"
        )
    if name in topology.outline.names(named.section):
        raise RenameRefused(f"{named.section}.{name} is there already", hint="choose another name")
    edits = [Edit(topology.path, named.span, name)]
    edits += [
        Edit(topology.path, reference.spans[at], name)
        for reference, at in topology.uses(named.section, named.name)
    ]
    if named.section == "config":
        edits += _in_settings(topology, named.name, name)
    elif named.section in SECTIONS:
        edits += _alias(topology, named)
    return edits


def _in_settings(topology: TopologyText, old: str, new: str) -> Iterator[Edit]:
    """The key in the settings of the project's stacks."""
    project = topology.project
    if project is None:
        return
    for stack in stacks_with_settings(project):
        path = project.settings_path(stack)
        text = topology.others.get(path.resolve()) or path.read_text(encoding="utf-8")
        pattern = re.compile(rf"^\s+(?:{re.escape(project.name)}:)?({re.escape(old)})\s*:(?=\s|$)")
        for number, line in enumerate(text.splitlines()):
            found = pattern.match(line)
            if found:
                yield Edit(path, Span(number, found.start(1), found.end(1)), new)


def _alias(topology: TopologyText, named: Named) -> Iterator[Edit]:
    """The earlier name, where a stack may have the resource; nothing where it has options: they
    are a person's to write.
    """
    project, outline = topology.project, topology.outline
    if project is None or not stacks_with_settings(project):
        return
    body = outline.lines[named.span.line : named.end + 1]
    if any(re.search(r"\boptions\s*:", line) for line in body):
        return
    repeats = any(re.search(r"\bfor_each\s*:", line) for line in body)
    earlier = f'"{named.name}-{{{{ each.key }}}}"' if repeats else named.name
    alias = f"options: {{aliases: [{{name: {earlier}}}]}}"
    first = body[0]
    opening = re.match(r".*?:\s*\{", first)
    if opening:
        end = opening.end()
        yield Edit(topology.path, Span(named.span.line, end, end), f"{alias}, ")
        return
    for number, line in enumerate(body[1:], named.span.line + 1):
        found = KEY.match(line)
        if found:
            at = Span(number, 0, 0)
            yield Edit(topology.path, at, f"{found['indent']}{alias}\n")
            return


def by_file(edits: list[Edit]) -> Mapping[Path, list[Edit]]:
    """The edits of each file."""
    found: dict[Path, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.path, []).append(edit)
    return found
