"""Saved plans of random programs, and runs within them."""

from randomized.operations import Run
from randomized.playing import Player
from randomized.programs import Program
from randomized.strategies import SECRET
from randomized.world import MUTATING
from support.stacks import lab_plans

from gpuform.stacks.engine.planning import PlanConstraint

_ALLOWING = {
    "create": {"create", "replace"},
    "update": {"update", "replace"},
    "delete": {"delete"},
}
"""By a provider's verb, the effects of which a plan must have one for it to be called."""


def save_plan(player: Player, program: Program, run: Run) -> PlanConstraint | None:
    """What a saved plan allows; None when there is none, because its preview fails."""
    if not player.preview(program, run).succeeded:
        return None
    bound = lab_plans.save_plan(player.lab, program.text, **run.options)
    assert SECRET not in repr(bound)
    return bound


def apply_plan(player: Player, bound: PlanConstraint, program: Program, run: Run) -> None:
    """Applies it to what it was made for."""
    outcome = lab_plans.apply_plan(player.lab, bound, program.text, **run.options)
    assert outcome.succeeded, player.lab.errors
    if player.world.moving:
        done = {urn: tuple(sorted(effects)) for urn, effects in outcome.effects.items()}
        assert done == dict(bound.basis.effects)


def run_within(player: Player, bound: PlanConstraint, program: Program, run: Run) -> None:
    """Runs anything within a plan that it was not made for: nothing else is asked for."""
    player.world.begin()
    player.lab.up(program.text, constraint=bound, **run.options)
    for call in player.world.calls:
        if call.verb in MUTATING:
            effects = {*bound.basis.effects.get(call.urn, ())}
            assert effects & _ALLOWING[call.verb], f"{call}, planned: {sorted(effects)}"
