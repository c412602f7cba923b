"""Test how SCP's client handles refusals, lost answers and old versions, against the emulator."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.platforms.emulated_scp import (
    PASSWORD,
    POOL,
    PUBLIC_IP,
    SCRIPT,
    EmulatedScp,
    build_create_request,
    build_variables,
    run_emulator,
)
from support.platforms.scp_document import ID, NODE

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.scp import VIEWER_ACCESS_KEY, VIEWER_SECRET_KEY
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    GpuformError,
    InvalidRequest,
    MissingCredentials,
    NotFound,
    OutOfCapacity,
    PermissionDenied,
    RateLimited,
    ServerError,
    UnknownOutcome,
)
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client import ScpClient, get_client
from gpuform.providers.scp.client.connection import Connection
from gpuform.providers.scp.client.credentials import Credentials, find_credentials

KEYS = Credentials("AK-4711", "SK-4711", base_url="http://scp.test", source="the test")
NODES = "^/v1/gpu-nodes$"


@pytest.fixture
def scp() -> Iterator[EmulatedScp]:
    with run_emulator() as platform:
        yield platform


@pytest.fixture
def client(scp: EmulatedScp) -> ScpClient:
    return scp.client


@pytest.fixture
def ids(scp: EmulatedScp) -> list[str]:
    """Create two running nodes of a fabric, and return the ids."""
    nodes = scp.client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    scp.move_clock(1000)
    return nodes


def create_client_with_answers(*answers: httpx.Response, **fields: Any) -> ScpClient:
    """Return a client of a platform with these answers, in order."""
    rest = iter(answers)
    return ScpClient(Connection(KEYS, httpx.MockTransport(lambda _: next(rest)), **fields))


def build_refusal(status: int, *details: Any, **headers: str) -> httpx.Response:
    errors = [{"detail": detail} for detail in details]
    return httpx.Response(status, json={"errors": errors}, headers=headers)


# Creating.


def test_a_create_whose_answer_is_lost_is_sent_once(scp: EmulatedScp, client: ScpClient) -> None:
    scp.inject_fault("POST", NODES, drop="after")
    with pytest.raises(UnknownOutcome):
        client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    assert scp.list_requests() == [("POST", "/v1/gpu-nodes")]
    assert [node.gpu_node_name for node in client.list_nodes()] == ["a-001", "a-002"]


@pytest.mark.parametrize("resource_id", ["", " , ", None])
def test_a_create_may_be_answered_without_an_id(resource_id: str | None) -> None:
    scp = create_client_with_answers(httpx.Response(202, json={"resource_id": resource_id}))
    assert scp.create_nodes(build_create_request("fabric-a", "a-001", "a-002")) == []


def test_only_ids_of_nodes_are_returned_by_a_create(client: ScpClient) -> None:
    nodes = client.create_nodes(build_create_request("fabric-a", "a-001", "a-002", "a-003"))
    assert len(nodes) == 3
    assert {len(node_id) for node_id in nodes} == {32}


@pytest.mark.parametrize("language", ["ko-KR", "en-US"])
def test_a_shortage_raises_out_of_capacity(scp: EmulatedScp, language: str) -> None:
    scp.call_emulator("POST", "/scp/settings", {"capacity": {POOL: 1}})
    connection = Connection(find_credentials(scp.settings), language=language)
    try:
        with pytest.raises(OutOfCapacity) as caught:
            ScpClient(connection).create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    finally:
        connection.close()
    assert caught.value.status == 400
    assert caught.value.is_definite
    assert caught.value.code == "InsufficientCapacity"
    assert ("부족" in str(caught.value)) == (language == "ko-KR")


@pytest.mark.parametrize(
    "text",
    [
        "Out of stock",
        "Insufficient capacity in node pool POOL001-krw1a: 2 requested, 0 available.",
        "Not enough available GPU servers",
        "There are no available nodes in the pool",
        "The resource is exhausted",
        "자원이 부족합니다.",
        "GPU 서버 재고가 부족합니다.",
        "노드 풀(POOL001-krw1a)의 가용 자원이 부족합니다(요청: 2대, 가용: 0대).",
        "가용한 서버가 없습니다.",
        "남은 노드가 없습니다.",
        "x" * 400 + " out of stock",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 409])
def test_messages_of_a_shortage_are_recognized(text: str, status: int) -> None:
    with pytest.raises(OutOfCapacity, match="answered"):
        create_client_with_answers(build_refusal(status, text)).create_nodes(
            build_create_request("f-1", "a-001", "a-002")
        )


@pytest.mark.parametrize(
    "text",
    [
        "Quota exceeded: not enough GPU servers left in the quota",
        "할당량이 부족합니다.",
        "서버 자원 할당량이 부족합니다.",
        "권한이 부족합니다.",
        "You have insufficient permission for this resource",
        "GPU Node(x)를 찾을 수 없습니다.",
        "서버를 찾을 수 없습니다.",
        "server_details: 2 to 5 servers are allowed, not 1",
        "Subnet에 사용 가능한 IP가 없습니다.",
        "여유 IP가 없습니다.",
        "the subnet has no free IP address left",
        "no free IPs in the pool of resources",
        "image_id does not exist or is not offered here",
        "The node is not available in this state",
    ],
)
@pytest.mark.parametrize("status", [400, 403])
def test_messages_of_other_refusals_are_no_shortage(text: str, status: int) -> None:
    with pytest.raises((InvalidRequest, PermissionDenied)):
        create_client_with_answers(build_refusal(status, text)).create_nodes(
            build_create_request("f-1", "a-001", "a-002")
        )


def test_a_404_is_never_a_shortage() -> None:
    with pytest.raises(NotFound):
        create_client_with_answers(build_refusal(404, "Out of stock")).get_node("x")


# What a person reads.


@pytest.mark.parametrize(
    ("details", "message"),
    [
        (("no such image",), ": no such image"),
        ((["name is too long", "image is unknown"],), ": name is too long; image is unknown"),
        (("one", ["two", "three"]), ": one; two; three"),
        (("a\n  b",), ": a b"),
        ((None,), ""),
        (({"token": "withheld"}, 7, ["kept", {"x": "withheld"}]), ": kept"),
        ((), ""),
    ],
)
def test_the_details_of_a_refusal_are_in_the_message(details: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        create_client_with_answers(build_refusal(400, *details)).get_fabric("x")
    assert str(caught.value) == f"scp: GET /v1/cluster-fabrics/x answered 400{message}"


def test_errors_that_are_no_objects_are_withheld() -> None:
    with pytest.raises(InvalidRequest) as caught:
        create_client_with_answers(
            httpx.Response(400, json={"errors": ["withheld", 1, None]})
        ).get_fabric("x")
    assert "withheld" not in str(caught.value)


@pytest.mark.parametrize(
    "echo",
    [
        f"os_user_password {PASSWORD!r} is too weak",
        f"init_script: {SCRIPT}",
        f"init_script: {SCRIPT!r}",
        "init_script, line 2: curl https://secret.example/token-4711",
        "key AK-4711 with SK-4711",
        "x" * 290 + PASSWORD,
    ],
)
def test_no_error_has_a_secret(echo: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        create_client_with_answers(build_refusal(400, echo)).create_nodes(
            build_create_request("f-1", "a-001", "a-002")
        )
    error_texts = f"{caught.value} {caught.value!r} {vars(caught.value)}"
    assert not [
        secret
        for secret in (PASSWORD, PASSWORD[:8], "token-4711", "AK-4711", "SK-4711")
        if secret in error_texts
    ]


def test_no_log_has_a_secret(
    scp: EmulatedScp, client: ScpClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
        client.list_nodes()
    assert "POST /v1/gpu-nodes -> 202" in caplog.text
    secrets = (PASSWORD, "token-4711", *find_credentials(scp.settings).secrets)
    assert not [secret for secret in secrets if secret and secret in caplog.text]


def test_an_answer_of_another_form_is_named_without_its_values() -> None:
    odd = {**NODE, "init_script": {"token": "hunter2"}, "pfs_ip": "hunter2"}
    with pytest.raises(ServerError, match=r"unexpected form \(init_script, pfs_ip\)") as caught:
        create_client_with_answers(httpx.Response(200, json=odd)).get_node("x")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_403_has_a_hint_about_permissions(scp: EmulatedScp) -> None:
    viewer = scp.create_client(
        SCP_TF_ACCESS_KEY=VIEWER_ACCESS_KEY, SCP_TF_SECRET_KEY=VIEWER_SECRET_KEY
    )
    assert viewer.list_nodes() == []
    with pytest.raises(PermissionDenied, match="in IAM"):
        viewer.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))


def test_a_401_names_the_source_of_the_keys(scp: EmulatedScp) -> None:
    with pytest.raises(AuthError) as caught:
        scp.create_client(SCP_TF_ACCESS_KEY="AK-unknown").list_nodes()
    assert "SCP_TF_ACCESS_KEY and SCP_TF_SECRET_KEY" in str(caught.value)
    assert "AK-unknown" not in str(caught.value)


@pytest.mark.parametrize(
    ("off", "message"),
    [(-3630.0, "clock is 1h00m behind the platform's"), (3630.0, "clock is 1h00m ahead of the")],
)
def test_a_401_with_a_wrong_clock_names_the_difference(
    scp: EmulatedScp, off: float, message: str
) -> None:
    connection = Connection(find_credentials(scp.settings), now=lambda: time.time() + off)
    try:
        with pytest.raises(AuthError, match=message):
            ScpClient(connection).list_nodes()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("date", "message"),
    [
        ("Sat, 21 Nov 2026 08:00:30 GMT", "check the access key and the secret key (the test)"),
        ("Sat, 21 Nov 2026 08:20:00 GMT", "clock is 20m00s behind the platform's"),
        ("Sat, 21 Nov 2026 07:58:00 GMT", "clock is 2m00s ahead of the platform's"),
        ("yesterday", "and this machine's clock"),
        ("", "and this machine's clock"),
    ],
)
def test_the_date_of_a_401_gives_the_difference_of_the_clocks(date: str, message: str) -> None:
    answer = build_refusal(401, "no", **({"Date": date} if date else {}))
    with pytest.raises(AuthError) as caught:
        create_client_with_answers(answer, now=lambda: 1_795_248_000.0).list_nodes()
    assert message in str(caught.value)


# Requests about nodes that exist.

Act = Callable[[ScpClient, list[str]], None]
ACTS: dict[str, tuple[str, str, Act]] = {
    "delete": ("DELETE", NODES, lambda scp, ids: scp.delete_nodes(ids)),
    "stop": ("POST", "^/v1/gpu-nodes/stop$", lambda scp, ids: scp.stop_nodes(ids)),
    "assign": ("POST", "/public-nat-ip$", lambda scp, ids: scp.assign_nat(ids[0], PUBLIC_IP)),
    "lock": ("PUT", "/lock$", lambda scp, ids: scp.lock_node(ids[0])),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_repetition_after_a_lost_answer_is_no_error(
    scp: EmulatedScp, client: ScpClient, ids: list[str], name: str
) -> None:
    method, path, act = ACTS[name]
    scp.inject_fault(method, path, drop="after")
    act(client, ids)
    assert [request[0] for request in scp.list_requests()].count(method) >= 2
    node = client.get_node(ids[0])
    assert node.lock_enabled or node.state in {"TERMINATING", "STOPPING", "EDITING"}


def test_repeated_requests_with_an_effect_are_no_error(
    scp: EmulatedScp, client: ScpClient, ids: list[str]
) -> None:
    others = client.create_nodes(build_create_request("fabric-b", "b-001", "b-002"))
    client.stop_nodes(ids[1:])
    client.assign_nat(ids[0], PUBLIC_IP)
    scp.move_clock(1000)
    source_fabric, target_fabric = (
        client.get_node(id_).cluster_fabric_id or "" for id_ in (others[0], ids[0])
    )
    for method, path in (
        ("POST", "/start$"),
        ("DELETE", "/public-nat-ip$"),
        ("POST", "/modify-members$"),
    ):
        scp.inject_fault(method, path, drop="after")
    client.start_nodes(ids[1:])
    client.release_nat(ids[0])
    client.modify_members(source_fabric, target_fabric, others[:1])
    scp.move_clock(1000)
    nodes_by_id = {node.id: node for node in client.list_nodes()}
    assert nodes_by_id[ids[1]].state == "RUNNING"
    assert not nodes_by_id[ids[0]].policy_use_nat
    assert nodes_by_id[others[0]].cluster_fabric_id == target_fabric


def test_a_request_whose_effect_exists_already_is_no_error(
    client: ScpClient, ids: list[str]
) -> None:
    client.start_nodes(ids)
    client.release_nat(ids[0])
    assert {client.get_node(id_).state for id_ in ids} == {"RUNNING"}


def test_a_refusal_without_the_effect_is_an_error(
    scp: EmulatedScp, client: ScpClient, ids: list[str]
) -> None:
    client.lock_node(ids[0])
    with pytest.raises(InvalidRequest, match="a-001"):
        client.delete_nodes(ids)
    with pytest.raises(InvalidRequest, match="a-001"):
        client.stop_nodes(ids)
    client.assign_nat(ids[0], PUBLIC_IP)
    scp.move_clock(1000)
    with pytest.raises(InvalidRequest, match="public NAT IP already"):
        client.assign_nat(ids[0], "f" * 32)
    assert {client.get_node(id_).state for id_ in ids} == {"RUNNING"}


def test_deleting_missing_nodes_is_no_error(
    scp: EmulatedScp, client: ScpClient, ids: list[str]
) -> None:
    client.delete_nodes(ids[:1])
    scp.move_clock(1000)
    client.delete_nodes(ids[:1])
    with pytest.raises(NotFound):
        client.delete_nodes(ids)
    assert client.get_node(ids[1]).state == "RUNNING"
    with pytest.raises(NotFound):
        client.stop_nodes(ids[:1])


def test_a_refusal_stays_an_error_if_the_node_cannot_be_read(call: ProviderContext) -> None:
    with use_context(call), pytest.raises(Conflict, match="locked"):
        create_client_with_answers(
            build_refusal(409, "locked"), build_refusal(401, "no")
        ).stop_nodes([ID])


def test_an_empty_list_of_nodes_sends_no_request() -> None:
    scp = create_client_with_answers()
    scp.delete_nodes([])
    scp.start_nodes([])
    scp.stop_nodes([])
    scp.modify_members("a", "b", [])


def test_a_terminated_node_is_gone(scp: EmulatedScp, client: ScpClient, ids: list[str]) -> None:
    scp.call_emulator("POST", "/scp/settings", {"terminated_seconds": 5000})
    client.delete_nodes(ids)
    scp.move_clock(1000)
    with pytest.raises(NotFound, match="TERMINATED"):
        client.get_node(ids[0])
    assert client.list_nodes() == []
    assert {node.id for node in client.list_nodes(state="TERMINATED")} == {*ids}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_short_outage_is_waited_out(scp: EmulatedScp, client: ScpClient, status: int) -> None:
    scp.inject_fault("GET", NODES, status=status, count=2)
    assert client.list_nodes() == []
    assert len(scp.list_requests()) == 3


def test_a_long_outage_is_an_error(scp: EmulatedScp, client: ScpClient) -> None:
    scp.inject_fault("GET", NODES, status=429, count=None)
    with pytest.raises(RateLimited):
        client.list_nodes()


# Versions.


def test_a_deprecated_version_is_warned_about_once(
    scp: EmulatedScp, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection(find_credentials(scp.settings), version="1.1")
    try:
        ScpClient(connection).list_nodes()
        ScpClient(connection).list_nodes()
    finally:
        connection.close()
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert warning.name == "gpuform"
    assert "version 1.1 of the API is deprecated" in warning.getMessage()
    assert "Tue, 31 Mar 2026" in warning.getMessage()


def test_the_current_version_gives_no_warning(
    client: ScpClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.list_nodes()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("headers", "is_reported"),
    [
        ({"Deprecation": "true"}, True),
        ({"Deprecation": "@1774915200", "Sunset": "Tue, 31 Mar 2026 00:00:00 GMT"}, True),
        ({"Deprecation": "false"}, False),
        ({"Scp-Api-Version-Status": "Deprecated"}, True),
        ({"Scp-Api-Version": "multinodegpucluster 1.2"}, False),
    ],
)
def test_headers_of_a_deprecation_are_recognized(
    headers: dict[str, str], is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    create_client_with_answers(
        httpx.Response(200, json={"products": []}, headers=headers)
    ).list_products()
    assert ("is deprecated" in caplog.text) == is_reported


def test_an_old_version_is_warned_about_without_a_header(
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_client_with_answers(
        httpx.Response(200, json={"products": []}), version="1.0"
    ).list_products()
    assert "may end (2025-12-31)" in caplog.text


# One client for all who have the same keys.


def test_clients_are_shared_by_credentials(scp: EmulatedScp) -> None:
    variables = build_variables(scp.url)
    client = get_client(Settings(environ=variables))
    assert get_client(Settings(environ=dict(variables))) is client
    other = get_client(Settings(environ={**variables, "SCP_TF_SECRET_KEY": "other"}))
    assert other is not client
    assert client.get_poll_schedule(5) is client.get_poll_schedule(5)
    assert client.get_poll_schedule(5) is not client.get_poll_schedule(6)
    assert client.get_node_listing("a") is client.get_node_listing("a")
    assert client.get_node_listing("a") is not client.get_node_listing("b")


def test_without_keys_every_method_raises_missing_credentials() -> None:
    client = get_client(Settings(environ={"HOME": "/nonexistent"}))
    assert get_client(Settings(environ={"HOME": "/nonexistent"})) is client
    for method in (client.list_nodes, client.list_products, lambda: client.get_node("x")):
        with pytest.raises(MissingCredentials, match="SCP_TF_ACCESS_KEY"):
            method()


def test_with_a_wrong_region_every_method_raises_an_error() -> None:
    keys = {"SCP_TF_ACCESS_KEY": "a", "SCP_TF_SECRET_KEY": "b", "HOME": "/nonexistent"}
    client = get_client(Settings(environ={**keys, "SCP_TF_DEFAULT_REGION": "mars-1"}))
    with pytest.raises(GpuformError, match="SCP has no region mars-1"):
        client.list_nodes()


def test_each_region_has_a_client_of_its_own() -> None:
    keys = {"SCP_TF_ACCESS_KEY": "a", "SCP_TF_SECRET_KEY": "b", "HOME": "/nonexistent"}
    settings = Settings(environ={**keys, "SCP_TF_DEFAULT_REGION": "kr-south1"})
    assert get_client(settings, "kr-south1") is get_client(settings)
    assert get_client(settings, "kr-south2") is not get_client(settings)


def test_shared_readers_read_one_node_or_the_list(scp: EmulatedScp, ids: list[str]) -> None:
    shared = scp.client.get_node_listing("fabric-a")
    assert shared.read_one(ids[0]).gpu_node_name == "a-001"
    assert [node.id for node in shared.read_all()] == ids
    with pytest.raises(NotFound):
        shared.read_one("0" * 32)


def test_a_closed_client_can_be_used_again(client: ScpClient) -> None:
    client.close()
    assert client.list_nodes() == []


def test_an_error_names_method_and_path(client: ScpClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.get_fabric("0" * 32)
    error = caught.value
    assert (error.method, error.status, error.code) == ("GET", 404, "ClusterFabricNotFound")
    assert error.path == f"/v1/cluster-fabrics/{'0' * 32}"
