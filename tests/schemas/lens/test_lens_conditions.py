"""Conditions of health gates: what may be declared, and what of an overview they say is amiss."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_document import OVERVIEW

from gpuform.schemas.checking import check
from gpuform.schemas.lens.inputs import ConditionInputs, HealthGateInputs, amiss, numbers_of
from gpuform.schemas.lens.wire import Overview

SEEN = Overview.model_validate(OVERVIEW["data"])


def said(**condition: Any) -> str:
    return amiss(ConditionInputs.model_validate(condition), SEEN)


def test_the_numbers_are_those_of_the_overview() -> None:
    assert numbers_of(SEEN) == {
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
    }
    assert set(numbers_of(SEEN)) == set(ConditionInputs.model_fields)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"healthy_nodes": {"at_least": 9}}, ""),
        ({"healthy_nodes": {"at_least": 10}}, "healthyNodes=9 (wanted: at least 10)"),
        ({"faulty_nodes": {"at_most": 0}}, "faultyNodes=1 (wanted: at most 0)"),
        ({"active_port_rate": {"at_least": 0.95}}, ""),
        ({"utilization": {"at_most": 0.5}}, "utilization=0.62 (wanted: at most 0.5)"),
        (
            {"fully_idle_nodes": {"at_least": 4, "at_most": 6}, "busy_nodes": {"at_most": 1}},
            "fullyIdleNodes=3 (wanted: at least 4 and at most 6), busyNodes=2 (wanted: at most 1)",
        ),
    ],
)
def test_what_is_amiss_is_said_in_the_overview_s_words(condition: Any, expected: str) -> None:
    assert said(**condition) == expected


@pytest.mark.parametrize("name", ConditionInputs.model_fields)
def test_what_is_not_told_does_not_hold(name: str) -> None:
    condition = ConditionInputs.model_validate({name: {"at_most": 1}})
    assert "is not told" in amiss(condition, Overview())


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_a_number_is_right_between_its_bounds_alone(seen: int, least: int, most: int) -> None:
    bounds = {"at_least": least, "at_most": most}
    condition = ConditionInputs.model_validate({"busy_nodes": bounds})
    assert (not amiss(condition, Overview(busy_nodes=seen))) == (least <= seen <= most)


@pytest.mark.parametrize(
    ("inputs", "path", "part"),
    [
        ({}, "condition", "is required"),
        ({"condition": {}}, "condition", "is empty"),
        ({"condition": {"healthy_nodes": {}}}, "condition.healthy_nodes.at_least", "or at_most"),
        (
            {"condition": {"busy_nodes": {"at_least": 3, "at_most": 2}}},
            "condition.busy_nodes.at_least",
            "no number will do",
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
def test_what_is_refused_and_where(inputs: Any, path: str, part: str) -> None:
    found = {each.path: each.reason for each in check(HealthGateInputs, inputs)[1]}
    assert list(found) == [path]
    assert part in found[path]
