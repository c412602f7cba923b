"""Fixtures for pytest, found through gpuform's entry point. Nothing heavy is imported for them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
        folder = request.path.parent if project is None else request.path.parent / project
        kept = tmp_path_factory.mktemp("gpuform")
        return StackUnderTest.of(folder, kept, inputs, request.path.parent)

    return make
