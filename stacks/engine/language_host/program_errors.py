"""Report a program's failure by its own lines, and refuse features that only the Pulumi CLI can
run.

The SDK sends registrations only once the program's body has returned or awaits something. So a
stack transformation, which runs inside every resource's constructor, and stand-ins for the SDK's
functions hear of what a body asks for before the first request. What they refuse is collected, to
be told at once; from then on nothing more is registered.
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

from gpuform.stacks.engine.errors import USE_THE_CLI, EngineError
from gpuform.stacks.engine.language_host.services import ResourceMonitor, RpcError
from gpuform.stacks.engine.urn import (
    DYNAMIC_PACKAGE,
    PLUGIN_PACKAGE,
    PLUGIN_PROVIDER_TYPE,
    STACK_REFERENCE_TYPE,
    is_provider,
)

_INSTALLED = ("site-packages", "dist-packages")
_ENGINE = str(Path(__file__).parent) + os.sep
_MACHINERY = (*(f"{folder}{os.sep}" for m in (asyncio, pulumi) for folder in m.__path__), _ENGINE)


class ProgramError(EngineError):
    """The program failed; the message holds its traceback, from the program's own code on."""

    help_page = "guides/troubleshooting"


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """Where a task failed, in the program's own lines, and how Python printed it."""

    stack: traceback.StackSummary
    text: str


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """Which files are a program's own: those in its folders, but for packages installed there."""

    folders: tuple[Path, ...]

    def holds(self, filename: str) -> bool:
        """Whether a frame of this file is the program's."""
        inside = any(filename.startswith(str(folder) + os.sep) for folder in self.folders)
        return (
            inside
            and not filename.startswith(_ENGINE)
            and not any(name in Path(filename).parts for name in _INSTALLED)
        )

    def place(self, trace: TracebackType | traceback.StackSummary | None) -> str:
        """`file.py:12`, the innermost own line of a traceback; empty when there is none."""
        frames = trace if isinstance(trace, traceback.StackSummary) else traceback.extract_tb(trace)
        own = [frame for frame in frames if self.holds(frame.filename)]
        return self.line(own[-1].filename, own[-1].lineno) if own else ""

    def line(self, filename: str, number: int | None) -> str:
        """`file.py:12` for a line of the program's, from the first folder that holds the file."""
        for folder in self.folders:
            if filename.startswith(str(folder) + os.sep):
                return f"{filename.removeprefix(str(folder) + os.sep)}:{number}"
        return f"{filename}:{number}"


def explain_failure(
    error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace] = ()
) -> ProgramError:
    """An exception that ended a program, for its author.

    `traces` stand in where the exception has lost the lines that raised it.
    """
    if isinstance(error, EngineError):
        return ProgramError(error.message, error.hint)
    place = files.place(error.__traceback__)
    at = f"{place}: " if place else ""
    if isinstance(error, pulumi.RunError):
        return ProgramError(f"{at}{error}")
    if isinstance(error, SystemExit):
        left = f": {error.code}" if isinstance(error.code, str) else f" with code {error.code or 0}"
        return ProgramError(
            f"{at}the program exited{left}",
            hint="a program that does not come to its end deletes nothing",
        )
    text = _traceback(error, files, traces)
    return ProgramError(f"Program failed with an unhandled exception:\n{text}")


def _traceback(error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace]) -> str:
    """The traceback as Python prints it, without what stands between Python and the program."""
    whole = traceback.TracebackException.from_exception(error)
    only = "".join(whole.format_exception_only()).rstrip()
    chain = list(_chain(whole))
    if not any(files.place(part.stack) for part in chain):
        lost = next((trace.stack for trace in traces if trace.text.endswith(only)), None)
        if lost is None:
            return only
        whole.stack = lost
    for part in chain:
        own = [i for i, frame in enumerate(part.stack) if files.holds(frame.filename)]
        frames = part.stack[own[0] :] if own else filter(_is_telling, part.stack)
        part.stack = traceback.StackSummary.from_list(list(frames))
    return "".join(whole.format()).rstrip()


def _is_telling(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_MACHINERY)


def _chain(part: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    if part is None:
        return
    yield part
    yield from _chain(part.__cause__)
    yield from _chain(part.__context__)
    for member in part.exceptions or ():
        yield from _chain(member)


@dataclass(slots=True)
class StrayFailures:
    """What failed beside the program's own course.

    A thread or a task that failed has not declared all that it was to declare, so the run must not
    go on to delete what is missing. What fails outside of the program's own files is not counted:
    libraries' threads are their own affair.

    `traces` tell where tasks failed: asyncio forgets it when several await the same one.
    """

    files: ProgramFiles
    traces: list[TaskTrace] = field(default_factory=list)
    _threads: list[BaseException] = field(default_factory=list)
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def errors(self) -> list[BaseException]:
        """The failures of threads, and of tasks whose outcome nobody asked for."""
        unheard = [task for task in self._tasks if getattr(task, "_log_traceback", False)]
        dropped = [task.exception() for task in unheard if not task.cancelled()]
        return [*self._threads, *filter(None, dropped)]

    def in_thread(self, failure: threading.ExceptHookArgs) -> None:
        """For `threading.excepthook`."""
        error = failure.exc_value
        if isinstance(error, Exception) and self.files.place(error.__traceback__):
            self._threads.append(error)
        else:
            threading.__excepthook__(failure)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks at every task of the loop when it is done."""
        loop.set_task_factory(self._task)
        loop.set_exception_handler(lambda _loop, _context: None)

    def _task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        # Asking for the exception would count as hearing of it.
        frames = task.get_stack()
        own = [i for i, frame in enumerate(frames) if self.files.holds(frame.f_code.co_filename)]
        if not own:
            return
        printed = io.StringIO()
        task.print_stack(file=printed)
        lines = ((frame, frame.f_lineno) for frame in frames[own[0] :])
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
_SHOWN = 10


@dataclass(slots=True)
class Refusals:
    """What one run of one program asked for in vain."""

    files: ProgramFiles
    found: list[str] = field(default_factory=list)

    def error(self) -> ProgramError | None:
        """All that was refused, each with its place in the program; None when nothing was."""
        if not self.found:
            return None
        if len(self.found) == 1:
            return ProgramError(self.found[0], USE_THE_CLI)
        more = len(self.found) - _SHOWN
        lines = [*self.found[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return ProgramError(
            "the program needs what the embedded engine does not have:\n  " + "\n  ".join(lines),
            USE_THE_CLI,
        )

    def transformation(self, args: pulumi.ResourceTransformationArgs) -> None:
        """For `register_stack_transformation`: looks at each resource as it is made."""
        what = _foreign(args) or _options(args)
        if what:
            self._refuse(f"resource '{args.name}' {what}", args.resource)

    @contextmanager
    def refuse_functions(self) -> Iterator[None]:
        """The SDK's functions that need a plugin or a call back raise, until the program ends."""
        names = (name for name in (*_TRANSFORMS, *_CALLS) if hasattr(runtime, name))
        before = {name: getattr(runtime, name) for name in names}
        try:
            for name, real in before.items():
                stand_in = self._calls(real) if name in _CALLS else self._transforms(name)
                setattr(runtime, name, stand_in)
            yield
        finally:
            for name, real in before.items():
                setattr(runtime, name, real)

    def _transforms(self, name: str) -> Callable[..., NoReturn]:
        def refused(*_args: object, **_options: object) -> NoReturn:
            raise pulumi.RunError(self._refuse(f"the program calls pulumi.runtime.{name}"))

        return refused

    def _calls(self, real: Callable[..., object]) -> Callable[..., object]:
        """A function or a method of a package; Pulumi's own and gpuform's go through."""

        def refused(tok: str, *args: object, **options: object) -> object:
            if tok.startswith(("pulumi:", f"{PLUGIN_PACKAGE}:")):
                return real(tok, *args, **options)
            raise pulumi.RunError(self._refuse(f"the program calls {tok}"))

        return refused

    def _refuse(self, what: str, resource: pulumi.Resource | None = None) -> str:
        place = self._place(resource)
        text = f"{place}: {what}" if place else what
        text += ", which the embedded engine cannot run"
        self.found.append(text)
        return text

    def _place(self, resource: pulumi.Resource | None) -> str:
        """The innermost own line of the stack of calls, outside of the resource's own methods."""
        frame = inspect.currentframe()
        while frame is not None:
            code = frame.f_code
            receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if self.files.holds(code.co_filename) and (
                resource is None or receiver is not resource
            ):
                return self.files.line(code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return ""


def _foreign(args: pulumi.ResourceTransformationArgs) -> str:
    """Why no provider of the engine serves the resource; empty when one does."""
    if args.type_ == PLUGIN_PROVIDER_TYPE:
        return ""
    if is_provider(args.type_):
        return f"is an explicit provider ({args.type_})"
    package = args.type_.split(":", 1)[0]
    if isinstance(args.resource, pulumi.CustomResource):
        own = package in (DYNAMIC_PACKAGE, PLUGIN_PACKAGE)
        known = own or args.type_ == STACK_REFERENCE_TYPE
        return "" if known else f"is of package '{package}' ({args.type_})"
    return f"is a remote component of package '{package}' ({args.type_})" if _is_remote() else ""


def _is_remote() -> bool:
    """Whether the constructor that is running makes a component of another package.

    The SDK tells a transformation nothing of it, and a type does not show it.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not pulumi.Resource.__init__.__code__:
        frame = frame.f_back
    return frame is not None and bool(frame.f_locals.get("remote"))


def _options(args: pulumi.ResourceTransformationArgs) -> str:
    used = [name for name in _OPTIONS if getattr(args.opts, name, None)]
    if args.opts.hooks is not None and any(vars(args.opts.hooks).values()):
        used.append("hooks")
    return f"uses {', '.join(used)}" if used else ""


@dataclass(slots=True)
class Gate:
    """The monitor, as long as nothing was refused."""

    monitor: ResourceMonitor
    refusals: Refusals

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        if self.refusals.found:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the program was refused")
        return self.monitor.RegisterResource(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self.monitor, name)
