"""Measure the cost of a state in a bucket: requests and bytes of an `up` of 1000 resources.

`python tests/benchmarks/state_in_buckets.py` prints a row for `file://` and rows for `s3://`, with
moto's server behind a proxy that counts requests and delays each answer like a nearby region. The
provider answers at once, so that the engine's only work is the state.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from support.servers.bucket_server import (
    KEYS,
    Request,
    build_bucket_url,
    serve_buckets,
    serve_proxy,
)
from writing_state import PROVIDER

KINDS = ("journal", "checkpoint", "copy", "lock", "other")


def measure_up(backend_url: str, folder: Path, count: int, *, gzip: bool) -> float:
    """Return the seconds of an `up` in a new process."""
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
    (folder / "instant.py").write_text(PROVIDER)
    (folder / "__main__.py").write_text(
        f"from instant import Thing\nfor n in range({count}):\n    Thing(f'thing-{{n}}')\n"
    )
    environ = {
        **os.environ,
        **KEYS,
        "PULUMI_BACKEND_URL": backend_url,
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_DIY_BACKEND_GZIP": str(gzip).lower(),
    }
    gpuform = [sys.executable, "-m", "gpuform.stacks.cli"]
    subprocess.run(
        [*gpuform, "stack", "init", "dev"], cwd=folder, env=environ, check=True, capture_output=True
    )
    began = time.monotonic()
    run = [*gpuform, "up", "--yes", "--skip-preview", "--json"]
    subprocess.run(run, cwd=folder, env=environ, check=True, capture_output=True)
    return time.monotonic() - began


def get_kind(request: Request) -> str:
    """Return the purpose of a writing request: one of KINDS."""
    if "/gpuform/" in request.name:
        return "journal" if ".journal/" in request.name else "lock"
    if "/locks/" in request.name:
        return "lock"
    if request.name.endswith((".json", ".json.gz")) and "/stacks/" in request.name:
        return "checkpoint"
    return "copy" if not request.sent else "other"


def print_figures(name: str, seconds: float, requests: list[Request]) -> None:
    writes = [request for request in requests if request.method in ("PUT", "POST", "DELETE")]
    number, sent = Counter(map(get_kind, writes)), Counter[str]()
    for request in writes:
        sent[get_kind(request)] += request.sent
    parts = ", ".join(f"{number[k]} {k} ({sent[k] / 1024:.0f} KiB)" for k in KINDS if number[k])
    total, reads = sum(sent.values()) / 1024, len(requests) - len(writes)
    print_line(
        f"{name:<12} {seconds:5.1f} s {total:7.0f} KiB  {len(requests)} requests: {parts}", reads
    )


def print_line(line: str, reads: int | None = None) -> None:
    more = "" if reads is None else f", {reads} reads"
    sys.stdout.write(f"{line}{more}\n")


def measure_folder(count: int) -> None:
    script = str(Path(__file__).with_name("writing_state.py"))
    done = subprocess.run(
        [sys.executable, script, str(count)], capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stderr.splitlines()[-1])
    checkpoints, journal = (figures[f"{kind} MiB"] * 1024 for kind in ("checkpoint", "journal"))
    print_line(
        f"{'file://':<12} {figures['seconds']:5.1f} s {checkpoints + journal:7.0f} KiB  "
        f"{figures['fsyncs']} fsyncs: journal ({journal:.0f} KiB), "
        f"{figures['checkpoints']} checkpoints ({checkpoints:.0f} KiB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds before each answer")
    options = parser.parse_args()
    measure_folder(options.resources)
    with serve_buckets() as server, serve_proxy(server) as front:
        front.delay = options.delay
        for gzip in (False, True):
            with TemporaryDirectory() as folder:
                first = len(front.requests)
                backend_url = build_bucket_url(server.create_bucket(), front.port)
                seconds = measure_up(backend_url, Path(folder), options.resources, gzip=gzip)
                name = "s3:// gzip" if gzip else "s3://"
                print_figures(name, seconds, front.requests[first:])


if __name__ == "__main__":
    main()
