"""The project: its program, the interpreter that runs it, and what a topology declares."""

from collections.abc import Callable, Iterator
from pathlib import Path

from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, folder_and_entry, topology_in
from gpuform.stacks.review.names import counted
from gpuform.stacks.topology.offline import surroundings_of
from gpuform.stacks.topology.planning import plan

AREA = "project"


def program(
    project: Project, interpreter: Callable[[Project], Path | None], platforms: set[str]
) -> Iterator[Finding]:
    """What would be run, and by which Python. The platforms that it names go to `platforms`."""
    folder, entry = folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    topology = topology_in(folder)
    if not file.is_file() and topology is None:
        raise EngineError(
            f"there is no program: {file} does not exist",
            hint="write it there, or a topology.yaml, or name its folder or file as `main` in "
            "Pulumi.yaml",
        )
    shown = file if file.is_file() else topology
    yield Finding(AREA, Level.OK, f"project {project.name} runs {shown}")
    if topology is not None:
        yield _topology(topology, platforms)
    other = interpreter(project)
    if other is not None:
        yield Finding(
            AREA,
            Level.NOTE,
            f"`up` and its kin go on in {other}: what is said here of versions is of this Python",
        )


def _topology(file: Path, platforms: set[str]) -> Finding:
    problems = Diagnostics()
    planned = plan(file, surroundings_of(file, None), problems)
    platforms.update(planned.topology.platforms())
    if problems:
        return Finding(
            AREA,
            Level.PROBLEM,
            f"{file} has {counted(len(list(problems)), 'problem')}",
            "gpuform validate",
        )
    return Finding(AREA, Level.OK, f"{file.name} is valid")
