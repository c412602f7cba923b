"""Run an unmodified Pulumi program, or a topology without the SDK, against the in-process resource
monitor.

Under the Pulumi CLI a program has a process of its own, in which the language host sets the folder
and `sys.argv` before it runs the program as `__main__`. Here the process is shared, one program
after the other; `import_project_modules` and `restore_process` keep them apart.

What reads a topology is not the engine's: it is given to it as a `TopologyRunner`.
"""

import ast
import asyncio
import contextvars
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

from pulumi import runtime
from pulumi.runtime import config as pulumi_config
from pulumi.runtime import settings
from pulumi.runtime.stack import run_in_stack

from gpuform.providers.context import trace_span
from gpuform.stacks.engine.language_host.program_errors import (
    Gate,
    ProgramError,
    ProgramFiles,
    Refusals,
    StrayFailures,
    explain_failure,
)
from gpuform.stacks.engine.language_host.services import Engine, Program, ResourceMonitor
from gpuform.stacks.engine.project import (
    find_topology_file,
    get_folder_and_entry,
    restore_process,
)
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.sdk_patches import spare_sdk
from gpuform.stacks.engine.values import PropertyMap

PROGRAM: Final = "from gpuform.stacks import run\n\nrun({!r})\n"
"""The program of a topology that has none beside it."""
_FILE: Final = "topology.yaml"
"""What `run()` runs."""


class Ended(Exception):
    """The run has ended: nothing more can be declared, and there is nothing more to say."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What has become of something that was declared.

    `outputs` are None where there are none to tell: of components, and of what is `unknown` because
    it was left out of the run. What has `failed` goes with the run as unknown. An empty id is one
    that is not known.
    """

    urn: str
    id: str = ""
    outputs: PropertyMap | None = None
    failed: bool = False
    unknown: bool = False


class Declarations(Protocol):
    """What a topology declares its resources to, from one thread."""

    def working(self) -> AbstractContextManager[None]:
        """Around a time in which one thing after the other is declared."""

    def declare(self, asked: Registration | Read) -> Answer | Callable[[], Answer]:
        """Plans a resource. What may wait for somebody is left to do, on any thread.

        Both raise Ended.
        """

    def export(self, urn: str, outputs: PropertyMap) -> None:
        """The outputs of a component, or of the stack."""


@dataclass(frozen=True, slots=True)
class TopologyRun:
    """One run of a topology: `file` is relative to the working folder.

    `handed_over` is where the program hands it to gpuform, a file and its line; `threads` is how
    many resources may wait at a time; `warn` tells the user something.
    """

    program: Program
    file: Path
    handed_over: tuple[Path, int]
    declarations: Declarations
    preview: bool
    threads: int
    warn: Callable[[str], None]


TopologyRunner = Callable[[TopologyRun], None]
"""Declares what a topology says; raises EngineError for what is wrong with it, and Ended."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The file that a program consists of, from the program's folder; the line of the program that
    says so.
    """

    file: Path
    handed_over: tuple[Path, int]

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.handed_over[0].parent / self.file


def topology_of(directory: Path) -> Topology | None:
    """The topology that a program is, given its folder or file; None for any other program.

    That is one without a program, or whose program hands it over and does nothing else.
    """
    folder, entry = get_folder_and_entry(directory)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        found = find_topology_file(folder) if file.name == "__main__.py" else None
        if found is None:
            return None
        source = PROGRAM.format(found.name).encode()
    except OSError:
        return None
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    match [each for each in statements if not _is_docstring(each)]:
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [ast.Constant(str(name))], [])) as call,
        ]:
            return Topology(Path(name), (file, call.lineno))
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [], [])) as call,
        ]:
            return Topology(Path(_FILE), (file, call.lineno))
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


_FEWEST_THREADS = 16


class Host(ResourceMonitor, Declarations, Protocol):
    """What programs declare their resources to, with the SDK or as topologies."""


def run_program(
    program: Program,
    monitor: Host,
    engine: Engine,
    *,
    preview: bool,
    stopped: Callable[[], bool],
    run_topology: TopologyRunner | None = None,
) -> None:
    """Runs the program to its end, within `import_project_modules`.

    `stopped` tells whether the run was ended by a failed step: then what the program raises
    because its monitor is gone says nothing new. A program that is a topology is run by
    `run_topology`, where there is one, and else with the SDK. Raises ProgramError, with the
    program's own lines; what it asked for and only the Pulumi CLI can do comes before all else.
    """
    folder, _ = get_folder_and_entry(program.directory)
    files = ProgramFiles((program.root, folder))
    topology = topology_of(program.directory) if run_topology else None
    if run_topology is not None and topology is not None:
        failed = _failure_of(
            run_topology, _topology_run(program, topology, monitor, engine, preview)
        )
        if failed is not None and not stopped():
            raise explain_failure(failed, files)
        return
    running = _Run(program, Refusals(files), StrayFailures(files))
    failure = running.failure(monitor, engine, preview)
    refused = running.refusals.error()
    if refused is not None:
        raise refused
    errors = [failure] if failure else running.stray.errors()
    if errors and not stopped():
        problems = [explain_failure(error, files, running.stray.traces) for error in errors]
        raise ProgramError("\n".join(map(str, problems)), problems[0].hint)


def _topology_run(
    program: Program, topology: Topology, monitor: Host, engine: Engine, preview: bool
) -> TopologyRun:
    return TopologyRun(
        program,
        topology.file,
        topology.handed_over,
        monitor,
        preview,
        _threads(program, preview),
        engine.warn,
    )


def _failure_of(run_topology: TopologyRunner, run: TopologyRun) -> Exception | None:
    """Why the topology did not come to its end; None when it did, or there is nothing to say."""
    try:
        with trace_span("program", "program"):
            run_topology(run)
    except Ended:
        return None
    except Exception as error:  # noqa: BLE001 - whatever a program may raise
        return error
    return None


def _threads(program: Program, preview: bool) -> int:
    """Every registration in flight holds a thread; a thread is made only when needed.

    Those of a preview wait for nothing but providers, others for the state as well.
    """
    return max(program.parallel * (1 if preview else 2), _FEWEST_THREADS)


@dataclass(frozen=True, slots=True)
class _Run:
    program: Program
    refusals: Refusals
    stray: StrayFailures

    def failure(
        self, monitor: ResourceMonitor, engine: Engine, preview: bool
    ) -> BaseException | None:
        """What the program raised in the end."""
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self._configure(Gate(monitor, self.refusals), engine, preview)
                with trace_span("program", "program"), self.refusals.refuse_functions():
                    self._run_loop(preview)
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                failures.append(error)

        # A context of its own: the SDK keeps all that it knows of a run in context variables. And
        # a thread of its own: the SDK looks at the whole stack of calls for every resource.
        thread = threading.Thread(
            target=contextvars.Context().run, args=(work,), name="program", daemon=True
        )
        with restore_process():
            threading.excepthook = self.stray.in_thread
            thread.start()
            thread.join()
        return failures[0] if failures else None

    def _configure(self, monitor: Gate, engine: Engine, preview: bool) -> None:
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
                organization="organization",
                root_directory=str(program.root),
            )
        )

    def _run_loop(self, preview: bool) -> None:
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            threads = _threads(self.program, preview)
            loop.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="rpc"))
            self.stray.watch(loop)
            with spare_sdk():
                loop.run_until_complete(run_in_stack(self._execute))
        finally:
            _end_tasks(loop)
            asyncio.set_event_loop(None)
            loop.close()

    def _execute(self) -> None:
        runtime.register_stack_transformation(self.refusals.transformation)
        folder, entry = get_folder_and_entry(self.program.directory)
        file = folder / ("__main__.py" if entry == "." else entry)
        source = _source(file)
        main = ModuleType("__main__")
        main.__file__ = str(file)
        sys.modules["__main__"] = main
        exec(compile(source, file, "exec", dont_inherit=True), vars(main))  # noqa: S102 - its task


def _source(file: Path) -> bytes:
    """The program; that of a topology, where there is only one."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        found = find_topology_file(file.parent) if file.name == "__main__.py" else None
    if found is None:
        raise ProgramError(
            f"there is no program: {file} does not exist",
            hint="write it there, or a topology.yaml, or name its folder or file as `main` in "
            "Pulumi.yaml",
        )
    return PROGRAM.format(found.name).encode()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what a failed program left half done: Python would complain of it later."""
    # The SDK makes coroutines ahead of awaiting them; `restore_process` undoes this.
    warnings.filterwarnings("ignore", r"coroutine 'Output\.", RuntimeWarning)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))
