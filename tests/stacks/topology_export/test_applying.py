"""Labels and objects in an emulated Kubernetes, read back by the official client."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from support.definitions.schemas import find_schema_problems, list_rule_messages
from support.schedulers.emulated_slurm import SlurmCluster, create_slurm_cluster

from gpuform.providers.emulator.server import serve
from gpuform.providers.errors import GpuformError, UnknownOutcome
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.records import FolderRecords
from gpuform.stacks.topology_export.applying import (
    Change,
    ExportTarget,
    apply_changes,
    find_served_version,
    plan_changes,
)
from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    OwnedObject,
    WriteRecords,
)
from gpuform.stacks.topology_export.model import NoTopology

KEY = "gpuform.dev/fabric"
WORKERS = tuple(f"train-worker-{number}" for number in range(3))


class Killed(BaseException):
    """The process died here."""


@dataclass
class Kube:
    cluster: SlurmCluster
    api: client.ApiClient
    records: WriteRecords
    client: KubernetesClient

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    def create_target(self, form: str = "labels") -> ExportTarget:
        """Return the target of a run that begins now."""
        return ExportTarget(self.client, self.records, self.records.read("k", form), "demo.dev")

    def plan(self, *manifests: Manifest, form: str = "labels") -> list[tuple[str, str]]:
        return format_changes(plan_changes(self.create_target(form), manifests))

    def apply(self, *manifests: Manifest, form: str = "labels") -> list[tuple[str, str]]:
        return format_changes(apply_changes(self.create_target(form), manifests))

    def label(self, name: str, **labels: str | None) -> None:
        named = {f"gpuform.dev/{key}": value for key, value in labels.items()}
        self.core.patch_node(name, {"metadata": {"labels": named}})

    def read_labels(self, name: str) -> dict[str, str]:
        node_labels = self.core.read_node(name).metadata.labels
        return {key: value for key, value in node_labels.items() if key.startswith("gpuform.dev/")}


def format_changes(changes: list[Change]) -> list[tuple[str, str]]:
    return [(str(change.action), change.where.removeprefix("node/")) for change in changes]


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))  # the client's certificates
    with serve(seed="topology") as server:
        cluster = create_slurm_cluster(server)
        settings = client.Configuration()
        config.load_kube_config_from_dict(
            yaml.safe_load(cluster.kubeconfig), client_configuration=settings
        )
        settings.retries = False
        with client.ApiClient(settings) as api:
            records = WriteRecords(FolderRecords(tmp_path / "records"))
            own = get_kubernetes_client(cluster.kubeconfig, "train")
            yield Kube(cluster, api, records, own)
            own.close()


def build_labels(name: str, value: str, *nodes: str) -> list[Manifest]:
    return [NodeMetadata(node, labels={name: value}) for node in nodes]


def test_what_is_written_is_read_back_and_written_once(kube: Kube) -> None:
    manifests = build_labels(KEY, "a", *WORKERS)
    before = kube.core.read_node(WORKERS[0]).metadata
    assert kube.plan(*manifests) == [("set", name) for name in WORKERS]
    assert kube.read_labels(WORKERS[0]) == {}
    assert kube.apply(*manifests) == [("set", name) for name in WORKERS]
    after = kube.core.read_node(WORKERS[0]).metadata
    assert {*after.labels.items()} - {*before.labels.items()} == {(KEY, "a")}
    assert kube.core.list_node(label_selector=f"{KEY}=a").items[2].metadata.name == WORKERS[2]
    assert kube.apply(*manifests) == [("same", name) for name in WORKERS]
    assert kube.core.read_node(WORKERS[0]).metadata.resource_version == after.resource_version


def test_a_label_of_somebody_else_stays(kube: Kube) -> None:
    kube.label(WORKERS[0], fabric="theirs")
    kube.label(WORKERS[1], fabric="a")
    manifests = build_labels(KEY, "a", *WORKERS)
    expected = [("conflict", WORKERS[0]), ("same", WORKERS[1]), ("set", WORKERS[2])]
    assert kube.plan(*manifests) == expected
    assert kube.apply(*manifests) == expected
    assert kube.read_labels(WORKERS[0]) == {KEY: "theirs"}
    assert kube.apply() == [("remove", WORKERS[2])]
    assert kube.read_labels(WORKERS[0]) == {KEY: "theirs"}
    assert kube.read_labels(WORKERS[1]) == {KEY: "a"}, "it had this value before"


def test_what_changed_is_changed_and_what_left_is_taken_back(kube: Kube) -> None:
    kube.apply(*build_labels(KEY, "a", *WORKERS))
    assert kube.apply(*build_labels(KEY, "b", *WORKERS[:2])) == [
        ("change", WORKERS[0]),
        ("change", WORKERS[1]),
        ("remove", WORKERS[2]),
    ]
    assert [kube.read_labels(name) for name in WORKERS] == [{KEY: "b"}, {KEY: "b"}, {}]
    assert kube.apply() == [("remove", name) for name in WORKERS[:2]]
    assert [kube.read_labels(name) for name in WORKERS] == [{}, {}, {}]
    assert kube.create_target().record.is_empty


def test_a_label_that_somebody_changed_since_is_theirs(kube: Kube) -> None:
    kube.apply(*build_labels(KEY, "a", *WORKERS))
    kube.label(WORKERS[0], fabric="theirs")
    kube.label(WORKERS[1], fabric=None)
    assert kube.plan() == [("left", WORKERS[0]), ("remove", WORKERS[2])]
    assert kube.apply(*build_labels(KEY, "b", *WORKERS))[0] == ("conflict", WORKERS[0])
    assert kube.read_labels(WORKERS[0]) == {KEY: "theirs"}
    assert kube.read_labels(WORKERS[1]) == {KEY: "b"}
    assert kube.apply() == [("remove", WORKERS[1]), ("remove", WORKERS[2])]
    assert kube.read_labels(WORKERS[0]) == {KEY: "theirs"}


def test_two_formats_take_back_their_own(kube: Kube) -> None:
    kube.apply(*build_labels(KEY, "a", *WORKERS))
    spec = [NodeMetadata(name, annotations={"x.dev/spec": "t:a"}) for name in WORKERS]
    kube.apply(*spec, form="slinky")
    kube.apply(form="labels")
    assert kube.core.read_node(WORKERS[0]).metadata.annotations["x.dev/spec"] == "t:a"
    kube.apply(form="slinky")
    assert "x.dev/spec" not in (kube.core.read_node(WORKERS[0]).metadata.annotations or {})


def test_a_node_that_is_gone_is_told_and_forgotten(kube: Kube) -> None:
    kube.apply(*build_labels(KEY, "a", *WORKERS))
    kube.cluster.resize(16)
    kube.cluster.advance(3600)
    (deleted_name,) = {*WORKERS} - {node.metadata.name for node in kube.core.list_node().items}
    assert ("absent", deleted_name) in kube.apply(*build_labels(KEY, "a", *WORKERS))
    assert ("remove", deleted_name) not in kube.apply()
    assert kube.create_target().record.is_empty


@pytest.mark.parametrize("writes", range(4))
def test_a_run_that_is_killed_leaves_nothing_that_nobody_takes_back(
    kube: Kube, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    kube.label(WORKERS[1], fabric="theirs")
    kube.apply(*build_labels(KEY, "old", WORKERS[0]))
    remaining_writes, patch, keep = writes, KubernetesClient.patch_object, WriteRecords.save
    saved_records: list[Any] = []

    def fail_after_writes(self: KubernetesClient, path: str, body: Any) -> Any:
        nonlocal remaining_writes
        if remaining_writes == 0:
            raise Killed
        remaining_writes -= 1
        return patch(self, path, body)

    def keep_once(self: WriteRecords, written: Any) -> None:
        if not saved_records:  # what comes after the death keeps nothing
            keep(self, written)
        saved_records.append(written)

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(KubernetesClient, "patch_object", fail_after_writes)
        patched.setattr(WriteRecords, "save", keep_once)
        apply_changes(kube.create_target(), build_labels(KEY, "a", *WORKERS))
    assert len(saved_records) == 2
    kube.apply()
    assert [kube.read_labels(name) for name in WORKERS] == [{}, {KEY: "theirs"}, {}]
    assert kube.create_target().record.is_empty


def test_a_write_in_between_is_seen(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = KubernetesClient.patch_object
    interfered: list[str] = []

    def write_in_between(self: KubernetesClient, path: str, body: Any) -> Any:
        if not interfered:
            interfered.append(path)
            kube.label(WORKERS[0], fabric="theirs")
        return patch(self, path, body)

    monkeypatch.setattr(KubernetesClient, "patch_object", write_in_between)
    assert kube.apply(*build_labels(KEY, "a", WORKERS[0])) == [("conflict", WORKERS[0])]
    assert kube.read_labels(WORKERS[0]) == {KEY: "theirs"}


def build_kueue_objects(
    *levels: str, name: str = "demo-dev", version: str = "v1beta2"
) -> list[Manifest]:
    version = f"kueue.x-k8s.io/{version}"
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    flavor = {"nodeLabels": {"gpuform.dev/stack": "demo.dev"}, "topologyName": name}
    return [
        OwnedObject(version, "Topology", "topologies", name, {"spec": spec}),
        OwnedObject(version, "ResourceFlavor", "resourceflavors", name, {"spec": flavor}),
    ]


class TestObjects:
    def test_they_are_made_changed_and_deleted(self, kube: Kube) -> None:
        custom = client.CustomObjectsApi(kube.api)

        def list_levels() -> list[str]:
            topology_object = custom.get_cluster_custom_object(
                "kueue.x-k8s.io", "v1beta2", "topologies", "demo-dev"
            )
            return [level["nodeLabel"] for level in topology_object["spec"]["levels"]]

        host = "kubernetes.io/hostname"
        assert [
            operation for operation, _ in kube.apply(*build_kueue_objects(host), form="kueue")
        ] == [
            "set",
            "set",
        ]
        assert list_levels() == [host]
        assert [
            operation for operation, _ in kube.apply(*build_kueue_objects(host), form="kueue")
        ] == [
            "same",
            "same",
        ]
        changed = kube.apply(*build_kueue_objects(KEY, host), form="kueue")
        assert [operation for operation, _ in changed] == ["change", "same"]
        assert list_levels() == [KEY, host]
        assert kube.apply(form="kueue") == [
            ("remove", "resourceflavors/demo-dev"),
            ("remove", "topologies/demo-dev"),
        ]
        with pytest.raises(ApiException) as gone:
            list_levels()
        assert gone.value.status == 404

    def test_one_whose_answer_is_lost_is_set(
        self, kube: Kube, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create_object = KubernetesClient.create_object

        def lose_answer(*arguments: Any) -> None:
            create_object(*arguments)
            raise UnknownOutcome("no answer")

        monkeypatch.setattr(KubernetesClient, "create_object", lose_answer)
        assert kube.apply(*build_kueue_objects("kubernetes.io/hostname"), form="kueue") == [
            ("set", "topologies/demo-dev"),
            ("set", "resourceflavors/demo-dev"),
        ]

    def test_one_of_somebody_else_stays(self, kube: Kube) -> None:
        kube.core.create_namespaced_config_map(
            "slurm", {"metadata": {"name": "demo"}, "data": {"topology.yaml": "theirs"}}
        )
        mine = OwnedObject(
            "v1", "ConfigMap", "configmaps", "demo", {"data": {"topology.yaml": "a"}}, "slurm"
        )
        assert kube.apply(mine) == [("conflict", "configmaps/demo")]
        assert kube.apply() == []
        assert kube.core.read_namespaced_config_map("demo", "slurm").data == {
            "topology.yaml": "theirs"
        }

    def test_one_without_its_mark_is_left(self, kube: Kube) -> None:
        kube.apply(*build_kueue_objects("kubernetes.io/hostname"), form="kueue")
        client.CustomObjectsApi(kube.api).patch_cluster_custom_object(
            "kueue.x-k8s.io",
            "v1beta2",
            "topologies",
            "demo-dev",
            {"metadata": {"annotations": {"gpuform.dev/topology-of": None}}},
        )
        assert kube.apply(form="kueue") == [
            ("remove", "resourceflavors/demo-dev"),
            ("left", "topologies/demo-dev"),
        ]
        assert kube.apply(form="kueue") == []

    def test_a_namespace_that_is_not_there_is_told(self, kube: Kube) -> None:
        lost = OwnedObject("v1", "ConfigMap", "configmaps", "demo", {"data": {}}, "nowhere")
        with pytest.raises(NoTopology, match="namespace nowhere not found"):
            kube.apply(lost)
        assert kube.apply() == []

    def test_written_objects_are_valid_by_the_definitions_of_kueue(self, kube: Kube) -> None:
        kube.apply(*build_kueue_objects(KEY, "kubernetes.io/hostname"), form="kueue")
        custom = client.CustomObjectsApi(kube.api)
        for plural in ("topologies", "resourceflavors"):
            (written,) = custom.list_cluster_custom_object("kueue.x-k8s.io", "v1beta2", plural)[
                "items"
            ]
            assert find_schema_problems(written) == []

    def test_the_emulator_refuses_by_the_rules_and_messages_of_kueue(self, kube: Kube) -> None:
        host, version = "kubernetes.io/hostname", "kueue.x-k8s.io/v1beta2"

        def find_refusal(*levels: str) -> str:
            with pytest.raises((GpuformError, NoTopology)) as refused:
                kube.apply(*build_kueue_objects(*levels), form="kueue")
            return str(refused.value)

        refusals = [find_refusal(host, KEY), find_refusal(KEY, KEY)]
        kube.apply(*build_kueue_objects(KEY), form="kueue")
        refusals.append(find_refusal(KEY, host))
        for message in list_rule_messages(version, "Topology"):
            assert [message in refusal for refusal in refusals].count(True) == 1, message

    def test_the_emulator_refuses_what_kueue_refuses(self, kube: Kube) -> None:
        with pytest.raises(GpuformError, match="lowest level"):
            kube.apply(*build_kueue_objects("kubernetes.io/hostname", KEY), form="kueue")
        with pytest.raises(GpuformError, match="unique"):
            kube.apply(*build_kueue_objects(KEY, KEY), form="kueue")


class TestUpgradesOfKueue:
    """Kueue 0.14 serves v1beta1, 0.15 to 0.19 both versions, and 0.20 only v1beta2."""

    HOST = "kubernetes.io/hostname"

    def install_kueue(self, kube: Kube, *versions: str) -> None:
        kube.cluster.call_emulator("POST", "/kubernetes/settings", {"kueue_versions": versions})

    def list_topologies(self, kube: Kube, version: str = "v1beta2") -> list[str]:
        topologies = client.CustomObjectsApi(kube.api).list_cluster_custom_object(
            "kueue.x-k8s.io", version, "topologies"
        )
        assert {item["apiVersion"] for item in topologies["items"]} <= {f"kueue.x-k8s.io/{version}"}
        return [item["metadata"]["name"] for item in topologies["items"]]

    def test_objects_of_an_older_version_stay_when_a_newer_one_is_served(self, kube: Kube) -> None:
        self.install_kueue(kube, "v1beta1")
        kube.apply(*build_kueue_objects(self.HOST, version="v1beta1"), form="kueue")
        self.install_kueue(kube, "v1beta2", "v1beta1")
        newer = build_kueue_objects(self.HOST)
        assert [action for action, _ in kube.plan(*newer, form="kueue")] == ["same", "same"]
        assert [action for action, _ in kube.apply(*newer, form="kueue")] == ["same", "same"]
        assert self.list_topologies(kube) == self.list_topologies(kube, "v1beta1") == ["demo-dev"]

    def test_objects_of_a_version_that_is_no_longer_served_are_removed(self, kube: Kube) -> None:
        self.install_kueue(kube, "v1beta1")
        kube.apply(*build_kueue_objects(self.HOST, version="v1beta1"), form="kueue")
        self.install_kueue(kube, "v1beta2")
        with pytest.raises(ApiException) as not_served:
            self.list_topologies(kube, "v1beta1")
        assert not_served.value.status == 404
        removals = [("remove", "resourceflavors/demo-dev"), ("remove", "topologies/demo-dev")]
        assert kube.plan(form="kueue") == removals
        assert kube.apply(form="kueue") == removals
        assert self.list_topologies(kube) == []
        assert kube.create_target("kueue").record.is_empty

    def test_objects_are_removed_by_their_own_version_while_it_is_served(self, kube: Kube) -> None:
        self.install_kueue(kube, "v1beta1")
        kube.apply(*build_kueue_objects(self.HOST, version="v1beta1"), form="kueue")
        self.install_kueue(kube, "v1beta2", "v1beta1")
        assert [action for action, _ in kube.apply(form="kueue")] == ["remove", "remove"]
        assert self.list_topologies(kube) == []

    def test_a_change_that_an_older_version_refuses_names_the_remedy(self, kube: Kube) -> None:
        self.install_kueue(kube, "v1beta2", "v1beta1")
        kube.apply(*build_kueue_objects(self.HOST), form="kueue")
        deeper = build_kueue_objects(KEY, self.HOST)
        with pytest.raises(NoTopology, match=r"topologies/demo-dev cannot .*immutable") as refused:
            kube.apply(*deeper, form="kueue")
        assert "--remove, then --apply" in str(refused.value.hint)
        kube.apply(form="kueue")
        kube.apply(*deeper, form="kueue")
        self.install_kueue(kube, "v1beta2")
        changes = kube.apply(*build_kueue_objects(self.HOST), form="kueue")
        assert [action for action, _ in changes] == ["change", "same"]
        assert self.list_topologies(kube) == ["demo-dev"]

    def test_objects_stay_recorded_while_kueue_is_not_installed(self, kube: Kube) -> None:
        kube.apply(*build_kueue_objects(self.HOST), form="kueue")
        self.install_kueue(kube)
        assert kube.plan(form="kueue") == kube.apply(form="kueue") == []
        self.install_kueue(kube, "v1beta2")
        assert [action for action, _ in kube.apply(form="kueue")] == ["remove", "remove"]
        assert self.list_topologies(kube) == []

    @pytest.mark.parametrize(
        ("served", "expected"),
        [
            (("v1beta1",), "v1beta1"),
            (("v1beta1", "v1beta2"), "v1beta2"),
            (("v1beta2", "v1beta1"), "v1beta2"),
            (("v1beta2",), "v1beta2"),
        ],
    )
    def test_the_newest_known_version_of_each_kueue_is_used(
        self, kube: Kube, served: tuple[str, ...], expected: str
    ) -> None:
        self.install_kueue(kube, *served)
        version = find_served_version(kube.client, "kueue.x-k8s.io", "v1beta2", "Kueue")
        assert version == f"kueue.x-k8s.io/{expected}"


def test_the_version_that_a_cluster_serves_is_taken(kube: Kube) -> None:
    version = find_served_version(kube.client, "kueue.x-k8s.io", "v1beta2", "Kueue")
    assert version == "kueue.x-k8s.io/v1beta2"
    older = find_served_version(kube.client, "kueue.x-k8s.io", "v9", "Kueue")
    assert older == "kueue.x-k8s.io/v1beta2"
    with pytest.raises(NoTopology, match="Volcano is not installed in this cluster"):
        find_served_version(kube.client, "volcano.sh", "v1", "Volcano")
