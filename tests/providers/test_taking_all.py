"""Test destroying a Together cluster: not while jobs run on its nodes."""

from typing import Any

import pytest
from support.schedulers.cluster_with_jobs import (
    PROGRAM,
    Cluster,
    Killed,
    Properties,
    create_cluster,
)

from gpuform.providers.draining import DrainOperation
from gpuform.providers.errors import GpuformError, UnplannedRemoval
from gpuform.providers.together.client import TogetherClient
from gpuform.schemas.values import RemovalCount

NO_LIMIT = RemovalCount()


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    return create_cluster(emulator, cluster_inputs)


def destroy(cluster: Cluster, planned_removal: RemovalCount = NO_LIMIT, /, **drain: Any) -> None:
    with cluster.emulator.use_context_of(planned_removal=planned_removal):
        cluster.lifecycle.delete(cluster.id, {**cluster.outs, "drain": drain, **PROGRAM})


def test_a_plan_to_delete_an_autoscaled_cluster_counts_its_declared_maximum(
    emulator: Any, cluster_inputs: Properties
) -> None:
    scaling = {"auto_scale": True, "auto_scale_max_gpus": 40.0}
    cluster = create_cluster(emulator, {**cluster_inputs, **scaling})
    removal = plan_removal(cluster)
    assert (len(removal.nodes), removal.count_gpus(), removal.may_grow) == (4, 40, True)
    planned = RemovalCount(None, removal.count_gpus())

    def resize(gpus: int) -> None:
        emulator.send_as_somebody_else("PUT", f"/clusters/{cluster.id}", {"num_gpus": gpus})
        emulator.advance(3600)

    resize(48)
    removal = plan_removal(cluster)
    assert (removal.count_gpus(), removal.may_grow) == (48, False)
    with pytest.raises(UnplannedRemoval, match="6 nodes with 48 GPUs, and the plan removes 40"):
        destroy(cluster, planned)
    resize(40)
    destroy(cluster, planned)
    assert not cluster.exists


def plan_removal(cluster: Cluster) -> Any:
    with cluster.emulator.use_context_of(preview=True):
        return cluster.lifecycle.predict_nodes_removed_with_object(
            cluster.id, {**cluster.outs, **PROGRAM}, "deleted"
        )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_destroy_waits_for_jobs(cluster: Cluster) -> None:
    job = cluster.start_pod(2, minutes=30)
    destroy(cluster)
    assert cluster.pod_ends[job] == "succeeded"
    assert cluster.drain_record is None


def test_a_refused_destroy_cordons_no_node(cluster: Cluster) -> None:
    job = cluster.start_pod(2)
    for drain in ({"on_busy": "fail"}, {"wait_minutes": 10}):
        with pytest.raises(GpuformError, match=r"cluster .*: no node was removed: .*ml/on-2"):
            destroy(cluster, **drain)
    assert (cluster.cordoned, cluster.drain_record) == ([], None)
    assert cluster.exists
    assert job not in cluster.pod_ends


def test_a_plan_without_a_key_reports_the_skipped_check(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    assert plan_removal(cluster) is None
    (messages,) = cluster.emulator.reported.unchecked
    assert messages.startswith("the nodes removed with it, and their jobs: the API key ")


def test_a_permission_allows_ending_jobs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster.start_pod(2)
    monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
    destroy(cluster, on_busy="fail")
    assert cluster.pod_ends[job] == "evicted"


def test_an_unreachable_scheduler_prevents_the_destroy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.emulator.add_fault(
        "GET", "^/_emulator/kubernetes|/api/v1/nodes", status=503, count=None
    )
    with pytest.raises(GpuformError, match="no node was removed") as raised:
        destroy(cluster)
    assert "--allow evict-jobs" in str(raised.value)
    assert cluster.exists
    monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
    destroy(cluster)
    assert not cluster.exists


def test_the_plan_names_each_job(cluster: Cluster) -> None:
    job = cluster.start_pod(2)
    removal = plan_removal(cluster)
    assert [node.because for node in removal.nodes] == ["deleted"] * 4
    assert [[item.id for item in node.jobs] for node in removal.busy] == [[job]]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("patched_class", "name"),
    [
        (DrainOperation, "_wait_until_idle"),
        (DrainOperation, "record_request"),
        (TogetherClient, "delete_cluster"),
    ],
)
def test_a_killed_destroy_that_is_given_up_is_undone(
    patched_class: type, name: str, cluster: Cluster
) -> None:
    """The next refresh runs for a stack that no longer deletes the cluster."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    job = cluster.start_pod(2, minutes=30)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patched_class, name, die)
        with pytest.raises(Killed):
            destroy(cluster)
    assert cluster.cordoned == ["0", "1", "2", "3"]
    cluster.refresh()
    assert (cluster.cordoned, cluster.drain_record) == ([], None)
    assert cluster.exists
    assert cluster.pod_ends.get(job) in (None, "succeeded")


def test_a_refused_deletion_restores_every_node(cluster: Cluster) -> None:
    cluster.emulator.add_fault("DELETE", "^/compute/clusters/", status=403, count=None)
    with pytest.raises(GpuformError):
        destroy(cluster)
    assert (cluster.cordoned, cluster.drain_record) == ([], None)


def test_a_state_of_the_former_name_keeps_its_policy(cluster: Cluster) -> None:
    cluster.start_pod(2)
    outs = {**cluster.outs, "scale_down": {"on_busy": "fail"}, **PROGRAM}
    with cluster.emulator.use_context_of():
        assert cluster.lifecycle.list_changes(outs, {**cluster.inputs, **PROGRAM}, cluster.id) == []
        with pytest.raises(GpuformError, match="jobs run on"):
            cluster.lifecycle.delete(cluster.id, outs)


def test_the_former_policy_name_is_reported(cluster: Cluster) -> None:
    with cluster.emulator.use_context_of():
        news = {**cluster.inputs, "scale_down": {"on_busy": "fail"}}
        assert not cluster.lifecycle.check(cluster.outs, news).failures
    assert "scale_down is now drain: write drain" in cluster.emulator.reported.warnings
