"""Evaluate gates that need evidence: certified nodes, and platforms that answer.

A plan is made from the state and the program: without this look, a missing key shows only when the
first change is sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gpuform.providers.errors import GpuformError
from gpuform.providers.http import probe_platform
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.schemas.resource_facts import CertificationCheck
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.rules import matches
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.resource_rules import kind_of, lifecycle_of

_CERTIFICATION = "Certification"
_NODES = ("cluster_id", "node_ids")
"""What a certification tests, as the platforms' kinds declare it."""


def proofs_of_steps(steps: Iterable[Step]) -> tuple[CertificationCheck, ...]:
    """What proves the resources with GPUs that a run leaves."""
    left: list[tuple[ResourceState, bool]] = []
    problems: dict[str, list[str]] = {}
    tested: dict[str, list[object]] = {}
    for step in steps:
        new = step.new
        lifecycle = lifecycle_of(new.type) if new is not None else None
        if new is None or lifecycle is None or not new.custom or new.external or new.delete:
            continue
        if lifecycle.kind == _CERTIFICATION:
            problem = _find_certification_problem(step)
            for urn in _tested_by(new):
                problems.setdefault(urn, []).append(problem)
                tested.setdefault(urn, []).append(told(new.inputs).get("node_ids"))
        elif not step.skipped and lifecycle.count_gpus(told(new.inputs)) != 0:
            is_new = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
            seen = {} if is_new or step.old is None else told(step.old.outputs)
            left.append((new, lifecycle.is_accepted(told(new.inputs), seen)))
    return tuple(
        CertificationCheck(
            urn=each.urn,
            name=name_of(each.urn),
            problem=_problem_of(problems.get(each.urn), is_accepted=is_accepted)
            or _left_out(told(each.outputs).get("node_ids"), tested.get(each.urn, ())),
        )
        for each, is_accepted in left
    )


def certified(
    proofs: Sequence[CertificationCheck] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """A text for each resource whose nodes are not certified."""
    if proofs is None:
        yield "certifications are looked at when the plan is made: make it with `gpuform preview`"
    for each in proofs or ():
        if each.problem and (not patterns or matches((each.name, each.urn), patterns)):
            yield f"{each.name}: {each.problem}"


def _tested_by(certification: ResourceState) -> set[str]:
    """The resources whose nodes it tests: it may wait for others, too."""
    found = certification.property_dependencies
    return {urn for field in _NODES for urn in found.get(field, ())}


def _find_certification_problem(step: Step) -> str:
    """Why a certification proves nothing; empty where it does, or the run tests the nodes."""
    if step.op is not Op.SAME or step.new is None:
        return ""
    name, outputs = name_of(step.new.urn), told(step.new.outputs)
    if step.skipped or outputs.get("ready") is not True:
        return f"certification {name} has not passed, and this plan does not test its nodes"
    lifecycle = lifecycle_of(step.new.type)
    if lifecycle is not None and [*lifecycle.find_due_notices(outputs, told(step.new.inputs))]:
        return f"certification {name} is stale, and this plan does not test its nodes"
    return ""


def _left_out(nodes: object, tested: Sequence[object]) -> str:
    """Nodes that no certification is of, where both are known when the plan is made."""
    if not isinstance(nodes, list) or not tested:
        return ""
    lists = [each for each in tested if isinstance(each, list)]
    listed = {node for each in lists for node in each if isinstance(node, str)}
    if len(lists) < len(tested) or not all(isinstance(n, str) for each in lists for n in each):
        return ""
    missing = sum(isinstance(node, str) and node not in listed for node in nodes)
    return f"{missing} of its {len(nodes)} nodes are in no certification" if missing else ""


def _problem_of(problems: Sequence[str] | None, *, is_accepted: bool) -> str:
    if problems is None:
        return "" if is_accepted else "it has GPUs, and no certification"
    return next((each for each in problems if each), "")


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
        found = list(
            pool.map(lambda name: _find_probe_failure(name, regions[name], settings), regions)
        )
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


def _find_probe_failure(platform: str, region: str, settings: Settings) -> tuple[str, str] | None:
    try:
        probe_platform(platform, replace(settings, region=region or settings.region))
    except GpuformError as error:
        reason = " ".join(error.message.split())
        return f"{platform} cannot be asked, and what is planned there may fail: {reason}", reason
    return None
