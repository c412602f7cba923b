"""Test when nodes count as idle, by recorded observations of their scheduler and of Lens."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.clocks.fake_clock import FakeClock
from support.schedulers.idle_scp_nodes import IDLENESS, SCHEDULER, start_clock
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.lifetime import IdlenessVerdict
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents, QuietPeriods
from gpuform.providers.scp import idleness
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.nodes.draining import NodeDrainer
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, GpuStat, Overview
from gpuform.schemas.policies.lifetime import Idleness, read_idleness
from gpuform.schemas.scp.outputs import NodeOutputs

Properties = dict[str, Any]

ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}
IDLE = {"below": "5%", "for": "1h", "then": "stop"}
MADE_AT = "2027-01-15T07:00:00Z"
LOOK = 600.0


def build_points(*uses: float | None, node: str = "train-001") -> list[Properties]:
    return [
        {"nodeName": node, "deviceId": at, "value": use, "gpuModel": "H100"}
        for at, use in enumerate(uses)
    ]


def build_heatmap(
    *data: Properties, unit: str = "%", axis: tuple[float, float] = (0, 100)
) -> GpuHeatmap:
    """Return a heatmap with these points of utilization."""
    metric = {"unit": unit, "yAxisMin": axis[0], "yAxisMax": axis[1], "data": data}
    return GpuHeatmap.model_validate({"utilization": metric})


def build_utilization_heatmap(
    *uses: float | None, unit: str = "%", node: str = "train-001"
) -> GpuHeatmap:
    return build_heatmap(*build_points(*uses, node=node), unit=unit)


QUIET_USES = (1.0, *[0.0] * 7)
QUIET = build_utilization_heatmap(*QUIET_USES)
BUSY = build_utilization_heatmap(*[50.0] * 8)
OVERVIEW = Overview(total_nodes=4, utilization=0.0)


@dataclass
class Watched:
    """One node, its scheduler, and the answers of Lens."""

    monkeypatch: pytest.MonkeyPatch
    clock: FakeClock = field(default_factory=start_clock)
    heatmap_answer: GpuHeatmap | GpuformError = QUIET
    overview_: Overview = OVERVIEW
    workloads: list[Consumer] | GpuformError = field(default_factory=list)
    clock_ahead: float | None = None
    node: NodeOutputs = field(
        default_factory=lambda: NodeOutputs.model_validate(
            {
                "id": "n-1",
                "gpu_node_name": "train-001",
                "state": "RUNNING",
                "created_at": MADE_AT,
                "modified_at": MADE_AT,
            }
        )
    )

    def __post_init__(self) -> None:
        self.scheduler = SimulatedScheduler(self.clock, ["train-001"])
        self.intents = Intents(EphemeralRecords())
        self.monkeypatch.setattr(SCHEDULER, lambda *_: self.scheduler)
        self.monkeypatch.setattr(idleness, "get_client", lambda _: self)

    def get_heatmap(self, retry: object) -> GpuHeatmap:
        if isinstance(self.heatmap_answer, GpuformError):
            raise self.heatmap_answer
        return self.heatmap_answer

    def get_overview(self, retry: object) -> Overview:
        return self.overview_

    def list_consumers(self, retry: object) -> list[Consumer]:
        if isinstance(self.workloads, GpuformError):
            raise self.workloads
        return self.workloads

    def observe(self, idleness_inputs: Idleness = IDLENESS, drain: Any = ASKED) -> IdlenessVerdict:
        call = ProviderContext(clock=self.clock, intents=self.intents)
        drainer = NodeDrainer(call, "pool", "pool train", {"drain": drain})
        with use_context(call):
            return idleness.judge_idleness(
                call, Settings(), "pool", drainer, [self.node], idleness_inputs
            )

    def observe_for(self, seconds: float, every: float = LOOK) -> IdlenessVerdict:
        verdict = self.observe()
        for _ in range(int(seconds / every)):
            self.clock.time += every
            verdict = self.observe()
        return verdict


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_one_quiet_observation_is_not_enough(watched: Watched) -> None:
    verdict = watched.observe()
    assert not verdict.is_idle
    assert verdict.because.startswith("idle for less than a minute: the stop may be due at ")


def test_quiet_observations_over_the_declared_time_are_idleness(watched: Watched) -> None:
    assert not watched.observe_for(3599.0, every=599.0).is_idle
    watched.clock.time += 600.0
    verdict = watched.observe()
    assert verdict.is_idle
    assert verdict.because.startswith("no job, and each GPU used below 5% for 1h, at 20")


def test_a_long_gap_between_observations_begins_the_time_again(watched: Watched) -> None:
    assert not watched.observe_for(2 * 3600.0, every=idleness.MAX_LOOK_GAP_S + 1).is_idle
    assert watched.observe_for(4500.0, every=idleness.MAX_LOOK_GAP_S).is_idle


@pytest.mark.parametrize("jump", [-86400.0, -700.0, 86400.0, 10 * 365 * 86400.0])
def test_a_clock_that_jumps_begins_the_quiet_time_again(watched: Watched, jump: float) -> None:
    assert not watched.observe_for(3000.0).is_idle
    watched.clock.time += jump
    assert not watched.observe_for(3000.0).is_idle, "an hour of quiet looks is needed from here on"
    assert watched.observe_for(600.0).is_idle


def test_a_clock_that_jumps_there_and_back_proves_nothing(watched: Watched) -> None:
    watched.observe()
    for jump in (86400.0, -86400.0, 7 * 86400.0, -7 * 86400.0):
        watched.clock.time += jump
        assert not watched.observe().is_idle


def _start_job(watched: Watched) -> None:
    watched.scheduler.start_job("train-001", 1.0)


def _hide_node_from_scheduler(watched: Watched) -> None:
    watched.scheduler.nodes_by_name.clear()
    watched.scheduler.nodes_by_name["another"] = replace(
        SimulatedScheduler(watched.clock).nodes_by_name["w0"]
    )


def _change_node(**fields: Any) -> Callable[[Watched], None]:
    def change(watched: Watched) -> None:
        watched.node = watched.node.model_copy(update=fields)

    return change


def _change_heatmap(heatmap_answer: GpuHeatmap | GpuformError) -> Callable[[Watched], None]:
    def change(watched: Watched) -> None:
        watched.heatmap_answer = heatmap_answer

    return change


def _change_overview(**fields: Any) -> Callable[[Watched], None]:
    def change(watched: Watched) -> None:
        watched.overview_ = watched.overview_.model_copy(update=fields)

    return change


def _change_workloads(workloads: list[Consumer] | GpuformError) -> Callable[[Watched], None]:
    def change(watched: Watched) -> None:
        watched.workloads = workloads

    return change


def _build_consumer(use: float) -> Consumer:
    return Consumer(name="train", namespace="ml", stat=GpuStat(gpu_request=8, gpu_utilization=use))


def _move_clock_back(watched: Watched) -> None:
    watched.clock.time -= 5000.0


DOUBTS: dict[str, Callable[[Watched], None]] = {
    "a job": _start_job,
    "a scheduler that does not know it": _hide_node_from_scheduler,
    "a stopped node": _change_node(state="STOPPED"),
    "a locked node": _change_node(lock_enabled=True),
    "a node that was changed": _change_node(modified_at="2027-01-16T11:40:00Z"),
    "a date that is none": _change_node(created_at="soon"),
    "one GPU at work": _change_heatmap(build_utilization_heatmap(0.0, 5.0, *[0.0] * 6)),
    "a busy fleet, of whose other GPUs nobody knows": _change_heatmap(
        build_utilization_heatmap(*[90.0] * 5, node="other")
    ),
    "another cluster, which is idle": _change_heatmap(
        build_utilization_heatmap(*[0.4] * 5, node="other")
    ),
    "five of its eight GPUs": _change_heatmap(build_utilization_heatmap(*[0.0] * 5)),
    "nine GPUs of eight": _change_heatmap(build_utilization_heatmap(*[0.0] * 9)),
    "a GPU that is shown twice": _change_heatmap(
        build_heatmap(*build_points(*QUIET_USES), *build_points(0.0))
    ),
    "a GPU without its number": _change_heatmap(
        build_heatmap(
            *build_points(*QUIET_USES), {**build_points(0.0, node="other")[0], "deviceId": None}
        )
    ),
    "a GPU of no node": _change_heatmap(
        build_heatmap(*build_points(*QUIET_USES), *build_points(0.0, node=""))
    ),
    "no figures": _change_heatmap(build_utilization_heatmap()),
    "a figure that is not told": _change_heatmap(build_utilization_heatmap(None, *[0.0] * 7)),
    "a figure that cannot be": _change_heatmap(build_utilization_heatmap(-1.0, *[0.0] * 7)),
    "another unit": _change_heatmap(build_utilization_heatmap(*QUIET_USES, unit="W")),
    "fractions for percents": _change_heatmap(
        build_heatmap(*build_points(*QUIET_USES), axis=(0, 1))
    ),
    "an overview that shows more use": _change_overview(utilization=0.9),
    "an overview that does not show the use": _change_overview(utilization=None),
    "an overview that cannot be": _change_overview(total_nodes=-1),
    "an overview of fewer nodes": _change_overview(total_nodes=0),
    "a workload that uses more": _change_workloads([_build_consumer(0.9)]),
    "workloads that are not shown": _change_workloads(NotEnoughEvidence("some are missing")),
    "a clock that went backwards": _move_clock_back,
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_any_sign_of_use_begins_the_time_again(watched: Watched, doubt: str) -> None:
    assert watched.observe_for(3000.0).because.startswith("idle for 50m")
    before = watched.node, watched.heatmap_answer, dict(watched.scheduler.nodes_by_name)
    DOUBTS[doubt](watched)
    try:
        assert not watched.observe().is_idle
    except NotEnoughEvidence:
        assert doubt == "workloads that are not shown"
    watched.node, watched.heatmap_answer, watched.scheduler.nodes_by_name = before
    watched.overview_, watched.workloads = OVERVIEW, []
    watched.scheduler.ends.clear()
    watched.clock.time += LOOK
    assert not watched.observe().is_idle, "the time before does not count"
    assert watched.observe_for(3600.0).is_idle


def test_a_silent_lens_ends_the_quiet_time(watched: Watched) -> None:
    watched.observe_for(3000.0)
    watched.heatmap_answer = Unreachable("lens is silent")
    with pytest.raises(GpuformError, match="lens is silent"):
        watched.observe()
    assert QuietPeriods.from_intents(watched.intents).find("pool") is None


def test_a_lens_without_the_nodes_is_reported(watched: Watched) -> None:
    watched.heatmap_answer = build_utilization_heatmap(*[0.4] * 5, node="other")
    assert (
        watched.observe().because
        == "Lens: no answer names train-001: Lens may not monitor the node"
    )


def test_a_node_with_five_gpus_in_lens_is_reported(watched: Watched) -> None:
    watched.heatmap_answer = build_utilization_heatmap(*[0.0] * 5)
    because = watched.observe().because
    assert because.startswith("Lens: it reports 5 of the 8 GPUs of train-001; the heatmap shows")


def test_gpus_that_power_names_are_bounded_by_the_lowest_of_the_busiest(watched: Watched) -> None:
    """The five busiest GPUs are below 5%: so are the three that only power shows."""
    answer = build_utilization_heatmap(*[1.0] * 5).model_dump()
    hottest = [{**point, "value": 90.0} for point in build_points(*[0.0] * 8)[3:]]
    answer["power"] = {"unit": "W", "data": hottest}
    watched.heatmap_answer = GpuHeatmap.model_validate(answer)
    assert watched.observe_for(3600.0).is_idle
    answer["utilization"]["data"] = build_points(*[5.0] * 5, node="other")
    answer["power"]["data"] = [{**point, "value": 90.0} for point in build_points(*[0.0] * 8)]
    watched.heatmap_answer = GpuHeatmap.model_validate(answer)
    assert (
        "the 5 busiest GPUs are used 5% or more: Lens does not show the utilization of 8 other GPUs"
        in watched.observe().because
    )


def test_a_gpu_whose_power_is_a_sentinel_is_not_named(watched: Watched) -> None:
    answer = build_utilization_heatmap(*[1.0] * 5).model_dump()
    lost = [
        {**point, "value": value} for point in build_points(*[0.0] * 8)[5:] for value in (-1.0,)
    ]
    answer["power"] = {"unit": "W", "data": lost}
    watched.heatmap_answer = GpuHeatmap.model_validate(answer)
    assert "it reports 5 of the 8 GPUs of train-001" in watched.observe().because


def test_a_short_utilization_that_leaves_out_gpus_is_no_evidence(watched: Watched) -> None:
    answer = build_utilization_heatmap(*[1.0] * 4).model_dump()
    answer["power"] = {
        "unit": "W",
        "data": [{**point, "value": 90.0} for point in build_points(*[0.0] * 8)],
    }
    watched.heatmap_answer = GpuHeatmap.model_validate(answer)
    assert "utilization shows 4 GPUs and omits train-001 4, " in watched.observe().because


def test_a_long_utilization_that_has_lost_the_busy_gpu_is_no_evidence(watched: Watched) -> None:
    """Seven GPUs are shown as idle; the eighth, which only power shows, was lost on the way."""
    answer = build_heatmap(*build_points(*QUIET_USES)[:-1]).model_dump()
    answer["power"] = {
        "unit": "W",
        "data": [{**point, "value": 90.0} for point in build_points(*[0.0] * 8)],
    }
    watched.heatmap_answer = GpuHeatmap.model_validate(answer)
    assert "utilization shows 7 GPUs and omits train-001 7" in watched.observe().because


def test_fractions_for_percents_contradict_the_overview(watched: Watched) -> None:
    """By the reference's note on percentages, 0.95 means 95 percent."""
    watched.heatmap_answer = build_utilization_heatmap(*[0.95] * 8)
    watched.overview_ = Overview(total_nodes=1, utilization=0.95)
    assert "overview: utilization is 95%, but no GPU" in watched.observe().because


def test_other_busy_nodes_prove_nothing_against_it(watched: Watched) -> None:
    watched.heatmap_answer = build_heatmap(
        *build_points(99.0, 98.0, 97.0, node="other"), *build_points(*QUIET_USES)
    )
    watched.overview_ = Overview(total_nodes=2, utilization=0.98)
    assert watched.observe_for(3600.0).is_idle


def test_a_clock_that_is_put_forward_makes_nothing_idle(watched: Watched) -> None:
    """Observations are 14 minutes apart by this machine's clock, and a second apart by Lens's."""
    watched.clock_ahead = 0.0
    for _ in range(20):
        assert not watched.observe().is_idle
        watched.clock.time += 840.0
        watched.clock_ahead += 839.0


def test_a_lens_whose_clock_is_put_forward_makes_nothing_idle(watched: Watched) -> None:
    watched.clock_ahead = 0.0
    for _ in range(20):
        assert not watched.observe().is_idle
        watched.clock.time += 1.0
        watched.clock_ahead -= 839.0


def test_other_nodes_or_another_limit_begin_the_time_again(watched: Watched) -> None:
    watched.observe_for(3000.0)
    watched.clock.time += LOOK
    assert not watched.observe(replace(IDLENESS, below=10.0)).is_idle
    watched.node = watched.node.model_copy(update={"id": "n-2"})
    watched.clock.time += LOOK
    assert not watched.observe(replace(IDLENESS, below=10.0)).is_idle


pauses = st.sampled_from([60, 300, 600, 899, 900, 900, 901, 1800])
usually = st.sampled_from([True] * 15 + [False])


@given(course=st.lists(st.tuples(pauses, usually), min_size=5, max_size=40))
@example(course=[(900, True)] * 5)
def test_random_observations_give_idleness_only_without_long_gaps(
    course: list[tuple[int, bool]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        watched = Watched(monkeypatch)
        quiet_since: float | None = None
        for pause, is_quiet in course:
            watched.clock.time += pause
            watched.heatmap_answer = QUIET if is_quiet else BUSY
            if not is_quiet:
                quiet_since = None
            elif quiet_since is None or pause > 900:
                quiet_since = watched.clock.time
            quiet_s = 0.0 if quiet_since is None else watched.clock.time - quiet_since
            assert watched.observe().is_idle == (quiet_s >= IDLENESS.lasting)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"idle": IDLE}, "idle"),
        ({"idle": IDLE, "drain": ASKED, "schedule": {"start": "08:00", "stop": "20:00"}}, "idle"),
        ({"idle": IDLE, "drain": ASKED, "state": "STOPPED"}, "idle"),
    ],
)
def test_inputs_that_contradict_idle_are_refused(
    environment: Any, pool_inputs: Properties, values: Properties, path: str
) -> None:
    with environment.use_context("train", preview=True):
        failures = NodePoolLifecycle().check({}, {**pool_inputs, **values}).failures
    assert path in [failure.property for failure in failures]


def test_nodes_stopped_as_idle_stay_stopped_until_idle_is_removed(
    environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SimulatedScheduler(
        environment.clock, [f"train-00{number}" for number in range(1, 4)]
    )
    monkeypatch.setattr(SCHEDULER, lambda *_: scheduler)
    declared = {**pool_inputs, "drain": ASKED, "idle": IDLE}
    pool = environment.create("NodePool", declared)
    assert read_idleness(declared) is not None
    stopped = environment.update(pool, {**declared, "state": "STOPPED"})
    assert stopped.outs["stopped_by"].startswith("idleness, each GPU used below 5% for 1h up to ")
    expected_changes = {"state": ("STOPPED", "STOPPED")}
    assert environment.list_changes(stopped, declared) == expected_changes
    refreshed = environment.refresh(stopped)
    assert refreshed.outs["stopped_by"] == stopped.outs["stopped_by"]
    assert environment.list_changes(refreshed, declared) == expected_changes
    monkeypatch.setenv("GPUFORM_ALLOW", "start-terminated")
    assert environment.list_changes(refreshed, declared)["state"][1] != "STOPPED"
    monkeypatch.delenv("GPUFORM_ALLOW")
    without = {name: value for name, value in declared.items() if name != "idle"}
    assert environment.list_changes(refreshed, without)["state"][1] != "STOPPED"
    started = environment.update(refreshed, without)
    assert started.outs.get("stopped_by") is None
    assert {node["state"] for node in started.outs["gpu_nodes"].values()} == {"RUNNING"}
