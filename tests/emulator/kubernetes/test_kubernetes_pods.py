"""Test pods: jobs that end in time, evictions within their budgets, controllers, lost nodes."""

from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from together import Together

LABELS = {"app": "train"}


def evict(kube: Any, name: str, namespace: str = "default") -> None:
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name=name))
    kube.core.create_namespaced_pod_eviction(name, namespace, body)


def add_budget(kube: Any, **limits: object) -> None:
    spec = {"selector": {"matchLabels": LABELS}, **limits}
    client.PolicyV1Api(kube.api).create_namespaced_pod_disruption_budget(
        "default", {"metadata": {"name": "budget"}, "spec": spec}
    )


def get_allowed_disruptions(kube: Any) -> int:
    budget = client.PolicyV1Api(kube.api).read_namespaced_pod_disruption_budget("budget", "default")
    return int(budget.status.disruptions_allowed)


def add_owner(kube: Any, kind: str, **spec: object) -> None:
    template = {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    body = {
        "metadata": {"name": kind.replace("_", "-")},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec},
    }
    if kind == "job":
        client.BatchV1Api(kube.api).create_namespaced_job("default", body)
    else:
        create = getattr(client.AppsV1Api(kube.api), f"create_namespaced_{kind}")
        create("default", body)


def test_a_pod_ends_by_the_emulators_clock(kube: Any, control: Any) -> None:
    kube.add_pod("job", runs_for=600)
    control.advance(599)
    assert kube.core.read_namespaced_pod("job", "default").status.phase == "Running"
    control.advance(2)
    assert kube.core.read_namespaced_pod("job", "default").status.phase == "Succeeded"
    assert kube.list_ended_pods() == {"default/job": "succeeded"}


def test_a_node_rejects_a_pod_without_free_gpus(kube: Any) -> None:
    node = kube.node_names()[0]
    assert kube.add_pod("large", node=node, gpus=9)["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert kube.add_pod("fitting", node=node, gpus=8)["status"]["phase"] == "Running"
    assert kube.add_pod("late", node=node, gpus=1)["status"]["phase"] == "Failed"


def test_pods_of_a_removed_node_are_killed(kube: Any, together: Together, control: Any) -> None:
    node = kube.node_names()[2]
    kube.add_pod("long", node=node, runs_for=100_000)
    kube.add_pod("short", node=node, runs_for=60)
    kube.add_pod("elsewhere", node=kube.node_names()[0])
    together.clusters.update(kube.cluster_id, num_gpus=16)
    control.advance(3600)
    assert kube.pod_names() == ["elsewhere"]
    how = {pod: how for pod, how in kube.list_ended_pods().items() if pod.startswith("default/")}
    assert how == {"default/long": "killed", "default/short": "succeeded"}


def test_an_evicted_pod_ends_after_its_grace_period(kube: Any, control: Any) -> None:
    kube.add_pod("job", grace=60)
    evict(kube, "job")
    pod = kube.core.read_namespaced_pod("job", "default")
    assert pod.metadata.deletion_timestamp is not None
    assert [
        condition.reason
        for condition in pod.status.conditions
        if condition.type == "DisruptionTarget"
    ]
    control.advance(62)
    assert kube.pod_names() == []
    assert kube.list_ended_pods() == {"default/job": "evicted"}


def test_an_exhausted_budget_refuses_the_eviction(kube: Any, control: Any) -> None:
    add_budget(kube, minAvailable=1)
    for name in ("a", "b"):
        kube.add_pod(name, labels=LABELS)
    assert get_allowed_disruptions(kube) == 1
    evict(kube, "a")
    assert get_allowed_disruptions(kube) == 0
    with pytest.raises(ApiException) as refused:
        evict(kube, "b")
    assert refused.value.status == 429
    assert '"reason":"DisruptionBudget"' in refused.value.body
    assert kube.core.read_namespaced_pod("b", "default").metadata.deletion_timestamp is None
    control.advance(60)
    assert kube.pod_names() == ["b"]


def test_an_ended_pod_is_evicted_whatever_the_budget(kube: Any, control: Any) -> None:
    add_budget(kube, minAvailable=5)
    kube.add_pod("job", labels=LABELS, runs_for=1)
    control.advance(2)
    evict(kube, "job")
    control.advance(60)
    assert kube.pod_names() == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"minAvailable": 1}, 3),
        ({"minAvailable": "50%"}, 2),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "25%"}, 1),
        ({"minAvailable": 9}, 0),
    ],
)
def test_budgets_use_the_replicas_of_the_controller(
    kube: Any, limits: dict[str, object], expected: int
) -> None:
    add_owner(kube, "replica_set", replicas=4)
    add_budget(kube, **limits)
    assert get_allowed_disruptions(kube) == expected


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("replica_set", {"replicas": 1}), ("stateful_set", {"replicas": 1}), ("job", {})],
)
def test_a_controller_puts_an_evicted_pod_on_another_node(
    kube: Any, control: Any, kind: str, spec: dict[str, object]
) -> None:
    add_owner(kube, kind, **spec)
    (pod,) = kube.core.list_namespaced_pod("default").items
    kube.core.patch_node(pod.spec.node_name, {"spec": {"unschedulable": True}})
    evict(kube, pod.metadata.name)
    control.advance(60)
    (again,) = kube.core.list_namespaced_pod("default").items
    assert again.metadata.uid != pod.metadata.uid
    assert again.metadata.owner_references[0].controller
    assert again.spec.node_name not in {None, pod.spec.node_name}


def test_every_node_has_its_daemon_and_its_mirror_pod(kube: Any, control: Any) -> None:
    node = kube.node_names()[0]
    on_it = {"field_selector": f"spec.nodeName={node}"}
    before = kube.core.list_pod_for_all_namespaces(**on_it).items
    owners = sorted(pod.metadata.owner_references[0].kind for pod in before)
    assert owners == ["DaemonSet", "Node"]
    kube.core.patch_node(node, {"spec": {"unschedulable": True}})
    for pod in before:
        evict(kube, pod.metadata.name, "kube-system")
    control.advance(60)
    after = kube.core.list_pod_for_all_namespaces(**on_it).items
    assert sorted(pod.metadata.owner_references[0].kind for pod in after) == owners


def test_removing_the_owner_removes_its_pods(kube: Any) -> None:
    add_owner(kube, "replica_set", replicas=2)
    assert len(kube.pod_names()) == 2
    client.AppsV1Api(kube.api).delete_namespaced_replica_set("replica-set", "default")
    assert kube.pod_names() == []


def test_faults_apply_to_the_kubernetes_api_too(kube: Any, control: Any) -> None:
    kube.add_pod("job")
    control.add_fault(path="/eviction$", status=503, headers={"Retry-After": "1"})
    with pytest.raises(ApiException) as refused:
        evict(kube, "job")
    assert refused.value.status == 503
    control.add_fault(path="/eviction$", drop="after")
    with pytest.raises(Exception, match="Connection aborted"):
        evict(kube, "job")
    control.advance(60)
    assert kube.list_ended_pods() == {"default/job": "evicted"}
