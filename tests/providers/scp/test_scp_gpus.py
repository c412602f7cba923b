"""Test how many GPUs pools and nodes count: every server of SCP has eight."""

from typing import Any

import pytest

from gpuform.providers.scp.fabric import FabricLifecycle
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.schemas.values import UNKNOWN


@pytest.mark.parametrize(
    ("values", "gpus"),
    [
        ({"count": 6.0}, 48),
        ({"nodes": {"edge": {}, "inner": {}}}, 16),
        ({"count": 0.0}, 0),
        ({"nodes": {}}, 0),
        ({"count": UNKNOWN}, None),
        ({"nodes": UNKNOWN}, None),
        ({"nodes": {"edge": UNKNOWN}}, 8),
    ],
)
def test_a_pool_counts_the_gpus_of_its_servers(values: dict[str, Any], gpus: int | None) -> None:
    assert NodePoolLifecycle.hooks.count_gpus(values) == gpus


def test_a_node_counts_as_one_server_and_a_fabric_as_none() -> None:
    assert GpuNodeLifecycle.hooks.count_gpus({}) == 8
    assert FabricLifecycle.hooks.count_gpus({"cluster_fabric_name": "train-a"}) == 0


@pytest.mark.parametrize("count", ["six", [6], float("inf"), float("nan"), None, {}])
def test_an_unknown_number_of_nodes_gives_no_count(count: Any) -> None:
    assert NodePoolLifecycle.hooks.count_gpus({"count": count}) == 0
