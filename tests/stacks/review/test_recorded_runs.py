"""What the real Pulumi CLI told of runs: each form of one plan is one review, and failures fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.readers.review_documents import RENDERERS

from gpuform.schemas.plan import Plan, PlanAction, PlanReason
from gpuform.stacks.code_hosts.posting import Verdict
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.previews.reading import read_plan

RUNS: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_runs.json").read_text())
"""Of the Pulumi CLI 3.260.0: `object` is of `--json`, `stream` of `--json` where it streams, `log`
of `--event-log`. Times, versions, UUIDs, positions and pickled providers are masked; debug
messages, and in most of them what is unchanged, are left out.
"""

PREVIEWS = [name for name in RUNS if "object" in RUNS[name]]
FAILED = ("raises", "check", "destroy-protected")


def content(told: Any) -> bytes:
    lines = [json.dumps(event) for event in told] if isinstance(told, list) else [json.dumps(told)]
    return "\n".join(lines).encode() + b"\n"


def plan_of(name: str, form: str) -> Plan:
    return read_plan("run.json", content(RUNS[name][form]))


def build_review(plan: Plan) -> Review:
    return Review([StackFacts(plan, "run.json")])


def in_any_order(plan: Plan) -> Plan:
    """What runs at the same time is told in any order."""
    changes = sorted(plan.changes, key=lambda change: change.urn)
    return plan.model_copy(update={"changes": tuple(changes)})


@pytest.mark.parametrize("name", [name for name in PREVIEWS if name not in FAILED])
def test_each_form_of_a_plan_is_the_same_review(name: str) -> None:
    first_plan, *others = [in_any_order(plan_of(name, form)) for form in RUNS[name]]
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
def test_each_operation_is_told_for_what_it_is(name: str, operation: str, command: str) -> None:
    for form in RUNS[name]:
        plan = plan_of(name, form)
        assert plan.operation == operation
        assert StackFacts(plan, "run.json").command == command
        gone = {change.reason for change in plan.changes if change.action == "delete"}
        reasons = {"update": "not_in_program", "destroy": "destroyed", "refresh": "gone"}
        assert gone <= {PlanReason(reasons[operation])}
        assert not (
            operation != "update" and "in the program" in RENDERERS["text"](build_review(plan))
        )


def test_a_refresh_tells_what_was_changed_outside() -> None:
    plan = plan_of("refresh", "stream")
    changes_by_name = {change.name: change for change in plan.changes}
    assert changes_by_name["c"].action == "delete"
    assert [(c.path, c.before, c.after) for c in changes_by_name["a"].changes] == [("size", 1, 7)]
    assert plan.summary == {PlanAction.UPDATE: 1, PlanAction.DELETE: 1, PlanAction.SAME: 5}


def test_what_the_object_only_counts_is_said() -> None:
    plan = plan_of("refresh", "object")
    assert "which 1 resource changed outside: the JSON only counts" in plan.unchecked[0]
    assert "1 to update" in RENDERERS["text"](build_review(plan))
    assert plan.has_changes


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "ValueError: no"),
        ("check", "z: pulumi-python:dynamic:Resource resource 'z': property size"),
        ("destroy-protected", "because it is protected"),
    ],
)
def test_what_failed_is_a_failed_review(name: str, told: str) -> None:
    for form in RUNS[name]:
        plan = plan_of(name, form)
        assert told in "\n".join(plan.errors)
        review = build_review(plan)
        assert review.has_failed
        assert not review.has_changes
        assert Verdict.from_review(review) == "failed"
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


def test_a_run_that_failed_is_a_failed_review_and_one_that_did_not_is_none() -> None:
    plan = plan_of("up-failed", "log")
    assert any("create refused" in error for error in plan.errors)
    assert plan.changes == ()
    assert RENDERERS["text"](build_review(plan)).startswith("Failed:")
    with pytest.raises(EngineError, match="is the log of a completed run, not of a preview"):
        plan_of("up", "log")


def test_the_last_run_of_a_log_counts() -> None:
    both = content(RUNS["changed"]["object"]) + content(RUNS["up-failed"]["log"])
    assert read_plan("run.json", both) == plan_of("up-failed", "log")


@pytest.mark.parametrize("cut", [-1, -2, 2, 1])
def test_a_log_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(EngineError, match=r"run.json ends in the middle of a run"):
        read_plan("run.json", content(RUNS["changed"]["stream"][:cut]))


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
def test_a_document_that_is_cut_off_is_an_error(kept: float) -> None:
    for form, message in (("object", "this is not JSON"), ("stream", "ends in the middle")):
        complete = content(RUNS["changed"][form])
        with pytest.raises(EngineError, match=message):
            read_plan("run.json", complete[: int(len(complete) * kept)])


def test_where_the_operation_cannot_be_known_that_is_said() -> None:
    document = json.loads(json.dumps(RUNS["destroy-target"]["object"]))
    for step in document["steps"]:
        if "pulumi:Stack" in step["urn"]:
            step["oldState"].pop("outputs")
            step["newState"].pop("outputs")
    plan = read_plan("run.json", content(document))
    assert plan.operation == "update"
    assert any(note.startswith("which command this is a preview of") for note in plan.unchecked)


def test_a_mandatory_policy_fails_a_preview() -> None:
    stream = list(RUNS["changed"]["stream"])
    violated = {
        "policyName": "no-gpus",
        "enforcementLevel": "mandatory",
        "message": "<{%fg 1%}>too many<{%reset%}>",
    }
    stream.insert(-2, {"sequence": 0, "policyEvent": violated})
    plan = read_plan("run.json", content(stream))
    assert plan.errors == ("policy no-gpus: too many",)


def test_a_preview_without_steps_tells_why() -> None:
    document = {"diagnostics": [{"severity": "error", "message": "error: no plugin"}]}
    with pytest.raises(EngineError, match=r"no steps, .* it has failed: no plugin"):
        read_plan("run.json", content(document))
    with pytest.raises(EngineError, match="has no steps") as raised:
        read_plan("run.json", b'{"duration": 5}')
    assert raised.value.hint
