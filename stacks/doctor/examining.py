"""The whole examination, from the machine to the platforms."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpuform.providers.operations import Settings
from gpuform.stacks.doctor import stack as stacks
from gpuform.stacks.doctor.environment import environment
from gpuform.stacks.doctor.findings import Examination, Finding, Level, failure
from gpuform.stacks.doctor.platforms import AREA as PLATFORMS
from gpuform.stacks.doctor.platforms import platforms
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import (
    NoProject,
    OtherRuntime,
    Project,
    find_project,
    find_topology_file,
    get_folder_and_entry,
)
from gpuform.stacks.engine.stack import find_selected_stack, get_short_name
from gpuform.stacks.engine.store import Backend, get_backend_url, strip_credentials
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import plan

BACKEND = "backend"
_LITTLE_SPACE = 100 * 2**20


def examine(
    directory: Path,
    environ: Mapping[str, str],
    stack: str | None,
    interpreter: Callable[[Project], Path | None],
) -> list[Finding]:
    """Everything that a run in a folder needs. Changes nothing, and never raises an error.

    `stack` is the one to look at, or the selected one; `interpreter` finds a project's own.
    """
    exam = Examination()
    used: set[str] = set()
    exam.look("environment", lambda: environment(environ))
    project = exam.get("project", lambda: _project(exam, directory))
    if project is not None and not exam.has_foreign_program:
        exam.look("project", lambda: program(project, interpreter, used))
    backend = exam.get(BACKEND, lambda: Backend.open(get_backend_url(environ, project), environ))
    if backend is not None:
        exam.look(BACKEND, lambda: _backend(backend))
    config: Mapping[str, str] = {}
    if project is not None and backend is not None:
        config = _stack(exam, project, backend, stack, environ, used)
    exam.look(PLATFORMS, lambda: platforms(config, environ, used))
    exam.secrets += Settings(config=config.get, environ=environ).list_secrets()
    return exam.told()


def _project(exam: Examination, directory: Path) -> Project | None:
    try:
        return find_project(directory)
    except OtherRuntime as error:  # what works from the state alone can be used
        exam.findings.append(failure("project", error, Level.NOTE))
        exam.has_foreign_program = True
        return find_project(directory, any_runtime=True)
    except NoProject as error:  # credentials and the backend can be looked at without one
        exam.findings.append(failure("project", error, Level.WARNING))
        return None


def _backend(backend: Backend) -> Iterator[Finding]:
    backend.check_writable()
    shown = strip_credentials(backend.url)
    yield Finding(BACKEND, Level.OK, f"{shown} can be read and written")
    free = backend.free_space()
    if free is not None and free < _LITTLE_SPACE:
        yield Finding(
            BACKEND,
            Level.WARNING,
            f"{shown} has {free // 2**20} MiB left: a run ends when its state cannot be written",
            "make room",
        )
    if not backend.keeps_backups:
        yield Finding(
            BACKEND,
            Level.NOTE,
            "copies of earlier states are turned off: only the .bak file is kept",
        )


def _stack(
    exam: Examination,
    project: Project,
    backend: Backend,
    name: str | None,
    environ: Mapping[str, str],
    used: set[str],
) -> Mapping[str, str]:
    """Looks at the stack; its configuration, as far as it can be read."""
    named = exam.get(
        "stack",
        lambda: get_short_name(project, name) if name else find_selected_stack(project, environ),
    )
    known = exam.get("stack", lambda: backend.list_stacks(project.name)) or []
    names = [each.rsplit("/", 1)[-1] for each in known]
    if not named or named not in names:
        exam.findings.append(_no_stack(named, names))
        return {}
    subject = stacks.ExaminedStack(project, backend, named, environ)
    area = subject.area
    exam.look(area, lambda: stacks.locks(subject))
    exam.look(area, lambda: stacks.undone(subject))
    state = exam.get(area, lambda: stacks.state(subject))
    if state is not None:
        exam.look(area, lambda: stacks.health(subject, state))
        used.update(stacks.used_platforms(state))
    settings = exam.get(area, lambda: stacks.settings(subject))
    if settings is None:
        return {}
    exam.look(area, lambda: stacks.in_the_clear(subject, settings))
    crypter = exam.get(area, lambda: stacks.crypter(subject, settings))
    if crypter is None:
        return {}
    read = exam.get(area, lambda: settings.build_program_config(crypter))
    if read is None:
        return {}
    values, secret = read
    exam.secrets += (values[key] for key in secret)
    exam.look(area, lambda: stacks.configuration(subject, crypter, values, len(secret)))
    return values


def _no_stack(named: str | None, names: list[str]) -> Finding:
    known = f"stacks of this project: {', '.join(names)}" if names else ""
    if named is None:
        remedy = "select one with --stack NAME or `gpuform stack select NAME`"
        make = "create one: `gpuform stack init NAME`"
        return Finding(
            "stack", Level.WARNING, "no stack is selected", f"{known}; {remedy}" if known else make
        )
    make = f"create it: `gpuform stack init {named}`"
    text = f"there is no stack named {named!r}"
    return Finding("stack", Level.PROBLEM, text, f"{known}; or {make}" if known else make)


AREA = "project"


def program(
    project: Project, interpreter: Callable[[Project], Path | None], platforms: set[str]
) -> Iterator[Finding]:
    """What would be run, and by which Python. The platforms that it names go to `platforms`."""
    folder, entry = get_folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    topology = find_topology_file(folder)
    if not file.is_file() and topology is None:
        raise EngineError(
            f"no program: {file} does not exist",
            hint="create it or a topology.yaml, or set `main` in Pulumi.yaml to the program's "
            "folder or file",
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
    planned = plan(file, read_plan_context(file, None), problems)
    platforms.update(planned.topology.list_platforms())
    if problems:
        return Finding(
            AREA,
            Level.PROBLEM,
            f"{file} has {counted(len(list(problems)), 'problem')}",
            "gpuform validate",
        )
    return Finding(AREA, Level.OK, f"{file.name} is valid")
