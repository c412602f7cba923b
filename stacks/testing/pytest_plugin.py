"""Fixtures for pytest, found through gpuform's entry point. Nothing heavy is imported for them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuform.stacks.testing.ending import Ending

if TYPE_CHECKING:
    from gpuform.stacks.testing.stacks import StackUnderTest


@pytest.fixture
def gpuform_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., "StackUnderTest"]:
    """Makes stacks on emulators: `gpuform_stack(project, stack=, config=, secrets=, start=)`.

    `project` is a project's folder; that of the test file, or the nearest above it, when not given.
    Paths are from the folder of the test file.
    """
    from gpuform.stacks.testing.stacks import StackUnderTest  # noqa: PLC0415 - only where used

    def make(project: str | Path | None = None, **inputs: Any) -> StackUnderTest:
        __tracebackhide__ = True
        folder = request.path.parent if project is None else request.path.parent / project
        kept = tmp_path_factory.mktemp("gpuform")
        return StackUnderTest.of(folder, kept, inputs, request.path.parent)

    return make


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """What the run has said, where a test expects another end of it."""
    if not isinstance(left, Ending):
        return None
    said = [line for text in left.errors for line in text.splitlines()]
    return [f"{str(left)!r} {op} {right!r}", "the run says:", *said] if said else None
