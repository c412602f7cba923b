"""Save plans of random programs, and run within their constraints."""

from randomized.memory_platform import MUTATING
from randomized.operations import Run
from randomized.playing import Player
from randomized.programs import Program
from randomized.strategies import SECRET
from support.stacks import lab_plans

from gpuform.stacks.engine.planning import PlanConstraint

_ALLOWING = {
    "create": {"create", "replace"},
    "update": {"update", "replace"},
    "delete": {"delete"},
}
"""By a provider's verb, the effects of which a plan must have one for it to be called."""


def save_plan(player: Player, program: Program, run: Run) -> PlanConstraint | None:
    """Preview and return the constraint of the saved plan, or None if the preview fails."""
    if not player.preview(program, run).succeeded:
        return None
    constraint = lab_plans.save_plan(player.lab, program.text, **run.options)
    assert SECRET not in repr(constraint)
    return constraint


def apply_plan(player: Player, constraint: PlanConstraint, program: Program, run: Run) -> None:
    """Apply a plan to the program and state for which it was saved."""
    outcome = lab_plans.apply_plan(player.lab, constraint, program.text, **run.options)
    assert outcome.succeeded, player.lab.errors
    if player.platform.moving:
        done = {urn: tuple(sorted(effects)) for urn, effects in outcome.effects.items()}
        assert done == dict(constraint.basis.effects)


def run_within(player: Player, constraint: PlanConstraint, program: Program, run: Run) -> None:
    """Run another program within a plan, and check that only planned effects were requested."""
    player.platform.begin_run()
    player.lab.up(program.text, constraint=constraint, **run.options)
    for call in player.platform.calls:
        if call.verb in MUTATING:
            effects = {*constraint.basis.effects.get(call.urn, ())}
            assert effects & _ALLOWING[call.verb], f"{call}, planned: {sorted(effects)}"
