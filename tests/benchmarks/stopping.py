"""Measure how long an interrupted `up` takes to end cleanly: at most 5 s by the page on speed.

python tests/benchmarks/stopping.py [--clusters 100] [--times 5]

The signal comes while the run waits for its clusters. Of several runs the slowest counts.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Bench, create_bench, render_table

PROGRAM = """
from gpuform.providers.together import Cluster

for number in range(%d):
    Cluster(f"c{number}", cluster_name=f"c{number}", region="us-central-8", gpu_type="H100_SXM",
        num_gpus=8, driver_version="CUDA_12_6_560", billing_type="ON_DEMAND")
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def measure_stop(number: signal.Signals, clusters: int) -> float:
    """Return the seconds from the signal to the end of the process."""
    with create_bench(1.0) as stack:
        stack.declare(PROGRAM % clusters)
        command = [sys.executable, "-m", "gpuform.stacks.cli", "up", "--yes", "--skip-preview"]
        process = subprocess.Popen(
            command,
            cwd=stack.directory,
            env=stack.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while count_creates(stack) < clusters:
            if process.poll() is not None:
                sys.exit("the run ended before it was told to")
            time.sleep(0.05)
        began = time.monotonic()
        process.send_signal(number)
        if process.wait() != 1:
            sys.exit(f"the run ended with {process.returncode}")
        return time.monotonic() - began


def count_creates(stack: Bench) -> int:
    return sum(request["method"] == "POST" for request in stack.list_requests())


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for number in SIGNALS:
        slowest = max(measure_stop(number, options.clusters) for _ in range(options.times))
        rows.append((f"{number.name} while {options.clusters} are made", f"{slowest:.2f} s"))
    sys.stdout.write(render_table(rows))


if __name__ == "__main__":
    main()
