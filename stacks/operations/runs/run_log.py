"""Log the events of a run and their durations, and read past runs with their logs.

`gpuform logs` and `gpuform stack history` read a stack's runs from its backend.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from pydantic import ValidationError

from gpuform.providers.context import Clock, SystemClock, write_trace
from gpuform.providers.errors import GpuformError
from gpuform.providers.values import PropertyMap, Redactor, collect_secret_texts
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.schemas.stacks_plan import LoggedNode, LogLine, RunLog, UnfinishedStep
from gpuform.stacks.engine.deployment import EventLog, Outcome
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Listener,
    Op,
    Prelude,
    Progress,
    SkippedCheck,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import DamagedFile, HistoryEntry
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.operations.runs.plan_file import mask_plan
from gpuform.stacks.pricing import list_entry_nodes
from gpuform.stacks.review import step_text


class Stopwatch:
    """Measures named durations, in seconds, on one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._starts: dict[object, float] = {}

    @property
    def is_real(self) -> bool:
        """Return True for this machine's clock, and False for an emulator's."""
        return isinstance(self._clock, SystemClock)

    def synchronize_clock(self) -> None:
        """Update an emulator's clock, or switch to this machine's if no emulator answers."""
        try:
            self._clock.sleep(0, threading.Event())
        except GpuformError:
            self._clock = SystemClock()

    def start(self, key: object) -> None:
        """Start the time measurement of `key`, such as a step's number."""
        self._starts[key] = self._read_clock()

    def get_elapsed(self, key: object) -> float:
        """Return the seconds since the start of `key`, or 0 if `key` was never started."""
        return max(0.0, self._read_clock() - self._starts.get(key, self._read_clock()))

    def _read_clock(self) -> float:
        """Return the clock's time, or the real one after the emulator was stopped."""
        try:
            return self._clock.now()
        # An emulator that was stopped: a duration must not fail the run.
        except GpuformError:
            return time.time()


MAX_PRINTED_LINES: Final = 1000
"""How many lines of a program's output are logged; the others are only counted."""


def is_platform_request(step: Step, *, planning: bool) -> bool:
    """Return True for a step which calls a platform; while planning only refreshes do."""
    if is_noise(step.state.type) or not step.state.custom or not step_text.has_description(step.op):
        return False
    return not planning or step.op is Op.REFRESH


def is_worth_showing(event: StepDone | StepFailed) -> bool:
    """Return False for a step which ended without a change or difference."""
    return not (isinstance(event, StepDone) and event.step.shown_op is Op.SAME)


class RunLogger:
    """A listener of one run. Times of lines are real; durations are by the platform's clock."""

    def __init__(self, watch: Stopwatch, now: Callable[[], float] = time.time) -> None:
        self._watch = watch
        self._now = now
        self._lines: list[LogLine] = []
        self._running: set[str] = set()
        self._printed_lines = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and is_platform_request(
            event.step, planning=event.planning
        ):
            self._start(event.step)
        elif isinstance(event, Progress) and event.urn in self._running:
            self._add_line(event="progress", urn=event.urn, text=event.text)
        elif isinstance(event, StepDone | StepFailed) and event.step.urn in self._running:
            self._end(event)
        elif isinstance(event, Diagnostic) and event.severity != "debug":
            self._add_message(event)
        elif isinstance(event, SkippedCheck):
            self._add_line(event="unchecked", text=event.text)

    def build_log(self, plan: Plan, stack: Stack, outcome: Outcome) -> RunLog:
        """Return the logged lines and the plan without unchanged resources, with secrets masked.

        Secrets of the configuration are masked everywhere. Secrets of the state and outputs are
        masked in messages only, because programs print there: there may be as many secrets as
        resources. Adds a line about omitted lines of the program: call once.
        """
        config_secrets = stack.build_target().program.collect_secrets()
        if self._printed_lines > MAX_PRINTED_LINES:
            omitted_count = self._printed_lines - MAX_PRINTED_LINES
            self._add_line(
                event="message", severity="info", text=f"... and {omitted_count} more lines"
            )
        messages = [line.text for line in self._lines if line.event == "message"]
        all_secrets = (
            {*config_secrets, *collect_secrets(outcome.snapshot, outcome.outputs)}
            if messages
            else ()
        )
        line_redactor, message_redactor = (
            Redactor(config_secrets),
            Redactor(all_secrets, within=messages),
        )
        lines = tuple(
            _redact_line(line, message_redactor if line.event == "message" else line_redactor)
            for line in self._lines
        )
        # Unchanged resources would make the log as large as the state.
        changes = tuple(change for change in plan.changes if change.action is not PlanAction.SAME)
        masked_plan = mask_plan(plan.model_copy(update={"changes": changes}), config_secrets)
        digest = hashlib.sha256(masked_plan.model_dump_json().encode()).hexdigest()
        return RunLog(plan=masked_plan, lines=lines, plan_digest=digest)

    def _start(self, step: Step) -> None:
        """Note the start of a step, and add a line; a refresh gets no line."""
        self._running.add(step.urn)
        self._watch.start(step.urn)
        if step.op is not Op.REFRESH:
            self._add_line(event="started", urn=step.urn, op=step.op)

    def _end(self, event: StepDone | StepFailed) -> None:
        """Add a line for the end of a step, with the seconds, if the end is worth showing."""
        step = event.step
        self._running.discard(step.urn)
        if is_worth_showing(event):
            self._add_line(
                event="failed" if isinstance(event, StepFailed) else "done",
                urn=step.urn,
                op=step.op,
                found=step.result_op or "",
                seconds=round(self._watch.get_elapsed(step.urn), 1),
                **_describe_objects(step),
            )

    def _add_message(self, event: Diagnostic) -> None:
        """Add the message as a line; printed lines after MAX_PRINTED_LINES are only counted."""
        severity = event.severity.partition("#")[0]
        if severity == "info":
            self._printed_lines += 1
            # Counted, but not stored: a program may print without end.
            if self._printed_lines > MAX_PRINTED_LINES:
                return
        self._add_line(event="message", urn=event.urn, severity=severity, text=event.message)

    def _add_line(self, **facts: object) -> None:
        """Add a line to the log, with the present time and `facts` as fields."""
        self._lines.append(LogLine.model_validate({"time": round(self._now(), 3), **facts}))


def _describe_objects(step: Step) -> dict[str, object]:
    """Return the id of the step's object, and the nodes added or removed by the step.

    An object may never be in a copy of the state: created by a run that was killed, and deleted by
    the next one. A later question about it needs its id in the log.
    """
    nodes_before, nodes_after = (
        {(node.node_id, node.name) for node in list_entry_nodes(entry)} if entry else set()
        for entry in (step.old, step.new)
    )
    return {
        "id": step.state.id,
        "added": _build_nodes(nodes_after - nodes_before),
        "removed": _build_nodes(nodes_before - nodes_after),
    }


def list_unfinished_steps(stack: Stack) -> tuple[UnfinishedStep, ...]:
    """Return the steps of interrupted runs still recorded when a run opens the stack.

    The run resolves them, so that no state names them afterwards.
    """
    pending = [
        UnfinishedStep(urn=operation.resource.urn, type=operation.type, id=operation.resource.id)
        for operation in stack.snapshot.pending_operations
    ]
    creates = [
        UnfinishedStep(urn=intent.urn, type="creating", id=intent.id or "")
        for intent in stack.get_intents().list_all()
        if intent.urn
    ]
    return (*pending, *creates)


def _build_nodes(nodes: Iterable[tuple[str, str]]) -> tuple[LoggedNode, ...]:
    """Return nodes of a log from pairs of id and name, sorted."""
    return tuple(
        LoggedNode(id=node_id, name=name)
        for node_id, name in sorted(nodes, key=lambda node: node[1])
    )


def collect_secrets(snapshot: Snapshot, outputs: PropertyMap) -> set[str]:
    """Return the texts marked as secret in the state and the outputs of a run."""
    secrets = {*collect_secret_texts(outputs)}
    for entry in snapshot.resources:
        secrets.update(collect_secret_texts(entry.inputs))
        secrets.update(collect_secret_texts(entry.outputs))
    return secrets


def _redact_line(line: LogLine, redactor: Redactor) -> LogLine:
    """Return the line with secrets in the text masked."""
    return line.model_copy(update={"text": redactor.redact(line.text)}) if line.text else line


@contextlib.contextmanager
def open_event_log(path: Path | None) -> Iterator[tuple[Listener, ...]]:
    """Yield a listener which writes Pulumi's event log to the file; none without a path.

    As under the Pulumi CLI the file holds the last run alone: the update, not the preview before
    it. Raises EngineError if the file cannot be written.
    """
    if path is None:
        yield ()
        return
    with _open_file(path, "event log") as file:
        event_log = EventLog(file.write)

        def write_last_run(event: Event) -> None:
            if isinstance(event, Prelude):
                file.seek(0)
                file.truncate()
            event_log(event)

        yield (write_last_run,)


@contextlib.contextmanager
def write_profile(path: Path | None) -> Iterator[None]:
    """Write a trace of the run to the file, or nothing without a path.

    Raises EngineError if the file cannot be written.
    """
    if path is None:
        yield
        return
    with _open_file(path, "profile") as file, write_trace(file):
        yield


def _open_file(path: Path, label: str) -> TextIO:
    """Open a file for writing, emptied; `label` is the file's name in messages.

    Raises:
        EngineError: the file cannot be opened.
    """
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the {label} {path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a stack's history.

    `number` counts from 1, the oldest run. `log` is None where no log was stored for the run.
    """

    number: int
    entry: HistoryEntry
    log: RunLog | None


def read_run(workspace: Workspace, stack: str, number: int | None) -> PastRun:
    """Return run `number` of the stack, or the latest run where `number` is None.

    Runs count from 1, the oldest. A run of the Pulumi CLI has no log.

    Raises:
        EngineError: the stack has no run of this number, or no run at all.
        DamagedFile: the run's log is not valid.
    """
    runs = workspace.backend.open_history(workspace.project.name, stack)
    names = runs.names
    if not names:
        raise EngineError(f"stack {stack} has no runs yet")
    # Runs count from 1, the oldest: a number stays the same while further runs follow.
    number = number or len(names)
    if number > len(names):
        raise EngineError(
            f"stack {stack} has no run {number}: its latest run is {len(names)}",
            hint="`gpuform stack history` lists the runs",
        )
    name = names[number - 1]
    data = runs.read_log(name)
    try:
        log = None if data is None else RunLog.model_validate_json(data)
    except ValidationError as error:
        raise DamagedFile(
            f"the log of run {number} of stack {stack} cannot be read: it is damaged, or "
            "written by a newer gpuform",
            hint="`gpuform stack history` shows the run's entry in the history",
        ) from error
    return PastRun(number, runs.read_entry(name), log)
