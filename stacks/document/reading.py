"""From a YAML file or text to its tree of nodes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

from gpuform.stacks.document.composing import LINE_BREAK, Composer, Unreadable
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode

LARGEST: Final = 10_000_000
"""Bytes of one file."""
_FORBIDDEN: Final = re.compile(
    r"[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML excludes, and what only some of its versions take for the end of a line."""


_unsaved: ContextVar[Mapping[Path, str]] = ContextVar("unsaved", default=MappingProxyType({}))


@contextmanager
def unsaved(texts: Mapping[Path, str]) -> Iterator[None]:
    """While it lasts, files are read as an editor has them: `texts` by their resolved paths."""
    token = _unsaved.set(texts)
    try:
        yield
    finally:
        _unsaved.reset(token)


def text_of(path: Path) -> str:
    """The text of a file as `read_file` takes it. Raises OSError and UnicodeDecodeError."""
    edited = _unsaved.get()
    text = edited.get(path.resolve()) if edited else None
    return path.read_text(encoding="utf-8-sig") if text is None else text.removeprefix("\ufeff")


def read_file(
    path: Path,
    shown: str,
    problems: Diagnostics,
    included: tuple[SourcePosition, ...] = (),
    *,
    is_outside_project: bool = False,
) -> MappingNode:
    """The file's mapping; `shown` is how messages name the file. What is wrong goes to `problems`.

    After an error the tree holds what could be read. `included` are the places that include it.
    No message shows what a file holds that `is_outside_project`.
    """
    start = SourcePosition(shown, included=included, is_outside_project=is_outside_project)
    nothing = MappingNode(start)
    edited = _unsaved.get()
    if edited and (text := edited.get(path.resolve())) is not None:
        return _mapping(text.removeprefix("\ufeff"), start, problems)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        problems.add(start, "file", f"cannot be read: {error.strerror}")
        return nothing
    except ValueError as error:  # a path with a character that no path has
        problems.add(start, "file", f"cannot be read: {error}")
        return nothing
    if len(data) > LARGEST:
        problems.add(start, "limit", f"the file has more than {LARGEST} bytes")
        return nothing
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        problems.add(
            _end_of(before, start), "syntax", "this is not UTF-8 text", "save the file as UTF-8"
        )
        return nothing
    return _mapping(text, start, problems)


def read_text(text: str, shown: str, problems: Diagnostics) -> MappingNode:
    """The mapping of a YAML text, as `read_file`."""
    return _mapping(text, SourcePosition(shown), problems)


def _mapping(text: str, start: SourcePosition, problems: Diagnostics) -> MappingNode:
    root = _root(text, start, problems)
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return MappingNode(start)
    if not isinstance(root, MappingNode):
        problems.add(root.place, "shape", "the file must hold keys and their values")
        return MappingNode(start)
    return root


def _root(text: str, start: SourcePosition, problems: Diagnostics) -> Node | None:
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        place = _end_of(text[: forbidden.start()], start)
        message = f"the character U+{ord(forbidden[0]):04X} cannot be written as it is"
        problems.add(place, "syntax", message, "remove it, or write its \\u code in double quotes")
        return None
    composer = Composer(text, start, problems)
    try:
        return composer.root()
    except yaml.MarkedYAMLError as error:
        problems.add(*composer.syntax(error))
    except Unreadable:
        pass  # the problem has been noted
    return None


def _end_of(before: str, start: SourcePosition) -> SourcePosition:
    lines = LINE_BREAK.split(before)
    return start._replace(line=len(lines), column=len(lines[-1]) + 1)
