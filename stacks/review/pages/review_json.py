"""The review as data: the facts of every stack, and each plan whole."""

from typing import Any, Final

from gpuform.stacks.review.dangers import forcing
from gpuform.stacks.review.facts import Gpus, Review, RiskyChange, StackFacts

FORMAT_VERSION: Final = "1"
"""Grows when a reader of the old form would misread the new one."""


def review_document(review: Review) -> dict[str, Any]:
    """The JSON document."""
    return {
        "format_version": FORMAT_VERSION,
        "failed": review.has_failed,
        **_totals(review),
        "unchecked": review.unchecked,
        "stacks": [_stack(stack) for stack in review.stacks],
    }


def _stack(stack: StackFacts) -> dict[str, Any]:
    return {
        "project": stack.plan.project,
        "stack": stack.plan.stack,
        "operation": stack.plan.operation,
        "errors": [*stack.plan.errors],
        **_totals(stack),
        "dangers": [_danger(subject) for subject in stack.subjects if subject.danger],
        "stopped_by": [gate.name for gate in stack.plan.gates or () if gate.is_blocking],
        "command": stack.command,
        "plan": stack.plan.model_dump(),
    }


def _totals(facts: StackFacts | Review) -> dict[str, Any]:
    return {
        "counts": {str(action): count for action, count in facts.counts.items()},
        "gpus_removed": _gpus(facts.gpus_removed),
        "gpus_added": _gpus(facts.gpus_added),
    }


def _gpus(found: Gpus) -> dict[str, Any]:
    return {"count": found.known, "exact": found.exact}


def _danger(subject: RiskyChange) -> dict[str, Any]:
    change, danger = subject.change, subject.danger
    return {
        "urn": change.urn,
        "action": str(change.action),
        "risk": str(danger.risk) if danger else "",
        "text": danger.text if danger else "",
        "forced_by": [*forcing(change)],
        "gpus_removed": change.gpus_removed,
    }
