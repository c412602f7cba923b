"""Test shared volumes through the unchanged PyPI client."""

from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from together import BadRequestError, ConflictError, NotFoundError, Together
from together.types.clusters import ClusterStorage

from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.together import ADMIN_KEY

REGION = "us-central-8"


@pytest.fixture
def volume(together: Together, control: Any) -> ClusterStorage:
    """Return an available volume of 2 TiB."""
    created = together.clusters.storage.create(volume_name="data", size_tib=2, region=REGION)
    control.advance(60)
    return together.clusters.storage.retrieve(created.volume_id)


def test_a_volume_becomes_available_within_a_minute(together: Together, control: Any) -> None:
    created = together.clusters.storage.create(volume_name="data", size_tib=2, region=REGION)
    statuses = [created.status]
    for _ in range(12):
        control.advance(5)
        statuses.append(together.clusters.storage.retrieve(created.volume_id).status)
    assert list(dict.fromkeys(statuses)) == ["scheduled", "provisioning", "available"]


def test_a_volume_fits_the_clients_model_and_has_no_region(
    emulator: Server, volume: ClusterStorage
) -> None:
    raw = httpx.get(
        f"{emulator.url}/together/v1/compute/clusters/storage/volumes/{volume.volume_id}",
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        verify=False,
    ).json()
    TypeAdapter(ClusterStorage).validate_python(raw, strict=True)
    assert set(raw) == {"volume_id", "volume_name", "size_tib", "status"}


def test_a_volume_grows_after_some_seconds(
    together: Together, control: Any, volume: ClusterStorage
) -> None:
    answered = together.clusters.storage.update(volume_id=volume.volume_id, size_tib=5)
    assert answered.size_tib == 2
    control.advance(20)
    assert together.clusters.storage.retrieve(volume.volume_id).size_tib == 5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"size_tib": 1}, "cannot shrink: 2 TiB to 1 TiB"),
        ({"volume_name": "other"}, "volume_name cannot be changed"),
        ({"region": "us-east-2"}, "region cannot be changed"),
    ],
)
def test_a_volume_only_grows(
    together: Together, volume: ClusterStorage, body: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadRequestError, match=words):
        together.put(
            "/v1/compute/clusters/storage/volumes",
            body={"volume_id": volume.volume_id, **body},
            cast_to=httpx.Response,
        )
    assert together.clusters.storage.retrieve(volume.volume_id) == volume


def test_a_volume_is_not_resized_during_its_creation(together: Together) -> None:
    created = together.clusters.storage.create(volume_name="data", size_tib=2, region=REGION)
    with pytest.raises(ConflictError, match="scheduled"):
        together.clusters.storage.update(volume_id=created.volume_id, size_tib=3)


def test_a_free_volume_is_deleted(together: Together, control: Any, volume: ClusterStorage) -> None:
    assert together.clusters.storage.delete(volume.volume_id).success
    assert together.clusters.storage.retrieve(volume.volume_id).status == "deleting"
    control.advance(30)
    with pytest.raises(NotFoundError):
        together.clusters.storage.retrieve(volume.volume_id)
    assert together.clusters.storage.list().volumes == []


def test_a_volume_stays_attached_until_its_cluster_is_deleted(
    together: Together, control: Any, volume: ClusterStorage, cluster_args: dict[str, Any]
) -> None:
    def status() -> str:
        return together.clusters.storage.retrieve(volume.volume_id).status

    cluster = together.clusters.create(**cluster_args, volume_id=volume.volume_id)
    assert status() == "bound"
    (attached,) = cluster.volumes
    assert (attached.volume_id, attached.size_tib, attached.status) == (
        volume.volume_id,
        2,
        "bound",
    )
    with pytest.raises(ConflictError, match="attached"):
        together.clusters.storage.delete(volume.volume_id)
    control.advance(3600)
    together.clusters.storage.update(volume_id=volume.volume_id, size_tib=3)
    together.clusters.delete(cluster.cluster_id)
    control.advance(179)
    assert status() == "bound"
    control.advance(1)
    assert status() == "available"
    again = together.clusters.create(**cluster_args, volume_id=volume.volume_id)
    assert again.volumes[0].size_tib == 3


def test_a_volume_of_another_region_is_refused(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    other = together.clusters.storage.create(volume_name="far", size_tib=1, region="eu-north-1")
    control.advance(60)
    with pytest.raises(BadRequestError, match="does not exist in the datacenter"):
        together.clusters.create(**cluster_args, volume_id=other.volume_id)
    inline = {"volume_name": "far", "size_tib": 1, "region": "eu-north-1"}
    with pytest.raises(BadRequestError, match="does not exist in the datacenter"):
        together.clusters.create(**cluster_args, shared_volume=inline)


def test_a_cluster_needs_a_volume_that_exists_and_is_available(
    together: Together, cluster_args: dict[str, Any]
) -> None:
    created = together.clusters.storage.create(volume_name="data", size_tib=1, region=REGION)
    with pytest.raises(ConflictError, match="is scheduled, not available"):
        together.clusters.create(**cluster_args, volume_id=created.volume_id)
    with pytest.raises(NotFoundError):
        together.clusters.create(**cluster_args, volume_id="nothing")
    inline = {"volume_name": "d", "size_tib": 1, "region": REGION}
    with pytest.raises(BadRequestError, match="exclude each other"):
        together.clusters.create(**cluster_args, volume_id=created.volume_id, shared_volume=inline)


@pytest.mark.parametrize("independent", [False, True])
def test_an_inline_volume_is_deleted_with_its_cluster_unless_independent(
    together: Together, control: Any, cluster_args: dict[str, Any], independent: bool
) -> None:
    cluster = together.clusters.create(
        **cluster_args,
        shared_volume={
            "volume_name": "inline",
            "size_tib": 1,
            "region": REGION,
            "is_lifecycle_independent": independent,
        },
    )
    (inline,) = cluster.volumes
    assert inline.status == "scheduled"
    control.advance(60)
    assert together.clusters.storage.retrieve(inline.volume_id).status == "bound"
    together.clusters.delete(cluster.cluster_id)
    control.advance(180)
    remaining_statuses = [cluster.status for cluster in together.clusters.storage.list().volumes]
    assert remaining_statuses == (["available"] if independent else [])


def test_a_separate_volume_outlives_its_cluster_whatever_its_flag(
    together: Together, control: Any, volume: ClusterStorage, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args, volume_id=volume.volume_id)
    together.clusters.delete(cluster.cluster_id)
    control.advance(180)
    assert together.clusters.storage.retrieve(volume.volume_id) == volume


def test_a_volume_may_be_placed_beside_a_cluster_of_its_region(
    together: Together, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    beside = {"size_tib": 1, "instance_cluster_id": cluster.cluster_id}
    together.clusters.storage.create(volume_name="near", region=REGION, **beside)
    with pytest.raises(BadRequestError, match="another region"):
        together.clusters.storage.create(volume_name="far", region="eu-north-1", **beside)


def test_volumes_are_listed_in_order_and_by_project(together: Together) -> None:
    create = together.clusters.storage.create
    first = create(volume_name="a", size_tib=1, region=REGION)
    second = create(volume_name="a", size_tib=1, region=REGION, project_id="ours")
    listed = together.clusters.storage.list().volumes
    assert [item.volume_id for item in listed] == [first.volume_id, second.volume_id]
    ours = together.clusters.storage.list(project_id="ours").volumes
    assert [volume.volume_id for volume in ours] == [second.volume_id]


def test_a_volume_needs_a_known_region(together: Together) -> None:
    with pytest.raises(BadRequestError, match="region 'mars' is unknown"):
        together.clusters.storage.create(volume_name="a", size_tib=1, region="mars")


def test_clusters_of_a_region_share_a_volume(
    together: Together, control: Any, volume: ClusterStorage, cluster_args: dict[str, Any]
) -> None:
    clusters = [
        together.clusters.create(
            **{**cluster_args, "cluster_name": name}, volume_id=volume.volume_id
        )
        for name in ("one", "two")
    ]
    control.advance(3600)
    for cluster in clusters:
        assert together.clusters.storage.retrieve(volume.volume_id).status == "bound"
        with pytest.raises(ConflictError, match="attached"):
            together.clusters.storage.delete(volume.volume_id)
        together.clusters.delete(cluster.cluster_id)
        control.advance(3600)
    assert together.clusters.storage.retrieve(volume.volume_id).status == "available"
