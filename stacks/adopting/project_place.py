"""The place of a project's declarations."""

from pathlib import Path

from gpuform.stacks.adopting.places import Place
from gpuform.stacks.adopting.program_place import ProgramPlace
from gpuform.stacks.adopting.topology_place import TopologyPlace
from gpuform.stacks.engine.project import Project, folder_and_entry, topology_in


def place_of(project: Project, stack: str, out: Path | None, *, python: bool) -> Place:
    """Its topology, unless `python` is wanted or a program is all that there is.

    A project with neither gets a topology. `out` is the file for new entries.
    """
    folder, entry = folder_and_entry(project.program)
    program = folder / ("__main__.py" if entry == "." else entry)
    topology = topology_in(folder)
    if python or (topology is None and program.exists()):
        return ProgramPlace(_shown(out or program))
    topology = _shown(topology or folder / "topology.yaml")
    return TopologyPlace(topology, out or topology, stack)


def _shown(path: Path) -> Path:
    """Relative to the current folder, where it is inside it: as messages name it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
