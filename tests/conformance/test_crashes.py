"""Test kills after each request and write of each operation: the next run recovers.

The loop is in `crash_points`, a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.crash_points import SCENARIOS, TAKEN
from conformance.kinds import FAST
from processes.limits import LAST_RESORT
from support.servers.bucket_server import BucketServer, build_bucket_url

pytestmark = [pytest.mark.slow, pytest.mark.sampled(24)]

ON_A_BUCKET = ("-topology", f"-{FAST}")
IMPORT = f"import-{FAST}"
IN_CI = pytest.mark.sampled(1)
QUICK_ON_A_BUCKET = f"abandon-{FAST}"
"""Played by .ci/run; the others take two or three times as long."""
QUICK = f"update-{FAST}"
"""One of them in the fast tests, so that the loop itself stays alive."""

Recorder = Callable[[str, object], None]
"""Keeps a number of a test in the XML of the run, which makes `docs/reference/crashes.md`."""


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            name,
            marks=() if name == QUICK else [pytest.mark.slow, *([IN_CI] if name == IMPORT else [])],
        )
        for name in SCENARIOS
    ],
)
def test_death_at_every_point(scenario: str, tmp_path: Path, record_property: Recorder) -> None:
    record_property("points", assert_nothing_is_lost(scenario, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            name,
            marks=IN_CI if name == QUICK_ON_A_BUCKET else pytest.mark.exhaustive,
        )
        for name in SCENARIOS
        if name.endswith(ON_A_BUCKET)
    ],
)
def test_death_at_every_point_on_a_bucket(
    scenario: str, tmp_path: Path, bucket_server: BucketServer, record_property: Recorder
) -> None:
    position = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
    record_property("points", assert_nothing_is_lost(scenario, tmp_path, CRASH_BACKEND=position))


@pytest.mark.sampled(48)
@pytest.mark.parametrize("taking", [name.removeprefix("take-") for name in TAKEN])
def test_death_while_nodes_are_taken(
    taking: str, tmp_path: Path, record_property: Recorder
) -> None:
    record_property("points", assert_nothing_is_lost(f"take-{taking}", tmp_path))


def assert_nothing_is_lost(scenario: str, tmp_path: Path, **environ: str) -> int:
    """Return at how many points the run was killed."""
    finished = subprocess.run(
        [sys.executable, "-m", "conformance.crash_points", scenario, str(tmp_path / "loop")],
        env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    outcome = json.loads(finished.stdout)
    failures = "\n".join(
        f"killed at {failure['at']}\n{failure['why']}" for failure in outcome["failures"]
    )
    assert not outcome["failures"], failures
    # The request, the intent and two checkpoints around it, at the very least.
    points = int(outcome["points"])
    assert points >= 8
    return points
