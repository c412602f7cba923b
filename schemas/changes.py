"""The difference between what is declared and what was last seen: pure, from the rules alone.

The provider asks it whether to update or replace, the review shows it: one truth. Only a field
that is declared now, or was declared last time, is compared; what a platform fills in never is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from gpuform.schemas.models import Problem
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.rules import FieldRules, KeyedBy, rules_of
from gpuform.schemas.values import UNKNOWN, Unknown, contains_unknown
from gpuform.schemas.visible import MASK

__all__ = [
    "RESUME",
    "UNKNOWN",
    "Action",
    "FieldChange",
    "Unknown",
    "changes",
    "contains_unknown",
    "is_change",
    "project",
    "refusals",
]

KNOWN_AFTER_APPLY: Final = "known after apply"
RESUME: Final = "resume waiting: "
"""What begins the reason of a change that goes on waiting for what is not ready."""
_NO_RULES: Final = FieldRules()


class Action(StrEnum):
    """What happens to one field. KEEP is no change: no longer declared, the platform keeps it."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field's change, or KEEP. ``before`` and ``after`` are None where there is no value.

    An item of a keyed list has its key in the path: ``add_ons["ingress"].config``.
    """

    path: str
    action: Action
    before: Any
    after: Any
    replaces: bool = False
    secret: bool = False
    because: str = ""
    shrinks: bool = False
    """A field that can only grow would become smaller."""
    only_recorded: bool = False
    """The state alone changes: the platform is sent nothing."""
    repair: NodeRepair | None = None
    """It is the repair of a node."""

    @property
    def is_sent(self) -> bool:
        """Whether the platform is asked for it."""
        return self.action is not Action.KEEP and not self.only_recorded

    def __repr__(self) -> str:
        before, after = (MASK, MASK) if self.secret else (self.before, self.after)
        forces = " (replaces)" if self.replaces else ""
        return f"<{self.action} {self.path}: {before!r} -> {after!r}{forces}>"


def changes(
    model: type[BaseModel], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> list[FieldChange]:
    """What has to change, in the order of the model.

    ``observed``: the fields declared last time, with the values last seen. ``declared``: the fields
    declared now, canonical; a value may be UNKNOWN at any depth.
    """
    return list(_fields(_Place("", _NO_RULES), rules_of(model), observed, declared))


def is_change(found: Sequence[FieldChange]) -> bool:
    """Whether anything has to be done."""
    return any(change.action is not Action.KEEP for change in found)


def refusals(
    model: type[BaseModel], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> list[Problem]:
    """The changes that the platform would refuse, unless the same changes replace the resource."""
    found = changes(model, observed, declared)
    if any(change.replaces for change in found):
        return []
    return [Problem(change.path, _cannot_shrink(change)) for change in found if change.shrinks]


def project(
    model: type[BaseModel], observed: Mapping[str, Any], like: Mapping[str, Any]
) -> dict[str, Any]:
    """What the platform says of the fields that ``like`` (the last echo) declares.

    What the platform filled in is left out, at every depth; what it does not return (write-only
    fields, absent or None ones) stays as it is in ``like``. Items of a keyed list come in the order
    of ``like``; one that is gone from the platform is gone here too, and one that is new there is
    here only if the list is declared as a whole.
    """
    return _project_fields(rules_of(model), observed, like)


def _cannot_shrink(change: FieldChange) -> str:
    sizes = "" if change.secret else f" from {_size(change.before)} to {_size(change.after)}"
    return (
        f"cannot shrink{sizes}: the platform only lets it grow. Declare the present size or more, "
        "or make a new one and move the data"
    )


def _size(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    rules: FieldRules

    def field(self, name: str, rules: FieldRules) -> "_Place":
        path = f"{self.path}.{name}" if self.path else name
        return _Place(path, rules.under(self.rules))

    def item(self, key: Any) -> "_Place":
        return _Place(f'{self.path}["{key}"]', self.rules)

    def change(self, action: Action, before: Any, after: Any, because: str = "") -> FieldChange:
        replaces, cause = self._replacement(before, after)
        return FieldChange(
            path=self.path,
            action=action,
            before=before,
            after=after,
            replaces=replaces,
            secret=self.rules.holds_secret,
            because=because or cause,
            shrinks=self.rules.grow_only and _is_smaller(self.rules, after, before),
        )

    def keep(self, before: Any) -> FieldChange:
        return FieldChange(
            path=self.path,
            action=Action.KEEP,
            before=before,
            after=before,
            secret=self.rules.holds_secret,
            because="no longer declared: the platform keeps its value",
        )

    def _replacement(self, before: Any, after: Any) -> tuple[bool, str]:
        rule = self.rules.replace_if
        if contains_unknown(before) or contains_unknown(after):
            return self.rules.immutable or rule is not None, KNOWN_AFTER_APPLY
        if self.rules.immutable:
            return True, "cannot be changed in place"
        has_both = before is not None and after is not None
        if rule is not None and has_both and rule.predicate(before, after):
            return True, rule.because
        return False, ""


def _fields(
    place: _Place,
    rules: Mapping[str, FieldRules],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[FieldChange]:
    # An object without a model is a free mapping: its own keys, which come in any order.
    for name in rules or sorted({*after, *before}):
        field = rules.get(name, _NO_RULES)
        if field.is_compared:
            inner = place.field(name, field)
            if rules or name in after:
                yield from _value(inner, before.get(name), after.get(name))
            else:
                yield inner.change(Action.DELETE, before[name], None)


def _value(place: _Place, before: Any, after: Any) -> Iterator[FieldChange]:
    if before is None:
        yield from _newly_declared(place, after)
    elif after is None:
        yield from _no_longer_declared(place, before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        if place.rules.is_map:
            yield from _entries(place, dict(sorted(before.items())), dict(sorted(after.items())))
        else:
            yield from _fields(place, place.rules.inner, before, after)
    elif (key := place.rules.keyed_by) and _is_keyed(key, before) and _is_keyed(key, after):
        yield from _items(place, key, before, after)
    elif contains_unknown(after) or not place.rules.is_same(before, after):
        yield place.change(Action.UPDATE, before, after)


def _newly_declared(place: _Place, after: Any) -> Iterator[FieldChange]:
    if after is None:
        return
    default = place.rules.default
    # In place, the default is sent all the same: from then on the field is watched for drift.
    if place.rules.immutable and default is not None and place.rules.is_same(default.value, after):
        return
    yield place.change(Action.ADD, None, after)


def _no_longer_declared(place: _Place, before: Any) -> Iterator[FieldChange]:
    default = place.rules.default
    if place.rules.recorded:
        yield place.change(Action.DELETE, before, None)
    elif default is None or place.rules.immutable:
        yield place.keep(before)
    elif not place.rules.is_same(before, default.value):
        yield place.change(
            Action.UPDATE, before, default.value, "no longer declared: back to the default"
        )


def _items(
    place: _Place, key: KeyedBy, before: Sequence[Any], after: Sequence[Any]
) -> Iterator[FieldChange]:
    new = {item[key.name]: item for item in after}
    old = {name: item for item in before if (name := item[key.name]) in new or not key.is_off(item)}
    yield from _entries(place, old, new)


def _entries(
    place: _Place, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[FieldChange]:
    for name, item in after.items():
        if name not in before:
            yield place.item(name).change(Action.ADD, None, item)
        elif item is UNKNOWN:
            yield place.item(name).change(Action.UPDATE, before[name], item)
        else:
            yield from _fields(place.item(name), place.rules.inner, before[name], item)
    for name, item in before.items():
        if name not in after:
            yield place.item(name).change(Action.DELETE, item, None, "no longer declared")


def _is_keyed(key: KeyedBy, value: Any) -> bool:
    """Whether ``value`` is a list whose items can be told apart by their key."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(item, Mapping) for item in value):
        return False
    names = [item.get(key.name) for item in value]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_smaller(rules: FieldRules, after: Any, before: Any) -> bool:
    if rules.measured is not None:
        return rules.measured.compared(after, before) == -1
    numbers = isinstance(after, int | float) and isinstance(before, int | float)
    return numbers and after < before


def _project_fields(
    rules: Mapping[str, FieldRules], observed: Mapping[str, Any], like: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        name: _project(rules.get(name, _NO_RULES), observed.get(name), declared)
        for name, declared in like.items()
    }


def _project(rules: FieldRules, observed: Any, like: Any) -> Any:
    if observed is None or like is None or rules.write_only:
        return like
    if isinstance(observed, Mapping) and isinstance(like, Mapping):
        if not rules.is_map:
            return _project_fields(rules.inner, observed, like)
        there = [key for key in like if key in observed]  # what is not, is gone
        return {key: _project_fields(rules.inner, observed[key], like[key]) for key in there}
    if (key := rules.keyed_by) and _is_keyed(key, observed) and _is_keyed(key, like):
        return list(_project_items(rules, key, observed, like))
    return like if rules.is_same(observed, like) else observed


def _project_items(
    rules: FieldRules, key: KeyedBy, observed: Sequence[Any], like: Sequence[Any]
) -> Iterator[Any]:
    seen = {item[key.name]: item for item in observed}
    for item in like:
        if item[key.name] in seen:
            yield _project_fields(rules.inner, seen[item[key.name]], item)
        elif key.is_off(item):
            yield item
    if key.closed:
        known = {item[key.name] for item in like}
        yield from (item for name, item in seen.items() if name not in known)
