"""Test that the position of a declaration equals the SDK's, at less cost."""

import linecache
import traceback

import pytest
from pulumi.runtime import resource

from gpuform.stacks.engine import sdk_patches


class Base:
    def __init__(self, trace):
        self.trace = trace()


class Custom(Base):
    def __init__(self, trace):
        super().__init__(trace)


class Machine(Custom):
    def __init__(self, trace):
        super().__init__(trace)


def select_declared_frames(trace):
    return Machine(trace).trace


def remove_positions(trace):
    return trace()


@pytest.mark.parametrize("declare", [select_declared_frames, remove_positions])
@pytest.mark.parametrize("source", ["program.py", "/srv/program.py", "<string>", "/a b/ü.py"])
def test_stack_traces_equal_those_of_the_sdk(declare, source):
    """Call the SDK's function, unmodified and with its two patched parts, on the same line."""
    traces = {}
    code = compile("trace = declare(lambda: (theirs(), ours()))", source, "exec")

    def theirs():
        return resource._get_stack_trace()

    def ours():
        with sdk_patches.cache_positions():
            return resource._get_stack_trace(), resource._get_stack_trace()

    exec(code, traces | {"declare": declare, "theirs": theirs, "ours": ours}, traces)
    first, (second, third) = traces["trace"]
    assert first == second == third
    assert (len(first.frames) > 3) == (declare is select_declared_frames)


def test_stack_traces_read_no_source_files(monkeypatch):
    looked = []
    monkeypatch.setattr(linecache, "checkcache", looked.append)
    resource._get_stack_trace()
    assert looked, "the SDK does not look at files any more: `remembered` can go"
    looked.clear()
    with sdk_patches.cache_positions():
        assert select_declared_frames(resource._get_stack_trace).frames
    assert not looked


def test_a_program_restores_the_sdk():
    before = resource.traceback, resource._get_source_position_for_frame
    with sdk_patches.cache_positions():
        assert resource.traceback.format_exc is traceback.format_exc
        assert (resource.traceback, resource._get_source_position_for_frame) != before
    assert (resource.traceback, resource._get_source_position_for_frame) == before
