"""Test a cluster's record: requests, failures, and differences that are no change."""

import copy
from typing import Any

import pytest
from support.platforms.aios_document import CLUSTER, DECLARED, pair_with_types, remove_mongo_keys

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
    cluster.apply(DECLARED)
    ((method, path, body),) = registry.list_writes()
    assert (method, path) == ("POST", "/api/createCluster")
    assert body["header"] == {"templateUri": "Parser/V1", "parameters": {}}
    sent = copy.deepcopy(CLUSTER)
    del sent["status"], sent["config"]["urlMap"]
    assert pair_with_types(body["body"]["spec"]["values"]) == pair_with_types(sent)
    assert pair_with_types(remove_mongo_keys(registry.get_record(ID))) == pair_with_types(CLUSTER)
    assert cluster.id == ID
    assert cluster.state["ready"] is True
    assert cluster.state["status"] == "live"
    assert cluster.state["url_map"]["parameter_updater"].endswith(":32000/mgmt")


def test_create_mode_direct_creates_the_record_in_the_registry(cluster: Any, registry: Any) -> None:
    cluster.apply({**DECLARED, "create_mode": "direct", "status": "onboarding"})
    ((method, path, body),) = registry.list_writes()
    assert (method, path, body["status"]) == ("POST", "/clusters", "onboarding")
    assert "createMode" not in body
    assert cluster.state["ready"] is True
    assert cluster.list_planned_paths({**DECLARED, "status": "onboarding"}) == []


def test_a_status_that_the_parser_drops_is_set_afterwards(cluster: Any, registry: Any) -> None:
    cluster.apply({**DECLARED, "status": "maintenance"})
    assert registry.list_writes()[1] == ("PUT", PATH, {"$set": {"status": "maintenance"}})
    assert cluster.state["ready"] is True
    assert cluster.state["status"] == "maintenance"
    cluster.refresh()
    assert cluster.state["ready"] is True


def test_a_record_without_a_status_is_ready_at_once(cluster: Any, registry: Any) -> None:
    registry.configure(keeps_status=False)
    declared = {**DECLARED, "status": "maintenance"}
    cluster.apply(declared)
    assert cluster.state["ready"] is True
    assert len(registry.list_writes()) == 1
    assert cluster.list_planned_paths(declared) == []


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
    cluster.apply(DECLARED)
    registry.list_writes()
    changed = {**DECLARED, **changes}
    assert cluster.apply(changed)
    assert registry.list_writes() == [("PUT", PATH, body)]
    assert cluster.list_planned_paths(changed) == []
    cluster.refresh()
    assert cluster.list_planned_paths(changed) == []


def test_another_order_of_tags_or_countries_is_no_change(cluster: Any) -> None:
    cluster.apply(DECLARED)
    metadata = {**DECLARED["cluster_metadata"], "countries": ["Canada", "USA"]}
    tags = list(reversed(DECLARED["tags"]))
    assert (
        cluster.list_planned_paths({**DECLARED, "tags": tags, "cluster_metadata": metadata}) == []
    )


def test_an_added_node_is_sent_with_the_new_sums(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.list_writes()
    assert 'nodes.node_data["node-3"]' in cluster.apply(with_nodes(FIRST, SECOND, THIRD))
    ((_, _, body),) = registry.list_writes()
    assert body["$addToSet"]["nodes.nodeData"]["id"] == "node-3"
    assert body["$set"]["nodes.count"] == 3
    assert body["$set"]["gpus.count"] == 4
    assert set(body) == {"$addToSet", "$set"}
    record = registry.get_record(ID)
    assert [entry["id"] for entry in record["nodes"]["nodeData"]] == ["node-1", "node-2", "node-3"]
    assert record["storage"] == {"disks": 4, "size": 2097152}


def test_a_removed_node_is_pulled_with_the_new_sums(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.list_writes()
    object_id = registry.get_record(ID)["nodes"]["nodeData"][0]["_id"]
    cluster.apply(with_nodes(SECOND))
    ((_, _, body),) = registry.list_writes()
    assert body["$pull"] == {"nodes.nodeData": {"id": "node-1", "_id": object_id}}
    assert registry.get_record(ID)["vcpus"] == {"count": 16}


def test_a_changed_node_is_set_in_its_place(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.list_writes()
    planned = cluster.apply(with_nodes(FIRST, {**SECOND, "memory": 65537}))
    assert planned == ['nodes.node_data["node-2"].memory', "memory"]
    body = {"$set": {"nodes.nodeData.1.memory": 65537, "memory": 196609}}
    assert registry.list_writes() == [("PUT", PATH, body)]


def test_changed_removed_and_added_nodes_take_four_updates(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.list_writes()
    changed = with_nodes({**SECOND, "swap": 1}, THIRD)
    cluster.apply({**changed, "tags": []})
    bodies = [body for _, _, body in registry.list_writes()]
    changed_alone, *with_sums = bodies
    assert changed_alone == {"$set": {"tags": []}}
    assert with_sums[0] == {"$set": {"nodes.nodeData.1.swap": 1, "swap": 8193}}
    assert [set(body) for body in with_sums[1:]] == [{"$pull", "$set"}, {"$addToSet", "$set"}]
    record = registry.get_record(ID)
    assert [entry["id"] for entry in record["nodes"]["nodeData"]] == ["node-2", "node-3"]
    assert record["swap"] == 4097
    assert cluster.list_planned_paths({**changed, "tags": []}) == []


def test_values_added_by_mongo_and_the_system_are_no_change(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    own = {"reputation": 12, "config.urlMap.blocksQuery": "http://elsewhere"}
    registry.send_request("PUT", PATH, {"$set": own})
    cluster.refresh()
    assert cluster.list_planned_paths(DECLARED) == []
    assert cluster.state["url_map"]["blocks_query"] == "http://elsewhere"


def test_a_node_added_by_somebody_else_is_reported_and_kept(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    entry = {**copy.deepcopy(CLUSTER["nodes"]["nodeData"][0]), "id": "theirs"}
    registry.send_request("PUT", PATH, {"$push": {"nodes.nodeData": entry}})
    cluster.refresh()
    assert registry.warnings == [
        f"cluster {ID} has nodes that gpuform did not add and does not remove: theirs"
    ]
    assert cluster.list_planned_paths(DECLARED) == []
    with use_context(registry.create_context(cluster.name)):
        assert cluster.lifecycle.find_foreign_objects(ID, cluster.state) == ["theirs"]


def test_undeclared_nodes_stay_unchanged(cluster: Any, registry: Any) -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    cluster.apply(alone)
    entry = CLUSTER["nodes"]["nodeData"][0]
    registry.send_request(
        "PUT", PATH, {"$push": {"nodes.nodeData": entry}, "$set": {"gpus.count": 2}}
    )
    cluster.refresh()
    assert cluster.list_planned_paths(alone) == []
    cluster.apply({**alone, "tags": ["x"]})
    assert registry.get_record(ID)["gpus"]["count"] == 2


def test_a_cluster_can_declare_the_existing_nodes_of_its_record(
    cluster: Any, registry: Any
) -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    cluster.apply(alone)
    entry = {**CLUSTER["nodes"]["nodeData"][0], "swap": 1}
    theirs = {"$push": {"nodes.nodeData": entry}, "$set": {"nodes.count": 1}}
    registry.send_request("PUT", PATH, theirs)
    registry.list_writes()
    cluster.apply(DECLARED)
    bodies = [body for _, _, body in registry.list_writes()]
    assert bodies[0]["$set"]["nodes.nodeData.0.swap"] == 8192
    assert bodies[1]["$addToSet"]["nodes.nodeData"]["id"] == "node-2"
    assert pair_with_types(remove_mongo_keys(registry.get_record(ID))) == pair_with_types(CLUSTER)
    cluster.refresh()
    assert cluster.list_planned_paths(DECLARED) == []


def test_a_failure_of_the_parser_in_an_answer_of_200_is_an_error(
    cluster: Any, registry: Any
) -> None:
    registry.configure(parser_failure="the gateway has no template")
    with pytest.raises(GpuformError, match="the gateway has no template"):
        cluster.apply(DECLARED)
    assert registry.intents.list_all()
    registry.configure(parser_failure=None)
    cluster.apply(DECLARED)
    assert cluster.state["ready"] is True


@pytest.mark.parametrize("mode", ["parser", "direct"])
def test_a_refused_document_leaves_no_record_of_the_create(
    cluster: Any, registry: Any, mode: str
) -> None:
    metadata = {**DECLARED["cluster_metadata"], "owner": ""}
    declared = {**DECLARED, "cluster_metadata": metadata, "create_mode": mode}
    with pytest.raises(GpuformError, match=r"`clusterMetadata\.owner` is required"):
        cluster.apply(declared)
    assert registry.intents.list_all() == []


def test_a_record_created_by_others_at_the_same_moment_is_not_adopted(
    cluster: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody creates the record between our lookup and our create, which is then refused."""
    client = get_client(Settings())
    create = client.create_by_parser

    def create_concurrently(document: Any) -> Any:
        registry.send_request("POST", "/clusters", CLUSTER)
        return create(document)

    monkeypatch.setattr(client, "create_by_parser", create_concurrently)
    with pytest.raises(GpuformError, match="duplicate key"):
        cluster.apply(DECLARED)
    assert registry.intents.list_all() == []
    with pytest.raises(GpuformError, match="this project has no record of creating it"):
        cluster.apply(DECLARED)


def test_a_lost_answer_is_found_again(cluster: Any, registry: Any) -> None:
    registry.inject_fault("POST", "/api/createCluster", drop="after")
    cluster.apply(DECLARED)
    assert cluster.id == ID
    assert len([write for write in registry.list_writes() if write[0] == "POST"]) == 1


def test_a_push_whose_answer_is_lost_is_not_repeated(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.inject_fault("PUT", PATH, drop="after")
    cluster.apply(with_nodes(FIRST, SECOND, THIRD))
    ids = [entry["id"] for entry in registry.get_record(ID)["nodes"]["nodeData"]]
    assert ids == ["node-1", "node-2", "node-3"]


def test_a_record_is_ready_with_the_declared_status(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.send_request("PUT", PATH, {"$set": {"status": "down"}})
    cluster.refresh()
    assert cluster.state["ready"] is False
    assert cluster.state["not_ready_reason"] == "its status is down"
    assert cluster.list_planned_paths(DECLARED) == ["ready"]


def test_the_plan_of_a_deletion_says_that_the_hardware_stays(cluster: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    with use_context(registry.create_context()):
        cluster.lifecycle.check_deletion(cluster.state)
    assert "the hardware remains" in registry.warnings[0]
    cluster.delete()
    assert registry.send_request("GET", PATH).status_code == 404
    cluster.delete()
    assert cluster.refresh() is False


def test_special_characters_in_an_id_are_quoted_in_the_path(cluster: Any, registry: Any) -> None:
    cluster.apply({**DECLARED, "cluster_id": "west ?#%2F&+"})
    assert cluster.refresh() is True
    cluster.delete()
    assert registry.send_request("POST", "/clusters/query", {}).json() == []
