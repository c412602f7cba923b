"""The process that works on one of several stacks: told what to do on stdin, it answers on stdout.

Its own output and that of programs goes to stderr; messages have the streams for themselves.
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

from gpuform.stacks.cli.failures import ABANDONED, FAILED, SUCCESS, explain
from gpuform.stacks.cli.running import EXIT_CODES, Shown, tell_reason
from gpuform.stacks.cli.terminal.screen import Screen, Showing
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, View
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import topology_of
from gpuform.stacks.engine.planning import Diagnostic, Event, Listener
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.opening.variables import set_variables
from gpuform.stacks.operations.runs.caller import OperationCallbacks, RunEnded, RunStarted
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import ExitReason, RunResult
from gpuform.stacks.operations.runs.running import run
from gpuform.stacks.operations.runs.saved_plans import SavedPlan
from gpuform.stacks.operations.several.process import (
    AsksOutputs,
    AsksPassphrase,
    Cancel,
    Ended,
    FromProcess,
    Hello,
    Line,
    Passphrase,
    PlannedOutputs,
    Task,
    decode_task_message,
    encode_message,
    pack_outputs,
    unpack_outputs,
)
from gpuform.stacks.operations.status_reading import DriftResult, find_drift
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import format_done_operations, format_planned_operations
from gpuform.stacks.review.text.history_text import render_diagnostics

_ENDING = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Does the tasks that it is given, until there are no more."""
    channel = Channel.take_streams()
    channel.send(Hello(version=version("gpuform")))
    threading.Thread(target=channel.listen, name="messages", daemon=True).start()
    for number in _ENDING:
        signal.signal(number, lambda _number, _frame: channel.cancel_soon())
    is_clean = True
    while is_clean and (task := channel.next_task()) is not None:
        try:
            ended = _done(task, channel)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - told here, once
            code, lines = explain(error, verbose=task.debug)
            ended = Ended(code=code, text="\n".join(lines).removeprefix("error: "))
        is_clean = ended.is_clean
        channel.end(ended)
    sys.exit(SUCCESS)


def _done(task: Task, channel: "Channel") -> Ended:
    """The task in its folder, with its variables. Code of a project may leave anything behind."""
    os.chdir(task.folder)
    with set_variables(task.variables):
        workspace = Workspace.find(Path.cwd(), os.environ)
        ended = _work(task, workspace, channel)
    is_clean = topology_of(workspace.project.program) is not None and not channel.is_cancelled
    return ended.model_copy(update={"is_clean": is_clean})


@dataclass(slots=True)
class Channel:
    """The two streams, and the work that messages end or that waits for them."""

    source: BinaryIO
    target: BinaryIO
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[int, "queue.SimpleQueue[PlannedOutputs | Passphrase | None]"] = field(
        default_factory=dict
    )
    _running: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    _tasks: "queue.SimpleQueue[Task | None]" = field(default_factory=queue.SimpleQueue)
    _is_at_work: bool = False
    is_cancelled: bool = False
    planned_with: dict[str, str] = field(default_factory=dict)
    """The seals of the plans by which this task knows other stacks' outputs."""

    @classmethod
    def take_streams(cls) -> "Channel":
        """This process's own: what programs read and print goes elsewhere from now on."""
        source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(source, target)

    def send(self, message: FromProcess) -> None:
        """Says something; where nobody hears, the work goes on to its end."""
        with self._sending, contextlib.suppress(OSError, ValueError):
            self.target.write(encode_message(message))
            self.target.flush()

    def next_task(self) -> Task | None:
        """What is to be done next; None where the other side wants nothing more."""
        task = self._tasks.get()
        self._is_at_work = task is not None
        self.planned_with = {}
        return task

    def end(self, ended: Ended) -> None:
        """Says how the task ended."""
        self._is_at_work = False
        self.send(ended)

    def listen(self) -> None:
        """Until the other side closes its stream: then nobody wants the work any more."""
        for line in self.source:
            message = decode_task_message(line)
            if isinstance(message, Task):
                self._tasks.put(message)
            elif isinstance(message, PlannedOutputs | Passphrase):
                self._waiting[message.number].put(message)
            elif isinstance(message, Cancel):
                self._cancel()
            else:
                self._leave()
        self._tasks.put(None)
        if self._is_at_work:
            self._cancel()

    def cancel_soon(self) -> None:
        """As the message does it, from a handler of a signal."""
        threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def ask(self, make: Callable[[int], FromProcess]) -> PlannedOutputs | Passphrase | None:
        """The answer to a question; None once the work is cancelled."""
        number = next(self._numbers)
        answers: queue.SimpleQueue[PlannedOutputs | Passphrase | None] = queue.SimpleQueue()
        self._waiting[number] = answers
        if not self.is_cancelled:
            self.send(make(number))
            return answers.get()
        return None

    def foreseen(self, project: str, stack: str) -> PropertyMap | None:
        """What another stack will give out, by the plan that is made of it."""
        found = self.ask(lambda number: AsksOutputs(number=number, project=project, stack=stack))
        if not isinstance(found, PlannedOutputs):
            raise EngineError("the run was interrupted")
        if found.error:
            raise EngineError(found.error)
        if found.outputs is None:
            return None
        self.planned_with[build_full_name(project, stack)] = found.seal
        return unpack_outputs(found.outputs)

    def passphrase(self, prompt: str) -> str:
        """What a person answers."""
        found = self.ask(lambda number: AsksPassphrase(number=number, prompt=prompt))
        if not isinstance(found, Passphrase):
            raise EngineError("the run was interrupted")
        return found.text

    @contextlib.contextmanager
    def register(self, cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
        """Around work that messages end."""
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

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            if self._running:
                self._running[-1][1]()
        os._exit(ABANDONED)


class _Lines(TextIOBase):
    """A text stream of which every line becomes a message."""

    def __init__(self, channel: Channel, to: Literal["out", "err"]) -> None:
        self._channel, self._to = channel, to
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._channel.send(Line(to=self._to, text=line))
        return len(text)


class _AppliedView:
    """Shows what is done; of the preview before it only why it failed: the plan was shown."""

    def __init__(self, view: View, screen: Screen) -> None:
        self._view, self._screen = view, screen

    def begin(self, title: RunStarted) -> Listener:
        return _ignored if title.preview else self._view.begin(title)

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        if not ended.started.preview:
            self._view.end(ended, outcome)
        elif not outcome.succeeded:
            for line in render_diagnostics(ended.record.diagnostics, paint=self._screen.paint):
                self._screen.print(line)

    def notice(self, text: str) -> None:
        self._view.notice(text)

    def close(self) -> None:
        self._view.close()


class _Planned:
    """Shows what the program and the platforms say; the plan of all stacks shows the rest."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, _title: RunStarted) -> Listener:
        return _ignored

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        # What a failed plan says as an error is why it failed, and is told there
        found = ended.record.diagnostics
        shown = found if outcome.succeeded else [d for d in found if d.severity != "error"]
        for line in render_diagnostics(shown, paint=self._screen.paint):
            self._screen.print(line)

    def notice(self, text: str) -> None:
        """The run of all says that it was interrupted."""

    def close(self) -> None:
        """Nothing is open."""


def _ignored(_event: Event) -> None:
    """The event is not shown."""


def _work(task: Task, workspace: Workspace, channel: Channel) -> Ended:
    lines = [cast("TextIO", _Lines(channel, to)) for to in ("out", "err")]
    screen = Screen(lines[0], lines[1], Paint(task.color), interactive=False)
    options = RunOptions(**task.options)
    caller = OperationCallbacks(
        Shown(_view(task, options, screen), screen, tells=task.form == "text"),
        interruptions=channel,
    )
    selected = SelectedStack(
        workspace,
        workspace.resolve(task.stack),
        ask_passphrase=channel.passphrase if task.asks else None,
        lock_timeout=task.lock_timeout,
        debug=task.debug,
        foreseen=channel.foreseen if task.foresees else None,
    )
    if task.drift:
        return _drifted(find_drift(selected, (), caller, emulate=False))
    saved = None
    if task.plan is not None:
        project, operation = workspace.project.name, options.operation
        saved = SavedPlan.from_plan(Path(task.source), task.plan, project, selected.name, operation)
    result = run(selected, options, caller, saved)
    if options.preview_only:
        return _planned(result, channel.planned_with)
    tell_reason(result, screen, preview_only=False)
    return Ended(code=EXIT_CODES[result.reason], reason=result.reason, text=_told(result))


def _view(task: Task, options: RunOptions, screen: Screen) -> View:
    if task.form != "text":
        return (PreviewJson if task.form == "json" else EventLines)(screen)
    if options.preview_only:
        return _Planned(screen)
    return _AppliedView(HumanView(screen, Showing(**task.showing)), screen)


def _planned(result: RunResult, planned_with: Mapping[str, str]) -> Ended:
    """A plan that gates stop is a plan all the same: what follows is planned, too."""
    if result.plan is None or result.reason in (ExitReason.FAILED, ExitReason.CANCELLED):
        text = _errors(result.diagnostics) or "the preview was interrupted"
        return Ended(code=FAILED, reason=result.reason, text=text)
    return Ended(
        code=SUCCESS,
        reason=result.reason,
        plan=result.seal(planned_with) if result.seal is not None else None,
        outputs=pack_outputs(result.foreseen),
        text=format_planned_operations(result.plan.summary),
    )


def _drifted(result: DriftResult) -> Ended:
    text = _errors(result.diagnostics)
    code = SUCCESS if result.succeeded else FAILED
    told = format_planned_operations(result.plan.summary) if result.succeeded else text
    return Ended(code=code, plan=result.plan, text=told or "not every resource could be read")


def _errors(diagnostics: Iterable[Diagnostic]) -> str:
    return "\n".join(each.message for each in diagnostics if each.severity == "error")


def _told(result: RunResult) -> str:
    if not result.succeeded:
        return _errors(result.diagnostics) or result.reason
    return format_done_operations(result.plan.summary) if result.plan is not None else ""


if __name__ == "__main__":
    main()
