"""Find what a stack reads of others, from its topology or its program's text. Nothing is run."""

import ast
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gpuform.schemas.checking import find_nearest_name
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing import qualify_stack_name
from gpuform.stacks.engine.language_host import topology_of
from gpuform.stacks.engine.project import get_folder_and_entry
from gpuform.stacks.multi_stack.members import Member, note
from gpuform.stacks.topology.declarations import Topology
from gpuform.stacks.topology.files import format_path, read_files
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import (
    PlanContext,
    PlannedTopology,
    plan,
    resolve_stack_references,
)

_REFERENCE: Final = "StackReference"
_READING: Final = ("get_output", "require_output", "get_output_details")
_EXPORT: Final = "export"
_MAIN: Final = "__main__.py"
_TOPOLOGIES: Final = "gpuform.stacks"
"""What a program imports that hands over a topology beside its own resources."""
_NOT_READ: Final = frozenset({"venv", "tests", "node_modules", "__pycache__"})
_OTHERS: Final = ("Pulumi.yaml", "Pulumi.yml", "pyvenv.cfg")
"""A folder with one of these inside the program's is a project or an environment of its own."""
_GIVE_NOTHING_OUT: Final = sys.stdlib_module_names | {"gpuform", "pulumi", "yaml"}
"""Packages that export nothing of a stack by themselves."""


@dataclass(slots=True)
class ProgramText:
    """What one program's files say, as far as their text alone tells it.

    `stacks` are the names of the stacks that it refers to, each with its place; `read` are the
    outputs that it reads of them; `exports` the names of its own outputs. `is_whole` is False where
    a name is made in a way that only a run can tell, or may be made elsewhere. It `is_there` where
    there is something to run.
    """

    stacks: list[tuple[str, SourcePosition]] = field(default_factory=list)
    read: list[tuple[str, str, SourcePosition]] = field(default_factory=list)
    exports: set[str] = field(default_factory=set)
    is_whole: bool = True
    is_there: bool = True


def read_program(program: Path, about: Mapping[str, str]) -> ProgramText:
    """The program of a folder or a file; `about` has the names of its `project` and `stack`.

    A file that is no Python is left to the run, which says so better.
    """
    folder = program if program.is_dir() else program.parent
    found = ProgramText(is_there=program.is_file() or (program / _MAIN).is_file())
    found.is_whole = found.is_there
    files = sorted(_files(folder))
    own = {part for file in files for part in file.relative_to(folder).with_suffix("").parts}
    for file in files:
        try:
            text = file.read_bytes()
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError):
            found.is_whole = False
            continue
        _File(format_path(file), text.splitlines(), about, own, found).read(tree)
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        if Path(folder) != root and any(name in files for name in _OTHERS):
            names.clear()
            continue
        names[:] = [n for n in names if not n.startswith(".") and n not in _NOT_READ]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


@dataclass(slots=True)
class _File:
    """One file. `own` are the names of the program's modules.

    `meant` are the names that an import has for others; `texts` and `stacks` what variables are.
    """

    file: str
    lines: list[bytes]
    about: Mapping[str, str]
    own: set[str]
    found: ProgramText
    meant: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, str] = field(default_factory=dict)

    def read(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported(node)
        bound = Counter(_bound(nodes))
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self._assigned(node, node.value, bound)
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Call):
                self._called(node)
            elif id(node) not in called and self._name_of(node) == _EXPORT:
                self.found.is_whole = False  # whoever gets it may call it

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for each in node.names:
            if isinstance(node, ast.ImportFrom) and each.asname:
                self.meant[each.asname] = each.name
        modules = (
            [node.module] if isinstance(node, ast.ImportFrom) else [e.name for e in node.names]
        )
        is_own = isinstance(node, ast.ImportFrom) and node.level > 0
        for module in modules:
            package = (module or "").partition(".")[0]
            is_known = package in _GIVE_NOTHING_OUT or package.startswith("pulumi_")
            is_known = is_known and not (module or "").startswith(_TOPOLOGIES)
            if not (is_own or is_known or package in self.own):
                self.found.is_whole = False

    def _assigned(
        self, node: ast.Assign | ast.AnnAssign, value: ast.expr, bound: Mapping[str, int]
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        text, stack = self._text(value), self._stack_of(value)
        for each in targets:
            # What is bound twice is one or the other.
            if isinstance(each, ast.Name) and bound[each.id] == 1:
                if text is not None:
                    self.texts[each.id] = text
                if stack is not None:
                    self.stacks[each.id] = stack

    def _called(self, node: ast.Call) -> None:
        name = self._name_of(node.func)
        before = self.lines[node.lineno - 1][: node.col_offset].decode(errors="replace")
        place = SourcePosition(self.file, node.lineno, len(before) + 1)
        if name == _REFERENCE:
            stack = self._stack_of(node)
            if stack is None:
                self.found.is_whole = False
            else:
                self.found.stacks.append((stack, place))
        elif name in _READING and isinstance(node.func, ast.Attribute):
            of = node.func.value
            stack = self.stacks.get(of.id) if isinstance(of, ast.Name) else self._stack_of(of)
            output = self._first(node, "name")
            if stack is not None and output is not None:
                self.found.read.append((stack, output, place))
        elif name == _EXPORT:
            output = self._first(node, "name")
            if output is None:
                self.found.is_whole = False
            else:
                self.found.exports.add(output)

    def _stack_of(self, node: ast.expr) -> str | None:
        """The name of the stack that a `StackReference(...)` is of; None where that is not told."""
        if not (isinstance(node, ast.Call) and self._name_of(node.func) == _REFERENCE):
            return None
        given = {each.arg: each.value for each in node.keywords}
        if None in given:  # **more
            return None
        named = given.get("stack_name") or (node.args[1] if len(node.args) > 1 else None)
        if isinstance(named, ast.Constant) and named.value is None:
            named = None
        return self._first(node, "name") if named is None else self._text(named)

    def _first(self, node: ast.Call, name: str) -> str | None:
        """The text that is its first argument, or the one of this name."""
        given = [each.value for each in node.keywords if each.arg == name]
        values = [*node.args[:1], *given]
        return self._text(values[0]) if values else None

    def _text(self, node: ast.expr) -> str | None:
        """A text that is written out, or made of such and of the names of project and stack."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.Call):
            name = self._name_of(node.func)
            asked = {"get_stack": "stack", "get_project": "project"}.get(name, "")
            return "organization" if name == "get_organization" else self.about.get(asked)
        parts: Iterator[str | None]
        if isinstance(node, ast.JoinedStr):
            parts = (self._part(each) for each in node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = (self._text(each) for each in (node.left, node.right))
        else:
            return None
        found = list(parts)
        return None if None in found else "".join(each for each in found if each)

    def _part(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.FormattedValue):
            is_plain = node.conversion == -1 and node.format_spec is None
            return self._text(node.value) if is_plain else None
        return self._text(node)

    def _name_of(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            return node.attr
        return self.meant.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    """Every name that is given a value, as often as it is."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id  # it had a value before


_Named = tuple[str, SourcePosition, str, tuple[tuple[str, SourcePosition], ...]]
"""What makes a StackUse, by the name that the member has for the stack."""


@dataclass(frozen=True, slots=True)
class StackUse:
    """A reference to another stack: its full name, and where it is written.

    `reference` is the topology's name for it; `outputs` are those that a program reads of it, each
    with its place.
    """

    stack: str
    place: SourcePosition
    reference: str = ""
    outputs: tuple[tuple[str, SourcePosition], ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What the files of a member tell.

    `exports` is None where only a run can tell all of them. `files` are those that its topology is
    read from.
    """

    uses: tuple[StackUse, ...] = ()
    exports: frozenset[str] | None = None
    topology: Path | None = None
    surroundings: PlanContext | None = field(default=None, repr=False)
    files: frozenset[Path] = frozenset()
    has_program: bool = True

    def check(
        self, exports: Mapping[str, Collection[str]], problems: Diagnostics
    ) -> PlannedTopology | None:
        """Checks all of a topology; `exports` are those of other stacks, by their full names.

        Returns what is declared, as far as files tell it; None of a program.
        """
        if self.topology is None:
            self._check_program(exports, problems)
            return None
        if self.surroundings is None:  # what is wrong with its settings is told already
            return None
        known = {u.reference: exports[u.stack] for u in self.uses if u.stack in exports}
        return plan(self.topology, replace(self.surroundings, exports=known), problems)

    def _check_program(self, exports: Mapping[str, Collection[str]], problems: Diagnostics) -> None:
        for use in self.uses:
            known = exports.get(use.stack)
            for output, place in use.outputs if known is not None else ():
                if output not in (known or ()):
                    near = find_nearest_name(output, tuple(known or ()))
                    there = f"there is {', '.join(sorted(known))}" if known else "it has none"
                    message = f"the stack {use.stack} has no output {output}"
                    hint = f"did you mean {near}?" if near else there
                    problems.add(place, "reference", message, hint)


def told_by(member: Member, problems: Diagnostics) -> Told:
    """What the member's topology or program tells; what is wrong in it goes to `problems`."""
    project = member.project
    try:
        folder, _ = get_folder_and_entry(project.program)
        found_topology = topology_of(project.program)
    except EngineError:
        return Told(has_program=False)
    if found_topology is None:
        about = {"project": project.name, "stack": member.stack}
        return _of_program(read_program(project.program, about), member, problems)
    topology = folder / found_topology.file
    found = Diagnostics()
    loaded = load(topology, found)
    files = frozenset(_files_of(loaded, topology))
    exports = None if found else frozenset(loaded.outputs)
    try:
        settings = member.stack if project.settings_path(member.stack).exists() else None
        surroundings = read_plan_context(topology, settings, project)
    except EngineError as error:
        problems.extend(found)
        note(error, project.settings_path(member.stack), problems)
        return Told((), exports, topology, None, files)
    surroundings = replace(surroundings, program={"project": project.name, "stack": member.stack})
    stacks = resolve_stack_references(loaded, surroundings, found)
    problems.extend(found)
    places = {name: entry.node.place for name, entry in loaded.stack_references.items()}
    named = [(stack, places[name], name, ()) for name, stack in stacks.items()]
    uses = tuple(_uses(named, member, problems))
    return Told(uses, exports, topology, surroundings, files)


def _files_of(loaded: Topology, path: Path) -> Iterator[Path]:
    """The topology's own files, with those of its modules."""
    yield from (file.path.resolve() for file in read_files(path, Diagnostics()))
    for module in loaded.modules.values():
        yield from _files_of(module.topology, module.file)


def _of_program(text: ProgramText, member: Member, problems: Diagnostics) -> Told:
    named = [
        (stack, place, "", tuple((output, at) for of, output, at in text.read if of == stack))
        for stack, place in text.stacks
    ]
    exports = frozenset(text.exports) if text.is_whole else None
    uses = tuple(_uses(named, member, problems))
    return Told(uses, exports, has_program=text.is_there)


def _uses(named: Iterable[_Named], member: Member, problems: Diagnostics) -> Iterator[StackUse]:
    for stack, place, reference, outputs in named:
        try:
            full_name = qualify_stack_name(stack, member.project.name)
        except EngineError as error:
            problems.add(place, "unknown-stack", error.message, error.hint or "")
        else:
            yield StackUse(full_name, place, reference, outputs)
