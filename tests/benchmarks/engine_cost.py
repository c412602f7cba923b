"""Measure the engine's cost on top of the Pulumi SDK, which runs the program without an engine.

python tests/benchmarks/engine_cost.py [--sizes 1000 5000] [--slow 64 1000] [--times 3]

Dynamic resources whose provider answers at once: `up`, and a `preview` without changes, as ratios
to
the SDK alone. Then creates of one second each, all in parallel. Of several runs the fastest counts.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from running import measure, render_table

SDK_ALONE = [sys.executable, str(Path(__file__).parent / "sdk_alone.py")]
GPUFORM = [sys.executable, "-m", "gpuform.stacks.cli"]


PROVIDER = """
import time
from pathlib import Path

from pulumi import Output
from pulumi.dynamic import CreateResult, Resource, ResourceProvider


class Machines(ResourceProvider):
    def create(self, props):
        time.sleep(props["seconds"])
        return CreateResult(props["name"], props)


class Machine(Resource):
    def __init__(self, name, seconds):
        super().__init__(Machines(), name, {"name": name, "text": "x" * 200, "seconds": seconds})


def declare(count, seconds):
    began = time.monotonic()
    machines = [Machine(f"machine-{number}", seconds) for number in range(count)]
    ids = Output.all(*[machine.id for machine in machines])
    ids.apply(lambda _: Path("span").write_text(str(time.monotonic() - began)))
"""


@dataclass(frozen=True, order=True)
class Run:
    """Time in seconds and peak memory in MiB of a run.

    `span` is the time from the first registration until the program has all ids.
    """

    seconds: float
    peak: float
    span: float


@dataclass
class Stack:
    """A stack `dev` in a directory of its own; of `times` runs the fastest counts."""

    directory: Path
    times: int

    def declare(self, count: int, seconds: float = 0.0) -> None:
        (self.directory / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        (self.directory / "machines.py").write_text(PROVIDER)
        program = f"from machines import declare\n\ndeclare({count}, {seconds})\n"
        (self.directory / "__main__.py").write_text(program)

    def run_sdk_alone(self, *arguments: str) -> Run:
        return min(self._run([*SDK_ALONE, *arguments]) for _ in range(self.times))

    def run_up(self, *arguments: str) -> Run:
        """Return the fastest `up` of an empty stack."""
        return min(self._run_up_once(arguments) for _ in range(self.times))

    def run_preview(self) -> Run:
        """Return the fastest `preview` of a stack without changes."""
        command = [*GPUFORM, "preview", "--expect-no-changes"]
        return min(self._run(command) for _ in range(self.times))

    def _run_up_once(self, arguments: Sequence[str]) -> Run:
        shutil.rmtree(self.directory / ".pulumi", ignore_errors=True)
        self._run([*GPUFORM, "stack", "init", "dev"])
        return self._run([*GPUFORM, "up", "--yes", "--skip-preview", *arguments])

    def _run(self, command: Sequence[str]) -> Run:
        environ = {
            **os.environ,
            "PULUMI_HOME": str(self.directory / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.directory}",
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        span = self.directory / "span"
        span.unlink(missing_ok=True)
        done = measure(command, self.directory, environ)
        return Run(done.seconds, done.peak, float(span.read_text()) if span.exists() else 0.0)


def compare_with_sdk(stack: Stack, sizes: Sequence[int]) -> list[tuple[str, ...]]:
    """Return rows of ratios to the SDK alone, a column for each size."""
    runs, spared = [], []
    for size in sizes:
        stack.declare(size)
        runs.append(
            (
                stack.run_sdk_alone(),
                stack.run_up(),
                stack.run_sdk_alone("--preview"),
                stack.run_preview(),
            )
        )
        spared.append(stack.run_sdk_alone("--spared").seconds)
    own = [run[1].seconds - sdk for run, sdk in zip(runs, spared, strict=True)]
    rows = [("resources that are made at once", *map(str, sizes))]
    for offset, name in ((0, "up"), (2, "unchanged preview")):
        pairs = [(run[offset], run[offset + 1]) for run in runs]
        rows += [
            (f"{name}: SDK alone", *(f"{sdk.seconds:.2f} s" for sdk, _ in pairs)),
            (f"{name}: gpuform", *(f"{ours.seconds:.2f} s" for _, ours in pairs)),
            (f"{name}: ratio", *(f"{ours.seconds / sdk.seconds:.2f}" for sdk, ours in pairs)),
            (f"{name}: peak of the SDK", *(f"{sdk.peak:.0f} MiB" for sdk, _ in pairs)),
            (f"{name}: beyond it", *(f"{ours.peak - sdk.peak:.0f} MiB" for sdk, ours in pairs)),
        ]
    return [
        *rows,
        ("SDK alone, spared what gpuform spares it", *(f"{seconds:.2f} s" for seconds in spared)),
        ("up without that: the engine's own part", *(f"{seconds:.2f} s" for seconds in own)),
        ("  growth", *(f"{seconds / own[0]:.1f}" for seconds in own)),
    ]


def measure_slow_creates(
    stack: Stack, counts: Sequence[int], seconds: float
) -> list[tuple[str, ...]]:
    """Return rows of creates with `seconds` each, all in parallel, a column for each count."""
    runs = []
    for count in counts:
        stack.declare(count, seconds)
        runs.append((stack.run_sdk_alone(), stack.run_up("--parallel", str(count))))
    return [
        (f"creates of {seconds:g} s, side by side", *map(str, counts)),
        ("first registration to last answer", *(f"{ours.span:.2f} s" for _, ours in runs)),
        ("whole command", *(f"{ours.seconds:.2f} s" for _, ours in runs)),
        ("  beyond the SDK alone", *(f"{ours.seconds - sdk.seconds:.2f} s" for sdk, ours in runs)),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--slow", type=int, nargs="+", default=[64, 1000], help="slow creates")
    parser.add_argument("--seconds", type=float, default=1.0, help="what a slow create takes")
    parser.add_argument("--times", type=int, default=3, help="runs, of which the fastest counts")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        stack = Stack(Path(name), options.times)
        sys.stdout.write(render_table(compare_with_sdk(stack, options.sizes)) + "\n")
        sys.stdout.write(render_table(measure_slow_creates(stack, options.slow, options.seconds)))


if __name__ == "__main__":
    main()
