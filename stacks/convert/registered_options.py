"""Convert the options of registrations to the options of entries.

`declaration_builder` calls `build_options` and builds the values inside of options.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.platform import Form
from gpuform.stacks.declaration_writer.declarations import (
    DeclaredReference,
    Value,
)
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_TYPE, type_of
from gpuform.stacks.resource_rules import find_kind

if TYPE_CHECKING:
    from gpuform.stacks.convert.declaration_builder import DeclarationBuilder

_FLAG_OPTIONS: Final = ("protect", "retain_on_delete", "delete_before_replace")
_LIST_OPTIONS: Final = ("ignore_changes", "replace_on_changes")
_PER_HOUR, _PER_MINUTE = 3600, 60

ResourceRequest = Registration | Read
"""A resource that a program creates or reads."""


_TIMEOUT_OPERATIONS: Final = ("create", "update", "delete")
"""The operations for which a topology can set timeouts."""


def build_options(
    requests: Sequence[ResourceRequest], builder: "DeclarationBuilder"
) -> dict[str, Value]:
    """Return the options of a resource, without options at default values.

    `requests` has one request for each run. The caller adds `id` and `depends_on`.
    """
    return dict(_iterate_options(requests, builder))


def _iterate_options(
    requests: Sequence[ResourceRequest], builder: "DeclarationBuilder"
) -> Iterator[tuple[str, Value]]:
    """Yield name and value of each option that a topology can declare.

    Options without an equivalent are reported to `builder`.
    """
    request = requests[0]
    # The stack needs no option, and modules are reported as problems of their own.
    if request.parent and type_of(request.parent) not in (STACK_TYPE, MODULE_TYPE):
        yield "parent", _get_reference(request, "parent", request.parent, builder)
    yield from _iterate_secret_outputs(request)
    if isinstance(request, Registration):
        yield from _iterate_plain_options(request)
        yield from _iterate_resource_options(request, builder)
        if request.replacement_trigger is not None:
            triggers = [
                run_request.replacement_trigger
                for run_request in requests
                if isinstance(run_request, Registration)
            ]
            yield (
                "replacement_trigger",
                builder.build_value(requests, "replacement_trigger", triggers, ()),
            )
        # Topologies have no such option.
        if request.hide_diff:
            builder.report_problem(request, "hide_diff", "is an option of Pulumi")
        yield from _iterate_aliases(request, builder)


def _iterate_plain_options(request: Registration) -> Iterator[tuple[str, Value]]:
    for name in _FLAG_OPTIONS:
        if getattr(request, name):
            yield name, True
    # Unlike the other flags, False is a choice: None leaves the order to the provider.
    if request.delete_before_replace is False:
        yield "delete_before_replace", False
    for name in _LIST_OPTIONS:
        if getattr(request, name):
            yield name, list(getattr(request, name))
    timeouts = request.custom_timeouts or {}
    durations = {
        operation: _format_duration(seconds)
        for operation, seconds in timeouts.items()
        if operation in _TIMEOUT_OPERATIONS
    }
    if durations:
        yield "timeouts", durations
    if request.import_id:
        yield "import", request.import_id


def _iterate_resource_options(
    request: Registration, builder: "DeclarationBuilder"
) -> Iterator[tuple[str, Value]]:
    if request.deleted_with:
        yield "deleted_with", _get_reference(request, "deleted_with", request.deleted_with, builder)
    if request.replace_with:
        references = [
            _get_reference(request, "replace_with", urn, builder) for urn in request.replace_with
        ]
        yield "replace_with", references


def _iterate_secret_outputs(request: ResourceRequest) -> Iterator[tuple[str, Value]]:
    """Yield `additional_secret_outputs` with the names not already secret in the lifecycle."""
    kind = find_kind(request.type)
    known_secret_names = load_lifecycle_class(*kind).list_secret_names() if kind else []
    # Secret outputs of a kind are secret without this option.
    additional_names = [
        name for name in request.additional_secret_outputs if name not in known_secret_names
    ]
    if additional_names:
        yield "additional_secret_outputs", additional_names


def _iterate_aliases(
    request: Registration, builder: "DeclarationBuilder"
) -> Iterator[tuple[str, Value]]:
    """Yield `aliases` with the aliases that the user wrote, if there are any.

    An alias with a URN, stack, project or `no_parent` is reported to `builder` and left out.
    """
    aliases: list[dict[str, Value]] = []
    for alias in request.aliases:
        # A topology's aliases have only name, type and parent.
        if alias.urn or alias.stack or alias.project or alias.no_parent:
            builder.report_problem(
                request, "aliases", "has an alias with a complete URN or of another stack"
            )
            continue
        fields = {"name": alias.name, "type": alias.type, "parent": alias.parent}
        aliases.append({key: value for key, value in fields.items() if value})
    # The SDK adds aliases of the other form by itself, for each name: the user did not write them.
    kind = find_kind(request.type)
    other_types = {form.build_type(*kind) for form in Form} - {request.type} if kind else set()
    # The empty alias stands for the resource itself, which the SDK also repeats with the other
    # type.
    declared_aliases = [{}, *aliases]
    user_aliases = [
        alias_fields
        for alias_fields in aliases
        if alias_fields.get("type") not in other_types
        or {k: v for k, v in alias_fields.items() if k != "type"} not in declared_aliases
    ]
    if user_aliases:
        yield "aliases", user_aliases


def _get_reference(
    request: ResourceRequest, key: str, urn: str, builder: "DeclarationBuilder"
) -> DeclaredReference | None:
    """Return the reference to another resource.

    Report a problem and return None if the resource is not converted.
    """
    reference = builder.references.get(urn)
    if reference is None:
        builder.report_problem(request, key, f"refers to {urn}")
    return reference


def _format_duration(seconds: float) -> str:
    """Return the duration in Pulumi's notation, such as `1h30m`."""
    hours, remaining_seconds = divmod(seconds, _PER_HOUR)
    minutes, remaining_seconds = divmod(remaining_seconds, _PER_MINUTE)
    parts = [f"{hours:.0f}h"] if hours else []
    parts += [f"{minutes:.0f}m"] if minutes else []
    parts += [f"{remaining_seconds:g}s"] if remaining_seconds or not parts else []
    return "".join(parts)
