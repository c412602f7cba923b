"""`--profile FILE`: where a run spends its time."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

SECRETS = ("hunter2", "apiVersion")


def read_spans(file: Path) -> list[dict[str, Any]]:
    events = json.loads(file.read_text().rstrip().rstrip(",") + "]")
    return [event for event in events if event["ph"] == "X"]


@pytest.mark.slow
def test_a_profile_has_spans_of_runs_steps_and_requests(
    planned_project: PlannedProject, project: Path
) -> None:
    ran = planned_project.run("up", "--yes", "--profile", "profile.json")
    assert ran.code == 0, ran.err
    spans = read_spans(project / "profile.json")
    kinds = {(span["cat"], span["name"]) for span in spans}
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
    requests = [span["name"] for span in spans if span["cat"] == "request"]
    assert "together: POST /compute/clusters" in requests
    assert any(span["cat"] == "wait" for span in spans)
    assert not any(secret in (project / "profile.json").read_text() for secret in SECRETS)


def test_spans_of_requests_lie_within_calls_and_steps(
    planned_project: PlannedProject, project: Path
) -> None:
    planned_project.run("up", "--yes", "--skip-preview", "--profile", "profile.json")
    spans = read_spans(project / "profile.json")

    def find_enclosing_span(span: dict[str, Any], kind: str) -> list[str]:
        return [
            span_["args"]["urn"].rpartition(":")[2]
            for span_ in spans
            if span_["cat"] == kind
            and span_["tid"] == span["tid"]
            and span_["ts"] <= span["ts"]
            and span["ts"] + span["dur"] <= span_["ts"] + span_["dur"]
        ]

    (post,) = [span for span in spans if span["name"] == "together: POST /compute/clusters"]
    assert find_enclosing_span(post, "provider") == find_enclosing_span(post, "step") == ["train"]


def test_a_profile_that_cannot_be_written_is_an_error(planned_project: PlannedProject) -> None:
    ran = planned_project.run("up", "--yes", "--profile", "no/such/folder.json")
    assert ran.code == 1
    assert "the profile no/such/folder.json cannot be written" in ran.err
