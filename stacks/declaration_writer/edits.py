"""Add declarations to a topology or program that a person edits, and remove its import options.

Complete lines are added and removed; every other character stays. A file that would not mean
exactly the intended content afterwards is refused instead. `gpuform import` calls this module.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.providers.platform import KINDS, platforms
from gpuform.schemas.errors import EngineError
from gpuform.stacks.declaration_writer.declarations import Declarations
from gpuform.stacks.declaration_writer.python_program import (
    PythonNames,
    render_body,
    render_platform_imports,
)
from gpuform.stacks.declaration_writer.topology_yaml import STEP, build_sections, render_members
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.document.syntax_errors import LOADER
from gpuform.stacks.document.text_edits import (
    Span,
    append_lines,
    find_line_start,
    find_listed,
    find_member,
    remove_spans,
)

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


class ProgramNotEdited(EngineError):
    """Raised for a program that only a person can edit.

    The message begins with file:line:column.
    """

    help_page = "guides/adopt"


@dataclass(frozen=True, slots=True)
class ResourceCall:
    """A call in a program that creates a resource, with its name and options written out.

    `variable` is the top-level variable that holds the resource, or empty. `import_id` is the id in
    the option `import_`, or empty.
    """

    platform: str
    kind: str
    name: str
    variable: str
    import_id: str
    call: ast.Call


def find_resource_calls(source: str, file_name: str) -> list[ResourceCall]:
    """Return the resource-creating calls of a program, as far as the source shows.

    Calls with a computed name, or of a class that is not imported from a platform, are left out.
    `file_name` is the name that messages show.

    Raises:
        ProgramNotEdited: the source is not valid Python.
    """
    tree = _parse(source, file_name)
    imported_names = _ImportedNames(tree)
    # New statements are added at the top level, where variables of functions are out of reach.
    variables_by_call = {
        node.value: node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    resource_calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            type_ = imported_names.find_resource_type(node.func)
            name = _get_literal_text(node.args[0])
            if type_ is not None and name is not None:
                variable = variables_by_call.get(node, "")
                import_id = _get_literal_text(_find_import_option(node)) or ""
                resource_calls.append(ResourceCall(*type_, name, variable, import_id, node))
    return resource_calls


def add_resources(
    source: str, declarations: Declarations, names: PythonNames, file_name: str
) -> str:
    """Return the program with the declarations at the end and the necessary imports.

    `names` may already have variables of the program; further variables that the program assigns
    are added to its taken names.

    Raises:
        ProgramNotEdited: the program is not valid Python, before or after the change.
    """
    tree = _parse(source, file_name)
    # New variables must not replace variables that the person's program uses.
    names.taken |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    body = render_body(declarations, names)
    if declarations.variables and not _has_config_variable(tree):
        body = f"config = pulumi.Config()\n{body}"
    lines = source.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    import_line = _find_import_line(tree)
    import_lines = [f"{line}\n" for line in _render_missing_imports(tree, declarations)]
    if import_lines and import_line < len(lines) and lines[import_line].strip():
        import_lines.append("\n")
    final_lines = [f"\n{body}"] if lines or import_lines else [body]
    return _require_valid_python(
        "".join([*lines[:import_line], *import_lines, *lines[import_line:], *final_lines]),
        file_name,
    )


def remove_import_options(
    source: str, names: Iterable[tuple[str, str, str]], file_name: str
) -> str:
    """Return the program without `import_` in the options of the named resources.

    `names` are (platform, kind, name). Only options that are written out in the resource's call are
    changed; an `opts` with nothing else is removed with it.

    Raises:
        ProgramNotEdited: the program is not valid Python, before or after the change.
    """
    resource_keys = set(names)
    calls = [
        resource_call.call
        for resource_call in find_resource_calls(source, file_name)
        if resource_call.import_id
        and (resource_call.platform, resource_call.kind, resource_call.name) in resource_keys
    ]
    lines = source.splitlines(keepends=True)
    return _require_valid_python(
        remove_spans(source, (_find_import_span(call, lines) for call in calls)), file_name
    )


class _ImportedNames:
    """The names that a program has imported for platforms and for their kinds."""

    def __init__(self, tree: ast.Module) -> None:
        self.platforms: dict[str, str] = {}
        self._kinds: dict[str, tuple[str, str]] = {}
        packages = {platform.package: name for name, platform in platforms().items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in packages:
                        self.platforms[alias.asname or alias.name] = packages[alias.name]
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    local_name = alias.asname or alias.name
                    if f"{node.module}.{alias.name}" in packages:
                        self.platforms[local_name] = packages[f"{node.module}.{alias.name}"]
                    elif node.module in packages and alias.name in KINDS:
                        self._kinds[local_name] = (packages[node.module], alias.name)

    def find_resource_type(self, function: ast.expr) -> tuple[str, str] | None:
        """Return the platform and kind created by a call of `function`, or None."""
        if isinstance(function, ast.Name):
            return self._kinds.get(function.id)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            platform = self.platforms.get(function.value.id)
            # A platform's module has look-ups beside its kinds.
            return (platform, function.attr) if platform and function.attr in KINDS else None
        return None


def _parse(source: str, file_name: str) -> ast.Module:
    """Return the syntax tree of a program. Raises ProgramNotEdited if the source is not valid."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise ProgramNotEdited(f"{file_name}:{line}:{column}: not valid Python: {reason}") from None


def _require_valid_python(source: str, file_name: str) -> str:
    """Return the source unchanged. Raises ProgramNotEdited if the source is not valid Python."""
    _parse(source, file_name)
    return source


def _get_literal_text(node: ast.expr | None) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _find_options(call: ast.Call) -> tuple[ast.keyword | None, Sequence[ast.keyword]]:
    """Return the `opts` argument and all keywords of this argument's call.

    Without an `opts` that is written out, return None and no keywords."""
    opts = next((keyword for keyword in call.keywords if keyword.arg == "opts"), None)
    if opts is None or not isinstance(opts.value, ast.Call):
        return None, ()
    return opts, opts.value.keywords


def _find_import_option(call: ast.Call) -> ast.expr | None:
    keywords = _find_options(call)[1]
    return next((keyword.value for keyword in keywords if keyword.arg == "import_"), None)


def _find_import_span(call: ast.Call, lines: Sequence[str]) -> Span:
    """Return the span to remove for the option `import_`.

    The span is the complete line where nothing else is on the line.
    """
    opts, keywords = _find_options(call)
    index = next(n for n, keyword in enumerate(keywords) if keyword.arg == "import_")
    # Other options stay, with their comments and commas.
    if len(keywords) > 1:
        return find_listed([_get_span(keyword, lines) for keyword in keywords], index)
    if opts is None:
        raise AssertionError("what has the option has options")
    begin, end = _get_span(opts, lines)
    source = "".join(lines)
    line_begin = find_line_start(source, begin)
    line_end = source.find("\n", end) + 1
    rest_of_line = source[line_begin:begin] + source[end:line_end]
    if line_end and rest_of_line.strip() in ("", ","):
        return line_begin, line_end
    return begin, end + len(source[end:]) - len(source[end:].lstrip(", "))


def _get_span(node: ast.keyword, lines: Sequence[str]) -> Span:
    """Return the offsets of a keyword argument in the source."""
    return (
        _to_offset(lines, node.lineno, node.col_offset),
        _to_offset(lines, node.end_lineno or 0, node.end_col_offset or 0),
    )


def _to_offset(lines: Sequence[str], line: int, column: int) -> int:
    """Return the offset in the source; `column` counts bytes, as Python's syntax tree does."""
    before_column = lines[line - 1].encode()[:column].decode()
    return sum(map(len, lines[: line - 1])) + len(before_column)


def _find_import_line(tree: ast.Module) -> int:
    """Return the number of lines up to the last top-level import, or else up to the docstring."""
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    if imports:
        return imports[-1].end_lineno or 0
    has_docstring = ast.get_docstring(tree) is not None
    return (tree.body[0].end_lineno or 0) if has_docstring else 0


def _render_missing_imports(tree: ast.Module, declarations: Declarations) -> Iterator[str]:
    modules = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    if "pulumi" not in modules:
        yield "import pulumi"
    imported_platforms: Mapping[str, str] = _ImportedNames(tree).platforms
    needed_platforms = sorted({entry.platform for entry in declarations.entries})
    yield from render_platform_imports(
        [platform for platform in needed_platforms if imported_platforms.get(platform) != platform]
    )


def _has_config_variable(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node) == "config = pulumi.Config()"
        for node in tree.body
    )
