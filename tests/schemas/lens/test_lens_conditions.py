"""Test the conditions of health gates: valid declarations, and violations by overviews."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.platforms.lens_document import HEATMAP, OVERVIEW

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.lens.conditions import collect_numbers, describe_violations, parse_terabytes
from gpuform.schemas.lens.inputs import ConditionInputs, HealthGateInputs
from gpuform.schemas.lens.wire import GpuHeatmap, Overview

SEEN = Overview.model_validate(OVERVIEW["data"])
HEAT = GpuHeatmap.model_validate(HEATMAP["data"])


def find_violations(**condition: Any) -> str:
    return describe_violations(ConditionInputs.model_validate(condition), SEEN, HEAT)


def test_conditions_have_exactly_the_numbers_of_the_overview() -> None:
    assert collect_numbers(SEEN, HEAT) == {
        "total_nodes": 10,
        "healthy_nodes": 9,
        "faulty_nodes": 1,
        "fully_idle_nodes": 3,
        "partially_idle_nodes": 4,
        "busy_nodes": 2,
        "active_ports": 76,
        "total_ports": 80,
        "healthy_node_rate": 0.9,
        "active_port_rate": 0.95,
        "allocation_rate": 0.75,
        "utilization": 0.62,
        "storage_utilization_rate": 0.45,
        "storage_total_tb": 1000,
        "storage_used_tb": 450,
        "storage_available_tb": 550,
        "rdma_bandwidth_gbps": 400,
        "max_temperature": 82.5,
        "max_power": 750.5,
    }
    assert set(collect_numbers(SEEN)) == set(ConditionInputs.model_fields)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"healthy_nodes": {"at_least": 9}}, ""),
        ({"healthy_nodes": {"at_least": 10}}, "healthyNodes=9 (wanted: at least 10)"),
        ({"faulty_nodes": {"at_most": 0}}, "faultyNodes=1 (wanted: at most 0)"),
        ({"active_port_rate": {"at_least": 0.95}}, ""),
        ({"storage_available_tb": {"at_least": 550}, "max_temperature": {"at_most": 82.5}}, ""),
        (
            {"storage_available_tb": {"at_least": 600}},
            "storageAvailableTb=550 (wanted: at least 600)",
        ),
        (
            {"max_temperature": {"at_most": 80}, "max_power": {"at_most": 750}},
            (
                "maxTemperature=82.5 on gpu-node-1 0 (wanted: at most 80), "
                "maxPower=750.5 on gpu-node-1 0 (wanted: at most 750)"
            ),
        ),
        ({"utilization": {"at_most": 0.5}}, "utilization=0.62 (wanted: at most 0.5)"),
        (
            {"fully_idle_nodes": {"at_least": 4, "at_most": 6}, "busy_nodes": {"at_most": 1}},
            "fullyIdleNodes=3 (wanted: at least 4 and at most 6), busyNodes=2 (wanted: at most 1)",
        ),
    ],
)
def test_violations_use_the_field_names_of_the_overview(condition: Any, expected: str) -> None:
    assert find_violations(**condition) == expected


@pytest.mark.parametrize("name", ConditionInputs.model_fields)
def test_a_missing_number_violates_its_bounds(name: str) -> None:
    condition = ConditionInputs.model_validate({name: {"at_most": 1}})
    assert "is not reported" in describe_violations(condition, Overview())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("450TB", 450),
        (" 1.5 PB ", 1500),
        ("500 GB", 0.5),
        ("1TiB", 1.099511627776),
        ("0TB", 0),
        ("0tb", None),
        ("550Tb", None),
        ("550tB", None),
        ("1Tib", None),
        ("", None),
        ("450", None),
        ("TB", None),
        ("-1TB", None),
        ("1,000TB", None),
        ("450 bananas", None),
        ("1TB of 2TB", None),
    ],
)
def test_sizes_are_parsed_with_their_units(text: str, size: float | None) -> None:
    assert parse_terabytes(text) == size


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(-0.1, "=-0.1 is impossible (wanted"), (1.01, "=1.01 is impossible (wanted")],
        *[(45, "=45 is impossible (wanted"), (float("nan"), " is not reported (wanted")],
        (float("inf"), " is not reported (wanted"),
    ],
)
def test_an_impossible_rate_violates_its_bounds(value: float, expected: str) -> None:
    overview = Overview.model_validate({"storageStat": {"utilizationRate": value}})
    for bounds in ({"at_most": 1}, {"at_least": 0}):
        condition = ConditionInputs.model_validate({"storage_utilization_rate": bounds})
        assert expected in describe_violations(condition, overview)


@pytest.mark.parametrize(
    "temperature",
    [
        {"unit": "℃", "data": []},
        {"unit": "℃"},
        {"unit": "℉", "data": [{"nodeName": "n", "value": 60}]},
        {"unit": "", "data": [{"nodeName": "n", "value": 60}]},
        {"unit": "℃", "data": [{"nodeName": "n", "value": 60}, {"nodeName": "m"}]},
        {"unit": "℃", "data": [{"nodeName": "n", "value": None}]},
        {"unit": "℃", "data": [{"nodeName": "n", "value": float("nan")}]},
    ],
)
def test_impossible_temperatures_violate_their_bounds(temperature: Any) -> None:
    condition = ConditionInputs.model_validate({"max_temperature": {"at_most": 90}})
    heatmap = GpuHeatmap.model_validate({"temperature": temperature})
    expected = "maxTemperature is not reported (wanted: at most 90)"
    assert describe_violations(condition, SEEN, heatmap) == expected
    assert describe_violations(condition, SEEN) == expected


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_only_a_number_within_its_bounds_is_no_violation(
    number: int, least: int, most: int
) -> None:
    bounds = {"at_least": least, "at_most": most}
    condition = ConditionInputs.model_validate({"busy_nodes": bounds})
    assert (not describe_violations(condition, Overview(busy_nodes=number))) == (
        least <= number <= most
    )


@pytest.mark.parametrize(
    ("inputs", "path", "part"),
    [
        ({}, "condition", "is required"),
        ({"condition": {}}, "condition", "is empty"),
        ({"condition": {"healthy_nodes": {}}}, "condition.healthy_nodes.at_least", "or at_most"),
        (
            {"condition": {"busy_nodes": {"at_least": 3, "at_most": 2}}},
            "condition.busy_nodes.at_least",
            "no number can meet both",
        ),
        (
            {"condition": {"utilization": {"at_most": 75}}},
            "condition.utilization.at_most",
            "the most is 1",
        ),
        (
            {"condition": {"idle": {"at_least": 1}, "busy_nodes": {"at_most": 2}}},
            "condition.idle",
            "is not known",
        ),
        (
            {"condition": {"busyNodes": {"at_least": 1}}},
            "condition.busyNodes",
            "did you mean busy_nodes",
        ),
        (
            {"condition": {"busy_nodes": {"at_most": 2}}, "wait_minutes": 0},
            "wait_minutes",
            "too small",
        ),
        (
            {"condition": {"busy_nodes": {"at_most": 2}}, "triggers": "x"},
            "triggers",
            "must be a list",
        ),
    ],
)
def test_invalid_inputs_are_reported_at_their_path(inputs: Any, path: str, part: str) -> None:
    reasons = {
        problem.path: problem.reason for problem in validate_inputs(HealthGateInputs, inputs)[1]
    }
    assert list(reasons) == [path]
    assert part in reasons[path]
