"""Plays random courses by hand: `python tests/real_pulumi/play.py SEED|0-99 [--shrink]`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings
from processes.commands import Cli, pulumi, run_gpuform, run_new_process
from real_pulumi.side_by_side import Course, Difference, Stage, courses


class Differs(Exception):
    """A course that the two do not play alike."""


def play(stage: Stage, number: int, *, shrinking: bool) -> tuple[Course, list[Difference]] | None:
    """What differs in the course of a seed, the least of its kind if it is to be shrunk."""
    least = None
    phases = [Phase.generate, *([Phase.shrink] if shrinking else [])]

    # The first example is the empty one.
    @settings(
        max_examples=2,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @seed(number)
    @given(courses())
    def course(drawn: Course) -> None:
        nonlocal least
        if differences := stage.play(drawn):
            least = drawn, differences
            raise Differs

    try:
        course()
    except Differs:
        return least
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="17, or 0-99")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--ours", action="store_true", help="gpuform on both sides")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    expected: Cli = run_new_process if given.ours else pulumi
    with tempfile.TemporaryDirectory() as place:
        stage = Stage(Path(place), expected, run_gpuform)
        for number in range(int(first), int(last or first) + 1):
            began = time.monotonic()
            least = play(stage, number, shrinking=given.shrink)
            print(f"seed {number}: {time.monotonic() - began:.1f} s", flush=True)  # noqa: T201 - its purpose
            for each in [least[0], *least[1]] if least else []:
                print(each, flush=True)  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
