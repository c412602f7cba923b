"""Measure a plan of 30 stacks of 200 resources: `preview --all` beside a preview of each.

python tests/benchmarks/several_stacks.py [--stacks 30] [--resources 200] [--chains 2] [--applied]

The stacks are chains, as many as there are processors: each stack reads an output of the previous
stack of its chain. The ratio is the time of `preview --all` by the sum of the previews of the
slowest chain, one after the other. With `--applied` the same for a plan without changes. The peak
is that of the largest process.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Bench, create_bench, measure, render_table

PROJECT = "name: stack-{number}\nruntime: python\n"
REFERENCE = """
stack_references:
  before: organization/stack-{before}/dev
"""
VOLUME = """  data-{at}:
    platform: together
    volume_name: data-{number}-{at}
    region: {region}
    size_tib: 1
"""
FIRST = "us-central-8"
BEFORE = '"{{ stack_references.before.region }}"'


def render_topology(number: int, chains: int, resources: int) -> str:
    """Return a topology whose resources all use an output of the previous stack."""
    is_first = number < chains
    region = FIRST if is_first else BEFORE
    head = "" if is_first else REFERENCE.format(before=number - chains)
    volumes = (VOLUME.format(at=at, number=number, region=region) for at in range(resources))
    return f"{head}\nshared_volumes:\n{''.join(volumes)}\noutputs:\n  region: {region}\n"


def declare(stack: Bench, options: argparse.Namespace) -> list[Path]:
    """Write projects, create a stack of each, and return the folders."""
    folders = []
    (stack.directory / "Pulumi.yaml").unlink()
    (stack.directory / "Pulumi.dev.yaml").unlink()
    (stack.directory / "stacks.yaml").write_text("stacks: [{folder: 'stack-*', stack: dev}]\n")
    for number in range(options.stacks):
        folder = stack.directory / f"stack-{number}"
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(PROJECT.format(number=number))
        (folder / "topology.yaml").write_text(
            render_topology(number, options.chains, options.resources)
        )
        folders.append(folder)
    stack.run("stack", "init", "--all")
    return folders


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", type=int, default=30)
    parser.add_argument("--resources", type=int, default=200)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--applied", action="store_true")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = [("", "seconds", "ratio", "peak MiB")]
    with create_bench(100_000.0) as stack:
        folders = declare(stack, options)
        if options.applied:
            stack.run("up", "--all", "--yes")
        # A stack that reads another is planned by itself once the other has something to read.
        command = [sys.executable, "-m", "gpuform.stacks.cli", "preview"]
        chains = [folders[first :: options.chains] for first in range(options.chains)]
        firsts = [measure(command, chain[0], stack.environ).seconds for chain in chains]
        sums = [first * len(chain) for first, chain in zip(firsts, chains, strict=True)]
        if options.applied:
            sums = [
                sum(measure(command, folder, stack.environ).seconds for folder in chain)
                for chain in chains
            ]
        together = stack.run("preview", "--all", "--jobs", str(options.chains))
    slowest = max(sums)
    rows.append(("the slowest chain, one by one", f"{slowest:.2f}", "1.00", ""))
    ratio, peak = f"{together.seconds / slowest:.2f}", f"{together.peak:.0f}"
    rows.append(("preview --all", f"{together.seconds:.2f}", ratio, peak))
    sys.stdout.write(render_table(rows))


if __name__ == "__main__":
    main()
