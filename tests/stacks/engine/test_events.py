"""What the listeners of a run hear."""

import pytest

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import Diagnostic, EventBus, Progress, SkippedCheck
from gpuform.stacks.engine.registration import Source


def test_debug_messages_only_when_asked_for():
    told = Diagnostic("debug", "registering"), Diagnostic("info", "hello")
    for debug, heard in ((False, [told[1]]), (True, [*told])):
        events = []
        bus = EventBus([events.append], debug)
        for each in told:
            bus.emit(each)
        assert events == heard


def test_secrets_are_in_nothing_that_is_told():
    events = []
    bus = EventBus([events.append])
    bus.redact_secrets(["4711-0815", 'line "one"\nline two'])
    text = 'is it 4711-0815 or {"key": "line \\"one\\"\\nline two"}?'
    for each in (Diagnostic("error", text), Progress("urn", text), SkippedCheck(text)):
        bus.emit(each)
    told = [getattr(each, "message", None) or each.text for each in events]
    assert told == ['is it [secret] or {"key": "[secret]"}?'] * 3


@pytest.mark.parametrize(("severity", "has_source"), [("error", True), ("warning", False)])
def test_an_error_says_where_the_program_declares_its_resource(severity, has_source):
    events = []
    source = Source.__new__(Source)
    bus = EventBus([events.append], sources={"urn:a": source})
    bus.emit(Diagnostic(severity, "it failed", "urn:a", "size"))
    bus.emit(Diagnostic(severity, "it failed", "urn:b"))
    assert [each.source for each in events] == [source if has_source else None, None]
    assert (events[0].message, events[0].urn, events[0].path) == ("it failed", "urn:a", "size")


def test_secrets_are_not_in_the_error_that_comes_with_a_message():
    events = []
    bus = EventBus([events.append])
    bus.redact_secrets(["4711-0815"])
    error = EngineError("the key 4711-0815 is wrong", hint="ask for another than 4711-0815")
    bus.emit(Diagnostic("error", error.message, error=error))
    assert "4711" not in f"{error} {error.hint} {events[0].error}"
    assert events[0].error is error


def test_a_listener_knows_that_it_is_one_and_a_failing_one_ends_that():
    found = []
    bus = EventBus()

    def inner(event):
        found.append((event.text, bus.is_emitting_here))
        if event.text == "outer":
            bus.emit(SkippedCheck("inner"))
            found.append(("outer again", bus.is_emitting_here))
        else:
            raise RuntimeError(event.text)

    bus.listeners.append(inner)
    with pytest.raises(RuntimeError, match="inner"):
        bus.emit(SkippedCheck("inner"))
    assert found == [("inner", True)]
    assert not bus.is_emitting_here
    bus.listeners[:] = [lambda event: event.text == "outer" and inner(event)]
    bus.emit(SkippedCheck("outer"))
    assert found[1:] == [("outer", True), ("outer again", True)]
    assert not bus.is_emitting_here
