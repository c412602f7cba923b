"""`notify.yaml`: people are reported what runs find and do, and a broken service fails no run."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers.webhook import TOKEN, Webhook, receive_notifications
from support.stacks.planned_project import PlannedProject
from support.stacks.workspace import create_workspace

from gpuform.providers.emulator.server import serve

EVENTS = (
    *("failed", "finished", "waiting-for-approval", "drift-found", "expiring", "repair-proposed"),
    *("repair-done", "certification-failed", "out-of-capacity", "credit-low"),
)
RULES = f"notify:\n  team:\n    events: [{', '.join(EVENTS)}]\n"


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    for name, value in {"SERVER_URL": "https://g", "REPOSITORY": "o/r", "RUN_ID": "7"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION", raising=False)
    with receive_notifications() as service:
        yield service


def add_rules(planned_project: PlannedProject, webhook: Webhook, rules: str = RULES) -> None:
    (planned_project.project / "notify.yaml").write_text(rules)
    ran = planned_project.run("config", "set", "notify:team", webhook.address)
    assert ran.code == 0, ran.err


def call_emulator(planned_project: PlannedProject, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{planned_project.url}/_emulator/{path}", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def resize_outside(planned_project: PlannedProject, gpus: int) -> None:
    """Resize the cluster outside of the stack."""
    cluster = json.loads(planned_project.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (resource for resource in cluster if resource["urn"].endswith("::train"))
    request = urllib.request.Request(
        f"{planned_project.url}/together/v1/compute/clusters/{train['id']}",
        json.dumps({"num_gpus": gpus}).encode(),
        {
            "Authorization": f"Bearer {os.environ['TOGETHER_API_KEY']}",
            "Content-Type": "application/json",
        },
        method="PUT",
    )
    urllib.request.urlopen(request).close()
    call_emulator(planned_project, "clock", {"advance": 3600})


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_drift_is_told_once_and_again_after_it_was_over(
    applied_project: PlannedProject, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rules(applied_project, webhook)
    assert applied_project.run("drift").code == 0
    assert webhook.take_messages() == []
    resize_outside(applied_project, 24)
    before = applied_project.state_file
    for _ in range(2):
        assert applied_project.run("drift").code == 0
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): drift found"
    assert text.startswith("train: update ")
    assert "num_gpus" in text
    assert text.endswith("\ngpuform drift, run by ann\nhttps://g/o/r/actions/runs/7")
    assert applied_project.state_file == before
    assert applied_project.run("refresh", "--yes").code == 0
    assert webhook.take_titles() == ["demo/dev (emulator): finished"]
    assert applied_project.run("drift").code == 0
    resize_outside(applied_project, 16)
    assert applied_project.run("drift").code == 0
    assert webhook.take_titles() == ["demo/dev (emulator): drift found"]


@pytest.mark.slow
def test_an_up_that_fails_hourly_for_lack_of_capacity_is_told_once(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    fault = {"method": "POST", "path": "^/compute/clusters$", "capacity": True}
    call_emulator(planned_project, "faults", fault)
    assert planned_project.run("up", "--yes").code == 1
    messages = dict(webhook.take_messages())
    assert messages["demo/dev (emulator): failed"].startswith("up failed: train: ")
    assert messages["demo/dev (emulator): out of capacity"].startswith("train: ")
    call_emulator(planned_project, "faults", fault)
    assert planned_project.run("up", "--yes").code == 1
    assert webhook.take_messages() == []
    assert planned_project.run("up", "--yes").code == 0
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): finished"
    assert text.startswith("up finished: 1 create")
    assert planned_project.run("up", "--yes").code == 0
    assert webhook.take_messages() == [], "nothing was changed"


@pytest.mark.slow
def test_a_broken_node_is_reported_once_and_its_repair_when_done(
    applied_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(applied_project, webhook)
    resources = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (resource for resource in resources if resource["urn"].endswith("::train"))
    body = {"cluster_id": train["id"], "instance_name": "training-worker-1"}
    call_emulator(applied_project, "together/remediations", body)
    for _ in range(2):
        assert applied_project.run("repair", "--dry-run").code == 0
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): repair proposed"
    assert text.startswith("train: node training-worker-1 is broken: ")
    assert applied_project.run("drift").code == 0
    assert webhook.take_messages() == [], "the same node"
    ran = applied_project.run("repair", "training-worker-1", "--yes")
    assert ran.code == 0, ran.out + ran.err
    messages = dict(webhook.take_messages())
    assert {*messages} == {"demo/dev (emulator): finished", "demo/dev (emulator): repair done"}
    assert "node training-worker-1" in messages["demo/dev (emulator): repair done"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_lost_credit_is_told_once_and_again_after_credit_was_added(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook, "notify:\n  team:\n    events: [credit-low]\n")
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    assert webhook.take_messages() == []
    call_emulator(planned_project, "together/credit", {"exhausted": True})
    planned_project.run("drift")
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): credit low"
    assert "train: no credit is left: its on-demand compute has been paused since " in text
    assert "data: access to its data is revoked. Add credit to the account" in text
    planned_project.run("drift")
    assert webhook.take_messages() == [], "the same loss"
    call_emulator(planned_project, "together/credit", {"exhausted": False})
    planned_project.run("drift")
    assert webhook.take_messages() == []
    call_emulator(planned_project, "together/credit", {"exhausted": True})
    planned_project.run("drift")
    assert webhook.take_titles() == ["demo/dev (emulator): credit low"]


CERTIFICATION = """
from gpuform.providers.together import Certification, Cluster

cluster = Cluster("train", cluster_name="train", region="us-central-8", gpu_type="H100_SXM",
                  num_gpus=16, driver_version="CUDA_12_6_560", billing_type="ON_DEMAND")
Certification(
    "fabric", cluster_id=cluster, num_gpus=cluster.num_gpus, name="fabric",
    categories=[{"domain": "communication", "variant": "nccl-all-reduce", "floor": 300,
                 "options": {"testScale": "intra-node"}}])
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_that_fails_its_certification_is_told_with_its_figure_and_once(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook, "notify:\n  team:\n    events: [certification-failed]\n")
    (planned_project.project / "__main__.py").write_text(CERTIFICATION)
    call_emulator(planned_project, "kubernetes/settings", {"slow_nodes": {"train-worker-1": 250}})
    assert planned_project.run("up", "--yes", "--skip-preview").code == 1
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): certification failed"
    assert text.startswith(
        "fabric: node train-worker-1 failed communication/nccl-all-reduce: 250 GB/s is below "
    )
    assert planned_project.run("drift").code in {0, 1}
    assert webhook.take_messages() == [], "the same test"


def test_a_coming_end_is_reported_once_by_whatever_command_looks(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    program = "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    (planned_project.project / "__main__.py").write_text(program)
    (planned_project.project / "topology.yaml").write_text(
        "clusters:\n  bench: {platform: tensorone, name: bench, gpu_type: A100, gpu_count: 2,\n"
        "    storage_gb: 500, region: us-west-2, project_id: proj_456, ttl: 2d,\n"
        "    template_id: tmpl_pytorch_latest}\n"
    )
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    assert sorted(webhook.take_titles()) == [
        "demo/dev (emulator): expires within 3 days",
        "demo/dev (emulator): finished",
    ]
    for command in (("expire", "--dry-run"), ("drift",), ("repair", "--dry-run")):
        assert planned_project.run(*command).code == 0
        assert webhook.take_messages() == [], command


def test_a_preview_is_told_only_if_its_plan_is_saved(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    assert planned_project.run("preview").code == 0
    assert webhook.take_messages() == []
    planned_project.save_plan()
    planned_project.save_plan()
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev (emulator): waits for approval"
    assert text.startswith("a saved plan waits for approval: 2 create")


def test_a_service_that_fails_is_a_warning_and_fails_no_run(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    webhook.status = 500
    ran = planned_project.run("preview", "--save-plan", "plan.json")
    assert ran.code == 0
    assert "warning: notification team: JSON did not accept the message" in ran.err
    assert TOKEN not in ran.out + ran.err


def test_an_error_before_a_run_begins_is_told(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    assert planned_project.run("up", "--yes", "--plan", "missing.json").code == 1
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev: failed"
    assert text.startswith("up failed: ")
    assert "missing.json" in text


@pytest.mark.slow
def test_the_address_is_in_no_file_and_no_output(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    outputs = [
        planned_project.run(*arguments)
        for arguments in (
            ("notify",),
            ("notify", "--test"),
            ("config",),
            ("preview", "--save-plan", "plan.json", "--verbose"),
            ("up", "--yes", "--verbose"),
            ("logs",),
            ("stack", "export"),
            ("stack", "history"),
            ("drift", "--format", "json"),
        )
    ]
    texts = [ran.out + ran.err for ran in outputs]
    texts += [
        path.read_text(errors="replace")
        for path in planned_project.project.rglob("*")
        if path.is_file()
    ]
    assert not any(TOKEN in text for text in texts)
    reported = json.dumps(webhook.messages)
    for secret in ("hunter2", "apiVersion", TOKEN):
        assert secret not in reported


def test_a_secret_of_the_configuration_in_an_error_is_not_told(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    assert planned_project.run("config", "set", "--secret", "key", "pl4nted-s3cret").code == 0
    program = "import pulumi\nraise pulumi.RunError('no ' + pulumi.Config().require('key'))\n"
    (planned_project.project / "__main__.py").write_text(program)
    assert planned_project.run("up", "--yes").code == 1
    ((_, text),) = webhook.take_messages()
    assert "[secret]" in text
    assert "pl4nted-s3cret" not in text


def test_notify_shows_the_rules_and_tests_their_addresses(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook, RULES + "  night:\n    events: [failed]\n")
    ran = planned_project.run("notify")
    assert ran.code == 0
    assert re.search(r"^team: .*\(has an address; reported now: 0\)$", ran.out, re.MULTILINE)
    assert "night: failed (no address: set notify:night; reported now: 0)" in ran.out
    ran = planned_project.run("notify", "--test")
    assert (ran.code, ran.out) == (1, "team: sent\n")
    assert "error: night: its address is no secret of the stack's configuration" in ran.err
    ((title, text),) = webhook.take_messages()
    assert title == "demo/dev: test"
    assert text.startswith("A test of the rule team, which reports: certification failed, ")


def test_an_address_in_plain_text_is_refused_and_not_used(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    ran = planned_project.run("config", "set", "--plaintext", "notify:team", "json://x")
    assert ran.code == 1
    assert "is a secret (the address of the rule at notify.yaml:2:3)" in ran.err
    settings = planned_project.project / "Pulumi.dev.yaml"
    text = settings.read_text()
    begin = text.index("notify:team:")
    settings.write_text(f"{text[:begin]}notify:team: {webhook.address}\n")
    ran = planned_project.run("notify", "--test")
    assert ran.code == 1
    assert "its address is no secret" in ran.err
    assert webhook.take_messages() == []


def test_wrong_rules_are_a_warning_of_a_run_and_an_error_of_notify(
    planned_project: PlannedProject, webhook: Webhook
) -> None:
    add_rules(planned_project, webhook)
    (planned_project.project / "notify.yaml").write_text("notify:\n  team: {events: [faild]}\n")
    ran = planned_project.run("preview", "--save-plan", "plan.json")
    assert ran.code == 0
    assert "warning: the notification rules are invalid:\nnotify.yaml:2:19" in ran.err
    ran = planned_project.run("notify")
    assert ran.code == 1
    assert "did you mean failed?" in ran.err or "'failed'" in ran.err


def test_validate_reports_every_problem_of_the_rules(
    planned_project: PlannedProject,
) -> None:
    (planned_project.project / "topology.yaml").write_text("outputs: {a: 1}\n")
    (planned_project.project / "notify.yaml").write_text(
        "notify:\n  On_Call: {events: [failed]}\n  team: {events: [], to: x}\n"
    )
    ran = planned_project.run("validate")
    assert ran.code == 1
    for problem in (
        "notify.yaml:2:3: notify.On_Call: is not a valid name: use a-z, 0-9 and hyphens",
        "notify.yaml:3:18: notify.team.events",
        "notify.yaml:3:22: notify.team.to: is not known: remove it, or use one of events",
    ):
        assert problem in ran.out, ran.out


def test_a_project_without_rules_has_nothing_to_show(planned_project: PlannedProject) -> None:
    ran = planned_project.run("notify")
    assert ran.code == 1
    assert "error: the project has no notification rules" in ran.err


@pytest.mark.slow
def test_rules_of_stacks_yaml_tell_of_every_stack(tmp_path: Path, webhook: Webhook) -> None:
    with serve(seed="several") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
        stacks = (workspace.root / "stacks.yaml").read_text()
        (workspace.root / "stacks.yaml").write_text(stacks + RULES)
        for folder in ("volumes", "training", "told"):
            workspace.run_successfully(
                *("config", "set", "--stack", "dev", "notify:team", webhook.address),
                folder=folder,
            )
        workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
        assert sorted(webhook.take_titles()) == [
            f"{name}/dev (emulator): waits for approval" for name in ("told", "training", "volumes")
        ]
        workspace.run_successfully("up", "--all", "--yes")
        assert sorted(webhook.take_titles()) == [
            f"{name}/dev (emulator): finished" for name in ("told", "training", "volumes")
        ]
        workspace.run_successfully("drift", "--all")
        assert webhook.take_messages() == []
