"""Schedule the processes of a multi-stack run, in parallel and in order of dependencies.

A multi-stack run makes one pass to plan its stacks and one to apply them. All decisions are made in
the thread of `Schedule.run`; the threads that listen to processes only queue messages.
"""

import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.multi_stack import StackOrder, find_cycles
from gpuform.stacks.operations.multi_stack.stack_process import (
    Cancel,
    Interpreter,
    OutputLine,
    OutputsRequest,
    OutputsResponse,
    PassphraseRequest,
    PassphraseResponse,
    ProcessMessage,
    ProcessPool,
    StackProcess,
    Task,
    TaskResult,
    Terminate,
    pack_outputs,
)

_TERMINATE_TIMEOUT_S: Final = 5.0
"""How long a terminated process may take to write its pending operations to the state."""

NOT_STARTED: Final = -1
"""The code of a stack that was not started."""

_ReceivedMessage = tuple[StackProcess, ProcessMessage] | None
"""A message of a process; None when the run is cancelled."""


@dataclass(slots=True)
class Schedule:
    """One pass over the stacks: a stack is started once its dependencies have succeeded.

    `dependencies` has the names of the stacks that come before each stack. `jobs` is the number of
    stacks at a time, without those that wait for another stack. `build_task` returns the task of a
    stack. `report_line` receives a line of a stack, `on_stack_ended` its result; `ask_passphrase`
    asks a person for a passphrase. `results` begins with the plans of other machines, and
    `planned_elsewhere` has the names of all stacks that are planned on one of the machines.
    """

    order: StackOrder
    dependencies: Mapping[str, set[str]]
    jobs: int
    build_task: Callable[[str], Task]
    interpreters: Mapping[str, Interpreter]
    processes: ProcessPool
    report_line: Callable[[str, OutputLine], None]
    on_stack_ended: Callable[[str, TaskResult], None]
    ask_passphrase: Callable[[str, str], str | None]
    results: dict[str, TaskResult] = field(default_factory=dict)
    planned_elsewhere: Collection[str] = ()
    is_cancelled: bool = False
    _running: dict[str, StackProcess] = field(default_factory=dict)
    _pending_questions: dict[str, dict[int, str]] = field(default_factory=dict)
    """By asking stack: the numbers of its questions, and the stacks that they ask for."""
    _cycles: dict[str, str] = field(default_factory=dict)
    """By stack: the cycle of dependencies that the stack is part of."""
    _messages: "queue.SimpleQueue[_ReceivedMessage]" = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> dict[str, TaskResult]:
        """Run until every stack has ended or cannot be started, and return the results by name.

        A stack that was not started has the code `NOT_STARTED`.
        """
        self._start_ready_stacks()
        while self._running:
            received = self._messages.get()
            if received is None:
                self._cancel_processes()
            else:
                process, message = received
                self._handle_message(process.name, process, message)
            self._start_ready_stacks()
        # These were never started: after a cancellation, or because they wait for each other.
        for name in self.dependencies:
            if name not in self.results:
                self._record_result(
                    name, TaskResult(code=NOT_STARTED, summary=self._explain_not_started(name))
                )
        return self.results

    def cancel(self) -> None:
        """Start no further stack, and cancel the running ones. Callable from any thread."""
        self.is_cancelled = True
        # Wakes the thread of `run`, which alone sends the cancellations.
        self._messages.put(None)

    def terminate(self) -> None:
        """Terminate every process, and kill a process still running 5 s later.

        Call `cancel` before: the end of a process may start further stacks otherwise. Callable from
        any thread.
        """
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.send(Terminate())
        for process in running:
            process.wait(_TERMINATE_TIMEOUT_S)
            process.kill()

    def _start_ready_stacks(self) -> None:
        """Start stacks whose dependencies have succeeded, while fewer than `jobs` work."""
        for name in self.dependencies:
            # A process that waits for another stack does no work: if it counted, `jobs` of 1 would
            # wait for ever.
            if self.is_cancelled or len(self._running) - len(self._pending_questions) >= self.jobs:
                return
            if name not in self.results and name not in self._running and self._can_start(name):
                self._start(name)

    def _can_start(self, name: str) -> bool:
        """Return True if all dependencies have succeeded."""
        results = (self.results.get(other) for other in self.dependencies[name])
        return all(result is not None and result.code == 0 for result in results)

    def _start(self, name: str) -> None:
        """Start the stack's task; a process failing to start counts as a failed task."""
        process = self.processes.acquire(self.interpreters[name])
        with self._lock:
            self._running[name] = process
        try:
            process.run_task(name, self.build_task(name), self._queue_message)
        except OSError as error:
            problem = f"its process cannot be started: {error.strerror}"
            # Queued like the end of a task, so that dependents are skipped in the same way.
            self._queue_message(process, TaskResult(code=1, summary=problem))

    def _queue_message(self, process: StackProcess, message: ProcessMessage) -> None:
        """Queue a process's message for the thread of `run`, which handles all messages."""
        self._messages.put((process, message))

    def _handle_message(self, name: str, process: StackProcess, message: ProcessMessage) -> None:
        """Report, answer or record a message of the stack's process.

        After a result, a process that has not imported the project's code is kept for another task;
        any other process is closed.
        """
        if isinstance(message, OutputLine):
            self.report_line(name, message)
        elif isinstance(message, PassphraseRequest):
            answer = self.ask_passphrase(name, message.prompt)
            process.send(PassphraseResponse(number=message.number, passphrase=answer or ""))
        elif isinstance(message, OutputsRequest):
            self._handle_outputs_question(name, process, message)
        elif isinstance(message, TaskResult):
            with self._lock:
                del self._running[name]
            self._pending_questions.pop(name, None)
            # A process that has imported the project's code could see modules of another stack's
            # project.
            if message.is_clean and not self.is_cancelled:
                self.processes.release(process)
            else:
                process.close()
            self._record_result(name, message)

    def _record_result(self, name: str, result: TaskResult) -> None:
        """Record the result of an ended stack, and report the result.

        Answers the programs of other stacks that have asked for this stack's outputs. If the stack
        has failed, its direct and indirect dependents are recorded as not started.
        """
        self.results[name] = result
        self.on_stack_ended(name, result)
        for asking_stack, questions in list(self._pending_questions.items()):
            # Programs that asked for this stack's outputs have waited for its end.
            for number in [
                number for number, asked_stack in questions.items() if asked_stack == name
            ]:
                self._answer_question(asking_stack, number, name)
        if result.code != 0:
            self._skip_dependents(name)

    def _skip_dependents(self, failed: str) -> None:
        """Record all direct and indirect dependents of a failed stack as not started."""
        for name, required_names in self.dependencies.items():
            is_waiting = name not in self.results and name not in self._running
            if failed in required_names and is_waiting:
                self._record_result(
                    name, TaskResult(code=NOT_STARTED, summary=self._explain_not_started(name))
                )

    def _handle_outputs_question(
        self, name: str, process: StackProcess, question: OutputsRequest
    ) -> None:
        """Answer a program's question for another stack's outputs, now or when the stack ends.

        If the other stack is not part of this run, the answer is empty, and the program reads the
        outputs from that stack's state.
        """
        asked_stack = f"{question.project}/{question.stack}"
        backend = self.order.workspace.stacks[name].backend
        other = self.order.workspace.find(backend, asked_stack)
        is_planned = asked_stack in self.dependencies or asked_stack in self.results
        if not is_planned and asked_stack in self.planned_elsewhere:
            # Its state has the outputs of before the plan: one machine would not read these.
            process.send(
                OutputsResponse(
                    number=question.number,
                    error=f"{name} reads {asked_stack}, which is planned in another part, and the "
                    f"files do not say so: add `after: [{asked_stack}]` to {name} in stacks.yaml",
                )
            )
            return
        if other is None or not is_planned:
            process.send(OutputsResponse(number=question.number))
            return
        self._pending_questions.setdefault(name, {})[question.number] = asked_stack
        if asked_stack in self.results or self._find_cycle(name):
            self._answer_question(name, question.number, asked_stack)

    def _answer_question(self, name: str, number: int, asked_stack: str) -> None:
        """Answer a pending question with planned outputs or an error, and remove the question."""
        questions = self._pending_questions[name]
        cycle = self._find_cycle(name)
        del questions[number]
        if not questions:
            del self._pending_questions[name]
        self._running[name].send(self._find_planned_outputs(number, asked_stack, cycle))

    def _find_planned_outputs(self, number: int, asked_stack: str, cycle: str) -> OutputsResponse:
        """Build the response with the planned outputs of `asked_stack`, or with an error.

        The error names the cycle, or says that the stack has no plan. Without a cycle the caller
        has waited for the stack's result.
        """
        # Every stack of the cycle gets the same error, whichever asked first.
        for name in cycle.split(" -> ") if cycle else ():
            self._cycles[name] = cycle
        if asked_stack in self._cycles:
            error = f"these stacks depend on each other in a cycle: {self._cycles[asked_stack]}"
            return OutputsResponse(number=number, error=error)
        result = self.results[asked_stack]
        if result.code != 0:
            return OutputsResponse(
                number=number, error=f"stack {asked_stack}, which it reads, has no plan"
            )
        basis = result.plan.basis if result.plan is not None else None
        outputs = result.outputs or pack_outputs({})
        return OutputsResponse(number=number, outputs=outputs, seal=basis.seal if basis else "")

    def _find_cycle(self, name: str) -> str:
        """Return a cycle of stacks in wait for each other, such as `a -> b -> a`.

        Returns "" without a cycle. A stack waits for its dependencies that have not ended, and for
        the stacks whose outputs its program has asked for.
        """
        waiting = {
            stack: set(required_names)
            for stack, required_names in self.dependencies.items()
            if stack not in self.results
        }
        for asking_stack, questions in self._pending_questions.items():
            waiting.setdefault(asking_stack, set()).update(questions.values())
        return next((" -> ".join(cycle) for cycle in find_cycles(waiting) if name in cycle), "")

    def _cancel_processes(self) -> None:
        """Answer all pending questions with an error, and cancel the running tasks."""
        for name, process in self._running.items():
            for number in self._pending_questions.pop(name, {}):
                # A program that waits for outputs would wait for ever.
                process.send(OutputsResponse(number=number, error="the run was interrupted"))
            process.send(Cancel())

    def _explain_not_started(self, name: str) -> str:
        """Return why the stack was not started: a failed dependency, else an interruption."""
        failed = sorted(
            other
            for other in self.dependencies[name]
            if other in self.results and self.results[other].code != 0
        )
        if failed:
            outcome = "was not started" if self.results[failed[0]].code == NOT_STARTED else "failed"
            return f"not started: {failed[0]} {outcome}"
        return "not started: the run was interrupted"
