"""Test random histories of a cluster whose nodes break, are repaired, and are changed by others.

In between runs are killed at their steps. Whatever the course: no job is ended, no node stays
cordoned that nobody else has cordoned, and one fault is repaired once.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from support.schedulers.cluster_with_jobs import (
    PROGRAM,
    Cluster,
    Killed,
    Properties,
    create_cluster,
)

from gpuform.providers.errors import GpuformError
from gpuform.providers.together.repairing import ClusterRepairRun

WORKERS = st.integers(0, 2)
EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(["propose", "break", "recover", "start_job", "cordon", "reject"]), WORKERS
    ),
    st.tuples(st.sampled_from(["propose_repair_under_job", "silence_under_job", "fail"]), WORKERS),
    st.tuples(st.just("advance"), st.sampled_from([60, 700, 4000])),
    st.tuples(st.sampled_from(["refresh", "update", "uncordon", "resolve"]), st.just(0)),
    st.tuples(
        st.just("die"),
        st.sampled_from(
            ["_request_repair", "_wait_until_ended", "_wait_for_workers", "_uncordon_nodes"]
        ),
    ),
)
REPAIR = {
    "approve": "automatic",
    "on": ["platform", "not_ready"],
    "max_parallel": 2,
    "max_unhealthy": 3,
}


class Course:
    """A cluster, and the events that happened to it."""

    def __init__(self, cluster: Cluster, modes: list[str]) -> None:
        self.cluster = cluster
        policy = {**REPAIR, "modes": modes}
        self.news = {**cluster.inputs, "num_gpus": 32.0, "repair": policy, **PROGRAM}
        cluster.outs = {**cluster.outs, "repair": policy}
        self.broken: Counter[str] = Counter()
        self.cordoned: set[str] = set()
        self.jobs = 0

    def play(self, event: str, value: Any) -> None:
        names = [f"train-worker-{worker}" for worker in self.cluster.workers]
        name = names[value % len(names)] if isinstance(value, int) else ""
        getattr(self, f"_{event}")(name if event not in ("advance", "die") else value)

    def _list_nodes(self) -> dict[str, Properties]:
        return {item["metadata"]["name"]: item for item in self.cluster.call_kubernetes()["items"]}

    def _open(self) -> dict[str, Properties]:
        """Return proposed and running repairs by worker."""
        cluster_answer = self.cluster.emulator.send_as_somebody_else(
            "GET", f"/clusters/{self.cluster.id}"
        )
        latest = {
            w["host_name"]: w.get("latest_remediation") for w in cluster_answer["gpu_worker_nodes"]
        }
        ended = ("SUCCEEDED", "FAILED", "CANCELLED", "AUTO_RESOLVED")
        return {
            name: repair
            for name, repair in latest.items()
            if repair and repair["state"] not in ended
        }

    def _propose(self, name: str) -> None:
        if name not in self._open():
            body = {"cluster_id": self.cluster.id, "instance_name": name}
            path = "/_emulator/together/remediations"
            self.cluster.emulator.http.post(path, json=body).raise_for_status()

    def _break(self, name: str) -> None:
        self.cluster.call_emulated_kubernetes("POST", f"nodes/{name}", {"ready": False})
        self.broken[name] += 1

    def _propose_repair_under_job(self, name: str) -> None:
        """Run a job on a node that Together proposes to repair, and refresh."""
        self._start_job(name)
        self._propose(name)
        self._refresh("")

    def _silence_under_job(self, name: str) -> None:
        """Run a job on a node whose kubelet stops reporting for long, and refresh."""
        self._start_job(name)
        self._break(name)
        self._advance(700)
        self._refresh("")

    def _fail(self, name: str) -> None:
        """Make repairs of this worker fail from now on."""
        path = f"/_emulator/together/workers/{name}"
        answer = self.cluster.emulator.http.post(path, json={"repair_fails": "no power"})
        answer.raise_for_status()

    def _recover(self, name: str) -> None:
        if name not in self._open():
            self.cluster.call_emulated_kubernetes("POST", f"nodes/{name}", {"ready": True})

    def _start_job(self, name: str) -> None:
        """Start a job like a scheduler: on a Ready, schedulable node without a repair."""
        node = self._list_nodes()[name]
        is_ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"]["conditions"]
        )
        state = self._open().get(name, {}).get("state", "PENDING_APPROVAL")
        if is_ready and not node["spec"].get("unschedulable") and state == "PENDING_APPROVAL":
            self.jobs += 1
            body = {"name": f"job-{self.jobs}", "namespace": "ml", "node": name}
            self.cluster.call_emulated_kubernetes("POST", "pods", {**body, "runs_for": 1200})

    def _cordon(self, name: str) -> None:
        node = self._list_nodes()[name]
        if not node["spec"].get("unschedulable"):
            self.cluster.call_kubernetes(
                "PATCH", f"nodes/{name}", {"spec": {"unschedulable": True}}
            )
            self.cordoned.add(name)

    def _uncordon(self, _name: str) -> None:
        """Uncordon, as somebody else, all nodes without a repair."""
        for name, node in self._list_nodes().items():
            if node["spec"].get("unschedulable") and name not in self._open():
                self.cluster.call_kubernetes(
                    "PATCH", f"nodes/{name}", {"spec": {"unschedulable": None}}
                )
                self.cordoned.discard(name)

    def _reject(self, name: str) -> None:
        repair = self._open().get(name)
        if repair is not None and repair["state"] == "PENDING_APPROVAL":
            path = f"/clusters/{self.cluster.id}/instances/{repair['instance_id']}/remediations"
            self.cluster.emulator.send_as_somebody_else("POST", f"{path}/{repair['id']}/reject", {})

    def _resolve(self, _name: str) -> None:
        for repair in self._open().values():
            if repair["state"] == "PENDING_APPROVAL":
                path = f"/_emulator/together/remediations/{repair['id']}/resolve"
                self.cluster.emulator.http.post(path).raise_for_status()

    def _advance(self, seconds: int) -> None:
        self.cluster.emulator.advance(seconds)

    def _refresh(self, _name: str) -> None:
        self.cluster.refresh()

    def _update(self, _name: str = "") -> None:
        try:
            self.cluster.update(self.news)
        except GpuformError as error:
            note(f"  {error.message}")

    def _die(self, step: str) -> None:
        with pytest.MonkeyPatch.context() as dying:

            def die(*_: object, **__: object) -> None:
                raise Killed

            dying.setattr(ClusterRepairRun, step, die)
            before = dict(self.cluster.outs)
            try:
                self._update()
            except Killed:
                self.cluster.outs = before

    def end(self) -> None:
        """Run the next command, which recovers everything."""
        self._resolve("")
        for _ in range(3):
            self._advance(4000)
            self._refresh("")
            self._update()
        self._refresh("")

    def judge(self) -> None:
        ended = self.cluster.pod_ends
        assert "killed" not in ended.values(), ended
        assert "evicted" not in ended.values()
        cordoned_nodes = {f"train-worker-{item}" for item in self.cluster.cordoned}
        assert cordoned_nodes <= self.cordoned, "gpuform has left it cordoned"
        assert self.cluster.drain_record is None
        cluster_answer = self.cluster.emulator.send_as_somebody_else(
            "GET", f"/clusters/{self.cluster.id}"
        )
        request_counts: Counter[str] = Counter()
        for node in (
            *cluster_answer["gpu_worker_nodes"],
            *cluster_answer["deleted_gpu_worker_nodes"],
        ):
            path = f"/clusters/{self.cluster.id}/instances/{node['instance_id']}/remediations"
            remediations = self.cluster.emulator.send_as_somebody_else("GET", path)["remediations"]
            request_counts[node["host_name"]] += sum(
                e["trigger"].endswith("MANUAL") for e in remediations
            )
        for name, count in request_counts.items():
            assert count <= self.broken[name], f"{name} was repaired more often than it broke"


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=st.lists(EVENTS, min_size=3, max_size=14),
    modes=st.sampled_from([["HOST_AWARE"], ["REBOOT_VM"], ["REBOOT_VM", "HOST_AWARE"]]),
)
def test_no_history_hurts_a_job_or_repairs_twice(
    emulator: Any, cluster_inputs: Properties, events: list[tuple[str, Any]], modes: list[str]
) -> None:
    emulator.http.post("/_emulator/reset").raise_for_status()
    emulator.intents.records.delete(*emulator.intents.records.names())
    course = Course(create_cluster(emulator, cluster_inputs), modes)
    for event, value in events:
        note(f"{event} {value}")
        course.play(event, value)
    course.end()
    course.judge()
