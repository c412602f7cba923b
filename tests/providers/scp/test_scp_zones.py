"""Test pools and nodes with API 1.3, which has availability zones, beside 1.2, which has none."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.scp import lookups, offers
from gpuform.providers.scp.client import get_client
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]

ZONE = "kr-west1-a"
OTHER_ZONE = "kr-west1-b"
OTHER_POOL = "POOL002-krw1b"
SUBNET = "ab313c43291e4b678f4bacffe10768ae"


@pytest.fixture(autouse=True)
def no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin every test with the default version."""
    monkeypatch.delenv("SCP_API_VERSION", raising=False)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, environment: Any) -> Any:
    """Return the environment with API 1.3."""
    monkeypatch.setenv("SCP_API_VERSION", "1.3")
    return environment


def list_sent_zones(environment: Any) -> list[str | None]:
    """Return the zones of all servers that were asked for."""
    return [
        server.get("zone")
        for request in environment.call_emulator("GET", "requests")
        if (request["method"], request["path"]) == ("POST", "/v1/gpu-nodes")
        for server in request["body"]["server_details"]
    ]


class TestPool:
    def test_every_server_is_asked_for_in_the_zone_and_shows_it(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        assert list_sent_zones(newer) == [ZONE] * 3
        assert [node["zone"] for node in pool.nodes.values()] == [ZONE] * 3
        assert newer.list_changes(newer.refresh(pool)) == {}

    def test_a_pool_without_a_zone_is_refused_before_anything_is_sent(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        (problem,) = newer.find_problems("NodePool", pool_inputs).items()
        assert problem[0] == "zone"
        assert "required by version 1.3" in problem[1]

    def test_zones_of_all_single_nodes_are_enough(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        declared = {key: value for key, value in pool_inputs.items() if key != "count"}
        nodes = {"a": {"zone": ZONE}, "b": {"zone": ZONE}}
        pool = newer.create("NodePool", {**declared, "nodes": nodes})
        assert list_sent_zones(newer) == [ZONE, ZONE]
        assert newer.list_changes(newer.refresh(pool)) == {}
        nodes["b"] = {}
        assert set(newer.find_problems("NodePool", {**declared, "nodes": nodes})) == {"zone"}

    def test_a_zone_is_refused_with_the_default_version(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        problems = environment.find_problems("NodePool", {**pool_inputs, "zone": ZONE})
        assert "needs version 1.3 of SCP's API: set scp:apiVersion" in problems["zone"]
        pool = environment.create("NodePool", pool_inputs)
        assert list_sent_zones(environment) == [None] * 3
        assert ["zone" in node for node in pool.nodes.values()] == [False] * 3

    @pytest.mark.parametrize("version", ["1.2", "1.3"])
    @pytest.mark.parametrize(
        "unknown",
        [{"nodes": UNKNOWN}, {"nodes": {"a": UNKNOWN}}, {"zone": UNKNOWN, "count": 2}],
        ids=str,
    )
    def test_unknown_zones_are_no_problem(
        self, environment: Any, monkeypatch: pytest.MonkeyPatch, unknown: Properties, version: str
    ) -> None:
        monkeypatch.setenv("SCP_API_VERSION", version)
        assert list(offers.find_zone_problems(environment.client, unknown)) == []

    def test_a_vendor_pool_of_another_zone_is_a_problem_of_the_plan(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        problems = newer.find_problems("NodePool", {**pool_inputs, "zone": OTHER_ZONE})
        assert problems.keys() == {"node_pool_id"}
        assert f"in zone {OTHER_ZONE}: did you mean {OTHER_POOL}?" in problems["node_pool_id"]

    def test_a_pool_of_the_default_version_takes_over_its_zone_without_a_request(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        ids = pool.outs["node_ids"]
        monkeypatch.setenv("SCP_API_VERSION", "1.3")
        declared = {**pool_inputs, "zone": ZONE}
        for stored in (pool, environment.refresh(pool)):
            assert environment.list_changes(stored, declared) == {"zone": (None, ZONE)}
            assert environment.diff(stored, declared) == []
        environment.count_writes()
        pool = environment.update(pool, declared)
        assert environment.count_writes() == {}
        assert pool.outs["node_ids"] == ids
        assert environment.list_changes(pool) == {}

    @pytest.mark.parametrize("rollout", [{}, {"rollout": {}}], ids=str)
    def test_nodes_are_not_replaced_for_a_zone_that_no_plan_has_shown(
        self,
        environment: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        rollout: Properties,
    ) -> None:
        pool = environment.create("NodePool", {**pool_inputs, **rollout})
        monkeypatch.setenv("SCP_API_VERSION", "1.3")
        moved = {**pool_inputs, **rollout, "zone": OTHER_ZONE}
        assert environment.list_changes(pool, moved) == {"zone": (None, OTHER_ZONE)}
        environment.count_writes()
        refused = environment.update(pool, moved)
        assert f"zone: train-001 is in {ZONE}, " in refused.reason
        assert environment.count_writes() == {}
        for stored in (refused, environment.refresh(pool)):
            changes = environment.list_changes(stored, moved)
            assert (ZONE, OTHER_ZONE) in changes.values()

    def test_a_pool_goes_back_to_the_default_version_without_its_zone(
        self, newer: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        monkeypatch.delenv("SCP_API_VERSION")
        assert newer.find_problems("NodePool", pool_inputs, pool) == {}
        for stored in (pool, newer.refresh(pool)):
            assert newer.list_changes(stored, pool_inputs) == {}

    def test_the_plan_of_another_zone_replaces_the_nodes_one_by_one(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        moved = {**pool_inputs, "zone": OTHER_ZONE}
        assert newer.list_changes(pool, moved) == {"zone": (ZONE, OTHER_ZONE)}
        assert newer.diff(pool, moved) == []

    def test_an_import_declares_the_zone(self, newer: Any, pool_inputs: Properties) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        inputs, _ = newer.import_object("NodePool", pool.id)
        assert (inputs["zone"], inputs["count"]) == (ZONE, 3)

    def test_the_placement_has_the_zone(self, newer: Any, pool_inputs: Properties) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        placement = NodePoolLifecycle.get_placement(pool.outs)
        assert placement is not None
        assert {node.zone for node in placement.nodes} == {ZONE}


class TestNode:
    def test_a_node_is_asked_for_in_its_zone_and_shows_it(
        self, newer: Any, pool_inputs: Properties, node_inputs: Properties
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        declared = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        assert set(newer.find_problems("GpuNode", declared)) == {"zone"}
        node = newer.create("GpuNode", {**declared, "zone": ZONE}, "node")
        assert list_sent_zones(newer) == [ZONE] * 4
        assert node.outs["zone"] == ZONE
        assert newer.list_changes(newer.refresh(node), {**declared, "zone": ZONE}) == {}
        assert newer.diff(node, {**declared, "zone": OTHER_ZONE}) == ["zone"]
        inputs, imported = newer.import_object("GpuNode", node.id)
        assert inputs["zone"] == ZONE
        placement = GpuNodeLifecycle.get_placement(imported.outs)
        assert placement is not None
        assert [placed.zone for placed in placement.nodes] == [ZONE]

    def test_a_node_of_the_default_version_is_not_replaced_by_its_zone(
        self,
        environment: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        declared = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        node = environment.create("GpuNode", declared, "node")
        monkeypatch.setenv("SCP_API_VERSION", "1.3")
        for stored in (node, environment.refresh(node)):
            assert environment.diff(stored, {**declared, "zone": ZONE}) == []
        environment.count_writes()
        with pytest.raises(GpuformError, match=f"zone: GPU node solo is in {ZONE}"):
            environment.update(node, {**declared, "zone": OTHER_ZONE})
        node = environment.update(node, {**declared, "zone": ZONE})
        assert environment.count_writes() == {}
        assert node.outs["zone"] == ZONE
        assert environment.list_changes(environment.refresh(node)) == {}


class TestLookups:
    def test_nodes_are_filtered_by_their_zone(self, newer: Any, pool_inputs: Properties) -> None:
        newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        assert {node.zone for node in lookups.gpu_nodes(zone=ZONE)} == {ZONE}
        assert lookups.gpu_nodes(zone=OTHER_ZONE) == []

    def test_pools_are_those_of_a_fabric_or_of_a_subnet_in_a_zone(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        for filters in (
            {"subnet_id": SUBNET, "zone": OTHER_ZONE},
            {"cluster_fabric_id": pool.outs["cluster_fabric_id"]},
        ):
            (vendor_pool,) = lookups.node_pools(**filters)
            expected = OTHER_POOL if "zone" in filters else "POOL001-krw1a"
            assert vendor_pool.node_pool_id == expected
        newer.count_requests()
        for filters in ({}, {"subnet_id": SUBNET}, {"zone": ZONE}, {"node_pool_id": OTHER_POOL}):
            with pytest.raises(GpuformError, match="only the pools of a fabric, or of a subnet"):
                lookups.node_pools(**filters)
        assert newer.count_requests() == {}

    def test_a_zone_is_refused_with_the_default_version(self, environment: Any) -> None:
        for look in (lookups.gpu_nodes, lookups.node_pools):
            with pytest.raises(GpuformError, match=r"version 1\.2 of SCP's API has no zones"):
                look(zone=ZONE)
        assert environment.count_requests() == {}


class TestSetting:
    def test_the_configuration_of_the_stack_chooses_the_version(self, environment: Any) -> None:
        def has_zones(version: str | None) -> bool:
            return get_client(Settings(config={"scp:apiVersion": version}.get)).has_zones

        assert [has_zones(version) for version in (None, "1.2", "1.3")] == [False, False, True]

    def test_clients_of_two_versions_do_not_share_answers(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environment.create("NodePool", pool_inputs)
        zones = []
        for version in ("1.2", "1.3", "1.2"):
            monkeypatch.setenv("SCP_API_VERSION", version)
            zones.append({node.zone for node in lookups.gpu_nodes()})
        assert zones == [{""}, {ZONE}, {""}]

    def test_another_version_is_refused_before_anything_is_sent(
        self, environment: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SCP_API_VERSION", "1.4")
        with pytest.raises(GpuformError, match=r"does not support version 1\.4") as caught:
            lookups.products()
        assert caught.value.hint == "set scp:apiVersion or SCP_API_VERSION to 1.2 or 1.3"
        assert environment.count_requests() == {}
