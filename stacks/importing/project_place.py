"""Find and change a project's declarations: entries in its topology files, or resources in its
Python program.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import Declarations, ResourceReference
from gpuform.stacks.declaration_writer.python_edits import (
    ResourceCall,
    add_resources,
    find_resource_calls,
    remove_import_options,
)
from gpuform.stacks.declaration_writer.python_program import PythonNames, render_program
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.declaration_writer.yaml_edits import add_entries, remove_option
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import ScalarNode
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, find_topology_file, get_folder_and_entry
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.importing.chosen import Key
from gpuform.stacks.importing.places import DeclarationPlace, Edit, Names, text_of
from gpuform.stacks.topology.declarations import ALONE, Instance
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.files import format_path, read_files
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import plan


class TopologyPlace:
    """A topology and what it includes; new entries go to `target`, one of these files.

    Raises TopologyError with what is wrong with them.
    """

    def __init__(self, topology: Path, target: Path, stack: str) -> None:
        self._target = target
        self._instances: list[Instance] = []
        self.defaults: set[str] = set()
        problems = Diagnostics()
        if topology.exists():
            planned = plan(topology, read_plan_context(topology, stack), problems)
            if problems:
                raise TopologyError(problems)
            self._instances = [each.instance for each in planned.resources]
            variables = planned.topology.config.values()
            self.defaults = {each.name for each in variables if "default" in each.fields}
        if target.resolve() not in _files(topology):
            raise EngineError(
                f"{format_path(target)} is no part of {format_path(topology)}",
                hint=f"make it, and add it there: include: [{target.name}]; modules take "
                "no entries, all their instances would have them",
            )

    @property
    def names(self) -> Names:
        """Of entries, and of their instances."""
        outside = (each for each in self._instances if not each.module)
        own = {(each.declaration.section, each.declaration.name) for each in outside}
        return own | {(each.declaration.section, each.name) for each in self._instances}

    @cached_property
    def pending(self) -> Mapping[Key, str]:
        """Ids that are expressions are not told here."""
        found = {}
        for each in self._instances:
            entry = each.declaration.options.get("import")
            if entry is not None and isinstance(entry.node, ScalarNode) and each.key == ALONE:
                id_ = entry.node.text
                if not has_expression(id_):
                    place = each.declaration
                    found[place.platform, place.kind, id_] = each.name
        return found

    def text(self, declared: Declarations) -> str:
        return render_topology(declared)

    def reference(self, platform: str, kind: str, name: str) -> ResourceReference | None:
        """An instance of a `for_each` by its key; what is in a module only has outputs."""
        each = self._by_name.get((platform, kind, name))
        if each is None or each.module or "id" in each.declaration.options:
            return None
        key = None if each.declaration.is_single else each.key
        return ResourceReference(each.declaration.section, each.declaration.name, key=key)

    def edit(self, declared: Declarations) -> Edit:
        """Each entry at the end of its section."""
        text = text_of(self._target)
        return Edit(
            self._target, text, add_entries(text or "", declared, format_path(self._target))
        )

    def finished(self, imported: Iterable[tuple[str, str, str]]) -> list[Edit]:
        """In each file the entries that are there; a module's are of all its instances."""
        by_file: dict[str, list[tuple[str, str]]] = {}
        for key in imported:
            each = self._by_name.get(key)
            if each is not None and not each.module:
                own = each.declaration
                by_file.setdefault(own.position.file, []).append((own.section, own.name))
        return [
            Edit.of(Path(file), remove_option(text_of(Path(file)) or "", names, "import", file))
            for file, names in by_file.items()
        ]

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str, str], Instance]:
        return {
            (each.declaration.platform, each.declaration.kind, each.name): each
            for each in self._instances
        }


def _files(topology: Path) -> set[Path]:
    return {
        topology.resolve(),
        *(each.path.resolve() for each in read_files(topology, Diagnostics())),
    }


def place_of(project: Project, stack: str, out: Path | None, *, python: bool) -> DeclarationPlace:
    """Its topology, unless `python` is wanted or a program is all that there is.

    A project with neither gets a topology. `out` is the file for new entries.
    """
    folder, entry = get_folder_and_entry(project.program)
    program = folder / ("__main__.py" if entry == "." else entry)
    topology = find_topology_file(folder)
    if python or (topology is None and program.exists()):
        return _ProgramPlace(_shown(out or program))
    topology = _shown(topology or folder / "topology.yaml")
    return TopologyPlace(topology, out or topology, stack)


def _shown(path: Path) -> Path:
    """Relative to the current folder, where it is inside it: as messages name it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


_SECTION_OF = {kind: section for section, kind in SECTIONS.items()}


class _ProgramPlace:
    """A file of a program. What it declares is told as far as its text tells it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._source = text_of(path)
        self._made: list[ResourceCall] = find_resource_calls(self._source or "", str(path))

    @property
    def names(self) -> Names:
        return {(_SECTION_OF[each.kind], each.name) for each in self._made}

    @property
    def pending(self) -> Mapping[Key, str]:
        named = (each for each in self._made if each.import_id)
        return {(each.platform, each.kind, each.import_id): each.name for each in named}

    @property
    def defaults(self) -> set[str]:
        """What a program does for want of a value is not told by its text."""
        return set()

    def text(self, declared: Declarations) -> str:
        return render_program(declared)

    def reference(self, platform: str, kind: str, name: str) -> ResourceReference | None:
        """One that a variable at the top of the program holds."""
        key = (platform, kind, name)
        is_there = any(key == (m.platform, m.kind, m.name) and m.variable for m in self._made)
        return ResourceReference(_SECTION_OF[kind], name) if is_there else None

    def edit(self, declared: Declarations) -> Edit:
        """At the program's end."""
        names = PythonNames()
        for each in self._made:
            if each.variable:
                names.assign(_SECTION_OF[each.kind], each.name, each.variable)
        made = add_resources(self._source or "", declared, names, str(self._path))
        return Edit(self._path, self._source, made)

    def finished(self, imported: Iterable[tuple[str, str, str]]) -> list[Edit]:
        source = text_of(self._path) or ""
        return [Edit(self._path, source, remove_import_options(source, imported, str(self._path)))]
