"""Declares a planned topology to gpuform's own engine: what a program with the SDK would declare.

One thread evaluates and declares; others wait for providers. A resource is declared as soon as all
that it needs has been registered.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from pulumi import _types
from pulumi.dynamic import dynamic
from pulumi.runtime import rpc

from gpuform.providers.catalog import lifecycle_class, resource_class
from gpuform.providers.forms import FORM_CONFIG, Form, UnknownForm, form_of
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.properties import PROVIDER_KEY
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import Answer, TopologyRun
from gpuform.stacks.engine.registration import Alias, Read, Registration, position, timeouts_of
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, make_urn
from gpuform.stacks.engine.values import UNKNOWN, UNKNOWN_TEXT, PropertyMap, from_plain
from gpuform.stacks.topology.checking import Checked
from gpuform.stacks.topology.deferred import (
    Deferred,
    Handle,
    Settled,
    is_deferred,
    joined,
    property_of,
    secret,
    serialized,
    waits_of,
)
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.instances import Instance, ModuleInstance
from gpuform.stacks.topology.options import LATE, LISTS, SINGLE, items
from gpuform.stacks.topology.planning import Planned
from gpuform.stacks.topology.scope import Scope

_STACK_NAMES: Final = ("outputs", "secretOutputNames")
_NO_NEEDS: Final[frozenset[Handle]] = frozenset()


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
        outputs, names = (property_of(handle, each, preview=preview) for each in _STACK_NAMES)

        def made() -> Settled:
            every, secrets = outputs.settled(), names.settled()
            is_secret = every.secret
            if secrets.value is not UNKNOWN and secrets.value is not None:
                is_secret = name in secrets.value
            if every.value is UNKNOWN:
                return Settled(UNKNOWN, is_secret, every.urns)
            if name not in every.value:
                raise TopologyError([self._no_output(reference, name, every.value)])
            return Settled(every.value[name], is_secret, every.urns)

        return Deferred(made, outputs.waits)

    def _no_output(self, reference: str, name: str, known: Mapping[str, Any]) -> Diagnostic:
        message = f"the stack of stack_references.{reference} has no output {name}"
        hint = f"there is {', '.join(sorted(known))}" if known else "it has none at all"
        place = self._planned.topology.stack_references[reference].place
        return Diagnostic(place, "reference", message, hint)

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self._checking.lookup(platform, name)

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self._checking.about(name)

    def is_pending(self, value: Any) -> bool:
        """Whether it holds a deferred value."""
        return is_deferred(value)

    def join(self, values: Sequence[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
        """A deferred value: secret, unknown and dependent as its parts are.

        What needs no resource is made at once: it may fail, and nothing has been registered yet.
        """
        found = joined(values, make)
        if not found.waits:
            try:
                found.settled()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
                self.failure = self.failure or error
        return found


@dataclass(eq=False, slots=True)
class _Task:
    """Something to declare or to export when all that it `waits` for has been registered."""

    handle: Handle
    waits: frozenset[Handle]
    make: Callable[[], Registration | Read] | None = None
    exports: Mapping[str, Any] = field(default_factory=dict)
    left: int = 0


def declare(planned: Planned, run: TopologyRun) -> None:
    """Declares stack references, modules and resources, each after what it needs, and outputs."""
    _Declaring(planned, run).go()


def declare_nothing(run: TopologyRun) -> None:
    """The stack, for a topology that cannot be planned."""
    stack = _stack(run)
    _Loop(run).run([_Task(Handle(stack.urn, _as_it_is), _NO_NEEDS, lambda: stack)])
    run.declarations.export(stack.urn, {})


def _stack(run: TopologyRun) -> Registration:
    project, stack = run.program.project, run.program.stack
    name = f"{project}-{stack}"
    urn = make_urn(stack, project, "", STACK_TYPE, name)
    return Registration(
        urn, STACK_TYPE, name, False, {}, property_dependencies={}, custom_timeouts={}
    )


class _Declaring:
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
        self.tasks: list[_Task] = []

    def go(self) -> None:
        """Declares all of it."""
        root = Handle(self.stack.urn, _as_it_is)
        first = _Task(root, _NO_NEEDS, lambda: self.stack)
        exported: dict[str, Any] = {}
        failure: EngineError | None = None
        try:
            self._prepare(exported)
        except EngineError as error:
            failure, exported = error, {}
        if self.source.failure is not None:
            _Loop(self.run).run([first])
            raise self.source.failure
        outputs = _Task(root, waits_of(exported), exports=exported)
        self.tasks[:0] = [first, outputs]
        _Loop(self.run).run(self.tasks)
        if failure is not None:
            raise failure

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
            self.tasks.append(_Task(handle, waits_of(given) | {handle}, exports=given))
        for name, entry in planned.topology.outputs.items():
            exported[name] = _value(self.scope, entry.node)

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
        handle = Handle(read.urn, _as_it_is, dict(read.inputs), read_id=stack)
        self.source.stacks[name] = handle
        self.tasks.append(_Task(handle, _NO_NEEDS, lambda: read))

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
        handle = self.source.modules[module] = Handle(made.urn, _as_it_is)
        waits = frozenset([outer]) if outer else _NO_NEEDS
        self.tasks.append(_Task(handle, waits, lambda: made))

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
        type_ = form.type_of(declaration.platform, declaration.kind)
        urn = self._urn(type_, instance.name, parent_urn)
        handle = Handle(urn, _typed(declaration.platform, declaration.kind))
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
        declared = _Resource(
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
        waits = waits.union(*map(_named_by, options.values()), [parent] if parent else ())
        self.tasks.append(_Task(handle, waits, declared.read if is_read else declared.register))

    def _form(self, place: SourcePosition) -> Form:
        if self.form is None:
            try:
                config, stack = self.run.program.config, self.run.program.stack
                self.form = form_of(config.get(FORM_CONFIG), stack)
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

    def _alias(self, node: Node, scope: Scope) -> "_Alias":
        entries = node.entries if isinstance(node, MappingNode) else {}
        given = {
            key: _value(scope, entry.node) for key, entry in entries.items() if key != "parent"
        }
        parent: Any = ""
        if "parent" in entries:
            named = scope.named(entries["parent"].node)
            parent = self.source.resources[named[0]] if named else None
            parent = parent or _value(scope, entries["parent"].node)
        return _Alias(given, parent)


@dataclass(frozen=True, slots=True)
class _Alias:
    """An alias as it is given; the parent is None for none, and empty for the same one."""

    given: Mapping[str, Any]
    parent: Any

    @property
    def has_type(self) -> bool:
        return isinstance(self.given.get("type"), str)

    @property
    def waits(self) -> frozenset[Handle]:
        return (
            frozenset([self.parent]) if isinstance(self.parent, Handle) else waits_of(self.parent)
        )

    def made(self, type_: str = "") -> Alias:
        said = {key: value for key, value in self.given.items() if value is not None}
        if type_:
            said["type"] = type_
        parent = self.parent
        if isinstance(parent, Handle):
            parent = parent.urn
        elif isinstance(parent, Deferred):
            found = parent.settled().value
            parent = found if isinstance(found, str) else ""
        return Alias(**said, parent=parent or "", no_parent=parent is None)


@dataclass(frozen=True, slots=True)
class _Resource:
    """One resource, with values that may be known only once what it needs has been registered."""

    handle: Handle
    type_: str
    name: str
    parent: str
    protect: bool | None
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    lifecycle: type[Lifecycle[Any, Any]]
    form: Form
    place: SourcePosition
    trace: list[str]

    def register(self) -> Registration:
        inputs, uses = self._inputs()
        self.handle.inputs = inputs
        options = self.options
        before = self.form.other.type_of(self.lifecycle.platform, self.lifecycle.kind)
        own: Sequence[_Alias] = options.get("aliases", ())
        moved = [each.made(before) for each in own if not each.has_type]
        deleted_with: Handle | None = options.get("deleted_with")
        trigger = options.get("replacement_trigger")
        return Registration(
            urn=self.handle.urn,
            type=self.type_,
            name=self.name,
            custom=True,
            inputs=inputs,
            parent=self.parent,
            dependencies=sorted({*self._after(), *(urn for urns in uses.values() for urn in urns)}),
            property_dependencies=uses,
            protect=self.protect,
            retain_on_delete=options.get("retain_on_delete"),
            delete_before_replace=options.get("delete_before_replace"),
            ignore_changes=list(options.get("ignore_changes", ())),
            replace_on_changes=list(options.get("replace_on_changes", ())),
            additional_secret_outputs=self._secret_outputs(),
            custom_timeouts=timeouts_of(self.name, options.get("timeouts", {})),
            aliases=[Alias(type=before), *moved, *(each.made() for each in own)],
            source_position=self.trace[0],
            stack_trace=self.trace,
            import_id=options.get("import", ""),
            deleted_with=deleted_with.urn if deleted_with else "",
            replace_with=sorted(each.urn for each in options.get("replace_with", ())),
            replacement_trigger=serialized(trigger, set()),
        )

    def read(self) -> Read:
        id_ = self._id()
        self.handle.read_id = "" if id_ is None else id_
        self.handle.inputs = self._fixed()
        return Read(
            urn=self.handle.urn,
            type=self.type_,
            name=self.name,
            id=self.handle.read_id,
            inputs=self.handle.inputs,
            parent=self.parent,
            dependencies=sorted(self._after()),
            additional_secret_outputs=self._secret_outputs(),
            source_position=self.trace[0],
            stack_trace=self.trace,
        )

    def _inputs(self) -> tuple[PropertyMap, dict[str, list[str]]]:
        """What is sent, and on which resources each of it depends."""
        secret_names = self.lifecycle.secret_names()
        found = self._fixed()
        uses: dict[str, list[str]] = {name: [] for name in found}
        for name, value in self.arguments.items():
            urns = set[str]()
            is_secret = name in secret_names and value is not None
            sent = serialized(secret(value) if is_secret else value, urns)
            if sent is not None:
                found[name], uses[name] = sent, sorted(urns)
        return {name: found[name] for name in sorted(found)}, dict(sorted(uses.items()))

    def _fixed(self) -> PropertyMap:
        return (
            {PROVIDER_KEY: _pickled(self.lifecycle.platform, self.lifecycle.kind)}
            if self.form is Form.DYNAMIC
            else {}
        )

    def _after(self) -> set[str]:
        return {each.urn for each in self.options.get("depends_on", ())}

    def _secret_outputs(self) -> list[str]:
        given = self.options.get("additional_secret_outputs", ())
        return [*self.lifecycle.secret_names(), *given]

    def _id(self) -> str | None:
        sent = serialized(self.options["id"], set())
        if sent is UNKNOWN:
            return UNKNOWN_TEXT
        if sent is None or isinstance(sent, str):
            return sent
        message = "the id of what exists must be a text that is not secret"
        raise TopologyError([Diagnostic(self.place, "value", message)])


class _Loop:
    """Declares each task when all that it waits for has been registered.

    What fails ends it once what is under way has ended.
    """

    def __init__(self, run: TopologyRun) -> None:
        self._run = run
        self._ready: deque[_Task] = deque()
        self._waiting: dict[Handle, list[_Task]] = {}
        self._done: SimpleQueue[tuple[_Task, Answer | BaseException]] = SimpleQueue()
        self._flying = 0

    def run(self, tasks: list[_Task]) -> None:
        """All of them, which are taken from the list; the first before all others."""
        with ThreadPoolExecutor(self._run.threads, thread_name_prefix="resource") as pool:
            self._ready.append(tasks[0])
            self._go(pool)
            self._enqueue(tasks[1:])
            tasks.clear()
            self._go(pool)

    def _enqueue(self, tasks: Sequence[_Task]) -> None:
        for task in tasks:
            pending = [handle for handle in task.waits if handle.answer is None]
            task.left, task.waits = len(pending), _NO_NEEDS
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

    def _begin(self, task: _Task, pool: ThreadPoolExecutor) -> None:
        if task.make is None:
            self._run.declarations.export(task.handle.urn, _exported(task.exports))
            return
        answer = self._run.declarations.declare(task.make())
        if isinstance(answer, Answer):
            self._settle(task, answer)
            return
        self._flying += 1
        pool.submit(self._wait, task, answer)

    def _wait(self, task: _Task, work: Callable[[], Answer]) -> None:
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

    def _settle(self, task: _Task, answer: Answer) -> None:
        task.handle.answer = answer
        for each in self._waiting.pop(task.handle, ()):
            each.left -= 1
            if not each.left:
                self._ready.append(each)


def _exported(values: Mapping[str, Any]) -> PropertyMap:
    sent = {name: serialized(values[name], set()) for name in sorted(values)}
    return {name: value for name, value in sent.items() if value is not None}


def _named_by(option: Any) -> Iterator[Handle]:
    """The resources that the value of an option names."""
    for each in option if isinstance(option, list) else [option]:
        if isinstance(each, Handle):
            yield each
        elif isinstance(each, _Alias):
            yield from each.waits


def _value(scope: Scope, node: Node) -> Any:
    problems = Diagnostics()
    value = scope.value(node, problems)
    _raise(problems)
    return value


def _raise(problems: Diagnostics) -> None:
    if problems:
        raise TopologyError(problems)


def _as_it_is(_name: str, value: Any) -> Any:
    return value


@cache
def _typed(platform: str, kind: str) -> Callable[[str, Any], Any]:
    """Gives the values of a resource's properties the types that its class says."""
    types = _types.resource_types(resource_class(platform, kind))

    def typed(name: str, value: Any) -> Any:
        found = types.get(name)
        if found is None or isinstance(value, str | bool):
            return value
        return rpc.translate_output_properties(value, _same_name, found)

    return typed


def _same_name(name: str) -> str:
    return name


@cache
def _pickled(platform: str, kind: str) -> str:
    return str(dynamic.serialize_provider(lifecycle_class(platform, kind)()))
