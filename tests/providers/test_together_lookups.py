"""What a program finds of a Together project: clusters and shared volumes."""

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
def made(emulator: Any) -> dict[str, str]:
    """Ids by name: two clusters, the second of which has a volume, and a free volume."""
    ids = {}
    free = {"volume_name": "free", "size_tib": 1, "region": "us-central-8"}
    ids["free"] = emulator.platform("POST", "/clusters/storage/volumes", free)["volume_id"]
    data = {**free, "volume_name": "data", "region": "us-central-4"}
    ids["data"] = emulator.platform("POST", "/clusters/storage/volumes", data)["volume_id"]
    emulator.advance(600)
    for name, region, more in (
        ("train", "us-central-4", {"volume_id": ids["data"]}),
        ("eval", "us-central-8", {}),
    ):
        body = {**CLUSTER, "cluster_name": name, "region": region, **more}
        ids[name] = emulator.platform("POST", "/clusters", body)["cluster_id"]
    emulator.advance(7200)
    return ids


def names(**wanted: str) -> list[str]:
    return [each.cluster_name for each in clusters(**wanted)]


def test_clusters_by_name_region_and_status(made: dict[str, str]) -> None:
    assert names() == ["eval", "train"]
    assert names(cluster_name="train") == ["train"]
    assert names(region="us-central-8") == ["eval"]
    assert names(status="Ready") == ["eval", "train"]
    assert names(status="Ready", cluster_name="train", region="us-central-8") == []
    (train,) = clusters("train")
    assert (train.cluster_id, train.num_gpus) == (made["train"], 8)


def test_no_kubeconfig_is_given_out(made: dict[str, str]) -> None:
    assert [each.kube_config.get_secret_value() for each in clusters()] == ["", ""]


def test_volumes_have_what_clusters_tell_of_them(made: dict[str, str]) -> None:
    found = {each.volume_name: each for each in volumes()}
    assert list(found) == ["data", "free"]
    assert (found["data"].region, found["data"].cluster_ids) == ("us-central-4", (made["train"],))
    assert (found["free"].region, found["free"].cluster_ids) == (None, ())
    assert [each.volume_name for each in volumes(region="us-central-4")] == ["data"]
    assert [each.volume_name for each in volumes(status="available")] == ["free"]
    assert [each.volume_id for each in volumes("free")] == [made["free"]]


def test_a_platform_that_does_not_answer_is_an_error(emulator: Any) -> None:
    emulator.fault("GET", "/compute/clusters", status=401, count=None)
    with pytest.raises(GpuformError):
        clusters()
