"""Where a run spends its time, as a trace that the trace viewers of browsers open.

The file is in the Trace Event Format (an array of complete events, `ph` X), which Perfetto,
`chrome://tracing` and speedscope read: a track for each thread, spans that lie within each other,
wall time and processor time of each. It grows while the run goes on, so that it can be read of a
run that was killed, too. Spans say methods, paths, verbs and URNs, never a header, query or body.
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
    """Writes spans to a file; safe for many threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._named: set[int] = set()
        self._file.write("[\n")

    def write(self, event: dict[str, object]) -> None:
        """Adds an event of the calling thread."""
        thread = threading.current_thread()
        tid = threading.get_native_id()
        with self._lock:
            if tid not in self._named:
                self._named.add(tid)
                named = {"name": "thread_name", "ph": "M", "args": {"name": thread.name}}
                self._line({**named, "pid": os.getpid(), "tid": tid})
            self._line({**event, "pid": os.getpid(), "tid": tid})

    def _line(self, event: dict[str, object]) -> None:
        # The format allows the last comma, and to leave out the bracket at the end.
        self._file.write(json.dumps(event) + ",\n")


@contextmanager
def tracing(file: TextIO) -> Iterator[None]:
    """Writes the spans of all threads to the file for the length of the block."""
    global _tracer  # noqa: PLW0603 - one process, one trace
    before, _tracer = _tracer, Tracer(file)
    try:
        yield
    finally:
        _tracer = before


@contextmanager
def span(kind: str, name: str, urn: str | None = None) -> Iterator[None]:
    """A piece of work of the calling thread; costs next to nothing when nobody traces.

    `kind` is the span's category, by which viewers colour and filter.
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
        event = {"name": name, "cat": kind, "ph": "X", "ts": began / 1000, "dur": took / 1000}
        about = {} if urn is None else {"args": {"urn": urn}}
        tracer.write({**event, "tts": worked / 1000, "tdur": work / 1000, **about})
