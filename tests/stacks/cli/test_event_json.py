"""Engine events in Pulumi's JSON."""

import json
from dataclasses import replace
from typing import Any

from gpuform.providers.values import SECRET_SIGNATURE, SIGNATURE_KEY, UNKNOWN, UNKNOWN_TEXT, Secret
from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.engine.deployment import EventLog, PreviewDigest
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Prelude,
    Progress,
    SkippedCheck,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
    Summary,
)
from gpuform.stacks.engine.state import ResourceState

URN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
PROVIDER = "urn:pulumi:dev::demo::pulumi:providers:pulumi-python::default"
MASKED = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": "[secret]"}


def build_state(urn: str = URN, **facts: Any) -> ResourceState:
    type_ = urn.split("::")[2]
    return ResourceState(urn, not type_.endswith(":Stack"), type_, **facts)


def build_replacement() -> Step:
    old = build_state(id="c-1", inputs={"region": "a"}, outputs={"region": "a"}, delete=True)
    new = build_state(inputs={"region": "b", "token": Secret("hunter2"), "later": UNKNOWN})
    change = ResourceChange(
        urn=URN,
        type=new.type,
        name="train",
        action=PlanAction.REPLACE,
        reason=PlanReason.FIELD_FORCES_REPLACEMENT,
        changes=(
            PropertyChange(path="region", action=Action.UPDATE, forces_replacement=True),
            PropertyChange(path="token", action=Action.ADD),
            PropertyChange(path="kept", action=Action.KEEP),
        ),
    )
    return Step(Op.REPLACE, URN, old, new, ["region"], ["region", "token"], change)


def log_events(*events: Event) -> list[dict[str, Any]]:
    lines: list[str] = []
    log = EventLog(lines.append, now=lambda: 1700000000.9)
    for event in events:
        log(event)
    assert all(line.endswith("\n") and "\n" not in line[:-1] for line in lines)
    return [json.loads(line) for line in lines]


def test_a_run_is_logged_from_prelude_to_cancel_event() -> None:
    step = Step(Op.CREATE, URN, None, build_state(inputs={"n": 16.0}))
    lines = log_events(
        Prelude("update", True, {"demo:gpus": "16", "demo:token": "[secret]"}),
        StepStarted(step, True),
        StepDone(step, True),
        Summary(True, "succeeded", {"create": 1}, 2.9),
    )
    assert [line["sequence"] for line in lines] == [0, 1, 2, 3, 4]
    assert {line["timestamp"] for line in lines} == {1700000000}
    assert [next(k for k in line if k.endswith("Event")) for line in lines] == [
        *("preludeEvent", "resourcePreEvent", "resOutputsEvent", "summaryEvent", "cancelEvent")
    ]
    assert lines[0]["preludeEvent"] == {"config": {"demo:gpus": "16", "demo:token": "[secret]"}}
    assert lines[1]["resourcePreEvent"]["planning"] is True
    assert lines[3]["summaryEvent"] == {
        "maybeCorrupt": False,
        "durationSeconds": 2,
        "resourceChanges": {"create": 1},
        "PolicyPacks": {},
        "isPreview": True,
        "result": "succeeded",
    }


def test_a_replacement_has_keys_diffs_and_old_state() -> None:
    (line,) = log_events(StepDone(build_replacement(), False))
    metadata = line["resOutputsEvent"]["metadata"]
    assert "planning" not in line["resOutputsEvent"]
    assert metadata["op"] == "replace"
    assert metadata["keys"] == ["region"]
    assert metadata["diffs"] == ["region", "token"]
    assert metadata["logical"] is True
    assert metadata["detailedDiff"] == {
        "region": {"diffKind": "update-replace", "inputDiff": True},
        "token": {"diffKind": "add", "inputDiff": True},
    }
    assert metadata["old"]["delete"] is True
    assert metadata["old"]["id"] == "c-1"
    assert metadata["new"]["inputs"] == {"region": "b", "token": MASKED, "later": UNKNOWN_TEXT}
    assert "hunter2" not in json.dumps(line)


def test_steps_within_a_replacement_are_not_logical() -> None:
    parts = [
        Step(op, URN, build_state(), build_state())
        for op in (Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED)
    ]
    lines = log_events(*(StepDone(step, False) for step in parts))
    assert [line["resOutputsEvent"]["metadata"]["logical"] for line in lines] == [False, False]


def test_a_refresh_step_has_its_result_only_in_a_refresh() -> None:
    step = Step(Op.REFRESH, URN, build_state(), build_state(), result_op=Op.UPDATE)
    for operation, op in (("refresh", "update"), ("update", "refresh")):
        lines = log_events(
            Prelude(operation, False, {}), StepStarted(step, False), StepDone(step, False)
        )
        assert lines[1]["resourcePreEvent"]["metadata"]["op"] == "refresh"
        assert lines[2]["resOutputsEvent"]["metadata"]["op"] == op


def test_failures_and_messages_become_diagnostic_events() -> None:
    step = Step(Op.CREATE, URN, None, build_state(init_errors=["not ready"]))
    lines = log_events(
        Diagnostic("error", "no capacity", URN),
        Diagnostic("info#err", "printed"),
        Progress(URN, "Provisioning (45s)"),
        SkippedCheck("no key"),
        StepFailed(step),
    )
    diagnostic_events = [line["diagnosticEvent"] for line in lines[:-1]]
    assert diagnostic_events[0] == {
        "urn": URN,
        "prefix": "error: ",
        "message": "no capacity",
        "color": "never",
        "severity": "error",
    }
    assert diagnostic_events[1]["severity"] == "info#err"
    assert "urn" not in diagnostic_events[1]
    assert diagnostic_events[2]["ephemeral"] is True
    assert diagnostic_events[3]["message"] == "not checked: no key"
    assert lines[-1]["resOpFailedEvent"]["steps"] == 1
    assert lines[-1]["resOpFailedEvent"]["metadata"]["new"]["initErrors"] == ["not ready"]


def build_digest(*events: Event) -> dict[str, Any]:
    made = PreviewDigest()
    for event in events:
        made(event)
    parts = [*made.format_parts()]
    assert all(part.endswith("\n") for part in parts[:-1])
    document: dict[str, Any] = json.loads("".join(parts))
    assert "".join(parts) == format_json(document, indent=4)
    return document


def test_an_empty_preview_is_an_object() -> None:
    assert build_digest() == {"config": {}, "steps": [], "maybeCorrupt": False}


def test_a_preview_has_logical_steps_and_diagnostics() -> None:
    same_stack = Step(Op.SAME, STACK, build_state(STACK), build_state(STACK))
    same = Step(Op.SAME, URN, build_state(), build_state())
    provider = Step(Op.CREATE, PROVIDER, None, build_state(PROVIDER))
    refreshed = Step(Op.REFRESH, URN, build_state(), build_state(), result_op=Op.UPDATE)
    created = Step(Op.CREATE_REPLACEMENT, URN, build_state(), build_state())
    steps = (refreshed, same_stack, same, provider, created, build_replacement())
    document = build_digest(
        Prelude("update", True, {"demo:gpus": "16"}),
        *(StepStarted(step, True) for step in steps),
        Diagnostic("warning", "careful", URN),
        Diagnostic("debug", "registering"),
        Summary(True, "succeeded", {"replace": 1, "same": 1}, 1.5),
    )
    assert document["config"] == {"demo:gpus": "16"}
    assert [(s["op"], s["urn"]) for s in document["steps"]] == [
        ("refresh", URN),
        ("same", STACK),
        ("replace", URN),
    ]
    stack, replaced = document["steps"][1:]
    assert replaced["replaceReasons"] == ["region"]
    assert replaced["diffReasons"] == ["region", "token"]
    assert replaced["oldState"]["delete"] is True
    assert replaced["newState"]["inputs"] == {
        "region": "b",
        "token": "[secret]",
        "later": UNKNOWN_TEXT,
    }
    assert replaced["detailedDiff"]["region"] == {"kind": "update-replace", "inputDiff": True}
    assert stack["detailedDiff"] is None
    assert document["diagnostics"] == [
        {"urn": URN, "prefix": "warning: ", "message": "careful", "severity": "warning"}
    ]
    assert document["duration"] == 1_500_000_000
    assert document["changeSummary"] == {"replace": 1, "same": 1}
    assert document["maybeCorrupt"] is False
    assert "hunter2" not in json.dumps(document)


def test_a_preview_has_every_object_of_a_resource() -> None:
    both = (build_state(), replace(build_state(), delete=True))
    steps = [Step(Op.REFRESH, URN, state, state) for state in both]
    listed = build_digest(*(StepStarted(step, True) for step in steps))["steps"]
    assert [step["oldState"].get("delete", False) for step in listed] == [False, True]


def test_outputs_set_after_a_step_began_are_not_in_the_preview() -> None:
    made = PreviewDigest()
    step = Step(Op.CREATE, URN, None, build_state(inputs={"n": 1.0}))
    made(StepStarted(step, True))
    step.state.outputs = {"n": 1.0, "made": "x"}
    (listed,) = json.loads("".join(made.format_parts()))["steps"]
    assert "outputs" not in listed["newState"]


def test_a_refresh_preview_shows_results_and_an_update_preview_does_not() -> None:
    """An update preview leaves out the preceding reads: the update itself shows the results."""
    for operation, expected_op in (("refresh", "delete"), ("update", "refresh")):
        made = PreviewDigest()
        made(Prelude(operation, True, {}))
        step = Step(Op.REFRESH, URN, build_state(), build_state(), result_op=Op.SAME)
        made(StepStarted(step, True))
        step.new, step.result_op = None, Op.DELETE
        made(StepDone(step, True))
        (listed,) = json.loads("".join(made.format_parts()))["steps"]
        assert listed["op"] == expected_op
        assert ("newState" in listed) is (operation == "update")
