"""Test whether declared schedulers can use each node, and since when not."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.slurm.processes import CommandOutput, LocalCommandRunner
from gpuform.providers.slurm.scheduler import NodeCondition, list_node_conditions
from gpuform.schemas.policies.drain import ScheduledDrainInputs

WORKERS = [f"train-worker-{number}" for number in range(3)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(seed="conditions") as server:
        yield server


@pytest.fixture
def cluster(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[SlurmCluster]:
    made = create_slurm_cluster(server)
    (tmp_path / "kubeconfig").write_text(made.kubeconfig)
    monkeypatch.chdir(tmp_path)

    def run(_: object, command: Sequence[str], *, is_change: bool = False) -> CommandOutput:
        return CommandOutput(*made.run_command(*command))

    monkeypatch.setattr(LocalCommandRunner, "run", run)
    with closing(get_kubernetes_client(made.kubeconfig, "nodes")):
        yield made


def read_conditions(cluster: SlurmCluster, **schedulers: Any) -> dict[str, NodeCondition]:
    with closing(EmulatorClock(cluster.url)) as clock, use_context(ProviderContext(clock=clock)):
        parsed = ScheduledDrainInputs.model_validate(schedulers)
        return list_node_conditions(parsed, "nodes")


KUBERNETES = {"kubeconfig": "kubeconfig"}
SLURM = {"via": "local"}


def test_a_problem_in_kubernetes_has_its_start_time(cluster: SlurmCluster) -> None:
    assert {
        worker: read_conditions(cluster, kubernetes=KUBERNETES)[worker] for worker in WORKERS
    } == dict.fromkeys(WORKERS, NodeCondition())
    cluster.call_emulator("POST", f"/kubernetes/{cluster.id}/nodes/{WORKERS[1]}", {"ready": False})
    conditions = read_conditions(cluster, kubernetes=KUBERNETES)
    assert conditions[WORKERS[1]].problem == "NotReady: Kubelet stopped posting status (Kubernetes)"
    assert conditions[WORKERS[1]].problem_since.startswith("20")
    assert conditions[WORKERS[0]] == NodeCondition()


def test_a_problem_in_slurm_has_a_reason_and_no_time(cluster: SlurmCluster) -> None:
    command = ("scontrol", "update", f"NodeName={NODES[1]}", "State=DOWN", "Reason=bad NIC")
    assert cluster.run_command(*command)[2] == 0
    conditions = read_conditions(cluster, slurm=SLURM)
    assert conditions == {
        NODES[0]: NodeCondition(),
        NODES[1]: NodeCondition("DOWN, bad NIC (Slurm)"),
        NODES[2]: NodeCondition(),
    }


def test_a_drained_node_has_no_problem(cluster: SlurmCluster) -> None:
    cluster.run_command("scontrol", "update", f"NodeName={NODES[1]}", "State=DRAIN", "Reason=ours")
    assert read_conditions(cluster, slurm=SLURM)[NODES[1]] == NodeCondition()


def test_both_declared_schedulers_are_queried(cluster: SlurmCluster) -> None:
    cluster.run_command(
        "scontrol", "update", f"NodeName={NODES[1]}", "State=DOWN", "Reason=bad NIC"
    )
    conditions = read_conditions(cluster, kubernetes=KUBERNETES, slurm=SLURM)
    assert {*WORKERS, *NODES} <= {*conditions}
    assert conditions[NODES[1]].problem.endswith("(Slurm)")


def test_a_scheduler_that_does_not_answer_is_an_error(cluster: SlurmCluster) -> None:
    Path("kubeconfig").unlink()
    with pytest.raises(GpuformError, match="kubeconfig cannot be read"):
        read_conditions(cluster, kubernetes=KUBERNETES)
