"""Runs the processes of several stacks: side by side where they may, in order where they must."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.multi_stack import Order, circles
from gpuform.stacks.operations.several.process import (
    AsksOutputs,
    AsksPassphrase,
    Cancel,
    Ended,
    Foretold,
    FromProcess,
    Interpreter,
    Leave,
    Line,
    Passphrase,
    Processes,
    StackProcess,
    Task,
    packed,
)

_LEAVING: Final = 5.0
"""Seconds in which a process that is told to leave has written what is under way."""

NOT_BEGUN: Final = -1
"""The code of what was not begun."""

_Said = tuple[StackProcess, FromProcess] | None
"""What a process says; None when the run is cancelled."""


@dataclass(slots=True)
class Schedule:
    """One pass over stacks: each by a process, once all that it needs have ended well.

    `needs` has the names that come before each. `jobs` is how many work at a time; one that waits
    for another does not count. `task` is what a stack's process is to do; one of `processes` that
    has done a task may do another. `tell` shows a line of a stack, `ended` hears how one ended;
    `answer` asks a person for a passphrase.
    """

    order: Order
    needs: Mapping[str, set[str]]
    jobs: int
    task: Callable[[str], Task]
    interpreters: Mapping[str, Interpreter]
    processes: Processes
    tell: Callable[[str, Line], None]
    ended: Callable[[str, Ended], None]
    answer: Callable[[str, str], str | None]
    results: dict[str, Ended] = field(default_factory=dict)
    is_cancelled: bool = False
    _running: dict[str, StackProcess] = field(default_factory=dict)
    _asking: dict[str, dict[int, str]] = field(default_factory=dict)
    """By the stack that asks: the numbers of its questions, and the stacks that they are about."""
    _circles: dict[str, str] = field(default_factory=dict)
    """By stack: the way by which it waits for itself."""
    _heard: "queue.SimpleQueue[_Said]" = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> dict[str, Ended]:
        """Until every stack has ended, or will not be begun."""
        self._start_what_may()
        while self._running:
            said = self._heard.get()
            if said is None:
                self._tell_to_end()
            else:
                process, message = said
                self._hear(process.name, process, message)
            self._start_what_may()
        for name in self.needs:
            if name not in self.results:
                self._end(name, Ended(code=NOT_BEGUN, text=self._why_not(name)))
        return self.results

    def cancel(self) -> None:
        """From any thread: nothing new is begun, and what runs ends in good order."""
        self.is_cancelled = True
        self._heard.put(None)

    def leave(self) -> None:
        """From any thread: every process ends at once."""
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.send(Leave())
        for process in running:
            process.wait(_LEAVING)
            process.kill()

    def _start_what_may(self) -> None:
        for name in self.needs:
            if self.is_cancelled or len(self._running) - len(self._asking) >= self.jobs:
                return
            if name not in self.results and name not in self._running and self._may_start(name):
                self._start(name)

    def _may_start(self, name: str) -> bool:
        ended = (self.results.get(other) for other in self.needs[name])
        return all(each is not None and each.code == 0 for each in ended)

    def _start(self, name: str) -> None:
        process = self.processes.take(self.interpreters[name])
        with self._lock:
            self._running[name] = process
        try:
            process.do(name, self.task(name), self._put)
        except OSError as error:
            text = f"its process cannot be started: {error.strerror}"
            self._put(process, Ended(code=1, text=text))

    def _put(self, process: StackProcess, message: FromProcess) -> None:
        self._heard.put((process, message))

    def _hear(self, name: str, process: StackProcess, message: FromProcess) -> None:
        if isinstance(message, Line):
            self.tell(name, message)
        elif isinstance(message, AsksPassphrase):
            answer = self.answer(name, message.prompt)
            process.send(Passphrase(number=message.number, text=answer or ""))
        elif isinstance(message, AsksOutputs):
            self._asked(name, process, message)
        elif isinstance(message, Ended):
            with self._lock:
                del self._running[name]
            self._asking.pop(name, None)
            if message.is_clean and not self.is_cancelled:
                self.processes.give(process)
            else:
                process.close()
            self._end(name, message)

    def _end(self, name: str, ended: Ended) -> None:
        self.results[name] = ended
        self.ended(name, ended)
        for asking, questions in list(self._asking.items()):
            for number in [number for number, about in questions.items() if about == name]:
                self._answer(asking, number, name)
        if ended.code != 0:
            self._end_what_needs(name)

    def _end_what_needs(self, failed: str) -> None:
        """At once: somebody may wait for what will not be begun."""
        for name, needed in self.needs.items():
            is_left = name not in self.results and name not in self._running
            if failed in needed and is_left:
                self._end(name, Ended(code=NOT_BEGUN, text=self._why_not(name)))

    def _asked(self, name: str, process: StackProcess, asked: AsksOutputs) -> None:
        """A program reads another stack, of which more may be known than its state tells."""
        about = f"{asked.project}/{asked.stack}"
        backend = self.order.estate.members[name].backend
        other = self.order.estate.find(backend, about)
        if other is None or about not in self.needs:
            process.send(Foretold(number=asked.number))
            return
        self._asking.setdefault(name, {})[asked.number] = about
        if about in self.results or self._is_circle(name):
            self._answer(name, asked.number, about)

    def _answer(self, name: str, number: int, about: str) -> None:
        questions = self._asking[name]
        circle = self._is_circle(name)
        del questions[number]
        if not questions:
            del self._asking[name]
        self._running[name].send(self._foretold(number, about, circle))

    def _foretold(self, number: int, about: str, circle: str) -> Foretold:
        for each in circle.split(" -> ") if circle else ():
            self._circles[each] = circle
        if about in self._circles:
            told = f"these stacks need each other: {self._circles[about]}"
            return Foretold(number=number, error=told)
        ended = self.results[about]
        if ended.code != 0:
            return Foretold(
                number=number, error=f"there is no plan of stack {about}, which it reads"
            )
        basis = ended.plan.basis if ended.plan is not None else None
        outputs = ended.outputs or packed({})
        return Foretold(number=number, outputs=outputs, seal=basis.seal if basis else "")

    def _is_circle(self, name: str) -> str:
        """The way by which a stack waits for itself, as text; empty where it does not."""
        waiting = {
            each: set(needs) for each, needs in self.needs.items() if each not in self.results
        }
        for asking, questions in self._asking.items():
            waiting.setdefault(asking, set()).update(questions.values())
        return next((" -> ".join(way) for way in circles(waiting) if name in way), "")

    def _tell_to_end(self) -> None:
        for name, process in self._running.items():
            for number in self._asking.pop(name, {}):
                process.send(Foretold(number=number, error="the run was interrupted"))
            process.send(Cancel())

    def _why_not(self, name: str) -> str:
        failed = sorted(
            other
            for other in self.needs[name]
            if other in self.results and self.results[other].code != 0
        )
        if failed:
            how = "was not begun" if self.results[failed[0]].code == NOT_BEGUN else "has failed"
            return f"not begun: {failed[0]} {how}"
        return "not begun: the run was interrupted"
