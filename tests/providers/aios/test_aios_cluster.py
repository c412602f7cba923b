"""Test a cluster's record: requests, failures, and differences that are no change."""

import copy
from typing import Any

import pytest
from aios_document import CLUSTER, DECLARED, typed, without_mongo

from gpuform.providers.aios.client import get_client
from gpuform.providers.context import use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings

ID = "cluster-west-vision-001"
PATH = f"/clusters/{ID}"


def with_nodes(*entries: Any) -> Any:
    return {**DECLARED, "nodes": {"node_data": list(entries)}}


FIRST, SECOND = DECLARED["nodes"]["node_data"]
THIRD = {**copy.deepcopy(SECOND), "id": "node-3"}


def test_the_parser_creates_the_documents_example(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    ((method, path, body),) = registry.writes()
    assert (method, path) == ("POST", "/api/createCluster")
    assert body["header"] == {"templateUri": "Parser/V1", "parameters": {}}
    sent = copy.deepcopy(CLUSTER)
    del sent["status"], sent["config"]["urlMap"]
    assert typed(body["body"]["spec"]["values"]) == typed(sent)
    assert typed(without_mongo(registry.record(ID))) == typed(CLUSTER)
    assert cluster.id == ID
    assert cluster.state["ready"] is True
    assert cluster.state["status"] == "live"
    assert cluster.state["url_map"]["parameter_updater"].endswith(":32000/mgmt")


def test_create_mode_direct_creates_the_record_in_the_registry(cluster: Any, registry: Any) -> None:
    cluster.up({**DECLARED, "create_mode": "direct", "status": "onboarding"})
    ((method, path, body),) = registry.writes()
    assert (method, path, body["status"]) == ("POST", "/clusters", "onboarding")
    assert "createMode" not in body
    assert cluster.state["ready"] is True
    assert cluster.planned({**DECLARED, "status": "onboarding"}) == []


def test_a_status_that_the_parser_drops_is_set_afterwards(cluster: Any, registry: Any) -> None:
    cluster.up({**DECLARED, "status": "maintenance"})
    assert registry.writes()[1] == ("PUT", PATH, {"$set": {"status": "maintenance"}})
    assert cluster.state["ready"] is True
    assert cluster.state["status"] == "maintenance"
    cluster.refresh()
    assert cluster.state["ready"] is True


def test_a_record_without_a_status_is_ready_at_once(cluster: Any, registry: Any) -> None:
    registry.set(keeps_status=False)
    declared = {**DECLARED, "status": "maintenance"}
    cluster.up(declared)
    assert cluster.state["ready"] is True
    assert len(registry.writes()) == 1
    assert cluster.planned(declared) == []


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({"tags": ["gpu", "updated"]}, {"$set": {"tags": ["gpu", "updated"]}}),
        ({"reputation": 97}, {"$set": {"reputation": 97}}),
        ({"region_id": "eu"}, {"$set": {"regionId": "eu"}}),
        ({"status": "maintenance"}, {"$set": {"status": "maintenance"}}),
        (
            {"config": {**DECLARED["config"], "use_gateway": False}},
            {"$set": {"config.useGateway": False}},
        ),
        (
            {
                "config": {
                    **DECLARED["config"],
                    "actions_policy_map": {"onFailure": "restart", "onScaleUp.v2": "x"},
                }
            },
            {"$set": {"config.actionsPolicyMap": {"onFailure": "restart", "onScaleUp.v2": "x"}}},
        ),
        (
            {
                "config": {
                    **DECLARED["config"],
                    "custom_policy_system": {"name": "AdvancedPolicyRunner", "replicas": 2.0},
                }
            },
            {
                "$set": {"config.customPolicySystem.replicas": 2},
                "$unset": {"config.customPolicySystem.version": ""},
            },
        ),
        (
            {"config": {"public_hostname": "cluster-west-vision-001.company.net"}},
            {"$set": {"config.policyExecutorId": ""}},
        ),
        (
            {"cluster_metadata": {**DECLARED["cluster_metadata"], "owner": "Me"}},
            {"$set": {"clusterMetadata.owner": "Me"}},
        ),
    ],
)
def test_only_the_changed_paths_are_sent(
    cluster: Any, registry: Any, changes: Any, body: Any
) -> None:
    cluster.up(DECLARED)
    registry.writes()
    changed = {**DECLARED, **changes}
    assert cluster.up(changed)
    assert registry.writes() == [("PUT", PATH, body)]
    assert cluster.planned(changed) == []
    cluster.refresh()
    assert cluster.planned(changed) == []


def test_another_order_of_tags_or_countries_is_no_change(cluster: Any) -> None:
    cluster.up(DECLARED)
    metadata = {**DECLARED["cluster_metadata"], "countries": ["Canada", "USA"]}
    tags = list(reversed(DECLARED["tags"]))
    assert cluster.planned({**DECLARED, "tags": tags, "cluster_metadata": metadata}) == []


def test_an_added_node_is_sent_with_the_new_sums(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.writes()
    assert 'nodes.node_data["node-3"]' in cluster.up(with_nodes(FIRST, SECOND, THIRD))
    ((_, _, body),) = registry.writes()
    assert body["$addToSet"]["nodes.nodeData"]["id"] == "node-3"
    assert body["$set"]["nodes.count"] == 3
    assert body["$set"]["gpus.count"] == 4
    assert set(body) == {"$addToSet", "$set"}
    record = registry.record(ID)
    assert [each["id"] for each in record["nodes"]["nodeData"]] == ["node-1", "node-2", "node-3"]
    assert record["storage"] == {"disks": 4, "size": 2097152}


def test_a_removed_node_is_pulled_with_the_new_sums(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.writes()
    object_id = registry.record(ID)["nodes"]["nodeData"][0]["_id"]
    cluster.up(with_nodes(SECOND))
    ((_, _, body),) = registry.writes()
    assert body["$pull"] == {"nodes.nodeData": {"id": "node-1", "_id": object_id}}
    assert registry.record(ID)["vcpus"] == {"count": 16}


def test_a_changed_node_is_set_in_its_place(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.writes()
    planned = cluster.up(with_nodes(FIRST, {**SECOND, "memory": 65537}))
    assert planned == ['nodes.node_data["node-2"].memory', "memory"]
    body = {"$set": {"nodes.nodeData.1.memory": 65537, "memory": 196609}}
    assert registry.writes() == [("PUT", PATH, body)]


def test_changed_removed_and_added_nodes_take_four_updates(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.writes()
    changed = with_nodes({**SECOND, "swap": 1}, THIRD)
    cluster.up({**changed, "tags": []})
    bodies = [body for _, _, body in registry.writes()]
    changed_alone, *with_sums = bodies
    assert changed_alone == {"$set": {"tags": []}}
    assert with_sums[0] == {"$set": {"nodes.nodeData.1.swap": 1, "swap": 8193}}
    assert [set(body) for body in with_sums[1:]] == [{"$pull", "$set"}, {"$addToSet", "$set"}]
    record = registry.record(ID)
    assert [each["id"] for each in record["nodes"]["nodeData"]] == ["node-2", "node-3"]
    assert record["swap"] == 4097
    assert cluster.planned({**changed, "tags": []}) == []


def test_values_added_by_mongo_and_the_system_are_no_change(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    own = {"reputation": 12, "config.urlMap.blocksQuery": "http://elsewhere"}
    registry.ask("PUT", PATH, {"$set": own})
    cluster.refresh()
    assert cluster.planned(DECLARED) == []
    assert cluster.state["url_map"]["blocks_query"] == "http://elsewhere"


def test_a_node_added_by_somebody_else_is_reported_and_kept(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    entry = {**copy.deepcopy(CLUSTER["nodes"]["nodeData"][0]), "id": "theirs"}
    registry.ask("PUT", PATH, {"$push": {"nodes.nodeData": entry}})
    cluster.refresh()
    assert registry.warnings == [
        f"cluster {ID}: somebody else has added theirs to its nodes: no plan removes them"
    ]
    assert cluster.planned(DECLARED) == []
    with use_context(registry.call(cluster.name)):
        assert cluster.lifecycle.find_foreign_objects(ID, cluster.state) == ["theirs"]


def test_undeclared_nodes_stay_unchanged(cluster: Any, registry: Any) -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    cluster.up(alone)
    entry = CLUSTER["nodes"]["nodeData"][0]
    registry.ask("PUT", PATH, {"$push": {"nodes.nodeData": entry}, "$set": {"gpus.count": 2}})
    cluster.refresh()
    assert cluster.planned(alone) == []
    cluster.up({**alone, "tags": ["x"]})
    assert registry.record(ID)["gpus"]["count"] == 2


def test_a_cluster_can_declare_the_existing_nodes_of_its_record(
    cluster: Any, registry: Any
) -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    cluster.up(alone)
    entry = {**CLUSTER["nodes"]["nodeData"][0], "swap": 1}
    theirs = {"$push": {"nodes.nodeData": entry}, "$set": {"nodes.count": 1}}
    registry.ask("PUT", PATH, theirs)
    registry.writes()
    cluster.up(DECLARED)
    bodies = [body for _, _, body in registry.writes()]
    assert bodies[0]["$set"]["nodes.nodeData.0.swap"] == 8192
    assert bodies[1]["$addToSet"]["nodes.nodeData"]["id"] == "node-2"
    assert typed(without_mongo(registry.record(ID))) == typed(CLUSTER)
    cluster.refresh()
    assert cluster.planned(DECLARED) == []


def test_a_failure_of_the_parser_in_an_answer_of_200_is_an_error(
    cluster: Any, registry: Any
) -> None:
    registry.set(parser_failure="the gateway has no template")
    with pytest.raises(GpuformError, match="the gateway has no template"):
        cluster.up(DECLARED)
    assert registry.intents.list_all()
    registry.set(parser_failure=None)
    cluster.up(DECLARED)
    assert cluster.state["ready"] is True


@pytest.mark.parametrize("mode", ["parser", "direct"])
def test_a_refused_document_leaves_no_record_of_the_create(
    cluster: Any, registry: Any, mode: str
) -> None:
    metadata = {**DECLARED["cluster_metadata"], "owner": ""}
    declared = {**DECLARED, "cluster_metadata": metadata, "create_mode": mode}
    with pytest.raises(GpuformError, match=r"`clusterMetadata\.owner` is required"):
        cluster.up(declared)
    assert registry.intents.list_all() == []


def test_a_record_created_by_others_at_the_same_moment_is_not_adopted(
    cluster: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is between our look and our create: the registry refuses the second one."""
    client = get_client(Settings())
    create = client.create_by_parser

    def late(document: Any) -> Any:
        registry.ask("POST", "/clusters", CLUSTER)
        return create(document)

    monkeypatch.setattr(client, "create_by_parser", late)
    with pytest.raises(GpuformError, match="duplicate key"):
        cluster.up(DECLARED)
    assert registry.intents.list_all() == []
    with pytest.raises(GpuformError, match="this project has no record of creating it"):
        cluster.up(DECLARED)


def test_a_lost_answer_is_found_again(cluster: Any, registry: Any) -> None:
    registry.fault("POST", "/api/createCluster", drop="after")
    cluster.up(DECLARED)
    assert cluster.id == ID
    assert len([each for each in registry.writes() if each[0] == "POST"]) == 1


def test_a_push_whose_answer_is_lost_is_not_repeated(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.fault("PUT", PATH, drop="after")
    cluster.up(with_nodes(FIRST, SECOND, THIRD))
    ids = [each["id"] for each in registry.record(ID)["nodes"]["nodeData"]]
    assert ids == ["node-1", "node-2", "node-3"]


def test_a_record_is_ready_with_the_declared_status(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    registry.ask("PUT", PATH, {"$set": {"status": "down"}})
    cluster.refresh()
    assert cluster.state["ready"] is False
    assert cluster.state["not_ready_reason"] == "its status is down"
    assert cluster.planned(DECLARED) == ["ready"]


def test_the_plan_of_a_deletion_says_that_the_hardware_stays(cluster: Any, registry: Any) -> None:
    cluster.up(DECLARED)
    with use_context(registry.call()):
        cluster.lifecycle.check_deletion(cluster.state)
    assert "the hardware goes on existing" in registry.warnings[0]
    cluster.delete()
    assert registry.ask("GET", PATH).status_code == 404
    cluster.delete()
    assert cluster.refresh() is False


def test_special_characters_in_an_id_are_quoted_in_the_path(cluster: Any, registry: Any) -> None:
    cluster.up({**DECLARED, "cluster_id": "west ?#%2F&+"})
    assert cluster.refresh() is True
    cluster.delete()
    assert registry.ask("POST", "/clusters/query", {}).json() == []
