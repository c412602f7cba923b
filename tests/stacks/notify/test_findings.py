"""What rules report of resources and of runs, from states and results."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, OutOfCapacity
from gpuform.schemas.notify import TITLES, NotifyEvent, NotifyEventName
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.notify import Occurrence, list_state_occurrences
from gpuform.stacks.operations.notifying import choose_subject, find_run_findings
from gpuform.stacks.operations.runs.options import ExitReason, RunOptions, RunResult

NOW = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
URN = f"urn:pulumi:dev::demo::{CLUSTER}::train"


def describe(occurrences: list[Occurrence]) -> list[tuple[str, str]]:
    return [(str(occurrence.event), occurrence.text) for occurrence in occurrences]


def test_the_file_has_a_name_for_every_event() -> None:
    assert {*NotifyEventName.__args__} == {str(event) for event in NotifyEvent} == {*TITLES}


@pytest.mark.parametrize(
    ("at", "is_reported"),
    [
        ("2026-03-03T23:59:00Z", True),
        ("2026-03-04T00:01:00Z", False),
        ("2026-02-01T00:00:00Z", True),
        ("", False),
    ],
)
def test_an_end_is_reported_from_three_days_before(at: str, is_reported: bool) -> None:
    notice = Notice(kind=NoticeKind.EXPIRY, text="expires soon", at=at, urn=URN, name="train")
    found = describe(list_state_occurrences([], [notice], NOW))
    assert found == ([("expiring", "train: expires soon")] if is_reported else [])


def test_lost_credit_is_reported_once_however_its_text_counts_down() -> None:
    states = []
    for text in ("is deleted in 3 days", "is deleted in 2 days"):
        notice = Notice(kind=NoticeKind.CREDIT, text=text, urn=URN, name="train")
        (occurrence,) = list_state_occurrences([], [notice], NOW)
        assert occurrence.event is NotifyEvent.CREDIT_LOW
        states.append((occurrence.subject, occurrence.state))
    assert states[0] == states[1]


def build_entry(type_: str = CLUSTER, **outputs: Any) -> ResourceState:
    urn = f"urn:pulumi:dev::demo::{type_}::train"
    return ResourceState(urn, True, type_, id="c-1", outputs=outputs)


def test_each_failed_test_of_a_node_is_reported() -> None:
    failures = [
        {"node": "w-0", "category": "bandwidth", "because": "12 of 40 GB/s", "at": "t1"},
        {"node": "w-1", "category": "gpu", "because": "Xid 79", "at": "t2"},
    ]
    entry = build_entry("pulumi-python:dynamic/gpuform.together:Certification", failures=failures)
    assert describe(list_state_occurrences([entry], [], NOW)) == [
        ("certification-failed", "train: node w-0 failed bandwidth: 12 of 40 GB/s"),
        ("certification-failed", "train: node w-1 failed gpu: Xid 79"),
    ]


def test_objects_of_others_and_deleted_ones_are_not_reported() -> None:
    failures = [{"node": "w-0", "category": "gpu", "because": "x", "at": "t"}]
    type_ = "pulumi-python:dynamic/gpuform.together:Certification"
    external, deleted = (build_entry(type_, failures=failures) for _ in range(2))
    external.external, deleted.delete = True, True
    assert list_state_occurrences([external, deleted], [], NOW) == []


def build_plan(*repairs: NodeRepair) -> Plan:
    change = ResourceChange(
        urn=URN,
        type=CLUSTER,
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        repairs=repairs,
    )
    return Plan.from_changes("demo", "dev", [change])


def build_result(reason: ExitReason, *errors: Diagnostic, **facts: Any) -> RunResult:
    plan = facts.pop("plan", build_plan())
    return RunResult(
        reason,
        facts.pop("preview", False),
        has_changes=True,
        diagnostics=errors,
        build_plan=lambda: plan,
        **facts,
    )


def test_a_finished_run_reports_its_changes_and_repairs() -> None:
    repair = NodeRepair(node="w-1", mode="REBOOT_VM", cause="platform", because="Xid 79")
    result = build_result(ExitReason.SUCCEEDED, plan=build_plan(repair))
    findings = find_run_findings(result, RunOptions("repair"), "run")
    assert describe([*findings.occurrences]) == [
        ("finished", "repair finished: 1 update"),
        ("repair-done", "train: node w-1, repair REBOOT_VM: Xid 79"),
    ]
    assert all(occurrence.state is None for occurrence in findings.occurrences)
    assert findings.checked_events[NotifyEvent.FAILED] == "repair"


def build_capacity_error(request_id: str) -> Diagnostic:
    cause = OutOfCapacity(
        f"no H100 left ({request_id})", method="POST", path="/clusters", status=409
    )
    error = ProviderError.from_cause(cause, str)
    return Diagnostic("error", error.message, URN, error=error)


def test_the_same_failure_with_another_request_id_is_the_same() -> None:
    found = [
        find_run_findings(
            build_result(ExitReason.FAILED, build_capacity_error(request)), RunOptions(), "run"
        ).occurrences
        for request in ("r-1", "r-2")
    ]
    events = [[str(occurrence.event) for occurrence in each] for each in found]
    assert events == [["failed", "out-of-capacity"]] * 2
    assert [o.state for o in found[0]] == [o.state for o in found[1]]
    assert found[0][0].text.startswith("up failed: train: ")


def test_a_failed_run_ends_nothing_that_was_reported() -> None:
    result = build_result(ExitReason.FAILED, Diagnostic("error", "x", URN, error=GpuformError("x")))
    assert not find_run_findings(result, RunOptions(), "run").checked_events


def test_a_run_of_some_resources_ends_only_its_own_failure() -> None:
    result = build_result(ExitReason.SUCCEEDED)
    checked_events = find_run_findings(result, RunOptions(target=("train",)), "run").checked_events
    assert checked_events == {NotifyEvent.FAILED: "up"}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ExitReason.CANCELLED, "up was interrupted"),
        (ExitReason.POLICY_VIOLATION, "up was stopped by a gate"),
        (ExitReason.OUT_OF_CREDIT, "up failed: no credit is left"),
    ],
)
def test_a_run_that_was_stopped_is_a_failure(reason: ExitReason, words: str) -> None:
    findings = find_run_findings(build_result(reason, preview=True), RunOptions(), "run")
    assert ("failed", words) in describe([*findings.occurrences])


def test_a_declined_run_is_neither_a_failure_nor_finished() -> None:
    findings = find_run_findings(
        build_result(ExitReason.DECLINED, preview=True), RunOptions(), "run"
    )
    assert not findings.occurrences
    assert not findings.checked_events


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        (RunOptions(), "run"),
        (RunOptions(preview_only=True), "nothing"),
        (RunOptions(preview_only=True, save_plan=Path("plan.json")), "approval"),
        (RunOptions("expire", preview_only=True), "findings"),
        (RunOptions("repair", preview_only=True), "findings"),
    ],
)
def test_what_is_reported_depends_on_the_command(options: RunOptions, subject: str) -> None:
    assert choose_subject(options) == subject
