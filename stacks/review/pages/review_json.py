"""Build the JSON document of a review: the facts of every stack, and each complete plan.

Called by `gpuform review --format json`.
"""

from typing import Any, Final

from gpuform.stacks.review.dangers import Risk, list_forcing_paths
from gpuform.stacks.review.facts import GpuCount, Review, RiskyChange, StackFacts

FORMAT_VERSION: Final = "1"
"""Grows when a reader of the old format would misread the new one."""


def build_review_document(review: Review) -> dict[str, Any]:
    """Build the JSON document of a review. The results of gates over all stacks are left out."""
    return {
        "format_version": FORMAT_VERSION,
        "failed": review.has_failed,
        **_totals_to_json(review),
        "unchecked": review.unchecked,
        "dangers": [
            _weakened_gate_to_json(text) for stack, text in review.weakened_gates if stack is None
        ],
        "stacks": [_stack_to_json(stack) for stack in review.stacks],
    }


def _stack_to_json(stack: StackFacts) -> dict[str, Any]:
    """Return the facts and the complete plan of a stack as JSON."""
    return {
        "project": stack.plan.project,
        "stack": stack.plan.stack,
        "operation": stack.plan.operation,
        "errors": [*stack.plan.errors],
        **_totals_to_json(stack),
        "dangers": [
            *map(_weakened_gate_to_json, stack.plan.weakened_gates),
            *(_danger_to_json(subject) for subject in stack.subjects if subject.danger),
        ],
        "stopped_by": [gate.name for gate in stack.plan.gates or () if gate.is_blocking],
        "command": stack.command,
        "plan": stack.plan.model_dump(),
    }


def _totals_to_json(facts: StackFacts | Review) -> dict[str, Any]:
    """Return the counts by action, and the removed and added GPUs, as JSON."""
    return {
        "counts": {str(action): count for action, count in facts.counts.items()},
        "gpus_removed": _gpus_to_json(facts.gpus_removed),
        "gpus_added": _gpus_to_json(facts.gpus_added),
    }


def _gpus_to_json(gpu_count: GpuCount) -> dict[str, Any]:
    """Return a count of GPUs as JSON; `exact` is false if a part of the number is unknown."""
    return {"count": gpu_count.known, "exact": gpu_count.exact}


def _weakened_gate_to_json(text: str) -> dict[str, Any]:
    """Return a weakened gate in the form of a dangerous change, without a resource."""
    return {
        "urn": "",
        "action": "",
        "risk": str(Risk.WEAKENS_GATES),
        "text": text,
        "forced_by": [],
        "gpus_removed": 0,
    }


def _danger_to_json(subject: RiskyChange) -> dict[str, Any]:
    """Return a change with its danger as JSON; `risk` and `text` are empty without a danger."""
    change, danger = subject.change, subject.danger
    return {
        "urn": change.urn,
        "action": str(change.action),
        "risk": str(danger.risk) if danger else "",
        "text": danger.text if danger else "",
        "forced_by": [*list_forcing_paths(change)],
        "gpus_removed": change.gpus_removed,
    }
