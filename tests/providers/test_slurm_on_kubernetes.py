"""Two schedulers of the same nodes: neither's jobs are missed, and no name is guessed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_clock import FakeClock
from simulated_scheduler import Simulated

from gpuform.providers.draining import SlurmOnKubernetes
from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.schemas.policies.drain import RunningJob

NAMES = {"w0": "gpu-0", "w1": "gpu-1"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kubernetes(clock: FakeClock) -> Simulated:
    return Simulated(clock, ("w0", "w1"))


def both(kubernetes: Simulated, slurm: Simulated) -> SlurmOnKubernetes:
    return SlurmOnKubernetes(kubernetes, slurm, "slurm", NAMES)


def test_the_jobs_of_both_are_told(clock: FakeClock, kubernetes: Simulated) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    slurm.run("gpu-0", 5)
    kubernetes.run("w0", 5)
    kubernetes.run("w1", 5)
    jobs = [(node.name, len(node.jobs)) for node in both(kubernetes, slurm).list_nodes()]
    assert jobs == [("w0", 2), ("w1", 1)]


def test_a_node_that_has_not_joined_slurm_yet_has_no_jobs_of_it(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0",))
    assert [node.jobs for node in both(kubernetes, slurm).list_nodes()] == [(), ()]


def test_jobs_are_in_doubt_where_slurm_shows_no_node(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    """It hides them (PrivateData=nodes), or is another one."""
    nodes = both(kubernetes, Simulated(clock, ())).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == ["Slurm shows no nodes"] * 2


def test_jobs_of_a_node_that_slurm_no_longer_shows_are_in_doubt(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    scheduler = both(kubernetes, slurm)
    scheduler.list_nodes()
    del slurm.nodes_["gpu-1"]
    for _ in range(2):
        assert [node.incomplete_jobs_reason for node in scheduler.list_nodes()] == [
            "",
            "Slurm no longer shows it",
        ]


def test_a_node_that_slurm_may_have_under_another_name_is_refused(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "other-1"))
    slurm.run("other-1", 5)
    with pytest.raises(GpuformError, match=r"no node for w1, .*: other-1\. .* is unknown"):
        both(kubernetes, slurm).list_nodes()


def test_what_runs_beside_slurm_goes_once_its_jobs_have_ended(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    """Slurm's own pod on the node is among it: the jobs must not lose it while they end."""
    slurm = Simulated(clock, ("gpu-0", "gpu-1"), stubborn={"gpu-0"})
    scheduler = both(kubernetes, slurm)
    for name in ("w0", "w1"):
        slurm.run(NAMES[name], 5)
        kubernetes.run(name, 5)
    scheduler.evict(["w0", "w1"])
    assert [kubernetes.is_busy(name) for name in ("w0", "w1")] == [True, False]
    slurm.stubborn.clear()
    scheduler.evict(["w0", "w1"])
    assert not kubernetes.is_busy("w0")


@pytest.mark.parametrize(
    "field", ["is_cordoned", "is_failed", "owner_label", "incomplete_jobs_reason"]
)
@pytest.mark.parametrize("in_slurm", [True, False])
def test_what_either_says_of_a_node_holds(
    clock: FakeClock, kubernetes: Simulated, field: str, in_slurm: bool
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    value = True if field.startswith("is_") else "said"
    where, name = (slurm, "gpu-0") if in_slurm else (kubernetes, "w0")
    where.nodes_[name] = replace(where.nodes_[name], **{field: value})
    first, second = both(kubernetes, slurm).list_nodes()
    assert getattr(first, field) == value
    assert getattr(second, field) in (False, None, "")


def test_the_word_of_kubernetes_comes_before_that_of_slurm(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    for where, name in ((kubernetes, "w0"), (slurm, "gpu-0")):
        where.nodes_[name] = replace(
            where.nodes_[name], owner_label=name, incomplete_jobs_reason=name
        )
    first, _ = both(kubernetes, slurm).list_nodes()
    assert (first.name, first.owner_label, first.incomplete_jobs_reason) == ("w0", "w0", "w0")


def test_the_doubts_of_kubernetes_hold_where_slurm_has_no_node(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    kubernetes.nodes_["w0"] = replace(
        kubernetes.nodes_["w0"], incomplete_jobs_reason="pods are hidden"
    )
    nodes = both(kubernetes, Simulated(clock, ())).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == [
        "pods are hidden",
        "Slurm shows no nodes",
    ]
    nodes = both(kubernetes, Simulated(clock, ("gpu-0",))).list_nodes()
    assert [node.incomplete_jobs_reason for node in nodes] == ["pods are hidden", ""]


def test_the_pods_of_slurm_itself_are_no_jobs(clock: FakeClock, kubernetes: Simulated) -> None:
    show = kubernetes.list_nodes
    pods = tuple(RunningJob(id=f"{each}/x", name="x") for each in ("slurm", "slurm2", "ml"))
    kubernetes.list_nodes = lambda: [replace(node, jobs=pods) for node in show()]  # type: ignore[method-assign]
    slurm = Simulated(clock, ("gpu-0",))
    slurm.run("gpu-0", 5)
    jobs = [[job.id for job in node.jobs] for node in both(kubernetes, slurm).list_nodes()]
    assert jobs == [["ml/on-gpu-0", "slurm2/x", "ml/x"], ["slurm2/x", "ml/x"]]


def test_a_node_without_another_name_has_the_same_in_slurm(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("w0", "w1"))
    slurm.run("w1", 5)
    scheduler = SlurmOnKubernetes(kubernetes, slurm, "slurm", {})
    assert [len(node.jobs) for node in scheduler.list_nodes()] == [0, 1]
    scheduler.cordon(["w0"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["w0"], ["w0"])
    slurm.stubborn = {"w1"}
    kubernetes.run("w0", 5)
    kubernetes.run("w1", 5)
    scheduler.evict(["w0", "w1"])
    assert [kubernetes.is_busy(name) for name in ("w0", "w1")] == [False, True]


def test_what_slurm_has_beside_the_workers_is_no_stranger_while_all_workers_are_known(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1", "login"))
    assert [node.name for node in both(kubernetes, slurm).list_nodes()] == ["w0", "w1"]


def test_strangers_and_missing_nodes_are_named(clock: FakeClock, kubernetes: Simulated) -> None:
    slurm = Simulated(clock, ("z", "y"))
    with pytest.raises(GpuformError) as raised:
        both(kubernetes, slurm).list_nodes()
    assert raised.value.message == (
        "Slurm has no node for w0, w1, but has nodes that are no workers of the cluster: y, z. "
        "Which nodes are the same machine is unknown, and so are the jobs on them"
    )
    assert raised.value.hint == (
        "delete the removed nodes from Slurm, or remove the workers on the platform's own pages"
    )


def note_order(asked: list[str], name: str) -> Callable[[str], None]:
    return lambda what: asked.append(f"{name} {what}")


def test_nodes_are_drained_in_slurm_first_and_come_back_there_last(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    scheduler = both(kubernetes, slurm)
    scheduler.list_nodes()
    asked: list[str] = []
    slurm.before, kubernetes.before = note_order(asked, "slurm"), note_order(asked, "kubernetes")
    scheduler.cordon(["w0", "w1"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-0", "gpu-1"], ["w0", "w1"])
    assert {node.owner_label for node in (*slurm.nodes_.values(), *kubernetes.nodes_.values())} == {
        "mark"
    }
    scheduler.uncordon(["w0"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-1"], ["w1"])
    assert asked == ["slurm cordon", "kubernetes cordon", "kubernetes uncordon", "slurm uncordon"]


def test_only_nodes_that_slurm_has_are_asked_of_it(clock: FakeClock, kubernetes: Simulated) -> None:
    slurm = Simulated(clock, ("gpu-0",))
    scheduler = both(kubernetes, slurm)
    scheduler.list_nodes()
    scheduler.cordon(["w0", "w1"], "mark")
    assert (slurm.cordoned, kubernetes.cordoned) == (["gpu-0"], ["w0", "w1"])


@pytest.mark.parametrize("broken", [["slurm"], ["kubernetes"], ["kubernetes", "slurm"]])
def test_what_one_refuses_does_not_keep_the_other_from_uncordoning(
    clock: FakeClock, kubernetes: Simulated, broken: list[str]
) -> None:
    schedulers = {"slurm": Simulated(clock, ("gpu-0", "gpu-1")), "kubernetes": kubernetes}
    scheduler = both(kubernetes, schedulers["slurm"])
    scheduler.cordon(["w0"], "mark")

    def fail_of(name: str) -> Callable[[str], None]:
        def fail(_: str) -> None:
            raise Unreachable(f"no {name}")

        return fail

    for name in broken:
        schedulers[name].before = fail_of(name)
    with pytest.raises(Unreachable, match=f"no {broken[0]}"):
        scheduler.uncordon(["w0"], "mark")
    left = {name: bool(each.cordoned) for name, each in schedulers.items()}
    assert left == {name: name in broken for name in schedulers}


def test_kubernetes_is_asked_to_evict_nothing_while_slurm_is_busy(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"), stubborn={"gpu-0"})
    slurm.run("gpu-0", 5)
    both(kubernetes, slurm).evict(["w0"])
    assert (slurm.asked, kubernetes.asked) == (["evict", "nodes"], [])
