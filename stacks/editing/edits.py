"""Changes of files that a rename is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.editing.outline import Span
from gpuform.stacks.engine.errors import EngineError


class RenameRefused(EngineError):
    """A name that cannot be given."""

    page = "guides/editors"


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
