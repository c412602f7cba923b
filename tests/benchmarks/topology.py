"""A topology of 10,000 nodes: `up`, then a `preview` and a `refresh` that find nothing to do.

python tests/benchmarks/topology.py [--nodes 10000]

The nodes of a registry that AIOS keeps, against the emulator, and a quarter of them beside it: what
grows more than four times is not linear. By the spans of `--profile`, where the processor time of
the preview and of the refresh goes.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from real_resources import COUNTED, SHARES, shares_of
from running import Bench, bench, table

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


def figures(count: int) -> Mapping[str, float]:
    """What so many nodes take, by what it is."""
    with bench(SPEED) as stack:
        (stack.directory / "topology.yaml").write_text(written(count))
        found: dict[str, float] = {}
        for name, arguments in COMMANDS.items():
            found |= {f"{name}: {what}": n for what, n in one(stack, *arguments).items()}
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
    options = parser.parse_args()
    counts = (max(1, options.nodes // 4), options.nodes)
    few, many = map(figures, counts)
    rows = [("nodes", *map(str, counts), "growth")]
    for name, number in few.items():
        growth = f"{many[name] / number:.1f}" if number >= 0.05 else ""
        rows.append((name, f"{number:.4g}", f"{many[name]:.4g}", growth))
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
