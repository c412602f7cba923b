"""What the Pulumi SDK wastes for each resource, and is spared while a program runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuform.stacks.engine.sdk_patches import outstanding, pickling, property_types, stack_traces


@contextmanager
def spared_sdk() -> Iterator[None]:
    """For the length of a program. Each of these looks whether the SDK is the one that it knows."""
    with (
        outstanding.one_wait(),
        pickling.unwrapped(),
        property_types.remembered(),
        stack_traces.remembered(),
    ):
        yield
