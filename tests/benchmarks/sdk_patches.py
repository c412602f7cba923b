"""What each patch of the SDK gains: a program on the SDK alone, with all patches and without one.

python tests/benchmarks/sdk_patches.py [--size 1000] [--times 3]

Half of the resources are clusters, with their many typed outputs; half are dynamic resources whose
provider is defined in the program. Processor time counts, of several runs the least. The monitor
answers at once, so that the wait for outputs costs little here: what its patch gains grows with the
square of the resources whose answers take time.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from running import measured, table

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
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "__main__.py").write_text(PROGRAM.format(half=options.size // 2))
        (project / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")

        def work(*flags: str) -> float:
            command = [*SDK_ALONE, "--preview", *flags]
            return min(measured(command, project).work for _ in range(options.times))

        spared = work("--spared")
        rows = [("all patches", f"{spared:.2f} s", "1.00"), ("no patch", *_against(work(), spared))]
        for patch in PATCHES:
            slower = work("--spared", "--without", patch.name)
            rows.append((f"without {patch.name}", *_against(slower, spared)))
    sys.stdout.write(table([("program", f"{options.size} resources", "ratio"), *rows]))


def _against(seconds: float, best: float) -> tuple[str, str]:
    return f"{seconds:.2f} s", f"{seconds / best:.2f}"


if __name__ == "__main__":
    main()
