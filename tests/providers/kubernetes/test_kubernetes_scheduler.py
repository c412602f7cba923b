"""Test Kubernetes as a scheduler: jobs on nodes, annotated cordons, evictions."""

from contextlib import closing
from typing import Any

import pytest

from gpuform.providers.draining import Scheduler
from gpuform.providers.errors import AuthError, GpuformError, ServerError
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.providers.kubernetes.scheduler import (
    OWNER_ANNOTATION,
    KubernetesScheduler,
    is_job,
    is_worker,
)
from gpuform.schemas.policies.drain import RunningJob


def build_pod(namespace: str = "default", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": namespace, **metadata},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }


def build_owned_pod(kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": "o", "controller": True}]}


def with_gpus(
    given: dict[str, Any], resource: str = "nvidia.com/gpu", amount: str = "1"
) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: amount}}}
    return {**given, "spec": {"nodeName": "n", "initContainers": [], "containers": [container]}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (build_pod(), True),
        (build_pod(deletionTimestamp="2026-01-01T00:00:00Z"), True),
        (build_pod(**build_owned_pod("ReplicaSet")), True),
        (build_pod(**build_owned_pod("Job")), True),
        (build_pod("kube-system"), True),
        (build_pod("kube-system", **build_owned_pod("ReplicaSet")), False),
        (build_pod("gpu-operator", **build_owned_pod("ReplicaSet")), False),
        (build_pod(**build_owned_pod("DaemonSet")), False),
        (build_pod(annotations={"kubernetes.io/config.mirror": "x"}), False),
        ({**build_pod(), "status": {"phase": "Succeeded"}}, False),
        ({**build_pod(), "status": {}}, True),
        (with_gpus(build_pod("gpu-operator", **build_owned_pod("ReplicaSet"))), True),
        (
            with_gpus(
                build_pod("kube-system", **build_owned_pod("StatefulSet")), "nvidia.com/mig-1g.10gb"
            ),
            True,
        ),
        (with_gpus(build_pod("gpu-operator", **build_owned_pod("ReplicaSet")), "cpu"), False),
        (with_gpus(build_pod("gpu-operator", **build_owned_pod("ReplicaSet")), amount="0"), False),
        (with_gpus(build_pod("gpu-operator", **build_owned_pod("DaemonSet"))), False),
        (
            {
                **build_pod("gpu-operator", **build_owned_pod("ReplicaSet")),
                "spec": {"resourceClaims": [{}]},
            },
            True,
        ),
        (build_pod("gpu-operator", **build_owned_pod("Job")), True),
        (build_pod(ownerReferences=[{"kind": "DaemonSet", "name": "o"}]), True),
    ],
)
def test_a_pod_that_ends_with_its_node_is_a_job(given: dict[str, Any], expected: bool) -> None:
    assert is_job(given) is expected


@pytest.mark.parametrize(
    ("labels", "capacity", "expected"),
    [
        ({}, {}, True),
        ({"node-role.kubernetes.io/control-plane": ""}, {"cpu": "8"}, False),
        ({"node-role.kubernetes.io/control-plane": ""}, {"nvidia.com/gpu": "0"}, False),
        ({"node-role.kubernetes.io/control-plane": "true"}, {"nvidia.com/gpu": "8"}, True),
    ],
)
def test_a_node_of_the_control_plane_with_gpus_is_a_worker(
    labels: dict[str, str], capacity: dict[str, str], expected: bool
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"capacity": capacity}}
    assert is_worker(node) is expected


def test_list_nodes_takes_two_requests_and_shows_only_jobs(cluster: Any) -> None:
    cluster.add_pod("a", node=cluster.names[1], runs_for=60)
    cluster.add_pod("done", node=cluster.names[1], runs_for=0)
    cluster.send_control("DELETE", "/requests")
    scheduler: Scheduler = cluster.scheduler
    nodes = scheduler.list_nodes()
    assert [node.jobs for node in nodes] == [(), (RunningJob(id="default/a", name="a"),), ()]
    assert [node.joined_at is not None and node.joined_at > 0 for node in nodes] == [True] * 3
    assert not any(node.is_failed or node.is_cordoned or node.owner_label for node in nodes)
    assert len(cluster.list_requests()) == 2


def test_a_node_that_is_not_ready_is_failed(cluster: Any) -> None:
    name = cluster.names[2]
    cluster.send_control("POST", f"/kubernetes/{cluster.id}/nodes/{name}", {"ready": False})
    assert [node.is_failed for node in cluster.scheduler.list_nodes()] == [False, False, True]


def test_a_cordon_is_annotated_and_undone_by_its_annotation(cluster: Any) -> None:
    first, second, _ = cluster.names
    scheduler = cluster.scheduler
    for _ in range(2):
        scheduler.cordon([first, second], "run-1")
    assert [node.owner_label for node in scheduler.list_nodes()] == ["run-1", "run-1", None]
    assert [node.is_cordoned for node in scheduler.list_nodes()] == [True, True, False]
    scheduler.uncordon([first, second], "another run")
    assert [node.is_cordoned for node in scheduler.list_nodes()] == [True, True, False]
    scheduler.uncordon([first, second, "gone"], "run-1")
    assert [(node.is_cordoned, node.owner_label) for node in scheduler.list_nodes()] == [
        (False, None)
    ] * 3


def test_a_node_cordoned_by_somebody_else_stays_unchanged(cluster: Any) -> None:
    name = cluster.names[0]
    cluster.client.patch_object(
        f"/api/v1/nodes{build_path(name)}", {"spec": {"unschedulable": True}}
    )
    cluster.scheduler.cordon([name], "run-1")
    cluster.scheduler.uncordon([name], "run-1")
    node = cluster.scheduler.list_nodes()[0]
    assert (node.is_cordoned, node.owner_label) == (True, None)


def test_a_cordon_is_repeated_while_others_write(cluster: Any) -> None:
    cluster.add_fault(method="PATCH", path="/nodes/", status=409, count=3)
    cluster.scheduler.cordon([cluster.names[0]], "run-1")
    assert cluster.scheduler.list_nodes()[0].owner_label == "run-1"


def test_a_cordon_whose_answer_was_lost_is_done_once_more(cluster: Any) -> None:
    cluster.add_fault(method="PATCH", path="/nodes/", drop="after")
    cluster.scheduler.cordon([cluster.names[0]], "run-1")
    assert cluster.scheduler.list_nodes()[0].owner_label == "run-1"


def test_an_eviction_ends_jobs_in_their_grace_period_and_leaves_daemons(cluster: Any) -> None:
    name = cluster.names[0]
    cluster.add_pod("a", node=name, grace=60)
    cluster.add_pod("elsewhere", node=cluster.names[1])
    cluster.send_control("DELETE", "/requests")
    for _ in range(2):
        cluster.scheduler.evict([name])
    sent = [request["path"] for request in cluster.list_requests() if request["method"] == "POST"]
    assert sent == [f"/{cluster.id}/api/v1/namespaces/default/pods/a/eviction"]
    assert cluster.map_jobs_to_nodes() == {"default/a": name, "default/elsewhere": cluster.names[1]}
    cluster.server.clock.advance(61)
    assert cluster.map_jobs_to_nodes() == {"default/elsewhere": cluster.names[1]}


def test_an_eviction_forbidden_by_a_budget_is_no_error(cluster: Any) -> None:
    name = cluster.names[0]
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    cluster.client.create_object(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"metadata": {"name": "b"}, "spec": spec},
    )
    for pod_name in ("one", "two"):
        cluster.add_pod(pod_name, node=name, labels={"app": "a"})
    cluster.scheduler.evict([name])
    cluster.server.clock.advance(60)
    assert cluster.map_jobs_to_nodes() == {"default/two": name}
    cluster.scheduler.evict([name])
    cluster.server.clock.advance(60)
    assert cluster.map_jobs_to_nodes() == {"default/two": name}


@pytest.mark.parametrize("fault", [{"status": 503}, {"drop": "before"}])
def test_a_short_outage_is_waited_out_and_a_long_one_is_an_error(
    cluster: Any, fault: dict[str, Any]
) -> None:
    cluster.add_fault(path="/pods", count=2, **fault)
    assert len(cluster.scheduler.list_nodes()) == 3
    cluster.add_fault(path="/pods", count=None, **fault)
    with pytest.raises(GpuformError, match="Kubernetes of cluster train"):
        cluster.scheduler.list_nodes()


def test_the_error_for_a_wrong_token_does_not_show_the_token(cluster: Any) -> None:
    token = cluster.kubeconfig.rpartition("token: ")[2].strip()
    access = load_access(cluster.kubeconfig.replace(token, "another-token"), "train")
    with (
        closing(KubernetesClient(access, "train")) as client,
        pytest.raises(AuthError, match="cluster train") as refused,
    ):
        KubernetesScheduler(client).list_nodes()
    assert "another-token" not in str(refused.value)
    assert "another-token" not in repr(access)


def test_an_answer_of_another_form_is_an_error(cluster: Any) -> None:
    cluster.add_fault(path="/pods", status=500, body={"message": "etcdserver: no leader"})
    with pytest.raises(ServerError, match="no leader"):
        cluster.scheduler.list_nodes()


def test_the_owner_annotation_has_a_fixed_name(cluster: Any) -> None:
    cluster.scheduler.cordon([cluster.names[0]], "run-1")
    node = cluster.client.get_object(f"/api/v1/nodes{build_path(cluster.names[0])}")
    assert node["metadata"]["annotations"][OWNER_ANNOTATION] == "run-1"
