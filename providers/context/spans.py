"""Record where a run spends its time: as a trace file of `--profile`, and by other recorders.

`trace_span` marks the work: runs, steps, calls of providers, requests, waits. The recorders that
are active in the process get each span; `telemetry` has the one for OpenTelemetry. Spans contain
methods, paths, operations and URNs, never a header, query or body.

The file is in the Trace Event Format (an array of complete events, `ph` X), which Perfetto,
`chrome://tracing` and speedscope read: a track for each thread, nested spans, wall time and
processor time of each. The file grows during the run, so that the trace of a killed run can be
read, too.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

AddFact = Callable[[str, str | int], None]
"""Adds a fact to a span that is being recorded: a name, and the value."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a block of code does.

    `category` is the kind of work, such as `request`, and `urn` the resource that the work is for.
    `platform` is empty if the URN names the platform, or if no platform is concerned.
    """

    category: str
    name: str
    urn: str = ""
    platform: str = ""


class SpanRecorder(Protocol):
    """Records the spans of all threads of this process."""

    def record_span(self, span: Span) -> AbstractContextManager[AddFact]:
        """Record the block as a span of the calling thread."""


_recorders: tuple[SpanRecorder, ...] = ()


@contextmanager
def use_recorder(recorder: SpanRecorder) -> Iterator[None]:
    """Have `recorder` record the spans of all threads in the block."""
    global _recorders  # noqa: PLW0603 - the recorders are the process's
    _recorders = (*_recorders, recorder)
    try:
        yield
    finally:
        _recorders = tuple(each for each in _recorders if each is not recorder)


@contextmanager
def trace_span(
    category: str, name: str, urn: str | None = None, *, platform: str = ""
) -> Iterator[AddFact]:
    """Record the block as a span, and yield a function for further facts; cheap without recorders.

    Args:
        category: the span's category, by which viewers colour and filter.
        name: the title of the span.
        urn: the resource that the span belongs to.
        platform: the platform, for a span without a URN.
    """
    recorders = _recorders
    if not recorders:
        yield _ignore_fact
        return
    span = Span(category, name, urn or "", platform)
    with ExitStack() as recordings:
        add_facts = [recordings.enter_context(each.record_span(span)) for each in recorders]

        def add_fact(fact: str, value: str | int) -> None:
            for add in add_facts:
                add(fact, value)

        yield add_fact


def _ignore_fact(_fact: str, _value: str | int) -> None:
    """Record nothing."""


class TraceFile:
    """A recorder that writes spans to a file; safe for many threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._named_threads: set[int] = set()
        self._file.write("[\n")

    @contextmanager
    def record_span(self, span: Span) -> Iterator[AddFact]:
        """Write the block as a complete event when the block has ended."""
        facts: dict[str, str | int] = {"urn": span.urn} if span.urn else {}
        began, worked = time.perf_counter_ns(), time.thread_time_ns()
        try:
            yield facts.__setitem__
        finally:
            took, work = time.perf_counter_ns() - began, time.thread_time_ns() - worked
            # The format has microseconds.
            event = {"name": span.name, "cat": span.category, "ph": "X", "ts": began / 1000}
            times = {"dur": took / 1000, "tts": worked / 1000, "tdur": work / 1000}
            self._write_event({**event, **times, **({"args": facts} if facts else {})})

    def _write_event(self, event: dict[str, object]) -> None:
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
    with use_recorder(TraceFile(file)):
        yield
