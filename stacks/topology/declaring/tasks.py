"""Declare each part of a topology when everything that it depends on is registered.

`topologies` prepares the tasks and runs them with `TaskLoop`; `EngineSource` supplies their values.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from gpuform.providers.values import UNKNOWN, PropertyMap
from gpuform.stacks.engine.language_host import ResourceResult, TopologyRun
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.topology.declarations import Instance
from gpuform.stacks.topology.declaring.deferred import (
    Deferred,
    Handle,
    ResolvedValue,
    create_secret,
    defer_members,
    defer_property,
    is_deferred,
    join_values,
    serialize_value,
)
from gpuform.stacks.topology.declaring.resources import DeclaredAlias
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.run_sources import RunSource

NO_DEPENDENCIES: Final[frozenset[Handle]] = frozenset()
"""The dependencies of a task that can start at once."""


@dataclass(eq=False, slots=True)
class DeclarationTask:
    """A declaration or an export of outputs that starts when its dependencies are registered."""

    handle: Handle
    dependencies: frozenset[Handle]
    make: Callable[[], Registration | Read] | None = None
    exports: Mapping[str, Any] = field(default_factory=dict)
    pending_count: int = 0


class TaskLoop:
    """Runs tasks in dependency order. One thread declares; a pool waits for the engine's answers.

    After a failure no new task starts; running tasks end first.
    """

    def __init__(self, run: TopologyRun) -> None:
        self._run = run
        self._ready: deque[DeclarationTask] = deque()
        self._waiting: dict[Handle, list[DeclarationTask]] = {}
        self._done: SimpleQueue[tuple[DeclarationTask, ResourceResult | BaseException]] = (
            SimpleQueue()
        )
        self._in_flight = 0

    def run(self, tasks: list[DeclarationTask]) -> None:
        """Run all tasks, the first before the others, and empty the list.

        Raises the first error of a task, after the running tasks have ended.
        """
        with ThreadPoolExecutor(self._run.threads, thread_name_prefix="resource") as pool:
            # The first task registers the stack, the parent of everything else.
            self._ready.append(tasks[0])
            self._run_ready_tasks(pool)
            self._enqueue(tasks[1:])
            # The list would keep the values of every finished task in memory.
            tasks.clear()
            self._run_ready_tasks(pool)

    def _enqueue(self, tasks: Sequence[DeclarationTask]) -> None:
        """Make tasks ready, or let them wait for the answers of their dependencies.

        The `dependencies` of the tasks are emptied; only their count is kept.
        """
        for task in tasks:
            pending = [handle for handle in task.dependencies if handle.answer is None]
            # From here on the count is enough; the handles would stay in memory.
            task.pending_count, task.dependencies = len(pending), NO_DEPENDENCIES
            for handle in pending:
                self._waiting.setdefault(handle, []).append(task)
            if not pending:
                self._ready.append(task)

    def _run_ready_tasks(self, pool: ThreadPoolExecutor) -> None:
        """Run ready tasks and those becoming ready, until none is ready or in flight."""
        while self._ready or self._in_flight:
            if self._ready:
                with self._run.declarations.track_work():
                    self._begin_ready_tasks(pool)
            if self._in_flight:
                self._receive_answer()

    def _begin_ready_tasks(self, pool: ThreadPoolExecutor) -> None:
        """Begin ready tasks while threads are free; finished answers are recorded in between."""
        while self._ready and self._in_flight < self._run.threads:
            self._begin_task(self._ready.popleft(), pool)
            # Finished answers make further tasks ready, so they are recorded at once.
            while not self._done.empty():
                self._receive_answer()

    def _begin_task(self, task: DeclarationTask, pool: ThreadPoolExecutor) -> None:
        """Export a task's outputs, or declare the task's resource; a slow one ends in `pool`."""
        if task.make is None:
            self._run.declarations.export(task.handle.urn, _serialize_exports(task.exports))
            return
        answer = self._run.declarations.declare(task.make())
        if isinstance(answer, ResourceResult):
            self._record_answer(task, answer)
            return
        self._in_flight += 1
        pool.submit(self._wait_for_answer, task, answer)

    def _wait_for_answer(self, task: DeclarationTask, work: Callable[[], ResourceResult]) -> None:
        """Run a slow declaration in a thread, and queue the result or exception."""
        try:
            self._done.put((task, work()))
        except BaseException as error:  # noqa: BLE001 - carried to the thread of the run
            self._done.put((task, error))

    def _receive_answer(self) -> None:
        """Wait for the answer of a task in flight, and record it; an exception is raised."""
        task, answer = self._done.get()
        self._in_flight -= 1
        if isinstance(answer, BaseException):
            raise answer
        self._record_answer(task, answer)

    def _record_answer(self, task: DeclarationTask, answer: ResourceResult) -> None:
        """Store the answer in the task's handle, and make waiting tasks ready."""
        task.handle.answer = answer
        for waiting_task in self._waiting.pop(task.handle, ()):
            waiting_task.pending_count -= 1
            if not waiting_task.pending_count:
                self._ready.append(waiting_task)


def _serialize_exports(values: Mapping[str, Any]) -> PropertyMap:
    """Convert outputs to property values for the engine; those without a value are left out."""
    sent = {name: serialize_value(values[name], set()) for name in sorted(values)}
    return {name: value for name, value in sent.items() if value is not None}


class EngineSource(RunSource[Handle, Handle, Handle]):
    """The source of values in a run of the engine, and the handles declared so far.

    `failure` is an error found before anything was registered: then only the stack is registered.
    """

    def __init__(self, planned: PlannedTopology, run: TopologyRun) -> None:
        super().__init__(planned)
        self._run = run
        self.failure: Exception | None = None

    def get_input(self, name: str) -> Any:
        """Raise AssertionError: the topology of a stack has no inputs."""
        raise AssertionError(f"the topology has an input {name}")

    def make_secret(self, value: Any) -> Any:
        """Return `value` as a deferred secret."""
        return create_secret(value)

    def create_alias(self, fields: dict[str, Any]) -> DeclaredAlias:
        """Return the alias; its parent is a handle, a URN, or "" if undeclared."""
        parent = fields.pop("parent", "")
        return DeclaredAlias(fields, parent)

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return a property of a resource as a deferred value."""
        return defer_property(self.resources[instance], name, preview=self._run.preview)

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of another stack as a deferred value.

        Resolving it raises TopologyError if the other stack has no such output.
        """
        handle, preview = self.stacks[reference], self._run.preview
        outputs = defer_members(handle, "outputs", preview=preview)
        names = defer_property(handle, "secretOutputNames", preview=preview)

        def resolve_output() -> ResolvedValue:
            every, secrets = outputs.resolve(), names.resolve()
            is_secret = every.secret
            # Pulumi names a stack's secret outputs separately, so that others stay visible.
            if secrets.value is not UNKNOWN and secrets.value is not None:
                is_secret = name in secrets.value
            if every.value is UNKNOWN:
                return ResolvedValue(UNKNOWN, is_secret, every.urns)
            if name not in every.value:
                raise self.build_missing_output_error(reference, name, every.value)
            return ResolvedValue(every.value[name], is_secret, every.urns)

        return Deferred(resolve_output, outputs.dependencies)

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains a deferred value."""
        return is_deferred(value)

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """Return a deferred value, with the secrecy and the dependencies of all `values`.

        A value without dependencies is computed at once, so that its failure is found before
        anything is registered; the first failure is kept in `failure`.
        """
        deferred = join_values(values, make, of_secret)
        if not deferred.dependencies:
            try:
                deferred.resolve()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
                # The first failure is the one to report.
                self.failure = self.failure or error
        return deferred
