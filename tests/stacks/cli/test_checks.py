"""What was not looked at is said first, and stops a command that requires every check."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stacks.planned_project import PlannedProject

FIRST = "The plan is not fully checked: 1 check could not run (see Not checked).\n"
TENSORONE = """
from gpuform.providers.tensorone import Cluster
Cluster("dev", name="dev", gpu_type="A100", gpu_count=2, storage_gb=100, region="us-west-2",
        project_id="proj_1", docker_image="pytorch:2")
"""


@pytest.fixture
def keyless(planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch) -> PlannedProject:
    """A platform that no check asks while planning, and no key for it."""
    (planned_project.project / "__main__.py").write_text(TENSORONE)
    monkeypatch.delenv("TENSORONE_API_KEY")
    return planned_project


def plan_of(out: str) -> str:
    return out.split("\n\n", 1)[1]


class TestPlans:
    def test_a_missing_key_is_said_first(self, keyless: PlannedProject) -> None:
        ran = keyless.run("preview")
        assert ran.code == 0
        assert plan_of(ran.out).startswith(FIRST)
        told = (
            "tensorone cannot be reached, so the planned changes there may fail: the API "
            "key for TensorOne is missing"
        )
        assert f"Not checked:\n    {told}" in ran.out

    def test_with_the_flag_it_stops_every_command(self, keyless: PlannedProject) -> None:
        for command in (
            ["preview"],
            ["up", "--yes"],
            ["up", "--yes", "--skip-preview"],
            ["up", "--yes", "--json"],
        ):
            ran = keyless.run(*command, "--require-checks")
            assert ran.code == 4, command
            assert "error: not checked: tensorone cannot be reached" in ran.err
            assert ("Nothing was changed." in ran.err) == (command[0] == "up")
        assert keyless.sent_changes == []

    def test_a_review_of_it_says_and_fails_too(self, keyless: PlannedProject) -> None:
        keyless.save_plan()
        for form in ("text", "markdown", "github", "html"):
            assert FIRST.strip() in keyless.run("review", "plan.json", "-f", form).out[:6000]
        ran = keyless.run("review", "plan.json", "--require-checks")
        assert (ran.code, ran.out.startswith(FIRST)) == (4, True)
        assert keyless.run("review", "plan.json", "-f", "json").json["unchecked"] == 1

    @pytest.mark.slow
    def test_what_could_all_be_asked_passes(self, applied_project: PlannedProject) -> None:
        applied_project.run("config", "set", "gpus", "24")
        for command in (["preview"], ["up", "--yes"], ["destroy", "--yes"]):
            ran = applied_project.run(*command, "--require-checks")
            assert ran.code == 0, ran.err
            assert "checked" not in ran.out

    @pytest.mark.slow
    def test_a_destroy_is_stopped_if_the_platform_does_not_answer(
        self, applied_project: PlannedProject
    ) -> None:
        rule = {"platform": "together", "drop": "before", "count": None}
        faults = f"{applied_project.url}/_emulator/faults"
        httpx.post(faults, json=rule, trust_env=False, verify=False).raise_for_status()
        ran = applied_project.run("destroy", "--yes", "--require-checks")
        assert ran.code == 4
        assert plan_of(ran.out).startswith(
            "The plan is not fully checked: 2 checks could not run (see Not checked).\n"
        )
        assert "the nodes removed with it, and their jobs: together: GET" in ran.err
        assert "together cannot be reached" in ran.err

    @pytest.mark.slow
    def test_a_price_that_a_gate_on_cost_needs(self, applied_project: PlannedProject) -> None:
        (applied_project.project / "prices.yaml").write_text("currency: USD\n")
        (applied_project.project / "gates.yaml").write_text(
            "gates: {b: {max_hourly_cost: {amount: 9, currency: USD}, level: advisory}}"
        )
        assert applied_project.run("preview", "--require-checks").code == 0, "nothing grows"
        applied_project.run("config", "set", "gpus", "24")
        ran = applied_project.run("preview", "--require-checks")
        assert ran.code == 4
        told = "not checked: the cost, for the cost gates: train: 24 H100_SXM GPUs"
        assert told in ran.err
        applied_project.run("config", "set", "gpus", "8")
        assert applied_project.run("preview", "--require-checks").code == 0, (
            "it only lowers capacity"
        )

    def test_workflows_require_all_checks(self, run: Any, project: Path) -> None:
        assert run("new", "ci", "--forge", "github", "--stack", "dev").code == 0
        (workflow,) = project.rglob("gpuform.yml")
        lines = [line for line in workflow.read_text().splitlines() if "plan.json" in line]
        for words in ("review plan.json --post", "--plan plan.json"):
            found = [line for line in lines if words in line]
            assert found
            assert all("--require-checks" in line for line in found)


class TestSomebodyAtWork:
    @pytest.fixture
    def somebody(self, applied_project: PlannedProject) -> PlannedProject:
        locks = applied_project.project / ".pulumi/locks/organization/demo/dev"
        locks.mkdir(parents=True, exist_ok=True)
        fields = {"pid": 4711, "username": "ada", "hostname": "build-7", "engine": "gpuform"}
        owner = {**fields, "timestamp": "2026-03-01T08:00:00Z"}
        (locks / "one.json").write_text(json.dumps(owner))
        state = json.loads(applied_project.state_file)
        resources = state["checkpoint"]["latest"]["resources"]
        creating = {"type": "creating", "resource": {**resources[-1], "id": ""}}
        state["checkpoint"]["latest"]["pending_operations"] = [creating]
        (applied_project.project / ".pulumi/stacks/demo/dev.json").write_text(json.dumps(state))
        return applied_project

    @pytest.mark.slow
    def test_who_it_is_and_since_when(self, somebody: PlannedProject) -> None:
        who = "ada@build-7 (pid 4711) by gpuform, since 2026-03-01 08:00:00 UTC ("
        ran = somebody.run("preview")
        assert who in ran.err
        assert "is running on the stack: the state shown may be out of date" in ran.err
        assert "another run is busy with 1 operation, whose results are not in this plan" in ran.out
        assert "interrupted" not in ran.out + ran.err
        ran = somebody.run("status")
        assert ran.out.splitlines()[1].startswith(who)
        assert who in somebody.run("status", "--json").json["at_work"]

    @pytest.mark.slow
    def test_a_process_that_has_ended_is_not_at_work(self, applied_project: PlannedProject) -> None:
        import socket

        locks = applied_project.project / ".pulumi/locks/organization/demo/dev"
        locks.mkdir(parents=True, exist_ok=True)
        owner = {"pid": 2**22 - 1, "username": "ada", "hostname": socket.gethostname()}
        (locks / "one.json").write_text(json.dumps(owner))
        assert "at work" not in applied_project.run("preview").err
        assert applied_project.run("status").out.splitlines()[1].startswith("As of ")


def sources(ran: Any) -> list[str]:
    """The lines that say whence and how old what is shown is."""
    return [line for line in ran.out.splitlines() if line.startswith("As of ")]


class TestStatus:
    def test_the_age_of_what_it_shows(self, applied_project: PlannedProject) -> None:
        (line,) = sources(applied_project.run("status"))
        assert line == "As of less than a minute ago, from the state:"
        for moment, age in (("2001-01-01T00:00:00Z", " d ago"), ("", "less than a minute ago")):
            state = json.loads(applied_project.state_file)
            state["checkpoint"]["latest"]["manifest"]["time"] = moment
            (applied_project.project / ".pulumi/stacks/demo/dev.json").write_text(json.dumps(state))
            assert age in sources(applied_project.run("status"))[0]
        found = applied_project.run("status", "--json").json
        assert (found["source"], found["age_seconds"] >= 0) == ("state", True)

    @pytest.mark.slow
    def test_it_fails_where_it_could_not_look(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, sources(ran)) == (0, ["As of now, from the platforms:"])
        monkeypatch.delenv("TOGETHER_API_KEY")
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, ran.err) == (1, "error: could not read data, train\n")
        assert sources(ran) == [
            (
                "As of now, from the platforms; data, train as of less than a minute ago, from the "
                "state:"
            )
        ]
        assert applied_project.run("status").code == 0

    def test_what_is_gone_was_looked_at(self, applied_project: PlannedProject) -> None:
        request = urllib.request.Request(f"{applied_project.url}/_emulator/reset", b"{}")
        urllib.request.urlopen(request).close()
        assert os.environ["TOGETHER_API_KEY"]
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, ran.out.count("    it no longer exists on the platform")) == (0, 2)
