"""Find the stack references and exports of a topology or program in its text; nothing runs.

`ordering` calls `read_stack_contents` for each stack of a workspace.
"""

import ast
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gpuform.schemas.checking import suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.executing import qualify_stack_name
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import get_folder_and_entry
from gpuform.stacks.multi_stack.reading import WorkspaceStack, add_problem
from gpuform.stacks.topology.declarations import Topology
from gpuform.stacks.topology.files import format_path, read_files
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.planning import (
    PlanContext,
    PlannedTopology,
    plan,
    read_plan_context,
    resolve_stack_references,
)

_REFERENCE: Final = "StackReference"
_OUTPUT_READERS: Final = ("get_output", "require_output", "get_output_details")
_EXPORT: Final = "export"
_MAIN: Final = "__main__.py"
_TOPOLOGIES: Final = "gpuform.stacks"
"""A module through which a program declares a topology beside its own resources."""
_IGNORED_FOLDERS: Final = frozenset({"venv", "tests", "node_modules", "__pycache__"})
_FOREIGN_ROOT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml", "pyvenv.cfg")
"""A folder with one of these files is a project or an environment of its own."""
_PACKAGES_WITHOUT_EXPORTS: Final = sys.stdlib_module_names | {"gpuform", "pulumi", "yaml"}
"""Packages that export no stack outputs by themselves."""


@dataclass(slots=True)
class ProgramReferences:
    """Hold the references of a program, as far as the text of its files shows them.

    `stacks` are the referenced stacks with positions; `read` are the outputs read of them;
    `exports` are the names of its own outputs. `is_complete` is False if a name is computed or may
    be written elsewhere. `has_program` is False if there is nothing to run.
    """

    stacks: list[tuple[str, SourcePosition]] = field(default_factory=list)
    read: list[tuple[str, str, SourcePosition]] = field(default_factory=list)
    exports: set[str] = field(default_factory=set)
    is_complete: bool = True
    has_program: bool = True


def read_program(program: Path, about: Mapping[str, str]) -> ProgramReferences:
    """Read a program's references from all Python files in the folder of `program`.

    `about` has the names of its `project` and `stack`. A file that is not valid Python is skipped,
    and the references are then incomplete: running it reports the error better.
    """
    folder = program if program.is_dir() else program.parent
    references = ProgramReferences(has_program=program.is_file() or (program / _MAIN).is_file())
    references.is_complete = references.has_program
    files = sorted(_find_python_files(folder))
    module_names = {
        part for file in files for part in file.relative_to(folder).with_suffix("").parts
    }
    for file in files:
        try:
            # `ast` counts columns in bytes, so the lines stay bytes, too.
            source = file.read_bytes()
            tree = ast.parse(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            references.is_complete = False
            continue
        _PythonFile(format_path(file), source.splitlines(), about, module_names, references).read(
            tree
        )
    return references


def _find_python_files(root: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, without other projects and ignored folders."""
    for folder, names, files in os.walk(root):
        if Path(folder) != root and any(name in files for name in _FOREIGN_ROOT_FILES):
            # Nothing below such a folder belongs to the program.
            names.clear()
            continue
        names[:] = [n for n in names if not n.startswith(".") and n not in _IGNORED_FOLDERS]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


@dataclass(slots=True)
class _PythonFile:
    """Read one Python file.

    `own` are the names of the program's modules, `imported_names` the names before import aliases;
    `texts` and `stacks` are the values of variables.
    """

    file: str
    lines: list[bytes]
    about: Mapping[str, str]
    own: set[str]
    references: ProgramReferences
    imported_names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, str] = field(default_factory=dict)

    def read(self, tree: ast.Module) -> None:
        """Read the stack references, read outputs and exports of a module into `references`.

        `is_complete` becomes False where a name is unknown, or other code may export.
        """
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
        bound = Counter(_iterate_bound_names(nodes))
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self._read_assignment(node, node.value, bound)
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Call):
                self._read_call(node)
            elif node not in called and self._get_name(node) == _EXPORT:
                self.references.is_complete = False  # whoever gets it may call it

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Remember the names renamed by `from ... import ... as`.

        A package that may export anything makes the references incomplete.
        """
        for alias in node.names:
            if isinstance(node, ast.ImportFrom) and alias.asname:
                self.imported_names[alias.asname] = alias.name
        modules = (
            [node.module] if isinstance(node, ast.ImportFrom) else [e.name for e in node.names]
        )
        is_own = isinstance(node, ast.ImportFrom) and node.level > 0
        for module in modules:
            package = (module or "").partition(".")[0]
            is_known = package in _PACKAGES_WITHOUT_EXPORTS or package.startswith("pulumi_")
            is_known = is_known and not (module or "").startswith(_TOPOLOGIES)
            # Any other package may call `pulumi.export` or read stacks itself.
            if not (is_own or is_known or package in self.own):
                self.references.is_complete = False

    def _read_assignment(
        self, node: ast.Assign | ast.AnnAssign, value: ast.expr, bound: Mapping[str, int]
    ) -> None:
        """Remember a text or a stack reference assigned to a name with one binding."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        string, stack = self._find_text(value), self._find_referenced_stack(value)
        for target in targets:
            # What is bound twice is one or the other.
            if isinstance(target, ast.Name) and bound[target.id] == 1:
                if string is not None:
                    self.texts[target.id] = string
                if stack is not None:
                    self.stacks[target.id] = stack

    def _read_call(self, node: ast.Call) -> None:
        """Record a stack reference, a read output or an export.

        An unknown stack or export makes the references incomplete; an unknown output is left out.
        """
        name = self._get_name(node.func)
        # `ast` counts UTF-8 bytes, editors count characters.
        before = self.lines[node.lineno - 1][: node.col_offset].decode(errors="replace")
        position = SourcePosition(self.file, node.lineno, len(before) + 1)
        if name == _REFERENCE:
            stack = self._find_referenced_stack(node)
            if stack is None:
                self.references.is_complete = False
            else:
                self.references.stacks.append((stack, position))
        elif name in _OUTPUT_READERS and isinstance(node.func, ast.Attribute):
            of = node.func.value
            stack = (
                self.stacks.get(of.id)
                if isinstance(of, ast.Name)
                else self._find_referenced_stack(of)
            )
            output = self._find_name(node)
            if stack is not None and output is not None:
                self.references.read.append((stack, output, position))
        elif name == _EXPORT:
            output = self._find_name(node)
            if output is None:
                self.references.is_complete = False
            else:
                self.references.exports.add(output)

    def _find_referenced_stack(self, node: ast.expr) -> str | None:
        """Return the stack name in a `StackReference(...)` call, or None for an unknown name."""
        if not (isinstance(node, ast.Call) and self._get_name(node.func) == _REFERENCE):
            return None
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        # `**more` may hold the name.
        if None in keywords:
            return None
        named = keywords.get("stack_name") or (node.args[1] if len(node.args) > 1 else None)
        if isinstance(named, ast.Constant) and named.value is None:
            named = None
        return self._find_name(node) if named is None else self._find_text(named)

    def _find_name(self, node: ast.Call) -> str | None:
        """Return the text of the first argument or of keyword `name`, or None."""
        keyword_values = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
        values = [*node.args[:1], *keyword_values]
        return self._find_text(values[0]) if values else None

    def _find_text(self, node: ast.expr) -> str | None:
        """Return a text made of literals and the names of project and stack, or None."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.Call):
            name = self._get_name(node.func)
            fact = {"get_stack": "stack", "get_project": "project"}.get(name, "")
            return "organization" if name == "get_organization" else self.about.get(fact)
        parts: Iterator[str | None]
        if isinstance(node, ast.JoinedStr):
            parts = (self._find_part_text(part) for part in node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = (self._find_text(part) for part in (node.left, node.right))
        else:
            return None
        texts = list(parts)
        return None if None in texts else "".join(part for part in texts if part)

    def _find_part_text(self, node: ast.expr) -> str | None:
        """Return the text of a part of an f-string; None with a conversion or a format."""
        if isinstance(node, ast.FormattedValue):
            is_plain = node.conversion == -1 and node.format_spec is None
            return self._find_text(node.value) if is_plain else None
        return self._find_text(node)

    def _get_name(self, node: ast.AST) -> str:
        """Return the name of an attribute or a variable, before renaming imports; else empty."""
        if isinstance(node, ast.Attribute):
            return node.attr
        return self.imported_names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _iterate_bound_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the name of every binding: a name with two bindings comes twice.

    Imports and caught exceptions are left out.
    """
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id  # it had a value before


_NamedReference = tuple[str, SourcePosition, str, tuple[tuple[str, SourcePosition], ...]]
"""The parts of a StackUse, under the name that the program has for the stack."""


@dataclass(frozen=True, slots=True)
class StackUse:
    """Describe a reference to another stack: its full name, and where it is written.

    `reference` is the topology's name for it; `outputs` are those that a program reads, with
    positions.
    """

    stack: str
    position: SourcePosition
    reference: str = ""
    outputs: tuple[tuple[str, SourcePosition], ...] = ()


@dataclass(frozen=True, slots=True)
class StackContents:
    """Hold what the files of a stack declare.

    `exports` is None if only a run can show all of them. `plan_context` is None for a program, and
    after an error in the stack's settings. `files` are those of the topology.
    """

    uses: tuple[StackUse, ...] = ()
    exports: frozenset[str] | None = None
    topology: Path | None = None
    plan_context: PlanContext | None = field(default=None, repr=False)
    files: frozenset[Path] = frozenset()
    has_program: bool = True

    def check_contents(
        self, exports: Mapping[str, Collection[str]], problems: Diagnostics
    ) -> PlannedTopology | None:
        """Check the topology, or the outputs that the program reads, and report the problems.

        `exports` has the output names of other stacks. Returns the planned topology, as far as
        files show it. Returns None for a program, and if the stack has no usable settings.
        """
        if self.topology is None:
            self._check_program_reads(exports, problems)
            return None
        if self.plan_context is None:  # the problem of its settings is reported already
            return None
        known_exports = {u.reference: exports[u.stack] for u in self.uses if u.stack in exports}
        return plan(self.topology, replace(self.plan_context, exports=known_exports), problems)

    def _check_program_reads(
        self, exports: Mapping[str, Collection[str]], problems: Diagnostics
    ) -> None:
        """Report each output that the program reads but the other stack does not export."""
        for use in self.uses:
            stack_exports = exports.get(use.stack)
            for output, position in use.outputs if stack_exports is not None else ():
                if output not in (stack_exports or ()):
                    existing = (
                        f"its outputs are {', '.join(sorted(stack_exports))}"
                        if stack_exports
                        else "it has no outputs"
                    )
                    message = f"the stack {use.stack} has no output {output}"
                    hint = suggest_name(output, stack_exports or (), existing)
                    problems.add(position, "reference", message, hint)


def read_stack_contents(member: WorkspaceStack, problems: Diagnostics) -> StackContents:
    """Read the topology or program of a stack; problems are added to `problems`."""
    project = member.project
    try:
        folder, _ = get_folder_and_entry(project.program)
        found_topology = find_topology(project.program)
    except EngineError:
        return StackContents(has_program=False)
    if found_topology is None:
        about = {"project": project.name, "stack": member.stack}
        return _build_program_contents(read_program(project.program, about), member, problems)
    topology = folder / found_topology.file
    topology_problems = Diagnostics()
    loaded = load(topology, topology_problems)
    files = frozenset(_list_topology_files(loaded, topology))
    # A broken file may have more outputs than were read.
    exports = None if topology_problems else frozenset(loaded.outputs)
    try:
        settings = member.stack if project.get_settings_path(member.stack).exists() else None
        plan_context = read_plan_context(topology, settings, project)
    except EngineError as error:
        problems.extend(topology_problems)
        add_problem(error, project.get_settings_path(member.stack), problems)
        return StackContents((), exports, topology, None, files)
    plan_context = replace(plan_context, program={"project": project.name, "stack": member.stack})
    stacks = resolve_stack_references(loaded, plan_context, topology_problems)
    problems.extend(topology_problems)
    positions = {name: entry.node.position for name, entry in loaded.stack_references.items()}
    named = [(stack, positions[name], name, ()) for name, stack in stacks.items()]
    uses = tuple(_resolve_uses(named, member, problems))
    return StackContents(uses, exports, topology, plan_context, files)


def _list_topology_files(loaded: Topology, path: Path) -> Iterator[Path]:
    """Yield the files of a topology and of all included modules."""
    yield from (file.path.resolve() for file in read_files(path, Diagnostics()))
    for module in loaded.modules.values():
        yield from _list_topology_files(module.topology, module.file)


def _build_program_contents(
    references: ProgramReferences, member: WorkspaceStack, problems: Diagnostics
) -> StackContents:
    """Build a stack's contents from the program's references.

    Without complete references the exports are None. Invalid names of stacks are reported.
    """
    named = [
        (
            stack,
            position,
            "",
            tuple(
                (output, at) for read_stack, output, at in references.read if read_stack == stack
            ),
        )
        for stack, position in references.stacks
    ]
    exports = frozenset(references.exports) if references.is_complete else None
    uses = tuple(_resolve_uses(named, member, problems))
    return StackContents(uses, exports, has_program=references.has_program)


def _resolve_uses(
    named: Iterable[_NamedReference], member: WorkspaceStack, problems: Diagnostics
) -> Iterator[StackUse]:
    """Yield the references with the stack's full name; report invalid names."""
    for stack, position, reference, outputs in named:
        try:
            full_name = qualify_stack_name(stack, member.project.name)
        except EngineError as error:
            problems.add(position, "unknown-stack", error.message, error.hint or "")
        else:
            yield StackUse(full_name, position, reference, outputs)
