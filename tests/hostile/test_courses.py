"""Test random courses on hostile platforms: nothing is lost, touched, doubled or leaked.

A failure prints its course, which `python tests/hostile/play.py PLATFORM SEED` plays again.
"""

import pytest
from hostile.courses import draw_course, draw_honest_course
from hostile.playing import CoursePlayer, shrink_course
from hostile.projects import PROJECTS

FAST = 2
"""Courses of each platform that always run; `sweep.py` plays many."""

SUCCESS, NO_CHANGE, NO_STACK = 0, 7, 6


def play(player: CoursePlayer, platform: str, seeds: range) -> None:
    """Play all seeds, and report each failed one; the first with a shrunk course."""
    failed = [
        result for seed in seeds if (result := player.play(draw_course(platform, seed))).violations
    ]
    if failed:
        others = [f"{result.course.seed}: {result.violations[0]}" for result in failed]
        pytest.fail("\n".join([str(shrink_course(player, failed[0])), "", *others]), pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("platform", PROJECTS)
def test_random_courses_violate_no_invariant(player: CoursePlayer, platform: str) -> None:
    play(player, platform, range(FAST))


@pytest.mark.parametrize("platform", PROJECTS)
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_honest_courses_succeed(player: CoursePlayer, platform: str, seed: int) -> None:
    """Check that the fakes alone cause no failure."""
    played = player.play(draw_honest_course(platform, seed))
    assert not played.violations, str(played)
    assert set(played.codes) == {SUCCESS}, str(played)
