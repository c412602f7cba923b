"""Find resources that a plan only renames, and options that change without a property."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.engine.values import PropertyValue, contains_unknown

_MOST = 200
"""Deleted resources of a type that are compared: of more, nobody has only given another name."""


def renamed(steps: Iterable[Step]) -> Iterator[Notice]:
    """One for each resource to be made that has the type and the inputs of one to be deleted."""
    gone: dict[str, list[ResourceState]] = defaultdict(list)
    made = []
    for step in steps:
        if step.op is Op.DELETE and step.old is not None and _is_object(step.old):
            gone[step.old.type].append(step.old)
        elif step.op is Op.CREATE and step.new is not None and _is_object(step.new):
            made.append(step.new)
    for new in made:
        found = gone[new.type] if len(gone[new.type]) <= _MOST else []
        old = next((entry for entry in found if _is_alike(entry, new)), None)
        if old is not None:
            found.remove(old)
            yield _notice(name_of(old.urn), new)


def _is_object(entry: ResourceState) -> bool:
    return entry.custom and not (is_noise(entry.type) or entry.external or entry.delete)


def _is_alike(old: ResourceState, new: ResourceState) -> bool:
    """What is not known yet may be the same."""
    if old.inputs.keys() != new.inputs.keys():
        return False
    return all(
        name == PROVIDER_KEY or _may_be_same(value, new.inputs[name])
        for name, value in old.inputs.items()
    )


def _may_be_same(old: PropertyValue, new: PropertyValue) -> bool:
    return old == new or contains_unknown(new)


def _notice(before: str, new: ResourceState) -> Notice:
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
_KEPT: Final = (Op.SAME, Op.UPDATE)
_MEANS: Final = {
    ("protect", False): "a later run may delete or replace it",
    ("retain_on_delete", True): "its object stays, and is paid for, when the resource goes",
}


def changed_options(steps: Iterable[Step]) -> Iterator[Notice]:
    """One for each resource that stays and has other options then."""
    for step in steps:
        old, new = step.old, step.new
        if step.op not in _KEPT or old is None or new is None or is_noise(new.type):
            continue
        said = "; ".join(_said(old, new))
        if said:
            name = name_of(new.urn)
            text = f"its options change: {said}"
            yield Notice(kind=NoticeKind.OPTIONS, urn=new.urn, name=name, text=text)


def _said(old: ResourceState, new: ResourceState) -> Iterator[str]:
    for option in _OPTIONS:
        before, after = getattr(old, option), getattr(new, option)
        if before != after:
            means = _MEANS.get((option, after)) if isinstance(after, bool) else None
            yield f"{option} {_shown(before)} => {_shown(after)}" + (
                f", so {means}" if means else ""
            )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return name_of(value) if value else "none"
    if isinstance(value, list):
        return json.dumps([name_of(each) if each.startswith("urn:") else each for each in value])
    return json.dumps(value)
