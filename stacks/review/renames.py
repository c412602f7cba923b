"""Find resources of a plan that only have a new name or stack, and options that change alone.

The planning operations add the notices to a plan.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyValue, contains_unknown
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_noise, name_of

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
    """Yield a notice for each created resource that `gpuform state move` took to another stack.

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
        name == PROVIDER_KEY or _can_be_equal(value, new.inputs[name])
        for name, value in old.inputs.items()
    )


def _can_be_equal(old: PropertyValue, new: PropertyValue) -> bool:
    """Return True if the values are equal, or the new one is still unknown."""
    return old == new or contains_unknown(new)


def _build_rename_notice(before: str, new: ResourceState) -> Notice:
    """Build the notice that the created resource `new` may be the deleted one, named `before`."""
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
