"""Test `gpuform drift`: outside changes are reported, and nothing else changes."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject


def read_files(project: Path) -> dict[str, bytes]:
    matching_paths = (path for path in project.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in matching_paths if "__pycache__" not in p.parts}


def send(planned_project: PlannedProject, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    key = os.environ["TOGETHER_API_KEY"]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{planned_project.url}{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def resize_outside(planned_project: PlannedProject) -> None:
    """Resize the cluster outside of the stack."""
    resources = json.loads(planned_project.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (resource for resource in resources if resource["urn"].endswith("::train"))
    send(planned_project, "PUT", f"/together/v1/compute/clusters/{train['id']}", {"num_gpus": 24})
    send(planned_project, "POST", "/_emulator/clock", {"advance": 3600})


@pytest.mark.slow
def test_drift_of_an_unchanged_stack_reports_nothing_and_writes_nothing(
    applied_project: PlannedProject,
) -> None:
    before = read_files(applied_project.project)
    for flags in ([], ["--detailed-exitcode"]):
        ran = applied_project.run("drift", *flags)
        assert (ran.code, ran.err) == (0, "")
        assert "2 unchanged" in ran.out
        assert ran.out.startswith("Drift of demo/dev (emulated), made 2")
        assert "GPUs: none removed, none added" in ran.out
        assert "Nothing was changed outside of the stack." in ran.out
    markdown = applied_project.run("drift", "--format", "markdown").out
    assert markdown.startswith("# gpuform drift: `demo/dev (emulated)`\n")
    assert read_files(applied_project.project) == before


@pytest.mark.slow
def test_drift_shows_outside_changes_but_no_changes_of_the_program(
    applied_project: PlannedProject,
) -> None:
    resize_outside(applied_project)
    applied_project.run("config", "set", "type", "H200_SXM")
    before, sent = read_files(applied_project.project), applied_project.sent_changes
    ran = applied_project.run("drift")
    assert ran.code == 0
    assert "~  train  together:Cluster  update: changed outside of this stack" in ran.out
    assert "~ num_gpus: 16 => 24" in ran.out
    assert "GPUs: none removed, 8 added" in ran.out
    assert "H200_SXM" not in ran.out
    assert "    gpuform refresh --stack dev\n`gpuform refresh` updates the state" in ran.out
    assert "hello from the program" not in ran.out, "it is not run"
    assert applied_project.run("drift", "--detailed-exitcode").code == 2
    assert applied_project.run("drift", "--detailed-exitcode", "--target", "data").code == 0
    assert (read_files(applied_project.project), applied_project.sent_changes) == (before, sent)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "github", "gitlab", "html", "json"])
def test_drift_has_the_formats_of_a_review(applied_project: PlannedProject, form: str) -> None:
    resize_outside(applied_project)
    saved = ("--save-plan", "drift.json")
    ran = applied_project.run("drift", "--format", form, "--output", "out", *saved)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert "num_gpus" in Path("out").read_text()
    assert "num_gpus" in applied_project.run("review", "drift.json", "--format", form).out
    assert applied_project.run("review", "drift.json", "--detailed-exitcode").code == 2
    refused = applied_project.run("up", "--plan", "drift.json", "--yes")
    assert refused.code == 1


def test_drift_fails_for_unread_resources_and_shows_the_others(
    applied_project: PlannedProject,
) -> None:
    resize_outside(applied_project)
    rule = {"method": "GET", "path": "^/compute/clusters/storage", "status": 403, "count": None}
    send(applied_project, "POST", "/_emulator/faults", rule)
    before = read_files(applied_project.project)
    ran = applied_project.run("drift", "--detailed-exitcode")
    assert ran.code == 1
    assert "error: not all resources could be read" in ran.err
    assert "~ num_gpus: 16 => 24" in ran.out
    assert "GPUs: none removed, 8 added" in ran.out
    assert read_files(applied_project.project) == before


def test_drift_ignores_the_lock_of_another_run(applied_project: PlannedProject) -> None:
    lock = applied_project.project / ".pulumi/locks/organization/demo/dev/other.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(
        '{"pid": 1, "username": "x", "hostname": "y", "timestamp": "2026-01-01T00:00:00Z"}'
    )
    assert applied_project.run("drift").code == 0
    assert [path.name for path in lock.parent.iterdir()] == ["other.json"]
