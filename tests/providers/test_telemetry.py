"""Spans become one trace of OpenTelemetry, without values."""

import base64
import contextlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest
from opentelemetry.sdk._shared_internal import BatchProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpuform.providers.context import ProviderContext, trace_run, trace_span, use_context
from gpuform.providers.context.telemetry import is_exported
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import ApiClient, ErrorAnswers, Retry

PLANTED = "hunter2-planted"
CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
URN = f"urn:pulumi:dev::demo::gpuform:stacks:Module${CLUSTER}::train"


def refuse_warning(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def get_spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_spans_of_all_threads_belong_to_the_latest_phase_of_one_trace(
    exporter: InMemorySpanExporter,
) -> None:
    def work() -> None:
        with trace_span("step", "create", URN), trace_span("request", "GET /x", platform="scp"):
            pass

    with trace_run("gpuform up", "demo/dev", {}, refuse_warning, exporter=exporter):
        with trace_span("run", "preview"):
            pass
        with trace_span("run", "update"), ThreadPoolExecutor() as pool:
            pool.submit(work).result()
    spans = get_spans(exporter)
    assert len({span.context.trace_id for span in spans.values()}) == 1
    parents = {name: span.parent and span.parent.span_id for name, span in spans.items()}
    ids = {name: span.context.span_id for name, span in spans.items()}
    assert parents == {
        "gpuform up": None,
        "preview": ids["gpuform up"],
        "update": ids["gpuform up"],
        "create": ids["update"],
        "GET /x": ids["create"],
    }
    assert dict(spans["create"].attributes or {}) == {
        "gpuform.category": "step",
        "gpuform.urn": URN,
        "gpuform.platform": "together",
    }
    assert (spans["GET /x"].attributes or {})["gpuform.platform"] == "scp"
    assert (spans["gpuform up"].attributes or {})["gpuform.stack"] == "demo/dev"


def test_a_failed_span_has_the_class_of_the_error_and_not_its_message(
    exporter: InMemorySpanExporter,
) -> None:
    with (
        pytest.raises(ValueError, match=PLANTED),
        trace_run("gpuform up", "demo/dev", {}, refuse_warning, exporter=exporter),
        trace_span("step", "create", URN),
    ):
        raise ValueError(PLANTED)
    step = get_spans(exporter)["create"]
    assert step.status.description == "ValueError"
    assert not step.events
    assert not any(PLANTED in span.to_json() for span in exporter.get_finished_spans())


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_a_run_continues_the_trace_of_the_process_that_started_it(
    exporter: InMemorySpanExporter, way: str
) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    environ = {"TRACEPARENT": parent} if way == "variable" else {}
    argument = parent if way == "argument" else ""
    with trace_run(
        "gpuform up", "", environ, refuse_warning, parent=argument, exporter=exporter
    ) as own:
        assert own.startswith(f"00-{'a' * 32}-")
        assert own != parent
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert format(span.parent.span_id, "x") == "b" * 16


def test_a_run_belongs_to_the_span_of_the_program_that_calls_the_api(
    exporter: InMemorySpanExporter,
) -> None:
    with (
        TracerProvider().get_tracer("caller").start_as_current_span("deploy") as caller,
        trace_run("gpuform up", "", {}, refuse_warning, exporter=exporter),
    ):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.parent == caller.get_span_context()


def test_two_runs_of_one_process_have_a_trace_each() -> None:
    exporters = {name: InMemorySpanExporter() for name in ("a", "b")}
    begun = threading.Barrier(2)

    def work(name: str) -> None:
        urn = f"urn:pulumi:{name}::demo::{CLUSTER}::train-{name}"
        with trace_run("gpuform up", f"demo/{name}", {}, refuse_warning, exporter=exporters[name]):
            begun.wait()
            with ThreadPoolExecutor() as pool:
                pool.submit(record_step, urn).result()
            begun.wait()

    def record_step(urn: str) -> None:
        with trace_span("step", "create", urn), trace_span("request", f"GET {urn[-1]}"):
            pass

    threads = [threading.Thread(target=work, args=(name,)) for name in exporters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, exporter in exporters.items():
        spans = get_spans(exporter)
        assert {*spans} == {"gpuform up", "create", f"GET {name}"}
        assert len({span.context.trace_id for span in spans.values()}) == 1


@pytest.mark.parametrize(
    "spelling",
    [
        PLANTED,
        PLANTED.upper(),
        base64.b64encode(PLANTED.encode()).decode(),
        PLANTED.encode().hex(),
        quote(quote(PLANTED, safe=""), safe=""),
        f"id-{PLANTED}-1",
    ],
)
@pytest.mark.parametrize("status", [200, 500])
def test_a_secret_of_any_shape_in_a_request_is_in_no_span(
    exporter: InMemorySpanExporter, spelling: str, status: int
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json={"secret": spelling, "url": str(request.url)})

    client = ApiClient(
        "http://platform.example",
        errors=ErrorAnswers("together"),
        headers=lambda: {"Authorization": f"Bearer {PLANTED}"},
        transport=httpx.MockTransport(answer),
    )
    context = ProviderContext(urn=URN)
    context.add_secrets([PLANTED])
    with (
        trace_run("gpuform up", "demo/dev", {}, refuse_warning, exporter=exporter),
        use_context(context),
        contextlib.suppress(GpuformError),
    ):
        client.request(
            *("PUT", f"/clusters/{spelling}"),
            body={"token": spelling},
            params={"key": spelling},
            retry=Retry.NEVER,
        )
    (request,) = [span for span in exporter.get_finished_spans() if span.name != "gpuform up"]
    assert "[secret]" in request.name
    assert (request.attributes or {})["http.response.status_code"] == status
    for span in exporter.get_finished_spans():
        assert PLANTED[:8] not in span.to_json()
        assert spelling not in span.to_json()


class _RefusingExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        logging.getLogger("opentelemetry.exporter").error("refused by http://user:%s@c", PLANTED)
        return SpanExportResult.FAILURE


def test_a_refusing_collector_gives_one_warning_and_no_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warnings: list[str] = []
    with trace_run("gpuform up", "", {}, warnings.append, exporter=_RefusingExporter()):
        pass
    (warning,) = warnings
    assert warning.startswith("warning: the trace of this run could not be sent")
    assert PLANTED not in warning
    assert PLANTED not in capsys.readouterr().err


class _BrokenExporter(SpanExporter):
    attempts = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.attempts += 1
        raise OSError("no such certificate")


def test_the_end_of_a_run_waits_for_a_broken_collector_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing is sent before the end of the run, and then five batches.
    monkeypatch.setattr(BatchProcessor, "worker", lambda _processor: None)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    exporter, warnings = _BrokenExporter(), list[str]()
    with trace_run("gpuform up", "", {}, warnings.append, exporter=exporter):
        for _ in range(9):
            with trace_span("step", "create", URN):
                pass
    assert exporter.attempts == 1
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")],
)
def test_a_variable_that_the_sdk_refuses_gives_a_warning_and_the_run_continues(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    warnings: list[str] = []
    with trace_run("gpuform up", "", {}, warnings.append, exporter=exporter) as context:
        assert not context
    (warning,) = warnings
    assert warning.startswith("warning: OTEL_ variables are wrong, and no traces are sent")


@pytest.mark.parametrize(
    ("variables", "result"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_SERVICE_NAME": "fleet"}, False),
    ],
)
def test_traces_are_sent_where_the_variables_name_a_collector(
    variables: dict[str, str], result: bool
) -> None:
    assert is_exported("traces", variables) is result


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is zipkin"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
            },
            "OTEL_EXPORTER_OTLP_PROTOCOL is http/json",
        ),
    ],
)
def test_an_exporter_that_gpuform_lacks_gives_a_warning_and_the_run_continues(
    variables: dict[str, str], expected: str
) -> None:
    warnings: list[str] = []
    with trace_run("gpuform up", "", variables, warnings.append) as context:
        assert not context
    (warning,) = warnings
    assert expected in warning
