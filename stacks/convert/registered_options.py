"""Convert the options of a registration to those of an entry, and move secret values into the
stack's configuration.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final, Protocol

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.forms import Form
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    InterpolatedText,
    ResourceReference,
    Value,
)
from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_TYPE, type_of
from gpuform.stacks.engine.values import PropertyValue, Secret
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.review.value_text import to_display_value

_FLAG_OPTIONS: Final = ("protect", "retain_on_delete", "delete_before_replace")
_LIST_OPTIONS: Final = ("ignore_changes", "replace_on_changes")
_PER_HOUR, _PER_MINUTE = 3600, 60

ResourceRequest = Registration | Read
"""A resource that a program creates or reads."""


_TIMEOUT_OPERATIONS: Final = ("create", "update", "delete")
"""The operations for which a topology can set timeouts."""


class ValueBuilder(Protocol):
    """Builds values of declarations, as `DeclarationBuilder` does."""

    references: Any

    def build_value(
        self,
        requests: Sequence[ResourceRequest],
        key: str,
        values: Sequence[Any],
        dependencies: Sequence[str],
    ) -> Value: ...

    def report_problem(self, request: ResourceRequest, key: str, reason: str) -> None: ...


def build_options(requests: Sequence[ResourceRequest], builder: ValueBuilder) -> dict[str, Value]:
    """Return the options of a resource, without options at default values.

    `requests` has one request for each run. The caller adds `id` and `depends_on`.
    """
    return dict(_iterate_options(requests, builder))


def _iterate_options(
    requests: Sequence[ResourceRequest], builder: ValueBuilder
) -> Iterator[tuple[str, Value]]:
    request = requests[0]
    # the stack and modules are parents by the position of the entry, without an option
    if request.parent and type_of(request.parent) not in (
        STACK_TYPE,
        MODULE_TYPE,
    ):  # modules are told
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
        if request.hide_diff:
            builder.report_problem(request, "hide_diff", "is an option of Pulumi")
        yield from _iterate_aliases(request, builder)


def _iterate_plain_options(request: Registration) -> Iterator[tuple[str, Value]]:
    """Yield the options without references to other resources."""
    for name in _FLAG_OPTIONS:
        if getattr(request, name):
            yield name, True
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
    request: Registration, builder: ValueBuilder
) -> Iterator[tuple[str, Value]]:
    """Yield the options with references to other resources."""
    if request.deleted_with:
        yield "deleted_with", _get_reference(request, "deleted_with", request.deleted_with, builder)
    if request.replace_with:
        references = [
            _get_reference(request, "replace_with", urn, builder) for urn in request.replace_with
        ]
        yield "replace_with", references


def _iterate_secret_outputs(request: ResourceRequest) -> Iterator[tuple[str, Value]]:
    kind = kind_of(request.type)
    known_secret_names = load_lifecycle_class(*kind).list_secret_names() if kind else []
    additional_names = [
        name for name in request.additional_secret_outputs if name not in known_secret_names
    ]
    if additional_names:
        yield "additional_secret_outputs", additional_names


def _iterate_aliases(request: Registration, builder: ValueBuilder) -> Iterator[tuple[str, Value]]:
    aliases: list[dict[str, Value]] = []
    for alias in request.aliases:
        if alias.urn or alias.stack or alias.project or alias.no_parent:
            builder.report_problem(request, "aliases", "is a whole URN, or of another stack")
            continue
        fields = {"name": alias.name, "type": alias.type, "parent": alias.parent}
        aliases.append({key: value for key, value in fields.items() if value})
    # A resource adds itself in the other form, also under every name that it had.
    kind = kind_of(request.type)
    other_types = {form.build_type(*kind) for form in Form} - {request.type} if kind else set()
    declared_aliases = [{}, *aliases]
    user_aliases = [
        alias_fields
        for alias_fields in aliases
        if alias_fields.get("type") not in other_types
        or _drop_type(alias_fields) not in declared_aliases
    ]
    if user_aliases:
        yield "aliases", user_aliases


def _drop_type(alias: dict[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in alias.items() if key != "type"}


def _get_reference(
    request: ResourceRequest, key: str, urn: str, builder: ValueBuilder
) -> ResourceReference | None:
    """Return the reference to another resource.

    Report a problem and return None if the resource is not converted.
    """
    reference: ResourceReference | None = builder.references.get(urn)
    if reference is None:
        builder.report_problem(request, key, f"is {urn}")
    return reference


def _format_duration(seconds: float) -> str:
    """Return the duration in Pulumi's notation, such as `1h30m`."""
    hours, remaining_seconds = divmod(seconds, _PER_HOUR)
    minutes, remaining_seconds = divmod(remaining_seconds, _PER_MINUTE)
    parts = [f"{hours:.0f}h"] if hours else []
    parts += [f"{minutes:.0f}m"] if minutes else []
    parts += [f"{remaining_seconds:g}s"] if remaining_seconds or not parts else []
    return "".join(parts)


_CONFIG_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
_MIN_SECRET_LENGTH: Final = 6
"""Shorter texts occur inside other texts by chance."""


class DisclosedSecret(Exception):
    """Raised for a value that a topology could express only by showing a secret."""


@dataclass(slots=True)
class SecretValues:
    """The secret values of a conversion, which become configuration.

    `keys_by_value` are secrets that the stack's configuration already has: value -> key.
    `secret_texts` must not occur in any written value, even where the value is not marked as
    secret. `missing_values` are values that the stack still needs, by key.
    """

    keys_by_value: Mapping[str, str] = field(default_factory=dict)
    secret_texts: Iterable[str] = ()
    missing_values: dict[str, str] = field(default_factory=dict)
    _variables: dict[str, ConfigEntry] = field(default_factory=dict)
    _new_keys_by_value: dict[tuple[str, str], str] = field(default_factory=dict)
    _searched_texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        config_texts = chain.from_iterable(
            map(_iterate_texts, map(_parse_config_value, self.keys_by_value))
        )
        self._searched_texts = sorted(
            {
                text
                for text in chain(self.secret_texts, config_texts)
                if len(text) >= _MIN_SECRET_LENGTH
            },
            key=len,
        )

    def get_reference(self, name: Sequence[str], secret: Any) -> ConfigReference | None:
        """Return the reference to the configuration with a secret, or None for a null.

        `name` is the path of the value; a new key is made of it. Equal secrets share a key.
        """
        if secret is None:
            return None
        type_ = _CONFIG_TYPES[type(secret)]
        config_text = secret if isinstance(secret, str) else json.dumps(secret)
        key = self._find_key(secret)
        if key is None:
            key = self._new_keys_by_value.get((type_, config_text)) or self._create_key(name)
            self._new_keys_by_value[type_, config_text] = key
            self.missing_values[key] = config_text
        self.declare_variable(key, type_)
        return ConfigReference(key)

    def replace_literal_parts(
        self, name: Sequence[str], interpolated_text: InterpolatedText
    ) -> InterpolatedText:
        """Return a secret text with configuration in the place of literal parts."""
        parts = [
            self.get_reference(name, part)
            if isinstance(part, str) and _has_alphanumeric(part)
            else part
            for part in interpolated_text.parts
        ]
        return InterpolatedText(tuple(part for part in parts if part is not None))

    def replace_secret_texts(self, name: Sequence[str], value: Any) -> Any:
        """Return a public value with configuration for texts in which a secret occurs."""
        if isinstance(value, str):
            return self.get_reference(name, value) if self.has_secret_in(value) else value
        if isinstance(value, InterpolatedText):
            parts = [self.replace_secret_texts(name, part) for part in value.parts]
            return InterpolatedText(tuple(parts))
        return value

    def has_secret_in(self, text: str) -> bool:
        """Return whether a secret occurs in the text."""
        short_enough_texts = self._searched_texts[
            : bisect_right(self._searched_texts, len(text), key=len)
        ]
        return any(secret in text for secret in short_enough_texts)

    def declare_variable(self, key: str, type_: str = "string") -> None:
        """Declare a secret variable; the first call for a key decides the type."""
        fields = {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
        self._variables.setdefault(key, ConfigEntry(key, fields))

    def list_variables(self) -> list[ConfigEntry]:
        """Return the declared variables in the order of first use."""
        return list(self._variables.values())

    def _find_key(self, secret: Any) -> str | None:
        if isinstance(secret, str):
            return self.keys_by_value.get(secret)
        matching_keys = (
            key
            for config_text, key in self.keys_by_value.items()
            if type(parsed := _parse_config_value(config_text)) is type(secret) and parsed == secret
        )
        return next(matching_keys, None)

    def _create_key(self, name: Sequence[str]) -> str:
        """Return a free key: the path without the first part if possible."""
        taken_keys = {*self.keys_by_value.values(), *self.missing_values}
        parts = [re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "secret" for part in name]
        short, long = "_".join(parts[1:]), "_".join(parts)
        candidates = chain((short, long), (f"{long}_{number}" for number in count(2)))
        return next(candidate for candidate in candidates if candidate not in taken_keys)


def find_texts(value: PropertyValue, *, secret: bool) -> Iterator[str]:
    """Yield the texts inside of secrets (`secret`) or outside, at any depth."""
    if isinstance(value, Secret):
        yield from _iterate_texts(to_display_value(value, show_secrets=True)) if secret else ()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from find_texts(item, secret=secret)
    elif isinstance(value, str) and not secret:
        yield value


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield texts and numbers at any depth, as texts."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_texts(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _parse_config_value(config_text: str) -> Any:
    """Return the value of a configuration text: parsed if it is JSON, else the text."""
    try:
        return json.loads(config_text)
    except ValueError:
        return config_text


def _has_alphanumeric(part: str) -> bool:
    """Return whether a part of a text is more than a separator."""
    return any(character.isalnum() for character in part)


class NotConverted(EngineError):
    """Raised with everything that prevents a conversion; nothing was written."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        self.problems = problems
        problem_lines = "".join(f"\n{_format_problem(problem)}" for problem in problems)
        super().__init__(f"this cannot be converted; nothing was written:{problem_lines}")


class TerraformNotRead(EngineError):
    """Raised for files of Terraform that are missing or cannot be read."""

    help_page = "guides/terraform"


NOWHERE: Final = 0
"""The line number of positions without a line."""


def _format_problem(problem: Diagnostic) -> str:
    if problem.position.line != NOWHERE:
        return str(problem)
    return f"{problem.position.file}: {problem.message}" + (
        f"\n  {problem.hint}" * bool(problem.hint)
    )
