"""Tells where resources are declared without looking at the program's files for each one.

For the trace of a resource the SDK's `_get_stack_trace` (pulumi/runtime/resource.py) has Python
check the file of every frame and read its line, which nobody asks for, and makes a path and a URI
of each. A program of thousands of resources declares them in a few places.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulumi.runtime import resource

from gpuform.stacks.engine.sdk_patches.patch import Patch, uses

_MODULE = "traceback"
_POSITION = "_get_source_position_for_frame"


class _Traceback:
    """The traceback module, but for the one function that gets the frames."""

    def extract_stack(self) -> list[traceback.FrameSummary]:
        """The caller's stack, the innermost frame last; the lines are read when asked for."""
        frames = []
        frame = sys._getframe(1)  # noqa: SLF001 - as the traceback module does
        for each, line in traceback.walk_stack(frame):
            code = each.f_code
            frames.append(
                traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
            )
        return frames[::-1]

    def __getattr__(self, name: str) -> object:
        return getattr(traceback, name)


@contextmanager
def remember_positions() -> Iterator[None]:
    """For the length of a program."""
    original = getattr(resource, _POSITION)
    known: dict[tuple[str, int | None], Any] = {}

    def position(frame: traceback.FrameSummary) -> Any:
        place = (frame.filename, frame.lineno)
        if place not in known:
            known[place] = original(frame)
        return known[place]

    setattr(resource, _MODULE, _Traceback())
    setattr(resource, _POSITION, position)
    try:
        yield
    finally:
        setattr(resource, _MODULE, traceback)
        setattr(resource, _POSITION, original)


def _knows_sdk() -> bool:
    finds = getattr(resource, "_get_stack_trace", None)
    return (
        getattr(resource, _MODULE, None) is traceback
        and callable(getattr(resource, _POSITION, None))
        and uses(finds, _MODULE, "extract_stack")
    )


REMEMBERED_POSITIONS = Patch(
    name="positions of declarations remembered",
    spares="a look at the file of every frame of the program's stack, for each resource",
    gain="a part of the time that REMEMBERED_TYPES tells of; alone within the noise",
    upstream="https://github.com/pulumi/pulumi/issues/13436",
    knows_sdk=_knows_sdk,
    applied=remember_positions,
)
