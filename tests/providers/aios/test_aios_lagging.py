"""A registry that lags, loses answers and has other writers: nothing is doubled, lost or taken."""

from pathlib import Path

import pytest

from .lagging_courses import EAST, WEST, Course
from .lagging_registry import wrong_sums


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_random_courses_of_two_stacks_and_a_colleague(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(seed, tmp_path, monkeypatch)
    course.play()
    for cluster_id in (WEST, EAST):
        record = course.registry.record(cluster_id)
        assert record is None or wrong_sums(record) == [], course.told()
