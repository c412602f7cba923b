"""Whether the platforms that a plan changes something on can be asked at all.

A plan is made from the state and the program: without this look, a missing key shows only when the
first change is sent.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gpuform.providers.actions import Settings
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import probe
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks.engine.planning import Step
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.lifecycles import kind_of

_ASKED_ALREADY = (PlanAction.SAME, PlanAction.READ, PlanAction.REFRESH)


def with_unreached(plan: Plan, steps: Iterable[Step], settings: Settings) -> Plan:
    """The plan with the platforms that do not answer, of those that it changes something on.

    Each is asked once. What explicit providers are for is theirs: these settings are not its own.
    """
    if plan.operation == "refresh":
        return plan
    regions = _platforms(plan, steps)
    if not regions:
        return plan
    with ThreadPoolExecutor(len(regions), thread_name_prefix="reaching") as pool:
        found = list(pool.map(lambda name: _problem(name, regions[name], settings), regions))
    # What a check of its own met is told by it.
    told = "\n".join(plan.unchecked)
    unreached = [text for text, reason in filter(None, found) if reason not in told]
    return plan.model_copy(update={"unchecked": (*plan.unchecked, *unreached)})


def _platforms(plan: Plan, steps: Iterable[Step]) -> Mapping[str, str]:
    """Those to be asked, each with a region of what changes there."""
    changed = {each.urn: each for each in plan.changes if each.action not in _ASKED_ALREADY}
    found: dict[str, str] = {}
    for step in steps:
        change, kind = changed.get(step.urn), kind_of(step.state.type)
        if change is None or kind is None or not _has_own_settings(step):
            continue
        told = [each.region for each in (change.after, change.before) if each and each.region]
        found[kind[0]] = found.get(kind[0]) or next(iter(told), "")
    return found


def _has_own_settings(step: Step) -> bool:
    """Whether it works with the stack's settings, and not with those of an explicit provider."""
    urn = step.state.provider.rpartition("::")[0]
    return not urn or name_of(urn).startswith("default")


def _problem(platform: str, region: str, settings: Settings) -> tuple[str, str] | None:
    try:
        probe(platform, replace(settings, region=region or settings.region))
    except GpuformError as error:
        reason = " ".join(error.message.split())
        return f"{platform} cannot be asked, and what is planned there may fail: {reason}", reason
    return None
