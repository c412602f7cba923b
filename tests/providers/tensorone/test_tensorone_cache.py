"""Answers from the platform's cache are not taken for the present, and never for drift."""

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


def _reads(world: Any) -> int:
    return sum(each["method"] == "GET" for each in world.requests())


def test_a_read_after_our_own_write_asks_until_the_answer_shows_it(
    world: Any, inputs: Json
) -> None:
    made = world.create(inputs)
    world.settings(cache_seconds=20)
    world.seen(made)
    with world.serving():
        world.client.update(made.id, {"tags": {"team": "ml"}})
    # The cache still has what it had.
    assert world.seen(made)["tags"] == {}
    wanted = {**inputs, "tags": {"team": "ml"}}
    changed = replace(made, inputs=wanted, outs={**made.outs, "tags": {"team": "ml"}})
    seen = world.refresh(changed)
    assert world.plan(seen) == {}
    assert seen.outs["tags"] == {"team": "ml"}
    assert "the answer is older than the last change; asking again" in world.told


def test_an_update_waits_for_an_answer_that_shows_it(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.settings(cache_seconds=20)
    world.seen(made)
    changed = world.update(made, {**inputs, "port_mappings": [{"internal_port": 80}]})
    assert set(changed.outs["port_urls"]) == {"80"}
    assert any("as it was before the last change" in each for each in world.told)


def test_another_process_does_not_believe_what_is_older_than_the_state(
    world: Any, inputs: Json
) -> None:
    """It knows nothing of our writes, but the state says how new the cluster was."""
    made = world.create(inputs)
    world.advance(60)
    world.settings(cache_seconds=30)
    world.seen(made)
    world.advance(10)
    written = world.send("PUT", made.id, {"tags": {"team": "ml"}})
    outs = {**made.outs, "tags": {"team": "ml"}, "updated_at": written["updated_at"]}
    later = replace(made, inputs={**inputs, "tags": {"team": "ml"}}, outs=outs)
    assert world.seen(made)["tags"] == {}
    world.client.writes = WriteLog()
    assert world.plan(world.refresh(later)) == {}


def test_a_stop_and_a_start_are_each_asked_for_once(world: Any, inputs: Json) -> None:
    world.settings(cache_seconds=120)
    made = world.create(inputs)
    world.writes()
    changed = world.update(made, {**inputs, "gpu_count": 2})
    assert [verb for verb, _ in world.writes()] == ["POST stop", "POST start"]
    assert changed.outs["ready"] is True
    assert any("as it was before the last change" in each for each in world.told)


def test_a_cache_that_never_ends_is_told(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.settings(cache_seconds=36_000)
    world.seen(made)
    changed = world.update(made, {**inputs, "tags": {"a": "b"}}, timeout=600.0)
    assert changed.outs["ready"] is False
    with pytest.raises(GpuformError, match="repeats the state from before the last change"):
        world.refresh(changed)


def test_an_old_list_does_not_hide_what_a_lost_create_made(world: Any, inputs: Json) -> None:
    """The first list, of before, is in the cache when the object is looked for."""
    world.settings(cache_seconds=60)
    world.fault("POST", "/clusters$", drop="after")
    made = world.create(inputs)
    assert made.outs["ready"] is True
    assert [each["id"] for each in world.objects()] == [made.id]


def test_nobody_waits_where_nothing_was_written(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.settings(cache_seconds=600)
    world.advance(60)
    world.seen(made)
    world.advance(60)
    before = world.control("GET", "clock")["now"]
    world.writes()
    assert world.refresh(made) is not None
    assert (_reads(world), world.control("GET", "clock")["now"]) == (1, before)


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
def test_how_old_an_answer_may_be(meta: Json, as_of: float | None) -> None:
    assert compute_read_time(wire.Meta.model_validate(meta), 1000.0) == as_of


@pytest.mark.parametrize(
    ("as_of", "updated_at", "known", "is_stale"),
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
def test_what_is_stale_after_a_write_at_100(
    as_of: float | None, updated_at: str | None, known: Json, is_stale: bool
) -> None:
    writes = WriteLog()
    writes.record("c", 100.0)
    cluster = wire.Cluster.model_validate({"id": "c", "updated_at": updated_at})
    assert writes.is_stale(ClusterReading(cluster, as_of), known) is is_stale
    other = wire.Cluster(id="other")
    assert not writes.is_stale(ClusterReading(other, 0.0), {})


def test_a_list_without_everything_is_completed_by_a_look_at_the_cluster(
    world: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says what a list shows: here, the names and statuses alone."""
    made = world.create(inputs)
    short = wire.Cluster(id=made.id, name="train", status="running")
    listing = world.client.cluster_listing
    monkeypatch.setattr(listing, "read_one", lambda _id: ClusterReading(short, None))
    seen = world.refresh(made)
    assert world.plan(seen) == {}
    assert seen.outs == made.outs


def test_pages_are_read_to_the_last(
    world: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE_SIZE", 2)
    headers = {"Authorization": f"Bearer {KEY}"}
    for number in range(5):
        body = {**inputs, "name": f"train-{number}"}
        world.http.post("/tensorone/v1/clusters", json=body, headers=headers).raise_for_status()
    world.writes()
    with world.serving():
        found = world.client.list_clusters()
    assert len({each.cluster.id for each in found}) == 5
    assert _reads(world) == 3


def test_a_success_that_is_none_is_an_error(world: Any) -> None:
    answer = httpx.Response(200, json={"success": False, "data": {"id": "c"}})
    broken = client.TensorOneClient("http://t.test", "key", httpx.MockTransport(lambda _: answer))
    with (
        use_context(ProviderContext(clock=world.clock)),
        pytest.raises(GpuformError, match="answered 200 without success"),
    ):
        broken.get_cluster("c")
