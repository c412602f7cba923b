"""Test workers of a Together cluster as its Kubernetes reports them, in refreshes and waits."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.workers import READY_TIMEOUT_S

Properties = dict[str, Any]
PROGRAM = {"__provider": "pickled"}
NODES = "/api/v1/nodes"
SILENT = "worker train-worker-1 is NotReady in Kubernetes: Kubelet stopped posting status"


@dataclass
class Cluster:
    """A cluster of two workers, one of them Ready, as the state stores it."""

    emulator: Any
    id: str
    inputs: Properties
    outs: Properties
    lifecycle: ClusterLifecycle = field(default_factory=ClusterLifecycle)

    def refresh(self) -> Properties:
        with self.emulator.use_context_of():
            self.outs = dict(self.lifecycle.read(self.id, self.outs).outs)
        return self.outs

    def up(self) -> Properties:
        with self.emulator.use_context_of():
            news = {**self.inputs, **PROGRAM}
            result = self.lifecycle.update(self.id, {**self.outs, **PROGRAM}, news)
        self.outs = dict(result.outs)
        return self.outs

    def plan(self) -> list[str]:
        with self.emulator.use_context_of():
            changes = self.lifecycle.list_changes(
                {**self.outs, **PROGRAM}, {**self.inputs, **PROGRAM}, self.id
            )
        return [change.path for change in changes]

    def list_notices(self) -> list[str]:
        notices = self.lifecycle.hooks.list_notices(self.inputs, self.outs, 0.0)
        return [notice.text for notice in notices]

    def send_control(self, kind: str, path: str, body: Any) -> Any:
        answer = self.emulator.http.post(f"/_emulator/{kind}/{self.id}/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def set_ready(self, worker: int, *, ready: bool) -> None:
        self.send_control("kubernetes", f"nodes/train-worker-{worker}", {"ready": ready})

    def list_outputs(self, name: str) -> list[Any]:
        return [node.get(name) for node in self.outs["gpu_worker_nodes"]]


def _create_cluster(emulator: Any, inputs: Properties) -> Cluster:
    lifecycle = ClusterLifecycle()
    with emulator.use_context_of():
        checked = lifecycle.check({}, {**inputs, "num_gpus": 16.0})
        assert not checked.failures
        created = lifecycle.create({**checked.inputs, **PROGRAM})
    return Cluster(emulator, created.id, dict(checked.inputs), dict(created.outs))


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    return _create_cluster(emulator, cluster_inputs)


class TestKubernetes:
    def test_ready_workers_are_outputs_and_plan_no_change(self, cluster: Cluster) -> None:
        assert cluster.list_outputs("kubernetes") == [None, None]
        cluster.refresh()
        assert cluster.list_outputs("kubernetes") == ["Ready", "Ready"]
        assert cluster.outs["ready"] is True
        assert (cluster.plan(), cluster.list_notices()) == ([], [])

    def test_a_refresh_needs_one_node_list(self, cluster: Cluster) -> None:
        before = len(cluster.emulator.list_requests("GET"))
        cluster.refresh()
        requests = [request["path"] for request in cluster.emulator.list_requests("GET")[before:]]
        assert [path for path in requests if NODES in path] == [f"/{cluster.id}{NODES}"]

    def test_a_cluster_with_an_unready_worker_is_not_ready(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        outs = cluster.refresh()
        assert (outs["ready"], outs["not_ready_reason"]) == (False, SILENT)
        assert outs["status"] == "Ready"
        assert cluster.list_outputs("kubernetes") == [
            "Ready",
            "NotReady: Kubelet stopped posting status",
        ]
        assert cluster.plan() == ["ready"]

    def test_up_waits_until_the_worker_is_ready_again(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        cluster.refresh()
        cluster.set_ready(1, ready=True)
        outs = cluster.up()
        assert outs["ready"] is True
        assert "not_ready_reason" not in outs
        assert cluster.list_outputs("kubernetes") == ["Ready", "Ready"]

    def test_up_fails_if_the_worker_stays_unready(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        cluster.refresh()
        began = cluster.emulator.create_context().clock.now()
        outs = cluster.up()
        took = cluster.emulator.create_context().clock.now() - began
        assert outs["ready"] is False
        assert SILENT in outs["not_ready_reason"]
        assert READY_TIMEOUT_S <= took < READY_TIMEOUT_S + 120

    def test_a_cordoned_worker_is_an_output_and_no_change(self, cluster: Cluster) -> None:
        cluster.refresh()
        outs = {**cluster.outs}
        nodes = [dict(node) for node in outs["gpu_worker_nodes"]]
        nodes[0]["kubernetes"] = "Ready, cordoned"
        cluster.outs = {**outs, "gpu_worker_nodes": nodes}
        assert cluster.plan() == []
        assert cluster.list_notices() == [
            "worker train-worker-0 takes no new pods: it is cordoned in Kubernetes"
        ]

    def test_an_unreachable_api_server_does_not_fail_a_refresh(self, cluster: Cluster) -> None:
        cluster.emulator.add_fault("GET", f"/{cluster.id}{NODES}", status=503)
        outs = cluster.refresh()
        assert outs["ready"] is True
        assert cluster.list_outputs("kubernetes") == [None, None]
        assert cluster.plan() == []
        (messages,) = cluster.emulator.reported.unchecked
        assert messages.startswith("the workers of cluster train: Kubernetes did not answer")
        assert "503" in outs["workers_not_asked"]
        (notice,) = cluster.list_notices()
        assert "the state of its workers is unknown" in notice

    def test_a_state_of_an_older_version_plans_no_change(self, cluster: Cluster) -> None:
        nodes = cluster.outs["gpu_worker_nodes"]
        new = ("kubernetes", "slurm")
        old = [{k: v for k, v in node.items() if k not in new} for node in nodes]
        cluster.outs["gpu_worker_nodes"] = old
        assert cluster.plan() == []
        cluster.refresh()
        assert cluster.plan() == []

    def test_an_unready_worker_does_not_prevent_a_deletion(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        with cluster.emulator.use_context_of():
            cluster.lifecycle.delete(cluster.id, cluster.outs)
        assert cluster.emulator.send_as_somebody_else("GET", "/clusters")["clusters"] == []
