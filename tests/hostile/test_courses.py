"""Test random courses on hostile platforms: nothing is lost, touched, doubled or leaked.

A failure prints its course, which `python tests/hostile/play.py PLATFORM SEED` plays again.
"""

import pytest
from hostile.courses import draw, draw_honest
from hostile.playing import Stage, shrink
from hostile.projects import PROJECTS

FAST = 2
"""Courses of each platform that always run; `sweep.py` plays many."""

SUCCESS, NO_CHANGE, NO_STACK = 0, 7, 6


def play(stage: Stage, platform: str, seeds: range) -> None:
    """Play all seeds, and report each that failed; the first by its shortest course."""
    failed = [played for seed in seeds if (played := stage.play(draw(platform, seed))).violations]
    if failed:
        others = [
            f"{played_course.course.seed}: {played_course.violations[0]}"
            for played_course in failed
        ]
        pytest.fail("\n".join([str(shrink(stage, failed[0])), "", *others]), pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("platform", PROJECTS)
def test_few_courses(stage: Stage, platform: str) -> None:
    play(stage, platform, range(FAST))


@pytest.mark.parametrize("platform", PROJECTS)
@pytest.mark.parametrize("seed", range(2))
def test_honest_courses_succeed(stage: Stage, platform: str, seed: int) -> None:
    """Check that the fakes alone cause no failure."""
    played = stage.play(draw_honest(platform, seed))
    assert not played.violations, str(played)
    assert set(played.codes) == {SUCCESS}, str(played)
