"""A topology of 10,000 nodes: `up`, then a `preview` and a `refresh` that find nothing to do.

python tests/benchmarks/topology.py [--nodes 10000] [--sdk] [--pulumi]

The nodes of a registry that AIOS keeps, against the emulator, and a quarter of them beside it: what
grows more than four times is not linear. By the spans of `--profile`, where the processor time of
the preview and of the refresh goes. With `--sdk` the same topology goes through the Pulumi SDK as
well, in gpuform's engine, and with `--pulumi` through the Pulumi CLI on the PATH; the ratios are
gpuform's figures without the SDK by theirs.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from real_resources import COUNTED, SHARES, shares_of
from running import Bench, bench, measured, table

CLUSTER = """  cluster-NUMBER:
    platform: aios
    cluster_id: cluster-NUMBER
    region_id: region-1
    config: {public_hostname: registry.example.net}
    tags: [gpu]
    cluster_metadata: {name: training, description: nodes, owner: research}
"""
NODE = """  node-NUMBER:
    platform: aios
    cluster: "{{ clusters['cluster-GROUP'] }}"
    node_id: node-NUMBER
    gpus: {gpus: [{model_name: H100, memory: 81920}], features: [fp16]}
    vcpus: {count: 96}
    memory: 1048576
    swap: 8192
    storage: {disks: 8, size: 30720000}
    network: {interfaces: 2, tx_bandwidth: 100000, rx_bandwidth: 100000}
"""
GROUP = 100
SPEED = 1200.0
COMMANDS = {
    "up": ("up", "--yes", "--skip-preview"),
    "preview": ("preview", "--expect-no-changes"),
    "refresh": ("refresh", "--yes", "--skip-preview", "--expect-no-changes"),
}


PULUMI = {
    "up": ("up", "--yes", "--skip-preview"),
    "preview": ("preview", "--expect-no-changes"),
    "refresh": ("refresh", "--yes", "--skip-preview"),
}
BY_THE_SDK = "import gpuform.stacks\n\ngpuform.stacks.run()\n"
"""A program that does more than hand over a topology, for all that gpuform knows."""


def figures(count: int, program: str = "") -> Mapping[str, float]:
    """What so many nodes take, by what it is."""
    with bench(SPEED) as stack:
        (stack.directory / "topology.yaml").write_text(written(count))
        if program:
            stack.declare(program)
        found: dict[str, float] = {}
        for name, arguments in COMMANDS.items():
            found |= {f"{name}: {what}": n for what, n in one(stack, *arguments).items()}
        return found


def figures_of_pulumi(count: int) -> Mapping[str, float]:
    """The same by the Pulumi CLI, as far as it can be seen from outside."""
    with bench(SPEED) as stack:
        (stack.directory / "topology.yaml").write_text(written(count))
        stack.declare("from gpuform.stacks import run\n\nrun()\n")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        found: dict[str, float] = {}
        for name, arguments in PULUMI.items():
            stack.forget_requests()
            command = ["pulumi", *arguments, "--stack", "dev", "--non-interactive"]
            ran = measured(command, stack.directory, {**stack.environ, "PATH": path})
            told = {"seconds": ran.seconds, "processor": ran.work, "peak MiB": ran.peak}
            told["requests"] = len(stack.requests())
            found |= {f"{name}: {what}": number for what, number in told.items()}
        return found


def one(stack: Bench, *arguments: str) -> Mapping[str, float]:
    """The figures of one command."""
    stack.forget_requests()
    profile, counted = stack.directory / "profile.json", stack.directory / "counted.json"
    ran = stack.run(*arguments, "--profile", str(profile), by=[COUNTED, str(counted)])
    shares = shares_of(profile)
    return {
        "seconds": ran.seconds,
        "processor": ran.work,
        **{f"  {name}": shares[kind] for kind, name in SHARES.items()},
        "requests": len(stack.requests()),
        "peak MiB": ran.peak,
    }


def written(count: int) -> str:
    """The topology of so many nodes, a hundred in a cluster."""
    clusters = (CLUSTER.replace("NUMBER", str(number)) for number in range(-(-count // GROUP)))
    nodes = (
        NODE.replace("NUMBER", str(number)).replace("GROUP", str(number // GROUP))
        for number in range(count)
    )
    return "".join(["clusters:\n", *clusters, "gpu_nodes:\n", *nodes])


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--sdk", action="store_true", help="through the Pulumi SDK as well")
    parser.add_argument("--pulumi", action="store_true", help="by the Pulumi CLI as well")
    options = parser.parse_args()
    counts = (max(1, options.nodes // 4), options.nodes)
    few, many = map(figures, counts)
    others: dict[str, Mapping[str, float]] = {}
    if options.sdk:
        others["by the SDK"] = figures(options.nodes, BY_THE_SDK)
    if options.pulumi:
        others["by pulumi"] = figures_of_pulumi(options.nodes)
    beside = [title for name in others for title in (name, "ratio")]
    rows = [("nodes", *map(str, counts), "growth", *beside)]
    for name, number in few.items():
        growth = f"{many[name] / number:.1f}" if number >= 0.05 else ""
        cells = [f"{number:.4g}", f"{many[name]:.4g}", growth]
        for other in others.values():
            cells += _beside(many[name], other.get(name))
        rows.append((name, *cells))
    sys.stdout.write(table(rows))


def _beside(ours: float, theirs: float | None) -> tuple[str, str]:
    if theirs is None:
        return "", ""
    return f"{theirs:.4g}", f"{ours / theirs:.2f}" if theirs >= 0.05 else ""


if __name__ == "__main__":
    main()
