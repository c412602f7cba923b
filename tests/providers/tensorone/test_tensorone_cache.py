"""Test that cached answers of TensorOne are taken neither for the current state nor for drift."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.tensorone import KEY
from gpuform.providers.errors import GpuformError
from gpuform.providers.tensorone import client
from gpuform.providers.tensorone.client import ClusterReading, WriteLog, compute_read_time
from gpuform.schemas.tensorone import wire

Json = dict[str, Any]


def _count_reads(platform: Any) -> int:
    return sum(request["method"] == "GET" for request in platform.list_requests())


def test_a_read_after_our_write_repeats_until_the_answer_contains_it(
    platform: Any, inputs: Json
) -> None:
    cluster = platform.create(inputs)
    platform.change_settings(cache_seconds=20)
    platform.fetch_cluster(cluster)
    with platform.use_provider_context():
        platform.client.update(cluster.id, {"tags": {"team": "ml"}})
    # The cache still has what it had.
    assert platform.fetch_cluster(cluster)["tags"] == {}
    healthy_inputs = {**inputs, "tags": {"team": "ml"}}
    changed = replace(cluster, inputs=healthy_inputs, outs={**cluster.outs, "tags": {"team": "ml"}})
    refreshed = platform.refresh(changed)
    assert platform.plan(refreshed) == {}
    assert refreshed.outs["tags"] == {"team": "ml"}
    assert "the answer is older than the last change; asking again" in platform.messages


def test_an_update_waits_for_an_answer_that_contains_it(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.change_settings(cache_seconds=20)
    platform.fetch_cluster(cluster)
    changed = platform.update(cluster, {**inputs, "port_mappings": [{"internal_port": 80}]})
    assert set(changed.outs["port_urls"]) == {"80"}
    assert any("as it was before the last change" in message for message in platform.messages)


def test_another_process_rejects_answers_older_than_the_state(platform: Any, inputs: Json) -> None:
    """Another process has no record of our writes; the state has the time of the last one."""
    cluster = platform.create(inputs)
    platform.advance(60)
    platform.change_settings(cache_seconds=30)
    platform.fetch_cluster(cluster)
    platform.advance(10)
    written = platform.send("PUT", cluster.id, {"tags": {"team": "ml"}})
    outs = {**cluster.outs, "tags": {"team": "ml"}, "updated_at": written["updated_at"]}
    later = replace(cluster, inputs={**inputs, "tags": {"team": "ml"}}, outs=outs)
    assert platform.fetch_cluster(cluster)["tags"] == {}
    platform.client.writes = WriteLog()
    assert platform.plan(platform.refresh(later)) == {}


@pytest.mark.exact_waits
def test_a_stop_and_a_start_are_each_requested_once(platform: Any, inputs: Json) -> None:
    platform.change_settings(cache_seconds=120)
    cluster = platform.create(inputs)
    platform.take_writes()
    changed = platform.update(cluster, {**inputs, "gpu_count": 2})
    assert [verb for verb, _ in platform.take_writes()] == ["POST stop", "POST start"]
    assert changed.outs["ready"] is True
    assert any("as it was before the last change" in message for message in platform.messages)


def test_an_answer_that_stays_cached_is_reported(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.change_settings(cache_seconds=36_000)
    platform.fetch_cluster(cluster)
    changed = platform.update(cluster, {**inputs, "tags": {"a": "b"}}, timeout=600.0)
    assert changed.outs["ready"] is False
    with pytest.raises(GpuformError, match="repeats the state from before the last change"):
        platform.refresh(changed)


def test_a_cached_list_does_not_hide_the_object_of_a_lost_create(
    platform: Any, inputs: Json
) -> None:
    """The cache holds a list from before the create when the object is searched."""
    platform.change_settings(cache_seconds=60)
    platform.add_fault("POST", "/clusters$", drop="after")
    cluster = platform.create(inputs)
    assert cluster.outs["ready"] is True
    assert [found_object["id"] for found_object in platform.list_objects()] == [cluster.id]


def test_reads_without_a_write_do_not_wait(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.change_settings(cache_seconds=600)
    platform.advance(60)
    platform.fetch_cluster(cluster)
    platform.advance(60)
    before = platform.send_control("GET", "clock")["now"]
    platform.take_writes()
    assert platform.refresh(cluster) is not None
    assert (_count_reads(platform), platform.send_control("GET", "clock")["now"]) == (1, before)


@pytest.mark.parametrize(
    ("meta", "as_of"),
    [
        ({}, None),
        ({"cache_hit": False, "data_freshness_seconds": 0}, None),
        ({"cache_hit": True, "data_freshness_seconds": 0}, 999.0),
        ({"cache_hit": False, "data_freshness_seconds": 15}, 984.0),
        ({"cache_hit": True, "data_freshness_seconds": 2.5}, 996.5),
    ],
)
def test_the_accepted_age_of_an_answer(meta: Json, as_of: float | None) -> None:
    assert compute_read_time(wire.Meta.model_validate(meta), 1000.0) == as_of


@pytest.mark.parametrize(
    ("as_of", "updated_at", "state", "is_stale"),
    [
        (None, None, {}, False),
        (101.0, None, {}, False),
        (100.0, None, {}, True),
        (None, "2026-01-01T00:00:00Z", {"updated_at": "2026-01-01T00:00:01Z"}, True),
        (None, "2026-01-01T00:00:01Z", {"updated_at": "2026-01-01T00:00:01Z"}, False),
        (None, "2026-01-01T01:00:00+01:00", {"updated_at": "2026-01-01T00:00:00Z"}, False),
        (None, "some time", {"updated_at": "2026-01-01T00:00:01Z"}, False),
        (None, None, {"updated_at": "2026-01-01T00:00:01Z"}, False),
    ],
)
def test_answers_older_than_a_write_are_stale(
    as_of: float | None, updated_at: str | None, state: Json, is_stale: bool
) -> None:
    writes = WriteLog()
    writes.record("c", 100.0)
    cluster = wire.Cluster.model_validate({"id": "c", "updated_at": updated_at})
    assert writes.is_stale(ClusterReading(cluster, as_of), state) is is_stale
    other = wire.Cluster(id="other")
    assert not writes.is_stale(ClusterReading(other, 0.0), {})


def test_an_incomplete_list_is_completed_by_reading_the_cluster(
    platform: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document does not say which fields lists have: this list has names and statuses only."""
    cluster = platform.create(inputs)
    short = wire.Cluster(id=cluster.id, name="train", status="running")
    listing = platform.client.cluster_listing
    monkeypatch.setattr(listing, "read_one", lambda _id: ClusterReading(short, None))
    refreshed = platform.refresh(cluster)
    assert platform.plan(refreshed) == {}
    assert refreshed.outs == cluster.outs


def test_pages_are_read_to_the_last(
    platform: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE_SIZE", 2)
    headers = {"Authorization": f"Bearer {KEY}"}
    for number in range(5):
        body = {**inputs, "name": f"train-{number}"}
        platform.http.post("/tensorone/v1/clusters", json=body, headers=headers).raise_for_status()
    platform.take_writes()
    with platform.use_provider_context():
        clusters = platform.client.list_clusters()
    assert len({item.cluster.id for item in clusters}) == 5
    assert _count_reads(platform) == 3


def test_a_successful_answer_without_success_is_an_error(platform: Any) -> None:
    answer = httpx.Response(200, json={"success": False, "data": {"id": "c"}})
    broken = client.TensorOneClient("http://t.test", "key", httpx.MockTransport(lambda _: answer))
    with (
        use_context(ProviderContext(clock=platform.clock)),
        pytest.raises(GpuformError, match="answered 200 without success"),
    ):
        broken.get_cluster("c")
