"""Scenarios of random events; each takes the lab and hypothesis' `draw`."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from randomized.memory_platform import MemoryPlatform, use_platform
from randomized.old_states import PlannedEntry, create_state, planned_states
from randomized.operations import runs, updates
from randomized.playing import Player, add_outside_objects
from randomized.saved import apply_plan, run_within, save_plan
from randomized.strategies import programs, successors

Draw = Callable[[st.SearchStrategy[Any]], Any]


def _create_player(lab: Any, draw: Draw, state: st.SearchStrategy[list[PlannedEntry]]) -> Player:
    platform = use_platform(MemoryPlatform(moving=draw(st.booleans())))
    add_outside_objects(platform)
    return Player(lab, platform, create_state(draw(state), platform))


def play_run_on_any_state(lab: Any, draw: Draw) -> None:
    """Play one run on a state made by hand."""
    player = _create_player(lab, draw, planned_states())
    program = draw(programs())
    player.play(program, draw(runs(player.list_names(program))))


def play_history(lab: Any, draw: Draw) -> None:
    """Play several successive runs of successive programs."""
    player = _create_player(lab, draw, st.just([]))
    program = draw(programs())
    for _ in range(draw(st.integers(1, 4))):
        player.play(program, draw(runs(player.list_names(program))))
        program = draw(successors(program))


def play_to_convergence(lab: Any, draw: Draw) -> None:
    """Play anything, then check that runs without failures converge, and destroy all."""
    player = _create_player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    if draw(st.booleans()):
        player.play(program, draw(runs(player.list_names(program))))
    player.converge(program)
    player.destroy()


def play_saved_plan(lab: Any, draw: Draw) -> None:
    """Apply a saved plan to what it was saved for, and check that exactly the plan is done."""
    player = _create_player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    run = draw(updates(player.list_names(program)))
    constraint = save_plan(player, program, run)
    if constraint is not None:
        apply_plan(player, constraint, program, run)


def play_outdated_plan(lab: Any, draw: Draw) -> None:
    """Change anything after a plan was saved, and check that a run within it does nothing else."""
    player = _create_player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    other = draw(successors(program))
    last = draw(st.sampled_from([program, other]))
    names = player.list_names(program) | player.list_names(other)
    saved, between, after = (
        draw(updates(names)),
        draw(st.none() | runs(names)),
        draw(updates(names)),
    )
    constraint = save_plan(player, program, saved)
    if constraint is None:
        return
    if between:
        player.play(other, between)
    run_within(player, constraint, last, after)
