"""Test the events that listeners of a run receive."""

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning import Diagnostic, EventBus, Progress, SkippedCheck
from gpuform.stacks.engine.registration import DeclarationSource


def test_debug_messages_are_emitted_only_when_enabled():
    diagnostics = Diagnostic("debug", "registering"), Diagnostic("info", "hello")
    for debug, heard in ((False, [diagnostics[1]]), (True, [*diagnostics])):
        events = []
        bus = EventBus([events.append], debug)
        for diagnostic in diagnostics:
            bus.emit(diagnostic)
        assert events == heard


def test_secrets_are_masked_in_all_messages():
    events = []
    bus = EventBus([events.append])
    bus.redact_secrets(["4711-0815", 'line "one"\nline two'])
    message = 'is it 4711-0815 or {"key": "line \\"one\\"\\nline two"}?'
    for event in (Diagnostic("error", message), Progress("urn", message), SkippedCheck(message)):
        bus.emit(event)
    messages = [getattr(event, "message", None) or event.text for event in events]
    assert messages == ['is it [secret] or {"key": "[secret]"}?'] * 3


@pytest.mark.parametrize(("severity", "has_source"), [("error", True), ("warning", False)])
def test_an_error_has_the_source_position_of_its_resource(severity, has_source):
    events = []
    source = DeclarationSource.__new__(DeclarationSource)
    bus = EventBus([events.append], sources={"urn:a": source})
    bus.emit(Diagnostic(severity, "it failed", "urn:a", "size"))
    bus.emit(Diagnostic(severity, "it failed", "urn:b"))
    assert [event.source for event in events] == [source if has_source else None, None]
    assert (events[0].message, events[0].urn, events[0].path) == ("it failed", "urn:a", "size")


def test_secrets_are_masked_in_the_exception_of_a_message():
    events = []
    bus = EventBus([events.append])
    bus.redact_secrets(["4711-0815"])
    error = EngineError("the key 4711-0815 is wrong", hint="ask for another than 4711-0815")
    bus.emit(Diagnostic("error", error.message, error=error))
    assert "4711" not in f"{error} {error.hint} {events[0].error}"
    assert events[0].error is error


def test_the_listener_flag_is_reset_after_a_listener_raises():
    flags = []
    bus = EventBus()

    def inner(event):
        flags.append((event.text, bus.is_emitting_here))
        if event.text == "outer":
            bus.emit(SkippedCheck("inner"))
            flags.append(("outer again", bus.is_emitting_here))
        else:
            raise RuntimeError(event.text)

    bus.listeners.append(inner)
    with pytest.raises(RuntimeError, match="inner"):
        bus.emit(SkippedCheck("inner"))
    assert flags == [("inner", True)]
    assert not bus.is_emitting_here
    bus.listeners[:] = [lambda event: event.text == "outer" and inner(event)]
    bus.emit(SkippedCheck("outer"))
    assert flags[1:] == [("outer", True), ("outer again", True)]
    assert not bus.is_emitting_here
