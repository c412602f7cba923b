"""`OTEL_EXPORTER_OTLP_ENDPOINT`: a collector gets one trace of each run."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.otlp_receiver import OtlpReceiver, read_attributes, receive_otlp
from support.stacks.planned_project import PlannedProject
from support.stacks.workspace import SECRET, create_workspace

from gpuform.providers.emulator.server import serve

SECRETS = ("hunter2", "apiVersion")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with receive_otlp() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        yield receiver


def list_emulator_requests(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/_emulator/requests") as answer:
        return [f"{request['method']} {request['path']}" for request in json.load(answer)]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_collector_gets_one_trace_with_every_request_of_an_up(
    planned_project: PlannedProject, collector: OtlpReceiver
) -> None:
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.err
    assert "warning" not in ran.err
    spans = {span.span_id: span for span in collector.spans}
    assert len(spans) == len(collector.spans)
    assert len({span.trace_id for span in spans.values()}) == 1
    (root,) = [span for span in spans.values() if not span.parent_span_id]
    assert root.name == "gpuform up"
    assert read_attributes(root)["gpuform.stack"] == "demo/dev"
    assert all(span.parent_span_id in spans for span in spans.values() if span is not root)
    categories = {read_attributes(span)["gpuform.category"] for span in spans.values()}
    assert categories >= {"run", "program", "step", "provider", "request", "wait"}
    requests = [
        span.name.partition(": ")[2]
        for span in spans.values()
        if read_attributes(span)["gpuform.category"] == "request"
    ]
    sent = list_emulator_requests(planned_project.url)
    assert sorted(requests) == sorted(request for request in sent if "/_emulator" not in request)
    (post,) = [span for span in spans.values() if span.name.endswith("POST /compute/clusters")]
    assert read_attributes(post)["gpuform.platform"] == "together"
    assert read_attributes(post)["gpuform.urn"].endswith("::train")
    assert read_attributes(post)["http.response.status_code"] == 200
    assert not any(secret.encode() in body for secret in SECRETS for body in collector.bodies)


def test_a_collector_that_refuses_everything_fails_no_run(
    planned_project: PlannedProject, collector: OtlpReceiver
) -> None:
    collector.status = 400
    ran = planned_project.run("preview", "--stack", "dev")
    assert ran.code == 0
    assert "warning: the trace of this run could not be sent" in ran.err


def test_a_refreshed_status_is_traced_and_one_of_the_state_is_not(
    planned_project: PlannedProject, collector: OtlpReceiver
) -> None:
    assert planned_project.run("status", "--stack", "dev").code == 0
    assert not collector.spans
    assert planned_project.run("status", "--stack", "dev", "--refresh").code == 0
    assert [span.name for span in collector.spans if not span.parent_span_id] == ["gpuform status"]


@pytest.mark.slow
def test_the_processes_of_several_stacks_continue_one_trace(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_METRICS_EXPORTER": "none",
    }
    with serve(seed="several") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, variables, {})
        workspace.run_successfully("up", "--all", "--yes")
    spans = collector.spans
    assert len({span.trace_id for span in spans}) == 1
    stacks = {read_attributes(span).get("gpuform.stack") for span in spans} - {None}
    assert stacks == {"volumes/dev", "training/dev", "told/dev"}
    (root,) = [span for span in spans if not span.parent_span_id]
    assert root.name == "gpuform up --all"
    assert not any(SECRET.encode() in body for body in collector.bodies)
