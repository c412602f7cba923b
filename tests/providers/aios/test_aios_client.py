"""Test the documented requests as they are sent, and the answers as they are read."""

import json
from typing import Any

import httpx
import pytest
from support.platforms.aios_document import CLUSTER, DECLARED, QUERY, UPDATE, pair_with_types
from support.platforms.provider_contexts import change_context

from gpuform.providers.aios import clusters
from gpuform.providers.aios.client import AiosClient, get_client
from gpuform.providers.context import use_context
from gpuform.providers.errors import GpuformError, MissingCredentials, NotFound, ServerError
from gpuform.providers.operations import Settings
from gpuform.schemas.aios.updates import UpdateRequest


def create_client_with_answer(
    content: Any, status: int = 200
) -> tuple[AiosClient, list[httpx.Request]]:
    """Return a client of a registry with one answer, and the list of requests."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json=content)

    transport = httpx.MockTransport(answer)
    return AiosClient("http://registry.test", "http://parser.test", transport), asked


def describe_request(request: httpx.Request) -> tuple[str, str, Any]:
    body = json.loads(request.content) if request.content else None
    return request.method, str(request.url), body


def dump_model(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


URL = "http://registry.test/clusters"
ONE = f"{URL}/cluster-west-vision-001"


def test_get_cluster_parses_the_documents_example() -> None:
    client, asked = create_client_with_answer(CLUSTER)
    assert pair_with_types(dump_model(client.get_cluster(CLUSTER["id"]))) == pair_with_types(
        CLUSTER
    )
    assert describe_request(asked[0]) == ("GET", ONE, None)
    assert "authorization" not in asked[0].headers


def test_update_cluster_sends_the_documents_example() -> None:
    client, asked = create_client_with_answer(CLUSTER)
    client.update_cluster(CLUSTER["id"], UpdateRequest(UPDATE))
    assert describe_request(asked[0]) == ("PUT", ONE, UPDATE)
    assert asked[0].headers["content-type"] == "application/json"


def test_delete_cluster_sends_the_documents_example() -> None:
    client, asked = create_client_with_answer({"message": "Cluster deleted"})
    client.delete_cluster(CLUSTER["id"])
    assert describe_request(asked[0]) == ("DELETE", ONE, None)


@pytest.mark.parametrize(("envelope", "body"), [("raw", QUERY), ("wrapped", {"query": QUERY})])
def test_the_example_query_is_sent_in_either_envelope(envelope: Any, body: Any) -> None:
    client, asked = create_client_with_answer(
        [CLUSTER, {**CLUSTER, "id": "small", "gpus": {"count": 1}}]
    )
    records = client.query_clusters(QUERY, envelope)
    assert [record.id for record in records] == [CLUSTER["id"]]
    assert describe_request(asked[0]) == ("POST", f"{URL}/query", body)


def test_an_unreadable_record_hides_no_other_record() -> None:
    client, _ = create_client_with_answer(
        [{"regionId": "nowhere"}, CLUSTER, {"id": "x", "nodes": 7}, "text"]
    )
    assert [record.id for record in client.get_shared_listing().read_all()] == [CLUSTER["id"]]
    with pytest.raises(ServerError, match="unexpected form"):
        client.query_clusters({})


def test_a_filter_that_cannot_be_checked_is_not_sent() -> None:
    client, asked = create_client_with_answer([])
    with pytest.raises(GpuformError, match=r"filter\.a\.\$regex"):
        client.query_clusters({"a": {"$regex": "x"}})
    assert asked == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"success": True, "result": [False, "no\n  template"]}, "failure: no template"),
        ({"success": True, "result": [False]}, "with a failure"),
        ({"success": False, "message": "not now"}, "failure: not now"),
        ({"success": True, "result": None}, "unexpected form"),
        ({"success": True, "result": {"name": "x"}}, "unexpected form"),
        ([], "unexpected form"),
    ],
)
def test_an_answer_of_200_without_a_record_is_an_error(content: Any, message: str) -> None:
    client, _ = create_client_with_answer(content)
    with pytest.raises(ServerError, match=message) as caught:
        client.create_by_parser({})
    assert caught.value.is_definite is False


@pytest.mark.parametrize(
    ("message", "definite"),
    [
        ("E11000 duplicate key error collection", True),
        ("clusters validation failed: status: Path `status` is required.", True),
        ('Cast to Number failed for value "x" at path "memory"', True),
        ("connect ECONNREFUSED", False),
    ],
)
def test_the_message_of_a_500_decides_whether_it_is_definite(message: str, definite: bool) -> None:
    client, _ = create_client_with_answer({"error": message}, 500)
    with pytest.raises(GpuformError, match="answered 500") as caught:
        client.create_directly({})
    assert caught.value.is_definite is definite  # type: ignore[attr-defined]


def test_a_missing_record_raises_not_found() -> None:
    client, _ = create_client_with_answer({"error": "Cluster not found"}, 404)
    with pytest.raises(NotFound, match="Cluster not found"):
        client.get_cluster("west")


def test_a_missing_address_is_named_in_the_error() -> None:
    client = get_client(Settings(environ={"AIOS_PARSER_URL": "http://parser.test"}))
    with pytest.raises(MissingCredentials, match="Set AIOS_REGISTRY_URL") as caught:
        client.get_cluster("west")
    assert "aios:registryUrl" in str(caught.value)
    client = get_client(Settings(environ={"AIOS_REGISTRY_URL": "http://registry.test"}))
    with pytest.raises(MissingCredentials, match="Set AIOS_PARSER_URL"):
        client.create_by_parser({})


def test_the_lookup_queries_records_for_programs(registry: Any) -> None:
    registry.send_request("POST", "/clusters", CLUSTER)
    registry.send_request("POST", "/clusters", {**CLUSTER, "id": "east", "regionId": "us-east-1"})
    assert [cluster.id for cluster in clusters()] == [CLUSTER["id"], "east"]
    for settings in ("raw", "wrapped", "both"):
        registry.configure(query_envelope=settings)
        (record,) = clusters({"regionId": "us-east-1"})
        assert record.id == "east"
    (record,) = clusters(QUERY | {"regionId": "us-east-1"}, envelope="wrapped")
    assert record.nodes.count == 2


def test_the_plan_of_a_new_record_reports_a_missing_parser_address(
    cluster: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIOS_PARSER_URL")
    unchecked: list[str] = []
    for mode in ("parser", "direct"):
        call = registry.create_context()
        change_context(call, on_skipped_check=unchecked.append)
        with use_context(call):
            assert cluster.lifecycle.check({}, {**DECLARED, "create_mode": mode}).failures == []
    (message,) = unchecked
    assert "set AIOS_PARSER_URL, or declare create_mode: direct" in message
