"""Live figures and owners in `gpuform status`: read anew, and never a reason to fail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.topologies.declarations import BENCH

from gpuform.providers.emulator.server import environment, serve

Run = Any


@pytest.fixture
def up(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
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


def test_figures_are_read_anew_and_owners_are_shown(up: Any) -> None:
    run, _ = up
    ran = run("status", "--refresh")
    assert ran.code == 0, ran.out + ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["NAME", "TYPE", "STATE", "READY", "GPUS", "COST", "OWNER"] in lines
    assert next(line for line in lines if line[:1] == ["bench"])[-1] == "researcher@company.com"
    assert next(line for line in lines if line[:1] == ["data"])[-1] == "-"
    assert "    now: GPUs 87.3%, GPU memory 94.2%, 72.5 °C, 625 W; " in ran.out
    told = {each["name"]: each for each in run("status", "--refresh", "--json").json["resources"]}
    bench, data = told["bench"], told["data"]
    assert bench["live"]["metrics"]["current"]["temperature_celsius"] == 72.5
    assert (bench["owner"], bench["live_problem"]) == ("researcher@company.com", "")
    assert (data["owner"], data["live"]) == ("", None)


def test_the_state_has_the_owner_and_no_figure(up: Any) -> None:
    run, _ = up
    run("refresh", "--yes")
    ran = run("status")
    assert "researcher@company.com" in ran.out
    assert "now:" not in ran.out
    assert {each["live"] for each in run("status", "--json").json["resources"]} == {None}
    assert run("preview", "--refresh", "--expect-no-changes").code == 0


def test_a_platform_that_does_not_tell_figures_fails_nothing(up: Any) -> None:
    run, fault = up
    # The first look is that of the refresh itself.
    fault(method="GET", path="/clusters/cluster_", status=403, skip=1, count=None)
    ran = run("status", "--refresh")
    assert ran.code == 0, ran.out + ran.err
    assert "    could not read its figures: tensorone: GET " in ran.out
    assert "error:" not in ran.err
