"""Gates and costs in `preview`, `up`, `destroy` and `review`: what is stopped, before anything."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from lens_document import CONSUMERS
from plan_scenes import PlannedProject

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


def gates(scene: PlannedProject, *entries: str) -> None:
    text = "".join(f"  {entry}\n" for entry in entries)
    (scene.project / "gates.yaml").write_text(f"gates:\n{text}")


def admin(scene: PlannedProject, path: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"{scene.url}/_emulator/{path}", data) as answer:
        return json.load(answer)


def silence_kubernetes(scene: PlannedProject) -> None:
    """The cluster's own scheduler tells no jobs."""
    rule = {"method": "GET", "path": "/api/v1/nodes$", "status": 503, "count": None}
    admin(scene, "faults", rule)


def sent(scene: PlannedProject) -> list[str]:
    """What was asked of the platform to change something."""
    return scene.sent_changes


@pytest.mark.slow
def test_a_plan_says_what_it_costs_and_so_does_its_review(made: PlannedProject) -> None:
    (made.project / "prices.yaml").write_text(PRICES)
    made.run("config", "set", "gpus", "24")
    made.save_plan()
    plan = made.run("preview").out
    cost = "48.50 USD/h (35,405.00 USD/month) => 72.50 USD/h (52,925.00 USD/month)"
    assert f"Cost: {cost}" in plan
    assert "~  train  together:Cluster  update  (+8 GPUs, +24.00 USD/h)" in plan
    assert f"Cost: {cost}" in made.run("review", "plan.json").out
    for form in ("markdown", "github", "gitlab"):
        assert cost in made.run("review", "plan.json", "-f", form).out
    assert cost.replace(">", "&gt;") in made.run("review", "plan.json", "-f", "html").out
    (stack,) = made.run("review", "plan.json", "-f", "json").json["stacks"]
    assert stack["plan"]["cost"]["after"] == {
        "amounts": [{"billing": "on_demand", "currency": "USD", "hourly": 72.5}],
        "unknown": [],
    }
    assert "2 resources, 16 GPUs, 48.50 USD/h (35,405.00 USD/month)" in made.run("status").out


@pytest.mark.slow
def test_without_a_price_an_unknown_cost_is_said_and_not_summed(made: PlannedProject) -> None:
    (made.project / "prices.yaml").write_text("currency: USD\n")
    plan = made.run("preview").out
    assert "Cost: unknown\n" in plan
    assert (
        "    unknown: data: 5 TiB: prices.yaml has no price of together storage by the TiB\n"
        in plan
    )
    (made.project / "prices.yaml").unlink()
    assert "Cost" not in made.run("preview").out


@pytest.mark.slow
def test_a_gate_stops_every_command_that_would_destroy(made: PlannedProject) -> None:
    gates(made, FEW)
    before = sent(made), made.state_file
    for command in (["destroy", "--yes"], ["destroy", "--yes", "--skip-preview"]):
        ran = made.run(*command)
        assert ran.code == 5
        assert "gates.yaml:2:3: gate few: stops the plan: 16 GPUs would go (train)" in ran.err
        assert "(ask the team) [--allow gate:few]\nNothing was changed.\n" in ran.err
    assert (sent(made), made.state_file) == before
    assert made.run("preview").code == 0
    made.run("config", "set", "gpus", "8")
    assert made.run("preview", "--expect-no-changes").code == 7, "8 GPUs may go"
    assert made.run("destroy", "--yes", "--allow", "gate:few").code == 0


def test_a_permission_is_for_a_gate_that_there_is(made: PlannedProject) -> None:
    gates(made, FEW)
    ran = made.run("destroy", "--yes", "--allow", "gate:fwe")
    assert (ran.code, ran.err.splitlines()[:2]) == (
        1,
        ["error: gate:fwe: there is no such gate", "  gates are lifted by gate:few"],
    )
    (made.project / "gates.yaml").write_text("gates:\n  few: {max: 1}\n")
    ran = made.run("preview")
    assert ran.code == 1
    assert "gates.yaml:2:9: gates.few.max: is not known" in ran.err


@pytest.mark.slow
def test_a_stopped_plan_can_be_reviewed_and_not_applied(made: PlannedProject) -> None:
    gates(made, FEW, "place: {allowed_gpu_types: [B200_SXM], level: advisory}")
    made.run("config", "set", "type", "H200_SXM")
    ran = made.run("preview", "--save-plan", "plan.json")
    assert ran.code == 5
    assert "    few stops the plan\n        16 GPUs would go (train): at most 8 may\n" in ran.out
    assert "    place advice\n" in ran.out
    before = sent(made)
    assert made.run("up", "--plan", "plan.json", "--yes").code == 5
    assert sent(made) == before
    assert made.run("review", "plan.json").code == 0
    reviewed = made.run("review", "plan.json", "--detailed-exitcode", "-f", "json")
    assert reviewed.code == 5
    assert reviewed.json["stacks"][0]["stopped_by"] == ["few"]
    assert made.run("review", "plan.json", "--detailed-exitcode", "--allow", "gate:few").code == 2
    Path("others.yaml").write_text("gates: {free: {max_destroyed_gpus: 99}}\n")
    other = made.run("review", "plan.json", "--detailed-exitcode", "--gates", "others.yaml")
    assert (other.code, "Gates: 1 of 1 passed" in other.out) == (2, True)
    assert made.run("up", "--plan", "plan.json", "--yes", "--allow", "gate:few").code == 0


@pytest.mark.slow
def test_a_preview_without_gates_is_put_before_those_of_the_project(made: PlannedProject) -> None:
    made.run("config", "set", "gpus", "8")
    made.save_plan()
    gates(made, "none: {max_destroyed_gpus: 0}")
    ran = made.run("review", "plan.json", "--detailed-exitcode")
    assert ran.code == 5
    assert "8 GPUs would go (train): at most 0 may" in ran.out


@pytest.mark.slow
def test_a_run_does_no_more_than_its_gates_have_seen(made: PlannedProject) -> None:
    """What is only known while it is done must not go round a gate."""
    gates(made, FEW)
    made.edit_program(
        ('region = "us-central-8"\n', 'region = "us-central-8"\nimport pulumi.runtime as now\n'),
        (
            'gpu_type=config.get("type") or "H100_SXM"',
            'gpu_type="H100_SXM" if now.is_dry_run() else "H200_SXM"',
        ),
    )
    before = sent(made)
    ran = made.run("up", "--yes")
    assert ran.code == 1
    assert "declares other inputs: gpu_type than planned; gpuform did not apply it" in ran.out
    assert sent(made) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["preview", "destroy"])
def test_what_is_in_use_is_not_taken_away(made: PlannedProject, command: str) -> None:
    gates(made, "busy: {not_busy: {}}")
    silence_kubernetes(made)
    made.run("config", "set", "type", "H200_SXM")
    flags = ["--yes"] if command == "destroy" else []
    admin(made, "lens/settings", {"consumers": CONSUMERS["data"]["data"]})
    before = sent(made)
    ran = made.run(command, *flags)
    assert ran.code == 5
    assert "train may be in use by default/training-job-1 (Job, 8 GPUs, 85% used)" in ran.out
    assert sent(made) == before
    idle = [{**CONSUMERS["data"]["data"][0], "stat": {"gpuRequest": 8, "gpuUtilization": 0.01}}]
    admin(made, "lens/settings", {"consumers": idle})
    assert made.run("preview").code == 0
    admin(made, "lens/settings", {"consumers": CONSUMERS["data"]["data"]})
    assert made.run(command, *flags, "--allow", "gate:busy,evict-jobs").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_who_cannot_be_asked_makes_the_gate_refuse(
    made: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates(made, "busy: {not_busy: {}}")
    silence_kubernetes(made)
    rule = {"method": "GET", "path": "^/api/clusters/consumers", "status": 500, "count": None}
    admin(made, "faults", rule)
    ran = made.run("destroy", "--yes")
    assert ran.code == 5
    assert "whether train is in use cannot be told: lens: GET /clusters/consumers" in ran.out
    monkeypatch.delenv("LENS_URL")
    ran = made.run("destroy", "--yes")
    assert ran.code == 5
    assert "whether train is in use cannot be told: Lens is not configured (LENS_URL)" in ran.out


def test_tensorone_tells_itself_what_is_in_use_and_what_it_costs(scene: PlannedProject) -> None:
    (scene.project / "__main__.py").write_text(TENSORONE)
    assert scene.run("up", "--yes", "--skip-preview").code == 0
    gates(scene, "busy: {not_busy: {}}")
    ran = scene.run("destroy", "--yes")
    assert ran.code == 5
    assert "dev is in use: " in ran.out
    assert "USD/month) => nothing" in ran.out, "the platform's own rate, without a price book"
    scene.run("config", "set", "gpus", "4")
    assert (
        "unknown: dev: 4 A100 GPUs, on_demand: there is no prices.yaml" in scene.run("preview").out
    )
    with urllib.request.urlopen(f"{scene.url}/_emulator/objects") as answer:
        (cluster,) = json.load(answer)["tensorone"]["clusters"]
    admin(scene, f"tensorone/clusters/{cluster['id']}", {"idle": True})
    admin(scene, "clock", {"advance": 60})
    assert scene.run("destroy", "--yes").code == 0


@pytest.mark.slow
def test_a_preview_of_the_pulumi_cli_is_priced_and_judged_by_its_project(
    made: PlannedProject,
) -> None:
    (made.project / "prices.yaml").write_text(PRICES)
    gates(made, FEW, "budget: {max_hourly_cost: {amount: 1, currency: USD}, level: advisory}")
    made.run("config", "set", "type", "H200_SXM")
    preview = made.run("preview", "--json")
    assert preview.code == 5
    assert "gate few: stops the plan" in preview.err
    ran = made.run("review", "-", "--detailed-exitcode", answers=preview.out)
    assert ran.code == 5
    assert "16 GPUs would go (train): at most 8 may" in ran.out
    assert "the plan does not tell the cost" in ran.out
    made.run("config", "set", "type", "H100_SXM")
    made.run("config", "set", "gpus", "24")
    ran = made.run("review", "-", answers=made.run("preview", "--json").out)
    assert "~  train  together:Cluster  update  (+8 GPUs, +24.00 USD/h)" in ran.out


@pytest.mark.slow
def test_a_secret_stays_one_where_plans_tell_what_things_take_up(made: PlannedProject) -> None:
    (made.project / "prices.yaml").write_text(PRICES)
    gates(made, "place: {allowed_regions: [us-central-8], level: advisory}")
    made.edit_program(('gpu_type=config.get("type") or', 'gpu_type=config.get_secret("type") or'))
    made.run("config", "set", "--secret", "type", "H200_SXM")
    made.save_plan()
    assert "H200_SXM" not in (made.project / "plan.json").read_text()
    assert "H200_SXM" not in made.run("preview").out
