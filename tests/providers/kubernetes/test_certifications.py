"""Test certifications by the emulated Cluster Readiness Engine, through the lifecycle."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.emulator.server import environment
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents, Verdicts
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.client import get_client

URN = "urn:pulumi:dev::project::type::fabric"
FOLDER = "/apis/nvcre.nvidia.com/v1alpha1/namespaces/default/certifications"
ALL_REDUCE = {"domain": "communication", "variant": "nccl-all-reduce"}
ALONE = {**ALL_REDUCE, "options": {"testScale": "intra-node"}, "floor": 300, "tolerance": "10%"}


class World:
    """One cluster, and the engine's calls about one certification of it."""

    def __init__(self, cluster: Any, tmp_path: Path) -> None:
        self.cluster = cluster
        self.lifecycle = CertificationLifecycle()
        self.client: KubernetesClient = cluster.client
        self._records = FolderRecords(tmp_path / "records")

    def call(self, urn: str = URN) -> ProviderContext:
        call = ProviderContext(urn=urn, clock=get_clock(environment(self.cluster.server.url)))
        call.intents = Intents(self._records)
        return call

    def declared(self, *categories: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        nodes = len(self.nodes())
        named = {"cluster_id": self.cluster.id, "num_gpus": 8 * nodes, "name": "fabric"}
        return {**named, "categories": [*(categories or (ALONE,))], **fields}

    def nodes(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.client.list_objects("/api/v1/nodes")]

    def create(self, declared: Mapping[str, Any], **host: Any) -> Any:
        call = self.call()
        for name, value in host.items():
            setattr(call, name, value)
        with use_context(call):
            return self.lifecycle.create(dict(declared))

    def update(self, made: Any, declared: Mapping[str, Any]) -> Any:
        with use_context(self.call()):
            return self.lifecycle.update(made.id, made.outs, dict(declared))

    def read(self, made: Any) -> Any:
        with use_context(self.call()):
            return self.lifecycle.read(made.id, made.outs)

    def set(self, **settings: Any) -> None:
        self.cluster.control("POST", "/kubernetes/settings", settings)

    def certification(self) -> Any:
        return self.client.get_object(FOLDER + build_path("fabric"))

    def verdicts(self) -> list[Any]:
        return Verdicts(self._records).list_for_cluster(self.cluster.id)


@pytest.fixture
def world(cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield World(cluster, tmp_path)
    get_client(Settings()).close()


def proven(outs: Mapping[str, Any]) -> list[str]:
    return [each["node"] for each in outs["evidence"]]


def test_certified_nodes_have_measured_values_driver_and_system(world: World) -> None:
    made = world.create(world.declared())
    assert made.outs["ready"] is True
    assert proven(made.outs) == world.nodes()
    assert {result["measured"] for result in made.outs["results"]} == {487.87}
    evidence = made.outs["evidence"][0]
    assert (evidence["driver"], evidence["image"]) == ("560", "ubuntu-22.04, 6.8.0-generic")
    assert evidence["machine"] != ""
    assert evidence["at"] == made.outs["certified_at"]
    spec = world.certification()["spec"]
    assert spec["target"] == {"nodeNames": world.nodes()}
    assert spec["categories"][0]["options"]["thresholds"] == {"busBandwidthGBps": "value >= 270"}


def test_a_slow_node_is_named_and_the_others_stay_certified(world: World) -> None:
    slow, *others = world.nodes()
    world.set(slow_nodes={slow: 250})
    made = world.create(world.declared())
    assert made.outs["ready"] is False
    told = f"node {slow}: communication/nccl-all-reduce: 250 GB/s is below the floor of 300 GB/s"
    assert told in made.outs["not_ready_reason"]
    assert proven(made.outs) == others
    [verdict] = world.verdicts()
    assert [each["node"] for each in verdict.failures] == [slow]

    world.set(slow_nodes={})
    mended = world.update(made, world.declared())
    assert mended.outs["ready"] is True
    assert [each["nodes"] for each in mended.outs["results"]] == [[slow]]
    assert proven(mended.outs) == world.nodes()
    assert world.verdicts() == []


def test_a_slow_group_blames_no_single_node(world: World) -> None:
    world.set(slow_nodes={world.nodes()[0]: 250})
    made = world.create(world.declared({**ALL_REDUCE, "floor": 300}))
    assert "measured over" in made.outs["not_ready_reason"]
    assert (proven(made.outs), world.verdicts()) == ([], [])


def test_a_search_finds_the_node_in_a_group(world: World) -> None:
    slow, *others = world.nodes()
    world.set(slow_nodes={slow: 250})
    category = {**ALONE, "options": {"testScale": "diagnose"}}
    made = world.create(world.declared(category))
    assert [failure["node"] for failure in made.outs["failures"]] == [slow]
    assert proven(made.outs) == others


def test_a_broken_node_is_named_and_the_rest_of_its_group_is_not_tested(world: World) -> None:
    broken, *others = world.nodes()
    world.set(broken_nodes={broken: "XID 79: the GPU has fallen off the bus"})
    made = world.create(world.declared({**ALL_REDUCE, "floor": 300}))
    assert f"node {broken}: communication/nccl-all-reduce: XID 79" in made.outs["not_ready_reason"]
    assert "not tested" in made.outs["not_ready_reason"]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [True]
    assert proven(made.outs) == []
    assert len(others) > 0


def test_a_cordoned_node_is_not_certified(world: World) -> None:
    left_out = world.nodes()[0]
    world.client.patch_object(
        "/api/v1/nodes" + build_path(left_out), {"spec": {"unschedulable": True}}
    )
    made = world.create(world.declared())
    assert f"node {left_out}: not tested" in made.outs["not_ready_reason"]
    assert left_out not in proven(made.outs)


def test_both_published_groups_work_and_none_is_an_error_with_a_remedy(world: World) -> None:
    world.set(group="cre.nvidia.com")
    made = world.create(world.declared())
    assert (made.outs["ready"], made.outs["by"]) == (True, "cre.nvidia.com/v1alpha1")
    world.set(group="")
    with pytest.raises(GpuformError, match="no Cluster Readiness Engine") as raised:
        world.create(world.declared(name="other"))
    assert "nvcrectl setup init" in str(raised.value.hint)


def test_a_certification_of_other_tests_drivers_or_machines_is_stale(world: World) -> None:
    made = world.create(world.declared())
    node = world.nodes()[0]
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    world.client.patch_object("/api/v1/nodes" + build_path(node), {"metadata": {"labels": label}})
    seen = world.read(made)
    told = [(each["node"], each["because"]) for each in seen.outs["gaps"]]
    assert told == [(node, "driver 560 -> 570.1")]
    diff = world.lifecycle.diff(made.id, seen.outs, world.declared())
    assert diff.changes
    [change] = [
        each
        for each in world.lifecycle.find_planned_changes(seen.outs, world.declared())
        if each.path == "evidence"
    ]
    assert change.because == f"certify again: 1 node with driver 560 -> 570.1 ({node})"


def test_a_test_of_somebody_else_is_never_taken(world: World) -> None:
    spec = {"target": {"nodeNames": world.nodes()}, "categories": [ALL_REDUCE]}
    metadata = {"name": "fabric", "namespace": "default"}
    world.client.create_object(
        FOLDER, {"kind": "Certification", "metadata": metadata, "spec": spec}
    )
    with pytest.raises(GpuformError, match="did not create it"):
        world.create(world.declared())
    assert world.certification()["spec"] == spec


def test_a_second_run_tests_again_after_a_failure(world: World) -> None:
    """The second `up` after a failure tests once more, instead of reading the old result."""
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 250})
    made = world.create(world.declared())
    again = world.update(made, world.declared())
    assert made.outs["run"] != again.outs["run"]
    assert again.outs["ready"] is False


@pytest.mark.parametrize("lie", ["no figure", "NaN", "no list", "broken list", "no status"])
def test_a_node_whose_result_is_missing_does_not_pass(world: World, lie: str) -> None:
    """The engine says Succeeded; its figures or lists say nothing."""
    declared = world.declared()
    made = world.create(declared)
    folder = FOLDER.rpartition("/")[0]
    if lie in {"no figure", "NaN"}:
        figure = {"sizeBytes": 1, "busBW": "NaN" if lie == "NaN" else "", "algBW": "", "samples": 1}
        for each in world.client.list_objects(f"{folder}/bandwidthmeasurements"):
            path = f"{folder}/bandwidthmeasurements" + build_path(each["metadata"]["name"])
            changed = {**each["status"], "results": [figure]}
            world.client.patch_object(f"{path}/status", {"status": changed})
    elif lie == "no status":
        status = {**world.certification()["status"], "categoryStatuses": []}
        world.client.patch_object(FOLDER + build_path("fabric") + "/status", {"status": status})
    else:
        maps = "/api/v1/namespaces/default/configmaps"
        for each in world.client.list_objects(maps):
            name = each["metadata"]["name"]
            if name.startswith("group-nodes"):
                path = maps + build_path(name)
                if lie == "no list":
                    world.client.delete_object(path, {})
                else:
                    data = {"group-nodes.json.gz": base64.b64encode(b"no gzip").decode()}
                    world.client.patch_object(path, {"binaryData": data})
    lost = {**made.outs, "evidence": [], "run": None}  # as after a kill before the state was kept
    made.outs.clear()
    made.outs.update(lost)
    again = world.update(made, declared)
    assert again.outs["ready"] is False
    assert proven(again.outs) == []


def test_a_packed_list_that_is_too_large_is_refused(world: World) -> None:
    made = world.create(world.declared())
    huge = base64.b64encode(gzip.compress(json.dumps("x" * 20_000_000).encode())).decode()
    maps = "/api/v1/namespaces/default/configmaps"
    for each in world.client.list_objects(maps):
        name = each["metadata"]["name"]
        if name.startswith("group-nodes"):
            world.client.patch_object(
                maps + build_path(name), {"binaryData": {"group-nodes.json.gz": huge}}
            )
    made.outs.update(evidence=[], run=None)
    again = world.update(made, world.declared())
    assert "larger than" in again.outs["not_ready_reason"]


def test_deleting_a_certification_removes_its_test_and_failure_records(world: World) -> None:
    world.set(slow_nodes={world.nodes()[0]: 250})
    made = world.create(world.declared())
    with use_context(world.call()):
        world.lifecycle.delete(made.id, made.outs)
    assert world.client.list_objects(FOLDER) == ()
    assert world.verdicts() == []


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("at_request", range(2, 12))
def test_a_killed_run_is_resumed_and_never_doubled(
    world: World, monkeypatch: pytest.MonkeyPatch, at_request: int
) -> None:
    """Killed before its n-th request: the next run finds what there is, and one test remains."""
    declared, sent = world.declared(), []
    send = httpx.Client.send

    def counted(client: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        if "/api/" in request.url.path or "/apis/" in request.url.path:
            sent.append(request.method)
            if len(sent) == at_request:
                raise Killed
        return send(client, request, **more)

    monkeypatch.setattr(httpx.Client, "send", counted)
    with pytest.raises(Killed):
        world.create(declared)
    monkeypatch.undo()
    for name, value in environment(world.cluster.server.url).items():
        monkeypatch.setenv(name, value)
    began = [each["metadata"]["uid"] for each in world.client.list_objects(FOLDER)]
    made = world.create(declared)
    assert made.outs["ready"] is True
    ended = [each["metadata"]["uid"] for each in world.client.list_objects(FOLDER)]
    assert len(ended) == 1
    assert not began or began == ended
    assert "DELETE" not in [each["method"] for each in world.cluster.requests()]


def test_nodes_whose_gpus_are_at_work_are_waited_for(world: World) -> None:
    """The job ends by itself; the test begins then."""
    node = world.nodes()[0]
    world.cluster.add_pod("training", node=node, gpus=8, runs_for=3000)
    made = world.create(world.declared())
    assert made.outs["ready"] is True
    ended = world.cluster.control("GET", f"/kubernetes/{world.cluster.id}/ended")
    assert [each["how"] for each in ended] == ["succeeded"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_wait_over_the_limit_ends_and_is_resumed_later(world: World) -> None:
    node = world.nodes()[0]
    world.cluster.add_pod("training", node=node, gpus=8, runs_for=7200)
    made = world.create(world.declared(wait_minutes=30))
    assert made.outs["ready"] is False
    assert "not done after" in made.outs["not_ready_reason"]
    run = world.certification()["metadata"]["uid"]
    again = world.update(made, world.declared(wait_minutes=300))
    assert (again.outs["ready"], again.outs["run"]) == (True, run)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_host_that_cannot_store_unready_resources_gets_an_error(world: World) -> None:
    """Pulumi's own dynamic host: nothing that depends on the proof is made, nothing is lost."""
    world.set(slow_nodes={world.nodes()[0]: 250})
    for _ in range(2):  # and the second time it is tested anew
        with pytest.raises(GpuformError, match="250 GB/s is below the floor of 300 GB/s"):
            world.create(world.declared(), can_store_unready=False)
        assert world.client.list_objects(FOLDER) == ()
    assert len(world.verdicts()) == 1
    world.set(slow_nodes={})
    assert world.create(world.declared(), can_store_unready=False).outs["ready"] is True


def test_an_import_takes_the_id_and_certifies_nothing(world: World) -> None:
    id_ = f"{world.cluster.id}/default/fabric"
    with use_context(world.call()):
        read = world.lifecycle.read(id_, {})
        assert world.lifecycle.read("fabric", {}).id == ""
    assert read.inputs == {"cluster_id": world.cluster.id, "name": "fabric"}
    assert (read.outs["ready"], read.outs["evidence"]) == (False, [])
