"""Patch the Pulumi SDK while a program runs, so that it does less work for each resource.

Each patch says what it saves, what was measured, and how it recognizes the SDK that it is made for.
Another SDK stays unpatched: the program runs as before, only slower. `language_host` runs programs
in `apply_patches`; `gpuform doctor` lists the patches that are inactive.
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

__all__ = ["PATCHES", "TRIED", "Patch", "apply_patches", "find_inactive_patches"]

PATCHES: Final = (
    ONE_WAIT,
    UNWRAPPED_PICKLER,
    REMEMBERED_TYPES,
    REMEMBERED_POSITIONS,
    KNOWN_OUTPUTS,
)
TRIED: Final = ("3.270.0", "3.271.0", "3.272.0")
"""The SDKs with which the tests of all patches pass."""


def find_inactive_patches() -> list[Patch]:
    """Return the patches that do not know the installed SDK."""
    return [patch for patch in PATCHES if not patch.knows_sdk()]


@contextmanager
def apply_patches() -> Iterator[None]:
    """Apply every patch that knows the installed SDK, while the context runs a program."""
    inactive_patches = find_inactive_patches()
    with ExitStack() as applied:
        for patch in PATCHES:
            if patch not in inactive_patches:
                applied.enter_context(patch.apply())
        yield
