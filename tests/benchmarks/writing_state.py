"""Measure the cost of the state: bytes and fsyncs of an `up` of 1000 and of 5000 dynamic resources.

`python tests/benchmarks/writing_state.py` prints a table; the last row is the ratio. The provider
answers at once, so that the engine's only work is the state.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

SIZES = (1000, 5000)

PROVIDER = """
from pulumi.dynamic import CreateResult, Resource, ResourceProvider


class Instant(ResourceProvider):
    def create(self, props):
        return CreateResult(props["name"], props)


class Thing(Resource):
    def __init__(self, name, opts=None):
        super().__init__(Instant(), name, {"name": name, "text": "x" * 200}, opts)
"""

COLUMNS = (
    ("resources", "d"),
    ("seconds", ".1f"),
    ("checkpoint MiB", ".1f"),
    ("journal MiB", ".1f"),
    ("final MiB", ".1f"),
    ("checkpoints", "d"),
    ("fsyncs", "d"),
    ("peak MiB", ".0f"),
)


def measure_up(count: int) -> dict[str, float]:
    """Return the figures of an `up` in this process."""
    from gpuform.stacks.cli.app import cli
    from gpuform.stacks.engine.state import FileLog
    from gpuform.stacks.engine.store import Backend

    figures = {"resources": count, "checkpoints": 0, "fsyncs": 0}
    sizes = {"checkpoint": 0, "journal": 0, "final": 0}
    write, append, fsync = Backend.write, FileLog.append, os.fsync

    def count_write(self, project, stack, data):
        figures["checkpoints"] += 1
        sizes["checkpoint"] += len(data)
        sizes["final"] = len(data)
        write(self, project, stack, data)

    def count_append(self, data):
        sizes["journal"] += len(data)
        append(self, data)

    def count_fsync(handle):
        figures["fsyncs"] += 1
        fsync(handle)

    with TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"PULUMI_BACKEND_URL": f"file://{folder}", "PULUMI_CONFIG_PASSPHRASE": "x"}
        os.environ["PULUMI_HOME"] = folder
        Path("Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        Path("instant.py").write_text(PROVIDER)
        Path("__main__.py").write_text(
            f"from instant import Thing\nfor n in range({count}):\n    Thing(f'thing-{{n}}')\n"
        )
        _run(cli, "stack", "init", "dev")
        Backend.write, FileLog.append, os.fsync = count_write, count_append, count_fsync
        began = time.monotonic()
        _run(cli, "up", "--yes", "--skip-preview", "--json")
        figures["seconds"] = time.monotonic() - began
    figures |= {f"{name} MiB": size / 2**20 for name, size in sizes.items()}
    figures["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def _run(cli, *arguments: str) -> None:
    try:
        cli.main(list(arguments), prog_name="gpuform")
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    if len(sys.argv) > 1:
        figures = measure_up(int(sys.argv[1]))
        sys.stderr.write(json.dumps(figures) + "\n")
        return
    rows = []
    for size in SIZES:
        done = subprocess.run(
            [sys.executable, __file__, str(size)], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(done.stderr.splitlines()[-1]))
    _print_row([name for name, _ in COLUMNS])
    for row in rows:
        _print_row([f"{row[name]:{form}}" for name, form in COLUMNS])
    _print_row([f"x{rows[-1][name] / max(rows[0][name], 1e-9):.1f}" for name, _ in COLUMNS])


def _print_row(cells: list[str]) -> None:
    widths = (len(name) for name, _ in COLUMNS)
    line = " | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
