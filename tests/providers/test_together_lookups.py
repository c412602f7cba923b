"""Test the lookups of a Together project for programs: clusters and shared volumes."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.together import clusters, volumes

CLUSTER = {
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}


@pytest.fixture
def ids_by_name(emulator: Any) -> dict[str, str]:
    """Create two clusters, the second with a volume, and a free volume; return ids by name."""
    ids = {}
    free = {"volume_name": "free", "size_tib": 1, "region": "us-central-8"}
    ids["free"] = emulator.send_as_somebody_else("POST", "/clusters/storage/volumes", free)[
        "volume_id"
    ]
    data = {**free, "volume_name": "data", "region": "us-central-4"}
    ids["data"] = emulator.send_as_somebody_else("POST", "/clusters/storage/volumes", data)[
        "volume_id"
    ]
    emulator.advance(600)
    for name, region, more in (
        ("train", "us-central-4", {"volume_id": ids["data"]}),
        ("eval", "us-central-8", {}),
    ):
        body = {**CLUSTER, "cluster_name": name, "region": region, **more}
        ids[name] = emulator.send_as_somebody_else("POST", "/clusters", body)["cluster_id"]
    emulator.advance(7200)
    return ids


def list_names(**filters: str) -> list[str]:
    return [cluster.cluster_name for cluster in clusters(**filters)]


def test_clusters_by_name_region_and_status(ids_by_name: dict[str, str]) -> None:
    assert list_names() == ["eval", "train"]
    assert list_names(cluster_name="train") == ["train"]
    assert list_names(region="us-central-8") == ["eval"]
    assert list_names(status="Ready") == ["eval", "train"]
    assert list_names(status="Ready", cluster_name="train", region="us-central-8") == []
    (train,) = clusters("train")
    assert (train.cluster_id, train.num_gpus) == (ids_by_name["train"], 8)


def test_lookups_return_no_kubeconfig(ids_by_name: dict[str, str]) -> None:
    assert [cluster.kube_config.get_secret_value() for cluster in clusters()] == ["", ""]


def test_volumes_include_data_from_clusters(ids_by_name: dict[str, str]) -> None:
    volumes_by_name = {volume.volume_name: volume for volume in volumes()}
    assert list(volumes_by_name) == ["data", "free"]
    assert (volumes_by_name["data"].region, volumes_by_name["data"].cluster_ids) == (
        "us-central-4",
        (ids_by_name["train"],),
    )
    assert (volumes_by_name["free"].region, volumes_by_name["free"].cluster_ids) == (None, ())
    assert [volume.volume_name for volume in volumes(region="us-central-4")] == ["data"]
    assert [volume.volume_name for volume in volumes(status="available")] == ["free"]
    assert [volume.volume_id for volume in volumes("free")] == [ids_by_name["free"]]


def test_an_unreachable_platform_is_an_error(emulator: Any) -> None:
    emulator.add_fault("GET", "/compute/clusters", status=401, count=None)
    with pytest.raises(GpuformError):
        clusters()
