"""Test the scheduler of an emulated Slurm, through exec in its controller's pod."""

import base64
from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.draining import ScheduledNode, Scheduler
from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.errors import AuthError, GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.slurm.scheduler import create_slurm_scheduler
from gpuform.schemas.policies.drain import SlurmInputs

MARK = "scale-down of training/dev"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(seed="slurm", smallest_wait=120.0) as server:
        yield server


@pytest.fixture
def cluster(server: Server) -> Iterator[SlurmCluster]:
    made = create_slurm_cluster(server)
    with closing(get_kubernetes_client(made.kubeconfig, "train")):
        yield made


def open_scheduler(cluster: SlurmCluster, **inputs: object) -> Scheduler:
    parsed = SlurmInputs.model_validate(inputs)
    return create_slurm_scheduler(parsed, kubeconfig=cluster.kubeconfig, cluster="train")


@pytest.fixture
def scheduler(cluster: SlurmCluster) -> Scheduler:
    return open_scheduler(cluster)


def list_jobs(scheduler: Scheduler) -> dict[str, list[str]]:
    return {node.name: [job.id for job in node.jobs] for node in scheduler.list_nodes()}


def test_jobs_are_waited_for_or_requeued_and_run_again(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    nodes = [ScheduledNode(name, addresses=(name, name)) for name in NODES]
    assert list(scheduler.list_nodes()) == nodes
    long = cluster.submit(name="pre | train", user="ada", nodes=NODES[:2], count=2)
    short = cluster.submit(nodes=NODES[2:], runs_for=600)
    assert list_jobs(scheduler) == dict(zip(NODES, [[long], [long], [short]], strict=True))

    scheduler.cordon(NODES[1:], MARK)
    waiting = cluster.submit(runs_for=60)
    cluster.advance(603)
    assert list_jobs(scheduler)[NODES[2]] == [short]  # COMPLETING
    cluster.advance(3)
    assert list_jobs(scheduler)[NODES[2]] == []
    assert cluster.get_job_states()[waiting] == "PENDING"

    scheduler.evict([NODES[1]])
    cluster.advance(10)
    assert list_jobs(scheduler)[NODES[1]] == []
    scheduler.uncordon(NODES, MARK)
    cluster.advance(200)
    assert cluster.get_job_states()[long] == "RUNNING"


def test_jobs_that_cannot_be_requeued_are_cancelled(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    other_job = cluster.submit(nodes=NODES[:1], gpus=2)
    fixed = cluster.submit(nodes=NODES[:1], gpus=2, can_requeue=False)
    shell = cluster.submit(nodes=NODES[:1], gpus=2, is_batch=False)
    scheduler.evict(NODES[:1])
    cluster.advance(10)
    assert cluster.get_job_states() == {
        other_job: "PENDING",
        fixed: "CANCELLED",
        shell: "CANCELLED",
    }


def test_nodes_that_the_platform_removes_leave_slurm(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    doomed = cluster.submit(nodes=NODES[2:])
    cluster.resize(16)
    cluster.advance(3600)
    assert sorted(list_jobs(scheduler)) == list(NODES[:2])
    (job,) = cluster.call_slurm("GET", "/jobs")
    assert job["label"] == doomed
    assert job["ended"] == ["killed"]


def test_a_silent_controller_is_an_error(cluster: SlurmCluster, scheduler: Scheduler) -> None:
    cluster.call_slurm("POST", "/controller", {"is_answering": False})
    with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
        scheduler.list_nodes()


def test_an_unknown_node_is_named(scheduler: Scheduler) -> None:
    with pytest.raises(GpuformError, match="has no node w9"):
        scheduler.cordon(["w9"], MARK)


def test_a_missing_pod_of_slurm_is_an_error(cluster: SlurmCluster) -> None:
    with pytest.raises(GpuformError, match="no pod of Slurm runs in cluster train") as caught:
        open_scheduler(cluster, namespace="hpc").list_nodes()
    assert "pod_selector" in str(caught.value)


def test_commands_can_run_in_the_login_pod(cluster: SlurmCluster) -> None:
    login = open_scheduler(cluster, pod_selector="app.kubernetes.io/name=login", container="login")
    assert len(login.list_nodes()) == 3


def test_a_missing_container_is_an_error(cluster: SlurmCluster) -> None:
    with pytest.raises(Unreachable, match="exec in pod slurm-controller-0 of cluster train") as no:
        open_scheduler(cluster, container="sssd").list_nodes()
    assert "400" in str(no.value)


def test_a_wrong_token_is_never_shown(cluster: SlurmCluster) -> None:
    document = yaml.safe_load(cluster.kubeconfig)
    document["users"][0]["user"]["token"] = "not-the-token"
    kubeconfig = yaml.safe_dump(document)
    with closing(get_kubernetes_client(kubeconfig, "other")), pytest.raises(AuthError) as caught:
        create_slurm_scheduler(SlurmInputs(), kubeconfig=kubeconfig, cluster="other").list_nodes()
    assert "not-the-token" not in str(caught.value)


def test_a_lost_answer_to_a_change_is_an_unknown_outcome(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    cluster.call_emulator("POST", "/faults", {"path": "/exec", "status": 503, "skip": 1})
    with pytest.raises(UnknownOutcome):
        scheduler.cordon(NODES[:1], MARK)
    scheduler.cordon(NODES[:1], MARK)
    assert scheduler.list_nodes()[0].owner_label == MARK


@pytest.mark.parametrize("text", ["{", "clusters: 3", base64.b64encode(b"x").decode(), "[]"])
def test_an_invalid_kubeconfig_is_refused(text: str) -> None:
    with pytest.raises(GpuformError, match="kubeconfig"):
        create_slurm_scheduler(SlurmInputs(), kubeconfig=text).list_nodes()


def test_a_cluster_without_a_kubeconfig_is_an_error() -> None:
    with pytest.raises(GpuformError, match="no kubeconfig yet"):
        create_slurm_scheduler(SlurmInputs(), kubeconfig="")
