"""Several requests at once, in the context of the call that makes them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from gpuform.providers.errors import GpuformError

T = TypeVar("T")

THREADS = 16


def in_parallel(jobs: Sequence[Callable[[], T]]) -> list[T | GpuformError]:
    """The result of each job, or the GpuformError that it raised, in their order."""

    def outcome(job: Callable[[], T]) -> T | GpuformError:
        try:
            return job()
        except GpuformError as error:
            return error

    if len(jobs) < 2:
        return [outcome(job) for job in jobs]
    with ThreadPoolExecutor(min(THREADS, len(jobs))) as pool:
        futures = [pool.submit(copy_context().run, outcome, job) for job in jobs]
        return [future.result() for future in futures]
