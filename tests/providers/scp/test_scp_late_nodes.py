"""Creates that list and GET show late, answered with fewer, other or no ids: nothing is lost.

SCP's reference answers a create of up to five servers by 202 and one `resource_id`.
"""

import contextlib
import time
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Conflict, GpuformError, UnknownOutcome
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.gpu_node import GpuNodeOperations
from gpuform.providers.scp.node_pool import NodePoolLifecycle

CREATE = "POST /v1/gpu-nodes"
DELETE = "DELETE /v1/gpu-nodes"
IMAGE = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"

Properties = dict[str, Any]
answers = pytest.mark.parametrize("answer", ["first", "all", "more", "foreign", "none"])
late = pytest.mark.parametrize("seconds", [0, 8, 50])


class Killed(BaseException):
    """The process died here."""


def answer_late(world: Any, seconds: float, answer: str = "first") -> None:
    """From now on, new nodes show so late, and the answer to a create has these ids."""
    world.control("POST", "scp/settings", {"appears_seconds": seconds, "create_answer": answer})


def assert_whole(world: Any, pool: Any, count: int) -> None:
    """The pool has every node that there is, and as many as declared."""
    assert (pool.outs["ready"], pool.outs.get("not_ready_reason")) == (True, None)
    assert sorted(world.states()) == list(pool.nodes)
    assert len(pool.nodes) == len(pool.outs["node_ids"]) == count


class TestPool:
    @pytest.mark.slow
    @pytest.mark.sampled(3)
    @answers
    @late
    def test_the_first_up_makes_exactly_the_declared_nodes(
        self, world: Any, pool_inputs: Properties, seconds: float, answer: str
    ) -> None:
        answer_late(world, seconds, answer)
        pool = world.create("NodePool", {**pool_inputs, "count": 7})
        assert_whole(world, pool, 7)
        assert world.writes() == {CREATE: 2}
        world.refresh(pool)
        assert world.intents.all() == []

    @answers
    def test_growth_makes_exactly_what_is_missing(
        self, world: Any, pool_inputs: Properties, answer: str
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, 8, answer)
        world.writes()
        pool = world.update(pool, {**pool_inputs, "count": 5})
        assert_whole(world, pool, 5)
        assert world.writes() == {CREATE: 1}

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @answers
    def test_a_rollout_makes_each_node_once(
        self, world: Any, pool_inputs: Properties, answer: str
    ) -> None:
        rolled = {**pool_inputs, "rollout": {"max_unavailable": 1}}
        pool = world.create("NodePool", rolled)
        answer_late(world, 8, answer)
        world.writes()
        pool = world.update(pool, {**rolled, "image_id": IMAGE})
        assert_whole(world, pool, 3)
        assert {node["image_id"] for node in pool.nodes.values()} == {IMAGE}
        assert world.writes() == {CREATE: 3, DELETE: 3}

    def test_a_failed_node_is_replaced_by_one(self, world: Any, pool_inputs: Properties) -> None:
        pool = world.create("NodePool", pool_inputs)
        world.in_state(pool.nodes["train-002"]["id"], "ERROR")
        pool = world.refresh(pool)
        answer_late(world, 8)
        world.writes()
        pool = world.update(pool)
        assert_whole(world, pool, 3)
        assert world.writes() == {CREATE: 1, DELETE: 1}

    @answers
    def test_a_run_killed_after_the_answer_is_continued(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        answer_late(world, 8, answer)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            world.create("NodePool", pool_inputs)
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        pool = world.create("NodePool", pool_inputs)
        assert_whole(world, pool, 3)
        assert world.writes() == {CREATE: 1}

    def test_a_growth_that_was_killed_and_is_no_longer_declared_is_taken_back(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, 8)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            world.update(pool, {**pool_inputs, "count": 5})
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        assert world.changes(pool, pool_inputs) == {"node_ids": ("begun", "ended")}
        pool = world.update(pool, pool_inputs)
        world.advance(600)
        assert_whole(world, pool, 3)
        assert world.changes(pool, pool_inputs) == {}
        assert world.intents.all() == []

    def test_a_create_that_is_refused_and_made_all_the_same_is_found_by_the_next_run(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = ScpClient.create_nodes

        def refuse(self: ScpClient, *given: Any, **fields: Any) -> Any:
            create(self, *given, **fields)
            raise Conflict("it is there", method="POST", path="/v1/gpu-nodes", status=409)

        monkeypatch.setattr(ScpClient, "create_nodes", refuse)
        with contextlib.suppress(GpuformError):
            world.create("NodePool", pool_inputs)
        monkeypatch.setattr(ScpClient, "create_nodes", create)
        assert world.intents.all(), "it may have made something"
        pool = world.create("NodePool", pool_inputs)
        assert_whole(world, pool, 3)
        assert world.writes() == {CREATE: 1}

    def test_nodes_of_an_accepted_create_that_never_show_are_reported_by_name(
        self, world: Any, pool_inputs: Properties
    ) -> None:
        answer_late(world, 100_000)
        pool = world.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is False
        assert "train-001, train-002, train-003: it is not known whether" in pool.reason
        assert world.writes() == {CREATE: 1}
        (intent,) = world.intents.all()
        assert intent.missing == ("train-001", "train-002", "train-003")

    def test_a_node_that_is_not_shown_for_a_moment_is_not_replaced(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        hide(monkeypatch, world, {pool.nodes["train-002"]["id"]}, seconds=30)
        world.writes()
        after = world.update(pool)
        assert_whole(world, after, 3)
        assert after.outs["node_ids"] == pool.outs["node_ids"]
        assert world.writes() == {}

    def test_a_refresh_that_shares_its_list_with_others_lists_again_while_it_waits(
        self, world: Any, pool_inputs: Properties
    ) -> None:
        answer_late(world, 100, "none")
        pool = world.create("NodePool", pool_inputs)
        assert "it is not known whether" in pool.reason
        pool = world.refresh(pool, fresh_since=time.monotonic())
        assert list(pool.nodes) == ["train-001", "train-002", "train-003"]

    def test_a_refresh_keeps_the_id_of_a_node_that_is_not_shown(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        hide(monkeypatch, world, {pool.nodes["train-002"]["id"]}, seconds=30)
        refreshed = world.refresh(pool)
        assert refreshed.outs["node_ids"] == pool.outs["node_ids"]
        assert_whole(world, world.update(refreshed), 3)

    def test_destroy_waits_for_nodes_that_are_not_shown_yet(
        self, world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, 30)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            world.update(pool, {**pool_inputs, "count": 5})
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        world.delete(pool)
        assert world.states() == {}

    @pytest.mark.parametrize("timeout", [5, None])
    def test_destroy_forgets_no_node_that_is_not_shown_for_a_moment(
        self,
        world: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        timeout: float | None,
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        hide(monkeypatch, world, set(pool.outs["node_ids"]), seconds=30)
        with contextlib.suppress(GpuformError), world.serving(pool.name, timeout=timeout) as call:
            NodePoolLifecycle().delete(pool.id, {**pool.outs, "__provider": "p"})
            assert not call.was_already_deleted
            assert world.states() == {}
        assert (world.writes()[DELETE] == 0) == bool(world.states())


class TestGpuNode:
    @pytest.mark.slow
    @pytest.mark.sampled(3)
    @answers
    @late
    def test_one_node_is_made_and_known(
        self,
        world: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        seconds: float,
        answer: str,
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, seconds, answer)
        world.writes()
        fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        node = world.create("GpuNode", {**node_inputs, **fabric}, name="solo")
        assert node.outs["ready"] is True
        assert world.client.get_node(node.id).gpu_node_name == "solo"
        assert world.writes() == {CREATE: 1}

    @pytest.mark.slow
    @pytest.mark.sampled(3)
    @answers
    def test_a_run_killed_after_the_answer_is_continued(
        self,
        world: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, 8, answer)
        world.writes()
        inputs = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            world.create("GpuNode", inputs, name="solo")
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        node = world.create("GpuNode", inputs, name="solo")
        assert node.outs["ready"] is True
        assert world.writes() == {CREATE: 1}

    def test_a_node_that_never_shows_stays_recorded(
        self, world: Any, pool_inputs: Properties, node_inputs: Properties
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        answer_late(world, 100_000)
        inputs = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        with pytest.raises(UnknownOutcome, match="accepted the create of the GpuNode 'solo'"):
            world.create("GpuNode", inputs, name="solo")
        assert [each.name for each in world.intents.all() if not each.names] == ["solo"]

    @pytest.fixture
    def node(self, world: Any, pool_inputs: Properties, node_inputs: Properties) -> Any:
        pool = world.create("NodePool", pool_inputs)
        fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        return world.create("GpuNode", {**node_inputs, **fabric}, name="solo")

    def test_a_refresh_keeps_a_node_that_is_not_shown_for_a_moment(
        self, world: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hide(monkeypatch, world, {node.id}, seconds=50)
        refreshed = world.refresh(node)
        assert refreshed is not None
        assert refreshed.outs["ready"] is True

    def test_destroy_deletes_a_node_that_is_not_shown_for_a_moment(
        self, world: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hide(monkeypatch, world, {node.id}, seconds=50)
        world.delete(node)
        assert "solo" not in world.states()

    def test_destroy_deletes_a_node_that_is_hidden_when_it_is_about_to(
        self, world: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delete = GpuNodeOperations.delete

        def hide_first(self: Any, *given: Any) -> None:
            monkeypatch.setattr(GpuNodeOperations, "delete", delete)
            hide(monkeypatch, world, {node.id}, seconds=30)
            delete(self, *given)

        monkeypatch.setattr(GpuNodeOperations, "delete", hide_first)
        world.delete(node)
        assert "solo" not in world.states()


def kill_after_create(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when it first waits, right after the answer to a create."""
    sleep = ProviderContext.sleep

    def die(self: ProviderContext, seconds: float) -> None:
        raise Killed

    monkeypatch.setattr(ProviderContext, "sleep", die)
    monkeypatch.undo_kill = lambda: monkeypatch.setattr(ProviderContext, "sleep", sleep)  # type: ignore[attr-defined]


def hide(monkeypatch: pytest.MonkeyPatch, world: Any, ids: set[str], seconds: float) -> None:
    """For a while neither the list nor GET shows these nodes: a replica lags behind."""
    until = world.now + seconds
    nodes, node = ScpClient.list_nodes, ScpClient.get_node

    def list_others(self: ScpClient, **filters: Any) -> Any:
        found = nodes(self, **filters)
        return found if world.now >= until else [each for each in found if each.id not in ids]

    def show_others(self: ScpClient, node_id: str) -> Any:
        return node(self, "0" * 32 if node_id in ids and world.now < until else node_id)

    monkeypatch.setattr(world.client, "_node_listings", {})  # they hold the methods
    monkeypatch.setattr(ScpClient, "list_nodes", list_others)
    monkeypatch.setattr(ScpClient, "get_node", show_others)
