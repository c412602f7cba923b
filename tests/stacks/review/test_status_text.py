"""The status as text and as JSON."""

from typing import Any

import pytest
from support.platforms.lens_document import CONSUMERS, HEATMAP, OVERVIEW

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.schemas.lens.wire import ConsumerPage, GpuHeatmap, Overview
from gpuform.schemas.resource_facts import Expense, ResourceUsage
from gpuform.stacks.pricing import sum_costs
from gpuform.stacks.review.status_text import (
    LensStatus,
    ResourceStatus,
    StatusReport,
    build_status_document,
    render_status,
)

MONITORING = LensStatus(
    Overview.model_validate(OVERVIEW["data"]),
    GpuHeatmap.model_validate(HEATMAP["data"]),
    ConsumerPage.model_validate(CONSUMERS["data"]).data,
)
RATE = Expense(what="whole", platform="tensorone", hourly=8.5, currency="USD", source="tensorone")
RESOURCES = (
    ResourceStatus("train", "together:Cluster", "c-1", Summary("Ready", True, gpus=16)),
    ResourceStatus(
        "dev",
        "tensorone:Cluster",
        "cluster_1",
        Summary(
            "error",
            False,
            "its status is error",
            4,
            8.5,
            "USD",
            ("high_gpu_utilization (info)",),
        ),
        problem="no answer",
        footprint=ResourceUsage(expenses=(RATE,)),
    ),
    ResourceStatus("mine", "dynamic:Thing", "x", Summary()),
)

COST = sum_costs(
    (resource.name, resource.footprint) for resource in RESOURCES if resource.footprint
)

TEXT = """\
ada@build (pid 1) is running on the stack.
As of now, from the platforms; dev as of 2 d ago, from the state:

NAME   TYPE               STATE  READY  GPUS  COST
train  together:Cluster   Ready  yes    16    -
dev    tensorone:Cluster  error  no     4     8.50 USD/h
    not ready: its status is error
    alert: high_gpu_utilization (info)
    could not be read: no answer
mine   dynamic:Thing      -      -      -     -

3 resources, 20 GPUs, 8.50 USD/h (6,205.00 USD/month), 1 not ready

Lens:
    nodes: 10, 9 healthy, 1 faulty; 3 idle, 4 partially idle, 2 busy
    GPUs: 75% allotted, 62% used; RDMA ports: 76 of 80 active
    2 workloads with 12 GPUs, 0 idle; 550 of 1000 TB free
    hottest GPUs:
        gpu-node-1 0  AMD MI300X  82.5 ℃
    top consumers:
        default/training-job-1  Job  8 GPUs, 85% used
        production/inference-service  Deployment  4 GPUs, 62% used"""


def test_a_complete_status_is_rendered() -> None:
    work = "ada@build (pid 1) is running on the stack"
    status = StatusReport(
        "dev", RESOURCES, MONITORING, COST, (), 200_000, is_live=True, running_change=work
    )
    assert "\n".join(render_status(status)) == TEXT


@pytest.mark.parametrize(
    ("value", "unit", "line"),
    [
        (80.0, "℃", "n1 0  H100  80 ℃"),
        (79.9, "℃", None),
        (None, "℃", "n1 0  H100  ? ℃"),
        (35.0, "K", "n1 0  H100  35 K"),
    ],
)
def test_only_hot_gpus_and_gpus_of_unknown_temperature_are_shown(
    value: float | None, unit: str, line: str | None
) -> None:
    point = {"nodeName": "n1", "deviceId": 0, "gpuModel": "H100", "value": value}
    heatmap = GpuHeatmap.model_validate(
        {**HEATMAP["data"], "temperature": {"unit": unit, "data": [point]}}
    )
    lines = list(render_status(StatusReport("dev", (), LensStatus(heatmap=heatmap))))
    assert ("    hottest GPUs:" in lines) is (line is not None)
    assert line is None or f"        {line}" in lines


def test_an_empty_status_is_rendered() -> None:
    lines = list(render_status(StatusReport("dev", (), age=3 * 3600 + 59)))
    assert lines == ["As of 3 h ago, from the state:", "", "Stack dev has no resources."]


def test_missing_figures_of_lens_are_question_marks() -> None:
    lines = list(render_status(StatusReport("dev", (), LensStatus(Overview()))))
    assert lines[5] == ("    nodes: ?, ? healthy, ? faulty; ? idle, ? partially idle, ? busy")
    lines = list(render_status(StatusReport("dev", (), LensStatus(problem="no connection"))))
    assert lines[5] == "    could not be read: no connection"


def test_status_json_keeps_the_names_of_lens() -> None:
    document = build_status_document(StatusReport("dev", RESOURCES, MONITORING, COST))
    assert document["stack"] == "dev"
    assert document["resources"][1] == {
        "name": "dev",
        "type": "tensorone:Cluster",
        "id": "cluster_1",
        "problem": "no answer",
        "state": "error",
        "ready": False,
        "reason": "its status is error",
        "gpus": 4,
        "hourly_cost": 8.5,
        "currency": "USD",
        "alerts": ["high_gpu_utilization (info)"],
        "owner": "",
        "footprint": ResourceUsage(expenses=(RATE,)).model_dump(mode="json"),
        "live": None,
        "live_problem": "",
        "nodes": [],
    }
    assert document["cost"] == {
        "amounts": [{"billing": "on_demand", "currency": "USD", "hourly": 8.5}],
        "unknown": [],
    }
    assert document["lens"]["overview"] == OVERVIEW["data"]
    assert document["lens"]["capacity"]["requested_gpus"] == 12
    assert document["lens"]["capacity"]["free_nodes"] == 3
    assert document["lens"]["consumers"] == CONSUMERS["data"]["data"]
    assert document["lens"]["heatmap"]["temperature"]["unit"] == "℃"
    assert build_status_document(StatusReport("dev", ()))["lens"] is None


@pytest.mark.parametrize(
    ("platform", "kind", "outputs", "expected"),
    [
        (
            "together",
            "Cluster",
            {"status": "Ready", "ready": True, "num_gpus": 16.0},
            Summary("Ready", True, gpus=16),
        ),
        (
            "tensorone",
            "Cluster",
            {
                "status": "running",
                "ready": True,
                "gpu_count": 4,
                "current_hourly_rate": 8.5,
                "currency": "USD",
                "alerts": [{"severity": "info", "message": "busy"}, {"type": "hot"}],
                "gpu_health": "healthy",
                "storage_health": "degraded",
            },
            Summary(
                "running",
                True,
                gpus=4,
                hourly_cost=8.5,
                currency="USD",
                alerts=("busy (info)", "hot", "storage_health is degraded"),
            ),
        ),
        (
            "scp",
            "NodePool",
            {
                "ready": False,
                "not_ready_reason": "waiting",
                "gpu_nodes": {
                    "a": {"state": "RUNNING"},
                    "b": {"state": "CREATING"},
                    "c": {"state": "RUNNING"},
                },
            },
            Summary("1 CREATING, 2 RUNNING", False, "waiting"),
        ),
        ("lens", "HealthGate", {"ready": True}, Summary("", True)),
        ("dynamic", "Thing", {"ready": True, "status": "x"}, Summary()),
    ],
)
def test_a_summary_is_built_from_the_outputs(
    platform: str, kind: str, outputs: Any, expected: Summary
) -> None:
    assert summarize_resource(platform, kind, outputs) == expected
