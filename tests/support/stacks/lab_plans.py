"""Plans of the lab's stack, saved and applied as the commands do it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.deployment import Outcome, build_initial_basis, complete_basis, seal_plan
from gpuform.stacks.engine.planning import PlanConstraint


def planned(lab: Any, program: str, **options: Any) -> PlanConstraint:
    """What a saved plan of a preview allows, after it was a file."""
    digest = lab.crypter.compute_digest
    before = build_initial_basis(lab.subject(), {}, digest)
    outcome = lab.preview(program, **options)
    assert outcome.succeeded, lab.errors
    basis = complete_basis(before, outcome, digest)
    plan = Plan.from_changes("lab", "dev", outcome.planned).model_copy(update={"basis": basis})
    text = seal_plan(plan, digest).model_dump_json()
    return PlanConstraint.from_plan(Plan.model_validate_json(text), digest)


def refusals(lab: Any, bound: PlanConstraint, program: str, **options: Any) -> list[str]:
    """Why the plan cannot be applied now; nothing is changed by looking."""
    now = build_initial_basis(lab.subject(), {}, lab.crypter.compute_digest)
    moved = list(bound.find_basis_changes(now))
    if moved:
        return moved
    outcome = lab.preview(program, **options)
    assert outcome.succeeded, lab.errors
    return list(
        bound.find_excess(complete_basis(now, outcome, lab.crypter.compute_digest), outcome.planned)
    )


def applied(lab: Any, bound: PlanConstraint, program: str, **options: Any) -> Outcome:
    """A run within the bound, which nothing speaks against so far."""
    assert refusals(lab, bound, program, **options) == []
    outcome: Outcome = lab.up(program, constraint=bound, **options)
    return outcome


@contextmanager
def nothing_changes(lab: Any) -> Iterator[None]:
    """Neither the platform nor the state."""
    world = lab.platform_objects
    state = lab.snapshot.to_json(lab.crypter, show_secrets=True)
    yield
    assert lab.platform_objects == world
    assert lab.snapshot.to_json(lab.crypter, show_secrets=True) == state
