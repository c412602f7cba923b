"""Write a trace of where a run spends its time, for the trace viewers of browsers.

The file is in the Trace Event Format (an array of complete events, `ph` X), which Perfetto,
`chrome://tracing` and speedscope read: a track for each thread, nested spans, wall time and
processor time of each. The file grows during the run, so that the trace of a killed run can be
read, too. Spans contain methods, paths, operations and URNs, never a header, query or body.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_tracer: "Tracer | None" = None


class Tracer:
    """A writer of spans to a file; safe for many threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._named_threads: set[int] = set()
        self._file.write("[\n")

    def write(self, event: dict[str, object]) -> None:
        """Write a trace event with process and thread id; first name a new thread."""
        thread = threading.current_thread()
        tid = threading.get_native_id()
        with self._lock:
            # Viewers take a track's name from an event of its own.
            if tid not in self._named_threads:
                self._named_threads.add(tid)
                name_event = {"name": "thread_name", "ph": "M", "args": {"name": thread.name}}
                self._write_line({**name_event, "pid": os.getpid(), "tid": tid})
            self._write_line({**event, "pid": os.getpid(), "tid": tid})

    def _write_line(self, event: dict[str, object]) -> None:
        """Write one event of the trace as a line of a JSON array."""
        # The format allows the last comma, and to leave out the bracket at the end.
        self._file.write(json.dumps(event) + ",\n")


@contextmanager
def write_trace(file: TextIO) -> Iterator[None]:
    """Write the spans of all threads to `file` in the block."""
    global _tracer  # noqa: PLW0603 - one process, one trace
    before, _tracer = _tracer, Tracer(file)
    try:
        yield
    finally:
        _tracer = before


@contextmanager
def trace_span(category: str, name: str, urn: str | None = None) -> Iterator[None]:
    """Record the block as a span of the calling thread; cheap when no trace is written.

    Args:
        category: the span's category, by which viewers colour and filter.
        name: the title of the span.
        urn: the resource that the span belongs to.
    """
    tracer = _tracer
    if tracer is None:
        yield
        return
    began, worked = time.perf_counter_ns(), time.thread_time_ns()
    try:
        yield
    finally:
        took, work = time.perf_counter_ns() - began, time.thread_time_ns() - worked
        # The format has microseconds.
        event = {"name": name, "cat": category, "ph": "X", "ts": began / 1000, "dur": took / 1000}
        about = {} if urn is None else {"args": {"urn": urn}}
        tracer.write({**event, "tts": worked / 1000, "tdur": work / 1000, **about})
