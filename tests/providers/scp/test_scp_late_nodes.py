"""Creates that list and GET show late, answered with fewer, other or no ids: nothing is lost.

SCP's reference answers a create of up to five servers by 202 and one `resource_id`.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import (
    ApiError,
    Conflict,
    GpuformError,
    PermissionDenied,
    RateLimited,
    UnknownOutcome,
)
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


def answer_late(environment: Any, seconds: float, answer: str = "first") -> None:
    """Show new nodes late from now on, and answer creates with these ids."""
    environment.call_emulator(
        "POST", "scp/settings", {"appears_seconds": seconds, "create_answer": answer}
    )


def assert_complete(environment: Any, pool: Any, count: int) -> None:
    """Assert that the pool has every existing node, and as many nodes as declared."""
    assert (pool.outs["ready"], pool.outs.get("not_ready_reason")) == (True, None)
    assert sorted(environment.list_node_states()) == list(pool.nodes)
    assert len(pool.nodes) == len(pool.outs["node_ids"]) == count


everyday = pytest.mark.parametrize("refusal", [PermissionDenied, RateLimited])


@contextlib.contextmanager
def refuse_after_the_effect(
    monkeypatch: pytest.MonkeyPatch, refusal: type[ApiError]
) -> Iterator[None]:
    """Have a proxy repeat each create, and answer with the refusal of the copy."""
    create = ScpClient.create_nodes

    def create_nodes(client: ScpClient, body: Any) -> list[str]:
        create(client, body)
        raise refusal("refused", method="POST", path="gpu-nodes", status=403)

    with monkeypatch.context() as patch:
        patch.setattr(ScpClient, "create_nodes", create_nodes)
        yield


class TestPool:
    @pytest.mark.slow
    @pytest.mark.sampled(3)
    @answers
    @late
    def test_the_first_up_creates_exactly_the_declared_nodes(
        self, environment: Any, pool_inputs: Properties, seconds: float, answer: str
    ) -> None:
        answer_late(environment, seconds, answer)
        pool = environment.create("NodePool", {**pool_inputs, "count": 7})
        assert_complete(environment, pool, 7)
        assert environment.count_writes() == {CREATE: 2}
        environment.refresh(pool)
        assert environment.intents.list_all() == []

    @answers
    def test_growth_creates_exactly_the_missing_nodes(
        self, environment: Any, pool_inputs: Properties, answer: str
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 8, answer)
        environment.count_writes()
        pool = environment.update(pool, {**pool_inputs, "count": 5})
        assert_complete(environment, pool, 5)
        assert environment.count_writes() == {CREATE: 1}

    @everyday
    def test_nodes_of_a_refused_first_create_are_found_by_the_next_run(
        self,
        environment: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        refusal: type[ApiError],
    ) -> None:
        answer_late(environment, 50)
        with refuse_after_the_effect(monkeypatch, refusal), pytest.raises(refusal):
            environment.create("NodePool", pool_inputs)
        assert [intent.is_refused for intent in environment.intents.list_all()] == [True]
        pool = environment.create("NodePool", pool_inputs)
        assert_complete(environment, pool, 3)
        assert environment.count_writes() == {CREATE: 1}
        assert any("SCP refused a create; found" in text for text in environment.messages)

    @everyday
    def test_nodes_of_a_refused_growth_are_found_by_the_same_run(
        self,
        environment: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        refusal: type[ApiError],
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 50)
        environment.count_writes()
        with refuse_after_the_effect(monkeypatch, refusal):
            pool = environment.update(pool, {**pool_inputs, "count": 5})
        assert environment.count_writes() == {CREATE: 1}
        pool = environment.refresh(pool)
        assert sorted(environment.list_node_states()) == list(pool.nodes)
        assert len(pool.nodes) == 5

    @pytest.mark.parametrize("status", [403, 429])
    def test_nobody_is_told_of_a_refused_create_that_did_nothing(
        self, environment: Any, pool_inputs: Properties, status: int
    ) -> None:
        environment.inject_fault("POST", "gpu-nodes$", status=status)
        with pytest.raises(ApiError):
            environment.create("NodePool", pool_inputs)
        began = environment.now
        with environment.use_context("thing"), pytest.raises(UnknownOutcome):
            NodePoolLifecycle().recover_create(pool_inputs)
        assert environment.now - began < 10, "only the create waits"
        pool = environment.create("NodePool", pool_inputs)
        assert_complete(environment, pool, 3)
        environment.inject_fault("POST", "gpu-nodes$", status=status)
        pool = environment.update(pool, {**pool_inputs, "count": 5})
        if status == 403:
            assert "answered 403" in pool.reason
            assert environment.intents.list_all() == []
            pool = environment.update(pool, {**pool_inputs, "count": 5})
        assert_complete(environment, pool, 5)
        texts = " ".join(environment.messages)
        assert "interrupted" not in texts
        assert "created nothing" not in texts

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @answers
    def test_a_rollout_creates_each_node_once(
        self, environment: Any, pool_inputs: Properties, answer: str
    ) -> None:
        rolled = {**pool_inputs, "rollout": {"max_unavailable": 1}}
        pool = environment.create("NodePool", rolled)
        answer_late(environment, 8, answer)
        environment.count_writes()
        pool = environment.update(pool, {**rolled, "image_id": IMAGE})
        assert_complete(environment, pool, 3)
        assert {node["image_id"] for node in pool.nodes.values()} == {IMAGE}
        assert environment.count_writes() == {CREATE: 3, DELETE: 3}

    def test_a_failed_node_is_replaced_by_one(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.set_node_state(pool.nodes["train-002"]["id"], "ERROR")
        pool = environment.refresh(pool)
        answer_late(environment, 8)
        environment.count_writes()
        pool = environment.update(pool)
        assert_complete(environment, pool, 3)
        assert environment.count_writes() == {CREATE: 1, DELETE: 1}

    def test_a_preview_shows_a_pool_of_which_no_node_is_shown_yet(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        answer_late(environment, 100_000, "none")
        pool = environment.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is False
        previewed = environment.refresh(pool, preview=True)
        assert (previewed.outs["ready"], previewed.nodes) == (False, {})
        # The refresh itself looks for the propagation time: the create has created nothing.
        assert environment.refresh(pool) is None

    @answers
    def test_a_run_killed_after_the_answer_is_continued(
        self,
        environment: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
    ) -> None:
        answer_late(environment, 8, answer)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            environment.create("NodePool", pool_inputs)
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        pool = environment.create("NodePool", pool_inputs)
        assert_complete(environment, pool, 3)
        assert environment.count_writes() == {CREATE: 1}

    def test_a_killed_growth_that_is_no_longer_declared_is_deleted(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 8)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            environment.update(pool, {**pool_inputs, "count": 5})
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        assert environment.list_changes(pool, pool_inputs) == {"node_ids": ("begun", "ended")}
        pool = environment.update(pool, pool_inputs)
        environment.move_clock(600)
        assert_complete(environment, pool, 3)
        assert environment.list_changes(pool, pool_inputs) == {}
        assert environment.intents.list_all() == []

    def test_nodes_of_a_refused_create_are_found_by_the_next_run(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = ScpClient.create_nodes

        def refuse(self: ScpClient, *given: Any, **fields: Any) -> Any:
            create(self, *given, **fields)
            raise Conflict("it is there", method="POST", path="/v1/gpu-nodes", status=409)

        monkeypatch.setattr(ScpClient, "create_nodes", refuse)
        with contextlib.suppress(GpuformError):
            environment.create("NodePool", pool_inputs)
        monkeypatch.setattr(ScpClient, "create_nodes", create)
        assert environment.intents.list_all(), "it may have made something"
        pool = environment.create("NodePool", pool_inputs)
        assert_complete(environment, pool, 3)
        assert environment.count_writes() == {CREATE: 1}

    def test_nodes_of_an_accepted_create_that_never_show_are_reported_by_name(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        answer_late(environment, 100_000)
        pool = environment.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is False
        assert "train-001, train-002, train-003: the result of its create is unknown" in pool.reason
        assert environment.count_writes() == {CREATE: 1}
        (intent,) = environment.intents.list_all()
        assert intent.missing == ("train-001", "train-002", "train-003")

    def test_a_node_that_is_not_shown_for_a_moment_is_not_replaced(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        hide(monkeypatch, environment, {pool.nodes["train-002"]["id"]}, seconds=30)
        environment.count_writes()
        after = environment.update(pool)
        assert_complete(environment, after, 3)
        assert after.outs["node_ids"] == pool.outs["node_ids"]
        assert environment.count_writes() == {}

    @pytest.mark.exact_waits
    def test_a_refresh_that_shares_its_list_with_others_lists_again_while_it_waits(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        answer_late(environment, 100, "none")
        pool = environment.create("NodePool", pool_inputs)
        assert "its create is unknown" in pool.reason
        pool = environment.refresh(pool, fresh_since=time.monotonic())
        assert list(pool.nodes) == ["train-001", "train-002", "train-003"]

    def test_a_refresh_keeps_the_id_of_a_node_that_is_not_shown(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        hide(monkeypatch, environment, {pool.nodes["train-002"]["id"]}, seconds=30)
        refreshed = environment.refresh(pool)
        assert refreshed.outs["node_ids"] == pool.outs["node_ids"]
        assert_complete(environment, environment.update(refreshed), 3)

    def test_destroy_waits_for_nodes_that_are_not_shown_yet(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 30)
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            environment.update(pool, {**pool_inputs, "count": 5})
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        environment.delete(pool)
        assert environment.list_node_states() == {}

    @pytest.mark.parametrize("timeout", [5, None])
    @pytest.mark.exact_waits
    def test_destroy_forgets_no_node_that_is_not_shown_for_a_moment(
        self,
        environment: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        timeout: float | None,
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        hide(monkeypatch, environment, set(pool.outs["node_ids"]), seconds=30)
        with (
            contextlib.suppress(GpuformError),
            environment.use_context(pool.name, timeout=timeout) as call,
        ):
            NodePoolLifecycle().delete(pool.id, {**pool.outs, "__provider": "p"})
            assert not call.progress.was_already_deleted
            assert environment.list_node_states() == {}
        assert (environment.count_writes()[DELETE] == 0) == bool(environment.list_node_states())


class TestGpuNode:
    @pytest.mark.slow
    @pytest.mark.sampled(3)
    @answers
    @late
    def test_exactly_one_node_is_created_and_stored(
        self,
        environment: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        seconds: float,
        answer: str,
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, seconds, answer)
        environment.count_writes()
        fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        node = environment.create("GpuNode", {**node_inputs, **fabric}, name="solo")
        assert node.outs["ready"] is True
        assert environment.client.get_node(node.id).gpu_node_name == "solo"
        assert environment.count_writes() == {CREATE: 1}

    @pytest.mark.slow
    @pytest.mark.sampled(3)
    def test_a_preview_shows_a_pool_of_which_no_node_is_shown_yet(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        answer_late(environment, 100_000, "none")
        pool = environment.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is False
        previewed = environment.refresh(pool, preview=True)
        assert (previewed.outs["ready"], previewed.nodes) == (False, {})
        # The refresh itself looks for the propagation time: the create has created nothing.
        assert environment.refresh(pool) is None

    @answers
    def test_a_run_killed_after_the_answer_is_continued(
        self,
        environment: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 8, answer)
        environment.count_writes()
        inputs = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        kill_after_create(monkeypatch)
        with pytest.raises(Killed):
            environment.create("GpuNode", inputs, name="solo")
        monkeypatch.undo_kill()  # type: ignore[attr-defined]
        node = environment.create("GpuNode", inputs, name="solo")
        assert node.outs["ready"] is True
        assert environment.count_writes() == {CREATE: 1}

    def test_a_node_that_is_never_shown_stays_recorded(
        self, environment: Any, pool_inputs: Properties, node_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        answer_late(environment, 100_000)
        inputs = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        with pytest.raises(UnknownOutcome, match="accepted the create of the GpuNode 'solo'"):
            environment.create("GpuNode", inputs, name="solo")
        assert [intent.name for intent in environment.intents.list_all() if not intent.names] == [
            "solo"
        ]

    @pytest.fixture
    def node(self, environment: Any, pool_inputs: Properties, node_inputs: Properties) -> Any:
        pool = environment.create("NodePool", pool_inputs)
        fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        return environment.create("GpuNode", {**node_inputs, **fabric}, name="solo")

    def test_a_refresh_keeps_a_node_that_is_not_shown_for_a_moment(
        self, environment: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hide(monkeypatch, environment, {node.id}, seconds=50)
        refreshed = environment.refresh(node)
        assert refreshed is not None
        assert refreshed.outs["ready"] is True

    def test_destroy_deletes_a_node_that_is_not_shown_for_a_moment(
        self, environment: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hide(monkeypatch, environment, {node.id}, seconds=50)
        environment.delete(node)
        assert "solo" not in environment.list_node_states()

    def test_an_update_waits_for_a_node_that_is_not_shown_for_a_moment(
        self, environment: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wait_until_ready = GpuNodeOperations.wait_until_ready

        def hide_first(self: Any, *given: Any) -> Any:
            monkeypatch.setattr(GpuNodeOperations, "wait_until_ready", wait_until_ready)
            hide(monkeypatch, environment, {node.id}, seconds=50)
            return wait_until_ready(self, *given)

        monkeypatch.setattr(GpuNodeOperations, "wait_until_ready", hide_first)
        locked = environment.update(node, {**node.inputs, "lock_enabled": True})
        assert (locked.outs["ready"], locked.outs["lock_enabled"]) == (True, True)

    def test_destroy_deletes_a_node_that_is_hidden_when_it_is_about_to(
        self, environment: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delete = GpuNodeOperations.delete

        def hide_first(self: Any, *given: Any) -> None:
            monkeypatch.setattr(GpuNodeOperations, "delete", delete)
            hide(monkeypatch, environment, {node.id}, seconds=30)
            delete(self, *given)

        monkeypatch.setattr(GpuNodeOperations, "delete", hide_first)
        environment.delete(node)
        assert "solo" not in environment.list_node_states()


def kill_after_create(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the process at the first wait, just after the answer to a create."""
    sleep = ProviderContext.sleep

    def die(self: ProviderContext, seconds: float) -> None:
        raise Killed

    monkeypatch.setattr(ProviderContext, "sleep", die)
    monkeypatch.undo_kill = lambda: monkeypatch.setattr(ProviderContext, "sleep", sleep)  # type: ignore[attr-defined]


def hide(monkeypatch: pytest.MonkeyPatch, environment: Any, ids: set[str], seconds: float) -> None:
    """Hide these nodes from lists and GET for a while, like a lagging replica."""
    until = environment.now + seconds
    nodes, node = ScpClient.list_nodes, ScpClient.get_node

    def list_others(self: ScpClient, **filters: Any) -> Any:
        listed_nodes = nodes(self, **filters)
        return (
            listed_nodes
            if environment.now >= until
            else [node for node in listed_nodes if node.id not in ids]
        )

    def show_others(self: ScpClient, node_id: str) -> Any:
        return node(self, "0" * 32 if node_id in ids and environment.now < until else node_id)

    monkeypatch.setattr(environment.client, "_node_listings", {})  # they hold the methods
    monkeypatch.setattr(ScpClient, "list_nodes", list_others)
    monkeypatch.setattr(ScpClient, "get_node", show_others)
