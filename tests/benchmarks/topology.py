"""Measure a topology of 10,000 nodes: `up`, then a `preview` and a `refresh` without changes.

python tests/benchmarks/topology.py [--nodes 10000] [--sdk] [--pulumi]

The nodes of an AIOS registry on the emulator, and a quarter of them beside: growth over four times
is not linear. The spans of `--profile` show the processor time of the preview and of the refresh.
With `--sdk` the same topology also goes through the Pulumi SDK in gpuform's engine, and with
`--pulumi` through the Pulumi CLI on the PATH; the ratios are gpuform's figures without the SDK by
those.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from real_resources import COUNTED, SHARES, read_shares
from running import Bench, create_bench, measure, render_table

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
"""A program for which gpuform cannot know that it only runs a topology."""


def measure_gpuform(count: int, program: str = "") -> Mapping[str, float]:
    """Return gpuform's figures for `count` nodes, by label."""
    with create_bench(SPEED) as stack:
        (stack.directory / "topology.yaml").write_text(render_topology(count))
        if program:
            stack.declare(program)
        figures_by_label: dict[str, float] = {}
        for name, arguments in COMMANDS.items():
            figures_by_label |= {
                f"{name}: {label}": n for label, n in measure_command(stack, *arguments).items()
            }
        return figures_by_label


def measure_pulumi(count: int) -> Mapping[str, float]:
    """Return the Pulumi CLI's figures, as far as measurable from outside."""
    with create_bench(SPEED) as stack:
        (stack.directory / "topology.yaml").write_text(render_topology(count))
        stack.declare("from gpuform.stacks import run\n\nrun()\n")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        figures_by_label: dict[str, float] = {}
        for name, arguments in PULUMI.items():
            stack.forget_requests()
            command = ["pulumi", *arguments, "--stack", "dev", "--non-interactive"]
            ran = measure(command, stack.directory, {**stack.environ, "PATH": path})
            command_figures = {"seconds": ran.seconds, "processor": ran.work, "peak MiB": ran.peak}
            command_figures["requests"] = len(stack.list_requests())
            figures_by_label |= {
                f"{name}: {label}": number for label, number in command_figures.items()
            }
        return figures_by_label


def measure_command(stack: Bench, *arguments: str) -> Mapping[str, float]:
    """Return the figures of a command."""
    stack.forget_requests()
    profile, counted = stack.directory / "profile.json", stack.directory / "counted.json"
    ran = stack.run(*arguments, "--profile", str(profile), by=[COUNTED, str(counted)])
    shares = read_shares(profile)
    return {
        "seconds": ran.seconds,
        "processor": ran.work,
        **{f"  {name}": shares[kind] for kind, name in SHARES.items()},
        "requests": len(stack.list_requests()),
        "peak MiB": ran.peak,
    }


def render_topology(count: int) -> str:
    """Return the topology of `count` nodes, a hundred in a cluster."""
    clusters = (CLUSTER.replace("NUMBER", str(number)) for number in range(-(-count // GROUP)))
    nodes = (
        NODE.replace("NUMBER", str(number)).replace("GROUP", str(number // GROUP))
        for number in range(count)
    )
    return "".join(["clusters:\n", *clusters, "gpu_nodes:\n", *nodes])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--sdk", action="store_true", help="through the Pulumi SDK as well")
    parser.add_argument("--pulumi", action="store_true", help="by the Pulumi CLI as well")
    options = parser.parse_args()
    counts = (max(1, options.nodes // 4), options.nodes)
    few, many = map(measure_gpuform, counts)
    others: dict[str, Mapping[str, float]] = {}
    if options.sdk:
        others["by the SDK"] = measure_gpuform(options.nodes, BY_THE_SDK)
    if options.pulumi:
        others["by pulumi"] = measure_pulumi(options.nodes)
    beside = [title for name in others for title in (name, "ratio")]
    rows = [("nodes", *map(str, counts), "growth", *beside)]
    for name, number in few.items():
        growth = f"{many[name] / number:.1f}" if number >= 0.05 else ""
        cells = [f"{number:.4g}", f"{many[name]:.4g}", growth]
        for other in others.values():
            cells += _compare(many[name], other.get(name))
        rows.append((name, *cells))
    sys.stdout.write(render_table(rows))


def _compare(ours: float, theirs: float | None) -> tuple[str, str]:
    if theirs is None:
        return "", ""
    return f"{theirs:.4g}", f"{ours / theirs:.2f}" if theirs >= 0.05 else ""


if __name__ == "__main__":
    main()
