"""Test traces in the format of browsers' viewers."""

import io
import json
import threading
from typing import Any

import pytest

from gpuform.providers.context import trace_span, write_trace


def read_trace(text: str) -> list[dict[str, Any]]:
    """Return the events as viewers do: the format omits the end of the array."""
    assert text.endswith(",\n") or text == "[\n"
    events: list[dict[str, Any]] = json.loads(text.rstrip().rstrip(",") + "]")
    return events


def run_traced(*work: Any) -> list[dict[str, Any]]:
    file = io.StringIO()
    with write_trace(file):
        for function in work:
            function()
    return read_trace(file.getvalue())


def run_nested_work() -> None:
    with trace_span("step", "create", "urn:x"), trace_span("request", "POST /clusters"):
        pass


def test_spans_are_nested() -> None:
    named, inner, outer = run_traced(run_nested_work)
    assert named["name"] == "thread_name"
    assert (inner["name"], inner["cat"]) == ("POST /clusters", "request")
    assert (outer["name"], outer["cat"], outer["args"]) == ("create", "step", {"urn": "urn:x"})
    assert "args" not in inner
    assert {inner["ph"], outer["ph"]} == {"X"}
    for start, length in (("ts", "dur"), ("tts", "tdur")):
        assert outer[start] <= inner[start]
        assert inner[start] + inner[length] <= outer[start] + outer[length]


def test_every_thread_has_its_track() -> None:
    def work() -> None:
        other = threading.Thread(target=run_nested_work, name="other")
        other.start()
        other.join()

    events = run_traced(run_nested_work, work, run_nested_work)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert sorted(tracks.values()) == sorted([threading.current_thread().name, "other"])
    assert {e["tid"] for e in events} == set(tracks)
    assert len(events) == 8


def test_failed_work_is_traced() -> None:
    def fail() -> None:
        with pytest.raises(ValueError, match="x"), trace_span("step", "create"):
            raise ValueError("x")

    assert [e["name"] for e in run_traced(fail)] == ["thread_name", "create"]


def test_nothing_is_traced_outside_a_trace() -> None:
    file = io.StringIO()
    with write_trace(file):
        pass
    run_nested_work()
    assert read_trace(file.getvalue()) == []
