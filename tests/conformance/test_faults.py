"""Test every fault of a network and a platform in every operation of every kind."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from conformance.emulated import Platform, get_platform_path
from conformance.kind_descriptions import KindDescription, Request
from conformance.kinds import for_made_failing, for_made_waiting
from conformance.plugin_stack import PluginStack
from conformance.recovery_checks import (
    TestedStack,
    assert_destroy_leaves_nothing,
    assert_next_run_recovers,
    assert_no_object_is_lost,
    assert_nothing_to_do,
    assert_state_objects_exist,
)
from conformance.stacks import Result, declare_one

pytestmark = [pytest.mark.slow, pytest.mark.sampled(36)]

WRITE: Mapping[str, Mapping[str, Any]] = {
    "answer-lost-after-the-effect": {"drop": "after"},
    "connection-lost-before-the-effect": {"drop": "before"},
    "429-with-retry-after": {"status": 429, "headers": {"Retry-After": "7"}, "count": 2},
    "429": {"status": 429},
    "503": {"status": 503},
    "500": {"status": 500},
    "408": {"status": 408},
    "not-an-answer": {"status": 502, "body": "<html>bad gateway</html>"},
}
"""Faults of the request that changes the object."""

ANY: Mapping[str, Mapping[str, Any]] = {
    "burst-of-503": {"status": 503, "count": 3},
    "long-outage": {"status": 503, "count": 60},
    "connections-lost": {"drop": "before", "count": 8},
    "answers-lost": {"drop": "after", "count": 8},
    "429-for-a-while": {"status": 429, "headers": {"Retry-After": "7"}, "count": 12},
}
"""Faults of all requests from some request on."""

POLL: Mapping[str, Mapping[str, Any]] = {
    "404-in-the-middle": {"status": 404, "skip": 3},
    "403-in-the-middle": {"status": 403, "skip": 3},
    "garbage-in-the-middle": {"status": 500, "body": ["garbage"], "skip": 2, "count": 3},
}
"""Faults of a poll of the object during the wait."""


@dataclass(frozen=True)
class Operation:
    """A change of a stack: the inputs before (None: no resource) and after it, and its request."""

    name: str
    request: Callable[[KindDescription], Request | None]
    begin: Callable[[KindDescription], Mapping[str, Any] | None]
    end: Callable[[KindDescription], Mapping[str, Any]]


OPERATIONS = (
    Operation("create", lambda d: d.create, lambda _: None, lambda d: d.valid_inputs),
    Operation(
        "update", lambda d: d.in_place.sends, lambda d: d.valid_inputs, lambda d: d.in_place.inputs
    ),
    Operation(
        "replace-delete",
        lambda d: d.outside_delete,
        lambda d: d.valid_inputs,
        lambda d: d.replacing.inputs,
    ),
    Operation(
        "replace-create", lambda d: d.create, lambda d: d.valid_inputs, lambda d: d.replacing.inputs
    ),
)

slow = pytest.mark.slow


def parametrize_faults(faults: Mapping[str, Mapping[str, Any]]) -> pytest.MarkDecorator:
    """Return every operation with every fault, of which creates also run as fast tests."""
    rows = [
        pytest.param(
            operation,
            rule,
            id=f"{operation.name}-{name}",
            marks=() if operation.name == "create" else slow,
        )
        for operation in OPERATIONS
        for name, rule in faults.items()
    ]
    return pytest.mark.parametrize(("operation", "rule"), rows)


class FaultCase:
    """A stack before an operation, and the run of that operation."""

    def __init__(
        self, description: KindDescription, stack: TestedStack, platform: Platform
    ) -> None:
        self.description, self.stack, self.platform = description, stack, platform

    def prepare(self, operation: Operation) -> None:
        before = operation.begin(self.description)
        if before is not None:
            assert self.stack.apply(declare_one(self.description, before)).ok
        self.declared = declare_one(self.description, operation.end(self.description))
        self.platform.forget_requests()

    def check(self, result: Result, *, was_answered: bool = True) -> None:
        """Check the objects after `result`, and the recovery by the next run.

        `was_answered` is False if a failed run may keep the id of an object that it has deleted.
        """
        assert_no_object_is_lost(self.stack, self.platform, self.declared)
        if was_answered or result.ok:
            assert_state_objects_exist(self.stack, self.platform, self.declared)
        self.platform.remove_faults()
        if result.ok:
            assert_nothing_to_do(self.stack, self.platform, self.declared)
        else:
            assert result.errors
            assert_next_run_recovers(self.stack, self.platform, self.declared)


@pytest.fixture(params=["engine", pytest.param("plugin", marks=slow)])
def case(
    request: pytest.FixtureRequest, description: KindDescription, platform: Platform
) -> FaultCase:
    """Return a case under the embedded engine, and over the provider plugin's process."""
    if request.param == "plugin":
        return FaultCase(
            description, PluginStack(description, request.getfixturevalue("plugin")), platform
        )
    return FaultCase(description, request.getfixturevalue("embedded"), platform)


@parametrize_faults(WRITE)
def test_a_fault_of_the_changing_request_loses_and_doubles_no_object(
    case: FaultCase, operation: Operation, rule: dict[str, Any], platform: Platform
) -> None:
    case.prepare(operation)
    request = operation.request(case.description)
    assert request is not None
    platform.add_fault(request.method, request.pattern, **rule)
    case.check(case.stack.apply(case.declared))
    assert platform.count_creates(case.description) <= 1


engine_only = pytest.mark.parametrize("case", ["engine"], indirect=True)
"""The plugin's process does not take part in these faults: which of them end a poll."""


@engine_only
@parametrize_faults(ANY)
@pytest.mark.parametrize("after", [1, pytest.param(3, marks=slow)])
def test_an_outage_during_a_run_loses_and_doubles_no_object(
    case: FaultCase, operation: Operation, rule: dict[str, Any], after: int, platform: Platform
) -> None:
    case.prepare(operation)
    platform.add_fault(None, case.description.request_paths, skip=after, **rule)
    case.check(case.stack.apply(case.declared), was_answered=rule.get("drop") != "after")
    assert platform.count_creates(case.description) <= 1


@engine_only
@parametrize_faults(POLL)
def test_a_failed_poll_loses_no_object(
    case: FaultCase, operation: Operation, rule: dict[str, Any], platform: Platform
) -> None:
    case.prepare(operation)
    platform.add_fault("GET", case.description.object_path, **rule)
    case.check(case.stack.apply(case.declared))


@pytest.mark.parametrize("fault", [{"drop": "after"}, {"drop": "before"}, {"status": 503}])
def test_a_failed_destroy_is_finished_by_the_next(
    case: FaultCase, fault: dict[str, Any], platform: Platform
) -> None:
    case.prepare(OPERATIONS[1])
    request = case.description.outside_delete
    platform.add_fault(request.method, request.pattern, count=2, **fault)
    case.stack.destroy()
    assert_no_object_is_lost(case.stack, platform, case.declared)
    platform.remove_faults()
    assert_destroy_leaves_nothing(case.stack, platform, case.declared)


@for_made_failing
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda item: item.name)
def test_an_object_that_fails_during_the_wait_is_kept_and_recovered(
    case: FaultCase, operation: Operation, platform: Platform
) -> None:
    """Let a cluster become Degraded, or a volume fail."""
    case.prepare(operation)
    # Not the first looks: a replacement looks at the old object before it deletes it.
    platform.add_fault(
        "GET", case.description.object_path, status_override=case.description.failed_status, skip=6
    )
    result = case.stack.apply(case.declared)
    assert_no_object_is_lost(case.stack, platform, case.declared)
    platform.remove_faults()
    case.check(result)


@for_made_waiting
@pytest.mark.parametrize("operation", OPERATIONS[:2], ids=lambda item: item.name)
def test_an_object_not_ready_in_time_is_kept_and_waited_for_again(
    case: FaultCase, operation: Operation, platform: Platform
) -> None:
    case.prepare(operation)
    timeouts = {"create": "2m", "update": "2m"}
    platform.add_fault(
        "GET",
        case.description.object_path,
        status_override=case.description.pending_status,
        count=None,
    )
    hurried = declare_one(case.description, case.declared.inputs)
    result = case.stack.apply(
        type(hurried)(hurried.name, case.description, hurried.inputs, timeouts)
    )
    assert not result.ok
    assert "not done after 2m" in result.errors[0]
    state = case.stack.get_state()
    assert state.outputs["ready"] is False
    assert "not done after 2m" in state.outputs["not_ready_reason"]
    assert case.stack.plan(case.declared).operations == ["update"]
    case.check(result)


def test_an_object_deleted_by_others_during_its_create_is_created_again(
    case: FaultCase, platform: Platform
) -> None:
    case.prepare(OPERATIONS[0])
    description = case.description
    sent, looked = threading.Event(), threading.Event()

    def delete_created_object(environ: dict[str, Any]) -> None:
        method, path = environ["REQUEST_METHOD"], get_platform_path(environ)
        if (method, path) == (description.create.method, description.create.path):
            sent.set()
        elif path and method == "GET" and sent.is_set() and not looked.is_set():
            looked.set()
            platform.delete_without_trace(description)

    with platform.watch_requests(delete_created_object):
        result = case.stack.apply(case.declared)
    if description.is_entry:  # its create's answer shows it
        assert result.ok
        assert not looked.is_set()
        return
    assert looked.is_set()
    assert not result.ok
    assert platform.list_objects(description) == []
    # The state keeps a pool whose nodes have no known outcome: the next run looks for the nodes.
    case.check(result, was_answered=description.kind != "NodePool")


@pytest.mark.sampled(17)
def test_an_object_deleted_by_others_before_an_update_is_recreated_after_a_refresh(
    case: FaultCase, platform: Platform
) -> None:
    case.prepare(OPERATIONS[1])
    platform.delete_without_trace(case.description)
    result = case.stack.apply(case.declared)
    assert not result.ok
    assert "refresh" in result.errors[0]
    assert case.stack.refresh().operations == ["delete"]
    assert_next_run_recovers(case.stack, platform, case.declared)


@pytest.mark.sampled(18)
def test_a_create_without_capacity_leaves_no_object_and_no_intent(
    case: FaultCase, platform: Platform
) -> None:
    case.prepare(OPERATIONS[0])
    assert case.description.create is not None
    create = case.description.create
    platform.add_fault(create.method, create.pattern, **case.description.capacity_fault)
    result = case.stack.apply(case.declared)
    assert not result.ok
    assert case.stack.intents == []
    assert case.stack.resources == []
    case.check(result)
