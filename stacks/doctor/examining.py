"""Run all checks of `gpuform doctor`, from the machine to the platforms.

Each check of the other modules runs in an `Examination`, so that no failed check ends the others.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpuform.providers.operations import Settings
from gpuform.schemas.errors import EngineError
from gpuform.stacks.doctor import stack as stacks
from gpuform.stacks.doctor.findings import Examination, Finding, Level, build_failure
from gpuform.stacks.doctor.machine_and_platforms import (
    PLATFORMS,
    examine_environment,
    examine_platforms,
)
from gpuform.stacks.document.diagnostics import Diagnostics
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
from gpuform.stacks.topology.planning import plan, read_plan_context

BACKEND = "backend"
_MIN_FREE_BYTES = 100 * 2**20


def examine(
    directory: Path,
    environ: Mapping[str, str],
    stack: str | None,
    find_interpreter: Callable[[Project], Path | None],
) -> list[Finding]:
    """Return the findings about all requirements of a run in a folder.

    Nothing is changed, and no error is raised. `stack` is the stack to examine, by default the
    selected one; `find_interpreter` returns a project's own Python, or None for this one.
    """
    examination = Examination()
    used_platforms: set[str] = set()
    examination.add_findings("environment", lambda: examine_environment(environ))
    project = examination.get_or_report("project", lambda: _find_project(examination, directory))
    if project is not None and not examination.has_foreign_program:
        examination.add_findings(
            "project", lambda: examine_program(project, find_interpreter, used_platforms)
        )
    # A stack and its backend can be examined without a program, as of another language.
    backend = examination.get_or_report(
        BACKEND, lambda: Backend.open(get_backend_url(environ, project), environ)
    )
    if backend is not None:
        examination.add_findings(BACKEND, lambda: _check_backend(backend))
    config: Mapping[str, str] = {}
    if project is not None and backend is not None:
        config = _examine_stack(examination, project, backend, stack, environ, used_platforms)
    examination.add_findings(PLATFORMS, lambda: examine_platforms(config, environ, used_platforms))
    # Credentials in the environment or the configuration must not appear in an error's text.
    examination.secrets += Settings(config=config.get, environ=environ).list_secrets()
    return examination.list_redacted()


def _find_project(examination: Examination, directory: Path) -> Project | None:
    """Return the project, also one in another language, or None outside of a project.

    Adds a warning outside of a project, and for another language a note: only the state can be
    examined then.
    """
    try:
        return find_project(directory)
    except OtherRuntime as error:  # what works from the state alone can be used
        examination.findings.append(build_failure("project", error, Level.NOTE))
        examination.has_foreign_program = True
        return find_project(directory, any_runtime=True)
    except NoProject as error:  # credentials and the backend can be looked at without one
        examination.findings.append(build_failure("project", error, Level.WARNING))
        return None


def _check_backend(backend: Backend) -> Iterator[Finding]:
    """Yield whether the backend is writable, has space, and keeps backups.

    Raises:
        EngineError: the backend cannot be read or written.
    """
    backend.check_writable()
    # A finding must not show a password in the URL.
    url = strip_credentials(backend.url)
    yield Finding(BACKEND, Level.OK, f"{url} is readable and writable")
    free_bytes = backend.free_space()
    # Buckets have no limit: then the value is None.
    if free_bytes is not None and free_bytes < _MIN_FREE_BYTES:
        yield Finding(
            BACKEND,
            Level.WARNING,
            f"{url} has {free_bytes // 2**20} MiB free: a run fails if it cannot write its state",
            "free some space",
        )
    if not backend.keeps_backups:
        yield Finding(
            BACKEND,
            Level.NOTE,
            "backups of earlier states are turned off: only the .bak file exists",
        )


def _examine_stack(
    examination: Examination,
    project: Project,
    backend: Backend,
    requested_name: str | None,
    environ: Mapping[str, str],
    used_platforms: set[str],
) -> Mapping[str, str]:
    """Examine the stack, and return the configuration, empty if unreadable.

    The platforms of the state are added to `used_platforms`, secret values to the examination.
    """
    stack_name = examination.get_or_report(
        "stack", lambda: _choose_stack(project, requested_name, environ)
    )
    full_names = examination.get_or_report("stack", lambda: backend.list_stacks(project.name)) or []
    names = [full_name.rsplit("/", 1)[-1] for full_name in full_names]
    if not stack_name or stack_name not in names:
        examination.findings.append(_build_no_stack_finding(stack_name, names))
        return {}
    examined_stack = stacks.ExaminedStack(project, backend, stack_name, environ)
    area = examined_stack.area
    examination.add_findings(area, lambda: stacks.find_locks(examined_stack))
    examination.add_findings(area, lambda: stacks.find_unfinished_work(examined_stack))
    examination.add_findings(area, lambda: stacks.find_local_state(examined_stack))
    state = examination.get_or_report(area, lambda: stacks.read_state(examined_stack))
    if state is not None:
        examination.add_findings(area, lambda: stacks.check_state(examined_stack, state))
        # Credentials of a platform that only the state names are needed for a destroy.
        used_platforms.update(stacks.list_used_platforms(state))
    settings = examination.get_or_report(area, lambda: stacks.load_settings(examined_stack))
    if settings is None:
        return {}
    examination.add_findings(area, lambda: stacks.find_plaintext_secrets(examined_stack, settings))
    crypter = examination.get_or_report(area, lambda: stacks.open_secrets(examined_stack, settings))
    if crypter is None:
        return {}
    program_config = examination.get_or_report(area, lambda: settings.build_program_config(crypter))
    if program_config is None:
        return {}
    values, secret_keys = program_config
    # Findings so far and later ones may repeat secret values: they are masked at the end.
    examination.secrets += (values[key] for key in secret_keys)
    examination.add_findings(
        area, lambda: stacks.report_configuration(examined_stack, crypter, values, len(secret_keys))
    )
    return values


def _choose_stack(
    project: Project, requested_name: str | None, environ: Mapping[str, str]
) -> str | None:
    """Return the short name of the requested or selected stack, or None."""
    if requested_name:
        return get_short_name(project, requested_name)
    return find_selected_stack(project, environ)


def _build_no_stack_finding(stack_name: str | None, names: list[str]) -> Finding:
    """Return the finding for an unselected or unknown stack; `names` are the existing ones."""
    known_stacks = f"stacks of this project: {', '.join(names)}" if names else ""
    if stack_name is None:
        remedy = "select one with --stack NAME or `gpuform stack select NAME`"
        create_hint = "create one: `gpuform stack init NAME`"
        return Finding(
            "stack",
            Level.WARNING,
            "no stack is selected",
            f"{known_stacks}; {remedy}" if known_stacks else create_hint,
        )
    create_hint = f"create it: `gpuform stack init {stack_name}`"
    message = f"stack {stack_name!r} does not exist"
    return Finding(
        "stack",
        Level.PROBLEM,
        message,
        f"{known_stacks}; or {create_hint}" if known_stacks else create_hint,
    )


AREA = "project"


def examine_program(
    project: Project, find_interpreter: Callable[[Project], Path | None], used_platforms: set[str]
) -> Iterator[Finding]:
    """Yield the program or topology of a run, and the Python for the run.

    The platforms of a topology are added to `used_platforms`.

    Raises:
        EngineError: the project has neither a program nor a topology.
    """
    folder, entry = get_folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    topology = find_topology_file(folder)
    if not file.is_file() and topology is None:
        raise EngineError(
            f"no program: {file} does not exist",
            hint="create it or a topology.yaml, or set `main` in Pulumi.yaml to the program's "
            "folder or file",
        )
    program_path = file if file.is_file() else topology
    yield Finding(AREA, Level.OK, f"project {project.name} runs {program_path}")
    if topology is not None:
        yield _check_topology(topology, used_platforms)
    project_python = find_interpreter(project)
    if project_python is not None:
        yield Finding(
            AREA,
            Level.NOTE,
            f"`up` and similar commands run in {project_python}: the versions above are those of "
            "this Python",
        )


def _check_topology(file: Path, used_platforms: set[str]) -> Finding:
    """Return whether the topology is valid, and add all platforms to `used_platforms`."""
    problems = Diagnostics()
    topology_plan = plan(file, read_plan_context(file, None), problems)
    used_platforms.update(topology_plan.topology.list_platforms())
    if problems:
        return Finding(
            AREA,
            Level.PROBLEM,
            f"{file} has {counted(len(list(problems)), 'problem')}",
            "gpuform validate",
        )
    return Finding(AREA, Level.OK, f"{file.name} is valid")
