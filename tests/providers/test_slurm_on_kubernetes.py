"""Test nodes with two schedulers: jobs of both count, and no name is guessed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.clocks.fake_clock import FakeClock
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.draining import SlurmOnKubernetes
from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.schemas.policies.drain import RunningJob

NAMES = {"w0": "gpu-0", "w1": "gpu-1"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kubernetes(clock: FakeClock) -> SimulatedScheduler:
    return SimulatedScheduler(clock, ("w0", "w1"))


def combine(kubernetes: SimulatedScheduler, slurm: SimulatedScheduler) -> SlurmOnKubernetes:
    return SlurmOnKubernetes(kubernetes, slurm, "slurm", NAMES)


def test_jobs_of_both_schedulers_are_reported(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"))
    slurm.start_job("gpu-0", 5)
    kubernetes.start_job("w0", 5)
    kubernetes.start_job("w1", 5)
    jobs = [(node.name, len(node.jobs)) for node in combine(kubernetes, slurm).list_nodes()]
    assert jobs == [("w0", 2), ("w1", 1)]


def test_a_node_not_yet_in_slurm_has_no_slurm_jobs(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0",))
    assert [node.jobs for node in combine(kubernetes, slurm).list_nodes()] == [(), ()]


def test_jobs_are_doubtful_if_slurm_shows_no_node(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    """Slurm hides its nodes (PrivateData=nodes), or manages another cluster."""
    nodes = combine(kubernetes, SimulatedScheduler(clock, ())).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == ["Slurm shows no nodes"] * 2


def test_jobs_of_a_node_hidden_by_slurm_are_doubtful(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"))
    scheduler = combine(kubernetes, slurm)
    scheduler.list_nodes()
    del slurm.nodes_by_name["gpu-1"]
    for _ in range(2):
        assert [node.incomplete_jobs_reason for node in scheduler.list_nodes()] == [
            "",
            "Slurm no longer shows it",
        ]


def test_a_node_with_a_possible_other_slurm_name_is_refused(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "other-1"))
    slurm.start_job("other-1", 5)
    with pytest.raises(
        GpuformError, match=r"no node for w1, .*: other-1\. .* cannot look for jobs"
    ):
        combine(kubernetes, slurm).list_nodes()


def test_other_pods_are_evicted_once_slurm_jobs_have_ended(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    """Slurm's own pod is among the other pods: its jobs must not lose it before they end."""
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"), stubborn={"gpu-0"})
    scheduler = combine(kubernetes, slurm)
    for name in ("w0", "w1"):
        slurm.start_job(NAMES[name], 5)
        kubernetes.start_job(name, 5)
    scheduler.evict(["w0", "w1"])
    assert [kubernetes.is_busy(name) for name in ("w0", "w1")] == [True, False]
    slurm.stubborn.clear()
    scheduler.evict(["w0", "w1"])
    assert not kubernetes.is_busy("w0")


@pytest.mark.parametrize(
    "field", ["is_cordoned", "is_failed", "owner_label", "incomplete_jobs_reason"]
)
@pytest.mark.parametrize("in_slurm", [True, False])
def test_a_condition_from_either_scheduler_counts(
    clock: FakeClock, kubernetes: SimulatedScheduler, field: str, in_slurm: bool
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"))
    value = True if field.startswith("is_") else "said"
    where, name = (slurm, "gpu-0") if in_slurm else (kubernetes, "w0")
    where.nodes_by_name[name] = replace(where.nodes_by_name[name], **{field: value})
    first, second = combine(kubernetes, slurm).list_nodes()
    assert getattr(first, field) == value
    assert getattr(second, field) in (False, None, "")


def test_kubernetes_conditions_precede_slurms(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"))
    for where, name in ((kubernetes, "w0"), (slurm, "gpu-0")):
        where.nodes_by_name[name] = replace(
            where.nodes_by_name[name], owner_label=name, incomplete_jobs_reason=name
        )
    first, _ = combine(kubernetes, slurm).list_nodes()
    assert (first.name, first.owner_label, first.incomplete_jobs_reason) == ("w0", "w0", "w0")


def test_doubtful_jobs_of_kubernetes_count_without_a_slurm_node(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    kubernetes.nodes_by_name["w0"] = replace(
        kubernetes.nodes_by_name["w0"], incomplete_jobs_reason="pods are hidden"
    )
    nodes = combine(kubernetes, SimulatedScheduler(clock, ())).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == [
        "pods are hidden",
        "Slurm shows no nodes",
    ]
    nodes = combine(kubernetes, SimulatedScheduler(clock, ("gpu-0",))).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == ["pods are hidden", ""]


def test_slurms_own_pods_are_no_jobs(clock: FakeClock, kubernetes: SimulatedScheduler) -> None:
    show = kubernetes.list_nodes
    pods = tuple(
        RunningJob(id=f"{namespace}/x", name="x") for namespace in ("slurm", "slurm2", "ml")
    )
    kubernetes.list_nodes = lambda: [replace(node, jobs=pods) for node in show()]  # type: ignore[method-assign]
    slurm = SimulatedScheduler(clock, ("gpu-0",))
    slurm.start_job("gpu-0", 5)
    jobs = [[job.id for job in node.jobs] for node in combine(kubernetes, slurm).list_nodes()]
    assert jobs == [["ml/on-gpu-0", "slurm2/x", "ml/x"], ["slurm2/x", "ml/x"]]


def test_a_node_has_the_same_name_in_slurm_by_default(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("w0", "w1"))
    slurm.start_job("w1", 5)
    scheduler = SlurmOnKubernetes(kubernetes, slurm, "slurm", {})
    assert [len(node.jobs) for node in scheduler.list_nodes()] == [0, 1]
    scheduler.cordon(["w0"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["w0"], ["w0"])
    slurm.stubborn = {"w1"}
    kubernetes.start_job("w0", 5)
    kubernetes.start_job("w1", 5)
    scheduler.evict(["w0", "w1"])
    assert [kubernetes.is_busy(name) for name in ("w0", "w1")] == [False, True]


def test_additional_slurm_nodes_are_accepted_if_all_workers_are_known(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1", "login"))
    assert [node.name for node in combine(kubernetes, slurm).list_nodes()] == ["w0", "w1"]


def test_unknown_and_missing_slurm_nodes_are_named(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("z", "y"))
    with pytest.raises(GpuformError) as raised:
        combine(kubernetes, slurm).list_nodes()
    assert raised.value.message == (
        "Slurm has no node for w0, w1, but has nodes that are not workers of the cluster: y, z. "
        "gpuform does not know which of them are the same machines, so it cannot look for jobs "
        "there"
    )
    assert raised.value.hint == (
        "delete the removed nodes from Slurm, or remove the workers on the platform's own pages"
    )


def build_call_recorder(calls: list[str], name: str) -> Callable[[str], None]:
    return lambda operation: calls.append(f"{name} {operation}")


def test_nodes_are_drained_in_slurm_first_and_uncordoned_there_last(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"))
    scheduler = combine(kubernetes, slurm)
    scheduler.list_nodes()
    calls: list[str] = []
    slurm.before, kubernetes.before = (
        build_call_recorder(calls, "slurm"),
        build_call_recorder(calls, "kubernetes"),
    )
    scheduler.cordon(["w0", "w1"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-0", "gpu-1"], ["w0", "w1"])
    assert {
        node.owner_label
        for node in (*slurm.nodes_by_name.values(), *kubernetes.nodes_by_name.values())
    } == {"mark"}
    scheduler.uncordon(["w0"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-1"], ["w1"])
    assert calls == ["slurm cordon", "kubernetes cordon", "kubernetes uncordon", "slurm uncordon"]


def test_slurm_is_only_queried_for_its_own_nodes(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0",))
    scheduler = combine(kubernetes, slurm)
    scheduler.list_nodes()
    scheduler.cordon(["w0", "w1"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-0"], ["w0", "w1"])


@pytest.mark.parametrize("broken", [["slurm"], ["kubernetes"], ["kubernetes", "slurm"]])
def test_an_error_of_one_scheduler_does_not_prevent_uncordoning_in_the_other(
    clock: FakeClock, kubernetes: SimulatedScheduler, broken: list[str]
) -> None:
    schedulers = {"slurm": SimulatedScheduler(clock, ("gpu-0", "gpu-1")), "kubernetes": kubernetes}
    scheduler = combine(kubernetes, schedulers["slurm"])
    scheduler.cordon(["w0"], "mark")

    def fail_of(name: str) -> Callable[[str], None]:
        def fail(_: str) -> None:
            raise Unreachable(f"no {name}")

        return fail

    for name in broken:
        schedulers[name].before = fail_of(name)
    with pytest.raises(Unreachable, match=f"no {broken[0]}"):
        scheduler.uncordon(["w0"], "mark")
    cordoned = {name: bool(either.cordoned) for name, either in schedulers.items()}
    assert cordoned == {name: name in broken for name in schedulers}


def test_kubernetes_evicts_nothing_while_slurm_is_busy(
    clock: FakeClock, kubernetes: SimulatedScheduler
) -> None:
    slurm = SimulatedScheduler(clock, ("gpu-0", "gpu-1"), stubborn={"gpu-0"})
    slurm.start_job("gpu-0", 5)
    combine(kubernetes, slurm).evict(["w0"])
    assert (slurm.requests, kubernetes.requests) == (["evict", "nodes"], [])
