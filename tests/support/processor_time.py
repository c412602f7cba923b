"""The limit of processor time for tests that are not marked as slow; `conftest.py` sets it."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from processes.warm import measure_commands

LIMIT_S = 1.0
"""Processor time of a fast test: its own process and all children that have ended."""
_FIRST_IMPORT_S = 0.002
"""What the first test of a process that imports a module may use for it."""
_REFERENCE_S = 0.045
"""What `_measure_slowness` takes on the machine that the limit was chosen on."""
_TOLERANCE = 1.5
"""How much dearer the same work may be for what others do to the processor's caches."""


def measure_processor_time() -> float:
    """Return the processor time of this process and all ended children, in seconds.

    The commands of the warm process count as its children.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The clock, as `getrusage` adds up the times of all threads one by one.
    return measure_commands() + time.process_time() + children.ru_utime + children.ru_stime


def _measure_slowness() -> float:
    """Return how many times slower than the reference this processor is now, at least 1."""
    began, total = measure_processor_time(), 0
    for number in range(1_000_000):
        total += number * number % 7
    return max(1.0, (measure_processor_time() - began) / _REFERENCE_S)


@pytest.fixture(autouse=True)
def limited_processor_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Limit each test without the mark `slow`.

    Fixtures of modules and sessions are set up before and taken down after: they do not count.
    """
    is_slow = request.node.get_closest_marker("slow") is not None
    with nullcontext() if is_slow else limit_processor_time(LIMIT_S):
        yield


@contextmanager
def limit_processor_time(limit_s: float) -> Iterator[None]:
    """Fail the test whose block uses more than `limit_s`.

    Processor time, as a busy machine makes a test hardly slower in it. The imports of the first
    test of a process are not held against it, nor is a slow processor.
    """
    began, modules = measure_processor_time(), len(sys.modules)
    yield
    used = measure_processor_time() - began
    imported = max(0, len(sys.modules) - modules)
    allowed = limit_s + imported * _FIRST_IMPORT_S
    if used > allowed and used > allowed * _TOLERANCE * _measure_slowness():
        pytest.fail(
            f"the test used {used:.1f} s of processor time, and a fast test may use {limit_s:.1f}"
            " s: make its set-up cheaper (a fixture for the module, fewer cases, no process of its"
            " own), or mark it @pytest.mark.slow",
            pytrace=False,
        )
