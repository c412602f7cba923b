"""Play courses: `python tests/hostile/play.py together 17 [--shrink] [--honest]`.

A range of seeds, `0-99`, prints which of them fail, by which invariant, and how long they took.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hostile.courses import draw_course, draw_honest_course
from hostile.playing import open_player, shrink_course


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platform")
    parser.add_argument("seeds", help="17, or 0-99")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--honest", action="store_true")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    drawn = draw_honest_course if args.honest else draw_course
    with open_player() as player:
        counts: Counter[str] = Counter()
        began = time.monotonic()
        commands = 0
        for seed in range(int(first), int(last or first) + 1):
            played = player.play(drawn(args.platform, seed))
            commands += len(played.codes)
            for violation in {it.invariant for it in played.violations}:
                counts[violation] += 1
            if played.violations and args.shrink:
                played = shrink_course(player, played)
            if played.violations or not last:
                print(played if args.shrink or not last else f"{seed}: {played.violations[0]}")  # noqa: T201 - its purpose
        took = time.monotonic() - began
        print(f"{dict(counts)}; {took:.1f} s, {commands} commands, {took / commands:.3f} s each")  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
