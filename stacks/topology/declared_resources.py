"""Convert resources of a topology to what the engine receives, with values that are known later.

A value that is known once its resources are registered follows the rules of Pulumi's outputs: a
value made of an unknown value is unknown, a value made of a secret is secret, and a value made of
resources depends on these resources. `declaring` creates a `Resource` for each planned resource,
and calls it when its dependencies are registered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pulumi import _types
from pulumi.dynamic import dynamic
from pulumi.runtime import rpc

from gpuform.providers import values
from gpuform.providers.catalog import load_lifecycle_class, load_resource_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY, Form
from gpuform.providers.values import UNKNOWN_TEXT, PropertyMap, PropertyValue, Secret
from gpuform.schemas.values import UNKNOWN, contains_unknown, convert_leaves, iterate_leaves
from gpuform.stacks.document.diagnostics import DocumentDiagnostic, SourcePosition
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.language_host import ResourceResult
from gpuform.stacks.engine.registration import Alias, Read, Registration, parse_timeouts
from gpuform.stacks.topology.registering import TopologyError

_NOTHING: Final[frozenset[Any]] = frozenset()


@dataclass(eq=False, slots=True)
class Handle:
    """A declared resource or component, and the engine's answer once it is registered.

    `types` converts each property to the type that programs see. `read_id` is the id of a
    resource that is only read.
    """

    urn: str
    types: Callable[[str, Any], Any]
    inputs: PropertyMap = field(default_factory=dict)
    answer: ResourceResult | None = None
    read_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A value that is known, or `UNKNOWN` for the rest of the run.

    `urns` are the resources that the value depends on.
    """

    value: Any
    secret: bool = False
    urns: frozenset[str] = _NOTHING


@dataclass(eq=False, slots=True)
class Deferred:
    """A value that `make` computes once, after all `dependencies` are registered.

    `make` raises the errors of the value.
    """

    make: Callable[[], ResolvedValue]
    dependencies: frozenset[Handle] = _NOTHING
    _resolved: ResolvedValue | None = None

    def resolve(self) -> ResolvedValue:
        """Return the value, computed at the first call."""
        if self._resolved is None:
            self._resolved = self.make()
        return self._resolved


def is_deferred(value: Any) -> bool:
    """Return True if `value` contains a deferred value."""
    return any(True for _ in find_deferred(value))


def find_deferred(value: Any) -> Iterator[Deferred]:
    """Yield the deferred values inside a value, at any depth."""
    return (leaf for leaf in iterate_leaves(value) if isinstance(leaf, Deferred))


def find_dependencies(value: Any) -> frozenset[Handle]:
    """Return the handles to register before `value` is known."""
    return _NOTHING.union(*(deferred.dependencies for deferred in find_deferred(value)))


def join_values(
    parts: Sequence[Any], make: Callable[[Sequence[Any]], Any], of_secret: Callable[[], None]
) -> Deferred:
    """Defer the result of `make` for `parts` until all parts are known.

    If a part is secret, `of_secret` is called first and may raise. The result is unknown if a part
    is; then neither function is called.
    """

    def resolve_result() -> ResolvedValue:
        resolved = resolve_value(list(parts))
        if resolved.value is UNKNOWN:
            return resolved
        if resolved.secret:
            of_secret()
        return ResolvedValue(make(resolved.value), resolved.secret, resolved.urns)

    return Deferred(resolve_result, find_dependencies(list(parts)))


def create_secret(value: Any) -> Deferred:
    """Return a value as a deferred secret."""

    def resolve_secret() -> ResolvedValue:
        resolved = resolve_value(value)
        return ResolvedValue(resolved.value, secret=True, urns=resolved.urns)

    return Deferred(resolve_secret, find_dependencies(value))


def resolve_value(value: Any) -> ResolvedValue:
    """Return a value with all deferred values inside computed.

    The result is UNKNOWN if a part is unknown, and secret if a part is secret.
    """
    resolved_parts = [deferred.resolve() for deferred in find_deferred(value)]
    urns = _NOTHING.union(*(part.urns for part in resolved_parts))
    is_secret = any(part.secret for part in resolved_parts)
    if any(part.value is UNKNOWN for part in resolved_parts):
        return ResolvedValue(UNKNOWN, is_secret, urns)
    return ResolvedValue(
        convert_leaves(
            value, lambda leaf: leaf.resolve().value if isinstance(leaf, Deferred) else leaf
        ),
        is_secret,
        urns,
    )


def serialize_value(value: Any, urns: set[str]) -> PropertyValue:
    """Convert a value to a property value for the engine, and add dependencies to `urns`.

    An unknown part makes its deferred value unknown, a secret part secret.
    """
    if isinstance(value, Deferred):
        resolved = value.resolve()
        urns |= resolved.urns
        is_unknown = resolved.value is UNKNOWN
        sent = UNKNOWN if is_unknown else value_json.from_plain(resolved.value)
        return values.make_secret(sent) if resolved.secret else sent
    if isinstance(value, Mapping):
        if not is_deferred(value):
            return value_json.from_plain(value)
        return {key: serialize_value(value[key], urns) for key in sorted(value)}
    if isinstance(value, list):
        return [serialize_value(item, urns) for item in value]
    return value_json.from_plain(value)


def defer_property(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """Defer a property of a resource. The id and the URN are properties too.

    Without an output the value is the input, or None; in a preview or after a failure it is
    UNKNOWN.
    """
    return Deferred(lambda: _resolve_property(handle, name, preview), frozenset([handle]))


def defer_members(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """Defer an object property whose members may be known or unknown one by one."""
    return Deferred(
        lambda: _resolve_property(handle, name, preview, by_member=True), frozenset([handle])
    )


def _resolve_property(
    handle: Handle, name: str, preview: bool, *, by_member: bool = False
) -> ResolvedValue:
    """Resolve a property of a registered resource: the output or, without one, the input.

    UNKNOWN if a preview or a failed resource has no output, or a skipped resource neither of the
    two. With `by_member`, only the members of an object that contain an unknown value are unknown,
    not the object.
    """
    answer, urns = handle.answer, frozenset([handle.urn])
    # The tasks' dependencies guarantee an answer: without one, gpuform has a bug.
    if answer is None:
        raise AssertionError(f"{handle.urn} has not been registered")
    if name == "urn":
        return ResolvedValue(handle.urn, urns=urns)
    if name == "id":
        return ResolvedValue(_resolve_id(handle, answer, preview), urns=urns)
    outputs = {} if answer.failed else answer.outputs or {}
    keeps_unknowns = preview or (handle.read_id is None and not answer.failed)
    revealed = _reveal_value(outputs.get(name), unknown=UNKNOWN if keeps_unknowns else None)
    is_missing = revealed == (None, False)
    if is_missing and not preview and not answer.failed and name in handle.inputs:
        revealed = _reveal_value(handle.inputs[name], unknown=None)
    elif is_missing and (preview or answer.failed or answer.unknown):
        return ResolvedValue(UNKNOWN, urns=urns)
    plain, is_secret = revealed
    if by_member and isinstance(plain, dict):
        plain = {key: UNKNOWN if contains_unknown(item) else item for key, item in plain.items()}
    elif (plain is None and preview) or contains_unknown(plain):
        plain = UNKNOWN
    else:
        plain = handle.types(name, plain)
    return ResolvedValue(plain, is_secret, urns)


def _resolve_id(handle: Handle, answer: ResourceResult, preview: bool) -> Any:
    """Return the id in the answer, or for a failed read the requested one; UNKNOWN without any."""
    if answer.id or handle.read_id is None or preview:
        return answer.id or UNKNOWN
    return handle.read_id


def _reveal_value(value: PropertyValue, unknown: Any) -> tuple[Any, bool]:
    """Return a property value without secret marks, and whether any part is secret.

    UNKNOWN becomes `unknown`, and an integer a float; members without a value are removed from
    objects.
    """
    if isinstance(value, Secret):
        return _reveal_value(value.value, unknown)[0], True
    if isinstance(value, list):
        items = [_reveal_value(item, unknown) for item in value]
        return [item for item, _ in items], any(is_secret for _, is_secret in items)
    if isinstance(value, dict):
        members = {key: _reveal_value(item, unknown) for key, item in value.items()}
        present = {key: member for key, member in members.items() if member != (None, False)}
        plain = {key: item for key, (item, _) in present.items()}
        return plain, any(is_secret for _, is_secret in present.values())
    if value is UNKNOWN:
        return unknown, False
    if isinstance(value, int) and not isinstance(value, bool):
        # Pulumi's wire format has only doubles.
        return float(value), False
    return value, False


@dataclass(frozen=True, slots=True)
class DeclaredAlias:
    """A declared alias. `parent` is None for no parent, "" for the same parent."""

    fields: Mapping[str, Any]
    parent: Any

    @property
    def has_type(self) -> bool:
        """Return True if the alias declares another type."""
        return isinstance(self.fields.get("type"), str)

    @property
    def dependencies(self) -> frozenset[Handle]:
        """Return the handles to register before the alias's parent is known."""
        if isinstance(self.parent, Handle):
            return frozenset([self.parent])
        return find_dependencies(self.parent)

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
        """Create the declaration to read an object by id; set id and inputs of the handle."""
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
        if self.form is not Form.DYNAMIC:
            return {}
        return {PROVIDER_KEY: _pickle_provider(self.lifecycle.platform, self.lifecycle.kind)}

    def _list_dependency_urns(self) -> set[str]:
        return {resource.urn for resource in self.options.get("depends_on", ())}

    def _list_secret_outputs(self) -> list[str]:
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
