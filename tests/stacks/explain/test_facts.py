"""The figures, repairs and cost of an explanation, from several states and runs."""

from pathlib import Path
from typing import Any

from gpuform.providers.records import FolderRecords, Repair, Repairs
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.stacks_plan import RunLog
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import HistoryEntry
from gpuform.stacks.explain.explanation import compute_costs, list_figures, list_repairs
from gpuform.stacks.explain.recorded_runs import ObjectKey, RecordedRun, StoredObject
from gpuform.stacks.pricing import Price, PriceBook, list_entry_nodes

START = 1_800_000_000.0
CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
CERTIFICATION = "pulumi-python:dynamic/gpuform.together:Certification"
KEY = (f"urn:pulumi:dev::demo::{CLUSTER}::train", "a")
BOOK = PriceBook("EUR", {("together", "H100_SXM", "on_demand"): (Price(2.0, "", "prices.yaml"),)})


def build_object(
    type_: str, name: str, object_id: str, **outputs: Any
) -> dict[ObjectKey, StoredObject]:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    entry = ResourceState(urn, True, type_, id=object_id, outputs=outputs)
    return {(urn, object_id): StoredObject(entry, list_entry_nodes(entry))}


def build_cluster(num_gpus: int, **outputs: Any) -> dict[ObjectKey, StoredObject]:
    workers = [
        {"node_id": f"n-{i}", "host_name": f"w{i}", "status": "NODE_PHASE_RUNNING", "num_gpus": 8}
        for i in range(num_gpus // 8)
    ]
    facts = {"gpu_type": "H100_SXM", "billing_type": "ON_DEMAND", "num_gpus": num_gpus}
    return build_object(CLUSTER, "train", "a", gpu_worker_nodes=workers, **facts, **outputs)


def build_result(measured: float, at: str, *nodes: str) -> dict[str, Any]:
    result = {"category": "communication/nccl", "nodes": [*nodes], "unit": "GB/s", "at": at}
    return {**result, "measured": measured, "required": 270.0, "passed": measured >= 270}


def test_the_figures_of_a_node_are_those_of_all_states_each_once() -> None:
    first = [
        build_result(250, "2027-01-01T00:00:00Z", "w0"),
        build_result(312, "2027-01-01T00:00:00Z", "w1"),
    ]
    second = [build_result(301, "2027-02-01T00:00:00Z", "w0")]
    failure = {"node": "w0", "category": "communication/nccl", "because": "250 GB/s"}
    states = [
        (START, build_object(CERTIFICATION, "fabric", "c", results=first, failures=[failure])),
        (START + 1, build_object(CERTIFICATION, "fabric", "c", results=second)),
        (START + 2, build_object(CERTIFICATION, "fabric", "c", results=second)),
    ]
    figures = list_figures(states, {KEY}, {"w0"}, "node")
    assert [(it.measured, it.passed, it.because) for it in figures] == [
        (250, False, "250 GB/s"),
        (301, True, ""),
    ]


def test_a_repair_of_a_run_gets_the_state_that_the_platform_reports(tmp_path: Path) -> None:
    remediation = {"id": "r-1", "mode": "REBOOT_VM", "state": "SUCCEEDED", "reviewed_by": "ada"}
    own = {"id": "r-2", "mode": "MIGRATE", "state": "RUNNING", "reason": "ECC errors"}
    workers = [
        {"node_id": "n-0", "host_name": "w0", "remediation": remediation},
        {"node_id": "n-1", "host_name": "w1", "remediation": own},
    ]
    repair = NodeRepair(node="w0", mode="REBOOT_VM", cause="not_ready", because="NotReady")
    change = ResourceChange(
        urn=KEY[0],
        type=CLUSTER,
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        repairs=(repair,),
    )
    log = RunLog(plan=Plan.from_changes("demo", "dev", [change]))
    run = RecordedRun(3, HistoryEntry("repair", "succeeded", 1, 2), log)
    records = Repairs(FolderRecords(tmp_path))
    records.record(Repair("a", "w0", "r-1", "i-0", "REBOOT_VM", START))
    states = [(START, build_object(CLUSTER, "train", "a", gpu_worker_nodes=workers))]
    repairs = list_repairs([run], states, records, {KEY}, None)
    assert [(it.node, it.run, it.id, it.state, it.evidence, it.reviewed_by) for it in repairs] == [
        ("w0", 3, "r-1", "SUCCEEDED", "NotReady", "ada"),
        ("w1", None, "r-2", "RUNNING", "ECC errors", ""),
    ]
    assert len(list_repairs([run], states, records, {KEY}, {"w1"})) == 1


def test_the_cost_adds_the_hours_of_each_size_and_ends_with_the_object() -> None:
    states = [
        (START, build_cluster(8)),
        (START + 7200, build_cluster(16)),
        (START + 10_800, {}),
        (START + 20_000, {}),
    ]
    (cost,), unknown = compute_costs(states, [], {KEY}, BOOK)
    assert (cost.total, cost.hours, cost.hourly) == (8 * 2 * 2 + 16 * 2 * 1, 3, 0)
    assert unknown == []
    (share,), _ = compute_costs(states, [], {KEY}, BOOK, share_of={"w0"})
    assert share.total == 8 * 2 * 3
    _, unknown = compute_costs(states, [], {KEY}, PriceBook())
    assert unknown[0].startswith("cost unknown: train: 8 H100_SXM GPUs")
