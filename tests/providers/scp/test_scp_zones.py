"""Test pools and nodes with API 1.3, which has availability zones, beside 1.2, which has none."""

from dataclasses import replace
from typing import Any

import pytest

from gpuform.providers.emulator.scp import access
from gpuform.providers.emulator.scp.catalogue import POOLS
from gpuform.providers.emulator.scp.nodes import GpuNode
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.scp import inventory, offers
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


def report_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """Let the emulator report `zone` for all nodes of the vendor pool that the tests use."""
    vendor_pool = POOLS["POOL001-krw1a"]
    monkeypatch.setitem(POOLS, vendor_pool.pool_id, replace(vendor_pool, zone=zone))


def list_zone_warnings(environment: Any) -> list[str]:
    """Return the warnings about a zone of a node that differs from the stored one."""
    return [message for message in environment.messages if "keeps the stored zone" in message]


CONTRADICTIONS = pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("-", "no zone"),
        ("", "no zone"),
        ("KR-WEST1-A", "KR-WEST1-A"),
        (OTHER_ZONE, OTHER_ZONE),
    ],
)


class TestContradictedZone:
    @CONTRADICTIONS
    def test_a_pool_keeps_the_stored_zones_with_one_warning(
        self,
        newer: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        reported: str,
        shown: str,
    ) -> None:
        declared = {**pool_inputs, "zone": ZONE}
        pool = newer.create("NodePool", declared)
        report_zone(monkeypatch, reported)

        refreshed = newer.refresh(pool)

        assert [node["zone"] for node in refreshed.nodes.values()] == [ZONE] * 3
        assert newer.list_changes(refreshed) == {}
        (warning,) = list_zone_warnings(newer)
        for name in ("train-001", "train-002", "train-003"):
            assert f"{name} (stored {ZONE}, reported {shown})" in warning

    @CONTRADICTIONS
    def test_nodes_declared_by_name_keep_the_stored_zones(
        self,
        newer: Any,
        pool_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        reported: str,
        shown: str,
    ) -> None:
        declared = {key: value for key, value in pool_inputs.items() if key != "count"}
        declared |= {"nodes": {"a": {"zone": ZONE}, "b": {"zone": ZONE}}}
        pool = newer.create("NodePool", declared)
        report_zone(monkeypatch, reported)

        refreshed = newer.refresh(pool)

        assert [node["zone"] for node in refreshed.outs["nodes"].values()] == [ZONE] * 2
        assert newer.list_changes(refreshed) == {}

    def test_an_update_of_a_pool_replaces_no_node(
        self, newer: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        declared = {**pool_inputs, "zone": ZONE}
        pool = newer.create("NodePool", declared)
        report_zone(monkeypatch, OTHER_ZONE)
        newer.count_writes()

        updated = newer.update(pool, {**declared, "lock_enabled": True})

        assert newer.count_writes() == {"PUT /v1/gpu-nodes/*/lock": 3}
        assert updated.outs["ready"] is True
        assert updated.outs["node_ids"] == pool.outs["node_ids"]
        assert len(list_zone_warnings(newer)) == 1

    @CONTRADICTIONS
    def test_a_single_node_keeps_the_stored_zone_with_one_warning(
        self,
        newer: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        reported: str,
        shown: str,
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        fabric_id = pool.outs["cluster_fabric_id"]
        declared = {**node_inputs, "zone": ZONE, "cluster_fabric_id": fabric_id}
        node = newer.create("GpuNode", declared, "node")
        report_zone(monkeypatch, reported)

        refreshed = newer.refresh(node)

        assert refreshed.outs["zone"] == ZONE
        assert newer.diff(refreshed, declared) == []
        assert newer.list_changes(refreshed) == {}
        assert newer.diff(refreshed, {**declared, "zone": OTHER_ZONE}) == ["zone"]
        (warning,) = list_zone_warnings(newer)
        assert f"solo (stored {ZONE}, reported {shown})" in warning

    def test_an_update_of_a_single_node_goes_through(
        self,
        newer: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        fabric_id = pool.outs["cluster_fabric_id"]
        declared = {**node_inputs, "zone": ZONE, "cluster_fabric_id": fabric_id}
        node = newer.create("GpuNode", declared, "node")
        report_zone(monkeypatch, OTHER_ZONE)

        updated = newer.update(node, {**declared, "lock_enabled": True})

        assert updated.outs["lock_enabled"] is True
        assert updated.outs["zone"] == ZONE
        assert len(list_zone_warnings(newer)) == 1

    def test_a_placeholder_of_a_new_node_is_no_zone(
        self, newer: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        report_zone(monkeypatch, "-")
        inputs, imported = newer.import_object("NodePool", pool.id)
        assert "zone" not in inputs
        assert ["zone" in node for node in imported.nodes.values()] == [False] * 3


class TestDefaultVersion:
    def test_a_zone_in_an_answer_is_ignored(
        self, environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        to_json = GpuNode.to_json
        monkeypatch.setattr(
            GpuNode, "to_json", lambda node, now, **_: to_json(node, now, with_zone=True)
        )
        pool = environment.create("NodePool", pool_inputs)
        assert ["zone" in node for node in environment.refresh(pool).nodes.values()] == [False] * 3
        assert {node.zone for node in inventory.gpu_nodes()} == {""}
        assert environment.client.get_node(pool.outs["node_ids"][0]).zone == ""

    def test_the_stored_zones_of_a_pool_stay_without_a_warning(
        self, newer: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        monkeypatch.delenv("SCP_API_VERSION")
        refreshed = newer.refresh(pool)
        assert [node["zone"] for node in refreshed.nodes.values()] == [ZONE] * 3
        assert list_zone_warnings(newer) == []

    def test_a_single_node_goes_back_to_the_default_version_without_its_zone(
        self,
        newer: Any,
        pool_inputs: Properties,
        node_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        declared = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
        node = newer.create("GpuNode", {**declared, "zone": ZONE}, "node")
        monkeypatch.delenv("SCP_API_VERSION")
        for stored in (node, newer.refresh(node)):
            assert newer.diff(stored, declared) == []
        assert list_zone_warnings(newer) == []


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
        placement = NodePoolLifecycle.hooks.get_placement(pool.outs)
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
        placement = GpuNodeLifecycle.hooks.get_placement(imported.outs)
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
        assert {node.zone for node in inventory.gpu_nodes(zone=ZONE)} == {ZONE}
        assert inventory.gpu_nodes(zone=OTHER_ZONE) == []

    def test_pools_are_those_of_a_fabric_or_of_a_subnet_in_a_zone(
        self, newer: Any, pool_inputs: Properties
    ) -> None:
        pool = newer.create("NodePool", {**pool_inputs, "zone": ZONE})
        for filters in (
            {"subnet_id": SUBNET, "zone": OTHER_ZONE},
            {"cluster_fabric_id": pool.outs["cluster_fabric_id"]},
        ):
            (vendor_pool,) = inventory.node_pools(**filters)
            expected = OTHER_POOL if "zone" in filters else "POOL001-krw1a"
            assert vendor_pool.node_pool_id == expected
        newer.count_requests()
        for filters in ({}, {"subnet_id": SUBNET}, {"zone": ZONE}, {"node_pool_id": OTHER_POOL}):
            with pytest.raises(GpuformError, match="only the pools of a fabric, or of a subnet"):
                inventory.node_pools(**filters)
        assert newer.count_requests() == {}

    def test_a_zone_is_refused_with_the_default_version(self, environment: Any) -> None:
        for look in (inventory.gpu_nodes, inventory.node_pools):
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
            zones.append({node.zone for node in inventory.gpu_nodes()})
        assert zones == [{""}, {ZONE}, {""}]

    def test_another_version_is_refused_before_anything_is_sent(
        self, environment: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SCP_API_VERSION", "1.4")
        with pytest.raises(GpuformError, match=r"does not support version 1\.4") as caught:
            inventory.products()
        assert caught.value.hint == "set scp:apiVersion or SCP_API_VERSION to 1.2 or 1.3"
        assert environment.count_requests() == {}

    def test_a_server_without_the_chosen_version_names_the_other_one(
        self, newer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known_versions = tuple(item for item in access.VERSIONS if item.number != "1.3")
        monkeypatch.setattr(access, "VERSIONS", known_versions)
        with pytest.raises(GpuformError, match=r"multinodegpucluster 1\.3") as caught:
            newer.client.list_nodes()
        assert caught.value.hint == (
            "if this address has no version 1.3 of SCP's API, set scp:apiVersion to 1.2"
        )

    def test_another_refusal_does_not_blame_the_version(self, newer: Any) -> None:
        body = {"errors": [{"detail": "this API version knows no subnet 10.1.3.0/24"}]}
        newer.inject_fault("GET", "^/v1/gpu-nodes$", status=400, body=body)
        with pytest.raises(GpuformError) as caught:
            newer.client.list_nodes()
        assert caught.value.hint is None
