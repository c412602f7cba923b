"""Declare each part of a topology when all that it depends on has been registered."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.language_host import Answer, TopologyRun
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.values import UNKNOWN, PropertyMap
from gpuform.stacks.topology.declarations import Instance, ModuleInstance
from gpuform.stacks.topology.declaring.deferred import (
    Deferred,
    Handle,
    Settled,
    is_deferred,
    joined,
    members_of,
    property_of,
    secret,
    serialized,
)
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.planning import Planned

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


class Source:
    """The source of values in a run, and what has been declared so far.

    What fails before anything is registered is kept as `failure`: then nothing but the stack is.
    """

    def __init__(self, planned: Planned, run: TopologyRun) -> None:
        self._planned, self._run = planned, run
        self._checking = planned.names.source
        self.resources: dict[Instance, Handle] = {}
        self.modules: dict[ModuleInstance, Handle] = {}
        self.stacks: dict[str, Handle] = {}
        self.failure: Exception | None = None

    def config(self, name: str) -> Any:
        """A secret as a deferred value."""
        found = self._planned.config[name]
        return secret(found.value) if found.secret else found.value

    def input(self, name: str) -> Any:
        """A topology of its own is given nothing."""
        raise AssertionError(f"the topology has an input {name}")

    def secret(self, value: Any) -> Any:
        """A deferred value."""
        return secret(value)

    def property(self, instance: Instance, name: str) -> Any:
        """A deferred value."""
        return property_of(self.resources[instance], name, preview=self._run.preview)

    def stack_output(self, reference: str, name: str) -> Any:
        """A deferred value; it fails when the other stack has none of that name."""
        handle, preview = self.stacks[reference], self._run.preview
        outputs = members_of(handle, "outputs", preview=preview)
        names = property_of(handle, "secretOutputNames", preview=preview)
        place = self._planned.topology.stack_references[reference].place

        def made() -> Settled:
            every, secrets = outputs.settled(), names.settled()
            is_secret = every.secret
            if secrets.value is not UNKNOWN and secrets.value is not None:
                is_secret = name in secrets.value
            if every.value is UNKNOWN:
                return Settled(UNKNOWN, is_secret, every.urns)
            if name not in every.value:
                raise TopologyError([_no_output(place, reference, name, every.value)])
            return Settled(every.value[name], is_secret, every.urns)

        return Deferred(made, outputs.waits)

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self._checking.lookup(platform, name)

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self._checking.about(name)

    def is_pending(self, value: Any) -> bool:
        """Whether it holds a deferred value."""
        return is_deferred(value)

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """A deferred value: secret, unknown and dependent as its parts are.

        What needs no resource is made at once: it may fail, and nothing has been registered yet.
        """
        found = joined(values, make, of_secret)
        if not found.waits:
            try:
                found.settled()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
                self.failure = self.failure or error
        return found


def _no_output(
    place: SourcePosition, reference: str, name: str, known: Mapping[str, Any]
) -> Diagnostic:
    message = f"the stack of stack_references.{reference} has no output {name}"
    hint = f"there is {', '.join(sorted(known))}" if known else "it has none at all"
    return Diagnostic(place, "reference", message, hint)
