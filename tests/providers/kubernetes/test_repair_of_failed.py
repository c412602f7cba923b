"""Test that a node with a failed certification is repaired, by its machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.server import environment
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.schemas.policies.repair import FaultCause
from tests.providers.kubernetes.test_certifications import CertifiedCluster

URN = "urn:pulumi:dev::project::type::train"
POLICY = {"on": ["failed_certification"], "approve": "automatic", "max_unhealthy": 1}


@pytest.fixture
def certified_cluster(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[CertifiedCluster]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield CertifiedCluster(cluster, tmp_path)
    get_client(Settings()).close()


class ManagedCluster:
    """The cluster as a resource of the same stack."""

    def __init__(self, certified_cluster: CertifiedCluster) -> None:
        self._certified_cluster = certified_cluster
        self._lifecycle = ClusterLifecycle()
        self.id = certified_cluster.cluster.id
        with use_context(self._create_context()):
            read = self._lifecycle.read(self.id, {})
        declared = {
            "cluster_name": "train",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "num_gpus": 24,
            "billing_type": "ON_DEMAND",
            "cuda_version": "12.6",
            "nvidia_driver_version": "560",
        }
        self.declared = {**declared, "repair": POLICY}
        self.outs = {**read.outs, **self.declared}

    def _create_context(self) -> ProviderContext:
        return self._certified_cluster.create_context(URN)

    def refresh(self) -> list[Any]:
        with use_context(self._create_context()):
            self.outs = dict(self._lifecycle.read(self.id, self.outs).outs)
        return list(self._lifecycle.hooks.decide_repairs(self.outs, self.declared).due_repairs)

    def update(self) -> None:
        with use_context(self._create_context()):
            self.outs = dict(self._lifecycle.update(self.id, self.outs, self.declared).outs)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_single_failed_node_is_repaired_and_certified_again(
    certified_cluster: CertifiedCluster,
) -> None:
    cluster = ManagedCluster(certified_cluster)
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    [due] = cluster.refresh()
    assert (due.node, due.cause) == (slow, FaultCause.FAILED_CERTIFICATION)
    assert "250 GB/s is below the floor of 300 GB/s" in due.because

    cluster.update()
    assert slow not in certified_cluster.list_nodes()
    assert cluster.refresh() == []
    repaired = certified_cluster.update(made, certified_cluster.build_inputs())
    assert repaired.outs["ready"] is True
    assert [
        evidence["node"] for evidence in repaired.outs["evidence"]
    ] == certified_cluster.list_nodes()


def test_a_group_that_misses_the_floor_is_not_repaired(certified_cluster: CertifiedCluster) -> None:
    cluster = ManagedCluster(certified_cluster)
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    certified_cluster.create(
        certified_cluster.build_inputs(
            {"domain": "communication", "variant": "nccl-all-reduce", "floor": 300}
        )
    )
    assert cluster.refresh() == []


def test_a_node_that_has_passed_since_the_plan_is_not_repaired(
    certified_cluster: CertifiedCluster,
) -> None:
    """Somebody repairs the node and certifies it again between the plan and the repair."""
    cluster = ManagedCluster(certified_cluster)
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert len(cluster.refresh()) == 1
    certified_cluster.change_settings(slow_nodes={})
    certified_cluster.update(made, certified_cluster.build_inputs())
    cluster.update()
    assert slow in certified_cluster.list_nodes()


def test_a_rebooted_node_is_not_rebooted_again(certified_cluster: CertifiedCluster) -> None:
    """A rebooted node is the same machine: only the next certification can judge the repair."""
    cluster = ManagedCluster(certified_cluster)
    cluster.declared = {**cluster.declared, "repair": {**POLICY, "modes": ["REBOOT_VM"]}}
    cluster.outs = {**cluster.outs, "repair": cluster.declared["repair"]}
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 250})
    certified_cluster.create(certified_cluster.build_inputs())
    assert [repair.mode for repair in cluster.refresh()] == ["REBOOT_VM"]
    cluster.update()
    assert slow in certified_cluster.list_nodes()
    assert cluster.refresh() == []
