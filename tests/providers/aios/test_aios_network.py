"""Test that values written by the network give notices and no changes."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.platforms.aios_document import CLUSTER, DECLARED

from gpuform.providers.aios.cluster import ClusterLifecycle

ID = "cluster-west-vision-001"
PATH = f"/clusters/{ID}"
ALONE = {name: value for name, value in DECLARED.items() if name != "nodes"}


def list_news(before: Any, observed: Any) -> list[str]:
    return [notice.text for notice in ClusterLifecycle.hooks.find_observed_news(before, observed)]


def list_new_notices(cluster: Any) -> list[str]:
    before = cluster.state
    cluster.refresh()
    return list_news(before, cluster.state)


def test_a_changed_reputation_is_reported_once_and_plans_nothing(
    cluster: Any, registry: Any
) -> None:
    cluster.apply(DECLARED)
    assert list_new_notices(cluster) == []
    registry.send_request("PUT", PATH, {"$set": {"reputation": 97}})
    assert list_new_notices(cluster) == ["its reputation in the registry is now 97; it was 94"]
    assert cluster.list_planned_paths(DECLARED) == []
    assert cluster.state["reputation"] == 94
    assert cluster.state["network_reputation"] == 97
    assert list_new_notices(cluster) == []


def test_changed_totals_are_reported_and_plan_nothing(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.send_request("PUT", PATH, {"$set": {"storage.size": 1572865, "gpus.count": 7}})
    assert list_new_notices(cluster) == [
        "its gpus.count in the registry is now 7; it was 3",
        "its storage.size in the registry is now 1,572,865; it was 1,572,864",
    ]
    assert cluster.list_planned_paths(DECLARED) == []
    assert cluster.state["totals"]["gpus"] == 7
    assert cluster.state["totals_agree"] is False


def test_totals_are_corrected_with_the_next_change_of_nodes(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.send_request("PUT", PATH, {"$set": {"gpus.count": 7, "nodes.count": 9}})
    cluster.refresh()
    first = DECLARED["nodes"]["node_data"][0]
    cluster.apply({**DECLARED, "nodes": {"node_data": [first]}})
    record = registry.get_record(ID)
    assert (record["nodes"]["count"], record["gpus"]["count"]) == (1, 2)
    assert cluster.state["totals_agree"] is True


def test_an_import_declares_the_sums_of_a_record_with_wrong_totals(
    cluster: Any, registry: Any
) -> None:
    cluster.apply(DECLARED)
    registry.send_request("PUT", PATH, {"$set": {"gpus.count": 7, "nodes.count": 9, "memory": 5}})
    imported = cluster.lifecycle.read(ID, {})
    assert imported.inputs["nodes"]["count"] == 2
    assert cluster.check(imported.inputs)["gpus"] == {"count": 3, "memory": 49152}
    assert (imported.outs["totals"]["nodes"], imported.outs["totals_agree"]) == (9, False)


def test_totals_changed_by_other_resources_give_no_notice(cluster: Any, registry: Any) -> None:
    cluster.apply(ALONE)
    entry = copy.deepcopy(CLUSTER["nodes"]["nodeData"][1])
    sums = {
        "nodes.count": 1,
        "gpus": {"count": 1, "memory": 16384},
        "vcpus.count": 16,
        "memory": 65536,
        "swap": 4096,
        "storage": {"disks": 1, "size": 524288},
        "network": {"interfaces": 1, "txBandwidth": 5000, "rxBandwidth": 5000},
    }
    registry.send_request("PUT", PATH, {"$push": {"nodes.nodeData": entry}, "$set": sums})
    assert list_new_notices(cluster) == []
    assert cluster.state["totals"]["gpus"] == 1
    registry.send_request("PUT", PATH, {"$set": {"gpus.count": 5}})
    assert list_new_notices(cluster) == ["its gpus.count in the registry is now 5; it was 1"]


def test_states_without_totals_give_no_notice(cluster: Any) -> None:
    cluster.apply(DECLARED)
    new = ("network_reputation", "totals", "totals_agree")
    cluster.state = {name: value for name, value in cluster.state.items() if name not in new}
    assert cluster.list_planned_paths(DECLARED) == []
    assert list_new_notices(cluster) == []
    assert cluster.list_planned_paths(DECLARED) == []


@pytest.mark.parametrize("value", [None, 12])
def test_a_record_with_missing_or_other_values_is_read(
    cluster: Any, registry: Any, value: Any
) -> None:
    cluster.apply(DECLARED)
    change = {"$unset": {"reputation": "", "gpus": ""}} if value is None else None
    registry.send_request("PUT", PATH, change or {"$set": {"reputation": value}})
    assert cluster.refresh()
    assert cluster.list_planned_paths(DECLARED) == []


NAMES = st.sampled_from(
    [
        "onScaleUp",
        "on_failure",
        "On-Failure",
        "ID",
        "id",
        "x.y",
        "0",
        "a b",
        "nodeData",
        "node_data",
        "ä",
    ]
)
LEAVES = st.booleans() | st.integers(-(2**31), 2**31) | st.text("aZ_-. é", max_size=4)
POLICIES = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.sampled(1)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(POLICIES, POLICIES), min_size=1, max_size=3))
def test_policies_are_read_in_the_shape_they_were_sent(
    cluster: Any, registry: Any, given: Any
) -> None:
    """Keys belong to the user: no key is converted to camelCase or snake_case."""
    for policies, system in given:
        own = {"actions_policy_map": policies, "custom_policy_system": system}
        declared = {**DECLARED, "config": {**DECLARED["config"], **own}}
        cluster.apply(declared)
        config = registry.get_record(ID)["config"]
        assert (config["actionsPolicyMap"], config["customPolicySystem"]) == (policies, system)
        cluster.refresh()
        stored_config = cluster.state["config"]
        assert (stored_config["actions_policy_map"], stored_config["custom_policy_system"]) == (
            policies,
            system,
        )
        assert cluster.list_planned_paths(declared) == []
