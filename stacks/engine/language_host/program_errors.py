"""Report a program's failure by its own lines, and reject features that only the Pulumi CLI has.

The SDK sends registrations only once the program's body has returned or awaits something. So a
stack transformation, which runs inside every resource's constructor, and replacements of the SDK's
functions see the features that a body uses before the first request. Unsupported features are
collected and reported together; from then on nothing more is registered. `run_program` calls this
module.
"""

import asyncio
import inspect
import io
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import grpc
import pulumi
from pulumi import runtime
from pulumi.runtime.proto import resource_pb2

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.language_host.services import ProgramMonitor, RpcError
from gpuform.stacks.engine.machine import USE_THE_CLI
from gpuform.stacks.engine.urn import (
    DYNAMIC_PACKAGE,
    PLUGIN_PACKAGE,
    PLUGIN_PROVIDER_TYPE,
    STACK_REFERENCE_TYPE,
    is_provider,
)

_INSTALLED = ("site-packages", "dist-packages")
_ENGINE = str(Path(__file__).parent) + os.sep
_INTERNAL_PATHS = (
    *(f"{folder}{os.sep}" for m in (asyncio, pulumi) for folder in m.__path__),
    _ENGINE,
)


class ProgramError(EngineError):
    """The program failed; the message holds its traceback from the program's own code on."""

    help_page = "guides/troubleshooting"


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """The program's own lines where a task failed, and the traceback as Python prints it."""

    stack: traceback.StackSummary
    printed_traceback: str


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The program's own files: files in its folders, except packages installed there."""

    folders: tuple[Path, ...]

    def contains(self, filename: str) -> bool:
        """Return True if the file is one of the program's own."""
        inside = any(filename.startswith(str(folder) + os.sep) for folder in self.folders)
        return (
            inside
            and not filename.startswith(_ENGINE)
            and not any(name in Path(filename).parts for name in _INSTALLED)
        )

    def find_line(self, trace: TracebackType | traceback.StackSummary | None) -> str:
        """Return the innermost own line of a traceback as `file.py:12`, or an empty string."""
        frames = trace if isinstance(trace, traceback.StackSummary) else traceback.extract_tb(trace)
        own_frames = [frame for frame in frames if self.contains(frame.filename)]
        return (
            self.format_line(own_frames[-1].filename, own_frames[-1].lineno) if own_frames else ""
        )

    def format_line(self, filename: str, number: int | None) -> str:
        """Format a line as `file.py:12`, relative to the program's folder."""
        for folder in self.folders:
            if filename.startswith(str(folder) + os.sep):
                return f"{filename.removeprefix(str(folder) + os.sep)}:{number}"
        return f"{filename}:{number}"


def explain_failure(
    error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace] = ()
) -> ProgramError:
    """Return an error for the program's author, made of the exception of a program.

    EngineError and RunError keep their message, an exit is named, any other exception gets its
    traceback. `traces` are used where the exception lost the lines that raised it.
    """
    if isinstance(error, EngineError):
        return ProgramError(error.message, error.hint)
    line = files.find_line(error.__traceback__)
    line_prefix = f"{line}: " if line else ""
    if isinstance(error, pulumi.RunError):
        return ProgramError(f"{line_prefix}{error}")
    if isinstance(error, SystemExit):
        exit_status = (
            f": {error.code}" if isinstance(error.code, str) else f" with code {error.code or 0}"
        )
        return ProgramError(
            f"{line_prefix}the program exited{exit_status}",
            hint="let the program run to its end without sys.exit: only then does gpuform know "
            "which resources to delete",
        )
    formatted = _format_traceback(error, files, traces)
    return ProgramError(f"Program failed with an unhandled exception:\n{formatted}")


def _format_traceback(
    error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace]
) -> str:
    """Format the traceback, without the frames between Python and the program's first own line.

    An exception without own lines gets the stack of the same error in `traces`, or is its message
    alone.
    """
    summary = traceback.TracebackException.from_exception(error)
    last_line = "".join(summary.format_exception_only()).rstrip()
    chain = list(_walk_chain(summary))
    if not any(files.find_line(part.stack) for part in chain):
        task_stack = next(
            (trace.stack for trace in traces if trace.printed_traceback.endswith(last_line)), None
        )
        if task_stack is None:
            return last_line
        summary.stack = task_stack
    for part in chain:
        own_indexes = [i for i, frame in enumerate(part.stack) if files.contains(frame.filename)]
        frames = (
            part.stack[own_indexes[0] :]
            if own_indexes
            else [frame for frame in part.stack if not frame.filename.startswith(_INTERNAL_PATHS)]
        )
        part.stack = traceback.StackSummary.from_list(frames)
    return "".join(summary.format()).rstrip()


def _walk_chain(
    part: traceback.TracebackException | None,
) -> Iterator[traceback.TracebackException]:
    """Yield the exception with all causes, contexts and group members."""
    if part is None:
        return
    yield part
    yield from _walk_chain(part.__cause__)
    yield from _walk_chain(part.__context__)
    for member in part.exceptions or ():
        yield from _walk_chain(member)


@dataclass(slots=True)
class StrayFailures:
    """Failures of threads and tasks beside the program's main course.

    A failed thread or task has not declared all its resources, so that the run must not delete the
    missing ones. Failures outside of the program's own files do not count: threads of libraries
    have no declarations.

    `traces` are the lines where tasks failed: asyncio forgets them when several await the same
    task.
    """

    files: ProgramFiles
    traces: list[TaskTrace] = field(default_factory=list)
    _threads: list[BaseException] = field(default_factory=list)
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def collect_errors(self) -> list[BaseException]:
        """Return the exceptions of threads, and of tasks whose outcome nobody asked for."""
        ignored_tasks = [task for task in self._tasks if getattr(task, "_log_traceback", False)]
        exceptions = [task.exception() for task in ignored_tasks if not task.cancelled()]
        return [*self._threads, *filter(None, exceptions)]

    def handle_thread_failure(self, failure: threading.ExceptHookArgs) -> None:
        """Record the exception of a thread if the exception passed through the program's own files.

        Other exceptions are only printed, as Python does. Installed as `threading.excepthook`.
        """
        error = failure.exc_value
        if isinstance(error, Exception) and self.files.find_line(error.__traceback__):
            self._threads.append(error)
        else:
            threading.__excepthook__(failure)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record the failure of every task of the loop, and suppress the loop's own messages."""
        loop.set_task_factory(self._create_task)
        loop.set_exception_handler(lambda _loop, _context: None)

    def _create_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any
    ) -> asyncio.Task[Any]:
        """Create a task whose failure is recorded; the event loop calls this factory."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        task.add_done_callback(self._record_task_failure)
        return task

    def _record_task_failure(self, task: asyncio.Task[Any]) -> None:
        """Record the stack of a task which failed in the program's own files."""
        # `task.exception()` would mark the exception as retrieved, as if the program had seen it.
        frames = task.get_stack()
        own_indexes = [
            i for i, frame in enumerate(frames) if self.files.contains(frame.f_code.co_filename)
        ]
        if not own_indexes:
            return
        printed = io.StringIO()
        task.print_stack(file=printed)
        lines = ((frame, frame.f_lineno) for frame in frames[own_indexes[0] :])
        stack = traceback.StackSummary.extract(lines)
        self.traces.append(TaskTrace(stack, printed.getvalue().rstrip()))
        self._tasks.append(task)


_OPTIONS = ("transforms", "state_migrations")
_TRANSFORMS = (
    "register_stack_transform",
    "register_resource_transform",
    "register_invoke_transform",
)
_CALLS = (
    "invoke",
    "invoke_single",
    "invoke_async",
    "invoke_output",
    "invoke_output_single",
    "call",
    "call_single",
)
_MAX_LISTED = 10


@dataclass(slots=True)
class UnsupportedFeatures:
    """The unsupported features that one run of one program used."""

    files: ProgramFiles
    messages: list[str] = field(default_factory=list)

    def build_error(self) -> ProgramError | None:
        """Return an error with the used unsupported features and their lines, or None.

        At most `_MAX_LISTED` are listed.
        """
        if not self.messages:
            return None
        if len(self.messages) == 1:
            return ProgramError(self.messages[0], USE_THE_CLI)
        hidden_count = len(self.messages) - _MAX_LISTED
        lines = [
            *self.messages[:_MAX_LISTED],
            *([f"and {hidden_count} more"] if hidden_count > 0 else []),
        ]
        return ProgramError(
            "the program uses features that the embedded engine does not support:\n  "
            + "\n  ".join(lines),
            USE_THE_CLI,
        )

    def check_resource(self, args: pulumi.ResourceTransformationArgs) -> None:
        """Record an unsupported resource in its constructor, as a stack transformation."""
        reason = _explain_foreign_package(args) or _explain_unsupported_options(args)
        if reason:
            self._record(f"resource '{args.name}' {reason}", args.resource)

    @contextmanager
    def block_functions(self) -> Iterator[None]:
        """Make SDK functions with a plugin or callbacks raise RunError while the context runs.

        Calls of Pulumi's and gpuform's own functions still work.
        """
        names = (name for name in (*_TRANSFORMS, *_CALLS) if hasattr(runtime, name))
        originals = {name: getattr(runtime, name) for name in names}
        try:
            for name, original in originals.items():
                replacement = (
                    self._block_foreign_calls(original)
                    if name in _CALLS
                    else self._block_function(name)
                )
                setattr(runtime, name, replacement)
            yield
        finally:
            for name, original in originals.items():
                setattr(runtime, name, original)

    def _block_function(self, name: str) -> Callable[..., NoReturn]:
        """Return a replacement of an SDK function, which records each call and raises RunError."""

        def refuse_call(*_args: object, **_options: object) -> NoReturn:
            raise pulumi.RunError(self._record(f"the program calls pulumi.runtime.{name}"))

        return refuse_call

    def _block_foreign_calls(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return `original`, limited to Pulumi's and gpuform's own functions.

        Calls of other functions are recorded and raise RunError.
        """

        def refuse_foreign_call(tok: str, *args: object, **options: object) -> object:
            if tok.startswith(("pulumi:", f"{PLUGIN_PACKAGE}:")):
                return original(tok, *args, **options)
            raise pulumi.RunError(self._record(f"the program calls {tok}"))

        return refuse_foreign_call

    def _record(self, feature: str, resource: pulumi.Resource | None = None) -> str:
        """Record the use of a feature with the line in the program, and return the message."""
        line = self._find_line(resource)
        message = f"{line}: {feature}" if line else feature
        message += ", which the embedded engine cannot run"
        self.messages.append(message)
        return message

    def _find_line(self, resource: pulumi.Resource | None) -> str:
        """Return the innermost line of the call stack that is the program's own, or "".

        Methods of `resource` itself are passed over.
        """
        frame = inspect.currentframe()
        while frame is not None:
            code = frame.f_code
            receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if self.files.contains(code.co_filename) and (
                resource is None or receiver is not resource
            ):
                return self.files.format_line(code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return ""


def _explain_foreign_package(args: pulumi.ResourceTransformationArgs) -> str:
    """Return why no provider of the engine serves the resource, or an empty string."""
    if args.type_ == PLUGIN_PROVIDER_TYPE:
        return ""
    if is_provider(args.type_):
        return f"is an explicit provider ({args.type_})"
    package = args.type_.split(":", 1)[0]
    if isinstance(args.resource, pulumi.CustomResource):
        is_own = package in (DYNAMIC_PACKAGE, PLUGIN_PACKAGE)
        is_supported = is_own or args.type_ == STACK_REFERENCE_TYPE
        return "" if is_supported else f"is of package '{package}' ({args.type_})"
    return f"is a remote component of package '{package}' ({args.type_})" if _is_remote() else ""


def _is_remote() -> bool:
    """Return True if the running constructor creates a component of another package.

    The SDK does not pass this to a transformation, and a type does not show it.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not pulumi.Resource.__init__.__code__:
        frame = frame.f_back
    return frame is not None and bool(frame.f_locals.get("remote"))


def _explain_unsupported_options(args: pulumi.ResourceTransformationArgs) -> str:
    """Name the used options which the engine does not support (`uses hooks`); or empty."""
    used = [name for name in _OPTIONS if getattr(args.opts, name, None)]
    if args.opts.hooks is not None and any(vars(args.opts.hooks).values()):
        used.append("hooks")
    return f"uses {', '.join(used)}" if used else ""


@dataclass(slots=True)
class RegistrationGate:
    """Passes requests to the monitor, but no registration once an unsupported feature was used."""

    monitor: ProgramMonitor
    unsupported: UnsupportedFeatures

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Pass a registration on, or raise RpcError after the use of an unsupported feature."""
        # Nothing is registered any more, so that the error with all unsupported features comes
        # before any change.
        if self.unsupported.messages:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the program cannot run here")
        return self.monitor.RegisterResource(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self.monitor, name)
