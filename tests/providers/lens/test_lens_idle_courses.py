"""Test with random nodes, workloads, clocks and errors of Lens that busy GPUs are never idle.

The Lens is a stand-in from its reference alone. It loses points, pages and connections, answers for
another cluster, repeats old answers, and answers 200 with errors. What it never does is make up
figures: so whenever the looks say idle, the GPUs have to have been idle at each of them.
"""

from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clocks.fake_clock import FakeClock
from support.schedulers.idle_scp_nodes import IDLENESS, SCHEDULER, START, start_clock
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import LensClient
from gpuform.providers.lifetime import IdlenessVerdict
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.providers.scp import idleness
from gpuform.providers.scp.nodes.draining import NodeDrainer
from gpuform.schemas.scp.outputs import NodeOutputs

from .lens_stand_in import build_success, build_workload

NODE = "train-001"
GPUS = 8
FAULTS = (
    *(["honest"] * 100),
    *("foreign", "partial", "shorter", "old", "dropped", "error in 200", "error", "zeros", "null"),
    *("overview only", "page lost", "empty"),
)
NO_EVIDENCE = ("foreign", "dropped", "error in 200", "error", "zeros", "null", "page lost")


@dataclass
class Cluster:
    """The real state, and a Lens that shows the `top` highest of each metric, with `fault`."""

    top: int
    uses: list[float] = field(default_factory=lambda: [0.0] * GPUS)
    others: list[float] = field(default_factory=lambda: [0.0] * 4)
    fault: str = "honest"
    seed: int = 0
    real_time: float = START
    _old: dict[str, Any] = field(default_factory=dict)

    def answer(self, request: httpx.Request) -> httpx.Response:
        kind = request.url.path.rpartition("/")[2]
        if self.fault == "dropped":
            raise httpx.ReadError("dropped", request=request)
        if self.fault == "error":
            return httpx.Response(500, json={"code": 500, "message": "timeout"})
        if self.fault == "error in 200":
            return httpx.Response(200, json={"code": 500, "message": "timeout", "data": None})
        data = self._build_document(kind)
        if self.fault == "old" and kind in self._old:
            data = self._old[kind]
        self._old[kind] = self._build_document(kind)
        answer = build_success(data)
        answer.headers["Date"] = formatdate(self.real_time, usegmt=True)
        return answer

    def _build_document(self, kind: str) -> Any:
        if self.fault == "null" or (self.fault == "overview only" and kind != "overview"):
            return None
        busy = [use for use in (*self.uses, *self.others) if use > 0]
        if kind == "overview":
            mean = sum(busy) / len(busy) / 100 if busy else 0.0
            document = {"totalNodes": 2, "healthyNodes": 2, "faultyNodes": 0, "utilization": mean}
            return dict.fromkeys(document, 0) if self.fault == "zeros" else document
        if kind == "consumers":
            workloads = [build_workload(f"w{at}") for at, _ in enumerate(busy)]
            lost = self.fault in ("page lost", "empty")
            return {
                "data": [] if lost else workloads,
                "total": len(workloads) + (self.fault == "page lost"),
            }
        return self._build_heatmap()

    def _build_heatmap(self) -> Any:
        name = "foreign-1" if self.fault == "foreign" else NODE
        ours = [0.4] * GPUS if self.fault == "foreign" else self.uses
        gpus = [(name, at, use) for at, use in enumerate(ours)]
        gpus += [("other-1", at, use) for at, use in enumerate(self.others)]
        metrics = {
            "utilization": ("%", lambda use: use),
            "power": ("W", lambda use: 90.0 + use),
            "temperature": ("℃", lambda use: 35.0 + use / 2),
        }
        heatmap = {}
        for number, (metric, (unit, figure)) in enumerate(metrics.items()):
            spread = [(node, at, figure(use), (at * 7 + number * 3) % 8) for node, at, use in gpus]
            ranked = sorted(spread, key=lambda gpu: (-gpu[2], gpu[3]))[: self.top]
            if self.fault == "partial":
                ranked = [item for at, item in enumerate(ranked) if (at + self.seed + number) % 4]
            if self.fault == "shorter":
                ranked = ranked[self.seed % 3 :]
            points = [
                {"nodeName": node, "deviceId": at, "value": value, "gpuModel": "H100"}
                for node, at, value, _ in ranked
            ]
            if self.fault == "zeros":
                points = []
            heatmap[metric] = {"unit": unit, "yAxisMin": 0, "yAxisMax": 100, "data": points}
        return heatmap


def judge_idleness_once(
    clock: FakeClock, cluster: Cluster, client: LensClient, intents: Intents
) -> IdlenessVerdict:
    """Judge the node's idleness once, as `gpuform expire` does; no job is on it."""
    node = NodeOutputs.model_validate({"id": "n-1", "gpu_node_name": NODE, "state": "RUNNING"})
    call = ProviderContext(clock=clock, intents=intents)
    drainer = NodeDrainer(call, "pool", "pool train", {"drain": {"kubernetes": {}}})
    with pytest.MonkeyPatch.context() as patch, use_context(call):
        patch.setattr(SCHEDULER, lambda *_: SimulatedScheduler(clock, [NODE]))
        patch.setattr("time.time", lambda: clock.time)
        patch.setattr(idleness, "get_client", lambda _: client)
        return idleness.judge_idleness(call, Settings(), "pool", drainer, [node], IDLENESS)


def build_client(cluster: Cluster) -> LensClient:
    return LensClient("http://lens.test/api", None, httpx.MockTransport(cluster.answer))


def test_an_idle_node_is_idle_if_lens_reports_it_completely() -> None:
    clock, cluster, intents = start_clock(), Cluster(64), Intents(EphemeralRecords())
    client = build_client(cluster)
    verdicts = []
    for _ in range(7):
        verdicts.append(judge_idleness_once(clock, cluster, client, intents).is_idle)
        clock.time += 600.0
        cluster.real_time += 600.0
    assert verdicts == [False] * 6 + [True]


step = st.tuples(
    st.sampled_from([60.0, 300.0, 600.0, 600.0, 850.0]),  # seconds until the look
    st.sampled_from(FAULTS),
    st.sampled_from([*([""] * 40), "ours", "other", "stop", "stop"]),  # who is at work from now on
    st.sampled_from(
        [*([0.0] * 40), 200.0, 840.0, -300.0, 7200.0]
    ),  # a jump of this machine's clock
    st.integers(0, 11),
)


@pytest.mark.slow
@pytest.mark.sampled(1)
@settings(max_examples=200, deadline=None)
@given(course=st.lists(step, min_size=8, max_size=40), top=st.sampled_from([5, 5, 8, 64]))
def test_a_busy_gpu_is_never_judged_idle(
    course: list[tuple[float, str, str, float, int]], top: int
) -> None:
    clock, cluster, intents = start_clock(), Cluster(top), Intents(EphemeralRecords())
    client = build_client(cluster)
    judgements: list[tuple[float, bool, bool]] = []
    for pause, fault, work, jump, seed in course:
        clock.time += pause + jump
        cluster.real_time += pause
        if work == "ours":
            cluster.uses[seed % GPUS] = 80.0
        elif work == "other":
            cluster.others[seed % 4] = 80.0
        elif work == "stop":
            cluster.uses, cluster.others = [0.0] * GPUS, [0.0] * 4
        cluster.fault, cluster.seed = fault, seed
        is_idle = max(cluster.uses) < IDLENESS.below
        judgements.append((cluster.real_time, is_idle, fault == "old"))
        try:
            verdict = judge_idleness_once(clock, cluster, client, intents)
        except GpuformError:
            continue
        if verdict.is_idle:
            assert fault not in NO_EVIDENCE
            since = cluster.real_time - IDLENESS.lasting + 60.0  # HTTP tells whole seconds
            assert judgements[0][0] <= since, "idle sooner than the declared time"
            assert all(idle or old for at, idle, old in judgements if at >= since)
