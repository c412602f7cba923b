"""Measure the plan of many stacks on one machine and on several runners, and the bytes between.

python tests/benchmarks/many_runners.py [--stacks 200] [--resources 100] [--runners 8] [--alone]

A tenth of the stacks are networks; each other stack reads an output of one of them, so that there
are two waves. The runners of a wave work one after the other, so that none slows another down. The
slowest way is what a pipeline waits for if each runner has a machine of its own: the waves, the
longest part of each wave, and the join. All stacks share one salt: with a salt for each, every plan
takes 0.3 s more on both ways, and so does the check of each part by `join`. `--alone` leaves the
one machine out.
"""

import argparse
import ctypes
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Bench, Measured, create_bench, render_table

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): a command's orphans become children of this process."""
PROJECT = "name: {name}\nruntime: python\n"
REFERENCE = "stack_references:\n  network: organization/{network}/dev\n"
VOLUME = """  data-{at}:
    platform: together
    volume_name: {name}-{at}
    region: {region}
    size_tib: 1
"""


@dataclass
class Runners:
    """The measured commands of several runners: those of each wave, and the bytes that they got."""

    waves: list[list[Measured]] = field(default_factory=list)
    received: int = 0

    @property
    def commands(self) -> list[Measured]:
        return [measured for wave in self.waves for measured in wave]


def declare(stack: Bench, stacks: int, resources: int) -> None:
    """Write the projects, and create a stack of each."""
    settings = stack.directory / "Pulumi.dev.yaml"
    (stack.directory / "Pulumi.yaml").unlink()
    (stack.directory / "stacks.yaml").write_text("stacks: [{folder: 's-*', stack: dev}]\n")
    networks = max(1, stacks // 10)
    for number in range(stacks):
        name, is_network = f"s-{number}", number < networks
        region = "us-central-8" if is_network else '"{{ stack_references.network.region }}"'
        head = "" if is_network else REFERENCE.format(network=f"s-{number % networks}")
        volumes = "".join(VOLUME.format(at=at, name=name, region=region) for at in range(resources))
        folder = stack.directory / name
        folder.mkdir()
        shutil.copy(settings, folder)
        (folder / "Pulumi.yaml").write_text(PROJECT.format(name=name))
        (folder / "topology.yaml").write_text(
            f"{head}\nshared_volumes:\n{volumes}\noutputs:\n  region: us-central-8\n"
            "  first: \"{{ shared_volumes['data-0'].id }}\"\n"
        )
    settings.unlink()
    stack.run("stack", "init", "--all")


def run(stack: Bench, *arguments: str) -> Measured:
    """Run a command, and add the processor time of the processes that it has left behind."""
    measured = stack.run(*arguments)
    work, peak = measured.work, measured.peak
    while orphans := [it for it in list_children() if it != stack.process]:
        for orphan in orphans:
            _, _, usage = os.wait4(orphan, 0)
            work += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss / 1024)
    return Measured(measured.seconds, peak, work)


def list_children() -> list[int]:
    """Return the process ids of this process's children."""
    files = Path("/proc/self/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text().split()]


def plan_in_parts(stack: Bench) -> Runners:
    """Plan each part as a runner of its own does, and return the figures."""
    runners = Runners()
    parts = stack.directory / "parts"
    schedule = json.loads((parts / "waves.json").read_text())
    dependencies = {it["name"]: it["dependencies"] for it in schedule["stacks"]}
    for wave in schedule["waves"]:
        runners.waves.append([])
        for part in wave:
            names = part["stacks"].split()
            upstream = {other for name in names for other in dependencies[name]}
            files = [parts / "waves.json", *(parts / f"{name}.json" for name in upstream)]
            runners.received += sum(file.stat().st_size for file in files)
            runners.waves[-1].append(run(stack, "plan-part", *names))
    return runners


def describe(label: str, measured: Sequence[Measured], seconds: float) -> tuple[str, ...]:
    """Return a row of the table: processor time of all, elapsed time, peak of one process."""
    work = sum(it.work for it in measured)
    return label, f"{work:.1f}", f"{seconds:.1f}", f"{max(it.peak for it in measured):.0f}"


def read_joined_plan(stack: Bench) -> list[tuple[str, ...]]:
    """Review the joined plan, apply the plan of one stack, and return the rows of the table."""
    up = ("up", "--all", "--yes", "--plan", "joined.json", "--stack", "s-0/dev")
    review = run(stack, "review", "joined.json", "--output", "review.txt")
    apply = run(stack, *up)
    # The gates judge the changes of all stacks. The run finds the plan of its stack applied.
    with (stack.directory / "stacks.yaml").open("a") as file:
        file.write("gates: {few: {max_destroyed_gpus: 8}}\n")
    judged = run(stack, *up)
    measured = {
        "review": review,
        "apply of one stack": apply,
        "the same with a gate": judged,
    }
    return [describe(label, [it], it.seconds) for label, it in measured.items()]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", type=int, default=200)
    parser.add_argument("--resources", type=int, default=100)
    parser.add_argument("--runners", type=int, default=8)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
    rows: list[tuple[str, ...]] = [("", "CPU seconds", "seconds", "peak MiB")]
    with create_bench(100_000.0) as stack:
        declare(stack, options.stacks, options.resources)
        waves = run(stack, "plan-part", "--waves", "--runners", str(options.runners))
        rows.append(describe("plan-part --waves", [waves], waves.seconds))
        runners = plan_in_parts(stack)
        longest = sum(max(it.seconds for it in wave) for wave in runners.waves)
        rows.append(describe("all parts", runners.commands, longest))
        slowest = max(runners.commands, key=lambda it: it.work)
        rows.append(describe("the longest part", [slowest], slowest.seconds))
        join = run(stack, "join", "--save-plan", "joined.json")
        rows.append(describe("join", [join], join.seconds))
        way = [waves, *runners.commands, join]
        elapsed = waves.seconds + longest + join.seconds
        rows.append(describe("plan on the runners", way, elapsed))
        parts = [path.stat().st_size for path in (stack.directory / "parts").rglob("*.json")]
        rows += read_joined_plan(stack)
        if not options.alone:
            one = run(stack, "preview", "--all", "--save-plan", "one.json")
            rows.append(describe("preview --all", [one], one.seconds))
        joined = (stack.directory / "joined.json").stat().st_size
    sys.stdout.write(render_table(rows))
    sent = sum(parts) / 2**20
    sys.stdout.write(
        f"bytes: {sent:.1f} MiB of parts, {runners.received / 2**20:.1f} MiB read by the parts, "
        f"{joined / 2**20:.1f} MiB of joined plan\n"
    )


if __name__ == "__main__":
    main()
