"""What the listeners of a run hear."""

from gpuform.stacks.engine.events import Diagnostic, EventBus


def test_debug_messages_only_when_asked_for():
    told = Diagnostic("debug", "registering"), Diagnostic("info", "hello")
    for debug, heard in ((False, [told[1]]), (True, [*told])):
        events = []
        bus = EventBus([events.append], debug)
        for each in told:
            bus.emit(each)
        assert events == heard
