"""Declare a planned topology to gpuform's engine, as a program with the SDK would declare it.

The engine's topology host calls `prepare` and `declare`. One thread evaluates and declares, others
wait for providers; each part is declared as soon as everything that it depends on is registered.
`EngineSource` supplies the values.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from gpuform.providers.platform import FORM_CONFIG, Form
from gpuform.providers.resource import UnknownForm, parse_form
from gpuform.providers.values import UNKNOWN, PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.language_host import ResourceResult, TopologyRun
from gpuform.stacks.engine.registration import Read, Registration, format_position
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, make_urn
from gpuform.stacks.engine.value_json import from_plain
from gpuform.stacks.topology.checking import LATE, CheckedResource
from gpuform.stacks.topology.declarations import Instance, ModuleInstance
from gpuform.stacks.topology.declared_resources import (
    DeclaredAlias,
    Deferred,
    Handle,
    ResolvedValue,
    Resource,
    create_secret,
    create_type_converter,
    defer_members,
    defer_property,
    find_dependencies,
    find_named_handles,
    is_deferred,
    join_values,
    keep_value,
    serialize_value,
)
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.registering import (
    RunSource,
    enter_instance,
    evaluate_outputs,
    evaluate_properties,
    require_value,
)
from gpuform.stacks.topology.scope import Scope

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
        """Make tasks ready, or let each task wait for the answers of its dependencies.

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
        """Run ready tasks, also tasks which become ready, until no task is ready or in flight."""
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
        """Wait for the answer of a task in flight and record it; an exception is raised."""
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
    """Convert outputs to property values for the engine; outputs without a value are left out."""
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
        """Return the value of an expression as a deferred secret."""
        return create_secret(value)

    def create_alias(self, fields: dict[str, Any]) -> DeclaredAlias:
        """Return the alias; `parent` becomes a handle, a URN, or "" if undeclared."""
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
        """Return a deferred value made of `values`, with the secrecy and dependencies of all.

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


@dataclass(slots=True)
class PreparedTopology:
    """The tasks of a topology, without the files that the topology was read from.

    `failure` is an error to raise after the other tasks are declared.
    """

    run: TopologyRun
    tasks: list[DeclarationTask]
    failure: Exception | None

    def declare(self) -> None:
        """Declare stack references, modules, resources and outputs in order. Call once.

        Raises the failure of the topology, and Ended.
        """
        TaskLoop(self.run).run(self.tasks)
        if self.failure is not None:
            raise self.failure


def prepare(planned: PlannedTopology, run: TopologyRun) -> PreparedTopology:
    """Return the tasks to declare a planned topology to the engine.

    Removes the declarations and files from `planned`, so that a large topology does not stay in
    memory for the whole run. An error in a declaration is not raised: it becomes the `failure` of
    the result.
    """
    return _TopologyPreparation(planned, run).prepare_all()


def declare_nothing(run: TopologyRun) -> None:
    """Register only the stack, for a topology with errors."""
    stack = _create_stack_registration(run)
    TaskLoop(run).run(
        [DeclarationTask(Handle(stack.urn, keep_value), NO_DEPENDENCIES, lambda: stack)]
    )
    run.declarations.export(stack.urn, {})


def _create_stack_registration(run: TopologyRun) -> Registration:
    project, stack = run.program.project, run.program.stack
    name = f"{project}-{stack}"
    urn = make_urn(stack, project, "", STACK_TYPE, name)
    return Registration(
        urn, STACK_TYPE, name, False, {}, property_dependencies={}, custom_timeouts={}
    )


class _TopologyPreparation:
    def __init__(self, planned: PlannedTopology, run: TopologyRun) -> None:
        self.planned, self.run = planned, run
        self.source = EngineSource(planned, run)
        self.scope = Scope(replace(planned.names, source=self.source, passed={}))
        self.root = str(run.program.root)
        self.handed_over = format_position(*run.call_site, self.root)
        self.stack = _create_stack_registration(run)
        self.form: Form | None = None
        self.protected: dict[Handle, bool | None] = {}
        self.files: dict[str, Path] = {}
        self.tasks: list[DeclarationTask] = []

    def prepare_all(self) -> PreparedTopology:
        """Return all tasks, or only the task of the stack if the source of values has failed.

        After an error in a declaration, the result has the tasks of the declarations before the
        error, and the stack gets no outputs.
        """
        root, stack = Handle(self.stack.urn, keep_value), self.stack
        first = DeclarationTask(root, NO_DEPENDENCIES, lambda: stack)
        exported: dict[str, Any] = {}
        failure: Exception | None = None
        try:
            self._prepare_tasks(exported)
        # What was prepared before is declared all the same, as by a program that fails midway.
        except EngineError as error:
            failure, exported = error, {}
        if self.source.failure is not None:
            return PreparedTopology(self.run, [first], self.source.failure)
        # A large topology would otherwise stay in memory for the whole run.
        self._release_declarations()
        outputs = DeclarationTask(root, find_dependencies(exported), exports=exported)
        return PreparedTopology(self.run, [first, outputs, *self.tasks], failure)

    def _prepare_tasks(self, exported: dict[str, Any]) -> None:
        """Add a task for every declaration, in the order of declarations in a program.

        Fills `exported` with the values of the topology's outputs, whose task the caller adds.
        """
        planned = self.planned
        for name, entry in planned.topology.stack_references.items():
            self._add_stack_reference(name, require_value(self.scope, entry.node))
        for module in planned.modules:
            self._add_module(module)
        for resource in planned.resources:
            self._add_resource(resource)
        for module, handle in self.source.modules.items():
            output_values = evaluate_outputs(module, self.scope)
            self.tasks.append(
                DeclarationTask(
                    handle, find_dependencies(output_values) | {handle}, exports=output_values
                )
            )
        for name, entry in planned.topology.outputs.items():
            exported[name] = require_value(self.scope, entry.node)

    def _release_declarations(self) -> None:
        """Remove the prepared declarations from memory.

        Each deferred value keeps its own part of the files.
        """
        for resource in self.planned.resources:
            resource.instance.declaration.properties.clear()
        self.planned.resources.clear()

    def _make_urn(self, type_: str, name: str, parent: str) -> str:
        """Return the URN of a resource in the run's stack; `parent` is the parent's URN."""
        return make_urn(self.run.program.stack, self.run.program.project, parent, type_, name)

    def _add_stack_reference(self, name: str, stack: str) -> None:
        """Add the task for reading the outputs of `stack`, by the reference `name`."""
        read = Read(
            urn=self._make_urn(STACK_REFERENCE_TYPE, name, self.stack.urn),
            type=STACK_REFERENCE_TYPE,
            name=name,
            id=stack,
            inputs={"name": from_plain(stack)},
            parent=self.stack.urn,
            source_position=self.handed_over,
            stack_trace=[self.handed_over],
        )
        handle = Handle(read.urn, keep_value, dict(read.inputs), read_id=stack)
        self.source.stacks[name] = handle
        self.tasks.append(DeclarationTask(handle, NO_DEPENDENCIES, lambda: read))

    def _add_module(self, module: ModuleInstance) -> None:
        """Add the task for a module's component, a child of the outer module or the stack."""
        outer = self.source.modules[module.module] if module.module else None
        parent = outer.urn if outer else self.stack.urn
        registration = Registration(
            urn=self._make_urn(MODULE_TYPE, module.name, parent),
            type=MODULE_TYPE,
            name=module.name,
            custom=False,
            inputs={},
            parent=parent,
            property_dependencies={},
            custom_timeouts={},
        )
        handle = self.source.modules[module] = Handle(registration.urn, keep_value)
        # As in a program, a child is declared after the answer for its parent.
        waits = frozenset([outer]) if outer else NO_DEPENDENCIES
        self.tasks.append(DeclarationTask(handle, waits, lambda: registration))

    def _add_resource(self, resource: CheckedResource) -> None:
        """Add the task for a resource: a read with a declared id, else a registration.

        Without the option `protect`, the parent's value counts. A read ignores the declared
        properties.
        """
        instance, declaration = resource.instance, resource.instance.declaration
        scope = enter_instance(self.scope, instance)
        options = self.source.evaluate_options(declaration.options, scope)
        form = self._find_form(declaration.position)
        parent: Handle | None = options.get("parent")
        # An explicit parent replaces the module's component.
        if parent is None and instance.module:
            parent = self.source.modules[instance.module]
        parent_urn = parent.urn if parent else self.stack.urn
        protect = options.get("protect")
        if protect is None and parent is not None:
            # As Pulumi's SDK does, a resource inherits `protect` from its parent.
            protect = self.protected.get(parent)
        type_ = form.build_type(declaration.platform, declaration.kind)
        urn = self._make_urn(type_, instance.name, parent_urn)
        handle = Handle(urn, create_type_converter(declaration.platform, declaration.kind))
        self.source.resources[instance] = handle
        self.protected[handle] = protect
        is_read = options.get("id") is not None
        # A read sends only the id.
        arguments = {} if is_read else evaluate_properties(resource, scope)
        declared = Resource(
            handle=handle,
            type_=type_,
            name=instance.name,
            parent=parent_urn,
            protect=protect,
            arguments=arguments,
            options=options,
            lifecycle=instance.lifecycle,
            form=form,
            position=declaration.position,
            trace=self._build_trace(declaration.position),
        )
        waits = find_dependencies([*arguments.values(), *(options.get(key) for key in LATE)])
        waits = waits.union(*map(find_named_handles, options.values()), [parent] if parent else ())
        self.tasks.append(
            DeclarationTask(
                handle, waits, declared.create_read if is_read else declared.create_registration
            )
        )

    def _find_form(self, position: SourcePosition) -> Form:
        """Return the form of resource types from the configuration, read once.

        Raises EngineError, with `position`, for an unknown form.
        """
        # Read for the first resource: without resources the form does not matter.
        if self.form is None:
            try:
                config, stack = self.run.program.config, self.run.program.stack
                self.form = parse_form(config.get(FORM_CONFIG), stack)
            except UnknownForm as error:
                raise EngineError(f"{position.file}:{position.line}: {error}") from None
        return self.form

    def _build_trace(self, position: SourcePosition) -> list[str]:
        """Return the source positions of an entry, the innermost first.

        Includes in Python files are left out. The last position is that of the call in the program.
        """
        files = [
            position,
            *(outer for outer in position.included if not outer.file.endswith(".py")),
        ]
        return [
            *(self._format_position(file_position) for file_position in files),
            self.handed_over,
        ]

    def _format_position(self, position: SourcePosition) -> str:
        """Return the file and line of a position, relative to the root folder."""
        # Resolving a path asks the file system; once for each file is enough.
        if position.file not in self.files:
            self.files[position.file] = Path(position.file).resolve()
        return format_position(self.files[position.file], position.line, self.root)
