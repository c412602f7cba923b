"""Declares each part of a topology when all that it needs has been registered."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from gpuform.stacks.engine.language_host import Answer, TopologyRun
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.topology.declaring.deferred import Handle, serialized

NO_NEEDS: Final[frozenset[Handle]] = frozenset()


@dataclass(eq=False, slots=True)
class Task:
    """Something to declare or to export when all that it `waits` for has been registered."""

    handle: Handle
    waits: frozenset[Handle]
    make: Callable[[], Registration | Read] | None = None
    exports: Mapping[str, Any] = field(default_factory=dict)
    left: int = 0


class Loop:
    """Declares each task when all that it waits for has been registered.

    What fails ends it once what is under way has ended.
    """

    def __init__(self, run: TopologyRun) -> None:
        self._run = run
        self._ready: deque[Task] = deque()
        self._waiting: dict[Handle, list[Task]] = {}
        self._done: SimpleQueue[tuple[Task, Answer | BaseException]] = SimpleQueue()
        self._flying = 0

    def run(self, tasks: list[Task]) -> None:
        """All of them, which are taken from the list; the first before all others."""
        with ThreadPoolExecutor(self._run.threads, thread_name_prefix="resource") as pool:
            self._ready.append(tasks[0])
            self._go(pool)
            self._enqueue(tasks[1:])
            tasks.clear()
            self._go(pool)

    def _enqueue(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            pending = [handle for handle in task.waits if handle.answer is None]
            task.left, task.waits = len(pending), NO_NEEDS
            for handle in pending:
                self._waiting.setdefault(handle, []).append(task)
            if not pending:
                self._ready.append(task)

    def _go(self, pool: ThreadPoolExecutor) -> None:
        while self._ready or self._flying:
            if self._ready:
                with self._run.declarations.working():
                    self._begin_all(pool)
            if self._flying:
                self._take()

    def _begin_all(self, pool: ThreadPoolExecutor) -> None:
        while self._ready and self._flying < self._run.threads:
            self._begin(self._ready.popleft(), pool)
            while not self._done.empty():
                self._take()

    def _begin(self, task: Task, pool: ThreadPoolExecutor) -> None:
        if task.make is None:
            self._run.declarations.export(task.handle.urn, _exported(task.exports))
            return
        answer = self._run.declarations.declare(task.make())
        if isinstance(answer, Answer):
            self._settle(task, answer)
            return
        self._flying += 1
        pool.submit(self._wait, task, answer)

    def _wait(self, task: Task, work: Callable[[], Answer]) -> None:
        try:
            self._done.put((task, work()))
        except BaseException as error:  # noqa: BLE001 - carried to the thread of the run
            self._done.put((task, error))

    def _take(self) -> None:
        task, answer = self._done.get()
        self._flying -= 1
        if isinstance(answer, BaseException):
            raise answer
        self._settle(task, answer)

    def _settle(self, task: Task, answer: Answer) -> None:
        task.handle.answer = answer
        for each in self._waiting.pop(task.handle, ()):
            each.left -= 1
            if not each.left:
                self._ready.append(each)


def _exported(values: Mapping[str, Any]) -> PropertyMap:
    sent = {name: serialized(values[name], set()) for name in sorted(values)}
    return {name: value for name, value in sent.items() if value is not None}
