"""Evaluate gates that need evidence: certified nodes, and platforms that answer.

A plan is made from the state and the program: without this probe, a missing key shows only when
the first change is sent. Called while planning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuform.providers.context import create_thread_pool
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import probe_platform
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import Plan
from gpuform.schemas.resource_facts import CertificationCheck
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.rules import has_match
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_kind, find_lifecycle

_CERTIFICATION = "Certification"
_NODE_FIELDS = ("cluster_id", "node_ids")
"""Inputs of a certification that name the tested nodes."""


def check_certifications(steps: Iterable[Step]) -> tuple[CertificationCheck, ...]:
    """Check the certifications of each resource with GPUs after the run.

    The `problem` of a check is empty if the resource is certified, or will be in this run, or if
    the platform's own tests prove a resource without a certification.
    """
    remaining_resources: list[tuple[ResourceState, bool]] = []
    problems: dict[str, list[str]] = {}
    tested: dict[str, list[object]] = {}
    for step in steps:
        new = step.new
        lifecycle = find_lifecycle(new.type) if new is not None else None
        if new is None or lifecycle is None or not new.custom or new.external or new.delete:
            continue
        if lifecycle.kind == _CERTIFICATION:
            problem = _find_certification_problem(step)
            for urn in _list_tested_urns(new):
                problems.setdefault(urn, []).append(problem)
                tested.setdefault(urn, []).append(to_plain_properties(new.inputs).get("node_ids"))
        # An unknown number of GPUs (None) counts as some.
        elif not step.skipped and lifecycle.count_gpus(to_plain_properties(new.inputs)) != 0:
            # A new object has no observed values yet.
            is_new = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
            observed = {} if is_new or step.old is None else to_plain_properties(step.old.outputs)
            remaining_resources.append(
                (new, lifecycle.hooks.is_accepted(to_plain_properties(new.inputs), observed))
            )
    return tuple(
        CertificationCheck(
            urn=entry.urn,
            name=name_of(entry.urn),
            problem=_select_problem(problems.get(entry.urn), is_accepted=is_accepted)
            or _find_untested_nodes(
                to_plain_properties(entry.outputs).get("node_ids"), tested.get(entry.urn, ())
            ),
        )
        for entry, is_accepted in remaining_resources
    )


def find_uncertified(
    proofs: Sequence[CertificationCheck] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each resource with nodes that are not certified.

    `patterns` select resources by name or URN; empty selects all. None as `proofs` means that the
    certifications were not checked, as in any plan but that of a preview: then this is the only
    finding.
    """
    if proofs is None:
        yield "certifications are checked only in a plan of `gpuform preview`"
    for check in proofs or ():
        if check.problem and (not patterns or has_match((check.name, check.urn), patterns)):
            yield f"{check.name}: {check.problem}"


def _list_tested_urns(certification: ResourceState) -> set[str]:
    """Return the URNs of the resources whose nodes the certification tests."""
    dependencies = certification.property_dependencies
    return {urn for field in _NODE_FIELDS for urn in dependencies.get(field, ())}


def _find_certification_problem(step: Step) -> str:
    """Return the reason why a certification proves nothing, or "".

    Empty also for a certification that runs in this plan.
    """
    if step.op is not Op.SAME or step.new is None:
        return ""
    name, outputs = name_of(step.new.urn), to_plain_properties(step.new.outputs)
    if step.skipped or outputs.get("ready") is not True:
        return f"certification {name} has not passed, and this plan does not test its nodes"
    lifecycle = find_lifecycle(step.new.type)
    if lifecycle is not None and [
        *lifecycle.hooks.find_due_notices(outputs, to_plain_properties(step.new.inputs))
    ]:
        return f"certification {name} is stale, and this plan does not test its nodes"
    return ""


def _find_untested_nodes(nodes: object, tested: Sequence[object]) -> str:
    """Return a sentence about nodes without a certification, or "".

    Empty also if the nodes, or the tested nodes, are unknown.
    """
    if not isinstance(nodes, list) or not tested:
        return ""
    # A list of nodes that is unknown may have any node.
    lists = [node_list for node_list in tested if isinstance(node_list, list)]
    listed = {node for node_list in lists for node in node_list if isinstance(node, str)}
    if len(lists) < len(tested) or not all(
        isinstance(n, str) for node_list in lists for n in node_list
    ):
        return ""
    missing = sum(isinstance(node, str) and node not in listed for node in nodes)
    return f"no certification covers {missing} of its {len(nodes)} nodes" if missing else ""


def _select_problem(problems: Sequence[str] | None, *, is_accepted: bool) -> str:
    """Return the first problem of a resource's certifications, or "".

    None means no certification: then the resource must be accepted by its platform package.
    """
    if problems is None:
        return "" if is_accepted else "it has GPUs, but no certification"
    return next((problem for problem in problems if problem), "")


def add_unreachable_platforms(plan: Plan, steps: Iterable[Step], settings: Settings) -> Plan:
    """Return the plan with a note for each unreachable platform with planned changes.

    Each platform is probed once; a refresh is returned unchanged. Resources of explicit providers
    are skipped: their settings differ. A failure that a check has noted already is not repeated.
    """
    # A refresh asks the platforms itself.
    if plan.operation == "refresh":
        return plan
    regions = _list_changed_platforms(plan, steps)
    if not regions:
        return plan
    with create_thread_pool(len(regions), "reaching") as pool:
        failures = list(
            pool.map(lambda name: _find_probe_failure(name, regions[name], settings), regions)
        )
    # A check that has met the same failure has reported it.
    reported = "\n".join(plan.unchecked)
    unreached = [message for message, reason in filter(None, failures) if reason not in reported]
    return plan.model_copy(update={"unchecked": (*plan.unchecked, *unreached)})


def _list_changed_platforms(plan: Plan, steps: Iterable[Step]) -> Mapping[str, str]:
    """Return the platforms with planned changes, each with the region of one change."""
    changed = {
        plan_change.urn: plan_change for plan_change in plan.changes if plan_change.action.is_change
    }
    regions: dict[str, str] = {}
    for step in steps:
        change, kind = changed.get(step.urn), find_kind(step.state.type)
        if change is None or kind is None or not _has_own_settings(step):
            continue
        known_regions = [
            usage.region for usage in (change.after, change.before) if usage and usage.region
        ]
        regions[kind[0]] = regions.get(kind[0]) or next(iter(known_regions), "")
    return regions


def _has_own_settings(step: Step) -> bool:
    """Return True if the resource uses the stack's settings, not an explicit provider's."""
    urn = step.state.provider.rpartition("::")[0]
    return not urn or name_of(urn).startswith("default")


def _find_probe_failure(platform: str, region: str, settings: Settings) -> tuple[str, str] | None:
    """Return a note and the reason if the platform does not answer a probe, or None."""
    try:
        probe_platform(platform, replace(settings, region=region or settings.region))
    except GpuformError as error:
        reason = " ".join(error.message.split())
        return (
            f"{platform} cannot be reached, so the planned changes there may fail: {reason}",
            reason,
        )
    return None
