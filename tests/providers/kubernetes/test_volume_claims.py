"""Test volume claims on a cluster's Kubernetes: owners, binding and deletion."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    """Called as an engine calls it, for one resource."""
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    call = ProviderContext(urn=URN, clock=get_clock(environment(cluster.server.url)))
    call.intents = Intents(FolderRecords(tmp_path / "intents"))
    with use_context(call):
        yield VolumeClaimLifecycle()
    get_client(Settings()).close()


def shared(cluster: Any, **fields: Any) -> dict[str, Any]:
    named = {"cluster_id": cluster.id, "name": "shared", "volume_name": "data"}
    return {**named, "storage": "10Gi", **fields}


def local(cluster: Any, **fields: Any) -> dict[str, Any]:
    named = {"cluster_id": cluster.id, "name": "local"}
    return {**named, "storage_class_name": "local-storage-class", "storage": "50Gi", **fields}


def kept(cluster: Any, name: str) -> Any:
    return cluster.client.get_object(FOLDER + build_path(name))


def test_a_claim_has_the_form_of_the_reference_and_says_whose_it_is(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(shared(cluster, labels={"team": "a"}))
    assert made.id == f"{cluster.id}/default/shared"
    assert (made.outs["status"], made.outs["ready"]) == ("Bound", True)
    assert (made.outs["bound_volume"], made.outs["capacity"]) == ("data", "1Ti")
    claim = kept(cluster, "shared")
    assert claim["metadata"]["annotations"] == {OWNER_ANNOTATION: URN}
    assert claim["metadata"]["labels"] == {"team": "a"}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["volumeName"] == "data"


def test_the_clusters_credential_is_kept_nowhere(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    token = cluster.kubeconfig.rpartition("token: ")[2].strip()
    made = lifecycle.create(shared(cluster))
    assert token not in json.dumps(made.outs)


def test_a_local_claim_waits_for_nobody(cluster: Any, lifecycle: VolumeClaimLifecycle) -> None:
    made = lifecycle.create(local(cluster))
    assert (made.outs["status"], made.outs["ready"]) == ("Pending", True)
    with pytest.raises(GpuformError, match="grows only bound claims"):
        lifecycle.update(made.id, made.outs, local(cluster, storage="60Gi"))
    cluster.add_pod("job", claims=["local"])
    grown = lifecycle.update(made.id, made.outs, local(cluster, storage="60Gi"))
    assert (grown.outs["status"], grown.outs["capacity"]) == ("Bound", "60Gi")


def test_a_claim_of_somebody_else_is_never_taken(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "volumeName": "data",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    before = kept(cluster, "shared")
    with pytest.raises(NameTaken, match=f"{cluster.id}/default/shared"):
        lifecycle.create(shared(cluster))
    assert kept(cluster, "shared") == before


def test_a_claim_that_took_the_name_while_ours_was_sent_is_not_adopted(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    cluster.fault(method="POST", path="/persistentvolumeclaims$", drop="before")
    cluster.fault(method="GET", path="/persistentvolumeclaims/", skip=2, status=503, count=20)
    with pytest.raises(GpuformError, match="create is unknown"):
        lifecycle.create(shared(cluster))
    cluster.control("DELETE", "/faults")
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    with pytest.raises(NameTaken):
        lifecycle.create(shared(cluster))


def test_one_made_anew_by_somebody_else_is_left_alone(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(shared(cluster))
    cluster.client.delete_object(FOLDER + build_path("shared"), {})
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create_object(FOLDER, {"metadata": {"name": "shared"}, "spec": spec})
    assert lifecycle.read(made.id, made.outs).id == ""
    with pytest.raises(GpuformError, match="no longer exists in the cluster"):
        lifecycle.update(made.id, made.outs, shared(cluster, storage="20Gi"))
    lifecycle.delete(made.id, made.outs)
    assert kept(cluster, "shared")["spec"]["resources"]["requests"] == {"storage": "1Gi"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"volume_name": "nothing"}, "the cluster has no volume 'nothing'"),
        ({"storage": "2Ti"}, "volume 'data' exists and is not bound to the claim yet"),
    ],
)
def test_what_a_claim_waits_for_is_told(
    cluster: Any, lifecycle: VolumeClaimLifecycle, fields: dict[str, Any], told: str
) -> None:
    made = lifecycle.create(shared(cluster, **fields))
    assert made.outs["ready"] is False
    assert told in made.outs["not_ready_reason"]


@pytest.mark.slow
def test_a_claim_that_pods_use_goes_when_they_have_ended(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    made = lifecycle.create(shared(cluster))
    cluster.add_pod("job", claims=["shared"], runs_for=60)
    lifecycle.delete(made.id, made.outs)
    assert cluster.client.list_objects(FOLDER) == ()
    made = lifecycle.create(shared(cluster))
    cluster.add_pod("server", claims=["shared"])
    with pytest.raises(GpuformError, match="used by server"):
        lifecycle.delete(made.id, made.outs)


def test_a_claim_is_gone_with_its_cluster(cluster: Any, lifecycle: VolumeClaimLifecycle) -> None:
    made = lifecycle.create(shared(cluster))
    get_client(Settings()).delete_cluster(cluster.id)
    for seconds in (0, 3600):
        cluster.server.clock.advance(seconds)
        assert lifecycle.read(made.id, made.outs).id == ""
        lifecycle.delete(made.id, made.outs)
    with pytest.raises(GpuformError, match=r"cluster .* not found"):
        lifecycle.create(shared(cluster))


def test_labels_of_others_stay(cluster: Any, lifecycle: VolumeClaimLifecycle) -> None:
    made = lifecycle.create(shared(cluster, labels={"team": "a", "old": "x"}))
    cluster.client.patch_object(
        FOLDER + build_path("shared"), {"metadata": {"labels": {"theirs": "y"}}}
    )
    changed = lifecycle.update(made.id, made.outs, shared(cluster, labels={"team": "b"}))
    assert changed.outs["ready"] is True
    assert kept(cluster, "shared")["metadata"]["labels"] == {"team": "b", "theirs": "y"}


def test_an_import_declares_what_a_program_would(
    cluster: Any, lifecycle: VolumeClaimLifecycle
) -> None:
    lifecycle.create(shared(cluster))
    found = lifecycle.read(f"{cluster.id}/default/shared", {})
    assert found.inputs == {**shared(cluster), "access_modes": ["ReadWriteMany"]}
    assert lifecycle.read("no-such-id", {}).id == ""
