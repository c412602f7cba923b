"""Test signatures, keys, clocks and languages of the emulated SCP."""

import base64
import hashlib
import hmac
import http.client
import time
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from emulator.scp.scp_client import ScpClient
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.scp import ACCESS_KEY, SECRET_KEY
from gpuform.providers.emulator.scp.access import SignedRequest
from gpuform.providers.emulator.store import Store

NODES = "/v1/gpu-nodes"
LIMIT = 15 * 60


def sign(message: str, secret: str = SECRET_KEY) -> str:
    return base64.b64encode(
        hmac.new(secret.encode(), message.encode(), hashlib.sha256).digest()
    ).decode()


def send_raw(url: str, target: str, *, signed: str | None = None, **more: str) -> tuple[int, str]:
    """Send a GET whose request line has exactly `target`, signed for `target` or for `signed`."""
    url_parts = urlsplit(url)
    stamp = more.pop("timestamp", str(round(time.time() * 1000)))
    account = more.get("Scp_AccountId", "")
    signed_url = f"{url_parts.scheme}://{url_parts.netloc}{target if signed is None else signed}"
    headers = {
        "Scp-Accesskey": ACCESS_KEY,
        "Scp-Signature": sign(f"GET{signed_url}{stamp}{ACCESS_KEY}{account}Openapi"),
        "Scp-Timestamp": stamp,
        "Scp-ClientType": "Openapi",
        "Accept-Language": "en-US",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    connection = http.client.HTTPConnection(url_parts.netloc)
    connection.request("GET", target, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize(
    ("account_id", "signature"),
    [
        ("", "NdJdNMDjKTA4I41EQG0OsPKCvMlOw3hJp9slus0XfC4="),
        ("f5c8e56a4d9b49a8bd89e14758a32d53", "yo3qIYnkataiRMtot7FqU+VcXKxuyHWEhyaT5Dm3D4Q="),
    ],
)
def test_the_signature_is_that_of_the_test_vector(account_id: str, signature: str) -> None:
    signed = SignedRequest(
        method="GET",
        url="https://multinodegpucluster.kr-west1.e.samsungsdscloud.com/v1/gpu-nodes?page=0&size=20",
        timestamp="1605290625682",
        access_key="AKEXAMPLE",
        account_id=account_id,
        client_type="Openapi",
    )
    assert signed.compute_signature("SKEXAMPLE") == signature


@pytest.mark.parametrize(
    "target",
    [
        "/scp/v1/gpu-nodes",
        "/scp/v1/gpu-nodes?",
        "/scp/v1/gpu-nodes?page=0&size=20",
        "/scp/v1/gpu-nodes?size=20&page=0",
        "/scp/v1/gpu-nodes?sort=created_at:desc",
        "/scp/v1/gpu-nodes?sort=created_at%3Adesc",
        "/scp/v1/gpu-nodes?gpu_node_name=a+b",
        "/scp/v1/gpu-nodes?gpu_node_name=a%20b",
        "/scp/v1/gpu-nodes?gpu_node_name=%ED%95%99%EC%8A%B5",
        "/scp/v1/gpu-nodes?gpu_node_name=%ed%95%99&state=",
        "/scp/v1/gpu-nodes?gpu_node_name=%2B%26%3D%23",
        "/scp/v1/gpu%2Dnodes",
    ],
)
def test_the_signature_covers_the_url_as_sent(scp: ScpClient, target: str) -> None:
    status, body = send_raw(scp.url, target)
    assert (status, '"count":0' in body) == (200, True)
    for other in (target + "x", target.replace("/scp", ""), target.upper()):
        status, body = send_raw(scp.url, target, signed=other)
        assert status == 401
        assert "signature does not match" in body
        assert target in body


@pytest.mark.parametrize(
    ("sent", "signed"),
    [
        ("?page=0&size=20", "?size=20&page=0"),
        ("?sort=created_at%3Adesc", "?sort=created_at:desc"),
        ("?gpu_node_name=a+b", "?gpu_node_name=a%20b"),
        ("?gpu_node_name=%ED%95%99", "?gpu_node_name=%ed%95%99"),
        ("?page=0", ""),
        ("", "?page=0"),
    ],
)
def test_a_url_signed_in_another_spelling_is_refused(
    scp: ScpClient, sent: str, signed: str
) -> None:
    path = f"/scp{NODES}"
    status, body = send_raw(scp.url, path + sent, signed=path + signed)
    assert (status, "signature does not match" in body) == (401, True)


def test_a_client_may_send_the_absolute_url(scp: ScpClient) -> None:
    target = f"{scp.url}{NODES}?page=0"
    url_parts = urlsplit(scp.url)
    status, _ = send_raw(scp.url, target, signed=target.removeprefix(f"http://{url_parts.netloc}"))
    assert status == 200


@given(st.text(max_size=12))
@pytest.mark.slow
def test_any_value_can_be_signed_in_process(value: str) -> None:
    """In process, the client signs for the real platform's host name, at which nothing listens."""
    with Store(None) as store:
        transport = httpx.WSGITransport(create_app(store, Clock(store)))
        host = "https://multinodegpucluster.kr-west1.e.samsungsdscloud.com"
        with httpx.Client(transport=transport) as client:
            api = ScpClient(f"{host}/scp", client)
            query = httpx.QueryParams({"gpu_node_name": value})
            assert api.get(f"{NODES}?{query}") == {"count": 0, "gpu_nodes": []}


def test_an_account_id_is_signed_when_it_is_sent(scp: ScpClient) -> None:
    path = f"/scp{NODES}"
    assert send_raw(scp.url, path, Scp_AccountId="f5c8e56a4d9b49a8bd89e14758a32d53")[0] == 200
    answer = scp.send("GET", NODES, Scp_AccountId="f5c8e56a4d9b49a8bd89e14758a32d53")
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Scp_Accesskey": "nobody"}, "access key is not known"),
        ({"Scp_Accesskey": ""}, "Scp-Accesskey"),
        ({"Scp_Signature": ""}, "Scp-Signature"),
        ({"Scp_Signature": "AAAA"}, "signature does not match"),
        ({"Scp_Timestamp": ""}, "Scp-Timestamp"),
        ({"Scp_Timestamp": "1605290625"}, "13 digits"),
        ({"Scp_Timestamp": "2020-11-13T17:50Z"}, "13 digits"),
        ({"Scp_ClientType": ""}, "Scp-ClientType"),
        ({"Scp_ClientType": "Console"}, "Openapi"),
    ],
)
def test_an_unknown_access_key_gets_401(
    scp: ScpClient, headers: dict[str, str], message: str
) -> None:
    answer = scp.send("GET", NODES, **headers)
    assert answer.status_code == 401
    (error,) = answer.json()["errors"]
    assert message in error["detail"]
    assert (error["status"], error["title"], error["code"]) == (401, "Unauthorized", "Unauthorized")
    assert error["request_id"].startswith("req-")
    assert SECRET_KEY not in answer.text


def test_a_wrong_secret_key_is_a_wrong_signature(scp: ScpClient) -> None:
    answer = scp.send("GET", NODES, keys=(ACCESS_KEY, "wrong"))
    assert answer.status_code == 401
    assert f"GET {scp.url}{NODES}" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(("ahead", "way"), [(LIMIT + 60, "behind"), (-LIMIT - 60, "ahead of")])
def test_a_timestamp_too_far_from_the_clock_is_refused(
    scp: ScpClient, control: Any, ahead: float, way: str
) -> None:
    control.call("POST", "/scp/settings", {"clock_ahead_seconds": ahead})
    answer = scp.send("GET", NODES)
    assert answer.status_code == 401
    detail = answer.json()["errors"][0]["detail"]
    assert way in detail
    assert "Check the system clock" in detail
    assert len(answer.headers.get_list("Date")) == 1
    seconds_ahead = parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
    assert abs(seconds_ahead - ahead) < LIMIT
    control.call("POST", "/scp/settings", {"clock_ahead_seconds": ahead * 0.5})
    assert scp.send("GET", NODES).status_code == 200
    control.call("POST", "/scp/settings", {"accepted_skew_seconds": 60})
    assert scp.send("GET", NODES).status_code == 401


def test_signatures_are_checked_against_the_real_time(scp: ScpClient, control: Any) -> None:
    control.advance(10 * 86400)
    assert scp.send("GET", NODES).status_code == 200


def test_keys_can_be_set_and_are_not_shown(scp: ScpClient, control: Any) -> None:
    keys = {"mine": {"secret_key": "my-secret"}, "theirs": {"secret_key": "x", "may_write": False}}
    answered_settings = control.call("POST", "/scp/settings", {"keys": keys})
    assert answered_settings["keys"] == {
        "mine": {"may_write": True},
        "theirs": {"may_write": False},
    }
    assert scp.send("GET", NODES).status_code == 401
    for mine, status in ((("mine", "my-secret"), 404), (("theirs", "x"), 403)):
        answer = scp.send("DELETE", NODES, {"gpu_node_ids": ["0" * 32]}, keys=mine)
        assert answer.status_code == status
    control.call("POST", "/reset")
    assert scp.send("GET", NODES).status_code == 200


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("ko-KR", "찾을 수 없습니다"),
        ("ko", "찾을 수 없습니다"),
        ("", "찾을 수 없습니다"),
        ("de-DE", "찾을 수 없습니다"),
        ("en-US", "is not found"),
        ("en", "is not found"),
        ("ko;q=0.2, en-US;q=0.9", "is not found"),
    ],
)
def test_refusals_are_korean_or_english(scp: ScpClient, language: str, message: str) -> None:
    answer = scp.send("GET", f"{NODES}/{'0' * 32}", Accept_Language=language)
    assert message in answer.json()["errors"][0]["detail"]


def test_the_refusal_of_an_unknown_path_or_method_has_the_platforms_form(scp: ScpClient) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("PATCH", NODES, 405)):
        answer = scp.send(method, path)
        assert answer.status_code == status
        assert answer.json()["errors"][0]["status"] == status
