"""Who did what to an object: by logs, by copies of the state, and after runs that were killed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.resource_facts import NodeRecord
from gpuform.schemas.stacks_plan import LoggedNode, LogLine, RunLog, UnfinishedStep
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.explain.explanation import find_subject
from gpuform.stacks.explain.life import derive_events
from gpuform.stacks.explain.recorded_runs import ObjectKey, RecordedRun, StoredObject, describe_run

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"
URN = f"urn:pulumi:dev::demo::{TYPE}::train"
OTHER = f"urn:pulumi:dev::demo::{TYPE}::other"


def build_object(
    object_id: str, nodes: Sequence[str] = (), urn: str = URN, **inputs: Any
) -> dict[ObjectKey, StoredObject]:
    entry = ResourceState(urn, True, TYPE, id=object_id, inputs=inputs)
    records = tuple(NodeRecord(node_id=f"id-{name}", name=name) for name in nodes)
    return {(urn, object_id): StoredObject(entry, records)}


def build_run(
    number: int,
    objects: Mapping[ObjectKey, StoredObject] | None = None,
    *lines: LogLine,
    result: str = "succeeded",
    has_log: bool = True,
    unfinished: Sequence[UnfinishedStep] = (),
    changes: Sequence[ResourceChange] = (),
) -> RecordedRun:
    entry = HistoryEntry("update", result, 1_800_000_000 + number, 1_800_000_060 + number)
    plan = Plan.from_changes("demo", "dev", changes)
    log = RunLog(plan=plan, lines=lines, unfinished=tuple(unfinished)) if has_log else None
    return RecordedRun(number, entry, log, objects)


def build_killed_run(number: int) -> RecordedRun:
    return build_run(number, None, result=IN_PROGRESS, has_log=False)


def build_line(op: str, object_id: str = "a", event: Any = "done", **facts: Any) -> LogLine:
    return LogLine(time=1_800_000_000.0, event=event, urn=URN, op=op, id=object_id, **facts)


def list_events(
    runs: Sequence[RecordedRun], present: Mapping[ObjectKey, StoredObject] | None = None
) -> list[tuple[str, int | None, tuple[int, ...], str, str]]:
    last = runs[-1].objects or {}
    events = derive_events(runs, last if present is None else present)
    return [(it.action, it.run, it.begun_by, it.id, it.node) for it in events]


def test_a_log_says_what_each_run_did() -> None:
    changed = ResourceChange(
        urn=URN,
        type=TYPE,
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        changes=(PropertyChange(path="num_gpus", action="update", before=8, after=16),),
    )
    node = LoggedNode(id="id-w1", name="w1")
    runs = [
        build_run(1, build_object("a"), build_line("create")),
        build_run(
            2, build_object("a", ["w1"]), build_line("update", added=[node]), changes=[changed]
        ),
        build_run(3, {}, build_line("delete", removed=[node])),
    ]
    assert list_events(runs) == [
        ("created", 1, (), "a", ""),
        ("changed", 2, (), "a", ""),
        ("added", 2, (), "a", "w1"),
        ("deleted", 3, (), "a", ""),
        ("removed", 3, (), "a", "w1"),
    ]
    assert derive_events(runs, {})[1].changes == ("num_gpus: 8 -> 16",)


def test_runs_of_the_pulumi_cli_are_told_by_their_copies_of_the_state() -> None:
    runs = [
        build_run(1, build_object("a", ["w1"], num_gpus=8), has_log=False),
        build_run(2, build_object("a", ["w1", "w2"], num_gpus=16), has_log=False),
        build_run(3, {}, has_log=False),
    ]
    assert list_events(runs) == [
        ("created", 1, (), "a", ""),
        ("added", 1, (), "a", "w1"),
        ("changed", 2, (), "a", ""),
        ("added", 2, (), "a", "w2"),
        ("deleted", 3, (), "a", ""),
        ("removed", 3, (), "a", "w1"),
        ("removed", 3, (), "a", "w2"),
    ]
    assert derive_events(runs, {})[2].changes == ("num_gpus",)


def test_an_object_that_the_next_run_recovers_was_created_by_the_killed_run() -> None:
    runs = [build_killed_run(1), build_run(2, build_object("a"))]
    assert list_events(runs) == [("created", 1, (), "a", "")]


def test_a_killed_last_run_is_told_by_the_present_state() -> None:
    runs = [build_run(1, {}), build_killed_run(2)]
    assert list_events(runs, build_object("a")) == [("created", 2, (), "a", "")]


def test_an_object_of_no_recorded_run_is_attributed_to_none() -> None:
    assert list_events([build_run(1, {})], build_object("a")) == [("created", None, (), "a", "")]


def test_a_create_that_a_run_found_begun_names_both_runs() -> None:
    step = UnfinishedStep(urn=URN, type="creating")
    line = build_line("create")
    runs = [build_killed_run(1), build_run(2, build_object("a"), line, unfinished=[step])]
    assert list_events(runs) == [("created", 2, (1,), "a", "")]
    runs = [build_killed_run(1), build_run(2, build_object("a"), line)]
    assert list_events(runs) == [("created", 2, (), "a", "")]


def test_a_deletion_after_a_killed_run_may_have_been_begun_by_it() -> None:
    created = build_run(1, build_object("a"), build_line("create"))
    deleted = build_run(3, {}, build_line("delete"))
    assert list_events([created, build_killed_run(2), deleted])[-1] == ("deleted", 3, (2,), "a", "")
    settled = build_run(3, build_object("a"))
    later = build_run(4, {}, build_line("delete"))
    events = list_events([created, build_killed_run(2), settled, later])
    assert events[-1] == ("deleted", 4, (), "a", "")


def test_a_killed_replacement_of_an_object_with_the_same_id_has_deleted_it() -> None:
    created = build_run(1, build_object("a"), build_line("create"))
    again = build_line("create-replacement")
    runs = [created, build_killed_run(2), build_run(3, build_object("a"), again)]
    assert list_events(runs) == [
        ("created", 1, (), "a", ""),
        ("deleted", 2, (), "a", ""),
        ("created", 3, (), "a", ""),
    ]
    own = build_run(3, build_object("a"), build_line("delete-replaced"), again)
    assert list_events([created, build_killed_run(2), own])[1:] == [
        ("deleted", 3, (2,), "a", ""),
        ("created", 3, (), "a", ""),
    ]


def test_a_failed_create_whose_object_exists_has_created_it() -> None:
    runs = [
        build_run(1, build_object("a", ["w1"]), build_line("create", "", "failed"), result="failed")
    ]
    assert list_events(runs) == [
        ("failed", 1, (), "", ""),
        ("created", 1, (), "a", ""),
        ("added", 1, (), "a", "w1"),
    ]


def test_an_object_created_and_deleted_between_two_copies_is_known_by_the_log() -> None:
    step = UnfinishedStep(urn=URN, type="creating", id="a")
    runs = [build_killed_run(1), build_run(2, {}, build_line("delete"), unfinished=[step])]
    assert list_events(runs) == [("created", 1, (), "a", ""), ("deleted", 2, (1,), "a", "")]


def test_a_refresh_that_misses_an_object_says_so() -> None:
    runs = [
        build_run(1, build_object("a"), build_line("create")),
        build_run(2, {}, build_line("refresh", found="delete")),
    ]
    assert list_events(runs)[-1] == ("missing", 2, (), "a", "")


def test_a_log_of_an_earlier_release_takes_ids_and_nodes_from_the_state() -> None:
    runs = [
        build_run(1, build_object("a", ["w1"]), build_line("create", "")),
        build_run(
            2,
            build_object("b", ["w2"]),
            build_line("delete-replaced", ""),
            build_line("create-replacement", ""),
        ),
    ]
    assert [(it[0], it[1], it[3], it[4]) for it in list_events(runs)] == [
        ("created", 1, "a", ""),
        ("added", 1, "a", "w1"),
        ("deleted", 2, "a", ""),
        ("created", 2, "b", ""),
        ("removed", 2, "a", "w1"),
        ("added", 2, "b", "w2"),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "keys"),
    [
        (URN, "resource", {(URN, "a")}),
        ("train", "resource", {(URN, "a")}),
        ("a", "object", {(URN, "a")}),
        ("w1", "node", {(URN, "a")}),
        ("id-w1", "node", {(URN, "a")}),
        ("gone", "object", {(OTHER, "gone")}),
    ],
)
def test_a_name_is_a_urn_a_resource_an_id_or_a_node(
    name: str, kind: str, keys: set[ObjectKey]
) -> None:
    present = build_object("a", ["w1"])
    runs = [build_run(1, {**present, **build_object("gone", urn=OTHER)}, has_log=False)]
    subject = find_subject(name, derive_events(runs, present), [*present], present)
    assert subject is not None
    assert (subject.kind, subject.keys) == (kind, keys)
    assert find_subject("trian", derive_events(runs, present), [*present], present) is None


@pytest.mark.parametrize(
    ("environment", "message", "expected"),
    [
        ({"ci.pr.number": "7"}, "", "7"),
        ({"gpuform.plan.pullRequest": "12", "ci.pr.number": "7"}, "", "12"),
        ({}, "Merge pull request #31 from ada/grow", "31"),
        ({}, "Grow the cluster (#32)", "32"),
        ({}, "Grow by 8 GPUs, see #33", ""),
    ],
)
def test_a_run_names_its_pull_request(
    environment: dict[str, str], message: str, expected: str
) -> None:
    entry = HistoryEntry("update", "succeeded", 1, 2, environment=environment, message=message)
    assert describe_run(RecordedRun(1, entry)).pull_request == expected


def test_a_run_of_the_pulumi_cli_names_its_program() -> None:
    entry = HistoryEntry("update", "succeeded", 1, 2, environment={"pulumi.version": "v3.260.0"})
    assert describe_run(RecordedRun(1, entry)).engine == "Pulumi CLI v3.260.0"


def test_all_runs_that_left_a_create_open_are_named() -> None:
    step = UnfinishedStep(urn=URN, type="creating")
    failed = build_run(1, {}, build_line("create", "", "failed"), result="failed")
    last = build_run(3, build_object("a"), build_line("create"), unfinished=[step])
    events = list_events([failed, build_killed_run(2), last])
    assert events[-1] == ("created", 3, (1, 2), "a", "")
