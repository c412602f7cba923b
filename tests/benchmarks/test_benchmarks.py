"""Each benchmark runs with small numbers; the figures are for people."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "labels"),
    [
        ("waiting.py", ["--clusters", "4", "--seconds", "0.5"], ("ratio, whole command", "MiB")),
        ("validating.py", ["--resources", "80"], ("ratio", "growth", "MiB")),
        (
            "engine_cost.py",
            ["--sizes", "8", "16", "--slow", "4", "--seconds", "0.1", "--times", "1"],
            ("ratio", "growth", "beyond the SDK alone", "MiB"),
        ),
        ("stopping.py", ["--clusters", "4", "--times", "1"], ("SIGINT", "SIGTERM", "SIGHUP")),
        ("starting.py", ["--times", "1"], ("gpuform --help", "beyond import and derivation")),
        ("sdk_patches.py", ["--size", "8", "--times", "1"], ("all patches", "no patch", "ratio")),
        ("real_resources.py", ["--volumes", "12"], ("lifecycles", "of them lists", "fsyncs")),
        (
            "topology.py",
            ["--nodes", "8", "--sdk"],
            ("growth", "by the SDK", "ratio", "refresh: requests", "peak MiB"),
        ),
        (
            "large_stacks.py",
            ["--resources", "16"],
            ("review: html", "destroy: a chain", "ratio of up --plan", "growth", "MiB"),
        ),
        ("several_stacks.py", ["--stacks", "3", "--resources", "4"], ("preview --all", "MiB")),
        pytest.param(
            "many_runners.py",
            ["--stacks", "4", "--resources", "2", "--runners", "2"],
            ("the longest part", "join", "preview --all", "MiB of joined plan"),
            marks=pytest.mark.exhaustive,
        ),
        ("playing_cases.py", ["--cases", "2"], ("cases per second", "ratio", "MiB")),
        ("editing.py", ["--resources", "16", "--times", "1"], ("diagnostics", "rename", "growth")),
        ("state_in_buckets.py", ["--resources", "20"], ("file://", "s3://", "journal")),
    ],
)
def test_a_benchmark_prints_its_figures(
    script: str, arguments: list[str], labels: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for label in labels:
        assert label in done.stdout
