"""Measure the cases of `gpuform test` per second, beside a run on the emulator by hand for each.

python tests/benchmarks/playing_cases.py [--cases 40] [--jobs 2]

Each case creates a volume and four clusters. By hand it is a `gpuform up --emulate` in a folder of
its own, one after the other.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from running import Measured, measure, render_table
from validating import write_topology

CLUSTERS = 4
PROJECT = "name: bench\nruntime: python\nbackend: {url: file://.}\n"
CASE = """  case_NUMBER:
    config: {gpus: SIZE}
    expect:
      plan: {data: create, PLANNED}
      properties: {train-0: {num_gpus: SIZE}}
"""
GPUFORM = (sys.executable, "-m", "gpuform.stacks.cli")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        declare(folder, options.cases)
        test = (*GPUFORM, "test", str(folder))
        ways = [
            ("gpuform test -j 1", options.cases, measure([*test, "-j", "1"], folder)),
            (
                f"gpuform test -j {options.jobs}",
                options.cases,
                measure([*test, "-j", str(options.jobs)], folder),
            ),
            ("gpuform up --emulate", 1, run_by_hand(folder)),
        ]
    rows = [("way", "cases per second", "seconds per case", "peak of a process", "ratio")]
    by_hand_once = ways[-1][2].seconds
    for label, count, taken in ways:
        seconds_per_case = taken.seconds / count
        ratio = f"{seconds_per_case / by_hand_once:.2f}"
        rows.append(
            (
                label,
                f"{1 / seconds_per_case:.1f}",
                f"{seconds_per_case:.2f}",
                f"{taken.peak:.0f} MiB",
                ratio,
            )
        )
    sys.stdout.write(render_table(rows))


def declare(folder: Path, cases: int) -> None:
    """Write a project with a topology and test cases."""
    (folder / "Pulumi.yaml").write_text(PROJECT)
    Path(write_topology(folder, CLUSTERS)).rename(folder / "topology.yaml")
    planned = ", ".join(f"train-{number}: create" for number in range(CLUSTERS))
    tests = folder / "tests"
    tests.mkdir()
    texts = (
        CASE.replace("NUMBER", str(number))
        .replace("SIZE", str(8 * (1 + number % 4)))
        .replace("PLANNED", planned)
        for number in range(cases)
    )
    (tests / "bench.yaml").write_text("cases:\n" + "".join(texts))


def run_by_hand(folder: Path) -> Measured:
    """Create a stack, and return the figures of the first `up`."""
    home = folder / "home"
    environ = {**os.environ, "PULUMI_HOME": str(home), "PULUMI_CONFIG_PASSPHRASE": ""}
    measure([*GPUFORM, "stack", "init", "dev"], folder, environ)
    return measure([*GPUFORM, "up", "--emulate", "--yes", "-s", "dev"], folder, environ)


if __name__ == "__main__":
    main()
