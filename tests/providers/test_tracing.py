"""Traces: what browsers' viewers read."""

import io
import json
import threading
from typing import Any

import pytest

from gpuform.providers.context import trace_span, write_trace


def read(text: str) -> list[dict[str, Any]]:
    """As viewers do: the format leaves the end of the array out."""
    assert text.endswith(",\n") or text == "[\n"
    events: list[dict[str, Any]] = json.loads(text.rstrip().rstrip(",") + "]")
    return events


def traced(*work: Any) -> list[dict[str, Any]]:
    file = io.StringIO()
    with write_trace(file):
        for each in work:
            each()
    return read(file.getvalue())


def nested() -> None:
    with trace_span("step", "create", "urn:x"), trace_span("request", "POST /clusters"):
        pass


def test_spans_lie_within_each_other() -> None:
    named, inner, outer = traced(nested)
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
        other = threading.Thread(target=nested, name="other")
        other.start()
        other.join()

    events = traced(nested, work, nested)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert sorted(tracks.values()) == sorted([threading.current_thread().name, "other"])
    assert {e["tid"] for e in events} == set(tracks)
    assert len(events) == 8


def test_work_that_fails_is_in_the_trace() -> None:
    def fail() -> None:
        with pytest.raises(ValueError, match="x"), trace_span("step", "create"):
            raise ValueError("x")

    assert [e["name"] for e in traced(fail)] == ["thread_name", "create"]


def test_nothing_is_written_outside() -> None:
    file = io.StringIO()
    with write_trace(file):
        pass
    nested()
    assert read(file.getvalue()) == []
