"""The options of a registration as those of an entry."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.forms import Form
from gpuform.stacks.authoring.declared import Reference, Value
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_TYPE, type_of
from gpuform.stacks.lifecycles import kind_of

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
    own = lifecycle_class(*kind).secret_names() if kind else []
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
    own = {form.type_of(*kind) for form in Form} - {first.type} if kind else set()
    known = [{}, *given]
    found = [each for each in given if each.get("type") not in own or _untyped(each) not in known]
    if found:
        yield "aliases", found


def _untyped(alias: dict[str, Value]) -> dict[str, Value]:
    return {key: text for key, text in alias.items() if key != "type"}


def _resource(first: Asked, key: str, urn: str, sayer: Sayer) -> Reference | None:
    reference: Reference | None = sayer.named.get(urn)
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
