"""Fixtures of the tests of schemas: the documented cluster and volume of Together."""

from typing import Any

import pytest


@pytest.fixture
def cluster() -> dict[str, Any]:
    """Return the documented create request with doubles for numbers, like Pulumi."""
    return {
        "cluster_name": "my-gpu-cluster",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "num_gpus": 8.0,
        "driver_version": "CUDA_12_6_560",
        "billing_type": "ON_DEMAND",
    }


@pytest.fixture
def volume() -> dict[str, Any]:
    return {"volume_name": "my-shared-volume", "size_tib": 2.0, "region": "us-central-8"}
