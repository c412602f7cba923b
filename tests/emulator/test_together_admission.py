"""Test the requests that Together refuses, and the exact messages."""

from typing import Any

import httpx
import pytest
from together import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    PermissionDeniedError,
    Together,
    UnprocessableEntityError,
)

from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY

SLURM = {"cluster_type": "SLURM"}
PAIR = {"cuda_version", "nvidia_driver_version"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("twelve", {"num_gpus": 12}, "multiple of 8"),
    ("none", {"num_gpus": 0}, "multiple of 8"),
    ("negative", {"num_gpus": -8}, "multiple of 8"),
    ("type", {"gpu_type": "H100-SXM"}, "gpu_type 'H100-SXM' is unknown"),
    ("type elsewhere", {"gpu_type": "B200_SXM"}, "not offered in region 'us-central-8'"),
    ("region", {"region": "mars"}, "region 'mars' is unknown"),
    ("no days", {"billing_type": "RESERVED"}, "duration_days is required"),
    ("0 days", {"billing_type": "RESERVED", "duration_days": 0}, "from 1 to 90"),
    ("91 days", {"billing_type": "RESERVED", "duration_days": 91}, "from 1 to 90"),
    ("days on demand", {"duration_days": 3}, "only allowed with billing_type RESERVED"),
    ("no shm", SLURM, "slurm_shm_size_gib is required"),
    ("no window", {"billing_type": "SCHEDULED_CAPACITY"}, "reservation_start_time and"),
    ("window on demand", {"reservation_end_time": "2030-01-01T00:00:00Z"}, "do not apply"),
    ("unpaired", {"cuda_version": None}, "cuda version and nvidia driver version are required"),
    ("unknown driver", {"cuda_version": "99.9"}, "no driver in region"),
    ("contradiction", {"driver_version": "CUDA_12_4_550"}, "no driver in region"),
    ("no pool", {"num_capacity_pool_gpus": 8}, "needs a capacity_pool_id"),
    ("pool by 8", {"num_capacity_pool_gpus": 4, "capacity_pool_id": "p"}, "multiple of 8"),
    ("pool too big", {"num_capacity_pool_gpus": 24, "capacity_pool_id": "p"}, "not exceed"),
    ("preemptible by 8", {"num_preemptible_gpus": 9}, "num_preemptible_gpus must be"),
    ("reserved on demand", {"num_reserved_gpus": 8}, "only to billing_type RESERVED"),
    ("add-on", {"add_ons": [{"add_on_type": "x", "name": "y"}]}, "add_on_type 'x' is unknown"),
    ("unknown key", {"instance_type": "H100"}, "instance_type is not a field"),
]


@pytest.mark.parametrize(
    ("change", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_broken_rule_is_400_and_creates_nothing(
    together: Together, cluster_args: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    body = {**cluster_args, **change}
    with pytest.raises(BadRequestError) as caught:
        together.post("/v1/compute/clusters", body=body, cast_to=httpx.Response)
    assert words in caught.value.body["error"]["message"]
    assert together.clusters.list().clusters == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_gpus": "16"}, "num_gpus: "),
        ({"num_gpus": 16.0}, "num_gpus: "),
        ({"num_gpus": None}, "num_gpus: "),
        ({"billing_type": "prepaid"}, "billing_type: "),
        ({"cluster_name": ""}, "cluster_name: "),
        ({"cluster_config": {}}, "cluster_config.load_balancer is required"),
        ({"shared_volume": {"size_tib": 1, "region": "us-central-8"}}, "shared_volume.volume_name"),
        ({"reservation_start_time": "tomorrow"}, "reservation_start_time: "),
    ],
)
def test_a_malformed_value_is_422(
    together: Together, cluster_args: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    body = {**cluster_args, **change}
    with pytest.raises(UnprocessableEntityError) as caught:
        together.post("/v1/compute/clusters", body=body, cast_to=httpx.Response)
    assert words in caught.value.body["error"]["message"]


def test_all_missing_fields_are_named_at_once(together: Together) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        together.post("/v1/compute/clusters", body={}, cast_to=httpx.Response)
    for name in ("cluster_name", "region", "gpu_type", "num_gpus", "billing_type"):
        assert f"{name} is required" in caught.value.body["error"]["message"]


@pytest.mark.parametrize(
    "ways",
    [
        {"driver_version": "CUDA_12_6_560"},
        {"cuda_version": "12.6", "nvidia_driver_version": "560"},
        {"driver_version": "CUDA_12_6_560", "cuda_version": "12.6", "nvidia_driver_version": "560"},
    ],
)
def test_a_driver_may_be_named_in_each_documented_way(
    together: Together, cluster_args: dict[str, Any], ways: dict[str, str]
) -> None:
    body = {key: value for key, value in cluster_args.items() if key not in PAIR} | ways
    answer = together.post("/v1/compute/clusters", body=body, cast_to=httpx.Response).json()
    assert (answer["cuda_version"], answer["nvidia_driver_version"]) == ("12.6", "560")
    assert answer["os_image"] == "ubuntu-22.04"


def test_a_driver_may_be_named_by_the_id_of_the_catalogue(
    together: Together, cluster_args: dict[str, Any]
) -> None:
    region = next(r for r in together.clusters.list_regions().regions if r.name == "us-central-8")
    entry = next(version for version in region.driver_versions if version.os == "ubuntu-24.04")
    base = {key: value for key, value in cluster_args.items() if key not in PAIR}
    cluster = together.clusters.create(**base, nvidia_version_id=entry.id)
    assert (cluster.nvidia_driver_version_id, cluster.os_image) == (entry.id, "ubuntu-24.04")
    with pytest.raises(BadRequestError, match="no driver in region"):
        together.clusters.create(
            **base, nvidia_version_id=entry.id, cuda_version="12.4", nvidia_driver_version="550"
        )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"region": "us-east-2"}, "region cannot be changed after the cluster is created"),
        ({"gpu_type": "H200_SXM"}, "gpu_type cannot be changed"),
        ({"nonsense": 1}, "nonsense is not a field"),
        ({"num_gpus": 12}, "multiple of 8"),
        ({"num_reserved_gpus": 8}, "only to billing_type RESERVED"),
        ({"num_capacity_pool_gpus": 8}, "with a capacity_pool_id"),
        ({"reservation_end_time": "2030-01-01T00:00:00Z"}, "only accepted for prepaid clusters"),
    ],
)
def test_a_forbidden_update_is_400_and_changes_nothing(
    together: Together, cluster_args: dict[str, Any], body: dict[str, Any], words: str
) -> None:
    cluster = together.clusters.create(**cluster_args)
    with pytest.raises(BadRequestError) as caught:
        together.put(
            f"/v1/compute/clusters/{cluster.cluster_id}", body=body, cast_to=httpx.Response
        )
    assert words in caught.value.body["error"]["message"]
    assert together.clusters.retrieve(cluster.cluster_id) == cluster


@pytest.mark.parametrize("key", ["wrong", f"{ADMIN_KEY}x"])
def test_a_wrong_key_is_401(emulator: Server, connect: Any, key: str) -> None:
    with pytest.raises(AuthenticationError, match="Invalid API key"):
        connect(emulator.url, key).clusters.list()


def test_a_missing_key_is_401_even_on_an_unknown_path(emulator: Server) -> None:
    for path in ("/compute/clusters", "/nothing"):
        answer = httpx.get(f"{emulator.url}/together/v1{path}", verify=False)
        assert answer.status_code == 401
        assert set(answer.json()["error"]) == {"message", "type", "code"}


def test_a_member_reads_but_does_not_write(
    emulator: Server, together: Together, connect: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    member = connect(emulator.url, MEMBER_KEY)
    assert member.clusters.retrieve(cluster.cluster_id).cluster_name == "training"
    assert member.clusters.list_regions().regions
    writes = [
        lambda: member.clusters.create(**cluster_args),
        lambda: member.clusters.update(cluster.cluster_id, num_gpus=8),
        lambda: member.clusters.delete(cluster.cluster_id),
        lambda: member.clusters.storage.create(volume_name="v", size_tib=1, region="us-central-8"),
    ]
    for write in writes:
        with pytest.raises(PermissionDeniedError, match="Member"):
            write()
    assert together.clusters.list().clusters == [cluster]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/compute/nothing", 404), ("PATCH", "/compute/clusters", 405)],
)
def test_a_route_that_is_not_there_answers_as_the_platform_does(
    together: Together, method: str, path: str, status: int
) -> None:
    with pytest.raises(APIStatusError) as caught:
        getattr(together, method.lower())(f"/v1{path}", cast_to=httpx.Response)
    assert caught.value.status_code == status
    assert caught.value.body["error"]["message"]


def test_an_unknown_id_is_404(together: Together) -> None:
    with pytest.raises(NotFoundError, match="cluster 'x' not found"):
        together.clusters.retrieve("x")
    with pytest.raises(NotFoundError, match="volume 'x' not found"):
        together.clusters.storage.retrieve("x")
    with pytest.raises(NotFoundError, match="volume 'x' not found"):
        together.clusters.storage.update(volume_id="x", size_tib=2)
