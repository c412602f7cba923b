"""Measure the time before a command does anything: `--help`, and a `preview` of one resource.

python tests/benchmarks/starting.py [--times 5]

Beside the unavoidable: Python's own start, the import of Pulumi, the derivation of the key from the
passphrase. Of several runs the fastest counts.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Measured, create_bench, measure, render_table

PROGRAM = """
from gpuform.providers.together import SharedVolume

SharedVolume("data", volume_name="data", region="us-central-8", size_tib=1)
"""
DERIVE = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'12345678', 1_000_000, 32)"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()

    def measure_fastest(run: Callable[[], Measured]) -> float:
        return min(run().seconds for _ in range(options.times))

    def measure_python(code: str) -> float:
        return measure_fastest(lambda: measure([sys.executable, "-c", code]))

    nothing, pulumi, deriving = (
        measure_python("pass"),
        measure_python("import pulumi"),
        measure_python(DERIVE),
    )
    with create_bench(1000.0) as stack:
        stack.declare(PROGRAM)
        stack.run("up", "--yes", "--skip-preview")
        helping = measure_fastest(lambda: stack.run("--help"))
        previewing = measure_fastest(lambda: stack.run("preview", "--expect-no-changes"))
    least = pulumi + deriving - nothing
    sys.stdout.write(
        render_table(
            [
                ("python -c pass", f"{nothing:.3f} s"),
                ("gpuform --help", f"{helping:.3f} s"),
                ("  ratio", f"{helping / nothing:.1f}"),
                ("import pulumi", f"{pulumi:.3f} s"),
                ("derivation of a key", f"{deriving - nothing:.3f} s"),
                ("gpuform preview of one volume", f"{previewing:.3f} s"),
                ("  beyond import and derivation", f"{previewing - least:.3f} s"),
                ("  ratio", f"{previewing / least:.2f}"),
            ]
        )
    )


if __name__ == "__main__":
    main()
