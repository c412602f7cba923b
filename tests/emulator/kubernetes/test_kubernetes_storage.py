"""Test claims: bound to shared volumes by name, to local NVMe by use; grown, protected, refused."""

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from together import Together

SHARED = {"accessModes": ["ReadWriteMany"], "volumeName": "data"}
LOCAL = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-storage-class"}


def add(kube: Any, name: str, storage: str, **spec: object) -> Any:
    body = {"metadata": {"name": name}, "spec": {**spec, **build_size(storage)}}
    return kube.core.create_namespaced_persistent_volume_claim("default", body)


def build_size(storage: str) -> dict[str, Any]:
    return {"resources": {"requests": {"storage": storage}}}


def claim(kube: Any, name: str) -> Any:
    return kube.core.read_namespaced_persistent_volume_claim(name, "default")


def grow(kube: Any, name: str, storage: str) -> None:
    body = {"spec": build_size(storage)}
    kube.core.patch_namespaced_persistent_volume_claim(name, "default", body)


def test_a_claim_is_bound_to_the_shared_volume_that_it_names(kube: Any) -> None:
    add(kube, "shared", "10Gi", **SHARED)
    bound_claim = claim(kube, "shared")
    assert (bound_claim.status.phase, bound_claim.status.capacity["storage"]) == ("Bound", "1Ti")
    volume = kube.core.read_persistent_volume("data")
    assert volume.spec.claim_ref.name == "shared"
    add(kube, "second", "10Gi", **SHARED)
    assert claim(kube, "second").status.phase == "Pending"


@pytest.mark.parametrize(("storage", "volume"), [("2Ti", "data"), ("1Gi", "nothing")])
def test_a_claim_waits_for_its_volume_to_exist_and_be_large_enough(
    kube: Any, storage: str, volume: str
) -> None:
    add(kube, "shared", storage, **{**SHARED, "volumeName": volume})
    assert claim(kube, "shared").status.phase == "Pending"


def test_a_volume_grows_as_the_platform_grows_it(
    kube: Any, together: Together, control: Any
) -> None:
    add(kube, "shared", "10Gi", **SHARED)
    grow(kube, "shared", "2Ti")
    assert claim(kube, "shared").status.capacity["storage"] == "1Ti"
    (volume,) = together.clusters.storage.list().volumes
    together.clusters.storage.update(volume_id=volume.volume_id, size_tib=2)
    control.advance(60)
    assert claim(kube, "shared").status.capacity["storage"] == "2Ti"


def test_a_local_claim_is_bound_when_a_pod_uses_it_and_protected_while_one_does(
    kube: Any, control: Any
) -> None:
    add(kube, "local", "50Gi", **LOCAL)
    assert claim(kube, "local").status.phase == "Pending"
    kube.add_pod("job", claims=["local"], runs_for=600)
    assert claim(kube, "local").status.phase == "Bound"
    grow(kube, "local", "60Gi")
    assert claim(kube, "local").status.capacity["storage"] == "60Gi"
    kube.core.delete_namespaced_persistent_volume_claim("local", "default")
    assert claim(kube, "local").metadata.deletion_timestamp is not None
    control.advance(601)
    with pytest.raises(ApiException) as removed:
        claim(kube, "local")
    assert removed.value.status == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (build_size("5Gi"), 422),
        (build_size("-1"), 422),
        ({"volumeName": "other"}, 422),
        ({"accessModes": ["ReadWriteOnce"]}, 422),
        ({"storageClassName": "other"}, 422),
    ],
)
def test_a_forbidden_change_of_a_claim_is_refused(
    kube: Any, change: dict[str, Any], status: int
) -> None:
    add(kube, "shared", "10Gi", **SHARED)
    with pytest.raises(ApiException) as refused:
        kube.core.patch_namespaced_persistent_volume_claim("shared", "default", {"spec": change})
    assert refused.value.status == status
    assert '"reason":"Invalid"' in refused.value.body


def test_an_unbound_claim_does_not_grow(kube: Any) -> None:
    add(kube, "local", "50Gi", **LOCAL)
    with pytest.raises(ApiException) as refused:
        grow(kube, "local", "60Gi")
    assert refused.value.status == 422


@pytest.mark.parametrize(
    "spec",
    [
        {"accessModes": [], **build_size("1Gi")},
        {"accessModes": ["ReadWriteMany"]},
        {"accessModes": ["ReadWriteMany"], **build_size("0")},
        {"accessModes": ["Everybody"], **build_size("1Gi")},
        {"accessModes": ["ReadWriteMany"], **build_size("ten")},
    ],
)
def test_a_malformed_claim_is_refused(kube: Any, spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "c"}, "spec": spec}
    with pytest.raises(ApiException) as refused:
        kube.core.create_namespaced_persistent_volume_claim("default", body)
    assert refused.value.status == 422


def test_a_create_needs_a_free_name_and_an_existing_namespace(kube: Any) -> None:
    add(kube, "shared", "10Gi", **SHARED)
    with pytest.raises(ApiException) as twice:
        add(kube, "shared", "10Gi", **SHARED)
    assert (twice.value.status, "AlreadyExists" in twice.value.body) == (409, True)
    with pytest.raises(ApiException) as nowhere:
        kube.core.create_namespaced_persistent_volume_claim("nowhere", {})
    assert nowhere.value.status == 404


def test_everything_is_gone_after_a_reset(kube: Any, control: Any) -> None:
    add(kube, "shared", "10Gi", **SHARED)
    assert control.call("GET", "/objects")["kubernetes"]["volume_claims"]
    control.call("POST", "/reset")
    assert control.call("GET", "/objects")["kubernetes"] == {"volume_claims": []}
