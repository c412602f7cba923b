"""What there is to know of the resources of a run or a state, beside what changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gpuform.providers.lifetime import ending
from gpuform.schemas.resource_facts import (
    Credit,
    CreditState,
    Exposure,
    Notice,
    NoticeKind,
    Placement,
)
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.schedule.calendar import find_start
from gpuform.stacks.topology_export.checks import fabric_notices

_OBSERVED = (Op.REFRESH, Op.IMPORT, Op.READ, Op.READ_REPLACEMENT)
"""Steps whose new entry is what was just seen."""


def notices_of_steps(
    steps: Sequence[Step], now: float, *, is_emulated: bool = False
) -> tuple[Notice, ...]:
    """Of all resources that a run leaves, or replaces.

    `now` is in Unix seconds; `is_emulated` says that it is by an emulator's clock.
    """
    seen = [found for step in steps if (found := _of_step(step)) is not None]
    return (*_notices(seen, now, is_emulated=is_emulated), *_of_replacements(steps))


def notices_of_entries(
    entries: Iterable[ResourceState],
    now: float,
    before: Mapping[str, PropertyMap] = MappingProxyType({}),
    *,
    is_emulated: bool = False,
) -> tuple[Notice, ...]:
    """Of the resources of a state, as they were last seen.

    `before` are, by URN, the outputs that the state has of those that were looked at now.
    `is_emulated` says that `now` is by an emulator's clock.
    """
    entries = [*entries]
    found = [(entry, entry.outputs, before.get(entry.urn)) for entry in entries]
    return (*_notices(found, now, is_emulated=is_emulated), *_of_runs_to_come(entries))


def exposures_of_steps(steps: Iterable[Step]) -> tuple[Exposure, ...]:
    """The ports open to the whole world of all resources that a run leaves."""
    found: list[Exposure] = []
    for step in steps:
        seen = _of_step(step)
        if seen is None:
            continue
        entry, outputs, _ = seen
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.external or entry.delete:
            continue
        exposure = lifecycle.exposure(told(entry.inputs), told(outputs))
        if exposure is not None:
            named = {"urn": entry.urn, "name": name_of(entry.urn)}
            found.append(exposure.model_copy(update=named))
    return tuple(found)


def is_out_of_credit(notices: Iterable[Notice]) -> bool:
    """Whether something has stopped because an account has no credit left."""
    return any(notice.kind is NoticeKind.CREDIT for notice in notices)


_Seen = tuple[ResourceState, PropertyMap, PropertyMap | None]
"""An entry, what was last seen of its object, and what the state had, if that was seen just now."""


def _of_step(step: Step) -> _Seen | None:
    """The entry that a step leaves, and what was last seen of its object."""
    new = step.new
    if new is None or step.skipped:
        return None
    if step.op in _OBSERVED:
        return new, new.outputs, step.old.outputs if step.old is not None else None
    is_other = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
    if is_other or step.old is None:
        return new, {}, None
    if not new.created and new.inputs.get("ttl") is not None:
        # A preview has not done the step, which keeps when the object was created.
        new = replace(new, created=step.old.created)
    return new, step.old.outputs, None


def _notices(found: Iterable[_Seen], now: float, *, is_emulated: bool) -> tuple[Notice, ...]:
    """Of each resource by itself, then of where nodes are, and what lack of credit does to all."""
    notices: list[Notice] = []
    credited: list[_Credited] = []
    placed: list[tuple[str, Placement]] = []
    for entry, outputs, before in found:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.delete:
            continue
        values, seen, name = told(entry.inputs), told(outputs), name_of(entry.urn)
        named = {"urn": entry.urn, "name": name}
        # Of what is only read, somebody else declares the rest.
        own: list[Notice] = []
        if not entry.external:
            start = find_start(entry, outputs, now, is_emulated=is_emulated)
            own += (*ending(values, start, now), *lifecycle.notices(values, seen, now))
        own += lifecycle.news(told(before), seen) if before is not None else ()
        notices += [notice.model_copy(update=named) for notice in own]
        credit = None if entry.external else lifecycle.credit(values, seen)
        if credit is not None:
            credited.append(_Credited(entry.urn, name, lifecycle.platform, credit))
        placement = None if entry.external else lifecycle.placement(seen)
        if placement is not None:
            placed.append((entry.urn, placement))
    return (*notices, *fabric_notices(placed), *_credit_notices(credited))


def _of_runs_to_come(entries: Iterable[ResourceState]) -> Iterator[Notice]:
    """What the next run does by itself; a plan has it as changes."""
    for entry in entries:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None or not entry.custom or entry.delete or entry.external:
            continue
        named = {"urn": entry.urn, "name": name_of(entry.urn)}
        for notice in lifecycle.due(told(entry.outputs), told(entry.inputs)):
            yield notice.model_copy(update=named)


def _of_replacements(steps: Iterable[Step]) -> Iterator[Notice]:
    for step in steps:
        new = step.new
        lifecycle = lifecycle_of(new.type) if step.op is Op.REPLACE and new is not None else None
        if lifecycle is None or new is None:
            continue
        text = lifecycle.how_replaced(step.keys, told(new.inputs))
        if text:
            name = name_of(new.urn)
            yield Notice(kind=NoticeKind.ROLLOUT, text=text, urn=new.urn, name=name)


@dataclass(frozen=True, slots=True)
class _Credited:
    """What its platform's lifecycle says of one resource."""

    urn: str
    name: str
    platform: str
    credit: Credit


def _credit_notices(found: Iterable[_Credited]) -> Iterator[Notice]:
    """Nothing for platforms where nothing has stopped. What is lost next comes last."""
    by_platform: dict[str, list[_Credited]] = {}
    for each in found:
        by_platform.setdefault(each.platform, []).append(each)
    for those in by_platform.values():
        if any(each.credit.state is not CreditState.RUNS for each in those):
            yield from _of_account(those)


def _of_account(those: list[_Credited]) -> Iterator[Notice]:
    for each in those:
        if each.credit.text:
            yield Notice(
                kind=NoticeKind.CREDIT,
                text=each.credit.text,
                at=each.credit.at,
                urn=each.urn,
                name=each.name,
            )
    # What has stopped is nearer to its end than what still runs.
    nearest = sorted(those, key=lambda each: each.credit.state is CreditState.RUNS)
    lost = [f"{each.name}: {each.credit.next}" for each in nearest if each.credit.next]
    told = f"next without credit: {'; '.join(lost)}. " if lost else ""
    text = f"{told}Add credit to the account, then run `gpuform up` again"
    yield Notice(kind=NoticeKind.CREDIT, text=text)
