"""`--profile FILE`: where a run spends its time."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

SECRETS = ("hunter2", "apiVersion")


def spans(file: Path) -> list[dict[str, Any]]:
    events = json.loads(file.read_text().rstrip().rstrip(",") + "]")
    return [event for event in events if event["ph"] == "X"]


@pytest.mark.slow
def test_a_run_tells_where_its_time_goes(planned_project: PlannedProject, project: Path) -> None:
    ran = planned_project.run("up", "--yes", "--profile", "profile.json")
    assert ran.code == 0, ran.err
    found = spans(project / "profile.json")
    kinds = {(span["cat"], span["name"]) for span in found}
    assert {
        ("run", "preview"),
        ("run", "update"),
        ("program", "program"),
        ("step", "plan"),
        ("step", "create"),
        ("provider", "create"),
        ("state", "write a checkpoint"),
        ("state", "append to the journal"),
    } <= kinds
    requests = [span["name"] for span in found if span["cat"] == "request"]
    assert "together: POST /compute/clusters" in requests
    assert any(span["cat"] == "wait" for span in found)
    assert not any(secret in (project / "profile.json").read_text() for secret in SECRETS)


def test_a_request_lies_in_its_call_and_the_call_in_its_step(
    planned_project: PlannedProject, project: Path
) -> None:
    planned_project.run("up", "--yes", "--skip-preview", "--profile", "profile.json")
    found = spans(project / "profile.json")

    def around(span: dict[str, Any], kind: str) -> list[str]:
        return [
            each["args"]["urn"].rpartition(":")[2]
            for each in found
            if each["cat"] == kind
            and each["tid"] == span["tid"]
            and each["ts"] <= span["ts"]
            and span["ts"] + span["dur"] <= each["ts"] + each["dur"]
        ]

    (post,) = [span for span in found if span["name"] == "together: POST /compute/clusters"]
    assert around(post, "provider") == around(post, "step") == ["train"]


def test_a_profile_that_cannot_be_written(planned_project: PlannedProject) -> None:
    ran = planned_project.run("up", "--yes", "--profile", "no/such/folder.json")
    assert ran.code == 1
    assert "the profile no/such/folder.json cannot be written" in ran.err
