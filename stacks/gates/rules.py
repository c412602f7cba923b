"""The rules over a plan: each yields a text for everything that is against it.

What is not known yet is against a rule that asks for it: a gate that cannot tell does not open.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuform.schemas.footprint import Footprint
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.cost import max_hourly_cost
from gpuform.stacks.review.names import counted

DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_GIVING: Final = (PlanAction.CREATE, PlanAction.UPDATE, PlanAction.REPLACE, PlanAction.IMPORT)
_TAKING: Final = (PlanAction.UPDATE, *DESTROYING)
_DONE: Final = {PlanAction.REPLACE: "replaced", PlanAction.DELETE: "deleted"}

Rule = Callable[[Plan, Sequence[ResourceChange], Any], Iterator[str]]
"""Asks a plan, those of its changes that the rule is about, and the value that it was given."""


def is_named(change: ResourceChange, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is the name or the URN of the resource.

    In a plan of several stacks the name says of which stack it is: it is meant without that, too.
    """
    return matches((change.name, change.urn, name_of(change.urn)), patterns)


def matches(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether one of the texts is of one of the patterns."""
    return any(fnmatchcase(text, pattern) for pattern in patterns for text in texts)


def max_destroyed_gpus(plan: Plan, changes: Sequence[ResourceChange], most: int) -> Iterator[str]:
    del plan
    losing = [each for each in changes if each.action in _TAKING and each.gpus_removed != 0]
    known = sum(each.gpus_removed or 0 for each in losing)
    names = ", ".join(each.name for each in losing)
    if known > most:
        yield f"{counted(known, 'GPU')} would go ({names}): at most {most} may"
    for each in losing:
        if each.gpus_removed is None:
            yield f"{each.name}: how many GPUs would go is not known; at most {most} may"


def not_replaced(
    plan: Plan, changes: Sequence[ResourceChange], states: Sequence[str]
) -> Iterator[str]:
    del plan
    for each in changes:
        before = each.before
        if each.action is PlanAction.REPLACE and before is not None:
            found = {"running": before.running, "reserved": before.reserved}
            for state in states:
                if found[state]:
                    yield f"{each.name} is {state}, and would be replaced"


def allowed_regions(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if "region" in after.unknown:
            yield _not_known(name, "region")
        elif after.region and after.region not in allowed:
            yield f"{name} would be in {after.region}: allowed are {', '.join(allowed)}"


def allowed_gpu_types(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if "gpu_types" in after.unknown:
            yield _not_known(name, "type of GPU")
        for type_ in after.gpu_types:
            if type_ not in allowed:
                yield f"{name} would have {type_}: allowed are {', '.join(allowed)}"


def required_tags(
    plan: Plan, changes: Sequence[ResourceChange], tags: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if after.tags is None:
            continue
        if "tags" in after.unknown:
            yield _not_known(name, "tags")
            continue
        missing = [tag for tag in tags if tag not in after.tags]
        if missing:
            yield f"{name} has no tag {', '.join(missing)}"


def protected(
    plan: Plan, changes: Sequence[ResourceChange], patterns: Sequence[str]
) -> Iterator[str]:
    del plan
    for each in changes:
        if each.action in DESTROYING and is_named(each, patterns):
            yield f"{each.name} would be {_DONE[each.action]}, and is protected"


def expiry_required(plan: Plan, changes: Sequence[ResourceChange], _true: bool) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if after.expires is True:
            continue
        if "expires" in after.unknown:
            yield _not_known(name, "end")
        elif after.expires is False:
            yield f"{name} never ends by itself"


def max_repaired_nodes(plan: Plan, changes: Sequence[ResourceChange], most: int) -> Iterator[str]:
    del plan
    names = [each.node for change in changes for each in change.repairs]
    if len(names) > most:
        found = f"{counted(len(names), 'node')} would be repaired ({', '.join(names)})"
        yield f"{found}: at most {most} may"


OVER_PLANS: Final[Mapping[str, Rule]] = {
    rule.__name__: rule
    for rule in (
        *(max_destroyed_gpus, not_replaced, allowed_regions, allowed_gpu_types, max_hourly_cost),
        *(required_tags, protected, expiry_required, max_repaired_nodes),
    )
}
"""The rules that ask nothing but the plan, by their names in a file of gates."""


def _made(changes: Sequence[ResourceChange]) -> Iterator[tuple[str, Footprint]]:
    """What is given values, with what it will take up."""
    for each in changes:
        if each.action in _GIVING and each.after is not None:
            yield each.name, each.after


def _not_known(name: str, what: str) -> str:
    return f"{name}: its {what} cannot be told before it is applied"
