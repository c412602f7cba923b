"""Compute the difference between declared and observed properties, from the field rules alone.

The lifecycles decide by it whether to update or replace, and the plan shows the same changes. Only
a field that is declared now, or was declared last time, is compared: a value that the platform
fills in is never a change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from gpuform.schemas.models import Problem
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.rules import FieldRules, KeyedBy, get_field_rules
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import UNKNOWN, Unknown, contains_unknown

__all__ = [
    "RESUME_PREFIX",
    "UNKNOWN",
    "Action",
    "FieldChange",
    "Unknown",
    "compute_changes",
    "contains_unknown",
    "find_refused_changes",
    "requires_action",
    "select_declared_fields",
]

KNOWN_AFTER_APPLY: Final = "known after apply"
RESUME_PREFIX: Final = "resume waiting: "
"""Beginning of the reason of a change that only resumes waiting for an object that is not ready."""
_NO_RULES: Final = FieldRules()


class Action(StrEnum):
    """The action on one field.

    KEEP is no change: the field is no longer declared, and the platform keeps its value.
    """

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field. ``before`` and ``after`` are None where there is no value.

    The path of an item of a keyed list contains its key: ``add_ons["ingress"].config``.
    """

    path: str
    action: Action
    before: Any
    after: Any
    replaces: bool = False
    secret: bool = False
    because: str = ""
    shrinks: bool = False
    """A grow-only field would become smaller."""
    state_only: bool = False
    """Only the state changes: the platform is sent nothing."""
    repair: NodeRepair | None = None
    """The node repair that this change stands for, if any."""

    @property
    def is_sent(self) -> bool:
        """True if the change is sent to the platform: not kept, and not of the state alone."""
        return self.action is not Action.KEEP and not self.state_only

    def __repr__(self) -> str:
        before, after = (MASK, MASK) if self.secret else (self.before, self.after)
        forces = " (replaces)" if self.replaces else ""
        return f"<{self.action} {self.path}: {before!r} -> {after!r}{forces}>"


def compute_changes(
    model: type[BaseModel], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> list[FieldChange]:
    """Return the changes of a resource's properties, in the order of the model.

    A field that is no longer declared, and whose value the platform keeps, is an entry with the
    action KEEP, which is not a change.

    Args:
        model: the input model of the resource.
        observed: the fields declared last time, with the values last observed.
        declared: the fields declared now, normalized; a value may be UNKNOWN at any depth.
    """
    return list(
        _compare_fields(_FieldLocation("", _NO_RULES), get_field_rules(model), observed, declared)
    )


def requires_action(changes: Sequence[FieldChange]) -> bool:
    """Return True if one of the changes has another action than KEEP, even if only in the state."""
    return any(change.action is not Action.KEEP for change in changes)


def find_refused_changes(
    model: type[BaseModel], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> list[Problem]:
    """Return a problem for each grow-only field (such as a volume's size) declared smaller.

    Empty if another change replaces the resource, because a new object may have any size.
    """
    all_changes = compute_changes(model, observed, declared)
    if any(change.replaces for change in all_changes):
        return []
    return [
        Problem(change.path, _explain_refused_shrink(change))
        for change in all_changes
        if change.shrinks
    ]


def select_declared_fields(
    model: type[BaseModel], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the observed values of the fields in ``declared``, the last operation's inputs.

    Values that the platform filled in are left out at every depth. Values that the platform does
    not return (write-only, absent or None) stay as declared, and so do values of the same meaning
    as the observed ones. Items of a keyed list keep the order of ``declared``; an item that the
    platform no longer has is left out (unless it is declared as disabled), and an item that only
    the platform has is included if the list is `closed`.
    """
    return _select_fields(get_field_rules(model), observed, declared)


def _explain_refused_shrink(change: FieldChange) -> str:
    """Return the problem text for a smaller value of a grow-only field, with both sizes.

    The sizes of a secret field are left out.
    """
    sizes = (
        ""
        if change.secret
        else f" from {_format_size(change.before)} to {_format_size(change.after)}"
    )
    return (
        f"cannot shrink{sizes}: the platform only lets it grow. Declare the present size or more, "
        "or create a new object and move the data"
    )


def _format_size(value: Any) -> str:
    """Return a size for a message: a text such as `10Gi` as it is, a number without `.0`."""
    return value if isinstance(value, str) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class _FieldLocation:
    """The property path of a field, and the rules of the field."""

    path: str
    rules: FieldRules

    def enter_field(self, name: str, rules: FieldRules) -> "_FieldLocation":
        """Return the location of a field inside this object, with the object's rules inherited."""
        path = f"{self.path}.{name}" if self.path else name
        return _FieldLocation(path, rules.inherit_rules(self.rules))

    def enter_item(self, key: Any) -> "_FieldLocation":
        """Return the location of an item of this list or map, such as `add_ons["gpu"]`."""
        return _FieldLocation(f'{self.path}["{key}"]', self.rules)

    def build_change(
        self, action: Action, before: Any, after: Any, because: str = ""
    ) -> FieldChange:
        """Return the change of this field, including the reason if the resource is replaced."""
        replaces, replacement_reason = self._decide_replacement(before, after)
        return FieldChange(
            path=self.path,
            action=action,
            before=before,
            after=after,
            replaces=replaces,
            secret=self.rules.holds_secret,
            because=because or replacement_reason,
            shrinks=self.rules.grow_only and _is_smaller(self.rules, after, before),
        )

    def build_kept_value(self, before: Any) -> FieldChange:
        """Return the entry for a field no longer declared, whose value the platform keeps."""
        return FieldChange(
            path=self.path,
            action=Action.KEEP,
            before=before,
            after=before,
            secret=self.rules.holds_secret,
            because="no longer declared: the platform keeps its value",
        )

    def _decide_replacement(self, before: Any, after: Any) -> tuple[bool, str]:
        """Return whether a change from `before` to `after` replaces the resource, and why.

        An unknown value of a field that can force a replacement counts as a replacement.
        """
        rule = self.rules.replace_if
        if contains_unknown(before) or contains_unknown(after):
            # nobody knows the value yet: plan for the worse case, a replacement
            return self.rules.immutable or rule is not None, KNOWN_AFTER_APPLY
        if self.rules.immutable:
            return True, "cannot be changed in place"
        has_both = before is not None and after is not None
        if rule is not None and has_both and rule.needs_replacement(before, after):
            return True, rule.because
        return False, ""


def _compare_fields(
    location: _FieldLocation,
    rules: Mapping[str, FieldRules],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[FieldChange]:
    """Yield the changes between two objects, field by field in the order of the rules.

    Without rules the objects are free mappings, compared by their own keys.
    """
    # An object without a model is a free mapping: its own keys, which come in any order.
    for name in rules or sorted({*after, *before}):
        field = rules.get(name, _NO_RULES)
        if field.is_compared:
            field_location = location.enter_field(name, field)
            if rules or name in after:
                yield from _compare_values(field_location, before.get(name), after.get(name))
            else:
                # an empty value of a free mapping is a value: its key is gone only if the
                # declaration lacks it
                yield field_location.build_change(Action.DELETE, before[name], None)


def _compare_values(location: _FieldLocation, before: Any, after: Any) -> Iterator[FieldChange]:
    """Yield the changes of one field between an old and a new value, at any depth.

    None means not declared. An unknown new value counts as a change.
    """
    if before is None:
        yield from _compare_newly_declared(location, after)
    elif after is None:
        yield from _compare_no_longer_declared(location, before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        if location.rules.is_map:
            yield from _compare_entries(
                location, dict(sorted(before.items())), dict(sorted(after.items()))
            )
        else:
            yield from _compare_fields(location, location.rules.nested_rules, before, after)
    elif (
        (key := location.rules.keyed_by)
        and _has_distinct_keys(key, before)
        and _has_distinct_keys(key, after)
    ):
        yield from _compare_items(location, key, before, after)
    # an unknown value may turn out to be anything, so the plan shows a change
    elif contains_unknown(after) or not location.rules.is_equivalent(before, after):
        yield location.build_change(Action.UPDATE, before, after)


def _compare_newly_declared(location: _FieldLocation, after: Any) -> Iterator[FieldChange]:
    """Yield an addition for a field with no old value, unless `after` is None.

    An immutable field declared with the platform's default is no change.
    """
    if after is None:
        return
    default = location.rules.default
    # In place, the default is sent all the same: from then on the field is watched for drift.
    if (
        location.rules.immutable
        and default is not None
        and location.rules.is_equivalent(default.value, after)
    ):
        return
    yield location.build_change(Action.ADD, None, after)


def _compare_no_longer_declared(location: _FieldLocation, before: Any) -> Iterator[FieldChange]:
    """Yield the change of a field with the old value `before`, for a field no longer declared.

    The field is removed from the state, kept, or returned to its default, by its rules. A field
    that has its default already is no change.
    """
    default = location.rules.default
    if location.rules.state_only:
        yield location.build_change(Action.DELETE, before, None)
    elif default is None or location.rules.immutable:
        yield location.build_kept_value(before)
    elif not location.rules.is_equivalent(before, default.value):
        yield location.build_change(
            Action.UPDATE,
            before,
            default.value,
            "no longer declared: the platform resets it to the default",
        )


def _compare_items(
    location: _FieldLocation, key: KeyedBy, before: Sequence[Any], after: Sequence[Any]
) -> Iterator[FieldChange]:
    """Yield the changes between two lists whose items are matched by the key `key`.

    Items that the platform leaves out of its answers do not count as deleted.
    """
    items_after = {item[key.name]: item for item in after}
    # an item that the platform omits is no item that was deleted there
    items_before = {
        name: item
        for item in before
        if (name := item[key.name]) in items_after or not key.is_off(item)
    }
    yield from _compare_entries(location, items_before, items_after)


def _compare_entries(
    location: _FieldLocation, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[FieldChange]:
    """Yield an addition, a deletion or the changed fields for each entry of two maps by key."""
    for name, item in after.items():
        if name not in before:
            yield location.enter_item(name).build_change(Action.ADD, None, item)
        elif item is UNKNOWN:
            yield location.enter_item(name).build_change(Action.UPDATE, before[name], item)
        else:
            yield from _compare_fields(
                location.enter_item(name), location.rules.nested_rules, before[name], item
            )
    for name, item in before.items():
        if name not in after:
            yield location.enter_item(name).build_change(
                Action.DELETE, item, None, "no longer declared"
            )


def _has_distinct_keys(key: KeyedBy, value: Any) -> bool:
    """Return True if ``value`` is a list of objects with distinct keys."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(item, Mapping) for item in value):
        return False
    names = [item.get(key.name) for item in value]
    # Without a known key for each item, the lists are compared as a whole.
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_smaller(rules: FieldRules, after: Any, before: Any) -> bool:
    """Return True if `after` is less than `before`, as numbers or by the field's comparison."""
    if rules.compared_by is not None:
        # a text without a known amount is not refused: it may be a new unit
        return rules.compared_by.compare(after, before) == -1
    are_numbers = isinstance(after, int | float) and isinstance(before, int | float)
    return are_numbers and after < before


def _select_fields(
    rules: Mapping[str, FieldRules], observed: Mapping[str, Any], declared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the observed values of the fields in `declared`, at every depth."""
    return {
        name: _select_value(rules.get(name, _NO_RULES), observed.get(name), declared_value)
        for name, declared_value in declared.items()
    }


def _select_value(rules: FieldRules, observed: Any, declared: Any) -> Any:
    """Return a field's observed value, reduced to the parts present in `declared`.

    The declared value stays if the platform returns none, or one of the same meaning, and for a
    write-only field. A map loses the keys that the platform does not have, except a secret one.
    """
    # a value that the platform does not return cannot contradict the declaration
    if observed is None or declared is None or rules.write_only:
        return declared
    if isinstance(observed, Mapping) and isinstance(declared, Mapping):
        # Platforms hide values of secret maps: a missing key does not show that it is gone.
        if rules.is_text_map and not rules.secret:
            return {key: observed[key] for key in declared if key in observed}
        if not rules.is_map:
            return _select_fields(rules.nested_rules, observed, declared)
        remaining_keys = [key for key in declared if key in observed]  # what is not, is gone
        return {
            key: _select_fields(rules.nested_rules, observed[key], declared[key])
            for key in remaining_keys
        }
    if (
        (key := rules.keyed_by)
        and _has_distinct_keys(key, observed)
        and _has_distinct_keys(key, declared)
    ):
        return list(_select_items(rules, key, observed, declared))
    return declared if rules.is_equivalent(observed, declared) else observed


def _select_items(
    rules: FieldRules, key: KeyedBy, observed: Sequence[Any], declared: Sequence[Any]
) -> Iterator[Any]:
    """Yield the observed items of a keyed list in the order of the declared items.

    Missing items are left out, unless declared as off; items that only the platform has follow if
    the list is `closed`.
    """
    observed_by_key = {item[key.name]: item for item in observed}
    for item in declared:
        if item[key.name] in observed_by_key:
            yield _select_fields(rules.nested_rules, observed_by_key[item[key.name]], item)
        elif key.is_off(item):
            yield item
    if key.closed:
        declared_keys = {item[key.name] for item in declared}
        yield from (item for name, item in observed_by_key.items() if name not in declared_keys)
