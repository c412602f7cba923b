"""Workers of a Together cluster as its own Kubernetes has them: in each refresh, and in waiting."""

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
    """One of two workers that is Ready, as the state has it."""

    emulator: Any
    id: str
    inputs: Properties
    outs: Properties
    lifecycle: ClusterLifecycle = field(default_factory=ClusterLifecycle)

    def refresh(self) -> Properties:
        with self.emulator.serving():
            self.outs = dict(self.lifecycle.read(self.id, self.outs).outs)
        return self.outs

    def up(self) -> Properties:
        with self.emulator.serving():
            news = {**self.inputs, **PROGRAM}
            result = self.lifecycle.update(self.id, {**self.outs, **PROGRAM}, news)
        self.outs = dict(result.outs)
        return self.outs

    def plan(self) -> list[str]:
        with self.emulator.serving():
            found = self.lifecycle.list_changes(
                {**self.outs, **PROGRAM}, {**self.inputs, **PROGRAM}, self.id
            )
        return [change.path for change in found]

    def notices(self) -> list[str]:
        return [each.text for each in self.lifecycle.list_notices(self.inputs, self.outs, 0.0)]

    def control(self, kind: str, path: str, body: Any) -> Any:
        answer = self.emulator.http.post(f"/_emulator/{kind}/{self.id}/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def set_ready(self, worker: int, *, ready: bool) -> None:
        self.control("kubernetes", f"nodes/train-worker-{worker}", {"ready": ready})

    def told(self, name: str) -> list[Any]:
        return [node.get(name) for node in self.outs["gpu_worker_nodes"]]


def _made(emulator: Any, inputs: Properties) -> Cluster:
    lifecycle = ClusterLifecycle()
    with emulator.serving():
        checked = lifecycle.check({}, {**inputs, "num_gpus": 16.0})
        assert not checked.failures
        created = lifecycle.create({**checked.inputs, **PROGRAM})
    return Cluster(emulator, created.id, dict(checked.inputs), dict(created.outs))


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    return _made(emulator, cluster_inputs)


class TestKubernetes:
    def test_ready_workers_are_told_and_plan_nothing(self, cluster: Cluster) -> None:
        assert cluster.told("kubernetes") == [None, None]
        cluster.refresh()
        assert cluster.told("kubernetes") == ["Ready", "Ready"]
        assert cluster.outs["ready"] is True
        assert (cluster.plan(), cluster.notices()) == ([], [])

    def test_one_list_for_each_refresh(self, cluster: Cluster) -> None:
        before = len(cluster.emulator.requests("GET"))
        cluster.refresh()
        asked = [each["path"] for each in cluster.emulator.requests("GET")[before:]]
        assert [path for path in asked if NODES in path] == [f"/{cluster.id}{NODES}"]

    def test_a_cluster_with_a_silent_worker_is_not_ready(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        outs = cluster.refresh()
        assert (outs["ready"], outs["not_ready_reason"]) == (False, SILENT)
        assert outs["status"] == "Ready"
        assert cluster.told("kubernetes") == ["Ready", "NotReady: Kubelet stopped posting status"]
        assert cluster.plan() == ["ready"]

    def test_up_waits_until_it_is_back(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        cluster.refresh()
        cluster.set_ready(1, ready=True)
        outs = cluster.up()
        assert outs["ready"] is True
        assert "not_ready_reason" not in outs
        assert cluster.told("kubernetes") == ["Ready", "Ready"]

    def test_up_gives_up_on_one_that_stays_silent(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        cluster.refresh()
        began = cluster.emulator.call().clock.now()
        outs = cluster.up()
        took = cluster.emulator.call().clock.now() - began
        assert outs["ready"] is False
        assert SILENT in outs["not_ready_reason"]
        assert READY_TIMEOUT_S <= took < READY_TIMEOUT_S + 120

    def test_a_cordoned_worker_is_told_and_no_change(self, cluster: Cluster) -> None:
        cluster.refresh()
        outs = {**cluster.outs}
        nodes = [dict(node) for node in outs["gpu_worker_nodes"]]
        nodes[0]["kubernetes"] = "Ready, cordoned"
        cluster.outs = {**outs, "gpu_worker_nodes": nodes}
        assert cluster.plan() == []
        assert cluster.notices() == [
            "worker train-worker-0 takes no new pods: it is cordoned in Kubernetes"
        ]

    def test_an_api_server_that_does_not_answer_breaks_nothing(self, cluster: Cluster) -> None:
        cluster.emulator.fault("GET", f"/{cluster.id}{NODES}", status=503)
        outs = cluster.refresh()
        assert outs["ready"] is True
        assert cluster.told("kubernetes") == [None, None]
        assert cluster.plan() == []
        (told,) = cluster.emulator.told.unchecked
        assert told.startswith("the workers of cluster train: Kubernetes did not answer")
        assert "503" in outs["workers_not_asked"]
        (notice,) = cluster.notices()
        assert "the state of its workers is unknown" in notice

    def test_old_states_plan_nothing(self, cluster: Cluster) -> None:
        nodes = cluster.outs["gpu_worker_nodes"]
        new = ("kubernetes", "slurm")
        old = [{k: v for k, v in node.items() if k not in new} for node in nodes]
        cluster.outs["gpu_worker_nodes"] = old
        assert cluster.plan() == []
        cluster.refresh()
        assert cluster.plan() == []

    def test_a_silent_worker_keeps_no_deletion(self, cluster: Cluster) -> None:
        cluster.set_ready(1, ready=False)
        with cluster.emulator.serving():
            cluster.lifecycle.delete(cluster.id, cluster.outs)
        assert cluster.emulator.platform("GET", "/clusters")["clusters"] == []
