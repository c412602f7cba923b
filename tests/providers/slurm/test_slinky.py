"""Test drains by a request to the emulated Slinky, alone and through a shrinking cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.schedulers.emulated_slurm import NODES, SlurmCluster

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.draining import ScheduledNode, Scheduler, SlurmOnKubernetes
from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drains
from gpuform.providers.slurm.processes import PodCommandRunner
from gpuform.providers.slurm.scheduler import (
    create_declared_scheduler,
    create_draining_scheduler,
    create_slurm_scheduler,
)
from gpuform.providers.slurm.slinky import DrainRequests, SlinkyScheduler
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.schemas.policies.drain import ScheduledDrainInputs, SlurmInputs

LABEL = "gpuform-scale-down-1"
REQUEST = "nodeset.slinky.slurm.net/pod-cordon-requested"
PODS = "/api/v1/namespaces/slurm/pods"
BY_SLINKY = {"slurm": {"drain_by": "slinky"}}


@pytest.fixture
def client(cluster: SlurmCluster) -> KubernetesClient:
    return get_kubernetes_client(cluster.kubeconfig, "train")


@pytest.fixture
def scheduler(cluster: SlurmCluster) -> Scheduler:
    return open_scheduler(cluster)


@pytest.fixture(autouse=True)
def newest_slinky(cluster: SlurmCluster) -> None:
    install_slinky(cluster, "1.3")


def install_slinky(cluster: SlurmCluster, version: str) -> None:
    cluster.call_emulator("POST", "/kubernetes/settings", {"slinky": version})


def open_scheduler(cluster: SlurmCluster, **fields: object) -> Scheduler:
    inputs = SlurmInputs.model_validate({"drain_by": "slinky", **fields})
    return create_draining_scheduler(inputs, kubeconfig=cluster.kubeconfig, cluster="train")


def find_node(scheduler: Scheduler, name: str = NODES[0]) -> ScheduledNode:
    return next(node for node in scheduler.list_nodes() if node.name == name)


def list_requests(client: KubernetesClient) -> dict[str, str]:
    """Return the label of each request by the node's name in Slurm."""
    return {
        pod["metadata"]["labels"]["nodeset.slinky.slurm.net/pod-hostname"]: pod["metadata"][
            "annotations"
        ].get("gpuform.dev/cordoned-for", "")
        for pod in client.list_objects(PODS)
        if (pod["metadata"].get("annotations") or {}).get(REQUEST) == "true"
    }


def get_reason(cluster: SlurmCluster, name: str = NODES[0]) -> str:
    block = cluster.run_command("scontrol", "show", "node", name)[0]
    return block.partition("Reason=")[2].partition(" [")[0]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the list to which each command of Slurm is added that gpuform runs."""
    run, recorded = PodCommandRunner.run, []

    def run_recorded(self: PodCommandRunner, command: Sequence[str], **options: Any) -> Any:
        recorded.append(command)
        return run(self, command, **options)

    monkeypatch.setattr(PodCommandRunner, "run", run_recorded)
    return recorded


def test_slinky_drains_the_requested_nodes_and_resumes_them_after_the_withdrawal(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient
) -> None:
    job = cluster.submit(nodes=NODES[:1], runs_for=600)
    scheduler.cordon(NODES[:2], LABEL)
    assert list_requests(client) == dict.fromkeys(NODES[:2], LABEL)
    node = find_node(scheduler)
    assert (node.is_cordoned, node.owner_label, node.incomplete_jobs_reason) == (True, LABEL, "")
    assert [running.id for running in node.jobs] == [job]
    assert get_reason(cluster).startswith("slurm-operator: Pod (slurm/")
    scheduler.cordon(NODES[:2], LABEL)
    scheduler.uncordon(NODES, LABEL)
    assert list_requests(client) == {}
    assert [node.is_cordoned for node in scheduler.list_nodes()] == [False] * 3
    assert cluster.get_job_states()[job] == "RUNNING"


def test_jobs_count_as_unknown_until_slinky_has_drained_the_node(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    """Slinky before 1.3 does not know the annotation; a newer one needs some time."""
    install_slinky(cluster, "1.2")
    scheduler.cordon(NODES[:1], LABEL)
    node = find_node(scheduler)
    assert (node.is_cordoned, node.owner_label) == (False, LABEL)
    assert node.incomplete_jobs_reason == "Slinky has not drained it in Slurm yet"
    assert find_node(scheduler, NODES[1]).incomplete_jobs_reason == ""
    install_slinky(cluster, "1.3")
    assert find_node(scheduler).incomplete_jobs_reason == ""


def test_a_node_that_is_down_has_no_unknown_jobs(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    """Slinky leaves it alone, and Slurm starts no job there."""
    cluster.run_command("scontrol", "update", f"NodeName={NODES[0]}", "State=DOWN", "Reason=fan")
    scheduler.cordon(NODES[:1], LABEL)
    node = find_node(scheduler)
    assert (node.is_failed, node.owner_label, node.incomplete_jobs_reason) == (True, LABEL, "")


def test_a_request_of_somebody_else_stays(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient
) -> None:
    other = open_scheduler(cluster)
    other.cordon(NODES[:1], "theirs")
    scheduler.cordon(NODES[:1], LABEL)
    assert list_requests(client) == {NODES[0]: "theirs"}
    scheduler.uncordon(NODES[:1], LABEL)
    assert list_requests(client) == {NODES[0]: "theirs"}
    assert find_node(scheduler).owner_label == "theirs"


def test_a_node_that_an_administrator_has_drained_is_not_requested(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient
) -> None:
    cluster.run_command("scontrol", "update", f"NodeName={NODES[0]}", "State=DRAIN", "Reason=fan")
    scheduler.cordon(NODES[:2], LABEL)
    assert list_requests(client) == {NODES[1]: LABEL}
    scheduler.uncordon(NODES[:2], LABEL)
    node = find_node(scheduler)
    assert (node.is_cordoned, node.owner_label, get_reason(cluster)) == (True, None, "fan")


@pytest.mark.parametrize("version", ["1.3", ""])
def test_a_scheduler_with_scontrol_withdraws_the_request_of_an_earlier_run(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient, version: str
) -> None:
    """Whether Slinky has drained the node or not."""
    install_slinky(cluster, version)
    scheduler.cordon(NODES[:1], LABEL)
    scheduler.cordon(NODES[1:2], "theirs")
    by_scontrol = open_scheduler(cluster, drain_by="scontrol")
    by_scontrol.uncordon(NODES, LABEL)
    assert list_requests(client) == {NODES[1]: "theirs"}
    assert find_node(by_scontrol).is_cordoned is False


def test_a_credential_without_access_to_pods_still_resumes_by_scontrol(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient
) -> None:
    by_scontrol = open_scheduler(cluster, drain_by="scontrol")
    by_scontrol.cordon(NODES[:1], LABEL)
    scheduler.cordon(NODES[1:2], LABEL)
    # The first list of pods finds the controller, in which Slurm's commands run.
    rule = {"method": "GET", "path": "namespaces/slurm/pods$", "skip": 1, "status": 403}
    cluster.call_emulator("POST", "/faults", rule)
    by_scontrol.uncordon(NODES, LABEL)
    assert find_node(by_scontrol).is_cordoned is False
    assert list_requests(client) == {NODES[1]: LABEL}


def test_a_drain_by_scontrol_of_an_earlier_run_is_ended(
    cluster: SlurmCluster, scheduler: Scheduler
) -> None:
    create_slurm_scheduler(SlurmInputs(), kubeconfig=cluster.kubeconfig).cordon(NODES[:1], LABEL)
    assert find_node(scheduler).owner_label == LABEL
    scheduler.uncordon(NODES[:1], LABEL)
    assert find_node(scheduler).is_cordoned is False


@pytest.mark.parametrize(
    ("namespace", "names", "message"),
    [
        ("default", NODES[:1], f"namespace default has no pod of Slinky for {NODES[0]}"),
        ("slurm", (NODES[0], "w9"), "Slurm has no node w9"),
    ],
)
def test_nothing_is_requested_if_a_node_or_its_pod_is_missing(
    cluster: SlurmCluster,
    client: KubernetesClient,
    namespace: str,
    names: tuple[str, ...],
    message: str,
) -> None:
    slurm = create_slurm_scheduler(SlurmInputs(), kubeconfig=cluster.kubeconfig)
    elsewhere = SlinkyScheduler(slurm, DrainRequests(client, namespace))
    with pytest.raises(GpuformError, match=message):
        elsewhere.cordon(names, LABEL)
    assert list_requests(client) == {}


def test_a_pod_that_others_change_at_the_same_time_is_annotated_once_more(
    scheduler: Scheduler, client: KubernetesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, interfered = KubernetesClient.patch_object, []

    def patch_after_others(self: KubernetesClient, path: str, body: Any) -> Any:
        if not interfered:
            interfered.append(path)
            patch(self, path, {"metadata": {"annotations": {"theirs": "1"}}})
        return patch(self, path, body)

    monkeypatch.setattr(KubernetesClient, "patch_object", patch_after_others)
    scheduler.cordon(NODES[:1], LABEL)
    assert list_requests(client) == {NODES[0]: LABEL}
    assert client.get_object(interfered[0])["metadata"]["annotations"]["theirs"] == "1"


def test_a_pod_that_is_gone_holds_up_no_withdrawal(
    scheduler: Scheduler, client: KubernetesClient
) -> None:
    scheduler.cordon(NODES[:2], LABEL)
    pod = next(
        pod
        for pod in client.list_objects(PODS)
        if REQUEST in (pod["metadata"].get("annotations") or {})
    )
    client.delete_object(PODS + build_path(pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
    scheduler.uncordon(NODES, LABEL)
    assert list_requests(client) == {}


def test_kubernetes_and_slinky_are_cordoned_and_resumed_together(
    cluster: SlurmCluster, scheduler: Scheduler, client: KubernetesClient
) -> None:
    hosts = {f"train-worker-{number}": name for number, name in enumerate(NODES)}
    both = SlurmOnKubernetes(KubernetesScheduler(client), scheduler, "slurm", hosts)
    assert [node.jobs for node in both.list_nodes()] == [()] * 3
    both.cordon([*hosts][:1], LABEL)
    first, *others = both.list_nodes()
    assert (first.is_cordoned, first.owner_label, first.incomplete_jobs_reason) == (True, LABEL, "")
    assert not any(node.is_cordoned for node in others)
    both.uncordon([*hosts], LABEL)
    assert not any(node.is_cordoned for node in both.list_nodes())
    assert get_reason(cluster) == ""


def test_a_declared_scheduler_of_a_pool_asks_slinky(
    cluster: SlurmCluster, client: KubernetesClient, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig)
    inputs = ScheduledDrainInputs.model_validate(
        {"kubernetes": {"kubeconfig": str(kubeconfig)}, "slurm": {"drain_by": "slinky"}}
    )
    scheduler = create_declared_scheduler(inputs, "pool train")
    # Slurm comes first, and Kubernetes knows these nodes by other names.
    with pytest.raises(NotFound):
        scheduler.cordon(NODES[:1], LABEL)
    assert list_requests(client) == {NODES[0]: LABEL}


def test_a_cluster_without_a_kubeconfig_cannot_ask_slinky(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")
    inputs = SlurmInputs(via="local", drain_by="slinky")
    with pytest.raises(GpuformError, match="has no kubeconfig, and gpuform needs it to ask Slinky"):
        create_draining_scheduler(inputs, cluster="train")


def shrink(
    call: ProviderContext, cluster: SlurmCluster, num_gpus: int = 16, **drain: Any
) -> dict[str, Any]:
    """Shrink the cluster from three nodes to two."""
    lifecycle, program = ClusterLifecycle(), {"__provider": "pickled"}
    with use_context(call):
        read = lifecycle.read(cluster.id, {})
        news = {**read.inputs, "num_gpus": num_gpus, "drain": {**BY_SLINKY, **drain}, **program}
        return lifecycle.update(cluster.id, {**read.outs, **program}, news).outs


@pytest.mark.parametrize("drain_by", ["slinky", pytest.param("scontrol", marks=pytest.mark.slow)])
def test_a_shrinking_cluster_waits_for_jobs_and_drains_nodes_as_declared(
    call: ProviderContext,
    cluster: SlurmCluster,
    client: KubernetesClient,
    commands: list[Sequence[str]],
    drain_by: str,
) -> None:
    names = [node.name for node in open_scheduler(cluster).list_nodes()]
    job = cluster.submit(nodes=[names[1]], runs_for=1200)
    outs = shrink(call, cluster, nodes=[names[1]], slurm={"drain_by": drain_by})
    assert [node["host_name"][-1] for node in outs["gpu_worker_nodes"]] == ["0", "2"]
    assert cluster.get_job_states()[job] == "COMPLETED"
    updates = [command for command in commands if command[:2] == ("scontrol", "update")]
    assert bool(updates) is (drain_by == "scontrol")
    assert list_requests(client) == {}
    assert not any(node.is_cordoned for node in open_scheduler(cluster).list_nodes())
    assert Drains.from_intents(call.intents).find(cluster.id) is None


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_shrink_that_cannot_wait_longer_withdraws_the_requests(
    call: ProviderContext, cluster: SlurmCluster, client: KubernetesClient
) -> None:
    names = [node.name for node in open_scheduler(cluster).list_nodes()]
    jobs = [cluster.submit(nodes=[name]) for name in names]
    with pytest.raises(GpuformError, match=f"jobs still run on .*{jobs[2]}"):
        shrink(call, cluster, wait_minutes=10)
    assert list_requests(client) == {}
    assert not any(node.is_cordoned for node in open_scheduler(cluster).list_nodes())


class Killed(BaseException):
    """The process died here."""


def test_a_run_after_a_killed_one_withdraws_the_requests(
    call: ProviderContext,
    cluster: SlurmCluster,
    client: KubernetesClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cordon = SlinkyScheduler.cordon

    def cordon_and_die(*arguments: Any) -> None:
        cordon(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SlinkyScheduler, "cordon", cordon_and_die)
        with pytest.raises(Killed):
            shrink(call, cluster)
    assert len(list_requests(client)) == 1
    # The refresh before it has the inputs of the state, without the new setting.
    outs = shrink(call, cluster, num_gpus=24)
    assert len(outs["gpu_worker_nodes"]) == 3
    assert list_requests(client) == {}
    assert not any(node.is_cordoned for node in open_scheduler(cluster).list_nodes())
    assert Drains.from_intents(call.intents).find(cluster.id) is None


def test_no_node_is_removed_while_slinky_drains_nothing(
    call: ProviderContext, cluster: SlurmCluster, client: KubernetesClient
) -> None:
    install_slinky(cluster, "")
    with pytest.raises(GpuformError, match="Slinky has not drained it in Slurm yet"):
        shrink(call, cluster, wait_minutes=10)
    assert list_requests(client) == {}
