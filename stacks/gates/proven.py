"""The rule about certifications: the nodes that a plan leaves are proven by it, or were before."""

from collections.abc import Iterable, Iterator, Sequence

from gpuform.schemas.proof import Proof
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.rules import matches
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.pricing.footprints import told

_CERTIFICATION = "Certification"
_NODES = ("cluster_id", "node_ids")
"""What a certification tests, as the platforms' kinds declare it."""


def proofs_of_steps(steps: Iterable[Step]) -> tuple[Proof, ...]:
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
            problem = _problem(step)
            for urn in _tested_by(new):
                problems.setdefault(urn, []).append(problem)
                tested.setdefault(urn, []).append(told(new.inputs).get("node_ids"))
        elif not step.skipped and lifecycle.gpus(told(new.inputs)) != 0:
            is_new = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
            seen = {} if is_new or step.old is None else told(step.old.outputs)
            left.append((new, lifecycle.is_accepted(told(new.inputs), seen)))
    return tuple(
        Proof(
            urn=each.urn,
            name=name_of(each.urn),
            problem=_problem_of(problems.get(each.urn), is_accepted=is_accepted)
            or _left_out(told(each.outputs).get("node_ids"), tested.get(each.urn, ())),
        )
        for each, is_accepted in left
    )


def certified(proofs: Sequence[Proof] | None, patterns: Sequence[str]) -> Iterator[str]:
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


def _problem(step: Step) -> str:
    """Why a certification proves nothing; empty where it does, or the run tests the nodes."""
    if step.op is not Op.SAME or step.new is None:
        return ""
    name, outputs = name_of(step.new.urn), told(step.new.outputs)
    if step.skipped or outputs.get("ready") is not True:
        return f"certification {name} has not passed, and this plan does not test its nodes"
    lifecycle = lifecycle_of(step.new.type)
    if lifecycle is not None and [*lifecycle.due(outputs, told(step.new.inputs))]:
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
