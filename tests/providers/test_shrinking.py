"""Test shrinking a Together cluster, on the emulated platform and its Kubernetes."""

import os
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context
from support.schedulers.cluster_with_jobs import (
    KUBERNETES_PATH,
    PROGRAM,
    Cluster,
    Killed,
    Properties,
    create_cluster,
)

from gpuform.providers.context import ProviderContext, RunContext, use_context
from gpuform.providers.draining import DrainOperation
from gpuform.providers.errors import Cancelled, GpuformError, OutOfCapacity, UnplannedRemoval
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster import ClusterOperations
from gpuform.schemas.values import RemovalCount


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    return create_cluster(emulator, cluster_inputs)


def die_at(monkeypatch: pytest.MonkeyPatch, request: str) -> None:
    """Kill the process before the given request to the platform or the scheduler."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    target, name = {
        "wait": (ProviderContext, "sleep"),
        "asking": (DrainOperation, "record_request"),
        "send": (TogetherClient, "update_cluster"),
    }[request]
    monkeypatch.setattr(target, name, die)


class TestChoice:
    def test_an_idle_node_is_removed_instead_of_the_newest(self, cluster: Cluster) -> None:
        jobs = [cluster.start_pod(worker) for worker in (0, 2, 3)]
        news = cluster.declare()
        assert cluster.predict_removals(news) == {"train-worker-1": ("idle", [])}
        assert cluster.sent_updates == []
        outs = cluster.update(news)
        assert (cluster.workers, outs["ready"]) == (["0", "2", "3"], True)
        assert cluster.sent_updates == [{"num_gpus": 24}]
        assert not set(jobs) & cluster.pod_ends.keys()
        assert (cluster.cordoned, cluster.drain_record) == ([], None)

    @pytest.mark.slow
    def test_named_nodes_are_removed_when_their_jobs_have_ended(self, cluster: Cluster) -> None:
        job = cluster.start_pod(0, minutes=90)
        news = cluster.declare(nodes=["train-worker-0"], wait_minutes=120)
        assert cluster.predict_removals(news) == {"train-worker-0": ("named", [job])}
        outs = cluster.update(news)
        assert (cluster.workers, outs["ready"]) == (["1", "2", "3"], True)
        assert cluster.pod_ends == {job: "succeeded"}
        waited = [message for message in cluster.emulator.reported.progress if job in message]
        assert waited

    def test_a_node_with_a_dead_kubelet_is_removed_first(self, cluster: Cluster) -> None:
        cluster.call_emulated_kubernetes("POST", "nodes/train-worker-2", {"ready": False})
        cluster.update(cluster.declare())
        assert cluster.workers == ["0", "1", "3"]

    def test_a_node_cordoned_by_an_operator_is_removed_first(self, cluster: Cluster) -> None:
        cluster.call_kubernetes("PATCH", "nodes/train-worker-1", {"spec": {"unschedulable": True}})
        cluster.update(cluster.declare())
        assert cluster.workers == ["0", "2", "3"]

    def test_preemptible_nodes_are_not_counted_by_num_gpus(self, cluster: Cluster) -> None:
        grown = {**cluster.inputs, "num_preemptible_gpus": 16.0, **PROGRAM}
        cluster.inputs = grown
        cluster.update(grown)
        cluster.emulator.advance(3600)
        assert cluster.predict_removals(cluster.declare()) == {"train-worker-3": ("idle", [])}
        cluster.update(cluster.declare())
        assert [name for name in cluster.workers if "preemptible" not in name] == ["0", "1", "2"]

    def test_invalid_node_names_are_refused(self, cluster: Cluster) -> None:
        news = cluster.declare(nodes=["train-worker-9"])
        for ask in (cluster.predict_removals, cluster.update):
            with pytest.raises(GpuformError, match=r"drain.nodes\[0\]: node train-"):
                ask(news)
        cluster.assert_unchanged()

    def test_growing_removes_no_node_and_ignores_earlier_names(self, cluster: Cluster) -> None:
        news = cluster.declare(40.0, nodes=["train-worker-9"])
        assert cluster.predict_removals(news) == {}
        assert cluster.update(news)["ready"] is True

    def test_a_change_of_other_fields_sends_no_node_count(self, cluster: Cluster) -> None:
        cluster.emulator.send_as_somebody_else("PUT", f"/clusters/{cluster.id}", {"num_gpus": 48})
        cluster.emulator.advance(3600)
        assert cluster.predict_removals(cluster.declare(32.0, wait_minutes=5)) == {}

    def test_nodes_added_by_others_are_not_removed_under_a_job(self, cluster: Cluster) -> None:
        """State 32, platform 48, declared 40: two nodes are removed, one of them idle."""
        cluster.emulator.send_as_somebody_else("PUT", f"/clusters/{cluster.id}", {"num_gpus": 48})
        cluster.emulator.advance(3600)
        job = cluster.start_pod(5, minutes=30)
        cluster.update(cluster.declare(40.0))
        assert cluster.workers == ["0", "1", "2", "3", "5"]
        assert cluster.pod_ends.get(job) != "killed"

    @pytest.mark.parametrize("planned", [RemovalCount(1, 8), RemovalCount(None, 8)])
    def test_more_nodes_than_planned_are_not_even_drained(
        self, cluster: Cluster, planned: RemovalCount
    ) -> None:
        cluster.emulator.send_as_somebody_else("PUT", f"/clusters/{cluster.id}", {"num_gpus": 48})
        cluster.emulator.advance(3600)
        with pytest.raises(UnplannedRemoval) as refused:
            cluster.update(cluster.declare(), planned_removal=planned)
        assert str(refused.value).startswith(
            f"cluster train: this would remove 3 nodes with 24 GPUs, and the plan removes {planned}"
        )
        assert (cluster.cordoned, cluster.drain_record) == ([], None)
        assert cluster.sent_updates == [{"num_gpus": 48}]

    @pytest.mark.parametrize(("num_gpus", "drained"), [(24.0, "1 node"), (40.0, "none")])
    def test_a_cluster_that_grows_during_the_drain_or_the_request_is_not_shrunk(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, num_gpus: float, drained: str
    ) -> None:
        send_changes = ClusterOperations._send_changes

        def enlarge_before(*arguments: Any) -> None:
            cluster.emulator.send_as_somebody_else(
                "PUT", f"/clusters/{cluster.id}", {"num_gpus": 64}
            )
            cluster.emulator.advance(3600)
            send_changes(*arguments)

        monkeypatch.setattr(ClusterOperations, "_send_changes", enlarge_before)
        with pytest.raises(UnplannedRemoval, match=f"gpuform has drained {drained}: it has grown"):
            cluster.update(cluster.declare(num_gpus))
        assert cluster.sent_updates == [{"num_gpus": 64}]
        assert (len(cluster.workers), cluster.cordoned, cluster.drain_record) == (8, [], None)


class TestBusy:
    @pytest.fixture
    def jobs(self, cluster: Cluster) -> list[str]:
        return [cluster.start_pod(worker, minutes=200) for worker in range(4)]

    @pytest.mark.slow
    def test_a_wait_for_jobs_times_out(self, cluster: Cluster, jobs: list[str]) -> None:
        before = cluster.outs
        with pytest.raises(GpuformError) as raised:
            cluster.update(cluster.declare(wait_minutes=30))
        assert "cluster train: no node was removed" in str(raised.value)
        assert f"jobs still run on train-worker-3: {jobs[3]}" in str(raised.value)
        assert cluster.sent_updates == []
        assert cluster.outs == before
        cluster.assert_unchanged()

    def test_on_busy_fail_refuses_the_shrink(self, cluster: Cluster, jobs: list[str]) -> None:
        with pytest.raises(GpuformError, match=jobs[3]):
            cluster.update(cluster.declare(on_busy="fail"))
        cluster.assert_unchanged()

    def test_on_busy_evict_evicts_the_jobs(self, cluster: Cluster, jobs: list[str]) -> None:
        cluster.update(cluster.declare(on_busy="evict"))
        assert cluster.workers == ["0", "1", "2"]
        assert cluster.pod_ends == {jobs[3]: "evicted"}

    @pytest.mark.slow
    def test_a_disruption_budget_prevents_the_shrink(self, cluster: Cluster) -> None:
        for worker in range(4):
            cluster.start_pod(worker, labels={"app": "db"})
        budget = {
            "metadata": {"name": "db"},
            "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "db"}}},
        }
        path = "apis/policy/v1/namespaces/ml/poddisruptionbudgets"
        cluster.call_kubernetes("POST", path, budget)
        with pytest.raises(GpuformError, match="jobs still run on train-worker-3: ml/on-3"):
            cluster.update(cluster.declare(on_busy="evict", wait_minutes=10))
        assert cluster.pod_ends == {}
        cluster.assert_unchanged()

    def test_a_pod_started_on_another_node_is_not_evicted(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[str] = []
        cordon = KubernetesScheduler.cordon

        def then_start(scheduler: KubernetesScheduler, *given: Any) -> Any:
            cordoned = cordon(scheduler, *given)
            started.append(cluster.start_pod(0, node=None, name="new", gpus=8))
            return cordoned

        monkeypatch.setattr(KubernetesScheduler, "cordon", then_start)
        cluster.update(cluster.declare())
        assert cluster.workers == ["0", "1", "2"]
        assert "ml/new" not in cluster.pod_ends


class TestTroubles:
    def test_the_shrink_is_refused_if_kubernetes_does_not_answer(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("GET", KUBERNETES_PATH, status=503, count=None)
        # the number of the nodes does not depend on their jobs
        assert cluster.predict_removals(cluster.declare()) == {"": ("unchosen", [])}
        (messages,) = cluster.emulator.reported.unchecked
        assert messages.startswith("the nodes to remove from cluster train, and their jobs: ")
        with pytest.raises(GpuformError, match="cluster train: no node was removed"):
            cluster.update(cluster.declare())
        cluster.emulator.clear_faults()
        assert cluster.sent_updates == []
        cluster.assert_unchanged()

    @pytest.mark.slow
    def test_a_shrink_stopped_midway_is_undone_by_the_next_run(self, cluster: Cluster) -> None:
        for worker in range(4):
            cluster.start_pod(worker, minutes=200)
        fault = {"status": 503, "count": None, "skip": 6}
        cluster.emulator.add_fault("GET", KUBERNETES_PATH, **fault)
        with pytest.raises(GpuformError, match="no node was removed"):
            cluster.update(cluster.declare(wait_minutes=20))
        cluster.emulator.clear_faults()
        assert "may still be cordoned" in cluster.emulator.reported.warnings[-1]
        assert cluster.cordoned == ["3"]
        assert cluster.sent_updates == []
        same = {**cluster.inputs, **PROGRAM}
        assert cluster.list_changed_paths(same) == ["drain"]
        cluster.update(same)
        assert cluster.list_changed_paths(same) == []
        assert cluster.sent_updates == []
        cluster.assert_unchanged()

    def test_a_different_removed_node_is_reported(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("PUT", "^/compute/clusters/", takes="worker-0$")
        outs = cluster.update(cluster.declare())
        assert cluster.workers == ["1", "2", "3"]
        assert outs["ready"] is False
        expected_message = (
            "the platform removed train-worker-0 instead of train-worker-3, which takes jobs"
        )
        assert expected_message in outs["not_ready_reason"]
        assert (cluster.cordoned, cluster.drain_record) == ([], None)
        news = cluster.declare()
        assert cluster.list_changed_paths(news) == ["ready"]
        assert cluster.update(news)["ready"] is True
        assert cluster.list_changed_paths(news) == []

    @pytest.mark.parametrize("status", [400, 409])
    def test_a_refused_shrink_uncordons_the_nodes(self, cluster: Cluster, status: int) -> None:
        cluster.emulator.add_fault(
            "PUT", "^/compute/clusters/", status=status, body={"error": "no"}
        )
        with pytest.raises(GpuformError):
            cluster.update(cluster.declare())
        cluster.assert_unchanged()

    def test_a_shrink_with_a_lost_answer_is_resumed(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("PUT", "^/compute/clusters/", drop="after", count=None)
        with pytest.raises(GpuformError):
            cluster.update(cluster.declare())
        cluster.emulator.clear_faults()
        assert cluster.drain_record.asked
        cluster.update(cluster.declare())
        assert cluster.workers == ["0", "1", "2"]
        assert (cluster.cordoned, cluster.drain_record) == ([], None)

    @pytest.mark.slow
    def test_an_interrupted_shrink_uncordons_the_nodes(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.start_pod(3, minutes=200)
        news = cluster.declare(nodes=["train-worker-3"])
        call = cluster.emulator.create_context()
        change_context(
            call, on_progress=lambda text: call.cancelled.set() if "waiting for" in text else None
        )
        with use_context(call), pytest.raises(Cancelled):
            cluster.lifecycle.update(cluster.id, {**cluster.outs, **PROGRAM}, news)
        cluster.assert_unchanged()


class TestKilled:
    @pytest.mark.slow
    @pytest.mark.parametrize("killed_request", ["wait", "asking", "send"])
    @pytest.mark.parametrize("next_run", ["same", "reverted", "refresh", "destroy", "other"])
    def test_the_next_run_resumes_or_undoes_a_killed_shrink(
        self, cluster: Cluster, killed_request: str, next_run: str
    ) -> None:
        job = cluster.start_pod(0, minutes=500)
        with pytest.MonkeyPatch.context() as patched:
            die_at(patched, killed_request)
            with pytest.raises(Killed):
                cluster.update(cluster.declare())
        assert cluster.cordoned == ["3"]
        same = {**cluster.inputs, **PROGRAM}
        if next_run == "same":
            cluster.update(cluster.declare())
            assert cluster.workers == ["0", "1", "2"]
        elif next_run == "other":
            cluster.update(cluster.declare(nodes=["train-worker-1"]))
            assert cluster.workers == ["0", "2", "3"]
        elif next_run == "refresh":
            cluster.refresh(preview=True)
            assert cluster.cordoned == ["3"]  # who only looks changes nothing
            cluster.refresh()
            cluster.assert_unchanged()
        elif next_run == "reverted":
            assert cluster.list_changed_paths(same) == ["drain"]
            cluster.update(same)
            cluster.assert_unchanged()
            assert cluster.list_changed_paths(same) == []
        else:
            run = RunContext({**os.environ, "GPUFORM_ALLOW": "evict-jobs"})
            with cluster.emulator.use_context_of(run=run):
                cluster.lifecycle.delete(cluster.id, {**cluster.outs, **PROGRAM})
            assert cluster.drain_record is None
            return
        assert (cluster.cordoned, cluster.drain_record) == ([], None)
        assert job not in cluster.pod_ends

    def test_a_reverted_declaration_after_the_request_grows_back(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("PUT", "^/compute/clusters/", drop="after", count=None)
        with pytest.raises(GpuformError):
            cluster.update(cluster.declare())
        cluster.emulator.clear_faults()
        same = {**cluster.inputs, **PROGRAM}
        assert cluster.list_changed_paths(same) == ["drain"]
        assert cluster.update(same)["ready"] is True
        assert len(cluster.workers) == 4
        assert (cluster.cordoned, cluster.drain_record) == ([], None)

    @pytest.mark.exact_waits
    def test_a_refresh_does_not_undo_a_running_removal(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("PUT", "^/compute/clusters/", drop="after", count=None)
        with pytest.raises(GpuformError):
            cluster.update(cluster.declare())
        cluster.emulator.clear_faults()
        cluster.refresh()
        assert cluster.cordoned == ["3"]
        cluster.emulator.advance(3600)
        cluster.refresh()
        assert (cluster.workers, cluster.drain_record) == (["0", "1", "2"], None)

    def test_a_further_shrink_waits_for_the_first(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("PUT", "^/compute/clusters/", drop="after", count=None)
        with pytest.raises(GpuformError):
            cluster.update(cluster.declare())
        cluster.emulator.clear_faults()
        job = cluster.start_pod(0)
        cluster.update(cluster.declare(8.0))
        assert cluster.workers == ["0"]
        assert job not in cluster.pod_ends


def test_missing_capacity_for_growth_cordons_no_node(cluster: Cluster) -> None:
    cluster.emulator.add_fault("PUT", "^/compute/clusters/", capacity=True, count=None)
    with pytest.raises(OutOfCapacity):
        cluster.update(cluster.declare(40.0))
    cluster.assert_unchanged()


def test_a_shrink_needs_few_scheduler_requests(cluster: Cluster) -> None:
    cluster.emulator.http.delete("/_emulator/requests")
    cluster.update(cluster.declare())
    requests = [
        request for request in cluster.emulator.list_requests() if "/api/v1" in request["path"]
    ]
    # Three looks of two lists each; a cordon reads and writes its node.
    assert [request["method"] for request in requests] == ["GET"] * 3 + ["PATCH"] + ["GET"] * 4
