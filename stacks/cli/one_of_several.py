"""Work on one stack of a multi-stack run: the main module of its process.

Tasks and answers come on stdin, messages go to stdout. Everything that gpuform or a program prints
goes to stderr. The schedule of `stacks/operations/multi_stack` starts the process.
"""

import _thread
import contextlib
import itertools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from io import TextIOBase
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, cast

from gpuform.stacks.cli.failures import ABANDONED, FAILED, SUCCESS, describe_failure
from gpuform.stacks.cli.running import EXIT_CODES, EventPrinter, print_reason
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, View
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.planning import Diagnostic, Event, Listener
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.operations.multi_stack.stack_process import (
    Cancel,
    Hello,
    OutputLine,
    OutputsRequest,
    OutputsResponse,
    PassphraseRequest,
    PassphraseResponse,
    ProcessMessage,
    Task,
    TaskResult,
    decode_task_message,
    encode_message,
    pack_outputs,
    unpack_outputs,
)
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.opening.variables import set_variables
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks, RunEnded, RunStarted
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import ExitReason, RunResult
from gpuform.stacks.operations.runs.runner import run_operation
from gpuform.stacks.operations.runs.saved_plans import SavedPlan
from gpuform.stacks.operations.status_reading import DriftResult, find_drift
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import format_done_operations, format_planned_operations
from gpuform.stacks.review.text.history_text import render_diagnostics

_ENDING = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the tasks from stdin until there are no more."""
    channel = Channel.take_streams()
    channel.send(Hello(version=version("gpuform")))
    threading.Thread(target=channel.listen, name="messages", daemon=True).start()
    for number in _ENDING:
        signal.signal(number, lambda _number, _frame: channel.cancel_soon())
    is_clean = True
    while is_clean and (task := channel.next_task()) is not None:
        try:
            ended = _run_task(task, channel)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - told here, once
            code, lines = describe_failure(error, verbose=task.debug)
            ended = TaskResult(code=code, summary="\n".join(lines).removeprefix("error: "))
        is_clean = ended.is_clean
        channel.end(ended)
    sys.exit(SUCCESS)


def _run_task(task: Task, channel: "Channel") -> TaskResult:
    """Run the task in its folder and with its variables.

    The result is not `is_clean` where a program ran: its code may leave anything behind in the
    process.
    """
    os.chdir(task.folder)
    with set_variables(task.variables):
        workspace = Workspace.find(Path.cwd(), os.environ)
        ended = _run_operation(task, workspace, channel)
    is_clean = find_topology(workspace.project.program) is not None and not channel.is_cancelled
    return ended.model_copy(update={"is_clean": is_clean})


@dataclass(slots=True)
class Channel:
    """The two streams of messages, and the work that messages cancel or answer."""

    source: BinaryIO
    target: BinaryIO
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[int, "queue.SimpleQueue[OutputsResponse | PassphraseResponse | None]"] = field(
        default_factory=dict
    )
    _running: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    _tasks: "queue.SimpleQueue[Task | None]" = field(default_factory=queue.SimpleQueue)
    _is_at_work: bool = False
    is_cancelled: bool = False
    planned_with: dict[str, str] = field(default_factory=dict)
    """The seals of other stacks' plans whose outputs this task uses."""

    @classmethod
    def take_streams(cls) -> "Channel":
        """Take this process's stdin and stdout; what programs print goes to stderr from now on."""
        source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(source, target)

    def send(self, message: ProcessMessage) -> None:
        """Send a message. If nobody reads it, the work continues to its end."""
        with self._sending, contextlib.suppress(OSError, ValueError):
            self.target.write(encode_message(message))
            self.target.flush()

    def next_task(self) -> Task | None:
        """Return the next task, or None when there are no more."""
        task = self._tasks.get()
        self._is_at_work = task is not None
        self.planned_with = {}
        return task

    def end(self, ended: TaskResult) -> None:
        """Send the result of the task."""
        self._is_at_work = False
        self.send(ended)

    def listen(self) -> None:
        """Receive messages until the other side closes its stream, which cancels the task."""
        for line in self.source:
            message = decode_task_message(line)
            if isinstance(message, Task):
                self._tasks.put(message)
            elif isinstance(message, OutputsResponse | PassphraseResponse):
                self._waiting[message.number].put(message)
            elif isinstance(message, Cancel):
                self._cancel()
            else:
                self._terminate()
        self._tasks.put(None)
        if self._is_at_work:
            self._cancel()

    def cancel_soon(self) -> None:
        """Cancel the task from a signal handler, in another thread."""
        threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def ask(
        self, make: Callable[[int], ProcessMessage]
    ) -> OutputsResponse | PassphraseResponse | None:
        """Send a question and return the answer, or None once the task is cancelled."""
        number = next(self._numbers)
        answers: queue.SimpleQueue[OutputsResponse | PassphraseResponse | None] = (
            queue.SimpleQueue()
        )
        self._waiting[number] = answers
        if not self.is_cancelled:
            self.send(make(number))
            return answers.get()
        return None

    def read_planned_outputs(self, project: str, stack: str) -> PropertyMap | None:
        """Return the planned outputs of another stack; None where its state has them."""
        answer = self.ask(
            lambda number: OutputsRequest(number=number, project=project, stack=stack)
        )
        if not isinstance(answer, OutputsResponse):
            raise EngineError("the run was interrupted")
        if answer.error:
            raise EngineError(answer.error)
        if answer.outputs is None:
            return None
        self.planned_with[build_full_name(project, stack)] = answer.seal
        return unpack_outputs(answer.outputs)

    def ask_passphrase(self, prompt: str) -> str:
        """Ask a person for a passphrase and return the answer."""
        answer = self.ask(lambda number: PassphraseRequest(number=number, prompt=prompt))
        if not isinstance(answer, PassphraseResponse):
            raise EngineError("the run was interrupted")
        return answer.passphrase

    @contextlib.contextmanager
    def register(self, cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
        """Let messages cancel or terminate the work, until the context ends."""
        self._running.append((cancel, leave))
        try:
            if self.is_cancelled:
                cancel()
            yield
        finally:
            self._running.pop()

    def _cancel(self) -> None:
        if self.is_cancelled:
            return
        self.is_cancelled = True
        for answers in list(self._waiting.values()):
            answers.put(None)
        if self._running:
            self._running[-1][0]()
        else:  # outside of a run, such as while waiting for a lock
            _thread.interrupt_main()

    def _terminate(self) -> None:
        with contextlib.suppress(Exception):
            if self._running:
                self._running[-1][1]()
        os._exit(ABANDONED)


class _LineStream(TextIOBase):
    """A text stream that sends each line as a message."""

    def __init__(self, channel: Channel, to: Literal["out", "err"]) -> None:
        self._channel, self._to = channel, to
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._channel.send(OutputLine(stream=self._to, content=line))
        return len(text)


class _AppliedView:
    """Shows what is done; of the preview before it only why it failed: the plan was shown."""

    def __init__(self, view: View, screen: Screen) -> None:
        self._view, self._screen = view, screen

    def begin(self, title: RunStarted) -> Listener:
        return _ignore_event if title.preview else self._view.begin(title)

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        if not ended.started.preview:
            self._view.end(ended, outcome)
        elif not outcome.succeeded:
            for line in render_diagnostics(ended.record.diagnostics, paint=self._screen.paint):
                self._screen.print(line)

    def show_notice(self, text: str) -> None:
        self._view.show_notice(text)

    def close(self) -> None:
        self._view.close()


class _PlanningView:
    """Shows the messages of the program and of platforms; the combined plan shows the rest."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, _title: RunStarted) -> Listener:
        return _ignore_event

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        # What a failed plan says as an error is why it failed, and is told there
        diagnostics = ended.record.diagnostics
        shown = (
            diagnostics if outcome.succeeded else [d for d in diagnostics if d.severity != "error"]
        )
        for line in render_diagnostics(shown, paint=self._screen.paint):
            self._screen.print(line)

    def show_notice(self, text: str) -> None:
        """Show nothing: the multi-stack run itself reports interruptions."""

    def close(self) -> None:
        """Do nothing: no display is open."""


def _ignore_event(_event: Event) -> None:
    """Show nothing of the event."""


def _run_operation(task: Task, workspace: Workspace, channel: Channel) -> TaskResult:
    lines = [cast("TextIO", _LineStream(channel, to)) for to in ("out", "err")]
    screen = Screen(lines[0], lines[1], Paint(task.color), interactive=False)
    options = RunOptions(**task.options)
    callbacks = OperationCallbacks(
        EventPrinter(_create_view(task, options, screen), screen, tells=task.form == "text"),
        interruptions=channel,
    )
    selected = SelectedStack(
        workspace,
        workspace.resolve(task.stack),
        ask_passphrase=channel.ask_passphrase if task.can_ask_passphrase else None,
        lock_timeout=task.lock_timeout,
        debug=task.debug,
        planned_outputs=channel.read_planned_outputs if task.uses_planned_outputs else None,
    )
    if task.drift:
        return _report_drift(find_drift(selected, (), callbacks, emulate=False))
    saved_plan = None
    if task.plan is not None:
        project, operation = workspace.project.name, options.operation
        saved_plan = SavedPlan.from_plan(
            Path(task.source), task.plan, project, selected.name, operation
        )
    result = run_operation(selected, options, callbacks, saved_plan)
    if options.preview_only:
        return _report_plan(result, channel.planned_with)
    print_reason(result, screen, preview_only=False)
    return TaskResult(
        code=EXIT_CODES[result.reason], reason=result.reason, summary=_summarize_result(result)
    )


def _create_view(task: Task, options: RunOptions, screen: Screen) -> View:
    if task.form != "text":
        return (PreviewJson if task.form == "json" else EventLines)(screen)
    if options.preview_only:
        return _PlanningView(screen)
    return _AppliedView(HumanView(screen, DisplayOptions(**task.view_options)), screen)


def _report_plan(result: RunResult, planned_with: Mapping[str, str]) -> TaskResult:
    """Return the result of a preview; a plan that gates stop is one, for its dependents."""
    if result.plan is None or result.reason in (ExitReason.FAILED, ExitReason.CANCELLED):
        text = _join_errors(result.diagnostics) or "the preview was interrupted"
        return TaskResult(code=FAILED, reason=result.reason, summary=text)
    return TaskResult(
        code=SUCCESS,
        reason=result.reason,
        plan=result.seal_plan(planned_with) if result.seal_plan is not None else None,
        outputs=pack_outputs(result.planned_outputs),
        summary=format_planned_operations(result.plan.summary),
    )


def _report_drift(result: DriftResult) -> TaskResult:
    text = _join_errors(result.diagnostics)
    code = SUCCESS if result.succeeded else FAILED
    summary = format_planned_operations(result.plan.summary) if result.succeeded else text
    return TaskResult(
        code=code, plan=result.plan, summary=summary or "not every resource could be read"
    )


def _join_errors(diagnostics: Iterable[Diagnostic]) -> str:
    return "\n".join(
        diagnostic.message for diagnostic in diagnostics if diagnostic.severity == "error"
    )


def _summarize_result(result: RunResult) -> str:
    if not result.succeeded:
        return _join_errors(result.diagnostics) or result.reason
    return format_done_operations(result.plan.summary) if result.plan is not None else ""


if __name__ == "__main__":
    main()
