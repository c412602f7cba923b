"""One resource of a topology as the engine is sent it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pulumi import _types
from pulumi.dynamic import dynamic
from pulumi.runtime import rpc

from gpuform.providers.catalog import load_lifecycle_class, load_resource_class
from gpuform.providers.forms import PROVIDER_KEY, Form
from gpuform.providers.lifecycle import Lifecycle
from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.registration import Alias, Read, Registration, timeouts_of
from gpuform.stacks.engine.values import UNKNOWN, UNKNOWN_TEXT, PropertyMap
from gpuform.stacks.topology.declaring.deferred import (
    Deferred,
    Handle,
    secret,
    serialized,
    waits_of,
)
from gpuform.stacks.topology.errors import TopologyError


@dataclass(frozen=True, slots=True)
class GivenAlias:
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
class Resource:
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
        before = self.form.other.build_type(self.lifecycle.platform, self.lifecycle.kind)
        own: Sequence[GivenAlias] = options.get("aliases", ())
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
        secret_names = self.lifecycle.list_secret_names()
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
        return [*self.lifecycle.list_secret_names(), *given]

    def _id(self) -> str | None:
        sent = serialized(self.options["id"], set())
        if sent is UNKNOWN:
            return UNKNOWN_TEXT
        if sent is None or isinstance(sent, str):
            return sent
        message = "the id of what exists must be a text that is not secret"
        raise TopologyError([Diagnostic(self.place, "value", message)])


def untyped(_name: str, value: Any) -> Any:
    return value


@cache
def typed_properties(platform: str, kind: str) -> Callable[[str, Any], Any]:
    """Gives the values of a resource's properties the types that its class says."""
    types = _types.resource_types(load_resource_class(platform, kind))

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
    return str(dynamic.serialize_provider(load_lifecycle_class(platform, kind)()))


def named_by(option: Any) -> Iterator[Handle]:
    """The resources that the value of an option names."""
    for each in option if isinstance(option, list) else [option]:
        if isinstance(each, Handle):
            yield each
        elif isinstance(each, GivenAlias):
            yield from each.waits
