"""Measure 64 creates of 1 s: `gpuform up` beyond the platform's own time, and its requests.

python tests/benchmarks/waiting.py [--clusters 64] [--seconds 1]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import CREATE_SECONDS, create_bench, render_table

from gpuform.providers.context import PollSchedule
from gpuform.providers.together.cluster import POLL_INTERVAL_S

PROGRAM = """
from gpuform.providers.together import Cluster

for number in range({clusters}):
    Cluster(
        f"train-{{number}}",
        cluster_name=f"train-{{number}}",
        region="us-central-8",
        gpu_type="H100_SXM",
        num_gpus=8,
        driver_version="CUDA_12_6_560",
        billing_type="ON_DEMAND",
    )
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="what the platform takes")
    options = parser.parse_args()
    with create_bench(CREATE_SECONDS / options.seconds) as stack:
        stack.declare("")
        empty = stack.run("up", "--yes", "--skip-preview")
        stack.declare(PROGRAM.format(clusters=options.clusters))
        stack.forget_requests()
        made = stack.run("up", "--yes", "--skip-preview")
        requests = stack.list_requests()
    creates = [request["time"] for request in requests if request["method"] == "POST"]
    waiting = [request["time"] for request in requests if request["time"] > max(creates)]
    length = max(waiting) - max(creates)
    interval = PollSchedule(POLL_INTERVAL_S).compute_delay(0, waited=0)
    span, own = max(waiting) - min(creates), options.seconds
    per_interval = len(waiting) / max(1.0, length / interval)
    sys.stdout.write(
        render_table(
            [
                ("clusters", f"{len(creates)}"),
                ("platform's own time", f"{own:.2f} s"),
                ("gpuform up", f"{made.seconds:.2f} s"),
                ("  of it without any cluster", f"{empty.seconds:.2f} s"),
                ("  from the first create to the last look", f"{span:.2f} s"),
                ("ratio, whole command", f"{made.seconds / own:.2f}"),
                ("ratio, first create to last look", f"{span / own:.2f}"),
                ("requests before the last create", f"{len(requests) - len(waiting)}"),
                ("requests while waiting", f"{len(waiting)}"),
                (f"requests per polling interval of {interval:.2f} s", f"{per_interval:.2f}"),
                ("peak memory", f"{made.peak:.0f} MiB"),
            ]
        )
    )


if __name__ == "__main__":
    main()
