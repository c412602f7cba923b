"""Test live figures and owners in `gpuform status`: each run reads again, and never fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.topologies.declarations import BENCH

from gpuform.providers.emulator.server import environment, serve

Run = Any


@pytest.fixture
def live_stack(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (project / "__main__.py").unlink()
    with serve(seed="status-live") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "topology.yaml").write_text(BENCH)
        assert dev("up", "--yes", "--skip-preview").code == 0

        def fault(**rule: Any) -> None:
            url = f"{server.url}/_emulator/faults"
            httpx.post(url, json=rule, trust_env=False, verify=False).raise_for_status()

        yield dev, fault


def test_status_refresh_shows_live_figures_and_owners(live_stack: Any) -> None:
    run, _ = live_stack
    ran = run("status", "--refresh")
    assert ran.code == 0, ran.out + ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["NAME", "TYPE", "STATE", "READY", "GPUS", "COST", "OWNER"] in lines
    assert next(line for line in lines if line[:1] == ["bench"])[-1] == "researcher@company.com"
    assert next(line for line in lines if line[:1] == ["data"])[-1] == "-"
    assert "    now: GPUs 87.3%, GPU memory 94.2%, 72.5 °C, 625 W; " in ran.out
    resources_by_name = {
        resource["name"]: resource
        for resource in run("status", "--refresh", "--json").json["resources"]
    }
    bench, data = resources_by_name["bench"], resources_by_name["data"]
    assert bench["live"]["metrics"]["current"]["temperature_celsius"] == 72.5
    assert (bench["owner"], bench["live_problem"]) == ("researcher@company.com", "")
    assert (data["owner"], data["live"]) == ("", None)


def test_the_state_keeps_the_owner_but_no_figures(live_stack: Any) -> None:
    run, _ = live_stack
    run("refresh", "--yes")
    ran = run("status")
    assert "researcher@company.com" in ran.out
    assert "now:" not in ran.out
    assert {resource["live"] for resource in run("status", "--json").json["resources"]} == {None}
    assert run("preview", "--refresh", "--expect-no-changes").code == 0


def test_status_refresh_succeeds_without_figures(live_stack: Any) -> None:
    run, fault = live_stack
    # The first look is that of the refresh itself.
    fault(method="GET", path="/clusters/cluster_", status=403, skip=1, count=None)
    ran = run("status", "--refresh")
    assert ran.code == 0, ran.out + ran.err
    assert "    could not read its figures: tensorone: GET " in ran.out
    assert "error:" not in ran.err
