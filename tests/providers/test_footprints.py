"""What resources of each platform take up and how it is paid for, from declared and seen values."""

from typing import Any

import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.resource_facts import Billing, ResourceUsage
from gpuform.schemas.values import UNKNOWN

TOGETHER = {"region": "r1", "gpu_type": "H100_SXM", "num_gpus": 16, "billing_type": "ON_DEMAND"}
TENSORONE = {"region": "us-west-2", "gpu_type": "A100", "gpu_count": 4, "storage_gb": 500}
RATE = {"status": "running", "current_hourly_rate": 8.5, "currency": "USD"}
SCP = {"region_id": "kr-west1", "server_type_id": "f90e"}


def footprint(platform: str, kind: str, values: Any, seen: Any = None) -> ResourceUsage:
    return load_lifecycle_class(platform, kind).compute_resource_usage(values, seen or {})


def paid(found: ResourceUsage) -> dict[str, float | None]:
    return {f"{each.what} {each.billing}": each.amount for each in found.expenses}


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
def test_together_tells_apart_how_gpus_are_paid_for(more: Any, expected: Any) -> None:
    assert paid(footprint("together", "Cluster", {**TOGETHER, **more})) == expected


def test_automatic_scaling_has_no_known_cost() -> None:
    scaling = {**TOGETHER, "auto_scale": True, "auto_scale_max_gpus": 64}
    *_, last = footprint("together", "Cluster", scaling).expenses
    assert (last.amount, last.hourly) == (48, None)
    assert last.because == "automatic scaling decides their number"


def test_together_is_where_it_was_placed() -> None:
    seen = {"placed_region": "r2", "placed_gpu_type": "H200_SXM", "status": "Ready"}
    found = footprint("together", "Cluster", {**TOGETHER, "billing_type": "RESERVED"}, seen)
    assert (found.region, found.gpu_types) == ("r2", ("H200_SXM",))
    assert (found.running, found.reserved, found.expires, found.tags) == (True, True, False, None)
    unknown = footprint("together", "Cluster", {**TOGETHER, "region": UNKNOWN})
    assert (unknown.region, unknown.unknown) == ("", ("region",))


def test_tensorone_believes_the_platform_until_something_priced_changes() -> None:
    seen = {**TENSORONE, "state": "running", **RATE}
    whole, storage = footprint("tensorone", "Cluster", TENSORONE, seen).expenses
    assert (storage.what, storage.amount, storage.hourly) == ("storage", 500, 0.0)
    assert (whole.hourly, whole.currency, whole.source) == (8.5, "USD", "tensorone")
    more = footprint("tensorone", "Cluster", {**TENSORONE, "gpu_count": 8}, seen)
    assert paid(more) == {"gpus on_demand": 8, "storage on_demand": 500}
    assert {each.hourly for each in more.expenses} == {None}
    stopped = footprint("tensorone", "Cluster", {**TENSORONE, "state": "stopped"}, seen)
    assert paid(stopped) == {"gpus stopped": 4, "storage on_demand": 500}
    seen = {**seen, "state": "stopped", "status": "stopped", "current_hourly_rate": 0.4}
    now, _ = footprint("tensorone", "Cluster", seen, seen).expenses
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
def test_tensorone_ends_by_a_limit_or_says_when(more: Any, expires: bool) -> None:
    assert footprint("tensorone", "Cluster", {**TENSORONE, **more}).expires is expires


def test_scp_counts_servers_that_run_and_that_are_stopped() -> None:
    nodes = {"a": {"state": "STOPPED"}, "b": {}, "c": None}
    assert paid(footprint("scp", "NodePool", {**SCP, "nodes": nodes})) == {
        "gpus stopped": 8,
        "gpus on_demand": 16,
    }
    stopped = {**SCP, "count": 2, "state": "STOPPED", "tags": {"team": "x"}}
    found = footprint("scp", "NodePool", stopped, {"gpu_nodes": {"n": {"state": "RUNNING"}}})
    assert paid(found) == {"gpus stopped": 16}
    assert (found.tags, found.running, found.expires) == (("team",), True, False)
    assert paid(footprint("scp", "NodePool", {**SCP, "count": UNKNOWN})) == {"gpus on_demand": None}
    assert paid(footprint("scp", "GpuNode", SCP)) == {"gpus on_demand": 8}


def test_what_is_no_capacity_costs_nothing() -> None:
    assert (
        footprint("aios", "Cluster", {}) == footprint("lens", "HealthGate", {}) == ResourceUsage()
    )
