"""Test clusters with reserved, on-demand and preemptible GPUs: automatic scaling is never drift."""

from typing import Any

import pytest

from gpuform.providers.context import use_context
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.cluster_view import evaluate_cluster
from gpuform.schemas.together import wire

Properties = dict[str, Any]


@pytest.fixture
def mixed_cluster(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> tuple[str, Properties, Properties]:
    """Create a cluster with 8 prepaid, 16 on-demand and 16 preemptible GPUs."""
    declared = {
        **cluster_inputs,
        "billing_type": "RESERVED",
        "duration_days": 30.0,
        "num_gpus": 24.0,
        "num_reserved_gpus": 8.0,
        "num_preemptible_gpus": 16.0,
    }
    with emulator.use_context_of():
        inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
        created = lifecycle.create(inputs)
    return created.id, {**created.outs, "__provider": "pickled"}, inputs


def _refresh(lifecycle: ClusterLifecycle, emulator: Any, id_: str, outs: Properties) -> Properties:
    with emulator.use_context_of():
        return {**lifecycle.read(id_, outs).outs, "__provider": "pickled"}


@pytest.mark.slow
def test_a_new_cluster_does_not_wait_for_preemptible_gpus(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, _ = mixed_cluster
    (post,) = emulator.list_requests("POST")
    counts = ("num_gpus", "num_reserved_gpus", "num_preemptible_gpus")
    assert [post["body"][name] for name in counts] == [24, 8, 16]
    assert [outs[name] for name in counts] == [24, 8, 16]
    assert outs["ready"] is True
    rendered = emulator.send_as_somebody_else("GET", f"/clusters/{id_}")
    assert (rendered["num_reserved_gpus"], rendered["desired_preemptible_gpus"]) == (8, 16)


def test_preemptible_gpus_that_appear_and_vanish_are_no_drift(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, inputs = mixed_cluster
    allocated = []
    for step in range(6):
        if step == 4:
            emulator.add_fault("GET", "^/compute/clusters", preempted=True)
        outs = _refresh(lifecycle, emulator, id_, outs)
        allocated.append(outs["allocated_preemptible_gpus"])
        assert (outs["num_gpus"], outs["num_preemptible_gpus"], outs["ready"]) == (24, 16, True)
        assert lifecycle.list_changes(outs, inputs) == []
        emulator.advance(300)
    assert max(allocated) == 16
    assert allocated[-2:] == [0, 0]


@pytest.mark.slow
def test_each_gpu_count_is_updated_in_place_separately(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, inputs = mixed_cluster
    emulator.advance(3600)
    for name, value in (
        ("num_gpus", 32),
        ("num_preemptible_gpus", 8),
        ("num_reserved_gpus", 16),
        ("num_gpus", 24),
    ):
        inputs = {**inputs, name: value}
        (change,) = lifecycle.list_changes(outs, inputs)
        assert (change.path, change.replaces) == (name, False)
        with emulator.use_context_of():
            updated = lifecycle.update(id_, outs, inputs)
        assert updated.outs is not None
        outs = {**updated.outs, "__provider": "pickled"}
        assert outs["ready"] is True
        assert emulator.list_requests("PUT")[-1]["body"] == {name: value}
        outs = _refresh(lifecycle, emulator, id_, outs)
        assert lifecycle.list_changes(outs, inputs) == []
    assert len(emulator.list_objects("clusters")) == 1


def test_a_change_by_somebody_else_is_drift(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, inputs = mixed_cluster
    emulator.send_as_somebody_else(
        "PUT", f"/clusters/{id_}", {"num_gpus": 48, "num_preemptible_gpus": 8}
    )
    emulator.advance(3600)
    outs = _refresh(lifecycle, emulator, id_, outs)
    paths = {change.path: change.before for change in lifecycle.list_changes(outs, inputs)}
    assert paths == {"num_gpus": 48, "num_preemptible_gpus": 8}
    emulator.send_as_somebody_else(
        "PUT", f"/clusters/{id_}", {"num_gpus": 16, "num_preemptible_gpus": 16}
    )
    emulator.advance(3600)
    outs = _refresh(lifecycle, emulator, id_, outs)
    paths = {change.path: change.before for change in lifecycle.list_changes(outs, inputs)}
    assert paths == {"num_gpus": 16}


def test_undeclared_preemptible_gpus_are_kept_and_no_drift(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, inputs = mixed_cluster
    inputs = {k: v for k, v in inputs.items() if k != "num_preemptible_gpus"} | {"num_gpus": 32}
    with emulator.use_context_of():
        updated = lifecycle.update(id_, outs, inputs)
    assert updated.outs is not None
    outs = {**updated.outs, "__provider": "pickled"}
    for _ in range(3):
        emulator.advance(300)
        outs = _refresh(lifecycle, emulator, id_, outs)
        assert lifecycle.list_changes(outs, inputs) == []
    assert outs["allocated_preemptible_gpus"] == 16


def test_autoscaling_in_progress_is_no_drift(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    inputs = {**cluster_inputs, "auto_scale": True, "auto_scale_max_gpus": 64.0}
    call = emulator.create_context()
    with use_context(call):
        inputs = {**lifecycle.check({}, inputs).inputs, "__provider": "pickled"}
        created = lifecycle.create(inputs)
    outs = {**created.outs, "__provider": "pickled"}
    for gpus, is_drift in ((32, False), (16, False), (72, True)):
        emulator.send_as_somebody_else("PUT", f"/clusters/{created.id}", {"num_gpus": gpus})
        emulator.advance(3600)
        read = _refresh(lifecycle, emulator, created.id, outs)
        assert bool(lifecycle.list_changes(read, inputs)) is is_drift


@pytest.mark.parametrize("counted", [True, False], ids=["counted in num_gpus", "beside num_gpus"])
@pytest.mark.parametrize("allocated", [0, 8, 16])
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_counts_that_lag_behind_each_other_leave_a_cluster_ready(
    counted: bool, allocated: int, nodes: int
) -> None:
    """Nodes, their count and num_gpus come from three answers in no promised order."""
    cluster = wire.Cluster.model_validate(
        {
            "cluster_id": "c1",
            "num_gpus": 16 + (allocated if counted else 0),
            "status": "Ready",
            "desired_preemptible_gpus": 16,
            "allocated_preemptible_gpus": allocated,
            "gpu_worker_nodes": [{"node_id": f"n{at}"} for at in range(nodes)],
        }
    )
    assert evaluate_cluster(cluster, 16, may_have_more=True).is_done
    assert not evaluate_cluster(cluster, 40, may_have_more=True).is_done


def test_preempted_nodes_are_reported_once(
    lifecycle: ClusterLifecycle, emulator: Any, mixed_cluster: tuple[str, Properties, Properties]
) -> None:
    id_, outs, _ = mixed_cluster
    emulator.advance(3600)
    before = _refresh(lifecycle, emulator, id_, outs)
    emulator.add_fault("GET", "^/compute/clusters", preempted=True)
    after = _refresh(lifecycle, emulator, id_, before)
    messages = [notice.text for notice in lifecycle.hooks.find_observed_news(before, after)]
    assert sorted(messages) == [
        "train-preemptible-0 left (TogetherPreempted)",
        "train-preemptible-1 left (TogetherPreempted)",
    ]
    assert list(lifecycle.hooks.find_observed_news(after, after)) == []
    (notice,) = [n for n in lifecycle.hooks.list_notices({}, after, 0.0) if "instead of" in n.text]
    assert notice.text.startswith("the cluster has 3 nodes instead of 5: train-preemptible-")
    assert "(TogetherPreempted)" in notice.text
    assert not [n for n in lifecycle.hooks.list_notices({}, before, 0.0) if "instead of" in n.text]
    assert list(lifecycle.hooks.find_observed_news({}, after)) == []
