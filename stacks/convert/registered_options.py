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

_FLAGS: Final = ("protect", "retain_on_delete", "delete_before_replace")
_LISTS: Final = ("ignore_changes", "replace_on_changes")
_PER_HOUR, _PER_MINUTE = 3600, 60

Asked = Registration | Read


_VERBS: Final = ("create", "update", "delete")
"""Those that the option has."""


class Sayer(Protocol):
    """Says values, and notes those that cannot be said."""

    named: Any

    def value(
        self, asked: Sequence[Asked], key: str, values: Sequence[Any], needed: Sequence[str]
    ) -> Value: ...

    def refuse(self, asked: Asked, key: str, why: str) -> None: ...


def options_of(asked: Sequence[Asked], sayer: Sayer) -> dict[str, Value]:
    """What is not as it is without options; `id` and `depends_on` are the caller's."""
    return dict(_options(asked, sayer))


def _options(asked: Sequence[Asked], sayer: Sayer) -> Iterator[tuple[str, Value]]:
    first = asked[0]
    if first.parent and type_of(first.parent) not in (STACK_TYPE, MODULE_TYPE):  # modules are told
        yield "parent", _resource(first, "parent", first.parent, sayer)
    yield from _secret_outputs(first)
    if isinstance(first, Registration):
        yield from _plain_options(first)
        yield from _named_options(first, sayer)
        if first.replacement_trigger is not None:
            triggers = [
                each.replacement_trigger for each in asked if isinstance(each, Registration)
            ]
            yield "replacement_trigger", sayer.value(asked, "replacement_trigger", triggers, ())
        if first.hide_diff:
            sayer.refuse(first, "hide_diff", "is an option of Pulumi")
        yield from _aliases(first, sayer)


def _plain_options(first: Registration) -> Iterator[tuple[str, Value]]:
    for name in _FLAGS:
        if getattr(first, name):
            yield name, True
    if first.delete_before_replace is False:
        yield "delete_before_replace", False
    for name in _LISTS:
        if getattr(first, name):
            yield name, list(getattr(first, name))
    timeouts = first.custom_timeouts or {}
    spans = {verb: _span(seconds) for verb, seconds in timeouts.items() if verb in _VERBS}
    if spans:
        yield "timeouts", spans
    if first.import_id:
        yield "import", first.import_id


def _named_options(first: Registration, sayer: Sayer) -> Iterator[tuple[str, Value]]:
    """Options that name other resources."""
    if first.deleted_with:
        yield "deleted_with", _resource(first, "deleted_with", first.deleted_with, sayer)
    if first.replace_with:
        named = [_resource(first, "replace_with", urn, sayer) for urn in first.replace_with]
        yield "replace_with", named


def _secret_outputs(first: Asked) -> Iterator[tuple[str, Value]]:
    kind = kind_of(first.type)
    own = load_lifecycle_class(*kind).list_secret_names() if kind else []
    more = [name for name in first.additional_secret_outputs if name not in own]
    if more:
        yield "additional_secret_outputs", more


def _aliases(first: Registration, sayer: Sayer) -> Iterator[tuple[str, Value]]:
    given: list[dict[str, Value]] = []
    for alias in first.aliases:
        if alias.urn or alias.stack or alias.project or alias.no_parent:
            sayer.refuse(first, "aliases", "is a whole URN, or of another stack")
            continue
        said = {"name": alias.name, "type": alias.type, "parent": alias.parent}
        given.append({key: text for key, text in said.items() if text})
    # A resource adds itself in the other form, also under every name that it had.
    kind = kind_of(first.type)
    own = {form.build_type(*kind) for form in Form} - {first.type} if kind else set()
    known = [{}, *given]
    found = [each for each in given if each.get("type") not in own or _untyped(each) not in known]
    if found:
        yield "aliases", found


def _untyped(alias: dict[str, Value]) -> dict[str, Value]:
    return {key: text for key, text in alias.items() if key != "type"}


def _resource(first: Asked, key: str, urn: str, sayer: Sayer) -> ResourceReference | None:
    reference: ResourceReference | None = sayer.named.get(urn)
    if reference is None:
        sayer.refuse(first, key, f"is {urn}")
    return reference


def _span(seconds: float) -> str:
    """As people write it: 1h30m."""
    hours, rest = divmod(seconds, _PER_HOUR)
    minutes, rest = divmod(rest, _PER_MINUTE)
    parts = [f"{hours:.0f}h"] if hours else []
    parts += [f"{minutes:.0f}m"] if minutes else []
    parts += [f"{rest:g}s"] if rest or not parts else []
    return "".join(parts)


_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
_TELLING: Final = 6
"""A shorter text is in others by chance."""


class Disclosed(Exception):
    """A topology could only say the value by showing what is secret."""


@dataclass(slots=True)
class SecretValues:
    """`known` are those that the stack's configuration has already: by value, its key.

    `texts` are in no value that is written, though that is not called secret.
    """

    known: Mapping[str, str] = field(default_factory=dict)
    texts: Iterable[str] = ()
    wanted: dict[str, str] = field(default_factory=dict)
    """By key, what the stack still has to be told."""
    _used: dict[str, ConfigEntry] = field(default_factory=dict)
    _by_value: dict[tuple[str, str], str] = field(default_factory=dict)
    _telling: list[str] = field(init=False)

    def __post_init__(self) -> None:
        own = chain.from_iterable(map(_leaves, map(_read, self.known)))
        self._telling = sorted(
            {text for text in chain(self.texts, own) if len(text) >= _TELLING}, key=len
        )

    def value(self, name: Sequence[str], secret: Any) -> ConfigReference | None:
        """The configuration that stands for a secret; `name` is where it was found."""
        if secret is None:
            return None
        type_ = _TYPES[type(secret)]
        text = secret if isinstance(secret, str) else json.dumps(secret)
        key = self._known(secret)
        if key is None:
            key = self._by_value.get((type_, text)) or self._new(name)
            self._by_value[type_, text] = key
            self.wanted[key] = text
        self.use(key, type_)
        return ConfigReference(key)

    def text(self, name: Sequence[str], mixed: InterpolatedText) -> InterpolatedText:
        """A secret text with references: what is written out in it becomes configuration."""
        parts = [
            self.value(name, part) if isinstance(part, str) and _tells(part) else part
            for part in mixed.parts
        ]
        return InterpolatedText(tuple(part for part in parts if part is not None))

    def kept(self, name: Sequence[str], value: Any) -> Any:
        """A text that is not called secret: configuration where it has a secret's text in it."""
        if isinstance(value, str):
            return self.value(name, value) if self.is_in(value) else value
        if isinstance(value, InterpolatedText):
            parts = [self.kept(name, part) for part in value.parts]
            return InterpolatedText(tuple(parts))
        return value

    def is_in(self, text: str) -> bool:
        """Whether a text has that of a secret in it."""
        fitting = self._telling[: bisect_right(self._telling, len(text), key=len)]
        return any(secret in text for secret in fitting)

    def use(self, key: str, type_: str = "string") -> None:
        """Notes a variable that the topology declares."""
        said = {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
        self._used.setdefault(key, ConfigEntry(key, said))

    def variables(self) -> list[ConfigEntry]:
        """Those that were used, in the order of their first use."""
        return list(self._used.values())

    def _known(self, secret: Any) -> str | None:
        if isinstance(secret, str):
            return self.known.get(secret)
        same = (
            key
            for text, key in self.known.items()
            if type(read := _read(text)) is type(secret) and read == secret
        )
        return next(same, None)

    def _new(self, name: Sequence[str]) -> str:
        taken = {*self.known.values(), *self.wanted}
        parts = [re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "secret" for part in name]
        short, long = "_".join(parts[1:]), "_".join(parts)
        tries = chain((short, long), (f"{long}_{number}" for number in count(2)))
        return next(each for each in tries if each not in taken)


def texts_in(value: PropertyValue, *, secret: bool) -> Iterator[str]:
    """The texts inside of secrets, or those outside, at any depth."""
    if isinstance(value, Secret):
        yield from _leaves(to_display_value(value, show_secrets=True)) if secret else ()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item, secret=secret)
    elif isinstance(value, str) and not secret:
        yield value


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _read(text: str) -> Any:
    """What the text of a configuration value is read as, if it has a type."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tells(part: str) -> bool:
    """Whether a part of a secret text is more than what separates others."""
    return any(sign.isalnum() for sign in part)


class NotConverted(EngineError):
    """Names everything that stands in the way; nothing has been written."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        self.problems = problems
        told = "".join(f"\n{_told(problem)}" for problem in problems)
        super().__init__(f"this cannot be converted; nothing was written:{told}")


class TerraformNotRead(EngineError):
    """Files of Terraform that cannot be read, or are not there."""

    help_page = "guides/terraform"


NOWHERE: Final = 0
"""The line of what no line is known of."""


def _told(problem: Diagnostic) -> str:
    if problem.position.line != NOWHERE:
        return str(problem)
    return f"{problem.position.file}: {problem.message}" + (
        f"\n  {problem.hint}" * bool(problem.hint)
    )
