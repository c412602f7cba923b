"""Random programs on random states, played by both engines: equal steps, calls and states.

`play.py` plays more of them, and shrinks what it finds.
"""

import os
from pathlib import Path

import pytest
from processes.commands import Cli, pulumi
from real_pulumi.play import play
from real_pulumi.side_by_side import EnginePair

SEEDS = range(int(os.environ.get("GPUFORM_RANDOM_PROGRAMS", "20")))


@pytest.mark.parametrize("seed", SEEDS)
def test_both_engines_do_the_same(seed: int, tmp_path: Path, gpuform: Cli) -> None:
    if failure := play(EnginePair(tmp_path, pulumi, gpuform), seed, shrinking=False):
        course, differences = failure
        pytest.fail("\n".join(map(str, [course, *differences])))
