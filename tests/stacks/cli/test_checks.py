"""Test that unchecked conditions are reported first, and stop a command that requires checks."""

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
def project_without_key(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> PlannedProject:
    """Return a project for a platform without an API key, which no check asks while planning."""
    (planned_project.project / "__main__.py").write_text(TENSORONE)
    monkeypatch.delenv("TENSORONE_API_KEY")
    return planned_project


def strip_plan_header(out: str) -> str:
    return out.split("\n\n", 1)[1]


class TestPlans:
    def test_a_preview_without_an_api_key_begins_with_the_skipped_check(
        self, project_without_key: PlannedProject
    ) -> None:
        ran = project_without_key.run("preview")
        assert ran.code == 0
        assert strip_plan_header(ran.out).startswith(FIRST)
        message = (
            "tensorone cannot be reached, so the planned changes there may fail: the API "
            "key for TensorOne is missing"
        )
        assert f"Not checked:\n    {message}" in ran.out

    def test_require_checks_stops_every_command_without_an_api_key(
        self, project_without_key: PlannedProject
    ) -> None:
        for command in (
            ["preview"],
            ["up", "--yes"],
            ["up", "--yes", "--skip-preview"],
            ["up", "--yes", "--json"],
        ):
            ran = project_without_key.run(*command, "--require-checks")
            assert ran.code == 4, command
            assert "error: not checked: tensorone cannot be reached" in ran.err
            assert ("Nothing was changed." in ran.err) == (command[0] == "up")
        assert project_without_key.sent_changes == []

    def test_a_review_reports_skipped_checks_and_require_checks_fails_it(
        self, project_without_key: PlannedProject
    ) -> None:
        project_without_key.save_plan()
        for form in ("text", "markdown", "github", "html"):
            assert (
                FIRST.strip()
                in project_without_key.run("review", "plan.json", "-f", form).out[:6000]
            )
        ran = project_without_key.run("review", "plan.json", "--require-checks")
        assert (ran.code, ran.out.startswith(FIRST)) == (4, True)
        assert project_without_key.run("review", "plan.json", "-f", "json").json["unchecked"] == 1

    @pytest.mark.slow
    def test_require_checks_passes_if_every_platform_answers(
        self, applied_project: PlannedProject
    ) -> None:
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
        assert strip_plan_header(ran.out).startswith(
            "The plan is not fully checked: 2 checks could not run (see Not checked).\n"
        )
        assert "the nodes removed with it, and their jobs: together: GET" in ran.err
        assert "together cannot be reached" in ran.err

    @pytest.mark.slow
    def test_require_checks_fails_if_a_cost_gate_lacks_a_price(
        self, applied_project: PlannedProject
    ) -> None:
        (applied_project.project / "prices.yaml").write_text("currency: USD\n")
        (applied_project.project / "gates.yaml").write_text(
            "gates: {b: {max_hourly_cost: {amount: 9, currency: USD}, level: advisory}}"
        )
        assert applied_project.run("preview", "--require-checks").code == 0, "nothing grows"
        applied_project.run("config", "set", "gpus", "24")
        ran = applied_project.run("preview", "--require-checks")
        assert ran.code == 4
        message = "not checked: the cost, for the cost gates: train: 24 H100_SXM GPUs"
        assert message in ran.err
        applied_project.run("config", "set", "gpus", "8")
        assert applied_project.run("preview", "--require-checks").code == 0, (
            "it only lowers capacity"
        )

    def test_generated_workflows_require_all_checks(self, run: Any, project: Path) -> None:
        assert run("new", "ci", "--forge", "github", "--stack", "dev").code == 0
        (workflow,) = project.rglob("gpuform.yml")
        lines = [line for line in workflow.read_text().splitlines() if "plan.json" in line]
        for words in ("review plan.json --post", "--plan plan.json"):
            matching_lines = [line for line in lines if words in line]
            assert matching_lines
            assert all("--require-checks" in line for line in matching_lines)


class TestRunInProgress:
    @pytest.fixture
    def locked_project(self, applied_project: PlannedProject) -> PlannedProject:
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
    def test_preview_and_status_name_the_running_process_and_its_start(
        self, locked_project: PlannedProject
    ) -> None:
        holder = "ada@build-7 (pid 4711) by gpuform, since 2026-03-01 08:00:00 UTC ("
        ran = locked_project.run("preview")
        assert holder in ran.err
        assert "is running on the stack: the state shown may be out of date" in ran.err
        assert "another run is busy with 1 operation, whose results are not in this plan" in ran.out
        assert "interrupted" not in ran.out + ran.err
        ran = locked_project.run("status")
        assert ran.out.splitlines()[1].startswith(holder)
        assert holder in locked_project.run("status", "--json").json["at_work"]

    @pytest.mark.slow
    def test_the_lock_of_an_ended_process_is_not_reported_as_running(
        self, applied_project: PlannedProject
    ) -> None:
        import socket

        locks = applied_project.project / ".pulumi/locks/organization/demo/dev"
        locks.mkdir(parents=True, exist_ok=True)
        owner = {"pid": 2**22 + 1, "username": "ada", "hostname": socket.gethostname()}
        (locks / "one.json").write_text(json.dumps(owner))
        assert "at work" not in applied_project.run("preview").err
        assert applied_project.run("status").out.splitlines()[1].startswith("As of ")


def list_source_lines(ran: Any) -> list[str]:
    """Return the lines of a status that say where its values come from and how old they are."""
    return [line for line in ran.out.splitlines() if line.startswith("As of ")]


class TestStatus:
    def test_status_shows_the_age_of_the_state(self, applied_project: PlannedProject) -> None:
        (line,) = list_source_lines(applied_project.run("status"))
        assert line == "As of less than a minute ago, from the state:"
        for moment, age in (("2001-01-01T00:00:00Z", " d ago"), ("", "less than a minute ago")):
            state = json.loads(applied_project.state_file)
            state["checkpoint"]["latest"]["manifest"]["time"] = moment
            (applied_project.project / ".pulumi/stacks/demo/dev.json").write_text(json.dumps(state))
            assert age in list_source_lines(applied_project.run("status"))[0]
        document = applied_project.run("status", "--json").json
        assert (document["source"], document["age_seconds"] >= 0) == ("state", True)

    @pytest.mark.slow
    def test_status_refresh_fails_and_names_unread_resources(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, list_source_lines(ran)) == (0, ["As of now, from the platforms:"])
        monkeypatch.delenv("TOGETHER_API_KEY")
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, ran.err) == (1, "error: could not read data, train\n")
        assert list_source_lines(ran) == [
            (
                "As of now, from the platforms; data, train as of less than a minute ago, from the "
                "state:"
            )
        ]
        assert applied_project.run("status").code == 0

    def test_status_refresh_succeeds_for_resources_that_no_longer_exist(
        self, applied_project: PlannedProject
    ) -> None:
        request = urllib.request.Request(f"{applied_project.url}/_emulator/reset", b"{}")
        urllib.request.urlopen(request).close()
        assert os.environ["TOGETHER_API_KEY"]
        ran = applied_project.run("status", "--refresh")
        assert (ran.code, ran.out.count("    it no longer exists on the platform")) == (0, 2)
