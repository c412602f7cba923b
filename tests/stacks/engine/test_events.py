"""What the listeners of a run hear."""

from gpuform.stacks.engine.planning import Diagnostic, EventBus, Progress, Unchecked


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
    bus.hide(["4711-0815", 'line "one"\nline two'])
    text = 'is it 4711-0815 or {"key": "line \\"one\\"\\nline two"}?'
    for each in (Diagnostic("error", text), Progress("urn", text), Unchecked(text)):
        bus.emit(each)
    told = [getattr(each, "message", None) or each.text for each in events]
    assert told == ['is it [secret] or {"key": "[secret]"}?'] * 3
