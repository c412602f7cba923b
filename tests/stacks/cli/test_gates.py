"""Test gates and costs in `preview`, `up`, `destroy` and `review`."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.platforms.lens_document import CONSUMERS
from support.stacks.planned_project import PlannedProject

PRICES = """\
currency: USD
gpus: [{platform: together, gpu_type: H100_SXM, per_hour: 3}]
storage: [{platform: together, unit: TiB, per_month: 73}]
"""
FEW = "few: {max_destroyed_gpus: 8, reason: ask the team}"
TENSORONE = """
import pulumi
from gpuform.providers.tensorone import Cluster

Cluster("dev", name="dev", gpu_type="A100", gpu_count=pulumi.Config().get_int("gpus") or 2,
        storage_gb=100, region="us-west-2", project_id="proj_1", docker_image="pytorch:2")
"""


def write_gates(planned_project: PlannedProject, *entries: str) -> None:
    entry_lines = "".join(f"  {entry}\n" for entry in entries)
    (planned_project.project / "gates.yaml").write_text(f"gates:\n{entry_lines}")


def call_emulator(planned_project: PlannedProject, path: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"{planned_project.url}/_emulator/{path}", data) as answer:
        return json.load(answer)


def silence_kubernetes(planned_project: PlannedProject) -> None:
    """Make the cluster's Kubernetes answer 503 to lists of nodes."""
    rule = {"method": "GET", "path": "/api/v1/nodes$", "status": 503, "count": None}
    call_emulator(planned_project, "faults", rule)


def get_sent_changes(planned_project: PlannedProject) -> list[str]:
    return planned_project.sent_changes


@pytest.mark.slow
def test_a_plan_and_its_review_show_the_cost(applied_project: PlannedProject) -> None:
    (applied_project.project / "prices.yaml").write_text(PRICES)
    applied_project.run("config", "set", "gpus", "24")
    applied_project.save_plan()
    plan = applied_project.run("preview").out
    cost = "48.50 USD/h (35,405.00 USD/month) => 72.50 USD/h (52,925.00 USD/month)"
    assert f"Cost: {cost}" in plan
    assert "~  train  together:Cluster  update  (+8 GPUs, +24.00 USD/h)" in plan
    assert f"Cost: {cost}" in applied_project.run("review", "plan.json").out
    for form in ("markdown", "github", "gitlab"):
        assert cost in applied_project.run("review", "plan.json", "-f", form).out
    assert cost.replace(">", "&gt;") in applied_project.run("review", "plan.json", "-f", "html").out
    (stack,) = applied_project.run("review", "plan.json", "-f", "json").json["stacks"]
    assert stack["plan"]["cost"]["after"] == {
        "amounts": [{"billing": "on_demand", "currency": "USD", "hourly": 72.5}],
        "unknown": [],
    }
    assert (
        "2 resources, 16 GPUs, 48.50 USD/h (35,405.00 USD/month)"
        in applied_project.run("status").out
    )


@pytest.mark.slow
def test_a_resource_without_a_price_has_an_unknown_cost(
    applied_project: PlannedProject,
) -> None:
    (applied_project.project / "prices.yaml").write_text("currency: USD\n")
    plan = applied_project.run("preview").out
    assert "Cost: unknown\n" in plan
    assert (
        "    unknown: data: 5 TiB: prices.yaml has no price of together storage by the TiB\n"
        in plan
    )
    (applied_project.project / "prices.yaml").unlink()
    assert "Cost" not in applied_project.run("preview").out


@pytest.mark.slow
def test_a_gate_stops_every_command_that_would_destroy_gpus(
    applied_project: PlannedProject,
) -> None:
    write_gates(applied_project, FEW)
    before = get_sent_changes(applied_project), applied_project.state_file
    for command in (["destroy", "--yes"], ["destroy", "--yes", "--skip-preview"]):
        ran = applied_project.run(*command)
        assert ran.code == 5
        assert (
            "gates.yaml:2:3: gate few: stops the plan: the plan removes 16 GPUs (train)" in ran.err
        )
        assert "(ask the team) [--allow gate:few]\nNothing was changed.\n" in ran.err
    assert (get_sent_changes(applied_project), applied_project.state_file) == before
    assert applied_project.run("preview").code == 0
    applied_project.run("config", "set", "gpus", "8")
    assert applied_project.run("preview", "--expect-no-changes").code == 7, "8 GPUs may go"
    assert applied_project.run("destroy", "--yes", "--allow", "gate:few").code == 0


def test_a_permission_for_an_unknown_gate_is_refused(applied_project: PlannedProject) -> None:
    write_gates(applied_project, FEW)
    ran = applied_project.run("destroy", "--yes", "--allow", "gate:fwe")
    assert (ran.code, ran.err.splitlines()[:2]) == (
        1,
        ["error: unknown gates: gate:fwe", "  the project's gates are gate:few"],
    )
    (applied_project.project / "gates.yaml").write_text("gates:\n  few: {max: 1}\n")
    ran = applied_project.run("preview")
    assert ran.code == 1
    assert "gates.yaml:2:9: gates.few.max: is not known" in ran.err


@pytest.mark.slow
def test_a_stopped_plan_can_be_reviewed_but_not_applied(applied_project: PlannedProject) -> None:
    write_gates(applied_project, FEW, "place: {allowed_gpu_types: [B200_SXM], level: advisory}")
    applied_project.run("config", "set", "type", "H200_SXM")
    ran = applied_project.run("preview", "--save-plan", "plan.json")
    assert ran.code == 5
    assert (
        "    few stops the plan\n        the plan removes 16 GPUs (train): the limit is 8\n"
        in ran.out
    )
    assert "    place advice\n" in ran.out
    before = get_sent_changes(applied_project)
    assert applied_project.run("up", "--plan", "plan.json", "--yes").code == 5
    assert get_sent_changes(applied_project) == before
    assert applied_project.run("review", "plan.json").code == 0
    reviewed = applied_project.run("review", "plan.json", "--detailed-exitcode", "-f", "json")
    assert reviewed.code == 5
    assert reviewed.json["stacks"][0]["stopped_by"] == ["few"]
    assert (
        applied_project.run(
            "review", "plan.json", "--detailed-exitcode", "--allow", "gate:few"
        ).code
        == 2
    )
    Path("others.yaml").write_text("gates: {free: {max_destroyed_gpus: 99}}\n")
    other = applied_project.run(
        "review", "plan.json", "--detailed-exitcode", "--gates", "others.yaml"
    )
    assert (other.code, "Gates: 1 of 1 passed" in other.out) == (2, True)
    assert (
        applied_project.run("up", "--plan", "plan.json", "--yes", "--allow", "gate:few").code == 0
    )


@pytest.mark.slow
def test_a_review_evaluates_the_projects_gates_for_a_plan_saved_without_them(
    applied_project: PlannedProject,
) -> None:
    applied_project.run("config", "set", "gpus", "8")
    applied_project.save_plan()
    write_gates(applied_project, "none: {max_destroyed_gpus: 0}")
    ran = applied_project.run("review", "plan.json", "--detailed-exitcode")
    assert ran.code == 5
    assert "the plan removes 8 GPUs (train): the limit is 0" in ran.out


@pytest.mark.slow
def test_a_run_stops_before_a_change_its_gates_have_not_seen(
    applied_project: PlannedProject,
) -> None:
    """A change that becomes known only during the run must not bypass a gate."""
    write_gates(applied_project, FEW)
    applied_project.edit_program(
        ('region = "us-central-8"\n', 'region = "us-central-8"\nimport pulumi.runtime as now\n'),
        (
            'gpu_type=config.get("type") or "H100_SXM"',
            'gpu_type="H100_SXM" if now.is_dry_run() else "H200_SXM"',
        ),
    )
    before = get_sent_changes(applied_project)
    ran = applied_project.run("up", "--yes")
    assert ran.code == 1
    assert "declares different inputs: gpu_type than planned; gpuform did not apply it" in ran.out
    assert get_sent_changes(applied_project) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["preview", "destroy"])
def test_the_not_busy_gate_stops_removing_a_busy_cluster(
    applied_project: PlannedProject, command: str
) -> None:
    write_gates(applied_project, "busy: {not_busy: {}}")
    silence_kubernetes(applied_project)
    applied_project.run("config", "set", "type", "H200_SXM")
    flags = ["--yes"] if command == "destroy" else []
    call_emulator(applied_project, "lens/settings", {"consumers": CONSUMERS["data"]["data"]})
    before = get_sent_changes(applied_project)
    ran = applied_project.run(command, *flags)
    assert ran.code == 5
    assert "train may be in use by default/training-job-1 (Job, 8 GPUs, 85% used)" in ran.out
    assert get_sent_changes(applied_project) == before
    idle = [{**CONSUMERS["data"]["data"][0], "stat": {"gpuRequest": 8, "gpuUtilization": 0.01}}]
    call_emulator(applied_project, "lens/settings", {"consumers": idle})
    assert applied_project.run("preview").code == 0
    call_emulator(applied_project, "lens/settings", {"consumers": CONSUMERS["data"]["data"]})
    assert applied_project.run(command, *flags, "--allow", "gate:busy,evict-jobs").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_not_busy_gate_stops_if_use_is_unknown(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gates(applied_project, "busy: {not_busy: {}}")
    silence_kubernetes(applied_project)
    rule = {"method": "GET", "path": "^/api/clusters/consumers", "status": 500, "count": None}
    call_emulator(applied_project, "faults", rule)
    ran = applied_project.run("destroy", "--yes")
    assert ran.code == 5
    assert "whether train is in use is unknown: lens: GET /clusters/consumers" in ran.out
    monkeypatch.delenv("LENS_URL")
    ran = applied_project.run("destroy", "--yes")
    assert ran.code == 5
    assert "whether train is in use is unknown: Lens is not configured (LENS_URL)" in ran.out


def test_tensorone_reports_use_and_cost_without_lens_and_prices(
    planned_project: PlannedProject,
) -> None:
    (planned_project.project / "__main__.py").write_text(TENSORONE)
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    write_gates(planned_project, "busy: {not_busy: {}}")
    ran = planned_project.run("destroy", "--yes")
    assert ran.code == 5
    assert "dev is in use: " in ran.out
    assert "USD/month) => nothing" in ran.out, "the platform's own rate, without a price book"
    planned_project.run("config", "set", "gpus", "4")
    assert (
        "unknown: dev: 4 A100 GPUs, on_demand: prices.yaml does not exist"
        in planned_project.run("preview").out
    )
    with urllib.request.urlopen(f"{planned_project.url}/_emulator/objects") as answer:
        (cluster,) = json.load(answer)["tensorone"]["clusters"]
    call_emulator(planned_project, f"tensorone/clusters/{cluster['id']}", {"idle": True})
    call_emulator(planned_project, "clock", {"advance": 60})
    assert planned_project.run("destroy", "--yes").code == 0


@pytest.mark.slow
def test_a_preview_of_the_pulumi_cli_gets_costs_and_gates_of_its_project(
    applied_project: PlannedProject,
) -> None:
    (applied_project.project / "prices.yaml").write_text(PRICES)
    write_gates(
        applied_project,
        FEW,
        "budget: {max_hourly_cost: {amount: 1, currency: USD}, level: advisory}",
    )
    applied_project.run("config", "set", "type", "H200_SXM")
    preview = applied_project.run("preview", "--json")
    assert preview.code == 5
    assert "gate few: stops the plan" in preview.err
    ran = applied_project.run("review", "-", "--detailed-exitcode", answers=preview.out)
    assert ran.code == 5
    assert "the plan removes 16 GPUs (train): the limit is 8" in ran.out
    assert "the plan has no cost" in ran.out
    applied_project.run("config", "set", "type", "H100_SXM")
    applied_project.run("config", "set", "gpus", "24")
    ran = applied_project.run("review", "-", answers=applied_project.run("preview", "--json").out)
    assert "~  train  together:Cluster  update  (+8 GPUs, +24.00 USD/h)" in ran.out


@pytest.mark.slow
def test_a_secret_gpu_type_stays_secret_in_resource_usage(
    applied_project: PlannedProject,
) -> None:
    (applied_project.project / "prices.yaml").write_text(PRICES)
    write_gates(applied_project, "place: {allowed_regions: [us-central-8], level: advisory}")
    applied_project.edit_program(
        ('gpu_type=config.get("type") or', 'gpu_type=config.get_secret("type") or')
    )
    applied_project.run("config", "set", "--secret", "type", "H200_SXM")
    applied_project.save_plan()
    assert "H200_SXM" not in (applied_project.project / "plan.json").read_text()
    assert "H200_SXM" not in applied_project.run("preview").out


def commit(folder: Path) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_gates_that_a_change_removes_still_judge_it(applied_project: PlannedProject) -> None:
    """A hostile branch deletes its gates, empties its policies and declares capacity as free."""
    project = applied_project.project
    (project / "prices.yaml").write_text(PRICES)
    (project / "policies.py").write_text("def none(plan):\n    yield 'never'\n")
    budget = "budget: {max_hourly_cost: {amount: 50, currency: USD}}"
    write_gates(applied_project, FEW, budget, "own: {python: 'policies:none'}")
    commit(project)
    (project / "gates.yaml").unlink()
    (project / "policies.py").write_text("def none(plan):\n    return []\n")
    (project / "prices.yaml").write_text(PRICES.replace("per_hour: 3", "per_hour: 0"))
    applied_project.run("config", "set", "gpus", "24")

    assert applied_project.run("preview").code == 0, "the branch has no gates of its own"
    ran = applied_project.run("preview", "--gates-from", "HEAD", "--save-plan", "plan.json")
    assert ran.code == 5
    assert "gate budget: stops the plan: the plan costs 72.50 USD/h" in ran.err
    assert "gate own: stops the plan: never" in ran.err
    sent = get_sent_changes(applied_project)
    up = applied_project.run("up", "--yes", "--plan", "plan.json", "--gates-from", "HEAD")
    assert (up.code, get_sent_changes(applied_project)) == (5, sent)

    dangers = [
        *(f"gate {name}: is removed" for name in ("few", "budget", "own")),
        "gate own: its rule in policies.py is changed",
        "gate budget: prices.yaml is changed, by which costs are computed",
    ]
    for form in ("text", "github", "gitlab", "markdown", "html", "json"):
        reviewed = applied_project.run("review", "plan.json", "-f", form)
        positions = [reviewed.out.find(danger) for danger in dangers]
        assert -1 not in positions, form
        assert max(positions) < reviewed.out.find("num_gpus"), form
    assert reviewed.json["stacks"][0]["dangers"][0]["risk"] == "weakens_gates"
    assert (
        "removes or weakens gates, in 5 ways"
        in (applied_project.run("review", "plan.json", "-f", "github").out.partition("##")[0])
    )
    allowed = ("--allow", "gate:budget", "--allow", "gate:own")
    assert applied_project.run("review", "plan.json", "--fail-on-danger", *allowed).code == 3
    again = applied_project.run("review", "plan.json", "--gates-from", "HEAD", "-f", "json").json
    assert again["stacks"][0]["stopped_by"] == ["budget", "own"]
