"""Failures of a program that Python only prints, or drops: those of its threads and tasks."""

import asyncio
import io
import threading
import traceback
from dataclasses import dataclass, field
from typing import Any

from gpuform.stacks.engine.language_host.program_errors import ProgramFiles, TaskTrace


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
