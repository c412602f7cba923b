"""`gpuform drift`: what changed outside is told, and nothing changes here or on a platform."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from plan_scenes import PlannedProject


def files(project: Path) -> dict[str, bytes]:
    found = (path for path in project.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in found if "__pycache__" not in p.parts}


def platform(scene: PlannedProject, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    key = os.environ["TOGETHER_API_KEY"]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{scene.url}{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def resized(scene: PlannedProject) -> None:
    """Somebody makes the cluster larger, behind the stack's back."""
    resources = json.loads(scene.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (each for each in resources if each["urn"].endswith("::train"))
    platform(scene, "PUT", f"/together/v1/compute/clusters/{train['id']}", {"num_gpus": 24})
    platform(scene, "POST", "/_emulator/clock", {"advance": 3600})


@pytest.mark.slow
def test_no_drift(made: PlannedProject) -> None:
    before = files(made.project)
    for flags in ([], ["--detailed-exitcode"]):
        ran = made.run("drift", *flags)
        assert (ran.code, ran.err) == (0, "")
        assert "2 unchanged" in ran.out
        assert ran.out.startswith("Drift of demo/dev (emulated), made 2")
        assert "GPUs: none gone, none new" in ran.out
        assert "Nothing was changed outside." in ran.out
    markdown = made.run("drift", "--format", "markdown").out
    assert markdown.startswith("# gpuform drift: `demo/dev (emulated)`\n")
    assert files(made.project) == before


@pytest.mark.slow
def test_drift_is_told_apart_from_what_the_program_wants(made: PlannedProject) -> None:
    resized(made)
    made.run("config", "set", "type", "H200_SXM")
    before, sent = files(made.project), made.sent_changes
    ran = made.run("drift")
    assert ran.code == 0
    assert "~  train  together:Cluster  update: changed outside of this stack" in ran.out
    assert "~ num_gpus: 16 => 24" in ran.out
    assert "GPUs: none gone, 8 new" in ran.out
    assert "H200_SXM" not in ran.out
    assert "    gpuform refresh --stack dev\n`gpuform refresh` takes over what" in ran.out
    assert "hello from the program" not in ran.out, "it is not run"
    assert made.run("drift", "--detailed-exitcode").code == 2
    assert made.run("drift", "--detailed-exitcode", "--target", "data").code == 0
    assert (files(made.project), made.sent_changes) == (before, sent)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "github", "gitlab", "html", "json"])
def test_the_formats_of_a_review(made: PlannedProject, form: str) -> None:
    resized(made)
    saved = ("--save-plan", "drift.json")
    ran = made.run("drift", "--format", form, "--output", "out", *saved)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert "num_gpus" in Path("out").read_text()
    assert "num_gpus" in made.run("review", "drift.json", "--format", form).out
    assert made.run("review", "drift.json", "--detailed-exitcode").code == 2
    refused = made.run("up", "--plan", "drift.json", "--yes")
    assert refused.code == 1


def test_what_cannot_be_read_is_an_error_beside_what_was_found(made: PlannedProject) -> None:
    resized(made)
    rule = {"method": "GET", "path": "^/compute/clusters/storage", "status": 403, "count": None}
    platform(made, "POST", "/_emulator/faults", rule)
    before = files(made.project)
    ran = made.run("drift", "--detailed-exitcode")
    assert ran.code == 1
    assert "error: not every resource could be read" in ran.err
    assert "~ num_gpus: 16 => 24" in ran.out
    assert "GPUs: none gone, 8 new" in ran.out
    assert files(made.project) == before


def test_a_stack_in_use_can_be_looked_at(made: PlannedProject) -> None:
    lock = made.project / ".pulumi/locks/organization/demo/dev/other.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(
        '{"pid": 1, "username": "x", "hostname": "y", "timestamp": "2026-01-01T00:00:00Z"}'
    )
    assert made.run("drift").code == 0
    assert [path.name for path in lock.parent.iterdir()] == ["other.json"]
