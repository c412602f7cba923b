"""Run the tasks of a multi-stack run: the main module of a stack's process.

The schedule of `stacks/operations/multi_stack` starts the process, with the interpreter of the
stack's project. Tasks and answers come on stdin, messages go to stdout. Everything that gpuform or
a program prints goes to stderr.
"""

from gpuform.providers import collect_less_garbage

# Before the other imports, which make most of the objects. The command line imports this module for
# its name alone.
if __name__ == "__main__":
    collect_less_garbage()

import _thread
import contextlib
import itertools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from io import TextIOBase
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast

from gpuform.providers.context import get_run_context, use_run_context
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.stacks.cli.failures import ABANDONED, FAILED, SUCCESS, describe_failure
from gpuform.stacks.cli.stack_runs import EXIT_CODES, EventPrinter, print_reason, rehearse_plan
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, View
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.planning import Diagnostic, Event, Listener
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.operations.multi_stack.parts import seal_part_fields
from gpuform.stacks.operations.multi_stack.stack_process import (
    WAS_APPLIED,
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
from gpuform.stacks.operations.reporting import find_reported_drift, run_reported_operation
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks, RunEnded, RunStarted
from gpuform.stacks.operations.runs.options import ExitReason, RunOptions, RunResult
from gpuform.stacks.operations.runs.saved_plans import SavedPlan
from gpuform.stacks.operations.status_reading import DriftResult
from gpuform.stacks.review.history_text import render_diagnostics
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import format_done_operations, format_planned_operations

_HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the tasks from stdin until there are no more, then end the process.

    The process also ends after a task that ran the project's code.
    """
    channel = Channel.take_streams()
    channel.send(Hello(version=version("gpuform")))
    # In a thread: answers and cancellations arrive while a task runs.
    threading.Thread(target=channel.listen, name="messages", daemon=True).start()
    # A signal of the terminal goes to the multi-stack run; this one was sent to this process.
    for number in _HANDLED_SIGNALS:
        signal.signal(number, lambda _number, _frame: channel.cancel_in_thread())
    # A process that ran a program is not used again: its modules would be those of another project.
    is_clean = True
    while is_clean and (task := channel.receive_task()) is not None:
        try:
            result = _run_task(task, channel)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported here, once
            code, lines = describe_failure(error, verbose=task.debug)
            result = TaskResult(code=code, summary="\n".join(lines).removeprefix("error: "))
        is_clean = result.is_clean
        channel.send_result(result)
    sys.exit(SUCCESS)


def _run_task(task: Task, channel: "Channel") -> TaskResult:
    """Run the task in the task's folder, with the task's variables, and return the result.

    The result is not `is_clean` after a cancellation, or where a program ran: its code may leave
    anything behind in the process.
    """
    # Programs open files beside themselves by relative paths.
    os.chdir(task.folder)
    with use_run_context(get_run_context().with_variables(task.variables)) as run_context:
        workspace = Workspace.find(Path.cwd(), run_context.environ)
        result = _run_operation(task, workspace, channel)
    # A topology is read, not run: it leaves nothing in the process.
    is_clean = find_topology(workspace.project.program) is not None and not channel.is_cancelled
    return result.model_copy(update={"is_clean": is_clean})


@dataclass(slots=True)
class Channel:
    """The two streams of messages, and the work that messages cancel or answer."""

    source: BinaryIO
    target: BinaryIO
    _send_lock: threading.Lock = field(default_factory=threading.Lock)
    _question_numbers: Iterator[int] = field(default_factory=itertools.count)
    _answer_queues: dict[int, "queue.SimpleQueue[OutputsResponse | PassphraseResponse | None]"] = (
        field(default_factory=dict)
    )
    _handlers: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    _tasks: "queue.SimpleQueue[Task | None]" = field(default_factory=queue.SimpleQueue)
    _has_task: bool = False
    is_cancelled: bool = False
    planned_with: dict[str, str] = field(default_factory=dict)
    """The seals of other stacks' plans whose outputs this task uses."""

    @classmethod
    def take_streams(cls) -> "Channel":
        """Take over this process's stdin and stdout for messages.

        What programs print goes to stderr from now on, and their stdin is empty.
        """
        source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        # A program that reads stdin must not read messages.
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.close(null_device)
        # A program's print must not be taken for a message.
        os.dup2(2, 1)
        return cls(source, target)

    def send(self, message: ProcessMessage) -> None:
        """Send a message; without a reader the work continues to the end."""
        # Output lines and questions come from several threads.
        with self._send_lock, contextlib.suppress(OSError, ValueError):
            self.target.write(encode_message(message))
            self.target.flush()

    def receive_task(self) -> Task | None:
        """Wait for the next task; return the task, or None when there are no more."""
        task = self._tasks.get()
        self._has_task = task is not None
        self.planned_with = {}
        return task

    def send_result(self, result: TaskResult) -> None:
        """Send the result of the current task to the multi-stack run."""
        self._has_task = False
        self.send(result)

    def listen(self) -> None:
        """Receive messages until the stream is closed, which cancels the current task.

        Tasks and answers are queued, Cancel cancels, and Terminate ends the process at once.
        """
        for line in self.source:
            message = decode_task_message(line)
            if isinstance(message, Task):
                self._tasks.put(message)
            elif isinstance(message, OutputsResponse | PassphraseResponse):
                self._answer_queues[message.number].put(message)
            elif isinstance(message, Cancel):
                self._cancel()
            else:
                self._terminate()
        # The end of stdin: the multi-stack run has ended, or was killed.
        self._tasks.put(None)
        if self._has_task:
            self._cancel()

    def cancel_in_thread(self) -> None:
        """Cancel the task in another thread, which a signal handler needs."""
        threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def ask(
        self, build_question: Callable[[int], ProcessMessage]
    ) -> OutputsResponse | PassphraseResponse | None:
        """Send a question and return the answer, or None once the task is cancelled.

        `build_question` receives the number of the question and returns the message.
        """
        number = next(self._question_numbers)
        answers: queue.SimpleQueue[OutputsResponse | PassphraseResponse | None] = (
            queue.SimpleQueue()
        )
        # Registered before the question is sent: the answer comes in another thread.
        self._answer_queues[number] = answers
        if not self.is_cancelled:
            self.send(build_question(number))
            return answers.get()
        return None

    def read_planned_outputs(self, project: str, stack: str) -> PropertyMap | None:
        """Return another stack's planned outputs, or None if only the state has outputs.

        The seal of the other stack's plan is recorded in `planned_with`.

        Raises:
            EngineError: the run was interrupted, or the other stack has no plan.
        """
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
        """Ask a person for a passphrase and return the answer.

        Raises:
            EngineError: the run was interrupted.
        """
        answer = self.ask(lambda number: PassphraseRequest(number=number, prompt=prompt))
        if not isinstance(answer, PassphraseResponse):
            raise EngineError("the run was interrupted")
        return answer.passphrase

    @contextlib.contextmanager
    def register(self, cancel: Callable[[], None], terminate: Callable[[], None]) -> Iterator[None]:
        """Call `cancel` or `terminate` on messages Cancel and Terminate, until the context ends.

        `cancel` is called at once if the task was cancelled before.
        """
        self._handlers.append((cancel, terminate))
        try:
            # The cancellation may have come before the run began.
            if self.is_cancelled:
                cancel()
            yield
        finally:
            self._handlers.pop()

    def _cancel(self) -> None:
        """Cancel the current task: wake its questions, and cancel the run or its wait.

        Does nothing the second time.
        """
        if self.is_cancelled:
            return
        self.is_cancelled = True
        # A program that waits for an answer would not see the cancellation.
        for answers in list(self._answer_queues.values()):
            answers.put(None)
        if self._handlers:
            self._handlers[-1][0]()
        else:  # outside of a run, such as while waiting for a lock
            _thread.interrupt_main()

    def _terminate(self) -> None:
        """Terminate the run and end the process at once, with code ABANDONED."""
        # Whatever fails here, the process ends.
        with contextlib.suppress(Exception):
            if self._handlers:
                self._handlers[-1][1]()
        # At once: other threads may be anywhere, and the pending operations are in the state.
        os._exit(ABANDONED)


class _LineStream(TextIOBase):
    """A text stream that sends each line as a message."""

    def __init__(self, channel: Channel, stream: Literal["out", "err"]) -> None:
        self._channel, self._stream = channel, stream
        self._unfinished_line = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Send each complete line as a message; an incomplete one waits for the line break."""
        with self._lock:
            *lines, self._unfinished_line = (self._unfinished_line + text).split("\n")
            # Text may come in parts: only a complete line is a message.
            for line in lines:
                self._channel.send(OutputLine(stream=self._stream, content=line))
        return len(text)


class _AppliedView:
    """Shows an apply.

    Of the preview before it only the errors are shown: the combined plan was shown.
    """

    def __init__(self, view: View, screen: Screen) -> None:
        self._view, self._screen = view, screen

    def begin(self, started: RunStarted) -> Listener:
        """Begin the view of an apply; for the preview before, return a listener without effect."""
        return _ignore_event if started.preview else self._view.begin(started)

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Show the result of the apply; of a preview, only the errors."""
        if not run_ended.started.preview:
            self._view.end(run_ended, outcome)
        # A preview that fails stops the apply, and nothing else says why.
        elif not outcome.succeeded:
            for line in render_diagnostics(run_ended.record.diagnostics, paint=self._screen.paint):
                self._screen.print(line)

    def show_notice(self, message: str) -> None:
        self._view.show_notice(message)

    def close(self) -> None:
        self._view.close()


class _PlanningView:
    """Shows the messages of the program and of platforms; the combined plan shows the rest."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, _started: RunStarted) -> Listener:
        """Return a listener without an effect, because a planning task shows no events."""
        return _ignore_event

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Show the messages of the preview; errors of a failed one are in the task's result."""
        # The errors of a failed plan are its result, and shown there.
        diagnostics = run_ended.record.diagnostics
        shown_diagnostics = (
            diagnostics
            if outcome.succeeded
            else [diagnostic for diagnostic in diagnostics if diagnostic.severity != "error"]
        )
        for line in render_diagnostics(shown_diagnostics, paint=self._screen.paint):
            self._screen.print(line)

    def show_notice(self, message: str) -> None:
        """Show nothing: the multi-stack run itself reports interruptions."""

    def close(self) -> None:
        """Do nothing: a planning task opens no display."""


def _ignore_event(_event: Event) -> None:
    """Show nothing of the event."""


def _run_operation(task: Task, workspace: Workspace, channel: Channel) -> TaskResult:
    """Run the task's operation, sending the output as messages, and return the result."""
    streams = [cast("TextIO", _LineStream(channel, stream)) for stream in ("out", "err")]
    # Never interactive: the terminal belongs to the multi-stack run, which asks for all stacks.
    screen = Screen(streams[0], streams[1], Paint(task.color), interactive=False)
    options = RunOptions(**task.options)
    callbacks = OperationCallbacks(
        EventPrinter(
            _create_view(task, options, screen), screen, prints_messages=task.form == "text"
        ),
        interruptions=channel,
        rehearse=_choose_rehearsal(task, options, screen, channel),
    )
    selected = SelectedStack(
        workspace,
        workspace.resolve(task.stack),
        env_vars=task.variables,
        ask_passphrase=channel.ask_passphrase if task.can_ask_passphrase else None,
        lock_timeout=task.lock_timeout,
        debug=task.debug,
        planned_outputs=channel.read_planned_outputs if task.uses_planned_outputs else None,
        traceparent=task.traceparent,
    )
    if task.drift:
        return _report_drift(find_reported_drift(selected, (), callbacks, emulate=False))
    saved_plan = None
    if task.plan is not None:
        project, operation = workspace.project.name, options.operation
        saved_plan = SavedPlan.from_content(
            Path(task.source), task.plan.encode(), project, selected.name, operation
        )
        saved_plan = replace(saved_plan, can_continue=task.continues_plan)
    result = run_reported_operation(selected, options, callbacks, saved_plan, task.subject)
    if options.preview_only:
        return _report_plan(result, channel.planned_with, task)
    print_reason(result, screen, preview_only=False)
    return TaskResult(
        code=EXIT_CODES[result.reason], reason=result.reason, summary=_summarize_result(result)
    )


def _choose_rehearsal(
    task: Task, options: RunOptions, screen: Screen, channel: Channel
) -> Callable[[SelectedStack, Plan], Rehearsal | None] | None:
    """Return the function to rehearse the task's plan, or None for a task without a rehearsal.

    A plan that cannot be rehearsed stays a plan without a rehearsal, with a warning: it may need
    outputs of other stacks that are known only after their apply.
    """
    if not task.rehearsal_jobs:
        return None

    def rehearse(selected: SelectedStack, plan: Plan) -> Rehearsal | None:
        try:
            with _raise_when_cancelled(channel):
                return rehearse_plan(options, task.rehearsal_jobs, screen, selected, plan)
        except EngineError as error:
            screen.warn(f"warning: the plan was not rehearsed: {error.message}")
            return None

    return rehearse


@contextlib.contextmanager
def _raise_when_cancelled(channel: Channel) -> Iterator[None]:
    """Raise KeyboardInterrupt in this thread, the main one, as soon as the task is cancelled."""
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        # A signal, where there is one for a thread: it also ends a wait for other processes.
        if os.name == "posix":
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    try:
        with channel.register(interrupt, lambda: None):
            yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def _create_view(task: Task, options: RunOptions, screen: Screen) -> View:
    """Return the view of the task: JSON, the messages of a preview, or an apply."""
    if task.form != "text":
        return (PreviewJson if task.form == "json" else EventLines)(screen)
    # The multi-stack run shows the plan, combined with those of the other stacks.
    if options.preview_only:
        return _PlanningView(screen)
    return _AppliedView(HumanView(screen, DisplayOptions(**task.view_options)), screen)


def _report_plan(result: RunResult, planned_with: Mapping[str, str], task: Task) -> TaskResult:
    """Return the task's result for a preview, with the fields of a part if the task has part facts.

    A plan stopped by gates is a success here: dependents need its outputs, and the multi-stack run
    evaluates the gates.
    """
    if result.plan is None or result.reason in (ExitReason.FAILED, ExitReason.CANCELLED):
        message = _join_errors(result.diagnostics) or "the preview was interrupted"
        return TaskResult(code=FAILED, reason=result.reason, summary=message)
    plan = None
    if result.seal_plan is not None:
        plan = result.seal_plan(planned_with, task.stacks_digest)
    part_fields: dict[str, Any] = {}
    if task.part_facts and plan is not None and result.final_state is not None:
        crypter = result.final_state.stack.crypter
        part_fields = seal_part_fields(plan, task.part_facts, result.planned_outputs, crypter)
    return TaskResult(
        code=SUCCESS,
        reason=result.reason,
        plan=plan,
        outputs=pack_outputs(result.planned_outputs),
        part_fields=part_fields,
        summary=format_planned_operations(result.plan.summary),
    )


def _report_drift(result: DriftResult) -> TaskResult:
    """Build the result of a drift task.

    Drift that was found is a success, with the changes as summary.

    Only a resource that could not be read makes the code FAILED. Nothing is printed or sent.
    """
    errors = _join_errors(result.diagnostics)
    code = SUCCESS if result.succeeded else FAILED
    summary = format_planned_operations(result.plan.summary) if result.succeeded else errors
    return TaskResult(
        code=code, plan=result.plan, summary=summary or "not all resources could be read"
    )


def _join_errors(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the messages of the errors, one per line; warnings are left out."""
    return "\n".join(
        diagnostic.message for diagnostic in diagnostics if diagnostic.severity == "error"
    )


def _summarize_result(result: RunResult) -> str:
    """Return the errors of a failed run, or the exit reason without any, else operation counts."""
    if not result.succeeded:
        return _join_errors(result.diagnostics) or result.reason
    if result.was_applied:
        return WAS_APPLIED
    return format_done_operations(result.plan.summary) if result.plan is not None else ""


if __name__ == "__main__":
    main()
