"""Test the access that platforms report for their resources: hosts, kubeconfigs, web addresses."""

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


def get_access(platform: str, kind: str, outputs: Any) -> Access:
    reported_access = load_lifecycle_class(platform, kind).hooks.get_access(outputs)
    assert reported_access is not None
    return reported_access


def test_a_together_kubernetes_cluster_has_a_kubeconfig() -> None:
    reported_access = get_access("together", "Cluster", {**TOGETHER, "kube_config": "a: hunter2"})
    assert (reported_access.name, reported_access.prefers) == ("train", "kubectl")
    assert reported_access.kubeconfig is not None
    assert reported_access.kubeconfig.get_secret_value() == "a: hunter2"
    assert "hunter2" not in repr(reported_access) + reported_access.model_dump_json()
    assert [(host.node, host.address, host.because) for host in reported_access.hosts] == [
        ("train-worker-0", "train-worker-0.cloud.together.ai", ""),
        ("train-worker-1", "train-worker-1.cloud.together.ai", "it is BOOTING"),
        ("train-worker-2.cloud.together.ai", "train-worker-2.cloud.together.ai", ""),
        ("n3", "", "the platform reports no address"),
    ]


def test_a_slurm_cluster_has_a_login_node_as_well() -> None:
    reported_access = get_access("together", "Cluster", {**TOGETHER, "cluster_type": "SLURM"})
    assert reported_access.prefers == "slurm"
    assert (reported_access.hosts[0].role, reported_access.hosts[0].address) == (
        "login",
        "slurm-login",
    )
    assert len(reported_access.hosts) == 1 + len(WORKERS)


def test_a_declared_jump_host_is_used_for_every_host() -> None:
    jump = "ada@ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"
    declared = {**TOGETHER, "cluster_type": "SLURM", "ssh_jump": jump}
    reported_access = get_access("together", "Cluster", declared)
    assert {host.jump for host in reported_access.hosts} == {jump}
    assert {host.jump for host in get_access("together", "Cluster", TOGETHER).hosts} == {""}
    evil = get_access("together", "Cluster", {**declared, "ssh_jump": "-oProxyCommand=x"})
    assert {host.jump for host in evil.hosts} == {""}


def test_a_cluster_that_is_not_ready_has_a_reason() -> None:
    waiting = {"cluster_name": "train", "not_ready_reason": "WaitingForDataPlaneNodes"}
    reported_access = get_access("together", "Cluster", waiting)
    assert reported_access.kubeconfig is None
    assert "WaitingForDataPlaneNodes" in reported_access.no_kubeconfig
    assert "WaitingForDataPlaneNodes" in reported_access.no_hosts


def test_tensorone_has_an_ssh_host_and_web_addresses() -> None:
    urls = {"8888": "https://x-1.proxy.test/", "80": "http://x-2.proxy.test:8080/a?b=c"}
    reported_access = get_access("tensorone", "Cluster", {**TENSORONE, "port_urls": urls})
    (host,) = reported_access.hosts
    assert (host.address, host.port, host.user, host.because) == (SSH["host"], 2222, "root", "")
    assert [(port.number, port.url) for port in reported_access.ports] == [
        (80, urls["80"]),
        (8888, urls["8888"]),
    ]
    assert reported_access.kubeconfig is None
    stopped = get_access("tensorone", "Cluster", {**TENSORONE, "status": "stopped"})
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
def test_tensorone_without_ssh_has_a_reason(more: Any, reason: str) -> None:
    reported_access = get_access(
        "tensorone", "Cluster", {**TENSORONE, "ssh_connection": None, **more}
    )
    assert not reported_access.hosts
    assert reason in reported_access.no_hosts


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://a\nb", "https://", "file:///etc", "-x", "https://a b"]
)
def test_an_invalid_web_address_is_omitted(url: str) -> None:
    reported_access = get_access(
        "tensorone", "Cluster", {**TENSORONE, "port_urls": {"80": url, "x": "http://a"}}
    )
    assert [(port.number, port.url) for port in reported_access.ports] == [(80, "")]


def test_scp_nodes_have_public_addresses() -> None:
    nodes = {
        "b": {"gpu_node_name": "n-2", "policy_nat": "203.0.113.2", "state": "STOPPED"},
        "a": {"gpu_node_name": "n-1", "policy_nat": "203.0.113.1", "state": "RUNNING"},
        "c": {"gpu_node_name": "n-3", "policy_ip": "10.0.0.3", "state": "RUNNING"},
    }
    reported_access = get_access(
        "scp", "NodePool", {"cluster_fabric_name": "f", "gpu_nodes": nodes}
    )
    assert [(host.node, host.address, host.user) for host in reported_access.hosts] == [
        ("n-1", "203.0.113.1", "root"),
        ("n-2", "203.0.113.2", "root"),
        ("n-3", "", "root"),
    ]
    assert [host.because.split(":")[0] for host in reported_access.hosts] == [
        "",
        "it is STOPPED",
        "it has no public address, only 10.0.0.3 in its subnet",
    ]
    (only_host,) = get_access("scp", "GpuNode", {**nodes["a"], "os_user_id": "ubuntu"}).hosts
    assert (only_host.address, only_host.user, only_host.because) == ("203.0.113.1", "ubuntu", "")


def test_a_registry_has_no_credentials() -> None:
    reported_access = get_access("aios", "Cluster", {"cluster_id": "c"})
    assert "has a record" in reported_access.no_kubeconfig
    assert not reported_access.hosts


def test_every_kind_reports_its_access() -> None:
    for platform, kind in list_kinds():
        reported_access = load_lifecycle_class(platform, kind).hooks.get_access({})
        assert reported_access is None or (
            reported_access.no_kubeconfig and (reported_access.hosts or reported_access.no_hosts)
        )
