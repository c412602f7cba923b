"""Test the emulated operator of Slinky: Slurm's worker pods, drains and topologies."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.emulator.server import serve

PREFIX = "nodeset.slinky.slurm.net"
WORKER, OTHER = "train-worker-0", "train-worker-1"


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with serve(seed="slinky") as server:
        yield create_slurm_cluster(server)


@pytest.fixture
def core(cluster: SlurmCluster) -> Iterator[client.CoreV1Api]:
    with closing(config.new_client_from_config_dict(yaml.safe_load(cluster.kubeconfig))) as api:
        yield client.CoreV1Api(api)


def find_pod(core: client.CoreV1Api, slurm_name: str) -> Any:
    (pod,) = core.list_namespaced_pod(
        "slurm", label_selector=f"{PREFIX}/pod-hostname={slurm_name}"
    ).items
    return pod


def annotate(core: client.CoreV1Api, slurm_name: str, name: str, value: str | None) -> None:
    pod = find_pod(core, slurm_name)
    body = {"metadata": {"annotations": {f"{PREFIX}/{name}": value}}}
    core.patch_namespaced_pod(pod.metadata.name, "slurm", body)


def get_state(cluster: SlurmCluster, slurm_name: str = NODES[0]) -> tuple[str, str]:
    """Return a node's state and the reason in Slurm, without the time."""
    (block,) = cluster.run_command("scontrol", "show", "node", slurm_name)[0].split("\n\n")[:1]
    fields = dict(word.split("=", 1) for word in block.split() if "=" in word)
    reason = block.partition("Reason=")[2].partition(" [")[0]
    return fields["State"], reason


def test_each_running_worker_has_a_pod_with_its_name_in_slurm(
    cluster: SlurmCluster, core: client.CoreV1Api
) -> None:
    pods = core.list_namespaced_pod("slurm", label_selector=f"{PREFIX}/pod-hostname").items
    assert {pod.metadata.labels[f"{PREFIX}/pod-hostname"] for pod in pods} == {*NODES}
    assert find_pod(core, NODES[0]).spec.node_name == WORKER
    cluster.resize(16)
    cluster.advance(3600)
    pods = core.list_namespaced_pod("slurm", label_selector=f"{PREFIX}/pod-hostname").items
    assert len(pods) == 2


def test_a_requested_drain_begins_and_ends_with_the_annotation(
    cluster: SlurmCluster, core: client.CoreV1Api
) -> None:
    annotate(core, NODES[0], "pod-cordon-requested", "true")
    pod = find_pod(core, NODES[0])
    assert pod.metadata.annotations[f"{PREFIX}/pod-cordon"] == "true"
    reason = f"slurm-operator: Pod (slurm/{pod.metadata.name}) was cordoned"
    assert get_state(cluster) == ("IDLE+DRAIN", reason)
    assert get_state(cluster, NODES[1]) == ("IDLE", "")
    annotate(core, NODES[0], "pod-cordon-requested", None)
    core.list_node()
    assert get_state(cluster) == ("IDLE", "")
    assert f"{PREFIX}/pod-cordon" not in (find_pod(core, NODES[0]).metadata.annotations or {})


def test_a_cordoned_node_is_drained_in_slurm_until_it_is_uncordoned(
    cluster: SlurmCluster, core: client.CoreV1Api
) -> None:
    core.patch_node(WORKER, {"spec": {"unschedulable": True}})
    state, reason = get_state(cluster)
    assert (state, reason.split(",")[0]) == (
        "IDLE+DRAIN",
        f"slurm-operator: Node ({WORKER}) was cordoned",
    )
    core.patch_node(WORKER, {"spec": {"unschedulable": None}})
    assert get_state(cluster) == ("IDLE", "")


def test_a_drain_with_another_reason_stays(cluster: SlurmCluster, core: client.CoreV1Api) -> None:
    cluster.run_command("scontrol", "update", f"NodeName={NODES[0]}", "State=DRAIN", "Reason=fan")
    core.patch_node(WORKER, {"spec": {"unschedulable": True}})
    assert get_state(cluster) == ("IDLE+DRAIN", "fan")
    core.patch_node(WORKER, {"spec": {"unschedulable": None}})
    assert get_state(cluster) == ("IDLE+DRAIN", "fan")


@pytest.mark.parametrize(
    ("version", "annotation", "is_drained"),
    [
        ("1.2", "pod-cordon-requested", False),
        ("1.2", "pod-cordon", True),
        ("1.3", "pod-cordon-requested", True),
        ("1.3", "pod-cordon", False),
        ("", "pod-cordon-requested", False),
    ],
)
def test_each_version_follows_its_own_annotation(
    cluster: SlurmCluster, core: client.CoreV1Api, version: str, annotation: str, is_drained: bool
) -> None:
    cluster.call_emulator("POST", "/kubernetes/settings", {"slinky": version})
    annotate(core, NODES[0], annotation, "true")
    core.list_node()
    assert ("DRAIN" in get_state(cluster)[0]) is is_drained


def test_the_topology_of_a_node_reaches_the_pod_there(
    cluster: SlurmCluster, core: client.CoreV1Api
) -> None:
    key = "topology.slinky.slurm.net/spec"
    core.patch_node(WORKER, {"metadata": {"annotations": {key: "topo-tree:leaf0"}}})
    assert find_pod(core, NODES[0]).metadata.annotations[key] == "topo-tree:leaf0"
    assert key not in (find_pod(core, NODES[1]).metadata.annotations or {})
    core.patch_node(WORKER, {"metadata": {"annotations": {key: None}}})
    assert key not in (find_pod(core, NODES[0]).metadata.annotations or {})
