"""Run an unmodified Pulumi program, or a topology without the SDK, against the resource monitor.

Under the Pulumi CLI a program has a process of its own, in which the language host sets the folder
and `sys.argv` before the program runs as `__main__`. Here the process is shared, one program after
the other; `import_project_modules` and `restore_process` isolate them. The engine does not read
topologies itself: the caller passes a `TopologyRunner`. `Deployment` calls `run_program`. The
topology export and `convert` call `record` to learn what a program declares: nothing is changed,
and the program gets given outputs.
"""

import ast
import asyncio
import contextvars
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pulumi import runtime
from pulumi.runtime import config as pulumi_config
from pulumi.runtime import settings
from pulumi.runtime.stack import run_in_stack

from gpuform.providers.context import trace_span
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.language_host.program_errors import (
    ProgramError,
    ProgramFiles,
    RegistrationGate,
    StrayFailures,
    UnsupportedFeatures,
    explain_failure,
)
from gpuform.stacks.engine.language_host.services import (
    Ended,
    Engine,
    Program,
    ProgramMonitor,
    ProgramTarget,
    ResourceResult,
    print_to_events,
    raise_unavailable,
)
from gpuform.stacks.engine.planning import EventBus
from gpuform.stacks.engine.project import (
    find_topology_file,
    get_folder_and_entry,
    import_project_modules,
    mark_as_run,
    restore_process,
)
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.sdk_patches import apply_patches
from gpuform.stacks.engine.urn import STACK_TYPE, type_of

PROGRAM: Final = "from gpuform.stacks import run\n\nrun({!r})\n"
"""The program of a topology that has no program beside it."""
_DEFAULT_TOPOLOGY: Final = "topology.yaml"
"""The file that `run()` without arguments runs."""


@dataclass(frozen=True, slots=True)
class TopologyRun:
    """One run of a topology; `file` is relative to the working folder.

    `call_site` is the file and line where the program hands the topology to gpuform; `threads` is
    how many resources may block at a time; `warn` shows a warning to the user.
    """

    program: Program
    file: Path
    call_site: tuple[Path, int]
    declarations: ProgramMonitor
    preview: bool
    threads: int
    warn: Callable[[str], None]


TopologyRunner = Callable[[TopologyRun], None]
"""Declare the resources of a topology.

Raises:
    EngineError: the topology is invalid.
    Ended: the run has ended.
"""


@dataclass(frozen=True, slots=True)
class TopologyProgram:
    """The topology file of a program, relative to its folder, and the line that runs it."""

    file: Path
    call_site: tuple[Path, int]

    @property
    def path(self) -> Path:
        """Path of the topology file."""
        return self.call_site[0].parent / self.file


def find_topology(directory: Path) -> TopologyProgram | None:
    """Return the topology run by a program and nothing else, or None for any other program.

    `directory` is the program's folder or file. Such a program only calls gpuform's `run`, or is
    missing beside a topology file. Raises EngineError if `directory` does not exist.
    """
    folder, entry = get_folder_and_entry(directory)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        topology_file = find_topology_file(folder) if file.name == "__main__.py" else None
        if topology_file is None:
            return None
        # The missing file would be the one that only runs the topology.
        source = PROGRAM.format(topology_file.name).encode()
    except OSError:
        return None
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    # An expression that is only a constant is a docstring.
    docstrings = [
        s for s in statements if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
    ]
    match [statement for statement in statements if statement not in docstrings]:
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [ast.Constant(str(name))], [])) as call,
        ]:
            return TopologyProgram(Path(name), (file, call.lineno))
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [], [])) as call,
        ]:
            return TopologyProgram(Path(_DEFAULT_TOPOLOGY), (file, call.lineno))
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    """Return True if the statement is only a constant, as a docstring is."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


_MIN_THREADS = 16


def run_program(
    program: Program,
    monitor: ProgramMonitor,
    engine: Engine,
    *,
    preview: bool,
    is_stopped: Callable[[], bool],
    run_topology: TopologyRunner | None = None,
) -> None:
    """Run the program to the end, within `import_project_modules`.

    `is_stopped` returns True if a failed step ended the run: errors of a program that lost its
    monitor are not reported then. A program that is a topology is run by `run_topology` if given,
    and else with the SDK.

    Raises:
        ProgramError: the program failed or called `sys.exit`, with its own lines; features that
            need the Pulumi CLI come first.
    """
    folder, _ = get_folder_and_entry(program.directory)
    files = ProgramFiles((program.root, folder))
    topology = find_topology(program.directory) if run_topology else None
    if run_topology is not None and topology is not None:
        topology_error = _catch_failure(
            run_topology, _build_topology_run(program, topology, monitor, engine, preview)
        )
        if topology_error is not None and not is_stopped():
            raise explain_failure(topology_error, files)
        return
    program_run = _ProgramRun(program, UnsupportedFeatures(files), StrayFailures(files))
    failure = program_run.run_and_catch(monitor, engine, preview)
    unsupported_error = program_run.unsupported.build_error()
    if unsupported_error is not None:
        raise unsupported_error
    # A failed thread, or a task that nobody awaits, does not end the program itself.
    errors = [failure] if failure else program_run.stray.collect_errors()
    if errors and not is_stopped():
        problems = [explain_failure(error, files, program_run.stray.traces) for error in errors]
        raise ProgramError("\n".join(map(str, problems)), problems[0].hint)


def _build_topology_run(
    program: Program,
    topology: TopologyProgram,
    monitor: ProgramMonitor,
    engine: Engine,
    preview: bool,
) -> TopologyRun:
    """Build the arguments of the topology runner, which runs the topology as a program."""
    return TopologyRun(
        program,
        topology.file,
        topology.call_site,
        monitor,
        preview,
        # One change at a time is made in the order of the topology, and not in that of threads.
        1 if program.parallel == 1 else _count_threads(program, preview),
        engine.warn,
    )


def _catch_failure(run_topology: TopologyRunner, run: TopologyRun) -> Exception | None:
    """Run a topology and return the raised exception, or None after a success or `Ended`."""
    try:
        with trace_span("program", "program"):
            run_topology(run)
    except Ended:
        return None
    except Exception as error:  # noqa: BLE001 - whatever a program may raise
        return error
    return None


def _count_threads(program: Program, preview: bool) -> int:
    """Return the number of threads: every registration in flight holds one.

    Registrations of a preview wait for providers only, others for the state as well.
    """
    return max(program.parallel * (1 if preview else 2), _MIN_THREADS)


@dataclass(frozen=True, slots=True)
class _ProgramRun:
    program: Program
    unsupported: UnsupportedFeatures
    stray: StrayFailures

    def run_and_catch(
        self, monitor: ProgramMonitor, engine: Engine, preview: bool
    ) -> BaseException | None:
        """Run the program and return the exception, or None after a success.

        An exit of the program counts as an exception, even with code 0.
        """
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self._configure(RegistrationGate(monitor, self.unsupported), engine, preview)
                with (
                    mark_as_run(),
                    trace_span("program", "program"),
                    self.unsupported.block_functions(),
                ):
                    self._run_loop(preview)
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                failures.append(error)

        # The SDK keeps the settings of a run in context variables: each program gets a new context.
        # It also walks the complete call stack for every resource: a new thread keeps this short.
        thread = threading.Thread(
            target=contextvars.Context().run, args=(work,), name="program", daemon=True
        )
        with restore_process():
            threading.excepthook = self.stray.handle_thread_failure
            thread.start()
            thread.join()
        return failures[0] if failures else None

    def _configure(self, monitor: RegistrationGate, engine: Engine, preview: bool) -> None:
        """Set the SDK's configuration and settings to the program, the monitor and the engine."""
        program = self.program
        pulumi_config.set_all_config(dict(program.config), list(program.secret_keys))
        settings.configure(
            settings.Settings(
                project=program.project,
                stack=program.stack,
                monitor=monitor,
                engine=engine,
                parallel=program.parallel,
                dry_run=preview,
                # The organization of every backend outside of Pulumi's service.
                organization="organization",
                root_directory=str(program.root),
            )
        )

    def _run_loop(self, preview: bool) -> None:
        """Run the program in a new event loop, with the patches of the SDK.

        Tasks that the program leaves running are cancelled.
        """
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            threads = _count_threads(self.program, preview)
            # Each registration in flight blocks a thread: asyncio's default of cpus + 4 would cap
            # them.
            loop.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="rpc"))
            self.stray.watch(loop)
            with apply_patches():
                loop.run_until_complete(run_in_stack(self._execute))
        finally:
            _end_tasks(loop)
            asyncio.set_event_loop(None)
            loop.close()

    def _execute(self) -> None:
        """Execute the program's source as `__main__`.

        Unsupported features of the declared resources are recorded.
        """
        runtime.register_stack_transformation(self.unsupported.check_resource)
        folder, entry = get_folder_and_entry(self.program.directory)
        file = folder / ("__main__.py" if entry == "." else entry)
        source = _read_source(file)
        # As under the CLI: classes of `__main__` are pickled with their code, others by reference.
        main = ModuleType("__main__")
        main.__file__ = str(file)
        sys.modules["__main__"] = main
        exec(compile(source, file, "exec", dont_inherit=True), vars(main))  # noqa: S102 - its task


def _read_source(file: Path) -> bytes:
    """Return the source of the program, or a generated program for a topology without one.

    Raises ProgramError if there is neither.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        topology_file = find_topology_file(file.parent) if file.name == "__main__.py" else None
    if topology_file is None:
        raise ProgramError(
            f"no program: {file} does not exist",
            hint="create it or a topology.yaml, or set `main` in Pulumi.yaml to the program's "
            "folder or file",
        )
    return PROGRAM.format(topology_file.name).encode()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks left running by a failed program: Python would warn about them later.

    The wait for the end of the tasks takes at most 1 second.
    """
    # The SDK creates coroutines before it awaits them. `restore_process` removes the filter.
    warnings.filterwarnings("ignore", r"coroutine 'Output\.", RuntimeWarning)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


Answer = Callable[[Registration | Read], tuple[str, PropertyMap]]
"""Return the id and the outputs of a declaration."""


@dataclass(slots=True)
class Recorded:
    """The declarations of a program in the order of its requests, and its outputs."""

    declared: list[Registration | Read] = field(default_factory=list)
    outputs: PropertyMap = field(default_factory=dict)


def record(
    program: Program,
    answer: Answer,
    config: Mapping[str, str],
    run_topology: TopologyRunner | None = None,
) -> Recorded:
    """Run the program as a preview with `config`, and return all declarations.

    `answer` returns id and outputs of each declared resource. `run_topology` runs a program that is
    a topology. The text that the program prints is dropped.

    Raises:
        ProgramError: the program failed.
        EngineError: `answer` failed, or the program needs the Pulumi CLI.
    """
    monitor = Recorder(ProgramTarget(program.project, program.stack, str(program.root)), answer)
    events = EventBus()
    with (
        import_project_modules(program.directory, program.run_context.environ),
        print_to_events(events),
    ):
        run_program(
            replace(program, config=config),
            monitor,
            Engine(events),
            preview=True,
            is_stopped=lambda: bool(monitor.failures),
            run_topology=run_topology,
        )
    if monitor.failures:
        raise monitor.failures[0]
    return monitor.recorded


@dataclass(slots=True)
class Recorder(ProgramMonitor):
    """A resource monitor that records declarations and executes none."""

    target: ProgramTarget
    answer: Answer
    preview: bool = True
    recorded: Recorded = field(default_factory=Recorded)
    failures: list[EngineError] = field(default_factory=list)

    def handle_request(
        self, request: Any, parse: Callable[..., Registration | Read]
    ) -> ResourceResult:
        """Record the declaration in a request; an error is kept in `failures`, and raises RpcError.

        The SDK ends the program quietly then.
        """
        try:
            return self.declare(self.parse_request(request, parse))
        except EngineError as error:
            self.failures.append(error)
            raise_unavailable()
        except Ended:
            raise_unavailable()

    def track_work(self) -> AbstractContextManager[None]:
        """Return a context without an effect: a recording writes no checkpoints."""
        return nullcontext()

    def declare(self, declaration: Registration | Read) -> ResourceResult:
        """Record the declaration; return the id and outputs from `answer`, none for a component.

        A read keeps the declared id. An error of `answer` is kept in `failures` and raised as
        Ended.
        """
        self.recorded.declared.append(declaration)
        if isinstance(declaration, Registration) and not declaration.custom:
            return ResourceResult(declaration.urn)
        try:
            id_, outputs = self.answer(declaration)
        except EngineError as error:
            self.failures.append(error)
            raise Ended from error
        return ResourceResult(
            declaration.urn, declaration.id if isinstance(declaration, Read) else id_, outputs
        )

    def export(self, urn: str, outputs: PropertyMap) -> None:
        """Record the outputs of the stack; outputs of components are ignored."""
        if type_of(urn) == STACK_TYPE:
            self.recorded.outputs = outputs
