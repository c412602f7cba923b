"""Declares a planned topology to gpuform's own engine: what a program with the SDK would declare.

One thread evaluates and declares; others wait for providers. A resource is declared as soon as all
that it needs has been registered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.providers.chosen_form import UnknownForm, parse_form
from gpuform.providers.forms import FORM_CONFIG, Form
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import TopologyRun
from gpuform.stacks.engine.registration import Read, Registration, position
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, make_urn
from gpuform.stacks.engine.values import from_plain
from gpuform.stacks.topology.declarations import ModuleInstance
from gpuform.stacks.topology.declaring.deferred import Handle, waits_of
from gpuform.stacks.topology.declaring.resources import (
    GivenAlias,
    Resource,
    named_by,
    typed_properties,
    untyped,
)
from gpuform.stacks.topology.declaring.tasks import NO_NEEDS, Loop, Source, Task
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.options import LATE, LISTS, SINGLE, items
from gpuform.stacks.topology.planning import Checked, Planned
from gpuform.stacks.topology.scope import Scope


@dataclass(slots=True)
class Prepared:
    """What a topology declares, without the files that it was read from.

    `failure` is what is wrong with it and can be told only when the rest has been declared.
    """

    run: TopologyRun
    tasks: list[Task]
    failure: Exception | None

    def declare(self) -> None:
        """Declares stack references, modules and resources, each after what it needs, and outputs.

        To be called once. Raises the failure, and Ended.
        """
        Loop(self.run).run(self.tasks)
        if self.failure is not None:
            raise self.failure


def prepare(planned: Planned, run: TopologyRun) -> Prepared:
    """What there is to declare. Nobody needs the planned topology afterwards, which is large."""
    return _Preparing(planned, run).go()


def declare_nothing(run: TopologyRun) -> None:
    """The stack, for a topology that cannot be planned."""
    stack = _stack(run)
    Loop(run).run([Task(Handle(stack.urn, untyped), NO_NEEDS, lambda: stack)])
    run.declarations.export(stack.urn, {})


def _stack(run: TopologyRun) -> Registration:
    project, stack = run.program.project, run.program.stack
    name = f"{project}-{stack}"
    urn = make_urn(stack, project, "", STACK_TYPE, name)
    return Registration(
        urn, STACK_TYPE, name, False, {}, property_dependencies={}, custom_timeouts={}
    )


class _Preparing:
    def __init__(self, planned: Planned, run: TopologyRun) -> None:
        self.planned, self.run = planned, run
        self.source = Source(planned, run)
        self.scope = Scope(replace(planned.names, source=self.source, passed={}))
        self.root = str(run.program.root)
        self.handed_over = position(*run.handed_over, self.root)
        self.stack = _stack(run)
        self.form: Form | None = None
        self.protected: dict[Handle, bool | None] = {}
        self.files: dict[str, Path] = {}
        self.tasks: list[Task] = []

    def go(self) -> Prepared:
        """All of it."""
        root, stack = Handle(self.stack.urn, untyped), self.stack
        first = Task(root, NO_NEEDS, lambda: stack)
        exported: dict[str, Any] = {}
        failure: Exception | None = None
        try:
            self._prepare(exported)
        except EngineError as error:
            failure, exported = error, {}
        if self.source.failure is not None:
            return Prepared(self.run, [first], self.source.failure)
        self._let_go()
        outputs = Task(root, waits_of(exported), exports=exported)
        return Prepared(self.run, [first, outputs, *self.tasks], failure)

    def _prepare(self, exported: dict[str, Any]) -> None:
        """Every task, in the order in which a program would come to it."""
        planned = self.planned
        for name, entry in planned.topology.stack_references.items():
            self._refer(name, _value(self.scope, entry.node))
        for module in planned.modules:
            self._include(module)
        for resource in planned.resources:
            self._add(resource)
        for module, handle in self.source.modules.items():
            inside = self.scope.of(module)
            entries = module.declaration.topology.outputs
            given = {name: _value(inside, entry.node) for name, entry in entries.items()}
            self.tasks.append(Task(handle, waits_of(given) | {handle}, exports=given))
        for name, entry in planned.topology.outputs.items():
            exported[name] = _value(self.scope, entry.node)

    def _let_go(self) -> None:
        """Of what has been declared: a value that is to come holds its own part of the files."""
        for resource in self.planned.resources:
            resource.instance.declaration.properties.clear()
        self.planned.resources.clear()

    def _urn(self, type_: str, name: str, parent: str) -> str:
        return make_urn(self.run.program.stack, self.run.program.project, parent, type_, name)

    def _refer(self, name: str, stack: str) -> None:
        read = Read(
            urn=self._urn(STACK_REFERENCE_TYPE, name, self.stack.urn),
            type=STACK_REFERENCE_TYPE,
            name=name,
            id=stack,
            inputs={"name": from_plain(stack)},
            parent=self.stack.urn,
            source_position=self.handed_over,
            stack_trace=[self.handed_over],
        )
        handle = Handle(read.urn, untyped, dict(read.inputs), read_id=stack)
        self.source.stacks[name] = handle
        self.tasks.append(Task(handle, NO_NEEDS, lambda: read))

    def _include(self, module: ModuleInstance) -> None:
        outer = self.source.modules[module.module] if module.module else None
        parent = outer.urn if outer else self.stack.urn
        made = Registration(
            urn=self._urn(MODULE_TYPE, module.name, parent),
            type=MODULE_TYPE,
            name=module.name,
            custom=False,
            inputs={},
            parent=parent,
            property_dependencies={},
            custom_timeouts={},
        )
        handle = self.source.modules[module] = Handle(made.urn, untyped)
        waits = frozenset([outer]) if outer else NO_NEEDS
        self.tasks.append(Task(handle, waits, lambda: made))

    def _add(self, resource: Checked) -> None:
        instance, declaration = resource.instance, resource.instance.declaration
        problems = Diagnostics()
        scope = self.scope.of(instance.module).within(instance, problems)
        _raise(problems)
        options = self._options(declaration.options, scope)
        form = self._form(declaration.place)
        parent: Handle | None = options.get("parent")
        if parent is None and instance.module:
            parent = self.source.modules[instance.module]
        parent_urn = parent.urn if parent else self.stack.urn
        protect = options.get("protect")
        if protect is None and parent is not None:
            protect = self.protected.get(parent)
        type_ = form.build_type(declaration.platform, declaration.kind)
        urn = self._urn(type_, instance.name, parent_urn)
        handle = Handle(urn, typed_properties(declaration.platform, declaration.kind))
        self.source.resources[instance] = handle
        self.protected[handle] = protect
        arguments: dict[str, Any] = {}
        is_read = options.get("id") is not None
        if not is_read:
            arguments = {
                name: _value(scope, resource.properties[name].node)
                if contains_unknown(value)
                else value
                for name, value in resource.values.items()
            }
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
            place=declaration.place,
            trace=self._trace(declaration.place),
        )
        waits = waits_of([*arguments.values(), *(options.get(key) for key in LATE)])
        waits = waits.union(*map(named_by, options.values()), [parent] if parent else ())
        self.tasks.append(Task(handle, waits, declared.read if is_read else declared.register))

    def _form(self, place: SourcePosition) -> Form:
        if self.form is None:
            try:
                config, stack = self.run.program.config, self.run.program.stack
                self.form = parse_form(config.get(FORM_CONFIG), stack)
            except UnknownForm as error:
                raise EngineError(f"{place.file}:{place.line}: {error}") from None
        return self.form

    def _trace(self, place: SourcePosition) -> list[str]:
        """The program's own lines, the innermost first."""
        files = [place, *(each for each in place.included if not each.file.endswith(".py"))]
        return [*(self._position(each) for each in files), self.handed_over]

    def _position(self, place: SourcePosition) -> str:
        if place.file not in self.files:
            self.files[place.file] = Path(place.file).resolve()
        return position(self.files[place.file], place.line, self.root)

    def _options(self, options: Mapping[str, Entry], scope: Scope) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, entry in options.items():
            if key in LISTS:
                value: Any = self._named(entry, scope)
            elif key in SINGLE:
                (value,) = self._named(entry, scope)
            elif key == "aliases":
                value = [self._alias(item, scope) for item in items(entry)]
            else:
                value = _value(scope, entry.node)
            if value is not None:
                found[key] = value
        return found

    def _named(self, entry: Entry, scope: Scope) -> list[Handle]:
        named = [each for item in items(entry) for each in scope.named(item) or ()]
        return [self.source.resources[each] for each in named]

    def _alias(self, node: Node, scope: Scope) -> GivenAlias:
        entries = node.entries if isinstance(node, MappingNode) else {}
        given = {
            key: _value(scope, entry.node) for key, entry in entries.items() if key != "parent"
        }
        parent: Any = ""
        if "parent" in entries:
            named = scope.named(entries["parent"].node)
            parent = self.source.resources[named[0]] if named else None
            parent = parent or _value(scope, entries["parent"].node)
        return GivenAlias(given, parent)


def _value(scope: Scope, node: Node) -> Any:
    problems = Diagnostics()
    value = scope.value(node, problems)
    _raise(problems)
    return value


def _raise(problems: Diagnostics) -> None:
    if problems:
        raise TopologyError(problems)
