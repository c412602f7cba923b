"""Courses of random events; each takes the lab and hypothesis' `draw`."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from randomized.old_states import Planned, planned_states, plant
from randomized.operations import runs, updates
from randomized.playing import Player, outside_objects
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
    player.apply_saved(program, draw(updates(player.names(program))))
