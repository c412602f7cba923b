"""Options of resources that a plan changes: no property shows them, and some keep what is there."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpuform.schemas.notices import Notice, NoticeKind
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_noise, name_of

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
