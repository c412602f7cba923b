"""Test that contradictory or incomplete results of the engine certify no node."""

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.http import build_path
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from tests.providers.kubernetes.test_certifications import (
    ALL_REDUCE,
    FOLDER,
    CertifiedCluster,
    list_certified_nodes,
)

ROOT = FOLDER.rpartition("/")[0]
MAPS = "/api/v1/namespaces/default/configmaps"
SIZE = 17_179_869_184
SEARCH = {**ALL_REDUCE, "options": {"testScale": "diagnose"}, "floor": 300}


class _InterruptingClock:
    """A clock that calls `happen` at its first wait, before the results are read."""

    is_platforms = True

    def __init__(self, clock: Clock, happen: Callable[[], None]) -> None:
        self._clock, self._interrupt = clock, happen
        self._was_interrupted = False

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self._clock.sleep(seconds, cancelled)
        if seconds and not self._was_interrupted:
            self._was_interrupted = True
            self._interrupt()


class ContradictoryCluster(CertifiedCluster):
    """A cluster whose engine's results are changed after its end and before gpuform reads them."""

    def create_with_fault(self, lie: Callable[[], None], *categories: Mapping[str, Any]) -> Any:
        with use_context(self._create_interrupted_context(lie)):
            return self.lifecycle.create(self.build_inputs(*categories))

    def update_with_fault(self, lie: Callable[[], None], made: Any) -> Any:
        with use_context(self._create_interrupted_context(lie)):
            return self.lifecycle.update(made.id, made.outs, self.build_inputs())

    def _create_interrupted_context(self, lie: Callable[[], None]) -> ProviderContext:
        def interrupt() -> None:
            self.cluster.server.clock.advance(700)
            assert self.get_certification()["status"]["conditions"][-1]["type"] != "InProgress"
            lie()

        call = self.create_context()
        change_context(call, clock=_InterruptingClock(call.clock, interrupt))
        return call

    def change_statuses(self, plural: str, status: Callable[[dict[str, Any]], object]) -> None:
        """Change the status of every object of the engine's kind."""
        for stored_object in self.client.list_objects(f"{ROOT}/{plural}"):
            path = f"{ROOT}/{plural}{build_path(stored_object['metadata']['name'])}/status"
            changed = json.loads(json.dumps(stored_object["status"]))
            status(changed)
            self.client.patch_object(path, {"status": changed})

    def set_figures(self, figure_text: object) -> None:
        figure = {"sizeBytes": SIZE, "busBW": figure_text, "algBW": figure_text, "samples": 65}
        self.change_statuses("bandwidthmeasurements", lambda s: s.update(results=[figure]))

    def set_conditions(self, plural: str, *kinds: str) -> None:
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": ""} for kind in kinds
        ]
        self.change_statuses(plural, lambda status: status.update(conditions=conditions))

    def set_categories(self, **fields: Any) -> None:
        def change(status: dict[str, Any]) -> None:
            for category_status in status["categoryStatuses"]:
                category_status.update(fields)

        self.change_statuses("certifications", change)

    def set_first_group(self, **fields: Any) -> None:
        self.change_statuses("workflows", lambda s: s["orchestration"]["groups"][0].update(fields))

    def write_failed_nodes(self, packed: bytes) -> None:
        data = {"failed-nodes.json.gz": base64.b64encode(packed).decode()}
        self.client.create_object(
            MAPS, {"metadata": {"name": "failed-nodes-x"}, "binaryData": data}
        )
        self.set_categories(failedNodesRef={"kind": "ConfigMap", "name": "failed-nodes-x"})

    def write_succeeded_nodes(self, *names: str) -> None:
        packed = base64.b64encode(gzip.compress(",".join(names).encode())).decode()
        data = {"succeeded-nodes.csv.gz": packed}
        self.client.create_object(MAPS, {"metadata": {"name": "succeeded-x"}, "binaryData": data})
        self.set_categories(succeededNodesRef={"kind": "ConfigMap", "name": "succeeded-x"})

    def write_groups(self, packed: bytes) -> None:
        for config_map in self.client.list_objects(MAPS):
            name = config_map["metadata"]["name"]
            if name.startswith("group-nodes"):
                data = {"group-nodes.json.gz": base64.b64encode(packed).decode()}
                self.client.patch_object(MAPS + build_path(name), {"binaryData": data})

    def pack_groups(self) -> bytes:
        groups = {f"group-{number}": [name] for number, name in enumerate(self.list_nodes())}
        return gzip.compress(json.dumps(groups).encode())


@pytest.fixture
def certified_cluster(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ContradictoryCluster]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield ContradictoryCluster(cluster, tmp_path)
    get_client(Settings()).close()


def pack_failed_nodes(*entries: Mapping[str, str]) -> bytes:
    return gzip.compress(json.dumps(entries).encode())


def list_faulty_nodes(certified_cluster: CertifiedCluster) -> list[str]:
    """Return the failed nodes of all verdicts."""
    return [
        failure["node"]
        for verdict in certified_cluster.list_verdicts()
        for failure in verdict.failures
    ]


CONTRADICTIONS: dict[str, Callable[[ContradictoryCluster], None]] = {
    "Failed beside Succeeded": lambda w: w.set_conditions("certifications", "Succeeded", "Failed"),
    "ValidationFailed": lambda w: w.set_conditions(
        "certifications", "Succeeded", "ValidationFailed"
    ),
    "Failed, and names nobody": lambda w: w.set_conditions("certifications", "Failed"),
    "a failed category": lambda w: w.set_categories(status="Failed"),
    "a category without an end": lambda w: w.set_categories(status="InProgress"),
    "a failed workflow": lambda w: w.set_conditions("workflows", "Failed"),
    "a missed threshold": lambda w: w.set_conditions("workflows", "Succeeded", "ValidationFailed"),
    "no workflow": lambda w: w.set_categories(workflowRef=None),
    "another workflow": lambda w: w.set_categories(
        workflowRef={"name": "x", "namespace": "default"}
    ),
    "no groups": lambda w: w.change_statuses(
        "workflows", lambda s: s["orchestration"].update(groups=[])
    ),
    "nodes that were left out": lambda w: w.change_statuses(
        "workflows", lambda s: s["orchestration"].update(excludedNodes=w.list_nodes())
    ),
    "a failed node without a name": lambda w: w.write_failed_nodes(
        pack_failed_nodes({"reason": "WorkloadFailed"})
    ),
    "a list that is cut off": lambda w: w.write_groups(w.pack_groups()[:-8]),
    "a list with more behind it": lambda w: w.write_groups(w.pack_groups() + w.pack_groups()),
    "a list that is nested": lambda w: w.write_groups(gzip.compress(b"[" * 100_000)),
    "a workflow of another form": lambda w: w.change_statuses(
        "workflows", lambda s: s["orchestration"].update(excludedNodes="all")
    ),
    "figures with lines": lambda w: w.set_figures("4_8_7"),
    "figures of another alphabet": lambda w: w.set_figures("\u0664\u0668\u0667"),
    "figures that are no text": lambda w: w.set_figures(487.87),
    "figures without an end": lambda w: w.set_figures("1e999"),
    "a reason that nobody knows": lambda w: w.change_statuses(
        "bandwidthmeasurements", lambda s: s["conditions"][0].update(reason="FinalReadPending")
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("contradiction", CONTRADICTIONS)
def test_contradictory_results_certify_no_node_and_are_tested_again(
    certified_cluster: ContradictoryCluster, contradiction: str
) -> None:
    made = certified_cluster.create_with_fault(
        lambda: CONTRADICTIONS[contradiction](certified_cluster)
    )
    assert made.outs["ready"] is False, made.outs
    assert list_certified_nodes(made.outs) == []
    assert list_faulty_nodes(certified_cluster) == []
    first = made.outs["run"]
    again = certified_cluster.update(made, certified_cluster.build_inputs())
    assert (again.outs["ready"], list_certified_nodes(again.outs)) == (
        True,
        certified_cluster.list_nodes(),
    )
    assert again.outs["run"] != first


@pytest.mark.parametrize("phase", ["Running", "Pending", ""])
def test_a_job_that_has_not_ended_blames_no_node(
    certified_cluster: ContradictoryCluster, phase: str
) -> None:
    made = certified_cluster.create_with_fault(
        lambda: certified_cluster.set_first_group(phase=phase)
    )
    assert list_certified_nodes(made.outs) == certified_cluster.list_nodes()[1:]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [False]
    assert list_faulty_nodes(certified_cluster) == []


def test_a_node_without_a_result_has_not_passed(certified_cluster: ContradictoryCluster) -> None:
    """The group lists all planned nodes, tested or not."""
    made = certified_cluster.create_with_fault(
        lambda: certified_cluster.write_succeeded_nodes(*certified_cluster.list_nodes()[1:])
    )
    assert list_certified_nodes(made.outs) == certified_cluster.list_nodes()[1:]
    assert "its list of nodes that succeeded does not name" in made.outs["not_ready_reason"]
    assert list_faulty_nodes(certified_cluster) == []


def test_a_missing_figure_blames_no_node(certified_cluster: ContradictoryCluster) -> None:
    """The engine counts a missing figure as a missed threshold of every node."""

    def remove_figures() -> None:
        reason = "ThresholdViolation"
        certified_cluster.set_figures("")
        certified_cluster.write_failed_nodes(
            pack_failed_nodes(
                *({"name": n, "reason": reason} for n in certified_cluster.list_nodes())
            )
        )
        certified_cluster.change_statuses(
            "workflows", lambda s: [g.update(phase="Failed") for g in s["orchestration"]["groups"]]
        )
        certified_cluster.set_categories(status="Failed")
        certified_cluster.set_conditions("certifications", "Failed", "ValidationFailed")

    made = certified_cluster.create_with_fault(remove_figures)
    assert (list_certified_nodes(made.outs), list_faulty_nodes(certified_cluster)) == ([], [])


def test_a_job_that_fails_on_a_group_blames_no_node(
    certified_cluster: ContradictoryCluster,
) -> None:
    """Every node of the group gets the same reason, for example an image that cannot be pulled."""

    def fail_first_group() -> None:
        entries = [
            {"name": name, "reason": "WorkloadFailed"} for name in certified_cluster.list_nodes()
        ]
        certified_cluster.write_failed_nodes(pack_failed_nodes(*entries))
        certified_cluster.set_first_group(phase="Failed")
        certified_cluster.set_categories(status="Failed")
        certified_cluster.set_conditions("certifications", "Failed")

    made = certified_cluster.create_with_fault(fail_first_group, {**ALL_REDUCE, "floor": 300})
    assert (list_certified_nodes(made.outs), list_faulty_nodes(certified_cluster)) == ([], [])
    assert len(made.outs["failures"]) == len(certified_cluster.list_nodes())


def test_a_search_certifies_nodes_whose_groups_failed_before(
    certified_cluster: ContradictoryCluster,
) -> None:
    slow, *others = certified_cluster.list_nodes()
    certified_cluster.change_settings(slow_nodes={slow: 250})
    failed_nodes = [{"name": name, "reason": "ThresholdViolation"} for name in (slow, *others)]
    made = certified_cluster.create_with_fault(
        lambda: certified_cluster.write_failed_nodes(pack_failed_nodes(*failed_nodes)), SEARCH
    )
    assert (list_certified_nodes(made.outs), list_faulty_nodes(certified_cluster)) == (
        others,
        [slow],
    )


def test_a_node_that_a_search_neither_clears_nor_confirms_is_not_certified(
    certified_cluster: ContradictoryCluster,
) -> None:
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 250})

    def remove_suspects() -> None:
        certified_cluster.change_statuses(
            "workflows", lambda s: s["orchestration"]["diagnose"].update(suspectNodes=[])
        )

    made = certified_cluster.create_with_fault(remove_suspects, SEARCH)
    assert (slow in list_certified_nodes(made.outs), list_faulty_nodes(certified_cluster)) == (
        False,
        [],
    )


def test_figures_of_an_earlier_run_do_not_count(certified_cluster: ContradictoryCluster) -> None:
    """Jobs of a later run have the same names, so results of an earlier run may still exist."""
    made = certified_cluster.create(certified_cluster.build_inputs())
    measurements = certified_cluster.client.list_objects(f"{ROOT}/bandwidthmeasurements")
    for measurement in measurements:
        metadata = {"name": f"old-{measurement['metadata']['name']}"}
        path = f"{ROOT}/bandwidthmeasurements"
        body = {"kind": measurement["kind"], "metadata": metadata, "spec": measurement["spec"]}
        certified_cluster.client.create_object(path, body)
        certified_cluster.client.patch_object(
            path + build_path(metadata["name"]) + "/status", {"status": measurement["status"]}
        )
    certified_cluster.cluster.server.clock.advance(60)
    made.outs.update(evidence=[])

    def forget() -> None:
        for measurement in certified_cluster.client.list_objects(f"{ROOT}/bandwidthmeasurements"):
            if not measurement["metadata"]["name"].startswith("old-"):
                path = f"{ROOT}/bandwidthmeasurements{build_path(measurement['metadata']['name'])}"
                certified_cluster.client.delete_object(path, {})

    again = certified_cluster.update_with_fault(forget, made)
    assert (again.outs["ready"], list_certified_nodes(again.outs)) == (False, [])


def test_failed_nodes_of_other_clusters_are_not_stored(
    certified_cluster: ContradictoryCluster,
) -> None:
    entries = ({"name": f"other-{n}", "reason": "WorkloadFailed"} for n in range(5000))
    made = certified_cluster.create_with_fault(
        lambda: certified_cluster.write_failed_nodes(pack_failed_nodes(*entries))
    )
    assert len(made.outs["results"]) == len(certified_cluster.list_nodes())


def test_an_unread_test_does_not_certify_another_driver(
    certified_cluster: ContradictoryCluster,
) -> None:
    """The run is killed after the test, and the driver changes before the next run."""
    made = certified_cluster.create(certified_cluster.build_inputs())
    made.outs.update(evidence=[], run=None)
    for name in certified_cluster.list_nodes():
        label = {"nvidia.com/cuda.driver-version.full": "570.1"}
        certified_cluster.client.patch_object(
            "/api/v1/nodes" + build_path(name), {"metadata": {"labels": label}}
        )
    certified_cluster.change_settings(slow_nodes=dict.fromkeys(certified_cluster.list_nodes(), 100))
    again = certified_cluster.update(made, certified_cluster.build_inputs())
    assert (again.outs["ready"], list_certified_nodes(again.outs)) == (False, [])


def _cordon(certified_cluster: CertifiedCluster, *names: str) -> None:
    for name in names:
        certified_cluster.client.patch_object(
            "/api/v1/nodes" + build_path(name), {"spec": {"unschedulable": True}}
        )


def test_a_test_on_one_node_alone_does_not_certify_the_fabric(
    certified_cluster: ContradictoryCluster,
) -> None:
    """The engine leaves out cordoned nodes, and then measures NVLink instead of the fabric."""
    alone, *others = certified_cluster.list_nodes()
    _cordon(certified_cluster, *others)
    made = certified_cluster.create(certified_cluster.build_inputs({**ALL_REDUCE, "floor": 300}))
    assert (list_certified_nodes(made.outs), list_faulty_nodes(certified_cluster)) == ([], [])
    assert f"node {alone}: communication/nccl-all-reduce: the test ran on a single node" in str(
        made.outs["not_ready_reason"]
    )


def test_an_untested_certified_node_stays_certified(
    certified_cluster: ContradictoryCluster,
) -> None:
    beside, other, new = certified_cluster.list_nodes()
    declared = certified_cluster.build_inputs({**ALL_REDUCE, "floor": 300})
    made = certified_cluster.create(declared)
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    certified_cluster.client.patch_object(
        "/api/v1/nodes" + build_path(new), {"metadata": {"labels": label}}
    )
    _cordon(certified_cluster, beside)
    again = certified_cluster.update(made, declared)
    assert (again.outs["ready"], list_certified_nodes(again.outs)) == (False, [beside, other])
    assert [gap["node"] for gap in again.outs["gaps"]] == [new]


def test_a_missing_declared_node_is_not_certified(certified_cluster: ContradictoryCluster) -> None:
    made = certified_cluster.create(certified_cluster.build_inputs(num_gpus=32))
    assert "3 of 4 declared nodes exist" in made.outs["not_ready_reason"]
    assert (made.outs["ready"], list_certified_nodes(made.outs)) == (
        False,
        certified_cluster.list_nodes(),
    )
    again = certified_cluster.update(made, certified_cluster.build_inputs(num_gpus=32))
    assert (again.outs["ready"], again.outs["run"]) == (False, made.outs["run"])


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_renamed_resource_tests_again_and_removes_its_former_test(
    certified_cluster: ContradictoryCluster,
) -> None:
    """The program renames a certification and declares an alias."""
    made = certified_cluster.create(certified_cluster.build_inputs())
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    certified_cluster.client.patch_object(
        "/api/v1/nodes" + build_path(certified_cluster.list_nodes()[0]),
        {"metadata": {"labels": label}},
    )
    renamed = "urn:pulumi:dev::project::type::proof"
    with use_context(certified_cluster.create_context(renamed)):
        again = certified_cluster.lifecycle.update(
            made.id, made.outs, certified_cluster.build_inputs()
        )
    assert again.outs["ready"] is True, again.outs
    with use_context(certified_cluster.create_context(f"{renamed}-2")):
        certified_cluster.lifecycle.delete(made.id, again.outs)
    assert certified_cluster.client.list_objects(FOLDER) == ()


def test_failures_of_a_deleted_certification_are_forgotten(
    certified_cluster: ContradictoryCluster,
) -> None:
    """The cluster cannot be asked while the certification is deleted."""
    certified_cluster.change_settings(slow_nodes={certified_cluster.list_nodes()[0]: 250})
    made = certified_cluster.create(certified_cluster.build_inputs())
    certified_cluster.cluster.add_fault(
        method="GET", path="/compute/clusters", status=503, count=100
    )
    with use_context(certified_cluster.create_context()):
        certified_cluster.lifecycle.delete(made.id, made.outs)
    certified_cluster.cluster.send_control("DELETE", "/faults")
    assert list_faulty_nodes(certified_cluster) == []
