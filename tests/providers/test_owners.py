"""Test the owner that a platform names for an object."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpuform.providers.catalog import summarize_resource


@pytest.mark.parametrize(
    ("platform", "kind", "outputs", "owner"),
    [
        ("scp", "GpuNode", {"created_by": "u-1"}, "u-1"),
        ("scp", "Fabric", {"created_by": "u-1"}, "u-1"),
        ("scp", "Fabric", {}, ""),
        (
            "scp",
            "NodePool",
            {"gpu_nodes": {"b": {"created_by": "u-2"}, "a": {"created_by": "u-1"}, "c": {}}},
            "u-1, u-2",
        ),
        ("scp", "NodePool", {}, ""),
        ("tensorone", "Cluster", {"owner_email": "a@b.c", "owner_id": "user_1"}, "a@b.c"),
        ("tensorone", "Cluster", {"owner_id": "user_1"}, "user_1"),
        ("tensorone", "Cluster", {}, ""),
        (
            "aios",
            "Cluster",
            {"cluster_metadata": {"owner": "AI Infrastructure"}},
            "AI Infrastructure",
        ),
        ("aios", "Cluster", {"cluster_metadata": {"owner": None}}, ""),
        ("aios", "Cluster", {}, ""),
        ("together", "Cluster", {"owner": "nobody tells it"}, ""),
    ],
)
def test_the_owner_comes_from_the_outputs(
    platform: str, kind: str, outputs: Mapping[str, Any], owner: str
) -> None:
    assert summarize_resource(platform, kind, outputs).owner == owner
