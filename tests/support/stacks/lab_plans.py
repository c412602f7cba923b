"""Save plans of the engine lab's stack and apply them, as the commands do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.deployment import Outcome, build_initial_basis, complete_basis, seal_plan
from gpuform.stacks.engine.planning import PlanConstraint


def save_plan(lab: Any, program: str, **options: Any) -> PlanConstraint:
    """Preview the program, and return the constraint of the saved and reloaded plan."""
    digest = lab.crypter.compute_digest
    initial_basis = build_initial_basis(lab.subject(), {}, digest)
    outcome = lab.preview(program, **options)
    assert outcome.succeeded, lab.errors
    basis = complete_basis(initial_basis, outcome, digest)
    plan = Plan.from_changes("lab", "dev", outcome.planned).model_copy(update={"basis": basis})
    sealed_plan = seal_plan(plan, digest).model_dump_json()
    return PlanConstraint.from_plan(Plan.model_validate_json(sealed_plan), digest)


def find_refusals(lab: Any, constraint: PlanConstraint, program: str, **options: Any) -> list[str]:
    """Return the reasons why the plan cannot be applied now, without any change; or []."""
    current_basis = build_initial_basis(lab.subject(), {}, lab.crypter.compute_digest)
    basis_changes = list(constraint.find_basis_changes(current_basis))
    if basis_changes:
        return basis_changes
    outcome = lab.preview(program, **options)
    assert outcome.succeeded, lab.errors
    return list(
        constraint.find_excess(
            complete_basis(current_basis, outcome, lab.crypter.compute_digest), outcome.planned
        )
    )


def apply_plan(lab: Any, constraint: PlanConstraint, program: str, **options: Any) -> Outcome:
    """Apply a plan that nothing forbids, and return the outcome."""
    assert find_refusals(lab, constraint, program, **options) == []
    outcome: Outcome = lab.up(program, constraint=constraint, **options)
    return outcome


@contextmanager
def expect_no_change(lab: Any) -> Iterator[None]:
    """Assert that the block changes neither the platform nor the state."""
    objects_before = lab.platform_objects
    state_before = lab.snapshot.to_json(lab.crypter, show_secrets=True)
    yield
    assert lab.platform_objects == objects_before
    assert lab.snapshot.to_json(lab.crypter, show_secrets=True) == state_before
