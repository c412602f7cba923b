"""A TensorOne cluster that the whole world reaches: the gate, and drift of its firewall rules."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Any
PROGRAM = """
from gpuform.providers.tensorone import Cluster

Cluster("dev", name="dev", gpu_type="A100", gpu_count=2, storage_gb=100, region="us-west-2",
        project_id="proj_1", docker_image="pytorch:2")
"""
GATES = "gates:\n  closed: {no_open_ports: {}}\n"
OPEN = "dev has 1 port open to the internet: 22/tcp"


class World:
    """A stack on an emulator."""

    def __init__(self, run: Run, url: str, project: Path) -> None:
        self.run, self.url, self.project = run, url, project

    def gate(self, text: str) -> None:
        (self.project / "gates.yaml").write_text(text)

    def rules(self, *rules: Any) -> None:
        """What the platform's firewall has from now on."""
        listed = httpx.get(f"{self.url}/_emulator/objects", trust_env=False, verify=False).json()
        (cluster,) = listed["tensorone"]["clusters"]
        url = f"{self.url}/_emulator/tensorone/clusters/{cluster['id']}"
        body = {"shown": {"network": {"firewall_rules": rules}}}
        httpx.post(url, json=body, trust_env=False, verify=False).raise_for_status()


@pytest.fixture
def world(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="ports") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "__main__.py").write_text(PROGRAM)
        yield World(dev, server.url, project)


@pytest.fixture
def up(world: World) -> World:
    ran = world.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return world


def rule(source: str, ports: str = "22") -> dict[str, str]:
    return {"direction": "inbound", "protocol": "tcp", "port_range": ports, "source": source}


def test_of_a_new_cluster_it_cannot_be_told(world: World) -> None:
    world.gate(GATES)
    ran = world.run("preview")
    assert ran.code == 5
    assert "dev: its open ports are unknown: TensorOne reports the firewall rules" in ran.out
    closed = PROGRAM.replace('"pytorch:2"', '"pytorch:2", ssh_enabled=False')
    (world.project / "__main__.py").write_text(closed)
    assert world.run("preview").code == 0
    assert world.run("up", "--yes").code == 0
    assert world.run("preview").code == 0


def test_one_that_stays_as_it_is_fails_too(up: World) -> None:
    up.gate(GATES)
    ran = up.run("preview")
    assert (ran.code, OPEN in ran.out) == (5, True), ran.out
    assert up.run("preview", "--allow", "gate:closed").code == 0
    assert up.run("destroy", "--preview-only").code == 0
    up.gate("gates:\n  closed: {no_open_ports: {allowed: [22]}}\n")
    assert up.run("preview").code == 0
    up.gate("gates:\n  closed: {no_open_ports: {}, resources: ['prod-*']}\n")
    assert up.run("preview").code == 0
    up.gate("gates:\n  closed: {no_open_ports: {allowed: [ssh]}}\n")
    ran = up.run("preview")
    assert (ran.code, "gates.closed.no_open_ports.allowed" in ran.err) == (1, True), ran.err


def test_a_review_has_what_the_plan_saw(up: World) -> None:
    assert up.run("preview", "--save-plan", "plan.json").code == 0
    up.gate(GATES)
    ran = up.run("review", "plan.json", "--detailed-exitcode")
    assert (ran.code, OPEN in ran.out) == (5, True), ran.out


def test_a_change_of_the_firewall_is_drift_and_no_change_of_a_plan(up: World) -> None:
    quiet = up.run("drift", "--detailed-exitcode")
    assert quiet.code == 0, quiet.out
    up.rules(rule("10.0.0.0/8"), rule("::/0", "8000-8010"))
    drift = up.run("drift", "--detailed-exitcode")
    assert drift.code == 2, drift.out
    assert "firewall_rules" in drift.out
    assert "::/0" in drift.out
    assert up.run("preview", "--refresh", "--expect-no-changes").code == 0
    refreshed = up.run("refresh", "--yes")
    assert "1 updated" in refreshed.out, refreshed.out
    assert up.run("drift", "--detailed-exitcode").code == 0
    up.gate(GATES)
    assert "8000-8010/tcp" in up.run("preview").out
