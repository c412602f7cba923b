"""Test certifications by the emulated Cluster Readiness Engine, through the lifecycle."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.definitions.schemas import find_schema_problems
from support.platforms.provider_contexts import change_context

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


class CertifiedCluster:
    """A cluster, and the lifecycle's operations on one certification of it."""

    def __init__(self, cluster: Any, tmp_path: Path) -> None:
        self.cluster = cluster
        self.lifecycle = CertificationLifecycle()
        self.client: KubernetesClient = cluster.client
        self._records = FolderRecords(tmp_path / "records")

    def create_context(self, urn: str = URN) -> ProviderContext:
        call = ProviderContext(urn=urn, clock=get_clock(environment(self.cluster.server.url)))
        change_context(call, intents=Intents(self._records))
        return call

    def build_inputs(self, *categories: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        nodes = len(self.list_nodes())
        named = {"cluster_id": self.cluster.id, "num_gpus": 8 * nodes, "name": "fabric"}
        return {**named, "categories": [*(categories or (ALONE,))], **fields}

    def list_nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.client.list_objects("/api/v1/nodes")]

    def create(self, declared: Mapping[str, Any], **host: Any) -> Any:
        call = self.create_context()
        change_context(call, **host)
        with use_context(call):
            return self.lifecycle.create(dict(declared))

    def update(self, made: Any, declared: Mapping[str, Any]) -> Any:
        with use_context(self.create_context()):
            return self.lifecycle.update(made.id, made.outs, dict(declared))

    def read(self, made: Any) -> Any:
        with use_context(self.create_context()):
            return self.lifecycle.read(made.id, made.outs)

    def change_settings(self, **settings: Any) -> None:
        self.cluster.send_control("POST", "/kubernetes/settings", settings)

    def get_certification(self) -> Any:
        return self.client.get_object(FOLDER + build_path("fabric"))

    def list_verdicts(self) -> list[Any]:
        return Verdicts(self._records).list_for(self.cluster.id)


@pytest.fixture
def certified_cluster(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[CertifiedCluster]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield CertifiedCluster(cluster, tmp_path)
    get_client(Settings()).close()


def list_certified_nodes(outs: Mapping[str, Any]) -> list[str]:
    return [evidence["node"] for evidence in outs["evidence"]]


def test_certified_nodes_have_measured_values_driver_and_system(
    certified_cluster: CertifiedCluster,
) -> None:
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert made.outs["ready"] is True
    assert list_certified_nodes(made.outs) == certified_cluster.list_nodes()
    assert {result["measured"] for result in made.outs["results"]} == {487.87}
    evidence = made.outs["evidence"][0]
    assert (evidence["driver"], evidence["image"]) == ("560", "ubuntu-22.04, 6.8.0-generic")
    assert evidence["machine"] != ""
    assert evidence["at"] == made.outs["certified_at"]
    spec = certified_cluster.get_certification()["spec"]
    assert spec["target"] == {"nodeNames": certified_cluster.list_nodes()}
    assert spec["categories"][0]["options"]["thresholds"] == {"busBandwidthGBps": "value >= 270"}


def test_a_slow_node_is_named_and_the_others_stay_certified(
    certified_cluster: CertifiedCluster,
) -> None:
    slow, *others = certified_cluster.list_nodes()
    certified_cluster.change_settings(slow_nodes={slow: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert made.outs["ready"] is False
    message = f"node {slow}: communication/nccl-all-reduce: 250 GB/s is below the floor of 300 GB/s"
    assert message in made.outs["not_ready_reason"]
    assert list_certified_nodes(made.outs) == others
    [verdict] = certified_cluster.list_verdicts()
    assert [failure["node"] for failure in verdict.failures] == [slow]

    certified_cluster.change_settings(slow_nodes={})
    repaired = certified_cluster.update(made, certified_cluster.build_inputs())
    assert repaired.outs["ready"] is True
    assert [result["nodes"] for result in repaired.outs["results"]] == [[slow]]
    assert list_certified_nodes(repaired.outs) == certified_cluster.list_nodes()
    assert certified_cluster.list_verdicts() == []


def test_a_slow_group_blames_no_single_node(certified_cluster: CertifiedCluster) -> None:
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    made = certified_cluster.create(certified_cluster.build_inputs({**ALL_REDUCE, "floor": 300}))
    assert "measured over" in made.outs["not_ready_reason"]
    assert (list_certified_nodes(made.outs), certified_cluster.list_verdicts()) == ([], [])


def test_a_search_finds_the_node_in_a_group(certified_cluster: CertifiedCluster) -> None:
    slow, *others = certified_cluster.list_nodes()
    certified_cluster.change_settings(slow_nodes={slow: 250})
    category = {**ALONE, "options": {"testScale": "diagnose"}}
    made = certified_cluster.create(certified_cluster.build_inputs(category))
    assert [failure["node"] for failure in made.outs["failures"]] == [slow]
    assert list_certified_nodes(made.outs) == others


def test_a_broken_node_is_named_and_the_rest_of_its_group_is_not_tested(
    certified_cluster: CertifiedCluster,
) -> None:
    broken, *others = certified_cluster.list_nodes()
    certified_cluster.change_settings(
        broken_nodes={broken: "XID 79: the GPU has fallen off the bus"}
    )
    made = certified_cluster.create(certified_cluster.build_inputs({**ALL_REDUCE, "floor": 300}))
    assert f"node {broken}: communication/nccl-all-reduce: XID 79" in made.outs["not_ready_reason"]
    assert "not tested" in made.outs["not_ready_reason"]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [True]
    assert list_certified_nodes(made.outs) == []
    assert len(others) > 0


NETWORK_PROBLEM = (
    "2 NetworkAttachmentDefinitions for nvidia.com/mlnxnics differ: default/rdma-a, default/rdma-b"
)
DIAGNOSTICS = {"domain": "diagnostics", "variant": "dcgm-level3"}


def test_an_ambiguous_network_fails_the_certification_with_its_reason(
    certified_cluster: CertifiedCluster,
) -> None:
    """The engine (0.10 and newer) fails before it has created any workflow."""
    certified_cluster.change_settings(network_problem=NETWORK_PROBLEM)
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert certified_cluster.get_certification()["status"]["categoryStatuses"] == []
    assert (made.outs["ready"], made.outs["evidence"]) == (False, [])
    assert "not tested by communication/nccl-all-reduce" in made.outs["not_ready_reason"]
    assert made.outs["not_ready_reason"].endswith(
        f"; certification fabric ended before all tests had run: {NETWORK_PROBLEM} "
        "(SecondaryNetworkDetection)"
    )
    assert certified_cluster.list_verdicts() == []

    certified_cluster.change_settings(network_problem="")
    repaired = certified_cluster.update(made, certified_cluster.build_inputs())
    assert repaired.outs["ready"] is True
    assert list_certified_nodes(repaired.outs) == certified_cluster.list_nodes()


def test_a_failed_node_and_the_reason_of_the_tests_that_did_not_run_are_reported(
    certified_cluster: CertifiedCluster,
) -> None:
    broken = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(
        network_problem=NETWORK_PROBLEM, broken_nodes={broken: "XID 79"}
    )
    made = certified_cluster.create(
        certified_cluster.build_inputs(
            {**DIAGNOSTICS, "options": {"testScale": "intra-node"}}, ALL_REDUCE
        )
    )
    statuses = certified_cluster.get_certification()["status"]["categoryStatuses"]
    assert [status["status"] for status in statuses] == ["Failed", "Pending"]
    reason = made.outs["not_ready_reason"]
    assert f"node {broken}: diagnostics/dcgm-level3: XID 79" in reason
    assert f"ended before all tests had run: {NETWORK_PROBLEM}" in reason


def test_a_certification_whose_tests_have_all_run_ended_in_time(
    certified_cluster: CertifiedCluster,
) -> None:
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    made = certified_cluster.create(certified_cluster.build_inputs({**ALL_REDUCE, "floor": 300}))
    assert "before all tests" not in made.outs["not_ready_reason"]


ALL_OPTIONS = {
    "testScale": "intra-node",
    "nodesPerJob": 1,
    "nicResourceName": "rdma/ib",
    "mlnxPerNode": 1,
    "timeoutPerJob": "30m",
    "workloadMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "burn-in"}},
}


def test_certifications_and_results_are_valid_by_the_definitions_of_the_engine(
    certified_cluster: CertifiedCluster,
) -> None:
    training = {
        "domain": "training",
        "variant": "nemotron5-8b",
        "metric": "goodputRatio",
        "floor": 0.5,
    }
    made = certified_cluster.create(
        certified_cluster.build_inputs({**ALONE, "options": ALL_OPTIONS}, training)
    )
    assert made.outs["ready"] is True
    written = [certified_cluster.get_certification()]
    for plural in ("bandwidthmeasurements", "goodputmeasurements"):
        folder = FOLDER.replace("certifications", plural)
        measurements = certified_cluster.client.list_objects(folder)
        assert measurements
        kind = "BandwidthMeasurement" if plural.startswith("band") else "GoodputMeasurement"
        written += [
            {**measurement, "apiVersion": "nvcre.nvidia.com/v1alpha1", "kind": kind}
            for measurement in measurements
        ]
    assert [problem for item in written for problem in find_schema_problems(item)] == []
    assert find_schema_problems({**written[0], "spec": {"target": {}}}) != []


def test_a_cordoned_node_is_not_certified(certified_cluster: CertifiedCluster) -> None:
    cordoned_node = certified_cluster.list_nodes()[0]
    certified_cluster.client.patch_object(
        "/api/v1/nodes" + build_path(cordoned_node), {"spec": {"unschedulable": True}}
    )
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert f"node {cordoned_node}: not tested" in made.outs["not_ready_reason"]
    assert cordoned_node not in list_certified_nodes(made.outs)


def test_both_published_groups_work_and_none_is_an_error_with_a_remedy(
    certified_cluster: CertifiedCluster,
) -> None:
    certified_cluster.change_settings(group="cre.nvidia.com")
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert (made.outs["ready"], made.outs["by"]) == (True, "cre.nvidia.com/v1alpha1")
    certified_cluster.change_settings(group="")
    with pytest.raises(GpuformError, match="no Cluster Readiness Engine") as raised:
        certified_cluster.create(certified_cluster.build_inputs(name="other"))
    assert "nvcrectl setup init" in str(raised.value.hint)


def test_a_certification_of_other_tests_drivers_or_machines_is_stale(
    certified_cluster: CertifiedCluster,
) -> None:
    made = certified_cluster.create(certified_cluster.build_inputs())
    node = certified_cluster.list_nodes()[0]
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    certified_cluster.client.patch_object(
        "/api/v1/nodes" + build_path(node), {"metadata": {"labels": label}}
    )
    refreshed = certified_cluster.read(made)
    gaps = [(gap["node"], gap["because"]) for gap in refreshed.outs["gaps"]]
    assert gaps == [(node, "driver 560 -> 570.1")]
    diff = certified_cluster.lifecycle.diff(
        made.id, refreshed.outs, certified_cluster.build_inputs()
    )
    assert diff.changes
    [change] = [
        planned_change
        for planned_change in certified_cluster.lifecycle.hooks.find_planned_changes(
            refreshed.outs, certified_cluster.build_inputs()
        )
        if planned_change.path == "evidence"
    ]
    assert change.because == f"certify again: 1 node with driver 560 -> 570.1 ({node})"


def test_a_test_of_somebody_else_is_never_adopted(certified_cluster: CertifiedCluster) -> None:
    spec = {"target": {"nodeNames": certified_cluster.list_nodes()}, "categories": [ALL_REDUCE]}
    metadata = {"name": "fabric", "namespace": "default"}
    certified_cluster.client.create_object(
        FOLDER, {"kind": "Certification", "metadata": metadata, "spec": spec}
    )
    with pytest.raises(GpuformError, match="did not create it"):
        certified_cluster.create(certified_cluster.build_inputs())
    assert certified_cluster.get_certification()["spec"] == spec


def test_a_second_run_tests_again_after_a_failure(certified_cluster: CertifiedCluster) -> None:
    """The second `up` tests again instead of reading the old result."""
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    again = certified_cluster.update(made, certified_cluster.build_inputs())
    assert made.outs["run"] != again.outs["run"]
    assert again.outs["ready"] is False


@pytest.mark.parametrize("fault", ["no figure", "NaN", "no list", "broken list", "no status"])
def test_a_node_whose_result_is_missing_does_not_pass(
    certified_cluster: CertifiedCluster, fault: str
) -> None:
    """The engine reports Succeeded, but neither figures nor lists have a result of the node."""
    declared = certified_cluster.build_inputs()
    made = certified_cluster.create(declared)
    folder = FOLDER.rpartition("/")[0]
    if fault in {"no figure", "NaN"}:
        figure = {
            "sizeBytes": 1,
            "busBW": "NaN" if fault == "NaN" else "",
            "algBW": "",
            "samples": 1,
        }
        for measurement in certified_cluster.client.list_objects(f"{folder}/bandwidthmeasurements"):
            path = f"{folder}/bandwidthmeasurements" + build_path(measurement["metadata"]["name"])
            changed = {**measurement["status"], "results": [figure]}
            certified_cluster.client.patch_object(f"{path}/status", {"status": changed})
    elif fault == "no status":
        status = {**certified_cluster.get_certification()["status"], "categoryStatuses": []}
        certified_cluster.client.patch_object(
            FOLDER + build_path("fabric") + "/status", {"status": status}
        )
    else:
        maps = "/api/v1/namespaces/default/configmaps"
        for config_map in certified_cluster.client.list_objects(maps):
            name = config_map["metadata"]["name"]
            if name.startswith("group-nodes"):
                path = maps + build_path(name)
                if fault == "no list":
                    certified_cluster.client.delete_object(path, {})
                else:
                    data = {"group-nodes.json.gz": base64.b64encode(b"no gzip").decode()}
                    certified_cluster.client.patch_object(path, {"binaryData": data})
    lost = {**made.outs, "evidence": [], "run": None}  # as after a kill before the state was kept
    made.outs.clear()
    made.outs.update(lost)
    again = certified_cluster.update(made, declared)
    assert again.outs["ready"] is False
    assert list_certified_nodes(again.outs) == []


def test_a_packed_list_that_is_too_large_is_refused(certified_cluster: CertifiedCluster) -> None:
    made = certified_cluster.create(certified_cluster.build_inputs())
    huge = base64.b64encode(gzip.compress(json.dumps("x" * 20_000_000).encode())).decode()
    maps = "/api/v1/namespaces/default/configmaps"
    for config_map in certified_cluster.client.list_objects(maps):
        name = config_map["metadata"]["name"]
        if name.startswith("group-nodes"):
            certified_cluster.client.patch_object(
                maps + build_path(name), {"binaryData": {"group-nodes.json.gz": huge}}
            )
    made.outs.update(evidence=[], run=None)
    again = certified_cluster.update(made, certified_cluster.build_inputs())
    assert "larger than" in again.outs["not_ready_reason"]


def test_deleting_a_certification_removes_its_test_and_failure_records(
    certified_cluster: CertifiedCluster,
) -> None:
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    with use_context(certified_cluster.create_context()):
        certified_cluster.lifecycle.delete(made.id, made.outs)
    assert certified_cluster.client.list_objects(FOLDER) == ()
    assert certified_cluster.list_verdicts() == []


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("at_request", range(2, 12))
def test_a_killed_run_is_resumed_and_never_doubled(
    certified_cluster: CertifiedCluster, monkeypatch: pytest.MonkeyPatch, at_request: int
) -> None:
    """Kill the run before its n-th request: the next run continues, and one test remains."""
    declared, sent = certified_cluster.build_inputs(), []
    send = httpx.Client.send

    def count_request(client: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        if "/api/" in request.url.path or "/apis/" in request.url.path:
            sent.append(request.method)
            if len(sent) == at_request:
                raise Killed
        return send(client, request, **more)

    monkeypatch.setattr(httpx.Client, "send", count_request)
    with pytest.raises(Killed):
        certified_cluster.create(declared)
    monkeypatch.undo()
    for name, value in environment(certified_cluster.cluster.server.url).items():
        monkeypatch.setenv(name, value)
    began = [
        certification["metadata"]["uid"]
        for certification in certified_cluster.client.list_objects(FOLDER)
    ]
    made = certified_cluster.create(declared)
    assert made.outs["ready"] is True
    ended = [
        certification["metadata"]["uid"]
        for certification in certified_cluster.client.list_objects(FOLDER)
    ]
    assert len(ended) == 1
    assert not began or began == ended
    assert "DELETE" not in [
        request["method"] for request in certified_cluster.cluster.list_requests()
    ]


def test_nodes_whose_gpus_are_at_work_are_waited_for(certified_cluster: CertifiedCluster) -> None:
    """The test begins when the job has ended by itself."""
    node = certified_cluster.list_nodes()[0]
    certified_cluster.cluster.add_pod("training", node=node, gpus=8, runs_for=3000)
    made = certified_cluster.create(certified_cluster.build_inputs())
    assert made.outs["ready"] is True
    ended = certified_cluster.cluster.send_control(
        "GET", f"/kubernetes/{certified_cluster.cluster.id}/ended"
    )
    assert [ended_job["how"] for ended_job in ended] == ["succeeded"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_wait_over_the_limit_ends_and_is_resumed_later(
    certified_cluster: CertifiedCluster,
) -> None:
    node = certified_cluster.list_nodes()[0]
    certified_cluster.cluster.add_pod("training", node=node, gpus=8, runs_for=7200)
    made = certified_cluster.create(certified_cluster.build_inputs(wait_minutes=30))
    assert made.outs["ready"] is False
    assert "not done after" in made.outs["not_ready_reason"]
    run = certified_cluster.get_certification()["metadata"]["uid"]
    again = certified_cluster.update(made, certified_cluster.build_inputs(wait_minutes=300))
    assert (again.outs["ready"], again.outs["run"]) == (True, run)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_host_that_cannot_store_unready_resources_gets_an_error(
    certified_cluster: CertifiedCluster,
) -> None:
    """Pulumi's dynamic host creates no dependent of the certification, and loses nothing."""
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    for _ in range(2):  # and the second time it is tested anew
        with pytest.raises(GpuformError, match="250 GB/s is below the floor of 300 GB/s"):
            certified_cluster.create(certified_cluster.build_inputs(), can_store_unready=False)
        assert certified_cluster.client.list_objects(FOLDER) == ()
    assert len(certified_cluster.list_verdicts()) == 1
    certified_cluster.change_settings(slow_nodes={})
    assert (
        certified_cluster.create(certified_cluster.build_inputs(), can_store_unready=False).outs[
            "ready"
        ]
        is True
    )


def test_an_import_takes_the_id_and_certifies_nothing(certified_cluster: CertifiedCluster) -> None:
    id_ = f"{certified_cluster.cluster.id}/default/fabric"
    with use_context(certified_cluster.create_context()):
        read = certified_cluster.lifecycle.read(id_, {})
        assert certified_cluster.lifecycle.read("fabric", {}).id == ""
    assert read.inputs == {"cluster_id": certified_cluster.cluster.id, "name": "fabric"}
    assert (read.outs["ready"], read.outs["evidence"]) == (False, [])
