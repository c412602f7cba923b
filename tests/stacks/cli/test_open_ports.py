"""Test the gate and the drift of firewall rules for a TensorOne cluster open to everybody."""

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


class FirewallStack:
    """A stack on an emulator."""

    def __init__(self, run: Run, url: str, project: Path) -> None:
        self.run, self.url, self.project = run, url, project

    def write_gates(self, text: str) -> None:
        (self.project / "gates.yaml").write_text(text)

    def set_rules(self, *rules: Any) -> None:
        """Set the rules that the platform's firewall reports from now on."""
        listed = httpx.get(f"{self.url}/_emulator/objects", trust_env=False, verify=False).json()
        (cluster,) = listed["tensorone"]["clusters"]
        url = f"{self.url}/_emulator/tensorone/clusters/{cluster['id']}"
        body = {"shown": {"network": {"firewall_rules": rules}}}
        httpx.post(url, json=body, trust_env=False, verify=False).raise_for_status()


@pytest.fixture
def firewall_stack(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="ports") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "__main__.py").write_text(PROGRAM)
        yield FirewallStack(dev, server.url, project)


@pytest.fixture
def open_stack(firewall_stack: FirewallStack) -> FirewallStack:
    ran = firewall_stack.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return firewall_stack


def build_rule(source: str, ports: str = "22") -> dict[str, str]:
    return {"direction": "inbound", "protocol": "tcp", "port_range": ports, "source": source}


def test_the_open_ports_gate_stops_a_new_cluster_with_unknown_ports(
    firewall_stack: FirewallStack,
) -> None:
    firewall_stack.write_gates(GATES)
    ran = firewall_stack.run("preview")
    assert ran.code == 5
    assert "dev: its open ports are unknown: TensorOne reports the firewall rules" in ran.out
    closed = PROGRAM.replace('"pytorch:2"', '"pytorch:2", ssh_enabled=False')
    (firewall_stack.project / "__main__.py").write_text(closed)
    assert firewall_stack.run("preview").code == 0
    assert firewall_stack.run("up", "--yes").code == 0
    assert firewall_stack.run("preview").code == 0


def test_the_open_ports_gate_stops_plans_with_an_unchanged_open_cluster(
    open_stack: FirewallStack,
) -> None:
    open_stack.write_gates(GATES)
    ran = open_stack.run("preview")
    assert (ran.code, OPEN in ran.out) == (5, True), ran.out
    assert open_stack.run("preview", "--allow", "gate:closed").code == 0
    assert open_stack.run("destroy", "--preview-only").code == 0
    open_stack.write_gates("gates:\n  closed: {no_open_ports: {allowed: [22]}}\n")
    assert open_stack.run("preview").code == 0
    open_stack.write_gates("gates:\n  closed: {no_open_ports: {}, resources: ['prod-*']}\n")
    assert open_stack.run("preview").code == 0
    open_stack.write_gates("gates:\n  closed: {no_open_ports: {allowed: [ssh]}}\n")
    ran = open_stack.run("preview")
    assert (ran.code, "gates.closed.no_open_ports.allowed" in ran.err) == (1, True), ran.err


def test_a_review_evaluates_the_open_ports_of_the_plan(open_stack: FirewallStack) -> None:
    assert open_stack.run("preview", "--save-plan", "plan.json").code == 0
    open_stack.write_gates(GATES)
    ran = open_stack.run("review", "plan.json", "--detailed-exitcode")
    assert (ran.code, OPEN in ran.out) == (5, True), ran.out


def test_a_changed_firewall_is_drift_but_plans_no_change(open_stack: FirewallStack) -> None:
    quiet = open_stack.run("drift", "--detailed-exitcode")
    assert quiet.code == 0, quiet.out
    open_stack.set_rules(build_rule("10.0.0.0/8"), build_rule("::/0", "8000-8010"))
    drift = open_stack.run("drift", "--detailed-exitcode")
    assert drift.code == 2, drift.out
    assert "firewall_rules" in drift.out
    assert "::/0" in drift.out
    assert open_stack.run("preview", "--refresh", "--expect-no-changes").code == 0
    refreshed = open_stack.run("refresh", "--yes")
    assert "1 updated" in refreshed.out, refreshed.out
    assert open_stack.run("drift", "--detailed-exitcode").code == 0
    open_stack.write_gates(GATES)
    assert "8000-8010/tcp" in open_stack.run("preview").out
