"""Test that commands report a passed health gate that would fail now, without a change."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from support.platforms.lens_document import OVERVIEW

from gpuform.providers.emulator.server import environment, serve

Run = Any
PROGRAM = """
from gpuform.providers.lens import HealthGate

HealthGate("healthy", condition={"healthy_nodes": {"at_least": 9}})
"""
FAILING_GATE = "healthy: the gate would not pass now: healthyNodes=2 (wanted: at least 9)"


@pytest.fixture
def gated_stack(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="gate-told") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)

        def show(**overview: object) -> None:
            body = {"overview": {**OVERVIEW["data"], **overview}}
            url = f"{server.url}/_emulator/lens/settings"
            httpx.post(url, json=body, trust_env=False, verify=False).raise_for_status()

        show()
        (project / "__main__.py").write_text(PROGRAM)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        yield dev, show


def test_drift_and_status_report_a_gate_that_fails_now_and_plan_nothing(gated_stack: Any) -> None:
    run, show = gated_stack
    quiet = run("drift", "--detailed-exitcode")
    assert (quiet.code, "Notes:" in quiet.out) == (0, False), quiet.out
    show(healthyNodes=2)
    drift = run("drift", "--detailed-exitcode")
    assert (drift.code, FAILING_GATE in drift.out) == (0, True), drift.out
    assert FAILING_GATE in run("status", "--refresh").out
    assert FAILING_GATE not in run("status").out
    assert run("preview", "--refresh", "--expect-no-changes").code == 0
    refreshed = run("refresh", "--yes")
    assert FAILING_GATE in refreshed.out, refreshed.out
    assert "updated" not in refreshed.out
    assert FAILING_GATE in run("drift").out
    show()
    assert FAILING_GATE not in run("drift").out
    assert run("preview", "--refresh", "--expect-no-changes").code == 0
