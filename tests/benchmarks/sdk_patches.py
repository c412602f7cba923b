"""Measure the gain of each patch of the SDK: a program on the SDK with all patches and without one.

python tests/benchmarks/sdk_patches.py [--size 1000] [--times 3]

Half of the resources are clusters with many typed outputs; half are dynamic resources whose
provider
is defined in the program. Of several runs the least processor time counts. The monitor answers at
once, so that the wait for outputs costs little here: the gain of its patch grows with the square of
the number of resources whose answers take time.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from running import measure, render_table

from gpuform.stacks.engine.sdk_patches import PATCHES

SDK_ALONE = [sys.executable, str(Path(__file__).parent / "sdk_alone.py")]
PROGRAM = """
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

from gpuform.providers.together import Cluster


class Machines(ResourceProvider):
    def create(self, props):
        return CreateResult(props["name"], props)


class Machine(Resource):
    def __init__(self, name):
        super().__init__(Machines(), name, {{"name": name}})


for number in range({half}):
    Machine(f"machine-{{number}}")
    Cluster(
        f"cluster-{{number}}",
        cluster_name=f"cluster-{{number}}",
        region="us-central-8",
        gpu_type="H100_SXM",
        num_gpus=8,
        billing_type="ON_DEMAND",
        cuda_version="12.6",
        nvidia_driver_version="565",
    )
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "__main__.py").write_text(PROGRAM.format(half=options.size // 2))
        (project / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")

        def measure_work(*flags: str) -> float:
            command = [*SDK_ALONE, "--preview", *flags]
            return min(measure(command, project).work for _ in range(options.times))

        spared = measure_work("--spared")
        rows = [
            ("all patches", f"{spared:.2f} s", "1.00"),
            ("no patch", *_compare(measure_work(), spared)),
        ]
        for patch in PATCHES:
            slower = measure_work("--spared", "--without", patch.name)
            rows.append((f"without {patch.name}", *_compare(slower, spared)))
    sys.stdout.write(render_table([("program", f"{options.size} resources", "ratio"), *rows]))


def _compare(seconds: float, best: float) -> tuple[str, str]:
    return f"{seconds:.2f} s", f"{seconds / best:.2f}"


if __name__ == "__main__":
    main()
