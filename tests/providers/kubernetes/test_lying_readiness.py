"""Test that contradictory or incomplete results of the engine certify no node."""

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.clock import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.http import build_path
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from tests.providers.kubernetes.test_certifications import ALL_REDUCE, FOLDER, World, proven

ROOT = FOLDER.rpartition("/")[0]
MAPS = "/api/v1/namespaces/default/configmaps"
SIZE = 17_179_869_184
SEARCH = {**ALL_REDUCE, "options": {"testScale": "diagnose"}, "floor": 300}


class _Interrupted:
    """A clock; at its first wait the test ends, and something happens before anybody looks."""

    is_platforms = True

    def __init__(self, clock: Clock, happen: Callable[[], None]) -> None:
        self._clock, self._happen = clock, happen
        self._has_happened = False

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self._clock.sleep(seconds, cancelled)
        if seconds and not self._has_happened:
            self._has_happened = True
            self._happen()


class LyingWorld(World):
    """A cluster whose engine is changed by hand when it has ended, before gpuform reads it."""

    def create_with(self, lie: Callable[[], None], *categories: Mapping[str, Any]) -> Any:
        with use_context(self._lying(lie)):
            return self.lifecycle.create(self.declared(*categories))

    def update_with(self, lie: Callable[[], None], made: Any) -> Any:
        with use_context(self._lying(lie)):
            return self.lifecycle.update(made.id, made.outs, self.declared())

    def _lying(self, lie: Callable[[], None]) -> ProviderContext:
        def happen() -> None:
            self.cluster.server.clock.advance(700)
            assert self.certification()["status"]["conditions"][-1]["type"] != "InProgress"
            lie()

        call = self.call()
        call.clock = _Interrupted(call.clock, happen)
        return call

    def change(self, plural: str, status: Callable[[dict[str, Any]], object]) -> None:
        """Changes the status of every object of the engine's kind."""
        for each in self.client.list_objects(f"{ROOT}/{plural}"):
            path = f"{ROOT}/{plural}{build_path(each['metadata']['name'])}/status"
            changed = json.loads(json.dumps(each["status"]))
            status(changed)
            self.client.patch_object(path, {"status": changed})

    def measure(self, told: object) -> None:
        figure = {"sizeBytes": SIZE, "busBW": told, "algBW": told, "samples": 65}
        self.change("bandwidthmeasurements", lambda s: s.update(results=[figure]))

    def condition(self, plural: str, *kinds: str) -> None:
        told = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in kinds]
        self.change(plural, lambda status: status.update(conditions=told))

    def categories(self, **fields: Any) -> None:
        def change(status: dict[str, Any]) -> None:
            for categorystatuse in status["categoryStatuses"]:
                categorystatuse.update(fields)

        self.change("certifications", change)

    def first_group(self, **fields: Any) -> None:
        self.change("workflows", lambda s: s["orchestration"]["groups"][0].update(fields))

    def list_failed(self, packed: bytes) -> None:
        data = {"failed-nodes.json.gz": base64.b64encode(packed).decode()}
        self.client.create_object(
            MAPS, {"metadata": {"name": "failed-nodes-x"}, "binaryData": data}
        )
        self.categories(failedNodesRef={"kind": "ConfigMap", "name": "failed-nodes-x"})

    def list_succeeded(self, *names: str) -> None:
        packed = base64.b64encode(gzip.compress(",".join(names).encode())).decode()
        data = {"succeeded-nodes.csv.gz": packed}
        self.client.create_object(MAPS, {"metadata": {"name": "succeeded-x"}, "binaryData": data})
        self.categories(succeededNodesRef={"kind": "ConfigMap", "name": "succeeded-x"})

    def list_groups(self, packed: bytes) -> None:
        for each in self.client.list_objects(MAPS):
            name = each["metadata"]["name"]
            if name.startswith("group-nodes"):
                data = {"group-nodes.json.gz": base64.b64encode(packed).decode()}
                self.client.patch_object(MAPS + build_path(name), {"binaryData": data})

    def groups(self) -> bytes:
        told = {f"group-{number}": [name] for number, name in enumerate(self.nodes())}
        return gzip.compress(json.dumps(told).encode())


@pytest.fixture
def world(cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LyingWorld]:
    for name, value in environment(cluster.server.url).items():
        monkeypatch.setenv(name, value)
    yield LyingWorld(cluster, tmp_path)
    get_client(Settings()).close()


def named(*entries: Mapping[str, str]) -> bytes:
    return gzip.compress(json.dumps(entries).encode())


def at_fault(world: World) -> list[str]:
    """The nodes that a repair would take."""
    return [failure["node"] for verdict in world.verdicts() for failure in verdict.failures]


CONTRADICTIONS: dict[str, Callable[[LyingWorld], None]] = {
    "Failed beside Succeeded": lambda w: w.condition("certifications", "Succeeded", "Failed"),
    "ValidationFailed": lambda w: w.condition("certifications", "Succeeded", "ValidationFailed"),
    "Failed, and names nobody": lambda w: w.condition("certifications", "Failed"),
    "a failed category": lambda w: w.categories(status="Failed"),
    "a category without an end": lambda w: w.categories(status="InProgress"),
    "a failed workflow": lambda w: w.condition("workflows", "Failed"),
    "a missed threshold": lambda w: w.condition("workflows", "Succeeded", "ValidationFailed"),
    "no workflow": lambda w: w.categories(workflowRef=None),
    "another workflow": lambda w: w.categories(workflowRef={"name": "x", "namespace": "default"}),
    "no groups": lambda w: w.change("workflows", lambda s: s["orchestration"].update(groups=[])),
    "nodes that were left out": lambda w: w.change(
        "workflows", lambda s: s["orchestration"].update(excludedNodes=w.nodes())
    ),
    "a failed node without a name": lambda w: w.list_failed(named({"reason": "WorkloadFailed"})),
    "a list that is cut off": lambda w: w.list_groups(w.groups()[:-8]),
    "a list with more behind it": lambda w: w.list_groups(w.groups() + w.groups()),
    "a list that is nested": lambda w: w.list_groups(gzip.compress(b"[" * 100_000)),
    "a workflow of another form": lambda w: w.change(
        "workflows", lambda s: s["orchestration"].update(excludedNodes="all")
    ),
    "figures with lines": lambda w: w.measure("4_8_7"),
    "figures of another alphabet": lambda w: w.measure("\u0664\u0668\u0667"),
    "figures that are no text": lambda w: w.measure(487.87),
    "figures without an end": lambda w: w.measure("1e999"),
    "a reason that nobody knows": lambda w: w.change(
        "bandwidthmeasurements", lambda s: s["conditions"][0].update(reason="FinalReadPending")
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("lie", CONTRADICTIONS)
def test_what_contradicts_itself_proves_nothing_and_is_tested_anew(
    world: LyingWorld, lie: str
) -> None:
    made = world.create_with(lambda: CONTRADICTIONS[lie](world))
    assert made.outs["ready"] is False, made.outs
    assert proven(made.outs) == []
    assert at_fault(world) == []
    first = made.outs["run"]
    again = world.update(made, world.declared())
    assert (again.outs["ready"], proven(again.outs)) == (True, world.nodes())
    assert again.outs["run"] != first


@pytest.mark.parametrize("phase", ["Running", "Pending", ""])
def test_a_job_that_has_not_ended_is_nobodys_fault(world: LyingWorld, phase: str) -> None:
    made = world.create_with(lambda: world.first_group(phase=phase))
    assert proven(made.outs) == world.nodes()[1:]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [False]
    assert at_fault(world) == []


def test_a_node_that_no_result_names_has_not_passed(world: LyingWorld) -> None:
    """A group lists the nodes that were planned for it."""
    made = world.create_with(lambda: world.list_succeeded(*world.nodes()[1:]))
    assert proven(made.outs) == world.nodes()[1:]
    assert "its list of nodes that succeeded does not name" in made.outs["not_ready_reason"]
    assert at_fault(world) == []


def test_a_missing_figure_is_nobodys_fault(world: LyingWorld) -> None:
    """The engine counts it as a missed threshold of every node."""

    def unmeasured() -> None:
        told = "ThresholdViolation"
        world.measure("")
        world.list_failed(named(*({"name": n, "reason": told} for n in world.nodes())))
        world.change(
            "workflows", lambda s: [g.update(phase="Failed") for g in s["orchestration"]["groups"]]
        )
        world.categories(status="Failed")
        world.condition("certifications", "Failed", "ValidationFailed")

    made = world.create_with(unmeasured)
    assert (proven(made.outs), at_fault(world)) == ([], [])


def test_a_job_that_fails_on_a_group_is_nobodys_fault(world: LyingWorld) -> None:
    """Every node of the group gets the reason, as with an image that cannot be pulled."""

    def broken() -> None:
        entries = [{"name": name, "reason": "WorkloadFailed"} for name in world.nodes()]
        world.list_failed(named(*entries))
        world.first_group(phase="Failed")
        world.categories(status="Failed")
        world.condition("certifications", "Failed")

    made = world.create_with(broken, {**ALL_REDUCE, "floor": 300})
    assert (proven(made.outs), at_fault(world)) == ([], [])
    assert len(made.outs["failures"]) == len(world.nodes())


def test_a_search_clears_nodes_of_groups_that_failed_on_the_way(world: LyingWorld) -> None:
    slow, *others = world.nodes()
    world.set(slow_nodes={slow: 250})
    told = [{"name": name, "reason": "ThresholdViolation"} for name in (slow, *others)]
    made = world.create_with(lambda: world.list_failed(named(*told)), SEARCH)
    assert (proven(made.outs), at_fault(world)) == (others, [slow])


def test_what_a_search_neither_clears_nor_confirms_is_not_proven(world: LyingWorld) -> None:
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 250})

    def unconfirmed() -> None:
        world.change("workflows", lambda s: s["orchestration"]["diagnose"].update(suspectNodes=[]))

    made = world.create_with(unconfirmed, SEARCH)
    assert (slow in proven(made.outs), at_fault(world)) == (False, [])


def test_a_figure_of_an_earlier_run_is_none(world: LyingWorld) -> None:
    """Jobs of a later run have the same names; what an earlier one has left may still be there."""
    made = world.create(world.declared())
    kept = world.client.list_objects(f"{ROOT}/bandwidthmeasurements")
    for each in kept:
        metadata = {"name": f"old-{each['metadata']['name']}"}
        path = f"{ROOT}/bandwidthmeasurements"
        body = {"kind": each["kind"], "metadata": metadata, "spec": each["spec"]}
        world.client.create_object(path, body)
        world.client.patch_object(
            path + build_path(metadata["name"]) + "/status", {"status": each["status"]}
        )
    world.cluster.server.clock.advance(60)
    made.outs.update(evidence=[])

    def forget() -> None:
        for each in world.client.list_objects(f"{ROOT}/bandwidthmeasurements"):
            if not each["metadata"]["name"].startswith("old-"):
                path = f"{ROOT}/bandwidthmeasurements{build_path(each['metadata']['name'])}"
                world.client.delete_object(path, {})

    again = world.update_with(forget, made)
    assert (again.outs["ready"], proven(again.outs)) == (False, [])


def test_strangers_among_the_failed_nodes_do_not_fill_the_state(world: LyingWorld) -> None:
    entries = ({"name": f"other-{n}", "reason": "WorkloadFailed"} for n in range(5000))
    made = world.create_with(lambda: world.list_failed(named(*entries)))
    assert len(made.outs["results"]) == len(world.nodes())


def test_a_test_that_nobody_judged_proves_no_other_driver(world: LyingWorld) -> None:
    """A run was killed after the test, and the driver is changed before the next run."""
    made = world.create(world.declared())
    made.outs.update(evidence=[], run=None)
    for name in world.nodes():
        label = {"nvidia.com/cuda.driver-version.full": "570.1"}
        world.client.patch_object(
            "/api/v1/nodes" + build_path(name), {"metadata": {"labels": label}}
        )
    world.set(slow_nodes=dict.fromkeys(world.nodes(), 100))
    again = world.update(made, world.declared())
    assert (again.outs["ready"], proven(again.outs)) == (False, [])


def _cordon(world: World, *names: str) -> None:
    for name in names:
        world.client.patch_object(
            "/api/v1/nodes" + build_path(name), {"spec": {"unschedulable": True}}
        )


def test_one_node_alone_proves_nothing_between_nodes(world: LyingWorld) -> None:
    """The engine leaves out the cordoned ones, and measures NVLink in place of the fabric."""
    alone, *others = world.nodes()
    _cordon(world, *others)
    made = world.create(world.declared({**ALL_REDUCE, "floor": 300}))
    assert (proven(made.outs), at_fault(world)) == ([], [])
    assert f"node {alone}: communication/nccl-all-reduce: the test ran on one node alone" in str(
        made.outs["not_ready_reason"]
    )


def test_who_stood_by_and_was_left_out_stays_proven(world: LyingWorld) -> None:
    beside, other, new = world.nodes()
    declared = world.declared({**ALL_REDUCE, "floor": 300})
    made = world.create(declared)
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    world.client.patch_object("/api/v1/nodes" + build_path(new), {"metadata": {"labels": label}})
    _cordon(world, beside)
    again = world.update(made, declared)
    assert (again.outs["ready"], proven(again.outs)) == (False, [beside, other])
    assert [gap["node"] for gap in again.outs["gaps"]] == [new]


def test_a_node_that_is_declared_and_not_there_is_not_proven(world: LyingWorld) -> None:
    made = world.create(world.declared(num_gpus=32))
    assert "3 of 4 declared nodes exist" in made.outs["not_ready_reason"]
    assert (made.outs["ready"], proven(made.outs)) == (False, world.nodes())
    again = world.update(made, world.declared(num_gpus=32))
    assert (again.outs["ready"], again.outs["run"]) == (False, made.outs["run"])


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_resource_of_another_name_tests_and_removes_what_it_made(world: LyingWorld) -> None:
    """A program gives a certification another name, with an alias."""
    made = world.create(world.declared())
    label = {"nvidia.com/cuda.driver-version.full": "570.1"}
    world.client.patch_object(
        "/api/v1/nodes" + build_path(world.nodes()[0]), {"metadata": {"labels": label}}
    )
    renamed = "urn:pulumi:dev::project::type::proof"
    with use_context(world.call(renamed)):
        again = world.lifecycle.update(made.id, made.outs, world.declared())
    assert again.outs["ready"] is True, again.outs
    with use_context(world.call(f"{renamed}-2")):
        world.lifecycle.delete(made.id, again.outs)
    assert world.client.list_objects(FOLDER) == ()


def test_nothing_is_held_against_nodes_of_a_certification_that_is_gone(world: LyingWorld) -> None:
    """Its cluster cannot be asked while it is removed."""
    world.set(slow_nodes={world.nodes()[0]: 250})
    made = world.create(world.declared())
    world.cluster.fault(method="GET", path="/compute/clusters", status=503, count=100)
    with use_context(world.call()):
        world.lifecycle.delete(made.id, made.outs)
    world.cluster.control("DELETE", "/faults")
    assert at_fault(world) == []
