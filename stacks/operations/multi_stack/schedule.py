"""Schedule the processes of a multi-stack run, in parallel and in order of dependencies.

A multi-stack run makes one pass to plan its stacks and one to apply them.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.multi_stack import StackOrder, find_cycles
from gpuform.stacks.operations.multi_stack.stack_process import (
    AsksOutputs,
    AsksPassphrase,
    Cancel,
    Ended,
    FromProcess,
    Interpreter,
    Line,
    Passphrase,
    PlannedOutputs,
    ProcessPool,
    StackProcess,
    Task,
    Terminate,
    pack_outputs,
)

_TERMINATE_TIMEOUT_S: Final = 5.0
"""How long a terminated process may take to write its pending operations to the state."""

NOT_STARTED: Final = -1
"""The code of a stack that was not started."""

_ReceivedMessage = tuple[StackProcess, FromProcess] | None
"""A message of a process; None when the run is cancelled."""


@dataclass(slots=True)
class Schedule:
    """One pass over the stacks: a stack is started once its dependencies have succeeded.

    `dependencies` has the names of the stacks that come before each stack. `jobs` is the number of
    stacks at a time, without those that wait for another stack. `task` returns the task of a stack.
    `report_line` receives a line of a stack, `on_stack_ended` its result; `ask_passphrase` asks a
    person for a passphrase.
    """

    order: StackOrder
    dependencies: Mapping[str, set[str]]
    jobs: int
    task: Callable[[str], Task]
    interpreters: Mapping[str, Interpreter]
    processes: ProcessPool
    report_line: Callable[[str, Line], None]
    on_stack_ended: Callable[[str, Ended], None]
    ask_passphrase: Callable[[str, str], str | None]
    results: dict[str, Ended] = field(default_factory=dict)
    is_cancelled: bool = False
    _running: dict[str, StackProcess] = field(default_factory=dict)
    _pending_questions: dict[str, dict[int, str]] = field(default_factory=dict)
    """By asking stack: the numbers of its questions, and the stacks that they ask for."""
    _cycles: dict[str, str] = field(default_factory=dict)
    """By stack: the cycle of dependencies that the stack is part of."""
    _messages: "queue.SimpleQueue[_ReceivedMessage]" = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> dict[str, Ended]:
        """Run until every stack has ended or cannot be started, and return the results by name."""
        self._start_ready_stacks()
        while self._running:
            received = self._messages.get()
            if received is None:
                self._cancel_processes()
            else:
                process, message = received
                self._handle_message(process.name, process, message)
            self._start_ready_stacks()
        for name in self.dependencies:
            if name not in self.results:
                self._record_result(
                    name, Ended(code=NOT_STARTED, text=self._explain_not_started(name))
                )
        return self.results

    def cancel(self) -> None:
        """Start no further stack, and cancel the running ones. Callable from any thread."""
        self.is_cancelled = True
        self._messages.put(None)

    def terminate(self) -> None:
        """Terminate every process at once. Callable from any thread."""
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.send(Terminate())
        for process in running:
            process.wait(_TERMINATE_TIMEOUT_S)
            process.kill()

    def _start_ready_stacks(self) -> None:
        for name in self.dependencies:
            if self.is_cancelled or len(self._running) - len(self._pending_questions) >= self.jobs:
                return
            if name not in self.results and name not in self._running and self._can_start(name):
                self._start(name)

    def _can_start(self, name: str) -> bool:
        results = (self.results.get(other) for other in self.dependencies[name])
        return all(result is not None and result.code == 0 for result in results)

    def _start(self, name: str) -> None:
        process = self.processes.acquire(self.interpreters[name])
        with self._lock:
            self._running[name] = process
        try:
            process.run_task(name, self.task(name), self._enqueue_message)
        except OSError as error:
            problem = f"its process cannot be started: {error.strerror}"
            self._enqueue_message(process, Ended(code=1, text=problem))

    def _enqueue_message(self, process: StackProcess, message: FromProcess) -> None:
        self._messages.put((process, message))

    def _handle_message(self, name: str, process: StackProcess, message: FromProcess) -> None:
        if isinstance(message, Line):
            self.report_line(name, message)
        elif isinstance(message, AsksPassphrase):
            answer = self.ask_passphrase(name, message.prompt)
            process.send(Passphrase(number=message.number, text=answer or ""))
        elif isinstance(message, AsksOutputs):
            self._handle_outputs_question(name, process, message)
        elif isinstance(message, Ended):
            with self._lock:
                del self._running[name]
            self._pending_questions.pop(name, None)
            if message.is_clean and not self.is_cancelled:
                self.processes.release(process)
            else:
                process.close()
            self._record_result(name, message)

    def _record_result(self, name: str, result: Ended) -> None:
        self.results[name] = result
        self.on_stack_ended(name, result)
        for asking_stack, questions in list(self._pending_questions.items()):
            for number in [
                number for number, asked_stack in questions.items() if asked_stack == name
            ]:
                self._answer_question(asking_stack, number, name)
        if result.code != 0:
            self._skip_dependents(name)

    def _skip_dependents(self, failed: str) -> None:
        """Record the dependents of a failed stack as not started.

        At once, because a process may wait for the outputs of a stack that will never be started.
        """
        for name, required_names in self.dependencies.items():
            is_waiting = name not in self.results and name not in self._running
            if failed in required_names and is_waiting:
                self._record_result(
                    name, Ended(code=NOT_STARTED, text=self._explain_not_started(name))
                )

    def _handle_outputs_question(
        self, name: str, process: StackProcess, question: AsksOutputs
    ) -> None:
        """Answer a program's question for another stack's outputs, or wait for that stack."""
        asked_stack = f"{question.project}/{question.stack}"
        backend = self.order.workspace.stacks[name].backend
        other = self.order.workspace.find(backend, asked_stack)
        if other is None or asked_stack not in self.dependencies:
            process.send(PlannedOutputs(number=question.number))
            return
        self._pending_questions.setdefault(name, {})[question.number] = asked_stack
        if asked_stack in self.results or self._find_cycle(name):
            self._answer_question(name, question.number, asked_stack)

    def _answer_question(self, name: str, number: int, asked_stack: str) -> None:
        questions = self._pending_questions[name]
        cycle = self._find_cycle(name)
        del questions[number]
        if not questions:
            del self._pending_questions[name]
        self._running[name].send(self._find_planned_outputs(number, asked_stack, cycle))

    def _find_planned_outputs(self, number: int, asked_stack: str, cycle: str) -> PlannedOutputs:
        for name in cycle.split(" -> ") if cycle else ():
            self._cycles[name] = cycle
        if asked_stack in self._cycles:
            error = f"these stacks need each other: {self._cycles[asked_stack]}"
            return PlannedOutputs(number=number, error=error)
        result = self.results[asked_stack]
        if result.code != 0:
            return PlannedOutputs(
                number=number, error=f"there is no plan of stack {asked_stack}, which it reads"
            )
        basis = result.plan.basis if result.plan is not None else None
        outputs = result.outputs or pack_outputs({})
        return PlannedOutputs(number=number, outputs=outputs, seal=basis.seal if basis else "")

    def _find_cycle(self, name: str) -> str:
        """Return the cycle by which the stack waits for itself, as text; empty if there is none."""
        waiting = {
            stack: set(required_names)
            for stack, required_names in self.dependencies.items()
            if stack not in self.results
        }
        for asking_stack, questions in self._pending_questions.items():
            waiting.setdefault(asking_stack, set()).update(questions.values())
        return next((" -> ".join(cycle) for cycle in find_cycles(waiting) if name in cycle), "")

    def _cancel_processes(self) -> None:
        for name, process in self._running.items():
            for number in self._pending_questions.pop(name, {}):
                process.send(PlannedOutputs(number=number, error="the run was interrupted"))
            process.send(Cancel())

    def _explain_not_started(self, name: str) -> str:
        failed = sorted(
            other
            for other in self.dependencies[name]
            if other in self.results and self.results[other].code != 0
        )
        if failed:
            how = "was not begun" if self.results[failed[0]].code == NOT_STARTED else "has failed"
            return f"not begun: {failed[0]} {how}"
        return "not begun: the run was interrupted"
