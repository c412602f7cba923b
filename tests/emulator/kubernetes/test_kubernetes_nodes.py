"""Test nodes: they are the platform's workers, and the platform removes cordoned ones first."""

from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from together import Together


@pytest.mark.slow
def test_a_cluster_without_a_control_plane_does_not_answer(
    kube: Any, together: Together, control: Any
) -> None:
    together.clusters.delete(kube.cluster_id)
    control.advance(3600)
    with pytest.raises(Exception, match="Connection aborted"):
        kube.core.list_node()


def test_workers_are_nodes_under_their_host_names(kube: Any, together: Together) -> None:
    workers = together.clusters.retrieve(kube.cluster_id).gpu_worker_nodes
    nodes = kube.core.list_node().items
    assert [node.metadata.name for node in nodes] == [worker.host_name for worker in workers]
    assert [node.metadata.uid for node in nodes] == [worker.node_id for worker in workers]
    assert {node.status.allocatable["nvidia.com/gpu"] for node in nodes} == {"8"}
    assert {node.metadata.labels["kubernetes.io/hostname"] for node in nodes} == set(
        kube.node_names()
    )


def test_a_wrong_token_is_unauthorized(kube: Any) -> None:
    user = {**kube.kubeconfig["users"][0], "user": {"token": "another"}}
    with (
        kube.create_client({**kube.kubeconfig, "users": [user]}) as api,
        pytest.raises(ApiException) as refused,
    ):
        client.CoreV1Api(api).list_node()
    assert refused.value.status == 401
    assert '"reason":"Unauthorized"' in refused.value.body


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_scaling_down_takes_cordoned_nodes_first(
    kube: Any, together: Together, control: Any, taken: int
) -> None:
    names = kube.node_names()
    kube.core.patch_node(names[taken], {"spec": {"unschedulable": True}})
    together.clusters.update(kube.cluster_id, num_gpus=16)
    control.advance(3600)
    assert kube.node_names() == [name for name in names if name != names[taken]]
    assert [
        worker.host_name for worker in together.clusters.retrieve(kube.cluster_id).gpu_worker_nodes
    ] == kube.node_names()


def test_a_fault_may_remove_another_node_than_the_cordoned_one(
    kube: Any, together: Together, control: Any
) -> None:
    names = kube.node_names()
    kube.core.patch_node(names[2], {"spec": {"unschedulable": True}})
    control.add_fault(method="PUT", takes="worker-0$")
    together.clusters.update(kube.cluster_id, num_gpus=16)
    control.advance(3600)
    assert kube.node_names() == names[1:]


def test_a_write_with_an_old_version_is_a_conflict(kube: Any) -> None:
    name = kube.node_names()[0]
    old = kube.core.read_node(name)
    kube.core.patch_node(name, {"metadata": {"annotations": {"by": "another"}}})
    old.spec.unschedulable = True
    with pytest.raises(ApiException) as put:
        kube.core.replace_node(name, old)
    version = old.metadata.resource_version
    with pytest.raises(ApiException) as patched:
        kube.core.patch_node(name, {"metadata": {"resourceVersion": version}})
    assert [put.value.status, patched.value.status] == [409, 409]
    assert '"reason":"Conflict"' in put.value.body


def test_a_node_that_failed_is_not_ready_and_gets_no_pods(kube: Any, control: Any) -> None:
    names = kube.node_names()
    for name in names[1:]:
        control.call("POST", f"/kubernetes/{kube.cluster_id}/nodes/{name}", {"ready": False})
    conditions = kube.core.read_node(names[1]).status.conditions
    assert [(condition.type, condition.status) for condition in conditions] == [
        ("Ready", "Unknown")
    ]
    for at in range(2):
        kube.add_pod(f"job-{at}", gpus=8)
    pods = kube.core.list_namespaced_pod("default").items
    assert [(pod.spec.node_name, pod.status.phase) for pod in pods] == [
        (names[0], "Running"),
        (None, "Pending"),
    ]
