"""The TensorOne example through the command line: created, changed, stopped."""

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
    """Create the example's cluster, and return the project."""
    for name in (*SOURCES, "Pulumi.yaml"):
        shutil.copy(EXAMPLE / name, project.directory / name)
    project_text = (project.directory / "Pulumi.yaml").read_text()
    (project.directory / "Pulumi.yaml").write_text(
        project_text.replace("tensorone-dev", "training")
    )
    project.up()
    return project


def get_only_cluster(project):
    (cluster,) = project.send_control_request("GET", "objects")["tensorone"]["clusters"]
    return cluster


@pytest.mark.slow
def test_more_gpus_restart_the_cluster_as_planned(workbench):
    workbench.run_ok("config", "set", "gpus", "4")
    plan = workbench.run_ok("preview").out
    plan_line = "~ gpu_count: 2 => 4  # stops and starts the cluster"
    assert plan_line in plan
    assert plan_line in README
    workbench.forget_requests()
    workbench.up()
    sent = [
        path.rsplit("/", 1)[1] for _, path, _ in workbench.list_requests("POST", "PUT", "DELETE")
    ]
    assert sent == ["stop", "start"]
    assert get_only_cluster(workbench)["status"] == "running"
    assert workbench.run_ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_a_cluster_stopped_by_the_platform_starts_only_with_permission(workbench):
    cluster = get_only_cluster(workbench)
    workbench.send_control_request(
        "POST", f"tensorone/clusters/{cluster['id']}", json={"idle": True}
    )
    workbench.send_control_request("POST", "clock", json={"advance": 3700})
    assert "1 unchanged" in workbench.run_ok("refresh", "--yes", "--skip-preview").out
    plan = workbench.run_ok("preview", "--expect-no-changes").out
    plan_line = f'state: stays "stopped": {WHY}; --allow start-terminated starts it again'
    assert plan_line in plan
    assert plan_line in README
    workbench.forget_requests()
    workbench.up()
    assert workbench.list_requests("POST", "PUT", "DELETE") == []
    assert workbench.get_resource("workbench")["outputs"]["stopped_by"] in WHY
    allowed = ("--allow", "start-terminated")
    assert f'~ state: "stopped" => "running"  # {WHY}' in workbench.run_ok("preview", *allowed).out
    workbench.run_ok("up", "--yes", "--skip-preview", *allowed)
    assert get_only_cluster(workbench)["status"] == "running"
    assert workbench.run_ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_a_cluster_stopped_by_a_person_is_started(workbench):
    cluster = get_only_cluster(workbench)
    key = workbench.environ["TENSORONE_API_KEY"]
    workbench.send_control_request(
        "POST",
        f"../tensorone/v1/clusters/{cluster['id']}/stop",
        headers={"Authorization": f"Bearer {key}"},
    )
    workbench.send_control_request("POST", "clock", json={"advance": 60})
    assert 'state: "running" => "stopped"' in workbench.run_ok("refresh", "--yes").out
    workbench.up()
    assert get_only_cluster(workbench)["status"] == "running"


@pytest.mark.slow
def test_secrets_are_in_no_output_and_no_file(workbench):
    secret = "no-key-for-the-emulator"
    results = [
        workbench.run("preview", "--json", "-v"),
        workbench.run("refresh", "--yes", "-v"),
        workbench.run("stack", "export"),
        workbench.run("stack", "output", "--json"),
    ]
    ssh = workbench.run_ok("stack", "output", "ssh", "--show-secrets").out.strip()
    assert ssh.startswith("ssh root@")
    texts_by_source = {f"command {i}": result.text for i, result in enumerate(results)}
    texts_by_source["requests"] = json.dumps(workbench.send_control_request("GET", "requests"))
    for path in workbench.directory.rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and path.name not in SOURCES:
            texts_by_source[str(path)] = path.read_text(errors="replace")
    for source, content in texts_by_source.items():
        for secret_value in (secret, ssh, workbench.environ["TENSORONE_API_KEY"]):
            assert secret_value not in content, source


@pytest.mark.slow
def test_a_key_of_ones_own_replaces_the_tests(workbench):
    workbench.run_ok("config", "set", "--secret", "wandb_key", "hunter2-hunter2")
    assert "environment_variables.WANDB_API_KEY: [secret]" in workbench.run_ok("preview").out
    workbench.up()
    assert workbench.run_ok("preview", "--expect-no-changes")


@pytest.mark.slow
def test_a_last_snapshot_outlives_the_cluster(workbench):
    workbench.run_ok("destroy", "--yes")
    objects = workbench.send_control_request("GET", "objects")["tensorone"]
    assert (objects["clusters"], len(objects["snapshots"])) == ([], 1)
