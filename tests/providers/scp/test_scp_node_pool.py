"""Test a pool's life over real HTTP: number of requests, duration, and failures."""

from collections import Counter
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, NameTaken, NotAllowed, UnknownOutcome
from gpuform.providers.http import PlanningLists
from gpuform.providers.records import FolderRecords, Target
from gpuform.providers.scp import offers

Properties = dict[str, Any]

CREATE = "POST /v1/gpu-nodes"
DELETE = "DELETE /v1/gpu-nodes"
MOVE = "POST /v1/cluster-fabrics/modify-members"
PUBLIC_IP = "0123456789abcdef0123456789abcdef"
OTHER_IP = "fedcba9876543210fedcba9876543210"


def declare_many(inputs: Properties, count: int, **fields: Any) -> Properties:
    return {**inputs, "count": count, **fields}


def declare_single_nodes(inputs: Properties, **nodes: Properties) -> Properties:
    return {key: value for key, value in inputs.items() if key != "count"} | {"nodes": nodes}


@pytest.mark.slow
class TestBatches:
    def test_creates_are_batched_and_a_deletion_is_one_request(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        eight = declare_many(pool_inputs, 8)
        pool = environment.create("NodePool", eight)
        assert pool.id == "POOL001-krw1a/fabric1/train"
        assert environment.count_writes() == {CREATE: 2}
        assert list(pool.nodes) == [f"train-00{number}" for number in range(1, 9)]
        assert len({node["cluster_fabric_id"] for node in pool.nodes.values()}) == 1
        assert sorted(pool.outs["node_ids"]) == sorted(n["id"] for n in pool.nodes.values())
        pool = environment.update(pool, declare_many(pool_inputs, 13))
        assert environment.count_writes() == {CREATE: 1}
        assert (len(pool.nodes), pool.outs["ready"]) == (13, True)
        environment.delete(pool)
        assert environment.count_writes() == {DELETE: 1}
        assert environment.list_node_states() == {}

    def test_one_more_node_joins_by_a_request_of_its_own(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        pool = environment.update(pool, declare_many(pool_inputs, 4))
        assert environment.count_writes() == {CREATE: 2}
        assert pool.outs["ready"] is True

    def test_the_refusal_of_a_single_node_is_in_the_error(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.call_emulator("POST", "scp/settings", {"joining_one_allowed": False})
        pool = environment.update(
            environment.create("NodePool", pool_inputs), declare_many(pool_inputs, 4)
        )
        assert "2 to 5 servers are allowed, not 1" in pool.reason
        assert len(pool.nodes) == 3

    @pytest.mark.exact_waits
    @pytest.mark.parametrize("joining_while_creating", [False, True])
    def test_200_nodes_take_as_long_as_two_and_share_their_lists(
        self, environment: Any, pool_inputs: Properties, joining_while_creating: bool
    ) -> None:
        environment.call_emulator(
            "POST", "scp/settings", {"joining_while_creating": joining_while_creating}
        )
        started = environment.now
        pool = environment.create("NodePool", declare_many(pool_inputs, 200))
        assert (pool.outs["ready"], len(pool.nodes)) == (True, 200)
        # 120 s until the fabric has an id, 900 s until its last node is RUNNING.
        assert environment.now - started <= 1.1 * (120 + 900)
        sent = environment.count_requests()
        assert sent[CREATE] == 40
        assert sent["GET"] < 150

    def test_a_fabric_that_stays_creating_is_joined_after_a_while(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.call_emulator("POST", "scp/settings", {"joining_while_creating": True})
        environment.inject_fault(
            "GET", "^/v1/cluster-fabrics/", status_override="CREATING", count=None
        )
        pool = environment.create("NodePool", declare_many(pool_inputs, 8))
        assert pool.outs["ready"] is True


class TestSize:
    def test_shrinking_deletes_the_named_nodes_then_the_newest(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_many(pool_inputs, 5))
        environment.count_writes()
        pool = environment.update(pool, declare_many(pool_inputs, 3, remove=["train-002"]))
        assert list(pool.nodes) == ["train-001", "train-003", "train-004"]
        assert environment.count_writes() == {DELETE: 1}
        assert set(environment.list_node_states()) == set(pool.nodes)

    def test_shrinking_deletes_a_failed_node_first(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.set_node_state(pool.nodes["train-001"]["id"], "ERROR")
        pool = environment.refresh(pool)
        pool = environment.update(pool, declare_many(pool_inputs, 2))
        assert list(pool.nodes) == ["train-002", "train-003"]
        assert pool.outs["ready"] is True

    @pytest.mark.slow
    def test_a_node_deleted_by_others_is_drift_and_created_again(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        others = {pool.nodes[name]["id"] for name in ("train-001", "train-003")}
        environment.client.delete_nodes([pool.nodes["train-002"]["id"]])
        environment.move_clock(3600)
        environment.count_writes()
        pool = environment.refresh(pool)
        assert pool.outs["count"] == 2
        assert environment.list_changes(pool, pool_inputs) == {"count": (2, 3)}
        pool = environment.update(pool, pool_inputs)
        assert environment.count_writes() == {CREATE: 1}
        assert others < {node["id"] for node in pool.nodes.values()}
        assert environment.list_changes(pool) == {}

    def test_a_node_stopped_by_others_is_drift_and_started(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.client.stop_nodes([pool.nodes["train-002"]["id"]])
        environment.move_clock(3600)
        environment.count_writes()
        pool = environment.refresh(pool)
        assert environment.list_changes(pool) == {
            'nodes["train-002"].state': ("STOPPED", "RUNNING")
        }
        pool = environment.update(pool)
        assert environment.count_writes() == {"POST /v1/gpu-nodes/start": 1}
        assert (pool.outs["ready"], environment.list_changes(pool)) == (True, {})

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_a_pool_whose_nodes_are_all_gone_is_gone(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.client.delete_nodes(pool.outs["node_ids"])
        environment.move_clock(3600)
        assert environment.refresh(pool) is None
        with pytest.raises(GpuformError, match="first run `gpuform refresh`"):
            environment.update(pool, declare_many(pool_inputs, 4))
        environment.delete(pool)


@pytest.mark.slow
class TestInPlace:
    def test_all_nodes_are_stopped_and_started_by_one_request(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_many(pool_inputs, 5))
        environment.count_writes()
        pool = environment.update(pool, declare_many(pool_inputs, 5, state="STOPPED"))
        assert environment.count_writes() == {"POST /v1/gpu-nodes/stop": 1}
        assert set(environment.list_node_states().values()) == {"STOPPED"}
        assert (pool.outs["ready"], environment.list_changes(pool)) == (True, {})
        pool = environment.update(pool, declare_many(pool_inputs, 5))
        assert environment.count_writes() == {"POST /v1/gpu-nodes/start": 1}
        assert pool.outs["ready"] is True

    def test_single_nodes_are_added_changed_and_removed(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        nat = {"nat_enabled": True, "public_ip_address_id": PUBLIC_IP}
        inputs = declare_single_nodes(
            pool_inputs,
            a={"ip_address": "192.168.0.77", **nat},
            b={"gpu_node_name": "chief", "lock_enabled": True},
            c={"state": "STOPPED", "lock_enabled": True},
        )
        pool = environment.create("NodePool", inputs)
        assert pool.outs["ready"] is True
        assert list(pool.nodes) == ["b", "a", "c"]
        assert pool.nodes["a"]["policy_ip"] == "192.168.0.77"
        assert pool.nodes["a"]["public_ip_address_id"] == PUBLIC_IP
        assert pool.nodes["b"]["gpu_node_name"] == "chief"
        assert [pool.nodes[key]["lock_enabled"] for key in "abc"] == [False, True, True]
        assert pool.nodes["c"]["state"] == "STOPPED"
        assert environment.list_changes(pool) == {}
        assert environment.list_changes(environment.refresh(pool)) == {}

    def test_a_public_ip_is_assigned_exchanged_and_released(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        def with_ip(id_: str | None) -> Properties:
            nat = {"nat_enabled": id_ is not None}
            more = {"public_ip_address_id": id_} if id_ else {}
            return declare_single_nodes(pool_inputs, a={**nat, **more}, b={})

        nat = "POST /v1/gpu-nodes/*/public-nat-ip"
        release = "DELETE /v1/gpu-nodes/*/public-nat-ip"
        pool = environment.create("NodePool", with_ip(None))
        environment.count_writes()
        pool = environment.update(pool, with_ip(PUBLIC_IP))
        assert environment.count_writes() == {nat: 1}
        address = pool.nodes["a"]["policy_nat"]
        assert environment.list_changes(environment.refresh(pool)) == {}
        pool = environment.update(pool, with_ip(OTHER_IP))
        assert environment.count_writes() == {release: 1, nat: 1}
        assert pool.nodes["a"]["policy_nat"] != address
        pool = environment.update(pool, with_ip(None))
        assert environment.count_writes() == {release: 1}
        assert pool.nodes["a"]["policy_use_nat"] is False

    def test_a_changed_address_replaces_that_node_alone(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_single_nodes(pool_inputs, a={}, b={}))
        changed = declare_single_nodes(pool_inputs, a={}, b={"ip_address": "192.168.0.99"})
        assert environment.diff(pool, changed) == []
        after = environment.update(pool, changed)
        assert after.outs["ready"] is True
        assert after.nodes["a"]["id"] == pool.nodes["a"]["id"]
        assert after.nodes["b"]["id"] != pool.nodes["b"]["id"]
        assert after.nodes["b"]["policy_ip"] == "192.168.0.99"
        assert after.nodes["b"]["gpu_node_name"] == "train-b"

    def test_another_name_is_another_node(self, environment: Any, pool_inputs: Properties) -> None:
        pool = environment.create("NodePool", declare_single_nodes(pool_inputs, a={}, b={}))
        after = environment.update(
            pool, declare_single_nodes(pool_inputs, a={}, b={"gpu_node_name": "other"})
        )
        assert set(environment.list_node_states()) == {"train-a", "other"}
        assert after.nodes["a"]["id"] == pool.nodes["a"]["id"]

    def test_a_refused_public_ip_is_an_error_and_tried_again(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        wrong = {"nat_enabled": True, "public_ip_address_id": "none"}
        pool = environment.create("NodePool", declare_single_nodes(pool_inputs, a={}, b={}))
        pool = environment.update(
            pool, declare_single_nodes(pool_inputs, a=wrong, b={"state": "STOPPED"})
        )
        assert pool.outs["ready"] is False
        assert pool.reason.startswith("pool train: train-a: scp: POST ")
        assert pool.nodes["b"]["state"] == "STOPPED"
        right = {**wrong, "public_ip_address_id": PUBLIC_IP}
        pool = environment.update(
            pool, declare_single_nodes(pool_inputs, a=right, b={"state": "STOPPED"})
        )
        assert pool.outs["ready"] is True


class TestLocks:
    LOCK = "PUT /v1/gpu-nodes/*/lock"
    UNLOCK = "PUT /v1/gpu-nodes/*/unlock"

    def test_locked_nodes_are_neither_deleted_nor_stopped_without_permission(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locked = declare_many(pool_inputs, 3, lock_enabled=True)
        pool = environment.create("NodePool", locked)
        assert all(node["lock_enabled"] for node in pool.nodes.values())
        environment.count_writes()
        for change in ({"count": 2}, {"state": "STOPPED"}, {"image_id": "IMAGE-2"}):
            with pytest.raises(NotAllowed, match="--allow unlock"):
                environment.diff(pool, {**locked, **change})
        for change in ({"count": 2}, {"state": "STOPPED"}):
            with pytest.raises(NotAllowed, match="train-003"):
                environment.update(pool, {**locked, **change})
        with pytest.raises(NotAllowed, match="train-003"):
            environment.delete(pool)
        assert environment.count_writes() == {}
        with environment.grant_permission(monkeypatch, "unlock"):
            pool = environment.update(pool, declare_many(locked, 2))
            assert environment.count_writes() == {self.UNLOCK: 1, DELETE: 1}
            environment.delete(pool)
            assert environment.count_writes() == {self.UNLOCK: 2, DELETE: 1}

    def test_a_locked_node_is_locked_again_after_its_stop(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locked = declare_many(pool_inputs, 2, lock_enabled=True)
        pool = environment.create("NodePool", locked)
        environment.count_writes()
        with environment.grant_permission(monkeypatch, "unlock"):
            pool = environment.update(pool, {**locked, "state": "STOPPED"})
        assert environment.count_writes() == {
            self.UNLOCK: 2,
            "POST /v1/gpu-nodes/stop": 1,
            self.LOCK: 2,
        }
        assert pool.outs["ready"] is True

    def test_a_lock_set_by_others_refuses_the_update_before_any_request(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.client.lock_node(pool.nodes["train-003"]["id"])
        environment.count_writes()
        with pytest.raises(NotAllowed, match="train-003"):
            environment.update(pool, declare_many(pool_inputs, 2))
        assert environment.count_writes() == {}
        assert environment.list_changes(pool) == {}

    def test_locks_change_in_place(self, environment: Any, pool_inputs: Properties) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.count_writes()
        pool = environment.update(pool, {**pool_inputs, "lock_enabled": True})
        assert environment.count_writes() == {self.LOCK: 3}
        pool = environment.update(pool, {**pool_inputs, "lock_enabled": False})
        assert environment.count_writes() == {self.UNLOCK: 3}
        assert pool.outs["ready"] is True


class TestFabrics:
    @pytest.fixture
    def other(self, environment: Any, pool_inputs: Properties) -> Any:
        """Create a pool in another fabric."""
        names = {"cluster_fabric_name": "fabric2", "gpu_node_name_prefix": "other"}
        return environment.create("NodePool", {**pool_inputs, **names}, name="other")

    @pytest.mark.slow
    def test_a_move_is_one_request(
        self, environment: Any, pool_inputs: Properties, other: Any
    ) -> None:
        pool = environment.create("NodePool", declare_many(pool_inputs, 5))
        environment.count_writes()
        moved = declare_many(pool_inputs, 5, cluster_fabric_name="fabric2")
        assert environment.find_problems("NodePool", moved, pool) == {}
        assert environment.diff(pool, moved) == []
        after = environment.update(pool, moved)
        assert environment.count_writes() == {MOVE: 1}
        assert after.id == pool.id
        assert after.outs["cluster_fabric_id"] == other.outs["cluster_fabric_id"]
        assert (after.outs["ready"], environment.list_changes(after)) == (True, {})
        assert environment.list_changes(environment.refresh(after)) == {}

    @pytest.mark.slow
    def test_a_node_moved_by_others_is_moved_back(
        self, environment: Any, pool_inputs: Properties, other: Any
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        ids = pool.outs["cluster_fabric_id"], other.outs["cluster_fabric_id"]
        environment.client.modify_members(*ids, [pool.nodes["train-001"]["id"]])
        environment.move_clock(3600)
        environment.count_writes()
        pool = environment.refresh(pool)
        assert environment.list_changes(pool) == {
            'nodes["train-001"].cluster_fabric_name': ("fabric2", "fabric1")
        }
        pool = environment.update(pool)
        assert environment.count_writes() == {MOVE: 1}
        assert environment.list_changes(pool) == {}

    def test_a_move_to_a_fabric_without_members_is_refused(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        environment.count_writes()
        moved = {**pool_inputs, "cluster_fabric_name": "nowhere"}
        (problem,) = environment.find_problems("NodePool", moved, pool).items()
        assert problem[0] == "cluster_fabric_name"
        assert "fabric nowhere not found: it has no members" in problem[1]
        with pytest.raises(GpuformError, match="fabric nowhere not found: it has no members"):
            environment.update(pool, moved)
        assert environment.count_writes() == {}

    def test_a_declared_fabric_is_not_emptied(
        self, environment: Any, pool_inputs: Properties, other: Any
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        fabric = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}
        moved = {**pool_inputs, "cluster_fabric_name": "fabric2"}
        assert environment.find_problems("NodePool", moved, pool) == {}
        assert environment.find_problems("Fabric", fabric) == {}
        environment.count_writes()
        problems = environment.find_problems("NodePool", moved, pool)
        assert "the last node of fabric fabric1" in problems["cluster_fabric_name"]
        with pytest.raises(GpuformError, match="the last node of fabric fabric1"):
            environment.update(pool, moved)
        assert environment.count_writes() == {}

    def test_another_pool_joins_a_fabric_by_its_id(
        self, environment: Any, pool_inputs: Properties, other: Any
    ) -> None:
        mine = {**pool_inputs, "cluster_fabric_name": "fabric2"}
        with pytest.raises(NameTaken, match="already has a fabric named 'fabric2'") as caught:
            environment.create("NodePool", mine)
        fabric_id = other.outs["cluster_fabric_id"]
        assert f'declare cluster_fabric_id "{fabric_id}"' in str(caught.value)
        joined = {**mine, "count": 1, "cluster_fabric_id": fabric_id}
        pool = environment.create("NodePool", joined)
        assert pool.outs["cluster_fabric_id"] == fabric_id
        assert environment.list_changes(pool) == {}
        assert environment.list_changes(pool, {**joined, "count": 2}) == {"count": (1, 2)}

    @pytest.mark.parametrize(
        ("change", "path", "message"),
        [
            ({"cluster_fabric_id": "f" * 32}, "cluster_fabric_id", f"fabric {'f' * 32} not found"),
            ({"cluster_fabric_name": "fabric3"}, "cluster_fabric_name", "is named fabric2"),
            ({"node_pool_id": "POOL002-krw1b"}, "cluster_fabric_id", "in the vendor pool POOL001"),
        ],
    )
    def test_a_fabric_that_does_not_fit_is_refused_while_planning(
        self,
        environment: Any,
        pool_inputs: Properties,
        other: Any,
        change: Properties,
        path: str,
        message: str,
    ) -> None:
        fabric = {"cluster_fabric_name": "fabric2"}
        good = {**pool_inputs, **fabric, "cluster_fabric_id": other.outs["cluster_fabric_id"]}
        problems = environment.find_problems("NodePool", {**good, **change})
        assert list(problems) == [path]
        assert message in problems[path]

    def test_a_new_fabric_of_one_node_is_refused(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        problems = environment.find_problems("NodePool", declare_many(pool_inputs, 1))
        assert "one server cannot create the fabric fabric1" in problems["count"]
        problems = environment.find_problems("NodePool", declare_single_nodes(pool_inputs, a={}))
        assert list(problems) == ["nodes"]

    def test_the_last_node_of_a_fabric_is_not_replaced(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_single_nodes(pool_inputs, a={}, b={}))
        pool = environment.update(pool, declare_single_nodes(pool_inputs, a={}))
        environment.count_writes()
        with pytest.raises(GpuformError, match="deletes the last node of fabric fabric1"):
            environment.update(
                pool, declare_single_nodes(pool_inputs, a={"ip_address": "192.168.0.99"})
            )
        assert environment.count_writes() == {}


@pytest.mark.slow
class TestTrouble:
    def test_a_failed_node_keeps_the_other_nodes(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.inject_fault("POST", "^/v1/gpu-nodes$", failing="-002$")
        pool = environment.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is False
        assert pool.reason == "pool train: train-002: its state is ERROR; another run recreates it"
        kept_ids = {pool.nodes[name]["id"] for name in ("train-001", "train-003")}
        environment.count_writes()
        path = 'nodes["train-002"].state'
        assert environment.list_changes(pool) == {path: ("ERROR", "RUNNING")}
        pool = environment.update(pool)
        assert environment.count_writes() == {DELETE: 1, CREATE: 1}
        assert (pool.outs["ready"], list(pool.nodes)) == (
            True,
            sorted(environment.list_node_states()),
        )
        assert kept_ids < {node["id"] for node in pool.nodes.values()}

    def test_a_batch_without_capacity_keeps_the_other_batches(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.call_emulator("POST", "scp/settings", {"capacity": {"POOL001-krw1a": 8}})
        inputs = declare_many(pool_inputs, 11)
        pool = environment.create("NodePool", inputs)
        assert pool.outs["ready"] is False
        # The second and the third batch are sent at once: one of them is refused.
        refused = [f"train-{at:03}" for at in range(1, 12) if f"train-{at:03}" not in pool.nodes]
        assert refused in (
            ["train-009", "train-010", "train-011"],
            [f"train-00{n}" for n in "5678"],
        )
        assert f"{', '.join(refused)}: scp: POST /v1/gpu-nodes answered 400" in pool.reason
        assert environment.list_changes(pool)["count"] == (11 - len(refused), 11)
        environment.call_emulator("POST", "scp/settings", {"capacity": {"POOL001-krw1a": 11}})
        environment.count_writes()
        pool = environment.update(pool)
        assert environment.count_writes() == {CREATE: 1}
        assert (pool.outs["ready"], len(pool.nodes)) == (True, 11)

    def test_without_any_capacity_nothing_is_left(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.inject_fault("POST", "^/v1/gpu-nodes$", capacity=True)
        with pytest.raises(GpuformError, match="capacity"):
            environment.create("NodePool", pool_inputs)
        assert environment.intents.list_all() == []
        assert environment.list_node_states() == {}

    def test_a_node_that_vanishes_during_its_create_is_created_again(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs, timeout=60)
        assert "3 CREATING" in pool.reason
        environment.call_emulator("DELETE", f"scp/gpu-nodes/{pool.nodes['train-003']['id']}")
        pool = environment.update(pool)
        assert pool.outs["ready"] is True
        assert sorted(environment.list_node_states()) == list(pool.nodes)
        assert len(pool.nodes) == 3

    @pytest.mark.parametrize("skip", [0, 1, 2])
    def test_a_lost_answer_creates_no_node_twice(
        self, environment: Any, pool_inputs: Properties, skip: int
    ) -> None:
        environment.inject_fault("POST", "^/v1/gpu-nodes$", drop="after", skip=skip)
        pool = environment.create("NodePool", declare_many(pool_inputs, 13))
        assert (pool.outs["ready"], len(pool.nodes)) == (True, 13)
        assert environment.count_writes()[CREATE] == 3
        assert sorted(environment.list_node_states()) == list(pool.nodes)

    def test_a_lost_request_is_sent_again_by_the_next_run(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        environment.inject_fault("POST", "^/v1/gpu-nodes$", drop="before", skip=1)
        pool = environment.create("NodePool", declare_many(pool_inputs, 8))
        assert pool.outs["ready"] is False
        assert "the result of its create is unknown" in pool.reason
        assert len(pool.nodes) == 4
        pool = environment.update(pool)
        assert (pool.outs["ready"], len(pool.nodes)) == (True, 8)

    def test_nodes_of_a_killed_create_are_found_by_the_next_run(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        """The answer is lost, and so is the list in which the nodes would be found."""
        environment.inject_fault("POST", "^/v1/gpu-nodes$", drop="after")
        environment.inject_fault("GET", "^/v1/gpu-nodes$", status=503, skip=1, count=5)
        with pytest.raises(UnknownOutcome, match="the result of creating its nodes is unknown"):
            environment.create("NodePool", pool_inputs)
        environment.remove_faults()
        pool = environment.create("NodePool", pool_inputs)
        assert pool.outs["ready"] is True
        assert environment.count_writes() == {CREATE: 1}

    def test_nodes_of_a_killed_growth_are_found_by_the_next_run(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        """The new nodes are not in the state but in the record of their create."""
        before = environment.create("NodePool", pool_inputs)
        environment.update(before, declare_many(pool_inputs, 5))
        environment.count_writes()
        for again in (
            environment.refresh(before),
            environment.update(before, declare_many(pool_inputs, 5)),
        ):
            assert len(again.outs["node_ids"]) == 5
        assert environment.count_writes() == {}
        # Once the state has them, nothing needs the record.
        environment.refresh(again)
        assert environment.intents.list_all() == []

    def test_nodes_of_a_killed_create_are_deleted_with_the_pool(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        before = environment.create("NodePool", pool_inputs)
        environment.update(before, declare_many(pool_inputs, 5))
        environment.delete(before)
        assert environment.list_node_states() == {}

    def test_an_interruption_keeps_every_id(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_many(pool_inputs, 8), timeout=130)
        assert "not done after" in pool.reason
        assert len(pool.outs["node_ids"]) == 4
        pool = environment.update(pool)
        assert (pool.outs["ready"], len(pool.nodes)) == (True, 8)

    @pytest.mark.exact_waits
    def test_without_an_answer_a_create_fails_at_once(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        started = environment.now
        environment.inject_fault("GET", "^/v1/gpu-nodes$", status=503, count=None)
        with pytest.raises(GpuformError, match="answered 503"):
            environment.create("NodePool", pool_inputs)
        assert environment.now - started < 120
        assert environment.count_writes() == {}

    def test_two_pools_cannot_create_one_fabric_at_the_same_time(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        fabric = Target("scp", "Fabric", "fabric1", "POOL001-krw1a")
        with (
            environment.intents.claim(fabric),
            pytest.raises(NameTaken, match="another pool") as caught,
        ):
            environment.create("NodePool", pool_inputs)
        assert (
            "declare the cluster_fabric_id output of one pool as the cluster_fabric_id of the other"
            in str(caught.value)
        )
        assert environment.count_writes() == {}

    def test_a_node_of_others_with_a_declared_name_stays_unchanged(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        theirs = environment.create(
            "NodePool", declare_single_nodes(pool_inputs, a={}, b={}), name="theirs"
        )
        environment.intents.forget_all(environment.intents.list_all())  # another stack's
        names = {"train-001": {"gpu_node_name": "train-a"}, "train-002": {}}
        mine = {**declare_single_nodes(pool_inputs, **names), "cluster_fabric_name": "fabric2"}
        environment.count_writes()
        with pytest.raises(NameTaken, match="this project has no record of creating it") as caught:
            environment.create("NodePool", mine)
        assert theirs.nodes["a"]["id"] in str(caught.value)
        assert environment.count_writes() == {}

    def test_a_taken_name_stops_only_its_node_when_the_pool_grows(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_many(pool_inputs, 2))
        other = declare_single_nodes(pool_inputs, x={"gpu_node_name": "train-003"})
        fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        theirs = {**other, **fabric, "gpu_node_name_prefix": "theirs"}
        environment.create("NodePool", theirs, name="theirs")
        environment.count_writes()
        pool = environment.update(pool, declare_many(pool_inputs, 4))
        assert "train-003: scp already has" in pool.reason
        assert list(pool.nodes) == ["train-001", "train-002", "train-004"]
        assert environment.count_writes() == {CREATE: 1}


@pytest.mark.parametrize("is_stored", [True, False])
def test_nodes_of_the_same_stack_are_not_imported(
    environment: Any,
    pool_inputs: Properties,
    node_inputs: Properties,
    monkeypatch: pytest.MonkeyPatch,
    is_stored: bool,
) -> None:
    """The nodes are those of the resource `old`: in the state, or created by this run."""
    prefix = "pulumi:dev::p::gpuform:scp:NodePool"
    old = environment.create("NodePool", pool_inputs, name=f"{prefix}::old")
    node_id = old.nodes["train-001"]["id"]
    if is_stored:
        environment.intents.forget_all(environment.intents.list_all())
        parts = [(f"urn:{prefix}::old", node_id)]
        monkeypatch.setattr(FolderRecords, "list_stored_parts", lambda _records: parts)
    environment.count_writes()
    with pytest.raises(NameTaken, match=rf"{node_id}\): .* object of 'old' in") as caught:
        environment.create("NodePool", pool_inputs, name=f"{prefix}::new")
    assert "Alias(name='old')" in str(caught.value)
    assert "import" not in str(caught.value)
    solo = {
        **node_inputs,
        "gpu_node_name": "train-001",
        "cluster_fabric_id": old.outs["cluster_fabric_id"],
    }
    with pytest.raises(NameTaken, match=rf"{node_id}\): it belongs to 'old' in") as caught:
        environment.create("GpuNode", solo, name=f"{prefix.replace('NodePool', 'GpuNode')}::n")
    assert "import" not in str(caught.value)
    assert environment.count_writes() == {}


class TestImport:
    def test_numbered_nodes_are_imported_as_a_count(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        inputs, outputs = environment.import_object("NodePool", pool.id)
        unseen = {"server_type_id", "os_user_password"}
        assert inputs == {k: v for k, v in pool_inputs.items() if k not in unseen}
        assert environment.diff(outputs, pool_inputs) == []
        environment.count_writes()
        assert environment.update(outputs, pool_inputs).outs["ready"] is True
        assert environment.count_writes() == {}

    def test_named_nodes_are_imported_as_a_map(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", declare_single_nodes(pool_inputs, a={}, b={}))
        inputs, outputs = environment.import_object("NodePool", pool.id)
        assert inputs["nodes"] == {"a": {}, "b": {}}
        assert list(outputs.nodes) == ["a", "b"]
        recorded = {"server_type_id", "os_user_password"}
        assert set(environment.list_changes(outputs, pool.inputs)) == recorded

    @pytest.mark.parametrize("id_", ["x", "POOL001-krw1a/fabric1", "POOL001-krw1a/fabric1/none"])
    def test_an_id_of_no_pool_is_not_found(self, environment: Any, id_: str) -> None:
        assert environment.import_object("NodePool", id_) is None


def test_a_plan_without_an_answer_reports_skipped_checks(
    environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "cached_lists", PlanningLists())
    environment.inject_fault("GET", "", status=503, count=None)
    assert environment.find_problems("NodePool", pool_inputs) == {}
    assert "were not checked with SCP" in environment.unchecked[0]
    assert environment.count_requests() == Counter({"GET": 1})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("image_id", "IMAGE-7XFMaJpLsapKvskFMjCtmn", "did you mean IMAGE-7XFMaJpLsapKvskFMjCtmm?"),
        ("image_id", "IMAGE-9sHgDr3XkWnVtBq6ZyLmPa", "not found in kr-west1"),
        ("server_type_id", "g2v192m1920_metal", "write f90e8ef54cc2451b825608e9f95f7bcb"),
        ("server_type_id", "7ea25c90d1b348f6a80f3b6c94d27e15", "is UNAVAILABLE: use one of"),
        ("node_pool_id", "POOL001-krw1b", "node pool POOL001-krw1b not found for this account"),
        ("subnet_id", "c72a9b1e6d3f4805917e4c2b8d5f0a36", "does not serve the subnet"),
    ],
)
def test_what_the_platform_does_not_offer_is_refused_while_planning(
    environment: Any, pool_inputs: Properties, field: str, value: str, message: str
) -> None:
    problems = environment.find_problems("NodePool", {**pool_inputs, field: value})
    assert list(problems) == [field]
    assert message in problems[field]


def test_an_image_that_the_servers_do_not_run_is_refused(
    environment: Any, pool_inputs: Properties
) -> None:
    east = {"region_id": "kr-east1", "image_id": "IMAGE-9sHgDr3XkWnVtBq6ZyLmPa"}
    servers = {"server_type_id": "1b6d4f0c83a94e57b2c90a7d5e16f348"}
    problems = environment.find_problems("NodePool", {**pool_inputs, **east, **servers})
    assert "does not run the image" in problems["server_type_id"]


def test_a_replacement_does_not_take_over_the_nodes_of_the_replaced_pool(
    environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of their create may still be there; the run deletes these nodes next."""
    pool = environment.create("NodePool", pool_inputs)
    assert environment.intents.list_all() != []
    environment.count_writes()
    records = environment.intents.records
    monkeypatch.setattr(records, "list_stored_objects", lambda: [("urn:thing", pool.id)])
    with pytest.raises(NameTaken, match="it is the object that this run replaces"):
        environment.create("NodePool", {**pool_inputs, "os_user_password": "An0ther#Pass"})
    assert environment.count_writes() == {}


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_pool_joins_a_fabric_of_its_name_only_with_nodes_of_the_stack(
    environment: Any,
    pool_inputs: Properties,
    node_inputs: Properties,
    monkeypatch: pytest.MonkeyPatch,
    is_stored: bool,
) -> None:
    """A single node keeps the fabric of a pool that is replaced."""
    pool = environment.create("NodePool", pool_inputs)
    fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
    head = environment.create("GpuNode", {**node_inputs, **fabric}, name="head")
    environment.delete(pool)
    stored = [("urn:head", head.id)] if is_stored else []
    monkeypatch.setattr(environment.intents.records, "list_stored_objects", lambda: stored)
    if not is_stored:
        with pytest.raises(NameTaken, match="already has a fabric named"):
            environment.create("NodePool", pool_inputs)
        return
    recreated = environment.create("NodePool", pool_inputs)
    assert recreated.outs["ready"] is True
    assert recreated.outs["cluster_fabric_id"] == fabric["cluster_fabric_id"]
