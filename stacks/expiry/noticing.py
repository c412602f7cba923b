"""What there is to know of the resources of a run or a state, beside what changes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuform.schemas.notices import Notice
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op, Step
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expiry.calendar import lifecycle_of
from gpuform.stacks.pricing.footprints import told

_OBSERVED = (Op.REFRESH, Op.IMPORT)
"""Steps whose new entry is what was just seen."""


def notices_of_steps(steps: Iterable[Step], now: float) -> tuple[Notice, ...]:
    """Of all resources that a run leaves; `now` is in Unix seconds."""
    return tuple(each for step in steps if step.new for each in _of_step(step, step.new, now))


def notices_of_entries(entries: Iterable[ResourceState], now: float) -> tuple[Notice, ...]:
    """Of the resources of a state, as they were last seen."""
    return tuple(n for entry in entries for n in _named(entry, entry.inputs, entry.outputs, now))


def _of_step(step: Step, new: ResourceState, now: float) -> Iterator[Notice]:
    if step.skipped or step.shown_op is Op.REPLACE:
        return
    seen = new if step.op in _OBSERVED else step.old
    yield from _named(new, new.inputs, seen.outputs if seen else {}, now)


def _named(
    entry: ResourceState, inputs: Mapping[str, Any], outputs: Mapping[str, Any], now: float
) -> Iterator[Notice]:
    lifecycle = lifecycle_of(entry)
    if lifecycle is None or not entry.custom or entry.external or entry.delete:
        return
    for notice in lifecycle.notices(told(dict(inputs)), told(dict(outputs)), now):
        yield notice.model_copy(update={"urn": entry.urn, "name": name_of(entry.urn)})
