"""Courses of random events; each takes the lab and hypothesis' `draw`."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from randomized.old_states import Planned, planned_states, plant
from randomized.operations import runs, updates
from randomized.playing import Player, outside_objects
from randomized.saved import apply_plan, run_within, save_plan
from randomized.strategies import programs, successors
from randomized.world import World, use

Draw = Callable[[st.SearchStrategy[Any]], Any]


def _player(lab: Any, draw: Draw, state: st.SearchStrategy[list[Planned]]) -> Player:
    world = use(World(moving=draw(st.booleans())))
    outside_objects(world)
    return Player(lab, world, plant(draw(state), world))


def a_run_on_any_state(lab: Any, draw: Draw) -> None:
    """One run on a state made by hand."""
    player = _player(lab, draw, planned_states())
    program = draw(programs())
    player.play(program, draw(runs(player.names(program))))


def a_history(lab: Any, draw: Draw) -> None:
    """Several runs one after the other, of programs that follow each other."""
    player = _player(lab, draw, st.just([]))
    program = draw(programs())
    for _ in range(draw(st.integers(1, 4))):
        player.play(program, draw(runs(player.names(program))))
        program = draw(successors(program))


def a_happy_end(lab: Any, draw: Draw) -> None:
    """After anything, a run in which nothing fails leaves nothing to do, and a destroy nothing."""
    player = _player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    if draw(st.booleans()):
        player.play(program, draw(runs(player.names(program))))
    player.settle(program)
    player.destroy()


def a_saved_plan(lab: Any, draw: Draw) -> None:
    """A plan that is applied to what it was made for is accepted, and exactly it is done."""
    player = _player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    run = draw(updates(player.names(program)))
    bound = save_plan(player, program, run)
    if bound is not None:
        apply_plan(player, bound, program, run)


def an_overtaken_plan(lab: Any, draw: Draw) -> None:
    """Whatever happens after a plan was saved: a run within it does nothing else."""
    player = _player(lab, draw, planned_states())
    program = draw(programs(may_fail=False))
    other = draw(successors(program))
    last = draw(st.sampled_from([program, other]))
    names = player.names(program) | player.names(other)
    saved, between, after = (
        draw(updates(names)),
        draw(st.none() | runs(names)),
        draw(updates(names)),
    )
    bound = save_plan(player, program, saved)
    if bound is None:
        return
    if between:
        player.play(other, between)
    run_within(player, bound, last, after)
