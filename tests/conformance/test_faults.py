"""Test every fault of a network and a platform in every operation of every kind."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from conformance.described import Described, Request
from conformance.emulated import Platform, product_path
from conformance.kinds import for_made_failing, for_made_waiting
from conformance.plugin_stack import PluginStack
from conformance.settling import (
    AnyStack,
    assert_destroyed,
    assert_nothing_is_imagined,
    assert_nothing_is_lost,
    assert_settled,
    assert_settles,
)
from conformance.stacks import Result, thing

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
"""Faults of the request that changes something."""

ANY: Mapping[str, Mapping[str, Any]] = {
    "burst-of-503": {"status": 503, "count": 3},
    "long-outage": {"status": 503, "count": 60},
    "connections-lost": {"drop": "before", "count": 8},
    "answers-lost": {"drop": "after", "count": 8},
    "429-for-a-while": {"status": 429, "headers": {"Retry-After": "7"}, "count": 12},
}
"""Faults of whatever is sent from some moment on."""

LOOK: Mapping[str, Mapping[str, Any]] = {
    "404-in-the-middle": {"status": 404, "skip": 3},
    "403-in-the-middle": {"status": 403, "skip": 3},
    "garbage-in-the-middle": {"status": 500, "body": ["garbage"], "skip": 2, "count": 3},
}
"""Faults of a look at the object, while it is waited for."""


@dataclass(frozen=True)
class Operation:
    """One change of a stack, from a stack that has `before`, and the request that does it."""

    name: str
    request: Callable[[Described], Request | None]
    begin: Callable[[Described], Mapping[str, Any] | None]
    end: Callable[[Described], Mapping[str, Any]]


OPERATIONS = (
    Operation("create", lambda d: d.create, lambda _: None, lambda d: d.good),
    Operation("update", lambda d: d.in_place.sends, lambda d: d.good, lambda d: d.in_place.inputs),
    Operation(
        "replace-delete", lambda d: d.delete_behind, lambda d: d.good, lambda d: d.replacing.inputs
    ),
    Operation("replace-create", lambda d: d.create, lambda d: d.good, lambda d: d.replacing.inputs),
)

slow = pytest.mark.slow


def in_faults(faults: Mapping[str, Mapping[str, Any]]) -> pytest.MarkDecorator:
    """Return every operation with every fault; those of a create in the fast tests, too."""
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


class Case:
    """A stack before an operation, and its run."""

    def __init__(self, described: Described, stack: AnyStack, platform: Platform) -> None:
        self.described, self.stack, self.platform = described, stack, platform

    def prepare(self, operation: Operation) -> None:
        before = operation.begin(self.described)
        if before is not None:
            assert self.stack.up(thing(self.described, before)).ok
        self.wanted = thing(self.described, operation.end(self.described))
        self.platform.forget_requests()

    def check(self, result: Result, *, was_answered: bool = True) -> None:
        """Assert what holds now, and after the next run.

        Without an answer, a failed run keeps the id of what its deletion has deleted.
        """
        assert_nothing_is_lost(self.stack, self.platform, self.wanted)
        if was_answered or result.ok:
            assert_nothing_is_imagined(self.stack, self.platform, self.wanted)
        self.platform.heal()
        if result.ok:
            assert_settled(self.stack, self.platform, self.wanted)
        else:
            assert result.errors
            assert_settles(self.stack, self.platform, self.wanted)


@pytest.fixture(params=["engine", pytest.param("plugin", marks=slow)])
def case(request: pytest.FixtureRequest, described: Described, platform: Platform) -> Case:
    """Return a case under the embedded engine, and over the provider plugin's process."""
    if request.param == "plugin":
        return Case(described, PluginStack(described, request.getfixturevalue("plugin")), platform)
    return Case(described, request.getfixturevalue("embedded"), platform)


@in_faults(WRITE)
def test_the_request_itself_goes_wrong(
    case: Case, operation: Operation, rule: dict[str, Any], platform: Platform
) -> None:
    case.prepare(operation)
    request = operation.request(case.described)
    assert request is not None
    platform.fault(request.method, request.pattern, **rule)
    case.check(case.stack.up(case.wanted))
    assert platform.created(case.described) <= 1


in_the_engine = pytest.mark.parametrize("case", ["engine"], indirect=True)
"""What the plugin's process has no part in: which faults end a look, and which do not."""


@in_the_engine
@in_faults(ANY)
@pytest.mark.parametrize("after", [1, pytest.param(3, marks=slow)])
def test_from_some_request_on_nothing_works(
    case: Case, operation: Operation, rule: dict[str, Any], after: int, platform: Platform
) -> None:
    case.prepare(operation)
    platform.fault(None, case.described.paths, skip=after, **rule)
    case.check(case.stack.up(case.wanted), was_answered=rule.get("drop") != "after")
    assert platform.created(case.described) <= 1


@in_the_engine
@in_faults(LOOK)
def test_a_look_goes_wrong(
    case: Case, operation: Operation, rule: dict[str, Any], platform: Platform
) -> None:
    case.prepare(operation)
    platform.fault("GET", case.described.own, **rule)
    case.check(case.stack.up(case.wanted))


@pytest.mark.parametrize("fault", [{"drop": "after"}, {"drop": "before"}, {"status": 503}])
def test_a_destroy_goes_wrong(case: Case, fault: dict[str, Any], platform: Platform) -> None:
    case.prepare(OPERATIONS[1])
    request = case.described.delete_behind
    platform.fault(request.method, request.pattern, count=2, **fault)
    case.stack.destroy()
    assert_nothing_is_lost(case.stack, platform, case.wanted)
    platform.heal()
    assert_destroyed(case.stack, platform, case.wanted)


@for_made_failing
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda item: item.name)
def test_it_breaks_while_it_is_waited_for(
    case: Case, operation: Operation, platform: Platform
) -> None:
    """A cluster becomes Degraded, or a volume fails: kept, reported and resumed."""
    case.prepare(operation)
    # Not the first looks: a replacement looks at the old object before it deletes it.
    platform.fault("GET", case.described.own, status_override=case.described.failed, skip=6)
    result = case.stack.up(case.wanted)
    assert_nothing_is_lost(case.stack, platform, case.wanted)
    platform.heal()
    case.check(result)


@for_made_waiting
@pytest.mark.parametrize("operation", OPERATIONS[:2], ids=lambda item: item.name)
def test_the_deadline_passes(case: Case, operation: Operation, platform: Platform) -> None:
    case.prepare(operation)
    timeouts = {"create": "2m", "update": "2m"}
    platform.fault("GET", case.described.own, status_override=case.described.pending, count=None)
    hurried = thing(case.described, case.wanted.inputs)
    result = case.stack.up(type(hurried)(hurried.name, case.described, hurried.inputs, timeouts))
    assert not result.ok
    assert "not done after 2m" in result.errors[0]
    state = case.stack.state()
    assert state.outputs["ready"] is False
    assert "not done after 2m" in state.outputs["not_ready_reason"]
    assert case.stack.plan(case.wanted).operations == ["update"]
    case.check(result)


def test_what_vanishes_while_it_is_made_is_made_again(case: Case, platform: Platform) -> None:
    """Let somebody delete the object between its create and its readiness."""
    case.prepare(OPERATIONS[0])
    described = case.described
    sent, looked = threading.Event(), threading.Event()

    def vanish(environ: dict[str, Any]) -> None:
        method, path = environ["REQUEST_METHOD"], product_path(environ)
        if (method, path) == (described.create.method, described.create.path):
            sent.set()
        elif path and method == "GET" and sent.is_set() and not looked.is_set():
            looked.set()
            platform.vanish(described)

    with platform.watching(vanish):
        result = case.stack.up(case.wanted)
    if described.is_entry:  # its create's answer shows it
        assert result.ok
        assert not looked.is_set()
        return
    assert looked.is_set()
    assert not result.ok
    assert platform.objects(described) == []
    # The state keeps a pool whose nodes have no known outcome: the next run looks for the nodes.
    case.check(result, was_answered=described.kind != "NodePool")


def test_what_vanished_before_an_update_is_told_and_made_again_after_a_refresh(
    case: Case, platform: Platform
) -> None:
    case.prepare(OPERATIONS[1])
    platform.vanish(case.described)
    result = case.stack.up(case.wanted)
    assert not result.ok
    assert "refresh" in result.errors[0]
    assert case.stack.refresh().operations == ["delete"]
    assert_settles(case.stack, platform, case.wanted)


def test_out_of_capacity_leaves_nothing_behind(case: Case, platform: Platform) -> None:
    case.prepare(OPERATIONS[0])
    assert case.described.create is not None
    create = case.described.create
    platform.fault(create.method, create.pattern, **case.described.shortage)
    result = case.stack.up(case.wanted)
    assert not result.ok
    assert case.stack.intents == []
    assert case.stack.resources == []
    case.check(result)
