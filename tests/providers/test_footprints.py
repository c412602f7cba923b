"""Test the resource usage of each platform, and how it is paid for."""

from typing import Any

import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.resource_facts import Billing, ResourceUsage
from gpuform.schemas.values import UNKNOWN

TOGETHER = {"region": "r1", "gpu_type": "H100_SXM", "num_gpus": 16, "billing_type": "ON_DEMAND"}
TENSORONE = {"region": "us-west-2", "gpu_type": "A100", "gpu_count": 4, "storage_gb": 500}
RATE = {"status": "running", "current_hourly_rate": 8.5, "currency": "USD"}
SCP = {"region_id": "kr-west1", "server_type_id": "f90e"}


def compute_usage(platform: str, kind: str, values: Any, outputs: Any = None) -> ResourceUsage:
    return load_lifecycle_class(platform, kind).hooks.compute_resource_usage(values, outputs or {})


def get_prices(usage: ResourceUsage) -> dict[str, float | None]:
    return {f"{expense.what} {expense.billing}": expense.amount for expense in usage.expenses}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"gpus on_demand": 16}),
        ({"billing_type": "RESERVED", "duration_days": 30}, {"gpus reserved": 16}),
        (
            {"billing_type": "RESERVED", "num_reserved_gpus": 8},
            {"gpus reserved": 8, "gpus on_demand": 8},
        ),
        ({"billing_type": "SCHEDULED_CAPACITY"}, {"gpus scheduled": 16}),
        ({"num_preemptible_gpus": 8}, {"gpus on_demand": 16, "gpus preemptible": 8}),
        ({"num_capacity_pool_gpus": 8}, {"gpus capacity_pool": 8, "gpus on_demand": 8}),
        ({"num_gpus": UNKNOWN}, {"gpus on_demand": None}),
        ({"billing_type": UNKNOWN}, {"gpus on_demand": None}),
        (
            {"shared_volume": {"size_tib": 5, "region": "r1"}},
            {"gpus on_demand": 16, "storage on_demand": 5},
        ),
    ],
)
def test_together_distinguishes_how_gpus_are_paid_for(more: Any, expected: Any) -> None:
    assert get_prices(compute_usage("together", "Cluster", {**TOGETHER, **more})) == expected


def test_automatic_scaling_has_no_known_cost() -> None:
    scaling = {**TOGETHER, "auto_scale": True, "auto_scale_max_gpus": 64}
    *_, last = compute_usage("together", "Cluster", scaling).expenses
    assert (last.amount, last.hourly) == (48, None)
    assert last.because == "automatic scaling decides their number"


def test_together_usage_is_in_the_placed_region() -> None:
    outputs = {"placed_region": "r2", "placed_gpu_type": "H200_SXM", "status": "Ready"}
    usage = compute_usage("together", "Cluster", {**TOGETHER, "billing_type": "RESERVED"}, outputs)
    assert (usage.region, usage.gpu_types) == ("r2", ("H200_SXM",))
    assert (usage.running, usage.reserved, usage.expires, usage.tags) == (True, True, False, None)
    unknown = compute_usage("together", "Cluster", {**TOGETHER, "region": UNKNOWN})
    assert (unknown.region, unknown.unknown) == ("", ("region",))


def test_tensorone_uses_reported_prices_until_a_priced_field_changes() -> None:
    outputs = {**TENSORONE, "state": "running", **RATE}
    total, storage = compute_usage("tensorone", "Cluster", TENSORONE, outputs).expenses
    assert (storage.what, storage.amount, storage.hourly) == ("storage", 500, 0.0)
    assert (total.hourly, total.currency, total.source) == (8.5, "USD", "tensorone")
    more = compute_usage("tensorone", "Cluster", {**TENSORONE, "gpu_count": 8}, outputs)
    assert get_prices(more) == {"gpus on_demand": 8, "storage on_demand": 500}
    assert {expense.hourly for expense in more.expenses} == {None}
    stopped = compute_usage("tensorone", "Cluster", {**TENSORONE, "state": "stopped"}, outputs)
    assert get_prices(stopped) == {"gpus stopped": 4, "storage on_demand": 500}
    outputs = {**outputs, "state": "stopped", "status": "stopped", "current_hourly_rate": 0.4}
    now, _ = compute_usage("tensorone", "Cluster", outputs, outputs).expenses
    assert (now.billing, now.hourly) == (Billing.STOPPED, 0.4)


@pytest.mark.parametrize(
    ("more", "expires"),
    [
        ({}, False),
        ({"auto_terminate": {"idle_minutes": 60}}, True),
        ({"auto_terminate": {"enabled": False, "idle_minutes": 60}}, False),
        ({"auto_terminate": {"enabled": True}}, False),
        ({"tags": {"expires": "2026-12-31"}}, True),
    ],
)
def test_tensorone_usage_ends_at_a_limit_or_a_reported_time(more: Any, expires: bool) -> None:
    assert compute_usage("tensorone", "Cluster", {**TENSORONE, **more}).expires is expires


def test_scp_counts_running_and_stopped_servers() -> None:
    nodes = {"a": {"state": "STOPPED"}, "b": {}, "c": None}
    assert get_prices(compute_usage("scp", "NodePool", {**SCP, "nodes": nodes})) == {
        "gpus stopped": 8,
        "gpus on_demand": 16,
    }
    stopped = {**SCP, "count": 2, "state": "STOPPED", "tags": {"team": "x"}}
    usage = compute_usage("scp", "NodePool", stopped, {"gpu_nodes": {"n": {"state": "RUNNING"}}})
    assert get_prices(usage) == {"gpus stopped": 16}
    assert (usage.tags, usage.running, usage.expires) == (("team",), True, False)
    assert get_prices(compute_usage("scp", "NodePool", {**SCP, "count": UNKNOWN})) == {
        "gpus on_demand": None
    }
    assert get_prices(compute_usage("scp", "GpuNode", SCP)) == {"gpus on_demand": 8}


def test_kinds_without_capacity_cost_nothing() -> None:
    assert (
        compute_usage("aios", "Cluster", {})
        == compute_usage("lens", "HealthGate", {})
        == ResourceUsage()
    )
