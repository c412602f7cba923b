"""Trace the work of a run, for a file or, by OpenTelemetry, for a collector.

`trace_span` marks the work: runs, steps, calls of providers, requests, waits. The recorders that
are active in the process get each span. Spans contain methods, paths, operations and URNs, never a
header, query or body.

A trace file is in the Trace Event Format (an array of complete events, `ph` X), which Perfetto,
`chrome://tracing` and speedscope read: a track for each thread, nested spans, wall time and
processor time of each. The file grows during the run, so that the trace of a killed run can be
read, too.

Operations call `trace_run`, which has the spans recorded as one trace of OpenTelemetry and sends
spans and metrics. The standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, ...)
switch this on and configure the SDK, which reads most of them itself. Without them nothing of
OpenTelemetry is imported. A collector that cannot be reached never fails a run: the user gets a
warning.
"""

import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Tracer

Signal = Literal["traces", "metrics"]
Warn = Callable[[str], None]

PARENT_VARIABLE: Final = "TRACEPARENT"
"""Has the span to which a run belongs, in the form of W3C Trace Context; CI tools set it."""

FLUSH_TIMEOUT_MS: Final = 10_000
"""How long a run that has ended waits for a slow collector."""

_SEND_TIMEOUT_S: Final = 5
"""How long a run tries to reach a collector, unless a variable says so. The SDK tries for 10 s."""

_QUEUE_SIZE: Final = 1 << 16
"""How many ended spans may wait. The SDK's default of 2048 loses requests of large stacks."""

_EXPORTERS: Final[Mapping[tuple[str, Signal], str]] = {
    ("http/protobuf", "traces"): "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    ("http/protobuf", "metrics"): "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    ("grpc", "traces"): "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    ("grpc", "metrics"): "opentelemetry.exporter.otlp.proto.grpc.metric_exporter",
}
_EXPORTER_VARIABLES: Final[Mapping[Signal, str]] = {
    "traces": "OTEL_TRACES_EXPORTER",
    "metrics": "OTEL_METRICS_EXPORTER",
}
_CLASSES: Final[Mapping[Signal, str]] = {
    "traces": "OTLPSpanExporter",
    "metrics": "OTLPMetricExporter",
}


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
_recorders_lock = threading.Lock()


@contextmanager
def use_recorder(recorder: SpanRecorder) -> Iterator[None]:
    """Have `recorder` record the spans of all threads in the block."""
    global _recorders  # noqa: PLW0603 - the recorders are the process's
    with _recorders_lock:  # two runs of a process may begin at once
        _recorders = (*_recorders, recorder)
    try:
        yield
    finally:
        with _recorders_lock:
            _recorders = tuple(other for other in _recorders if other is not recorder)


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
        add_facts = [recordings.enter_context(recorder.record_span(span)) for recorder in recorders]

        def add_fact(fact: str, value: str | int) -> None:
            for add in add_facts:
                add(fact, value)

        yield add_fact


def _ignore_fact(_fact: str, _value: str | int) -> None:
    """Ignore a fact of a span: no trace is recorded."""


class TraceFile:
    """A recorder that writes spans to a file; safe for many threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._named_threads: set[int] = set()
        self._file.write("[\n")

    @contextmanager
    def record_span(self, span: Span) -> Iterator[AddFact]:
        """Write the block as a complete event when it has ended."""
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


def is_exported(signal: Signal, environ: Mapping[str, str]) -> bool:
    """Return True if the variables name a collector or an exporter for the signal."""
    exporter = environ.get(_EXPORTER_VARIABLES[signal], "").strip()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return bool(exporter) or any(environ.get(name) for name in names)


def create_exporter(signal: Signal, environ: Mapping[str, str], warn: Warn) -> Any:
    """Return the exporter of the SDK for the signal, or None after a warning.

    None if the variables ask for an exporter or a protocol that gpuform does not have, or if the
    extra is missing.
    """
    exporter = environ.get(_EXPORTER_VARIABLES[signal], "").strip() or "otlp"
    protocol = (
        environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    timeouts = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
    module = _EXPORTERS.get((protocol, signal))
    if exporter != "otlp" or module is None:
        setting, values = f"{_EXPORTER_VARIABLES[signal]} is {exporter}", "otlp or none"
        if exporter == "otlp":
            setting = f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}"
            values = "http/protobuf or grpc"
        warn(
            f"warning: {setting}, which gpuform does not have: no {signal} are sent; set it to "
            f"{values}"
        )
        return None
    try:
        # None is for the SDK, which reads the variables of its own.
        timeout = None if any(environ.get(name) for name in timeouts) else _SEND_TIMEOUT_S
        return getattr(import_module(module), _CLASSES[signal])(timeout=timeout)
    except ImportError:
        warn(
            f"warning: OTEL_ variables ask for {signal}, but a package is missing: install "
            "gpuform with its extra `otel`, or unset the variables"
        )
    # A variable has a value that the SDK refuses, such as an address without a scheme.
    except ValueError as error:
        warn(f"warning: OTEL_ variables are wrong, and no {signal} are sent: {error}")
    return None


def build_resource(environ: Mapping[str, str]) -> "Resource":
    """Return the sender of the signals: gpuform, unless the OTEL_ variables name the service."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only for a collector

    attributes = {"service.version": version("gpuform")}
    declared = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in declared:
        attributes["service.name"] = "gpuform"
    return Resource.create(attributes)


@contextmanager
def trace_run(
    title: str,
    stack: str,
    environ: Mapping[str, str],
    warn: Warn,
    *,
    parent: str = "",
    exporter: Any = None,
) -> Iterator[str]:
    """Send the spans of the block as one trace, and yield the trace context for other processes.

    The context is a `traceparent` of W3C Trace Context, and empty if nothing is sent.

    Args:
        title: the name of the trace's first span, such as `gpuform up`.
        stack: PROJECT/STACK; empty for several stacks.
        environ: has the OTEL_ variables, and TRACEPARENT of whoever started this process.
        warn: receives why spans are not sent.
        parent: the trace context of the process that started this one, before TRACEPARENT.
        exporter: an exporter of the SDK, in place of the one of the variables.
    """
    if exporter is None and not is_exported("traces", environ):
        yield ""
        return
    exporter = exporter or create_exporter("traces", environ, warn)
    provider = None if exporter is None else _create_provider(exporter, environ, warn)
    if provider is None:
        yield ""
        return
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - only for a collector
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - as above
        TraceContextTextMapPropagator,
    )

    with report_lost_signals(exporter, "trace", warn) as begin_flush:
        propagator = TraceContextTextMapPropagator()
        carrier = {"traceparent": parent or environ.get(PARENT_VARIABLE, "")}
        # A program that calls the API may have a span of its own: the run belongs to it.
        is_called = get_current_span().get_span_context().is_valid and not parent
        context = None if is_called else propagator.extract(carrier)
        tracer = provider.get_tracer("gpuform", version("gpuform"))
        recorder = _TraceRecorder(tracer, context, stack)
        sent: dict[str, str] = {}
        try:
            with (
                use_recorder(recorder),
                recorder.record_span(Span("run", title)) as add_fact,
            ):
                if stack:
                    add_fact("gpuform.stack", stack)
                propagator.inject(sent)
                yield sent.get("traceparent", "")
        finally:
            begin_flush()
            provider.force_flush(FLUSH_TIMEOUT_MS)
            provider.shutdown()


def _create_provider(
    exporter: Any, environ: Mapping[str, str], warn: Warn
) -> "TracerProvider | None":
    """Return the provider to record spans and send them by `exporter`; None after a warning.

    None if an OTEL_ variable has a value that the SDK refuses.
    """
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - only for a collector
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    size = None if environ.get("OTEL_BSP_MAX_QUEUE_SIZE") else _QUEUE_SIZE
    try:
        provider = TracerProvider(
            resource=build_resource(environ),
            id_generator=_create_id_generator(),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=size))
    except ValueError as error:
        warn(f"warning: OTEL_ variables are wrong, and no traces are sent: {error}")
        return None
    return provider


@contextmanager
def report_lost_signals(exporter: Any, label: str, warn: Warn) -> Iterator[Callable[[], None]]:
    """Warn once after the block if the exporter could not send something; hide the SDK's own log.

    Yields a function to call before the last flush. From then on nothing is sent any more after a
    failure, or after `FLUSH_TIMEOUT_MS`.

    `label` is what is lost, for the warning: `trace` or `metrics`.
    """
    is_lost = has_failed = False
    flush_end = math.inf
    export = exporter.export

    def export_and_check(*arguments: Any, **options: Any) -> Any:
        nonlocal is_lost, has_failed
        # The SDK's flush has no limit: it tries each batch, however long the ones before took.
        if flush_end < math.inf and (has_failed or time.monotonic() > flush_end):
            is_lost = True
            return None
        # Also if the exporter raises an error, which the SDK only logs.
        is_lost_before, is_lost, has_failed = is_lost, True, True
        result = export(*arguments, **options)
        has_failed = getattr(result, "name", "") != "SUCCESS"
        is_lost = is_lost_before or has_failed
        return result

    def begin_flush() -> None:
        nonlocal flush_end
        flush_end = time.monotonic() + FLUSH_TIMEOUT_MS / 1000

    exporter.export = export_and_check
    logger, quiet = logging.getLogger("opentelemetry"), logging.NullHandler()
    # Otherwise Python prints the SDK's messages, with addresses and tracebacks, on stderr.
    logger.addHandler(quiet)
    try:
        yield begin_flush
    finally:
        logger.removeHandler(quiet)
        exporter.export = export
        if is_lost:
            warn(
                f"warning: the {label} of this run could not be sent: the collector did not accept "
                "it, or did not answer; check OTEL_EXPORTER_OTLP_ENDPOINT"
            )


def _create_id_generator() -> "IdGenerator":
    """Return a generator of ids of traces and spans from the system's random numbers.

    The SDK takes them from the module `random`, which programs seed, and whose state a run restores
    after its program: ids would be used twice.
    """
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415 - as above

    class SystemIdGenerator(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return int.from_bytes(os.urandom(16), "big") or 1

        def generate_span_id(self) -> int:
            return int.from_bytes(os.urandom(8), "big") or 1

    return SystemIdGenerator()


class _TraceRecorder:
    """Records spans with a tracer of the SDK; safe for many threads.

    A thread without a span of its own adds its spans to the run's latest phase, such as the
    preview: worker threads do not know which thread started them. Spans of another run of this
    process, by their stack or their trace, are not recorded.
    """

    def __init__(self, tracer: "Tracer", context: "Context | None", stack: str) -> None:
        self._tracer = tracer
        self._phase = context
        project, _, name = stack.partition("/")
        self._urn_prefix = f"urn:pulumi:{name}::{project}::" if stack else ""
        self._trace_id = 0

    @contextmanager
    def record_span(self, span: Span) -> Iterator[AddFact]:
        """Record the block as a span of the trace; of an error only the class is recorded."""
        from opentelemetry import trace  # noqa: PLC0415 - imported by `trace_run` already

        current = trace.get_current_span().get_span_context()
        is_others = bool(span.urn) and not span.urn.startswith(self._urn_prefix)
        if is_others or (
            self._trace_id and current.is_valid and current.trace_id != self._trace_id
        ):
            yield lambda _fact, _value: None
            return
        with self._tracer.start_as_current_span(
            span.name,
            context=None if current.is_valid else self._phase,
            kind=trace.SpanKind.CLIENT if span.category == "request" else trace.SpanKind.INTERNAL,
            attributes=_build_attributes(span),
            # Messages and tracebacks of errors contain values.
            record_exception=False,
            set_status_on_exception=False,
        ) as recording:
            self._trace_id = recording.get_span_context().trace_id
            before = self._phase
            if span.category == "run":
                self._phase = trace.set_span_in_context(recording)
            try:
                yield recording.set_attribute
            except BaseException as error:
                recording.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                raise
            finally:
                if span.category == "run":
                    self._phase = before


_PLATFORM: Final = re.compile(
    r"[:$](?:pulumi-python:dynamic/gpuform\.|gpuform:)(?!stacks:)(?P<platform>\w+):\w+::"
)
"""The own type in a URN, in dynamic form or in that of the plugin; a module is of no platform."""


def _build_attributes(span: Span) -> dict[str, str]:
    """Return the attributes of a span: category, URN and platform, as far as known."""
    own_type = _PLATFORM.search(span.urn)
    attributes = {
        "gpuform.category": span.category,
        "gpuform.urn": span.urn,
        "gpuform.platform": span.platform or (own_type["platform"] if own_type else ""),
    }
    return {name: value for name, value in attributes.items() if value}
