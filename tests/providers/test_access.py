"""How platforms say that people get on what they make."""

from typing import Any

import pytest

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.schemas.access import Access

WORKERS = [
    {"host_name": "train-worker-0", "node_id": "n0", "status": "Running"},
    {"host_name": "train-worker-1", "node_id": "n1", "status": "NODE_PHASE_BOOTING"},
    {"host_name": "train-worker-2.cloud.together.ai", "node_id": "n2", "status": "Whatever"},
    {"host_name": "", "node_id": "n3", "status": ""},
]
TOGETHER = {"cluster_name": "train", "status": "Ready", "gpu_worker_nodes": WORKERS}
SSH = {"host": "ssh-1.tensorone.ai", "port": 2222.0, "username": "root"}
TENSORONE = {
    "name": "bench",
    "status": "running",
    "ssh_command": "ssh root@x",
    "ssh_connection": SSH,
}


def access(platform: str, kind: str, seen: Any) -> Access:
    found = load_lifecycle_class(platform, kind).get_access(seen)
    assert found is not None
    return found


def test_a_kubernetes_cluster_of_together() -> None:
    found = access("together", "Cluster", {**TOGETHER, "kube_config": "a: hunter2"})
    assert (found.name, found.prefers) == ("train", "kubectl")
    assert found.kubeconfig is not None
    assert found.kubeconfig.get_secret_value() == "a: hunter2"
    assert "hunter2" not in repr(found) + found.model_dump_json()
    assert [(host.node, host.address, host.because) for host in found.hosts] == [
        ("train-worker-0", "train-worker-0.cloud.together.ai", ""),
        ("train-worker-1", "train-worker-1.cloud.together.ai", "it is BOOTING"),
        ("train-worker-2.cloud.together.ai", "train-worker-2.cloud.together.ai", ""),
        ("n3", "", "the platform reports no address"),
    ]


def test_a_slurm_cluster_has_a_login_node_as_well() -> None:
    found = access("together", "Cluster", {**TOGETHER, "cluster_type": "SLURM"})
    assert found.prefers == "slurm"
    assert (found.hosts[0].role, found.hosts[0].address) == ("login", "slurm-login")
    assert len(found.hosts) == 1 + len(WORKERS)


def test_a_declared_jump_host_is_on_the_way_to_all() -> None:
    jump = "ada@ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"
    declared = {**TOGETHER, "cluster_type": "SLURM", "ssh_jump": jump}
    found = access("together", "Cluster", declared)
    assert {host.jump for host in found.hosts} == {jump}
    assert {host.jump for host in access("together", "Cluster", TOGETHER).hosts} == {""}
    evil = access("together", "Cluster", {**declared, "ssh_jump": "-oProxyCommand=x"})
    assert {host.jump for host in evil.hosts} == {""}


def test_a_cluster_that_is_not_ready_says_why() -> None:
    waiting = {"cluster_name": "train", "not_ready_reason": "WaitingForDataPlaneNodes"}
    found = access("together", "Cluster", waiting)
    assert found.kubeconfig is None
    assert "WaitingForDataPlaneNodes" in found.no_kubeconfig
    assert "WaitingForDataPlaneNodes" in found.no_hosts


def test_tensorones_host_and_ports() -> None:
    urls = {"8888": "https://x-1.proxy.test/", "80": "http://x-2.proxy.test:8080/a?b=c"}
    found = access("tensorone", "Cluster", {**TENSORONE, "port_urls": urls})
    (host,) = found.hosts
    assert (host.address, host.port, host.user, host.because) == (SSH["host"], 2222, "root", "")
    assert [(port.number, port.url) for port in found.ports] == [
        (80, urls["80"]),
        (8888, urls["8888"]),
    ]
    assert found.kubeconfig is None
    stopped = access("tensorone", "Cluster", {**TENSORONE, "status": "stopped"})
    assert stopped.hosts[0].because == "it is stopped"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssh_enabled": False}, "ssh_enabled: false"),
        ({}, "`gpuform refresh`"),
        ({"ssh_connection": {"host": "-oProxyCommand=x"}}, "`gpuform refresh`"),
        ({"ssh_connection": {"host": "h", "username": "-l x"}}, "`gpuform refresh`"),
        ({"ssh_connection": {"host": "h", "port": "22\nHost *"}}, "`gpuform refresh`"),
        ({"ssh_connection": {"host": "h", "port": 70000}}, "`gpuform refresh`"),
    ],
)
def test_tensorone_without_ssh(more: Any, reason: str) -> None:
    found = access("tensorone", "Cluster", {**TENSORONE, "ssh_connection": None, **more})
    assert not found.hosts
    assert reason in found.no_hosts


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://a\nb", "https://", "file:///etc", "-x", "https://a b"]
)
def test_what_is_no_web_address_is_not_told(url: str) -> None:
    found = access("tensorone", "Cluster", {**TENSORONE, "port_urls": {"80": url, "x": "http://a"}})
    assert [(port.number, port.url) for port in found.ports] == [(80, "")]


def test_scps_nodes_with_a_public_address() -> None:
    nodes = {
        "b": {"gpu_node_name": "n-2", "policy_nat": "203.0.113.2", "state": "STOPPED"},
        "a": {"gpu_node_name": "n-1", "policy_nat": "203.0.113.1", "state": "RUNNING"},
        "c": {"gpu_node_name": "n-3", "policy_ip": "10.0.0.3", "state": "RUNNING"},
    }
    found = access("scp", "NodePool", {"cluster_fabric_name": "f", "gpu_nodes": nodes})
    assert [(host.node, host.address, host.user) for host in found.hosts] == [
        ("n-1", "203.0.113.1", "root"),
        ("n-2", "203.0.113.2", "root"),
        ("n-3", "", "root"),
    ]
    assert [host.because.split(":")[0] for host in found.hosts] == [
        "",
        "it is STOPPED",
        "it has no public address, only 10.0.0.3 in its subnet",
    ]
    (one,) = access("scp", "GpuNode", {**nodes["a"], "os_user_id": "ubuntu"}).hosts
    assert (one.address, one.user, one.because) == ("203.0.113.1", "ubuntu", "")


def test_a_registry_has_no_credentials() -> None:
    found = access("aios", "Cluster", {"cluster_id": "c"})
    assert "has a record" in found.no_kubeconfig
    assert not found.hosts


def test_every_kind_answers() -> None:
    for platform, kind in list_kinds():
        found = load_lifecycle_class(platform, kind).get_access({})
        assert found is None or (found.no_kubeconfig and (found.hosts or found.no_hosts))
