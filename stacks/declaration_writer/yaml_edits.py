"""Add entries to a topology file that a person edits, and remove an option from entries.

Complete lines are added and removed; every other character stays. A file that would not mean
exactly the intended content afterwards is refused instead. `gpuform import` calls this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.schemas.errors import EngineError
from gpuform.stacks.declaration_writer.declarations import Declarations
from gpuform.stacks.declaration_writer.topology_yaml import STEP, build_sections, render_members
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.document.syntax_errors import LOADER
from gpuform.stacks.document.text_edits import Span, append_lines, find_member, remove_spans

_BOM: Final = "\ufeff"


class FileNotEdited(EngineError):
    """Raised for a file that only a person can edit.

    The message begins with file:line:column.
    """

    help_page = "guides/adopt"


def add_entries(source: str, declarations: Declarations, file_name: str) -> str:
    """Return the file with added entries, each at the end of the entry's section.

    Configuration variables and outputs that the file already has stay as they are. `file_name` is
    the name that messages show.

    Raises:
        FileNotEdited: the file has an entry of that name, or the section is written in braces.
    """
    expected_content = _read_content(source, file_name)
    for top_key, declared_members in build_sections(declarations).items():
        existing_members = expected_content.get(top_key) or {}
        new_members = {
            name: value for name, value in declared_members.items() if name not in existing_members
        }
        existing_name = next((name for name in declared_members if name in existing_members), None)
        if existing_name is not None and top_key not in ("config", "outputs"):
            raise _EditableFile(source, file_name).build_error(
                f"{top_key}.{existing_name} is already declared", top_key, existing_name
            )
        if new_members:
            # The content is compared at the end: an edit that changes what another line means must
            # not be written.
            source = _EditableFile(source, file_name).add_members(top_key, new_members)
            added_content = _read_content("\n".join(render_members(new_members, STEP)), file_name)
            expected_content[top_key] = {**existing_members, **added_content}
    return _require_content(source, expected_content, file_name)


def remove_option(
    source: str, entries: Iterable[tuple[str, str]], option: str, file_name: str
) -> str:
    """Return the file without one option of the named entries (section, name).

    Entries without the option stay as they are; `options` with nothing else is removed with it.

    Raises:
        FileNotEdited: the file cannot be read, or the option cannot be removed without other
            changes.
    """
    expected_content = _read_content(source, file_name)
    paths = []
    for section, name in entries:
        entry = (expected_content.get(section) or {}).get(name) or {}
        if option not in (entry.get("options") or {}):
            continue
        del entry["options"][option]
        paths.append([section, name, "options", option])
        if not entry["options"]:
            del entry["options"]
            # The span of a member can be removed only if other members stay.
            paths[-1].pop()
    if not paths:
        return source
    edited = _EditableFile(source, file_name).remove_members(paths)
    return _require_content(edited, expected_content, file_name)


def _require_content(source: str, expected_content: Mapping[str, Any], file_name: str) -> str:
    """Return the edited source, if its content is as expected. Raises FileNotEdited otherwise."""
    if _read_content(source, file_name) != expected_content:
        raise _EditableFile(source, file_name).build_error(
            "the file cannot be edited in its present form"
        )
    return source


def _read_content(source: str, file_name: str) -> dict[str, Any]:
    """Return the content of a file.

    Raises:
        FileNotEdited: the file is not a valid document; the message has the first problem.
    """
    problems = Diagnostics()
    content = to_plain_value(read_text(source.removeprefix(_BOM), file_name, problems))
    for problem in problems:
        raise FileNotEdited(f"{problem.position}: {problem.message}", problem.hint or None)
    return dict(content)


class _EditableFile:
    """A readable file with the YAML nodes of its text. Every edit returns another text."""

    def __init__(self, source: str, file_name: str) -> None:
        self._file_name = file_name
        self._body = source.removeprefix(_BOM)
        # The offsets of YAML's nodes count from behind the byte order mark.
        self._bom = source[: len(source) - len(self._body)]
        self._root: Node | None = yaml.compose(self._body, Loader=LOADER)

    def add_members(self, top_key: str, members: Mapping[str, Any]) -> str:
        """Return the text with added members under a top-level key, which may be new.

        Raises FileNotEdited if the file or the key's value is written in braces.
        """
        if self._root is not None and getattr(self._root, "flow_style", False):
            raise self.build_error("the file is written in braces")
        key, node = self._find_member(self._root, top_key)
        if node is None:
            blank_line = [""] if self._body.strip() else []
            return self._append(
                self._root, [*blank_line, f"{top_key}:", *render_members(members, STEP)]
            )
        # The key stands alone, without a value: members become its block.
        if isinstance(node, ScalarNode) and not node.value:
            return self._append(key, render_members(members, STEP), STEP)
        if not isinstance(node, MappingNode) or node.flow_style:
            raise self.build_error(
                f"{top_key} is not written with each key on a line of its own", top_key
            )
        column, step = _find_indentation(node)
        return self._append(node, render_members(members, column, step), column)

    def _append(self, node: Node | None, lines: list[str], column: int = 0) -> str:
        """Return the file's text with lines added at the end of the block `node`.

        `column` is that of the block's members.
        """
        return self._bom + append_lines(self._body, node, lines, column)

    def remove_members(self, member_paths: Iterable[Sequence[str]]) -> str:
        """Return the text without the members at `member_paths`.

        The caller makes sure that no object loses its only member."""
        return self._bom + remove_spans(self._body, map(self._find_member_span, member_paths))

    def _find_member_span(self, path: Sequence[str]) -> Span:
        """Return the span of the member at `path`, with its key: see `find_member`.

        The member must exist.
        """
        parent: Any = self._root
        for name in path[:-1]:
            _, parent = self._find_member(parent, name)
        index = next(n for n, (key, _) in enumerate(parent.value) if key.value == path[-1])
        return find_member(self._body, parent, index)

    def build_error(self, message: str, *path: str) -> FileNotEdited:
        """Return the error about the member at `path`, or about the file."""
        node, mark = self._root, None
        for name in path:
            key, node = self._find_member(node, name)
            mark = key.start_mark if key else None
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return FileNotEdited(
            f"{self._file_name}:{line}:{column}: {message}",
            hint="write each key on a line of its own, then run the command again",
        )

    @staticmethod
    def _find_member(node: Node | None, name: str) -> tuple[Any, Any]:
        """Return the nodes of a key and the key's value, or None twice."""
        pairs = node.value if isinstance(node, MappingNode) else ()
        return next((pair for pair in pairs if pair[0].value == name), (None, None))


def _find_indentation(section: MappingNode) -> tuple[int, int]:
    """Return the column of a section's entries, and the indentation of members below."""
    column = section.value[0][0].start_mark.column
    inner_steps = (
        value.value[0][0].start_mark.column - column
        for _, value in section.value
        if isinstance(value, MappingNode) and value.value and not value.flow_style
    )
    return column, next((step for step in inner_steps if step > 0), STEP)
