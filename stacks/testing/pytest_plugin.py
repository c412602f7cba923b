"""Provide the pytest fixture `gpuform_stack` to projects that have gpuform installed.

pytest finds this module through gpuform's entry point and loads it in every test run, so the engine
is imported only inside the fixture.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuform.stacks.testing import RunEnding

if TYPE_CHECKING:
    from gpuform.stacks.testing.stack_under_test import StackUnderTest


@pytest.fixture
def gpuform_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., "StackUnderTest"]:
    """Return a function to create a stack under test on a new emulator.

    The function is called as `gpuform_stack(project, stack=, config=, secrets=, start=)`. `project`
    is a project's folder, relative to the test file; None means the project of the test file's
    folder or of the nearest folder above. Other paths are relative to the test file as well.
    """
    from gpuform.stacks.testing.stack_under_test import StackUnderTest  # noqa: PLC0415 - only where used

    def create_stack(project: str | Path | None = None, **inputs: Any) -> StackUnderTest:
        # Failures are shown at the test's own line.
        __tracebackhide__ = True
        folder = request.path.parent if project is None else request.path.parent / project
        work_folder = tmp_path_factory.mktemp("gpuform")
        return StackUnderTest.for_directory(folder, work_folder, inputs, request.path.parent)

    return create_stack


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Return the run's error messages where a test expects another ending, or None.

    None means that pytest explains the assertion as usual: `left` is not the ending of a run, or
    the run reported no error.
    """
    if not isinstance(left, RunEnding):
        return None
    error_lines = [line for message in left.errors for line in message.splitlines()]
    return [f"{str(left)!r} {op} {right!r}", "the run says:", *error_lines] if error_lines else None
