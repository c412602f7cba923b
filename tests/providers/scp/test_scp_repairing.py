"""Test which broken nodes of a pool are recreated, how many at a time, and never twice."""

import contextlib
import json
import re
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.platforms.lens_document import HEATMAP
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.providers.lifetime import format_moment
from gpuform.providers.permissions import REPAIR_VARIABLE, REVIEWED_VARIABLE, VARIABLE
from gpuform.providers.records import Drains, Repairs
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.nodes import draining, repairs
from gpuform.providers.slurm.scheduler import NodeCondition

Properties = dict[str, Any]

ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}
NAMES = ["train-001", "train-002", "train-003", "train-004"]
ROW = 'repair["train-002"]'
AUTOMATIC = {"approve": "automatic", "on": ["platform", "not_ready"], "max_unhealthy": "50%"}


class Conditions:
    """The conditions of nodes as the scheduler reports them, beside the jobs."""

    def __init__(self) -> None:
        self.conditions = {name: NodeCondition() for name in NAMES}
        self.is_silent = False

    def __call__(self, *_: Any) -> dict[str, NodeCondition]:
        if self.is_silent:
            raise Unreachable("nobody answers")
        return dict(self.conditions)

    def set_not_ready(self, name: str, since: str = "") -> None:
        self.conditions[name] = NodeCondition(
            "NotReady: kubelet stopped posting (Kubernetes)", since
        )


def advance_one_hour(environment: Any) -> str:
    """Advance the clock by an hour, during which the nodes of the pool exist."""
    before = format_moment(environment.now)
    environment.clock.sleep(3600, threading.Event())
    return before


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, REPAIR_VARIABLE, REVIEWED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def scheduler(environment: Any, monkeypatch: pytest.MonkeyPatch) -> SimulatedScheduler:
    simulated = SimulatedScheduler(environment.clock, NAMES)
    monkeypatch.setattr(draining, "create_declared_scheduler", lambda *_: simulated)
    return simulated


@pytest.fixture
def conditions(monkeypatch: pytest.MonkeyPatch) -> Conditions:
    made = Conditions()
    monkeypatch.setattr(repairs, "list_node_conditions", made)
    return made


@pytest.fixture
def pool(environment: Any, pool_inputs: Properties, conditions: Conditions) -> Any:
    inputs = {**pool_inputs, "count": 4, "drain": ASKED, "repair": AUTOMATIC}
    made = environment.create("NodePool", inputs)
    environment.count_writes()
    return made


def declare_repair(pool: Any, **repair: Any) -> Properties:
    return {**pool.inputs, "repair": {**AUTOMATIC, **repair}}


def break_nodes(environment: Any, pool: Any, *names: str) -> Any:
    for name in names or ("train-002",):
        environment.set_node_state(pool.nodes[name]["id"], "ERROR")
    return environment.refresh(pool)


def map_ids_by_name(pool: Any) -> dict[str, str]:
    return {name: node["id"] for name, node in pool.nodes.items()}


def list_recreated(before: Any, after: Any) -> list[str]:
    return sorted(
        name for name, id_ in map_ids_by_name(after).items() if map_ids_by_name(before)[name] != id_
    )


def list_repair_notices(pool: Any, inputs: Properties | None = None) -> list[str]:
    pool_notices = NodePoolLifecycle().hooks.list_notices(inputs or pool.inputs, pool.outs, 0.0)
    return [notice.text for notice in pool_notices if notice.kind == "repair"]


def count_most_unavailable(environment: Any) -> int:
    """Return how many of the four nodes were missing at most, by the progress messages.

    Nodes that still wait for their repair count as present.
    """
    phases = [message for message in environment.messages if re.search(r"[0-9] [A-Z]+", message)]
    there = [map(int, re.findall(r"([0-9]+) (?:RUNNING|ERROR)", phase)) for phase in phases]
    return max(4 - sum(counts) for counts in there)


def assert_free(environment: Any, pool: Any, scheduler: SimulatedScheduler) -> None:
    assert (scheduler.cordoned, Drains.from_intents(environment.intents).find(pool.id)) == (
        [],
        None,
    )


def test_a_failed_node_is_planned_recreated_and_then_unchanged(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job("train-002", 30)
    pool = break_nodes(environment, pool)
    assert environment.list_changes(pool) == {ROW: ("broken", "REMAKE")}
    with environment.use_context(pool.name, preview=True):
        leaving = NodePoolLifecycle().predict_removed_nodes(pool.id, pool.outs, pool.inputs)
    assert [(node.name, len(node.jobs)) for node in leaving.nodes] == [("train-002", 1)]
    began = environment.now
    repaired = environment.update(pool)
    assert list_recreated(pool, repaired) == ["train-002"]
    assert environment.now - began >= 30 * 60
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": 1, "POST /v1/gpu-nodes": 1}
    assert (repaired.outs["ready"], repaired.outs["faults"]) == (True, [])
    assert environment.list_changes(repaired) == {}
    assert environment.list_changes(environment.refresh(repaired)) == {}
    assert_free(environment, pool, scheduler)


def test_a_fault_shows_the_time_of_its_first_observation(environment: Any, pool: Any) -> None:
    pool = break_nodes(environment, pool)
    (fault,) = pool.outs["faults"]
    assert (fault["because"], fault["instance"]) == (
        "its state is ERROR",
        map_ids_by_name(pool)["train-002"],
    )
    environment.move_clock(7200)
    (later,) = environment.refresh(pool).outs["faults"]
    assert later["since"] == fault["since"] != ""


def test_a_state_of_an_older_version_shows_its_failed_nodes(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = break_nodes(environment, pool)
    del pool.outs["faults"]
    assert environment.list_changes(pool) == {ROW: ("broken", "REMAKE")}
    assert list_recreated(pool, environment.update(pool)) == ["train-002"]


def test_without_a_declared_repair_failed_nodes_are_recreated(
    environment: Any, pool_inputs: Properties
) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "count": 4})
    pool = break_nodes(environment, pool, *NAMES[:3])
    assert set(environment.list_changes(pool)) == {f'nodes["{name}"].state' for name in NAMES[:3]}
    assert list_repair_notices(pool) == []


def test_a_declared_review_is_required_before_a_repair(
    environment: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = declare_repair(pool, approve="reviewed")
    pool = break_nodes(environment, pool)
    assert ROW not in environment.list_changes(pool, news)
    (fault,) = pool.outs["faults"]
    (notice,) = list_repair_notices(pool, news)
    assert notice.startswith(
        f"node train-002 is broken: its state is ERROR, since {fault['since']}."
    )
    assert notice.endswith("Not repaired: the repair needs a review of the plan")
    stayed = environment.update(pool, news)
    assert "train-002: its state is ERROR; not repaired: the repair needs" in stayed.reason
    assert (map_ids_by_name(stayed), environment.count_writes()) == (map_ids_by_name(pool), {})
    monkeypatch.setenv(VARIABLE, "repair")
    assert ROW in environment.list_changes(pool, news)


def test_above_max_unhealthy_no_node_is_recreated(environment: Any, pool: Any) -> None:
    pool = break_nodes(environment, pool, *NAMES[:3])
    assert [path for path in environment.list_changes(pool) if path.startswith("repair")] == []
    assert (
        "3 of 4 nodes are unhealthy, more than repair.max_unhealthy (50%)"
        in list_repair_notices(pool)[0]
    )
    assert map_ids_by_name(environment.update(pool)) == map_ids_by_name(pool)
    assert environment.count_writes() == {}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("parallel", [1, 2])
def test_max_parallel_limits_the_repairs_at_a_time(
    environment: Any, pool: Any, scheduler: SimulatedScheduler, parallel: int
) -> None:
    pool = break_nodes(environment, pool, *NAMES[:3])
    environment.messages.clear()
    repaired = environment.update(
        pool, declare_repair(pool, max_unhealthy=4, max_parallel=parallel)
    )
    assert list_recreated(pool, repaired) == NAMES[:3]
    assert count_most_unavailable(environment) == parallel
    assert environment.count_writes()["DELETE /v1/gpu-nodes"] == 3 // parallel + 3 % parallel
    assert_free(environment, pool, scheduler)


def test_a_broken_node_that_stays_does_not_stop_other_repairs(
    environment: Any, pool: Any, scheduler: SimulatedScheduler, conditions: Conditions
) -> None:
    conditions.set_not_ready("train-004", advance_one_hour(environment))
    pool = break_nodes(environment, pool)
    news = declare_repair(pool, on=["platform"])
    assert list_repair_notices(pool, news)[0].endswith("Not repaired: repair.on has no not_ready")
    scheduler.nodes_by_name["train-004"] = scheduler.nodes_by_name["train-004"].__class__(
        "train-004", is_failed=True
    )
    repaired = environment.update(pool, news)
    assert list_recreated(pool, repaired) == ["train-002"]
    assert repaired.outs["ready"] is True


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_repairs_stop_at_the_first_node_that_does_not_come_back(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = break_nodes(environment, pool, *NAMES[:2])
    environment.inject_fault("POST", "/v1/gpu-nodes$", status=400, count=None)
    stopped = environment.update(pool)
    assert "the repair has stopped: train-001 was refused" in stopped.reason
    assert "train-002 is unchanged" in stopped.reason
    assert environment.count_writes()["DELETE /v1/gpu-nodes"] == 1
    environment.remove_faults()
    repaired = environment.update(environment.refresh(stopped))
    assert set(map_ids_by_name(repaired)) == set(NAMES)
    assert environment.list_changes(repaired) == {}


def test_a_broken_node_with_a_job_is_not_recreated(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job("train-002", 300)
    pool = break_nodes(environment, pool)
    news = {**declare_repair(pool), "drain": {**ASKED, "wait_minutes": 5}}
    with pytest.raises(GpuformError, match="jobs still run on train-002"):
        environment.update(pool, news)
    assert environment.count_writes() == {}
    assert_free(environment, pool, scheduler)


def test_the_repair_of_a_locked_node_needs_a_permission(environment: Any, pool: Any) -> None:
    pool = environment.update(pool, {**pool.inputs, "lock_enabled": True})
    pool = break_nodes(environment, pool)
    with pytest.raises(GpuformError, match="train-002 is locked"):
        environment.diff(pool, pool.inputs)


def test_a_node_that_has_recovered_is_not_recreated(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = break_nodes(environment, pool)
    environment.set_node_state(pool.nodes["train-002"]["id"], "RUNNING")
    assert map_ids_by_name(environment.update(pool)) == map_ids_by_name(pool)
    assert "node train-002 is no longer broken: it stays as it is" in environment.messages


def test_the_server_in_place_of_a_broken_one_is_never_recreated(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    """The state is from before a killed run and describes a server that no longer exists."""
    before = break_nodes(environment, pool)
    repaired = environment.update(before)
    environment.count_writes()
    again = environment.update(environment.refresh(before), before.inputs)
    assert (map_ids_by_name(again), environment.count_writes()) == (map_ids_by_name(repaired), {})


UBUNTU = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_lower_limit_of_repair_and_rollout_holds(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = environment.update(pool, {**pool.inputs, "rollout": {"max_unavailable": 3}})
    pool = break_nodes(environment, pool)
    environment.messages.clear()
    news = {**pool.inputs, "image_id": UBUNTU}
    assert set(environment.list_changes(pool, news)) == {"image_id", ROW}
    rolled = environment.update(pool, news)
    assert {node["image_id"] for node in rolled.nodes.values()} == {UBUNTU}
    assert count_most_unavailable(environment) == 1
    assert environment.list_changes(rolled) == {}
    assert_free(environment, pool, scheduler)


def test_shrinking_deletes_a_broken_node_first(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = break_nodes(environment, pool)
    smaller = environment.update(pool, {**pool.inputs, "count": 3})
    assert sorted(smaller.nodes) == ["train-001", "train-003", "train-004"]
    assert {**map_ids_by_name(pool), **map_ids_by_name(smaller)} == map_ids_by_name(pool)
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": 1}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_repaired_node_of_a_stopped_pool_is_stopped(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = environment.update(pool, {**pool.inputs, "state": "STOPPED"})
    pool = break_nodes(environment, pool)
    repaired = environment.update(pool)
    assert list_recreated(pool, repaired) == ["train-002"]
    assert {node["state"] for node in repaired.nodes.values()} == {"STOPPED"}


class TestNotReady:
    def test_a_node_unusable_for_long_is_a_fault(
        self, environment: Any, pool: Any, scheduler: SimulatedScheduler, conditions: Conditions
    ) -> None:
        since = advance_one_hour(environment)
        conditions.set_not_ready("train-002", since)
        pool = environment.refresh(pool)
        (fault,) = pool.outs["faults"]
        assert (fault["cause"], fault["since"]) == ("not_ready", since)
        assert environment.list_changes(pool) == {ROW: ("broken", "REMAKE")}
        repaired = environment.update(pool)
        assert list_recreated(pool, repaired) == ["train-002"]
        conditions.conditions["train-002"] = NodeCondition()
        assert environment.list_changes(environment.refresh(repaired)) == {}

    def test_a_node_unusable_for_a_moment_is_no_fault(
        self, environment: Any, pool: Any, conditions: Conditions
    ) -> None:
        """Slurm reports no start of the fault: the age counts from the first observation."""
        conditions.set_not_ready("train-002")
        refreshed = environment.refresh(pool)
        assert (refreshed.outs["faults"], environment.list_changes(refreshed)) == ([], {})
        assert refreshed.nodes["train-002"]["trouble"].startswith("NotReady: kubelet")
        environment.clock.sleep(599, threading.Event())
        refreshed = environment.refresh(refreshed)
        assert refreshed.outs["faults"] == []
        environment.clock.sleep(2, threading.Event())
        assert [fault["node"] for fault in environment.refresh(refreshed).outs["faults"]] == [
            "train-002"
        ]

    @pytest.mark.parametrize(
        "since", ["0001-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "3000-01-01T00:00:00Z", "soon"]
    )
    def test_an_impossible_start_time_is_replaced_by_the_first_observation(
        self, environment: Any, pool: Any, conditions: Conditions, since: str
    ) -> None:
        conditions.set_not_ready("train-002", since)
        refreshed = environment.refresh(pool)
        assert (refreshed.outs["faults"], environment.list_changes(refreshed)) == ([], {})
        environment.clock.sleep(601, threading.Event())
        assert [fault["node"] for fault in environment.refresh(refreshed).outs["faults"]] == [
            "train-002"
        ]

    def test_the_start_time_of_a_replaced_machine_is_no_fault(
        self, environment: Any, pool: Any, scheduler: SimulatedScheduler, conditions: Conditions
    ) -> None:
        """Kubernetes shows the old machine under the same name until the new one joins."""
        conditions.set_not_ready("train-002", advance_one_hour(environment))
        repaired = environment.update(environment.refresh(pool))
        assert list_recreated(pool, repaired) == ["train-002"]
        assert environment.refresh(repaired).outs["faults"] == []

    def test_an_unusable_node_counts_as_unhealthy_before_it_is_a_fault(
        self, environment: Any, pool: Any, conditions: Conditions
    ) -> None:
        for name in NAMES[2:]:
            conditions.set_not_ready(name)
        pool = break_nodes(environment, pool)
        assert "3 of 4 nodes are unhealthy" in list_repair_notices(pool)[0]

    def test_a_node_that_is_ready_again_is_not_recreated(
        self, environment: Any, pool: Any, scheduler: SimulatedScheduler, conditions: Conditions
    ) -> None:
        conditions.set_not_ready("train-002", advance_one_hour(environment))
        pool = environment.refresh(pool)
        conditions.conditions["train-002"] = NodeCondition()
        assert map_ids_by_name(environment.update(pool)) == map_ids_by_name(pool)
        assert "node train-002 is usable again: it stays as it is" in environment.messages

    def test_a_stopped_node_that_is_not_ready_is_no_fault(
        self, environment: Any, pool: Any, conditions: Conditions
    ) -> None:
        conditions.set_not_ready("train-002", advance_one_hour(environment))
        environment.set_node_state(pool.nodes["train-002"]["id"], "STOPPED")
        assert environment.refresh(pool).outs["faults"] == []

    def test_a_silent_scheduler_finds_no_fault_and_is_reported(
        self, environment: Any, pool: Any, conditions: Conditions, scheduler: SimulatedScheduler
    ) -> None:
        conditions.set_not_ready("train-002", advance_one_hour(environment))
        pool = environment.refresh(pool)
        conditions.is_silent = True
        with pytest.raises(GpuformError, match="nobody answers"):
            environment.update(pool)
        assert environment.refresh(pool).outs["faults"] == []
        assert "the state of the nodes of pool train in the scheduler" in environment.unchecked[-1]

    def test_a_declared_not_ready_time_needs_a_scheduler(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        problems = environment.find_problems(
            "NodePool", {**pool_inputs, "repair": {"on": ["not_ready"]}}
        )
        assert "declare drain.kubernetes or drain.slurm" in problems["repair.on"]


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        ("NodePool", {"repair": {"on": []}}, "repair.on"),
        ("NodePool", {"repair": {"on": ["cold"]}}, "repair.on[0]"),
        ("NodePool", {"repair": {"on": ["overheated"]}}, "repair.max_temperature"),
        ("NodePool", {"repair": {"max_temperature": 90}}, "repair.on"),
        ("NodePool", {"repair": {"max_parallel": 0}}, "repair.max_parallel"),
        ("NodePool", {"repair": {"max_unhealthy": "0%"}}, "repair.max_unhealthy"),
        ("NodePool", {"repair": {"not_ready_for": "soon"}}, "repair.not_ready_for"),
        ("NodePool", {"repair": {"modes": ["REBOOT_VM"]}}, "repair.modes"),
        ("NodePool", {"repair": {"on": ["not_ready"]}, "drain": {"nodes": ["a"]}}, "repair.on"),
        ("NodePool", {"repair": {"on": ["not_ready"]}, "drain": "now"}, "drain"),
        ("GpuNode", {"repair": {"max_parallel": 1}}, "repair.max_parallel"),
        ("GpuNode", {"repair": {"on": ["not_ready"]}}, "repair.on"),
    ],
)
def test_contradictory_repairs_are_refused(
    environment: Any,
    pool_inputs: Properties,
    node_inputs: Properties,
    kind: str,
    fields: Any,
    path: str,
) -> None:
    alone = {**node_inputs, "cluster_fabric_id": "f" * 32}
    problems = environment.find_problems(
        kind, {**(pool_inputs if kind == "NodePool" else alone), **fields}
    )
    assert path in problems


def overheat_nodes(environment: Any, node: str, degrees: float) -> None:
    heatmap = json.loads(json.dumps(HEATMAP["data"]))
    for point in heatmap["temperature"]["data"]:
        point["nodeName"], point["value"] = node, degrees
    environment.call_emulator("POST", "lens/settings", {"heatmap": heatmap})


def test_an_overheated_node_is_recreated(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    news = declare_repair(pool, on=["overheated"], max_temperature=90)
    pool = environment.update(pool, news)
    overheat_nodes(environment, "train-002", 95)
    pool = environment.refresh(pool)
    assert "has 95 °C, above 90 °C (Lens)" in pool.outs["faults"][0]["because"]
    assert list(environment.list_changes(pool)) == [ROW]
    assert list_recreated(pool, environment.update(pool)) == ["train-002"]


def test_a_node_that_has_cooled_is_not_recreated(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    pool = environment.update(pool, declare_repair(pool, on=["overheated"], max_temperature=90))
    overheat_nodes(environment, "train-002", 95)
    pool = environment.refresh(pool)
    overheat_nodes(environment, "train-002", 60)
    assert map_ids_by_name(environment.update(pool)) == map_ids_by_name(pool)


class TestRequestedRepairs:
    @pytest.fixture(autouse=True)
    def _asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "train-002")

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_a_node_requested_by_name_is_recreated(
        self, environment: Any, pool: Any, scheduler: SimulatedScheduler
    ) -> None:
        assert environment.list_changes(pool) == {ROW: ("in use", "REMAKE")}
        repaired = environment.update(pool)
        assert list_recreated(pool, repaired) == ["train-002"]
        assert list_recreated(repaired, environment.update(repaired)) == ["train-002"], (
            "asked for once more"
        )

    def test_a_node_requested_by_name_needs_no_declared_repair(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", {**pool_inputs, "count": 4})
        pool = break_nodes(environment, pool, "train-002", "train-003")
        assert set(environment.list_changes(pool)) == {ROW, 'nodes["train-003"].state'}
        assert list_recreated(pool, environment.update(pool)) == ["train-002", "train-003"]

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_a_requested_repair_of_a_killed_run_is_done_once(
        self,
        environment: Any,
        pool: Any,
        scheduler: SimulatedScheduler,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        class Killed(BaseException):
            pass

        def die(*_: Any) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(Repairs, "forget", die)
            with pytest.raises(Killed):
                environment.update(pool)
        refreshed = environment.refresh(pool)
        assert list_recreated(pool, refreshed) == ["train-002"]
        environment.count_writes()
        assert map_ids_by_name(environment.update(refreshed)) == map_ids_by_name(refreshed)
        assert environment.count_writes() == {}
        assert "was recreated already, by the interrupted run of" in " ".join(environment.messages)

    def test_a_request_for_another_mode_is_refused(
        self, environment: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "train-002=REBOOT_VM")
        with pytest.raises(GpuformError, match="the platform has no repair REBOOT_VM"):
            environment.list_changes(pool)

    def test_the_last_node_of_a_fabric_is_not_recreated(
        self,
        environment: Any,
        pool: Any,
        monkeypatch: pytest.MonkeyPatch,
        scheduler: SimulatedScheduler,
    ) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "")
        news = {**declare_repair(pool), "count": 1}
        pool = environment.update(pool, news)
        (name,) = pool.nodes
        monkeypatch.setenv(REPAIR_VARIABLE, name)
        environment.count_writes()
        with pytest.raises(GpuformError, match="deletes the last node of fabric fabric1"):
            environment.update(pool, news)
        assert environment.count_writes() == {}


class TestSingleNodes:
    """An scp.GpuNode: its repair is its replacement."""

    @pytest.fixture
    def node(self, environment: Any, pool: Any, node_inputs: Properties) -> Any:
        inputs = {
            **node_inputs,
            "cluster_fabric_id": pool.outs["cluster_fabric_id"],
            "repair": {"approve": "automatic"},
        }
        made = environment.create("GpuNode", inputs, "solo")
        environment.count_writes()
        return made

    def test_a_failed_node_with_a_repair_is_replaced(self, environment: Any, node: Any) -> None:
        environment.set_node_state(node.id, "ERROR")
        refreshed = environment.refresh(node)
        assert environment.diff(refreshed, node.inputs) == ['repair["solo"]']
        (fault,) = refreshed.outs["faults"]
        assert (fault["node"], fault["instance"]) == ("solo", node.id)

    def test_a_failed_node_without_a_repair_stays(self, environment: Any, node: Any) -> None:
        environment.set_node_state(node.id, "ERROR")
        inputs = {name: value for name, value in node.inputs.items() if name != "repair"}
        assert environment.diff(environment.refresh(node), inputs) == []

    def test_a_node_requested_by_name_is_replaced(
        self, environment: Any, node: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "solo")
        assert environment.diff(node, node.inputs) == ['repair["solo"]']

    def test_a_node_that_waits_for_a_review_is_reported(self, environment: Any, node: Any) -> None:
        environment.set_node_state(node.id, "ERROR")
        inputs = {**node.inputs, "repair": {}}
        notices = GpuNodeLifecycle().hooks.list_notices(inputs, environment.refresh(node).outs, 0.0)
        assert "the repair needs a review of the plan" in next(notice.text for notice in notices)


@given(
    st.sets(st.sampled_from(range(12))),
    st.integers(1, 4),
    st.one_of(st.integers(1, 12), st.sampled_from(["1%", "25%", "50%", "100%"])),
)
def test_limits_hold_for_any_broken_nodes(failed: set[int], parallel: int, most: int | str) -> None:
    nodes = {
        f"n{at}": {
            "id": f"i{at}",
            "gpu_node_name": f"n{at}",
            "state": "ERROR" if at in failed else "RUNNING",
        }
        for at in range(12)
    }
    policy = {"approve": "automatic", "max_parallel": parallel, "max_unhealthy": most}
    decision = NodePoolLifecycle.hooks.decide_repairs({"gpu_nodes": nodes}, {"repair": policy})
    bound = most if isinstance(most, int) else max(1, 12 * int(most[:-1]) // 100)
    assert {due_repair.instance for due_repair in decision.due_repairs} == (
        {f"i{at}" for at in failed} if len(failed) <= bound else set()
    )
    assert decision.max_parallel == parallel


class Killed(BaseException):
    """The process died here."""


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    failed=st.sets(st.sampled_from(NAMES), min_size=1, max_size=3),
    parallel=st.integers(1, 3),
    dies_at=st.integers(1, 8),
    is_done=st.booleans(),
)
def test_a_killed_repair_deletes_each_broken_server_exactly_once(
    environment: Any,
    pool_inputs: Properties,
    scheduler: SimulatedScheduler,
    *,
    failed: set[str],
    parallel: int,
    dies_at: int,
    is_done: bool,
) -> None:
    """With `is_done`, the request at which the process dies has taken effect."""
    environment.call_emulator("POST", "reset")
    repair = {"approve": "automatic", "max_unhealthy": 4, "max_parallel": parallel}
    pool = environment.create(
        "NodePool", {**pool_inputs, "count": 4, "drain": ASKED, "repair": repair}
    )
    broken_ids = {map_ids_by_name(pool)[name] for name in failed}
    others = set(map_ids_by_name(pool).values()) - broken_ids
    pool = break_nodes(environment, pool, *failed)
    environment.messages.clear()
    environment.call_emulator("DELETE", "requests")
    sent = 0

    def kill_at_request(real: Any) -> Any:
        def send(*arguments: Any) -> Any:
            nonlocal sent
            sent += 1
            if sent == dies_at and not is_done:
                raise Killed
            answer = real(*arguments)
            if sent == dies_at:
                raise Killed
            return answer

        return send

    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(Killed):
        for name in ("delete_nodes", "create_nodes"):
            patched.setattr(ScpClient, name, kill_at_request(getattr(ScpClient, name)))
        environment.update(pool)
    for _ in range(2):
        environment.clock.sleep(3600, threading.Event())
        pool = environment.update(environment.refresh(pool))
    assert pool.outs["ready"] is True
    assert environment.list_changes(pool) == {}
    requests = [
        recorded_request
        for recorded_request in environment.call_emulator("GET", "requests")
        if recorded_request["method"] == "DELETE"
    ]
    deleted = [id_ for request in requests for id_ in request["body"]["gpu_node_ids"]]
    assert sorted(deleted) == sorted(broken_ids)
    assert all(len(request["body"]["gpu_node_ids"]) <= parallel for request in requests)
    assert count_most_unavailable(environment) <= parallel
    assert others < set(map_ids_by_name(pool).values())
    assert set(map_ids_by_name(pool)) == set(NAMES)
    assert_free(environment, pool, scheduler)
