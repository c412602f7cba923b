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
from tests.providers.kubernetes.test_certifications import World

URN = "urn:pulumi:dev::project::type::train"
POLICY = {"on": ["failed_certification"], "approve": "automatic", "max_unhealthy": 1}


@pytest.fixture
def world(cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield World(cluster, tmp_path)
    get_client(Settings()).close()


class Managed:
    """The cluster as a resource of the same stack."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lifecycle = ClusterLifecycle()
        self.id = world.cluster.id
        with use_context(self._call()):
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

    def _call(self) -> ProviderContext:
        return self._world.call(URN)

    def refresh(self) -> list[Any]:
        with use_context(self._call()):
            self.outs = dict(self._lifecycle.read(self.id, self.outs).outs)
        return list(self._lifecycle.decide_repairs(self.outs, self.declared).due_repairs)

    def update(self) -> None:
        with use_context(self._call()):
            self.outs = dict(self._lifecycle.update(self.id, self.outs, self.declared).outs)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_at_fault_alone_is_repaired_and_then_certified_again(world: World) -> None:
    cluster = Managed(world)
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 250})
    made = world.create(world.declared())
    [due] = cluster.refresh()
    assert (due.node, due.cause) == (slow, FaultCause.FAILED_CERTIFICATION)
    assert "250 GB/s is below the floor of 300 GB/s" in due.because

    cluster.update()
    assert slow not in world.nodes()
    assert cluster.refresh() == []
    mended = world.update(made, world.declared())
    assert mended.outs["ready"] is True
    assert [each["node"] for each in mended.outs["evidence"]] == world.nodes()


def test_a_group_that_misses_the_floor_is_not_repaired(world: World) -> None:
    cluster = Managed(world)
    world.set(slow_nodes={world.nodes()[0]: 250})
    world.create(
        world.declared({"domain": "communication", "variant": "nccl-all-reduce", "floor": 300})
    )
    assert cluster.refresh() == []


def test_what_has_passed_since_is_not_repaired(world: World) -> None:
    """Between the plan and the repair somebody has mended the node and certified it again."""
    cluster = Managed(world)
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 250})
    made = world.create(world.declared())
    assert len(cluster.refresh()) == 1
    world.set(slow_nodes={})
    world.update(made, world.declared())
    cluster.update()
    assert slow in world.nodes()


def test_a_reboot_is_no_reason_for_another_one(world: World) -> None:
    """The machine is the same after a reboot: the next certification tells, no second repair."""
    cluster = Managed(world)
    cluster.declared = {**cluster.declared, "repair": {**POLICY, "modes": ["REBOOT_VM"]}}
    cluster.outs = {**cluster.outs, "repair": cluster.declared["repair"]}
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 250})
    world.create(world.declared())
    assert [each.mode for each in cluster.refresh()] == ["REBOOT_VM"]
    cluster.update()
    assert slow in world.nodes()
    assert cluster.refresh() == []
