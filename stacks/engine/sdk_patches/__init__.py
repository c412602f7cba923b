"""What the Pulumi SDK wastes for each resource, and is spared while a program runs.

Each module is one patch: what it spares, what was measured, and how it knows the SDK that it is
made for. Another SDK is left as it is: the program runs as before, only slower. What gpuform takes
from the SDK without changing it is not here.

`language_host` runs programs in `spare_sdk`; `gpuform doctor` tells what is left alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from gpuform.stacks.engine.sdk_patches.patches import (
    KNOWN_OUTPUTS,
    ONE_WAIT,
    REMEMBERED_POSITIONS,
    REMEMBERED_TYPES,
    UNWRAPPED_PICKLER,
    Patch,
)

__all__ = ["PATCHES", "TRIED", "Patch", "patches_left_out", "spare_sdk"]

PATCHES: Final = (
    ONE_WAIT,
    UNWRAPPED_PICKLER,
    REMEMBERED_TYPES,
    REMEMBERED_POSITIONS,
    KNOWN_OUTPUTS,
)
TRIED: Final = ("3.270.0", "3.271.0", "3.272.0")
"""The SDKs with which the tests of all patches pass."""


def patches_left_out() -> list[Patch]:
    """The patches that do not know the installed SDK."""
    return [patch for patch in PATCHES if not patch.knows_sdk()]


@contextmanager
def spare_sdk() -> Iterator[None]:
    """For the length of a program: every patch that knows the installed SDK."""
    left_out = patches_left_out()
    with ExitStack() as applied:
        for patch in PATCHES:
            if patch not in left_out:
                applied.enter_context(patch.applied())
        yield
