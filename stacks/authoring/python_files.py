"""Adds resources to a Python program that a person edits, and takes an option out of them.

Lines are added at the end, imports after the program's own; every other character stays.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuform.providers.platform import KINDS, platforms
from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.authoring.python_text import PythonNames, body_of, platform_imports
from gpuform.stacks.document.text_edits import Span, find_line_start, find_listed, remove_spans
from gpuform.stacks.engine.errors import EngineError


class ProgramNotEdited(EngineError):
    """A program that only a person can edit; the message begins with file:line:column."""

    help_page = "guides/adopt"


@dataclass(frozen=True, slots=True)
class Made:
    """A call in a program that makes a resource, its name and options written out.

    `variable` is what it is assigned to, at the top of the program; `imports` the id that the
    option names.
    """

    platform: str
    kind: str
    name: str
    variable: str
    imports: str
    call: ast.Call


def made_in(source: str, where: str) -> list[Made]:
    """The resources of a program, as far as they can be told without running it."""
    tree = _parsed(source, where)
    known = _Imports(tree)
    assigned = {
        id(node.value): node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            type_, name = known.type_of(node.func), _text(node.args[0])
            if type_ is not None and name is not None:
                made = assigned.get(id(node), "")
                found.append(Made(*type_, name, made, _text(_imported(node)) or "", node))
    return found


def with_resources(source: str, declared: Declared, names: PythonNames, where: str) -> str:
    """The program with these resources at its end; `names` knows its variables."""
    tree = _parsed(source, where)
    names.taken |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    body = body_of(declared, names)
    if declared.variables and not _makes_config(tree):
        body = f"config = pulumi.Config()\n{body}"
    lines = source.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    at = _after_imports(tree)
    new = [f"{line}\n" for line in _missing_imports(tree, declared)]
    if new and at < len(lines) and lines[at].strip():
        new.append("\n")
    end = [f"\n{body}"] if lines or new else [body]
    return _checked("".join([*lines[:at], *new, *lines[at:], *end]), where)


def without_import(source: str, names: Iterable[tuple[str, str, str]], where: str) -> str:
    """The program without `import_` in the options of these resources, where that is written out.

    They are named by platform, kind and name; options that were only this go, too.
    """
    wanted = set(names)
    calls = [each.call for each in made_in(source, where) if each.imports and _key(each) in wanted]
    lines = source.splitlines(keepends=True)
    return _checked(remove_spans(source, (_span(call, lines) for call in calls)), where)


class _Imports:
    """What a program calls platforms and kinds."""

    def __init__(self, tree: ast.Module) -> None:
        self.platforms: dict[str, str] = {}
        self._kinds: dict[str, tuple[str, str]] = {}
        packages = {platform.package: name for name, platform in platforms().items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    if each.name in packages:
                        self.platforms[each.asname or each.name] = packages[each.name]
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    called = each.asname or each.name
                    if f"{node.module}.{each.name}" in packages:
                        self.platforms[called] = packages[f"{node.module}.{each.name}"]
                    elif node.module in packages and each.name in KINDS:
                        self._kinds[called] = (packages[node.module], each.name)

    def type_of(self, function: ast.expr) -> tuple[str, str] | None:
        """The platform and the kind of the resource that a call of this makes."""
        if isinstance(function, ast.Name):
            return self._kinds.get(function.id)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            platform = self.platforms.get(function.value.id)
            return (platform, function.attr) if platform else None
        return None


def _parsed(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        told = getattr(error, "msg", None) or str(error)
        raise ProgramNotEdited(f"{where}:{line}:{column}: not Python: {told}") from None


def _checked(source: str, where: str) -> str:
    _parsed(source, where)
    return source


def _key(made: Made) -> tuple[str, str, str]:
    return made.platform, made.kind, made.name


def _text(node: ast.expr | None) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _options(call: ast.Call) -> tuple[ast.keyword | None, Sequence[ast.keyword]]:
    opts = next((each for each in call.keywords if each.arg == "opts"), None)
    if opts is None or not isinstance(opts.value, ast.Call):
        return None, ()
    return opts, opts.value.keywords


def _imported(call: ast.Call) -> ast.expr | None:
    keywords = _options(call)[1]
    return next((each.value for each in keywords if each.arg == "import_"), None)


def _span(call: ast.Call, lines: Sequence[str]) -> Span:
    """From where to where the option goes; a line that had nothing else goes as a whole."""
    opts, keywords = _options(call)
    at = next(n for n, each in enumerate(keywords) if each.arg == "import_")
    if len(keywords) > 1:
        return find_listed([(_begin(each, lines), _end(each, lines)) for each in keywords], at)
    if opts is None:
        raise AssertionError("what has the option has options")
    begin, end = _begin(opts, lines), _end(opts, lines)
    source = "".join(lines)
    first = find_line_start(source, begin)
    last = source.find("\n", end) + 1
    rest = source[first:begin] + source[end:last]
    if last and rest.strip() in ("", ","):
        return first, last
    return begin, end + len(source[end:]) - len(source[end:].lstrip(", "))


def _begin(node: ast.keyword, lines: Sequence[str]) -> int:
    return _offset(lines, node.lineno, node.col_offset)


def _end(node: ast.keyword, lines: Sequence[str]) -> int:
    return _offset(lines, node.end_lineno or 0, node.end_col_offset or 0)


def _offset(lines: Sequence[str], line: int, column: int) -> int:
    """`column` counts bytes, as Python's own syntax tree does."""
    own = lines[line - 1].encode()[:column].decode()
    return sum(map(len, lines[: line - 1])) + len(own)


def _after_imports(tree: ast.Module) -> int:
    """The line after the last import at the top level, else after the docstring."""
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    if imports:
        return imports[-1].end_lineno or 0
    is_told = ast.get_docstring(tree) is not None
    return (tree.body[0].end_lineno or 0) if is_told else 0


def _missing_imports(tree: ast.Module, declared: Declared) -> Iterator[str]:
    modules = {
        each.asname or each.name
        for node in tree.body
        if isinstance(node, ast.Import)
        for each in node.names
    }
    if "pulumi" not in modules:
        yield "import pulumi"
    present: Mapping[str, str] = _Imports(tree).platforms
    wanted = sorted({each.platform for each in declared.entries})
    yield from platform_imports([each for each in wanted if present.get(each) != each])


def _makes_config(tree: ast.Module) -> bool:
    """Whether the program has the variable `config` for its configuration."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node) == "config = pulumi.Config()"
        for node in tree.body
    )
