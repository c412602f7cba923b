"""Play many courses and record them: `python tests/hostile/sweep.py pool 0 499 FILE`.

FILE, outside of the project, gets a line of JSON for each course that was played: platform, seed,
seconds, the commit, what was found, and then the whole course with its requests. The next run with
that file goes on behind them. `--again` plays those once more that have found something.
`--true-times` plays the same courses on platforms whose clocks and creation times are right; give
it a FILE of its own. Exits with 1 when a course of FILE has found something.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exhaustive.play import find_commit
from hostile.courses import draw_course
from hostile.fakes.behavior import TRUE
from hostile.playing import CoursePlayer, open_player

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platform")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("results", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing after that")
    parser.add_argument(
        "--again", action="store_true", help="play once more what has found something"
    )
    parser.add_argument(
        "--true-times", action="store_true", help="let clocks and creation times be right"
    )
    options = parser.parse_args()
    earlier = read_results(options.results, options.platform)
    finished_seeds = {
        seed for seed, result in earlier.items() if not (options.again and result["found"])
    }
    selected_seeds = [
        seed for seed in range(options.first, options.last + 1) if seed not in finished_seeds
    ]
    if options.again:
        selected_seeds = [seed for seed in selected_seeds if seed in earlier]
    ends = time.monotonic() + options.minutes * 60
    commit = find_commit(ROOT)
    with open_player() as player, options.results.open("a") as file:
        for seed in selected_seeds:
            if time.monotonic() > ends:
                break
            result = play_seed(player, options.platform, seed, are_times_true=options.true_times)
            print(json.dumps({**result, "commit": commit}), file=file, flush=True)
            for violation in result["found"][:1]:
                print(f"{options.platform} {seed}: {violation}", flush=True)  # noqa: T201 - its purpose
    results = read_results(options.results, options.platform)
    print(summarize(results))  # noqa: T201 - its purpose
    return int(any(result["found"] for result in results.values()))


def read_results(path: Path, platform: str) -> dict[int, dict[str, Any]]:
    """Return the last result of each seed."""
    if not path.exists():
        return {}
    results = [json.loads(line) for line in path.read_text().splitlines()]
    return {result["seed"]: result for result in results if result["platform"] == platform}


def play_seed(
    player: CoursePlayer, platform: str, seed: int, *, are_times_true: bool = False
) -> dict[str, Any]:
    began = time.monotonic()
    course = draw_course(platform, seed)
    if are_times_true:
        behavior = replace(course.behavior, clock_skew=0, created_at=TRUE)
        course = replace(course, behavior=behavior)
    played = player.play(course)
    return {
        "platform": platform,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 2),
        "found": [str(violation) for violation in played.violations],
        "course": str(played) if played.violations else "",
    }


def summarize(results: dict[int, dict[str, Any]]) -> str:
    finds = [result["found"][0].partition(":")[0] for result in results.values() if result["found"]]
    seconds = sum(result["seconds"] for result in results.values())
    pace = seconds / max(1, len(results))
    return f"{len(results)} courses, {len(finds)} finds {dict(Counter(finds))}, {pace:.1f} s each"


if __name__ == "__main__":
    raise SystemExit(main())
