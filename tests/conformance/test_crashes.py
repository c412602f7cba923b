"""Test kills after each request and each write of each operation: the next run recovers.

The loop is in `crash_points`, a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.crash_points import NODE_REMOVAL_SCENARIOS, SCENARIOS
from conformance.kinds import FAST_KIND
from processes.limits import LAST_RESORT
from support.servers.bucket_server import BucketServer, build_bucket_url

pytestmark = [pytest.mark.slow, pytest.mark.sampled(24)]

WITH_A_BUCKET = ("-topology", f"-{FAST_KIND}")
IMPORT = f"import-{FAST_KIND}"
IN_CI = pytest.mark.sampled(1)
QUICK_ON_A_BUCKET = f"abandon-{FAST_KIND}"
"""Played by .ci/run; the others take two or three times as long."""
QUICK = f"update-{FAST_KIND}"
"""One of them in the fast tests, so that the loop itself stays alive."""

Recorder = Callable[[str, object], None]
"""Keeps a number of a test in the XML of the run, which makes `docs/reference/crashes.md`."""


@pytest.fixture(autouse=True)
def _explain_every_kill_at_night(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_nightly = request.node.get_closest_marker("exhaustive")
    monkeypatch.setenv("CRASH_EXPLAINED_OF", "1" if is_nightly else "3")


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
def test_a_run_killed_at_any_point_is_recovered(
    scenario: str, tmp_path: Path, record_property: Recorder
) -> None:
    record_property("points", run_crash_loop(scenario, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            name,
            marks=IN_CI if name == QUICK_ON_A_BUCKET else pytest.mark.exhaustive,
        )
        for name in SCENARIOS
        if name.endswith(WITH_A_BUCKET)
    ],
)
def test_a_run_killed_at_any_point_with_a_bucket_is_recovered(
    scenario: str, tmp_path: Path, bucket_server: BucketServer, record_property: Recorder
) -> None:
    position = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
    record_property("points", run_crash_loop(scenario, tmp_path, CRASH_BACKEND=position))


@pytest.mark.sampled(49)
@pytest.mark.parametrize("removal", [name.removeprefix("take-") for name in NODE_REMOVAL_SCENARIOS])
def test_a_node_removal_killed_at_any_point_hurts_no_job(
    removal: str, tmp_path: Path, record_property: Recorder
) -> None:
    record_property("points", run_crash_loop(f"take-{removal}", tmp_path))


def run_crash_loop(scenario: str, tmp_path: Path, **environ: str) -> int:
    """Run a scenario's loop, check for no failure, and return the number of kills."""
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
