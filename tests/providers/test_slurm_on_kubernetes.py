"""Two schedulers of the same nodes: neither's jobs are missed, and no name is guessed."""

import pytest
from fake_clock import FakeClock
from simulated_scheduler import Simulated

from gpuform.providers.draining import SlurmOnKubernetes
from gpuform.providers.errors import GpuformError

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
    jobs = [(node.name, len(node.jobs)) for node in both(kubernetes, slurm).nodes()]
    assert jobs == [("w0", 2), ("w1", 1)]


def test_a_node_that_has_not_joined_slurm_yet_has_no_jobs_of_it(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0",))
    assert [node.jobs for node in both(kubernetes, slurm).nodes()] == [(), ()]


def test_jobs_are_in_doubt_where_slurm_shows_no_node(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    """It hides them (PrivateData=nodes), or is another one."""
    nodes = both(kubernetes, Simulated(clock, ())).nodes()
    assert [node.doubt for node in nodes] == ["Slurm shows no node at all"] * 2


def test_jobs_of_a_node_that_slurm_no_longer_shows_are_in_doubt(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "gpu-1"))
    scheduler = both(kubernetes, slurm)
    scheduler.nodes()
    del slurm.nodes_["gpu-1"]
    for _ in range(2):
        assert [node.doubt for node in scheduler.nodes()] == ["", "Slurm no longer shows it"]


def test_a_node_that_slurm_may_have_under_another_name_is_refused(
    clock: FakeClock, kubernetes: Simulated
) -> None:
    slurm = Simulated(clock, ("gpu-0", "other-1"))
    slurm.run("other-1", 5)
    with pytest.raises(GpuformError, match=r"no node for w1, .*: other-1\. .* cannot be told"):
        both(kubernetes, slurm).nodes()


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
