"""Test volume claims on a cluster's Kubernetes: owners, binding and deletion."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.emulator.server import environment
from gpuform.providers.errors import GpuformError, NameTaken
from gpuform.providers.http import build_path
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.together.client import get_client
from gpuform.providers.together.volume_claim import OWNER_ANNOTATION, VolumeClaimLifecycle

FOLDER = "/api/v1/namespaces/default/persistentvolumeclaims"
URN = "urn:pulumi:dev::project::type::shared"


@pytest.fixture
def lifecycle(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[VolumeClaimLifecycle]:
    """Yield the lifecycle in the context of an engine, for one resource."""
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    call = ProviderContext(urn=URN, clock=get_clock(environment(cluster.server.url)))
    change_context(call, intents=Intents(FolderRecords(tmp_path / "intents")))
    with use_context(call):
        yield VolumeClaimLifecycle()
    get_client(Settings()).close()


def declare_shared_claim(cluster: Any, **fields: Any) -> dict[str, Any]:
    named = {"cluster_id": cluster.id, "name": "shared", "volume_name": "data"}
    return {**named, "storage": "10Gi", **fields}


def declare_local_claim(cluster: Any, **fields: Any) -> dict[str, Any]:
    named = {"cluster_id": cluster.id, "name": "local"}
    return {**named, "storage_class_name": "local-storage-class", "storage": "50Gi", **fields}


def get_claim(cluster: Any, name: str) -> Any:
    return cluster.client.get_object(FOLDER + build_path(name))


def test_a_claim_has_the_documented_form_and_an_owner_annotation(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(declare_shared_claim(cluster, labels={"team": "a"}))
    assert made.id == f"{cluster.id}/default/shared"
    assert (made.outs["status"], made.outs["ready"]) == ("Bound", True)
    assert (made.outs["bound_volume"], made.outs["capacity"]) == ("data", "1Ti")
    claim = get_claim(cluster, "shared")
    assert claim["metadata"]["annotations"] == {OWNER_ANNOTATION: URN}
    assert claim["metadata"]["labels"] == {"team": "a"}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["volumeName"] == "data"


def test_the_state_of_a_claim_has_no_credential_of_the_cluster(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    token = cluster.kubeconfig.rpartition("token: ")[2].strip()
    made = lifecycle.create(declare_shared_claim(cluster))
    assert token not in json.dumps(made.outs)


def test_a_local_claim_is_ready_before_a_pod_uses_it(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(declare_local_claim(cluster))
    assert (made.outs["status"], made.outs["ready"]) == ("Pending", True)
    with pytest.raises(GpuformError, match="grows only bound claims"):
        lifecycle.update(made.id, made.outs, declare_local_claim(cluster, storage="60Gi"))
    cluster.add_pod("job", claims=["local"])
    grown = lifecycle.update(made.id, made.outs, declare_local_claim(cluster, storage="60Gi"))
    assert (grown.outs["status"], grown.outs["capacity"]) == ("Bound", "60Gi")


def test_a_claim_of_somebody_else_is_never_adopted(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "volumeName": "data",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    before = get_claim(cluster, "shared")
    with pytest.raises(NameTaken, match=f"{cluster.id}/default/shared"):
        lifecycle.create(declare_shared_claim(cluster))
    assert get_claim(cluster, "shared") == before


def test_a_claim_that_others_created_during_our_create_is_not_adopted(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    cluster.add_fault(method="POST", path="/persistentvolumeclaims$", drop="before")
    cluster.add_fault(method="GET", path="/persistentvolumeclaims/", skip=2, status=503, count=20)
    with pytest.raises(GpuformError, match="create is unknown"):
        lifecycle.create(declare_shared_claim(cluster))
    cluster.send_control("DELETE", "/faults")
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    with pytest.raises(NameTaken):
        lifecycle.create(declare_shared_claim(cluster))


def test_a_claim_that_others_created_again_stays_unchanged(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(declare_shared_claim(cluster))
    cluster.client.delete_object(FOLDER + build_path("shared"), {})
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    assert lifecycle.read(made.id, made.outs).id == ""
    with pytest.raises(GpuformError, match="no longer exists in the cluster"):
        lifecycle.update(made.id, made.outs, declare_shared_claim(cluster, storage="20Gi"))
    lifecycle.delete(made.id, made.outs)
    assert get_claim(cluster, "shared")["spec"]["resources"]["requests"] == {"storage": "1Gi"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"volume_name": "nothing"}, "the cluster has no volume 'nothing'"),
        ({"storage": "2Ti"}, "volume 'data' exists and is not bound to the claim yet"),
    ],
)
def test_the_reason_of_an_unbound_claim_is_reported(
    cluster: Any, lifecycle: VolumeClaimLifecycle, fields: dict[str, Any], message: str
) -> None:
    made = lifecycle.create(declare_shared_claim(cluster, **fields))
    assert made.outs["ready"] is False
    assert message in made.outs["not_ready_reason"]


@pytest.mark.slow
def test_a_claim_is_deleted_when_its_pods_have_ended(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(declare_shared_claim(cluster))
    cluster.add_pod("job", claims=["shared"], runs_for=60)
    lifecycle.delete(made.id, made.outs)
    assert cluster.client.list_objects(FOLDER) == ()
    made = lifecycle.create(declare_shared_claim(cluster))
    cluster.add_pod("server", claims=["shared"])
    with pytest.raises(GpuformError, match="used by server"):
        lifecycle.delete(made.id, made.outs)


def test_a_claim_of_a_deleted_cluster_is_gone(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(declare_shared_claim(cluster))
    get_client(Settings()).delete_cluster(cluster.id)
    for seconds in (0, 3600):
        cluster.server.clock.advance(seconds)
        assert lifecycle.read(made.id, made.outs).id == ""
        lifecycle.delete(made.id, made.outs)
    with pytest.raises(GpuformError, match=r"cluster .* not found"):
        lifecycle.create(declare_shared_claim(cluster))


def test_labels_of_others_are_kept(cluster: Any, lifecycle: VolumeClaimLifecycle) -> None:
    made = lifecycle.create(declare_shared_claim(cluster, labels={"team": "a", "old": "x"}))
    cluster.client.patch_object(
        FOLDER + build_path("shared"), {"metadata": {"labels": {"theirs": "y"}}}
    )
    changed = lifecycle.update(
        made.id, made.outs, declare_shared_claim(cluster, labels={"team": "b"})
    )
    assert changed.outs["ready"] is True
    assert get_claim(cluster, "shared")["metadata"]["labels"] == {"team": "b", "theirs": "y"}


def test_an_imported_claim_has_the_inputs_of_its_declaration(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    lifecycle.create(declare_shared_claim(cluster))
    imported = lifecycle.read(f"{cluster.id}/default/shared", {})
    assert imported.inputs == {**declare_shared_claim(cluster), "access_modes": ["ReadWriteMany"]}
    assert lifecycle.read("no-such-id", {}).id == ""
