"""Declare a planned topology to gpuform's engine, as a program with the SDK would declare it.

The engine's topology host calls `prepare` and `declare`. One thread evaluates and
declares, others wait for providers; a resource is declared as soon as its dependencies
are registered.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.providers.platform import FORM_CONFIG, Form
from gpuform.providers.resource import UnknownForm, parse_form
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import TopologyRun
from gpuform.stacks.engine.registration import Read, Registration, format_position
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, make_urn
from gpuform.stacks.engine.value_json import from_plain
from gpuform.stacks.topology.declarations import ModuleInstance
from gpuform.stacks.topology.declaring.deferred import Handle, find_dependencies
from gpuform.stacks.topology.declaring.resources import (
    Resource,
    create_type_converter,
    find_named_handles,
    keep_value,
)
from gpuform.stacks.topology.declaring.tasks import (
    NO_DEPENDENCIES,
    DeclarationTask,
    EngineSource,
    TaskLoop,
)
from gpuform.stacks.topology.options import LATE
from gpuform.stacks.topology.planning import CheckedResource, PlannedTopology
from gpuform.stacks.topology.run_sources import (
    enter_instance,
    evaluate_outputs,
    evaluate_properties,
    require_value,
)
from gpuform.stacks.topology.scope import Scope


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
    """Return the tasks that declare a planned topology to the engine.

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
    """Return the registration of the stack itself, the root of all resources."""
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
