"""The place of a project's declarations."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.authoring.declared import Declared, Reference
from gpuform.stacks.authoring.python_files import Made, made_in, with_resources, without_import
from gpuform.stacks.authoring.python_text import PythonNames, program_text
from gpuform.stacks.engine.project import Project, folder_and_entry, topology_in
from gpuform.stacks.importing.chosen import Key
from gpuform.stacks.importing.places import DeclarationPlace, Edit, Names, text_of
from gpuform.stacks.importing.topology_place import TopologyPlace


def place_of(project: Project, stack: str, out: Path | None, *, python: bool) -> DeclarationPlace:
    """Its topology, unless `python` is wanted or a program is all that there is.

    A project with neither gets a topology. `out` is the file for new entries.
    """
    folder, entry = folder_and_entry(project.program)
    program = folder / ("__main__.py" if entry == "." else entry)
    topology = topology_in(folder)
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
        self._made: list[Made] = made_in(self._source or "", str(path))

    @property
    def names(self) -> Names:
        return {(_SECTION_OF[each.kind], each.name) for each in self._made}

    @property
    def pending(self) -> Mapping[Key, str]:
        named = (each for each in self._made if each.imports)
        return {(each.platform, each.kind, each.imports): each.name for each in named}

    @property
    def defaults(self) -> set[str]:
        """What a program does for want of a value is not told by its text."""
        return set()

    def text(self, declared: Declared) -> str:
        return program_text(declared)

    def reference(self, platform: str, kind: str, name: str) -> Reference | None:
        """One that a variable at the top of the program holds."""
        key = (platform, kind, name)
        is_there = any(key == (m.platform, m.kind, m.name) and m.variable for m in self._made)
        return Reference(_SECTION_OF[kind], name) if is_there else None

    def edit(self, declared: Declared) -> Edit:
        """At the program's end."""
        names = PythonNames()
        for each in self._made:
            if each.variable:
                names.give(_SECTION_OF[each.kind], each.name, each.variable)
        made = with_resources(self._source or "", declared, names, str(self._path))
        return Edit(self._path, self._source, made)

    def finished(self, imported: Iterable[tuple[str, str, str]]) -> list[Edit]:
        source = text_of(self._path) or ""
        return [Edit(self._path, source, without_import(source, imported, str(self._path)))]
