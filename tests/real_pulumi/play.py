"""Play random courses: `python tests/real_pulumi/play.py SEED|0-99 [--shrink]`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings
from processes.commands import Cli, pulumi, run_gpuform, run_new_process
from real_pulumi.side_by_side import Course, Difference, EnginePair, courses


class CourseDiffers(Exception):
    """Raised for a course that the two engines do not play alike."""


def play(
    stage: EnginePair, number: int, *, shrinking: bool
) -> tuple[Course, list[Difference]] | None:
    """Return the course of a seed and the differences, shrunk on request, or None."""
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
    def play_course(drawn: Course) -> None:
        nonlocal least
        if differences := stage.play(drawn):
            least = drawn, differences
            raise CourseDiffers

    try:
        play_course()
    except CourseDiffers:
        return least
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="17, or 0-99")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--ours", action="store_true", help="gpuform on both sides")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    expected: Cli = run_new_process if options.ours else pulumi
    with tempfile.TemporaryDirectory() as directory:
        stage = EnginePair(Path(directory), expected, run_gpuform)
        for number in range(int(first), int(last or first) + 1):
            began = time.monotonic()
            least = play(stage, number, shrinking=options.shrink)
            print(f"seed {number}: {time.monotonic() - began:.1f} s", flush=True)  # noqa: T201 - its purpose
            for line in [least[0], *least[1]] if least else []:
                print(line, flush=True)  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
