"""Measure the validation of a topology of many resources beside PyYAML's plain parsing.

python tests/benchmarks/validating.py [--resources 10000]
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import measure, render_table

HEAD = """config: {gpus: {type: integer, default: 16}}
shared_volumes:
  data: {platform: together, volume_name: data, region: us-central-8, size_tib: 5}
clusters:
"""
CLUSTER = """  train-NUMBER:
    platform: together
    cluster_name: train-NUMBER
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"
"""
PLAIN = "import sys, yaml; yaml.safe_load(open(sys.argv[1]))"


def main() -> None:
    """Print the figures of a quarter of the resources, of all, and the growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=10_000)
    options = parser.parse_args()
    counts = (options.resources // 4, options.resources)
    with tempfile.TemporaryDirectory() as folder:
        files = [write_topology(Path(folder), count) for count in counts]
        plain = [measure([sys.executable, "-c", PLAIN, file]) for file in files]
        command = [sys.executable, "-m", "gpuform.stacks.cli", "validate"]
        validate = [measure([*command, file]) for file in files]
    rows = [("resources", *map(str, counts), "growth")]
    for label, (few, all_) in (("yaml.safe_load", plain), ("gpuform validate", validate)):
        growth = f"{all_.seconds / few.seconds:.1f}"
        rows.append((label, f"{few.seconds:.2f} s", f"{all_.seconds:.2f} s", growth))
        growth = f"{all_.peak / few.peak:.1f}"
        rows.append(("  peak memory", f"{few.peak:.0f} MiB", f"{all_.peak:.0f} MiB", growth))
    ratios = [ours.seconds / theirs.seconds for ours, theirs in zip(validate, plain, strict=True)]
    rows.append(("ratio", *(f"{ratio:.2f}" for ratio in ratios), ""))
    sys.stdout.write(render_table(rows))


def write_topology(folder: Path, count: int) -> str:
    file = folder / f"topology-{count}.yaml"
    clusters = (CLUSTER.replace("NUMBER", str(number)) for number in range(count))
    file.write_text(HEAD + "".join(clusters))
    return str(file)


if __name__ == "__main__":
    main()
