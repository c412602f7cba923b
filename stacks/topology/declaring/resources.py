"""Convert a resource of a topology to the registration or read that the engine receives.

`topologies` creates a `Resource` for each planned resource; `tasks` calls it when its
dependencies are registered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pulumi import _types
from pulumi.dynamic import dynamic
from pulumi.runtime import rpc

from gpuform.providers.catalog import load_lifecycle_class, load_resource_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY, Form
from gpuform.providers.values import UNKNOWN, UNKNOWN_TEXT, PropertyMap
from gpuform.stacks.document.diagnostics import DocumentDiagnostic, SourcePosition
from gpuform.stacks.engine.registration import Alias, Read, Registration, parse_timeouts
from gpuform.stacks.topology.declaring.deferred import (
    Deferred,
    Handle,
    create_secret,
    find_dependencies,
    serialize_value,
)
from gpuform.stacks.topology.errors import TopologyError


@dataclass(frozen=True, slots=True)
class DeclaredAlias:
    """A declared alias. `parent` is None for no parent, "" for the same parent."""

    fields: Mapping[str, Any]
    parent: Any

    @property
    def has_type(self) -> bool:
        """Return True if the alias declares a type of its own."""
        return isinstance(self.fields.get("type"), str)

    @property
    def dependencies(self) -> frozenset[Handle]:
        """Return the handles to register before the alias's parent is known."""
        return (
            frozenset([self.parent])
            if isinstance(self.parent, Handle)
            else find_dependencies(self.parent)
        )

    def create_alias(self, type_: str = "") -> Alias:
        """Return the engine's alias; `type_` replaces the declared type.

        A parent that is not known as text counts as unset, None as no parent.
        """
        set_fields = {key: value for key, value in self.fields.items() if value is not None}
        if type_:
            set_fields["type"] = type_
        parent = self.parent
        if isinstance(parent, Handle):
            parent = parent.urn
        elif isinstance(parent, Deferred):
            parent_urn = parent.resolve().value
            parent = parent_urn if isinstance(parent_urn, str) else ""
        return Alias(**set_fields, parent=parent or "", no_parent=parent is None)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource whose values may be known only after its dependencies are registered."""

    handle: Handle
    type_: str
    name: str
    parent: str
    protect: bool | None
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    lifecycle: type[Lifecycle[Any, Any]]
    form: Form
    position: SourcePosition
    trace: list[str]

    def create_registration(self) -> Registration:
        """Return the registration, with the other form of the type as an alias.

        A declared alias without a type counts in both forms. The serialized inputs are kept in the
        handle.
        """
        inputs, uses = self._serialize_inputs()
        self.handle.inputs = inputs
        options = self.options
        # The stack may have registered the resource in the other form before.
        other_type = self.form.other.build_type(self.lifecycle.platform, self.lifecycle.kind)
        aliases: Sequence[DeclaredAlias] = options.get("aliases", ())
        retyped_aliases = [
            alias.create_alias(other_type) for alias in aliases if not alias.has_type
        ]
        deleted_with: Handle | None = options.get("deleted_with")
        trigger = options.get("replacement_trigger")
        return Registration(
            urn=self.handle.urn,
            type=self.type_,
            name=self.name,
            custom=True,
            inputs=inputs,
            parent=self.parent,
            dependencies=sorted(
                {*self._list_dependency_urns(), *(urn for urns in uses.values() for urn in urns)}
            ),
            property_dependencies=uses,
            protect=self.protect,
            retain_on_delete=options.get("retain_on_delete"),
            delete_before_replace=options.get("delete_before_replace"),
            ignore_changes=list(options.get("ignore_changes", ())),
            replace_on_changes=list(options.get("replace_on_changes", ())),
            additional_secret_outputs=self._list_secret_outputs(),
            custom_timeouts=parse_timeouts(self.name, options.get("timeouts", {})),
            aliases=[
                Alias(type=other_type),
                *retyped_aliases,
                *(alias.create_alias() for alias in aliases),
            ],
            source_position=self.trace[0],
            stack_trace=self.trace,
            import_id=options.get("import", ""),
            deleted_with=deleted_with.urn if deleted_with else "",
            replace_with=sorted(resource.urn for resource in options.get("replace_with", ())),
            replacement_trigger=serialize_value(trigger, set()),
        )

    def create_read(self) -> Read:
        """Create the read of a declared id, and set id and inputs of the handle."""
        id_ = self._serialize_id()
        self.handle.read_id = "" if id_ is None else id_
        self.handle.inputs = self._create_provider_inputs()
        return Read(
            urn=self.handle.urn,
            type=self.type_,
            name=self.name,
            id=self.handle.read_id,
            inputs=self.handle.inputs,
            parent=self.parent,
            dependencies=sorted(self._list_dependency_urns()),
            additional_secret_outputs=self._list_secret_outputs(),
            source_position=self.trace[0],
            stack_trace=self.trace,
        )

    def _serialize_inputs(self) -> tuple[PropertyMap, dict[str, list[str]]]:
        """Return the serialized inputs, and the dependencies of each input as URNs.

        Inputs of secret properties become secret; inputs without a value are left out.
        """
        secret_names = self.lifecycle.list_secret_names()
        inputs = self._create_provider_inputs()
        uses: dict[str, list[str]] = {name: [] for name in inputs}
        for name, value in self.arguments.items():
            urns = set[str]()
            is_secret = name in secret_names and value is not None
            sent = serialize_value(create_secret(value) if is_secret else value, urns)
            if sent is not None:
                inputs[name], uses[name] = sent, sorted(urns)
        return {name: inputs[name] for name in sorted(inputs)}, dict(sorted(uses.items()))

    def _create_provider_inputs(self) -> PropertyMap:
        """Return the pickled provider of a dynamic resource; empty for resources of the plugin."""
        return (
            {PROVIDER_KEY: _pickle_provider(self.lifecycle.platform, self.lifecycle.kind)}
            if self.form is Form.DYNAMIC
            else {}
        )

    def _list_dependency_urns(self) -> set[str]:
        """Return the URNs of the resources in the option `depends_on`."""
        return {resource.urn for resource in self.options.get("depends_on", ())}

    def _list_secret_outputs(self) -> list[str]:
        """Return the kind's secret properties, and those in `additional_secret_outputs`."""
        additional_names = self.options.get("additional_secret_outputs", ())
        return [*self.lifecycle.list_secret_names(), *additional_names]

    def _serialize_id(self) -> str | None:
        """Return the id of an object to read: text, Pulumi's text for unknown, or None.

        Raises TopologyError for any other value and for a secret.
        """
        sent = serialize_value(self.options["id"], set())
        if sent is UNKNOWN:
            return UNKNOWN_TEXT
        if sent is None or isinstance(sent, str):
            return sent
        message = "the id of an existing object must be text, and not secret"
        raise TopologyError([DocumentDiagnostic(self.position, "value", message)])


def keep_value(_name: str, value: Any) -> Any:
    """Return the value unchanged: the type converter of components and stack references."""
    return value


@cache
def create_type_converter(platform: str, kind: str) -> Callable[[str, Any], Any]:
    """Return a function from property values to values of the types in the resource's class.

    Texts, booleans and values of unknown properties stay as they are.
    """
    types = _types.resource_types(load_resource_class(platform, kind))

    def convert_property(name: str, value: Any) -> Any:
        declared_type = types.get(name)
        if declared_type is None or isinstance(value, str | bool):
            return value
        return rpc.translate_output_properties(value, _keep_name, declared_type)

    return convert_property


def _keep_name(name: str) -> str:
    """Return the property name unchanged, for Pulumi's translation of nested properties."""
    return name


@cache
def _pickle_provider(platform: str, kind: str) -> str:
    """Return the kind's lifecycle, serialized as the provider of Pulumi's dynamic resources."""
    return str(dynamic.serialize_provider(load_lifecycle_class(platform, kind)()))


def find_named_handles(option: Any) -> Iterator[Handle]:
    """Yield the handles of the resources named in an option's value."""
    for named in option if isinstance(option, list) else [option]:
        if isinstance(named, Handle):
            yield named
        elif isinstance(named, DeclaredAlias):
            yield from named.dependencies
