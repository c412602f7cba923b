"""A refresh of 1000 shared volumes: requests sent, time and peak memory.

python tests/benchmarks/refreshing.py [--volumes 1000]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import bench, table

PROGRAM = """
from gpuform.providers.together import SharedVolume

for number in range({volumes}):
    SharedVolume(
        f"data-{{number}}", volume_name=f"data-{{number}}", region="us-central-8", size_tib=1
    )
"""
SPEED = 1200.0


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=1000)
    options = parser.parse_args()
    with bench(SPEED) as stack:
        stack.declare(PROGRAM.format(volumes=options.volumes))
        made = stack.run("up", "--yes", "--skip-preview")
        stack.forget_requests()
        refreshed = stack.run("refresh", "--yes", "--skip-preview")
        requests = stack.requests()
    lists = sum(each["path"].endswith("/volumes") for each in requests)
    sys.stdout.write(
        table(
            [
                ("volumes", f"{options.volumes}"),
                ("gpuform up, for comparison", f"{made.seconds:.2f} s"),
                ("gpuform refresh", f"{refreshed.seconds:.2f} s"),
                ("requests", f"{len(requests)}"),
                ("  of them lists", f"{lists}"),
                ("volumes per request", f"{options.volumes / len(requests):.1f}"),
                ("peak memory", f"{refreshed.peak:.0f} MiB"),
            ]
        )
    )


if __name__ == "__main__":
    main()
