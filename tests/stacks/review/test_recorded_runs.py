"""Test reviews of recorded runs of the real Pulumi CLI: each form of a plan is one review."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.readers.review_documents import RENDERERS

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction, PlanReason
from gpuform.stacks.code_hosts.posting import ReviewVerdict
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

RUNS: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_runs.json").read_text())
"""Of the Pulumi CLI 3.260.0: `object` is of `--json`, `stream` of `--json` where it streams, `log`
of `--event-log`. Times, versions, UUIDs, positions and pickled providers are masked; debug
messages, and in most of them what is unchanged, are left out.
"""

PREVIEWS = [name for name in RUNS if "object" in RUNS[name]]
FAILED = ("raises", "check", "destroy-protected")


def encode_recording(recording: Any) -> bytes:
    lines = (
        [json.dumps(event) for event in recording]
        if isinstance(recording, list)
        else [json.dumps(recording)]
    )
    return "\n".join(lines).encode() + b"\n"


def read_recorded_plan(name: str, form: str) -> Plan:
    return read_plan("run.json", encode_recording(RUNS[name][form]))


def build_review(plan: Plan) -> Review:
    return Review([StackFacts(plan, "run.json")])


def sort_changes(plan: Plan) -> Plan:
    """Return the plan with sorted changes, because concurrent changes have no order."""
    changes = sorted(plan.changes, key=lambda change: change.urn)
    return plan.model_copy(update={"changes": tuple(changes)})


@pytest.mark.parametrize("name", [name for name in PREVIEWS if name not in FAILED])
def test_every_recorded_form_of_a_preview_gives_the_same_review(name: str) -> None:
    first_plan, *others = [sort_changes(read_recorded_plan(name, form)) for form in RUNS[name]]
    assert len(others) >= 1
    for other in others:
        if plans_hidden_drift(first_plan):
            # The object names nothing of it: the log says more.
            assert other.summary == first_plan.summary
            assert {c.name: str(c.action) for c in other.changes}["a"] == "update"
            continue
        assert other == first_plan
        for form in RENDERERS.values():
            assert form(build_review(other)) == form(build_review(first_plan))


def plans_hidden_drift(plan: Plan) -> bool:
    return any("changed outside: the JSON only counts" in note for note in plan.unchecked)


@pytest.mark.parametrize(
    ("name", "operation", "command"),
    [
        ("changed", "update", "gpuform up --stack dev"),
        ("preview-refresh", "update", "gpuform up --stack dev"),
        ("destroy", "destroy", "gpuform destroy --stack dev"),
        ("destroy-target", "destroy", "gpuform destroy --stack dev"),
        ("refresh", "refresh", "gpuform refresh --stack dev"),
        ("refresh-target-gone", "refresh", "gpuform refresh --stack dev"),
        ("refresh-program", "refresh", "gpuform refresh --stack dev"),
    ],
)
def test_the_operation_of_a_recorded_preview_is_recognized(
    name: str, operation: str, command: str
) -> None:
    for form in RUNS[name]:
        plan = read_recorded_plan(name, form)
        assert plan.operation == operation
        assert StackFacts(plan, "run.json").command == command
        gone = {change.reason for change in plan.changes if change.action == "delete"}
        reasons = {"update": "not_in_program", "destroy": "destroyed", "refresh": "gone"}
        assert gone <= {PlanReason(reasons[operation])}
        assert not (
            operation != "update" and "in the program" in RENDERERS["text"](build_review(plan))
        )


def test_a_recorded_refresh_shows_outside_changes() -> None:
    plan = read_recorded_plan("refresh", "stream")
    changes_by_name = {change.name: change for change in plan.changes}
    assert changes_by_name["c"].action == "delete"
    assert [(c.path, c.before, c.after) for c in changes_by_name["a"].changes] == [("size", 1, 7)]
    assert plan.summary == {PlanAction.UPDATE: 1, PlanAction.DELETE: 1, PlanAction.SAME: 5}


def test_changes_that_the_json_only_counts_are_listed_as_unchecked() -> None:
    plan = read_recorded_plan("refresh", "object")
    assert "which 1 resource changed outside: the JSON only counts" in plan.unchecked[0]
    assert "1 to update" in RENDERERS["text"](build_review(plan))
    assert plan.has_changes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "ValueError: no"),
        ("check", "z: pulumi-python:dynamic:Resource resource 'z': property size"),
        ("destroy-protected", "because it is protected"),
    ],
)
def test_a_failed_recorded_preview_gives_a_failed_review(name: str, message: str) -> None:
    for form in RUNS[name]:
        plan = read_recorded_plan(name, form)
        assert message in "\n".join(plan.errors)
        review = build_review(plan)
        assert review.has_failed
        assert not review.has_changes
        assert ReviewVerdict.from_review(review) == "failed"
        rendered = RENDERERS["text"](review)
        assert rendered.startswith("Failed:\n")
        for view in ("text", "markdown", "github", "html"):
            page_text = RENDERERS[view](review)
            assert page_text.index("Failed") < page_text.index(
                " of rec/dev" if view == "text" else "GPUs"
            )
            assert "othing is to be done" not in page_text
            assert "gpuform up" not in page_text
        assert json.loads(RENDERERS["json"](review))["failed"] is True


def test_the_log_of_a_failed_run_is_reviewed_and_of_a_completed_run_refused() -> None:
    plan = read_recorded_plan("up-failed", "log")
    assert any("create refused" in error for error in plan.errors)
    assert plan.changes == ()
    assert RENDERERS["text"](build_review(plan)).startswith("Failed:")
    with pytest.raises(EngineError, match="is the log of a completed run, not of a preview"):
        read_recorded_plan("up", "log")


def test_the_last_run_of_a_log_is_reviewed() -> None:
    both = encode_recording(RUNS["changed"]["object"]) + encode_recording(RUNS["up-failed"]["log"])
    assert read_plan("run.json", both) == read_recorded_plan("up-failed", "log")


@pytest.mark.parametrize("cut", [-1, -2, 2, 1])
def test_a_truncated_log_is_refused(cut: int) -> None:
    with pytest.raises(EngineError, match=r"run.json ends in the middle of a run"):
        read_plan("run.json", encode_recording(RUNS["changed"]["stream"][:cut]))


@pytest.mark.parametrize("kept_part", [0.3, 0.6, 0.99])
def test_a_truncated_document_is_refused(kept_part: float) -> None:
    for form, message in (("object", "this is not JSON"), ("stream", "ends in the middle")):
        complete = encode_recording(RUNS["changed"][form])
        with pytest.raises(EngineError, match=message):
            read_plan("run.json", complete[: int(len(complete) * kept_part)])


def test_an_unknown_operation_is_listed_as_unchecked() -> None:
    document = json.loads(json.dumps(RUNS["destroy-target"]["object"]))
    for step in document["steps"]:
        if "pulumi:Stack" in step["urn"]:
            step["oldState"].pop("outputs")
            step["newState"].pop("outputs")
    plan = read_plan("run.json", encode_recording(document))
    assert plan.operation == "update"
    assert any(note.startswith("the command of this preview") for note in plan.unchecked)


def test_a_mandatory_policy_fails_a_preview() -> None:
    stream = list(RUNS["changed"]["stream"])
    violated = {
        "policyName": "no-gpus",
        "enforcementLevel": "mandatory",
        "message": "<{%fg 1%}>too many<{%reset%}>",
    }
    stream.insert(-2, {"sequence": 0, "policyEvent": violated})
    plan = read_plan("run.json", encode_recording(stream))
    assert plan.errors == ("policy no-gpus: too many",)


def test_a_preview_without_steps_is_refused_with_its_error() -> None:
    document = {"diagnostics": [{"severity": "error", "message": "error: no plugin"}]}
    with pytest.raises(EngineError, match=r"no steps, .* it has failed: no plugin"):
        read_plan("run.json", encode_recording(document))
    with pytest.raises(EngineError, match="has no steps") as raised:
        read_plan("run.json", b'{"duration": 5}')
    assert raised.value.hint
