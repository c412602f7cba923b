"""Find what changes in a plan: parts of values, only a name or stack, options without a property.

Differences are laid out as rows. `find_renames` and `find_option_changes` find what no property
shows.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import contains_unknown
from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review.value_text import format_inline, format_labelled

_NO_RULES = FieldRules()
_PART = re.compile(r'\["(?:\\"|[^"])*"\]|\[\d+\]|([^.\[]+)')


def find_inputs_model(type_: str) -> type[BaseModel] | None:
    """Return the input model of a gpuform resource type, or None for any other type."""
    lifecycle = find_lifecycle(type_)
    return lifecycle.inputs if lifecycle else None


@cache
def get_rules_at(type_: str, path: str) -> FieldRules:
    """Return the field rules of the property at `path`; empty rules for an unknown property.

    An inner property is immutable, secret or `state_only` also if an outer property is.
    """
    model = find_inputs_model(type_)
    fields = get_field_rules(model) if model else {}
    rules = _NO_RULES
    for part in _PART.finditer(path):
        # A key or an index has the rules of its list.
        if part[1] is None:
            continue
        rules = fields.get(part[1], _NO_RULES).inherit_rules(rules)
        fields = rules.nested_rules
    return rules


def index_items_by_key(value: Any, rules: FieldRules) -> Any:
    """Return `value` with each list of keyed items as a mapping from `["KEY"]` to item.

    Items of such a list (nodes by name, for example) are compared with their namesakes, not by
    index. A list with a missing or repeated key stays a list.
    """
    if isinstance(value, Mapping):
        if rules.is_map:
            return {key: _index_nested_items(item, rules) for key, item in value.items()}
        return _index_nested_items(value, rules)
    if not isinstance(value, list | tuple):
        return value
    key = rules.keyed_by
    if key and all(isinstance(item, Mapping) for item in value):
        names = [item.get(key.name) for item in value]
        # Items without unique keys can be matched only by index.
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            items = zip(names, value, strict=True)
            return {f'["{name}"]': _index_nested_items(item, rules) for name, item in items}
    return [_index_nested_items(item, rules) for item in value]


def _index_nested_items(value: Any, rules: FieldRules) -> Any:
    """Index the lists in the fields of an object by key; any other value is returned as given."""
    if not isinstance(value, Mapping):
        return value
    inner = rules.nested_rules
    return {
        name: index_items_by_key(item, inner.get(name, _NO_RULES)) for name, item in value.items()
    }


UNKNOWN = "[known after apply]"

_PLAIN_NAME = re.compile(r"[\w-]+")
_ACTIONS = {
    "dictionary_item_added": Action.ADD,
    "iterable_item_added": Action.ADD,
    "dictionary_item_removed": Action.DELETE,
    "iterable_item_removed": Action.DELETE,
    "values_changed": Action.UPDATE,
    "type_changes": Action.UPDATE,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold one changed location inside a property: its path from there, old and new value."""

    path: str
    action: Action
    before: Any
    after: Any


def get_plan_values(change: PropertyChange) -> tuple[Any, Any]:
    """Return the values of `change` before and after; an unknown one as `[known after apply]`."""
    before, after = _to_plan_value(change.before), _to_plan_value(change.after)
    return before, UNKNOWN if change.unknown and after is None else after


def list_differences(change: PropertyChange, type_: str) -> list[Difference]:
    """List the changed locations inside an updated property, in order; empty for a single value.

    A list of plain values counts as a single value; so does any added or deleted property.

    Args:
        change: the change of one property.
        type_: the resource's type, whose schema says which lists have keyed items.
    """
    before, after = get_plan_values(change)
    if change.action is not Action.UPDATE or not _is_nested(before, after):
        return []
    rules = get_rules_at(type_, change.path)
    return list(
        _compare_values(index_items_by_key(before, rules), index_items_by_key(after, rules))
    )


def _is_nested(before: Any, after: Any) -> bool:
    """Return True if two values are compared inside: both objects, or lists with an object."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return True
    both = (before, after)
    if not all(isinstance(value, list | tuple) for value in both):
        return False
    # A list of plain values reads better as one change.
    return any(isinstance(item, Mapping) for value in both for item in value)


def _compare_values(before: Any, after: Any) -> Iterator[Difference]:
    """Yield the differences inside two values, sorted by path."""
    from deepdiff import DeepDiff  # noqa: PLC0415 - slow, and most plans nest nothing

    tree = DeepDiff(
        before,
        after,
        view="tree",
        ignore_nan_inequality=True,
        threshold_to_diff_deeper=0,  # else what has little in common is one change of it all
        verbose_level=2,
    )
    levels = [(level, _ACTIONS[kind]) for kind in _ACTIONS for level in tree.get(kind, ())]
    ordered_differences = []
    for level, action in levels:
        steps = level.path(output_format="list")
        old = None if action is Action.ADD else level.t1
        new = None if action is Action.DELETE else level.t2
        # DeepDiff returns its findings by kind: the order of the paths is restored below.
        ordered_differences.append(
            (_get_path_sort_key(steps), Difference(_format_path(steps), action, old, new))
        )
    yield from (
        difference for _, difference in sorted(ordered_differences, key=lambda pair: pair[0])
    )


def _get_path_sort_key(steps: list[Any]) -> list[tuple[bool, int, str]]:
    """Return the sort key of a path: indexes in numeric order, before names."""
    return [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in steps]


def _format_path(steps: list[Any]) -> str:
    """Format steps as `a.b[0]["c d"]`; a step already in brackets is not quoted again."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.startswith('["'):
            path += step
        elif _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f'["{step}"]'
    return path


def _to_plan_value(value: Any) -> Any:
    """Return `value` in the form of a plan: whole floats as integers, unknown values marked."""
    if isinstance(value, Mapping):
        return {str(key): _to_plan_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plan_value(item) for item in value]
    # Pulumi's wire format has only doubles: 8 arrives as 8.0.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN if value == "[unknown]" else value


FORCES = "# forces replacement"

_MARKS = {Action.ADD: "+", Action.UPDATE: "~", Action.DELETE: "-", Action.KEEP: " "}


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one line of a diff: `mark` is + ~ - or a blank, `depth` 1 is inside a property.

    A row that `continues` belongs to the value of the row before it.
    """

    mark: str
    text: str
    depth: int = 0
    continues: bool = False


def build_change_rows(changes: Iterable[PropertyChange], type_: str) -> Iterator[Row]:
    """Build the rows of a resource's property changes, with aligned values.

    Invisible characters are escaped.
    """
    changes = tuple(changes)
    width = max((len(change.path) for change in changes), default=0) + 1
    for change in changes:
        # The note stands once, beside the first row.
        first, *rest = _build_property_rows(change, f"{change.path}:".ljust(width), type_)
        yield Row(first.mark, escape_invisible(first.text + _format_note(change)), first.depth)
        yield from (replace(row, text=escape_invisible(row.text)) for row in rest)


def _build_property_rows(change: PropertyChange, label: str, type_: str) -> Iterator[Row]:
    """Build the rows of one property: one row, or one for each difference inside."""
    mark = _MARKS[change.action]
    before, after = get_plan_values(change)
    if change.action is Action.KEEP:
        yield Row(mark, f"{label} stays {format_inline(before)}")
    elif change.action is Action.ADD:
        yield from _build_value_rows(mark, label, after)
    elif change.action is Action.DELETE:
        yield from _build_value_rows(mark, label, before)
    elif inner := list_differences(change, type_):
        yield Row(mark, f"{change.path}:")
        for difference in inner:
            yield from _build_nested_rows(difference)
    else:
        yield Row(mark, f"{label} {format_inline(before)} => {format_inline(after)}")


def _build_nested_rows(change: Difference) -> Iterator[Row]:
    """Build the rows of one difference inside a property, at depth 1."""
    mark, label = _MARKS[change.action], f"{change.path}:"
    if change.action is Action.ADD:
        yield from _build_value_rows(mark, label, change.after, 1)
    elif change.action is Action.DELETE:
        yield from _build_value_rows(mark, label, change.before, 1)
    else:
        yield Row(
            mark, f"{label} {format_inline(change.before)} => {format_inline(change.after)}", 1
        )


def _build_value_rows(mark: str, label: str, value: Any, depth: int = 0) -> Iterator[Row]:
    """Yield the rows of a value: the first with `mark` and `label`, the others as continuations."""
    first, *rest = format_labelled(label, value)
    yield Row(mark, first, depth)
    yield from (Row(mark, line, depth, continues=True) for line in rest)


def _format_note(change: PropertyChange) -> str:
    """Format the note after a change: that it forces replacement, or else its reason."""
    if change.forces_replacement:
        return f"  {FORCES}"
    note = get_note(change)
    if change.action is Action.KEEP:
        return f": {note}" if note else ""
    return f"  # {note}" if note else ""


def get_note(change: PropertyChange) -> str:
    """Return the note beside the values of `change`; empty if the values say enough."""
    if change.action is Action.KEEP:
        # "stays" says that already.
        return change.because.removesuffix(": the platform keeps its value")
    is_visible_in_value = change.unknown and change.because in "[known after apply]"
    return "" if is_visible_in_value else change.because


_MAX_COMPARED = 200
"""Most deleted resources of one type that are compared: nobody only renames more of them."""


def find_renames(steps: Iterable[Step]) -> Iterator[Notice]:
    """Yield a notice for each created resource with the type and inputs of a deleted one.

    A deleted resource explains one created resource at most; unknown inputs count as equal. Types
    with more than `_MAX_COMPARED` deletions are left out.
    """
    deleted: dict[str, list[ResourceState]] = defaultdict(list)
    created = []
    for step in steps:
        if step.op is Op.DELETE and step.old is not None and _is_object(step.old):
            deleted[step.old.type].append(step.old)
        elif step.op is Op.CREATE and step.new is not None and _is_object(step.new):
            created.append(step.new)
    for new in created:
        # Every pair would be compared, which takes too long for large plans.
        candidates = deleted[new.type] if len(deleted[new.type]) <= _MAX_COMPARED else []
        old = next((entry for entry in candidates if _is_alike(entry, new)), None)
        if old is not None:
            # Each deleted resource explains one created resource at most.
            candidates.remove(old)
            yield _build_rename_notice(name_of(old.urn), new)


def find_moved_resources(steps: Iterable[Step], moved: Mapping[str, str]) -> Iterator[Notice]:
    """Yield a notice for each created resource earlier moved to another stack by `state move`.

    `moved` has the full name of the new stack by the URN in this stack.
    """
    for step in steps:
        if step.op is Op.CREATE and step.new is not None and (stack := moved.get(step.new.urn)):
            name = name_of(step.new.urn)
            yield Notice(
                kind=NoticeKind.MOVED,
                urn=step.new.urn,
                name=name,
                text=f"was moved to stack {stack}: this plan creates a second object. Remove it "
                f"from this program, or move it back: gpuform state move --source {stack} {name}",
            )


def _is_object(entry: ResourceState) -> bool:
    """Return True for the stack's own live object on a platform."""
    return entry.custom and not (is_noise(entry.type) or entry.external or entry.delete)


def _is_alike(old: ResourceState, new: ResourceState) -> bool:
    """Return True if both resources have equal inputs; an unknown input may be equal."""
    if old.inputs.keys() != new.inputs.keys():
        return False
    return all(
        # The provider's code is no input that a person declares.
        name == PROVIDER_KEY or value == new.inputs[name] or contains_unknown(new.inputs[name])
        for name, value in old.inputs.items()
    )


def _build_rename_notice(before: str, new: ResourceState) -> Notice:
    """Build the notice of a possible rename: the created resource `new` resembles `before`."""
    name = name_of(new.urn)
    return Notice(
        kind=NoticeKind.RENAMED,
        urn=new.urn,
        name=name,
        text=f"has the inputs of {before}, which is deleted: if only its name has changed, keep "
        f"the object with `aliases` (- name: {before}) in its options, or with `gpuform state "
        f"rename {before} {name}`",
    )


_OPTIONS: Final = (
    *("protect", "retain_on_delete", "deleted_with", "replace_with", "ignore_changes"),
    *("replace_on_changes", "custom_timeouts", "additional_secret_outputs"),
)
_KEEPING_OPS: Final = (Op.SAME, Op.UPDATE)
_EFFECTS: Final = {
    ("protect", False): "a later run may delete or replace it",
    (
        "retain_on_delete",
        True,
    ): "its object stays and keeps costing money when the resource is removed",
}


def find_option_changes(steps: Iterable[Step]) -> Iterator[Notice]:
    """Yield a notice for each unchanged or updated resource with changed options."""
    for step in steps:
        old, new = step.old, step.new
        if step.op not in _KEEPING_OPS or old is None or new is None or is_noise(new.type):
            continue
        option_changes = "; ".join(_describe_option_changes(old, new))
        if option_changes:
            name = name_of(new.urn)
            notice_text = f"its options change: {option_changes}"
            yield Notice(kind=NoticeKind.OPTIONS, urn=new.urn, name=name, text=notice_text)


def _describe_option_changes(old: ResourceState, new: ResourceState) -> Iterator[str]:
    """Yield each changed option, with the effect if there is one."""
    for option in _OPTIONS:
        before, after = getattr(old, option), getattr(new, option)
        if before != after:
            effect = _EFFECTS.get((option, after)) if isinstance(after, bool) else None
            yield f"{option} {_format_option(before)} => {_format_option(after)}" + (
                f", so {effect}" if effect else ""
            )


def _format_option(value: Any) -> str:
    """Format the value of an option; a URN becomes the resource's name."""
    if isinstance(value, str):
        return name_of(value) if value else "none"
    if isinstance(value, list):
        return json.dumps([name_of(item) if item.startswith("urn:") else item for item in value])
    return json.dumps(value)
