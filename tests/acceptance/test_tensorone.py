"""The way of the example for TensorOne, through the command line: declared, changed, stopped."""

import json
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "03-tensorone-dev"
README = (EXAMPLE / "README.md").read_text()
SOURCES = ("__main__.py", "topology.yaml")
WHY = "stopped by auto-termination, idle for 60 minutes"


@pytest.fixture
def workbench(project):
    """The example, made."""
    for name in (*SOURCES, "Pulumi.yaml"):
        shutil.copy(EXAMPLE / name, project.directory / name)
    text = (project.directory / "Pulumi.yaml").read_text()
    (project.directory / "Pulumi.yaml").write_text(text.replace("tensorone-dev", "training"))
    project.up()
    return project


def only(project):
    (cluster,) = project.admin("GET", "objects")["tensorone"]["clusters"]
    return cluster


@pytest.mark.slow
def test_more_gpus_come_with_a_start_and_the_plan_says_it(workbench):
    workbench.ok("config", "set", "gpus", "4")
    plan = workbench.ok("preview").out
    shown = "~ gpu_count: 2 => 4  # stops and starts the cluster"
    assert shown in plan
    assert shown in README
    workbench.forget_requests()
    workbench.up()
    sent = [path.rsplit("/", 1)[1] for _, path, _ in workbench.requests("POST", "PUT", "DELETE")]
    assert sent == ["stop", "start"]
    assert only(workbench)["status"] == "running"
    assert workbench.ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_what_the_platform_has_stopped_stays_stopped_until_it_is_allowed(workbench):
    cluster = only(workbench)
    workbench.admin("POST", f"tensorone/clusters/{cluster['id']}", json={"idle": True})
    workbench.admin("POST", "clock", json={"advance": 3700})
    assert "1 unchanged" in workbench.ok("refresh", "--yes", "--skip-preview").out
    plan = workbench.ok("preview", "--expect-no-changes").out
    shown = f'state: stays "stopped": {WHY}; --allow start-terminated starts it again'
    assert shown in plan
    assert shown in README
    workbench.forget_requests()
    workbench.up()
    assert workbench.requests("POST", "PUT", "DELETE") == []
    assert workbench.resource("workbench")["outputs"]["stopped_by"] in WHY
    allowed = ("--allow", "start-terminated")
    assert f'~ state: "stopped" => "running"  # {WHY}' in workbench.ok("preview", *allowed).out
    workbench.ok("up", "--yes", "--skip-preview", *allowed)
    assert only(workbench)["status"] == "running"
    assert workbench.ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_what_a_person_has_stopped_is_started(workbench):
    cluster = only(workbench)
    key = workbench.environ["TENSORONE_API_KEY"]
    workbench.admin(
        "POST",
        f"../tensorone/v1/clusters/{cluster['id']}/stop",
        headers={"Authorization": f"Bearer {key}"},
    )
    workbench.admin("POST", "clock", json={"advance": 60})
    assert 'state: "running" => "stopped"' in workbench.ok("refresh", "--yes").out
    workbench.up()
    assert only(workbench)["status"] == "running"


@pytest.mark.slow
def test_no_secret_is_found_anywhere(workbench):
    secret = "no-key-for-the-emulator"
    shown = [
        workbench.run("preview", "--json", "-v"),
        workbench.run("refresh", "--yes", "-v"),
        workbench.run("stack", "export"),
        workbench.run("stack", "output", "--json"),
    ]
    ssh = workbench.ok("stack", "output", "ssh", "--show-secrets").out.strip()
    assert ssh.startswith("ssh root@")
    places = {f"command {i}": result.text for i, result in enumerate(shown)}
    places["requests"] = json.dumps(workbench.admin("GET", "requests"))
    for path in workbench.directory.rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and path.name not in SOURCES:
            places[str(path)] = path.read_text(errors="replace")
    for place, text in places.items():
        for each in (secret, ssh, workbench.environ["TENSORONE_API_KEY"]):
            assert each not in text, place


@pytest.mark.slow
def test_a_key_of_ones_own_replaces_the_tests(workbench):
    workbench.ok("config", "set", "--secret", "wandb_key", "hunter2-hunter2")
    assert "environment_variables.WANDB_API_KEY: [secret]" in workbench.ok("preview").out
    workbench.up()
    assert workbench.ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_a_last_snapshot_outlives_the_cluster(workbench):
    workbench.ok("destroy", "--yes")
    found = workbench.admin("GET", "objects")["tensorone"]
    assert (found["clusters"], len(found["snapshots"])) == ([], 1)
