"""Test the signature against one computed here by the documented rule."""

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.platforms.emulated_scp import EmulatedScp, run_emulator

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import AuthError, NotFound, ServerError
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.client.connection import (
    Connection,
    build_signed_headers,
    compute_signature,
)
from gpuform.providers.scp.client.credentials import Credentials

VECTOR_URL = (
    "https://multinodegpucluster.kr-west1.e.samsungsdscloud.com/v1/gpu-nodes?page=0&size=20"
)
ACCOUNT = "f5c8e56a4d9b49a8bd89e14758a32d53"


@pytest.mark.parametrize(
    ("account_id", "expected"),
    [
        ("", "NdJdNMDjKTA4I41EQG0OsPKCvMlOw3hJp9slus0XfC4="),
        (ACCOUNT, "yo3qIYnkataiRMtot7FqU+VcXKxuyHWEhyaT5Dm3D4Q="),
    ],
)
def test_the_signature_equals_the_published_example(account_id: str, expected: str) -> None:
    credentials = Credentials("AKEXAMPLE", "SKEXAMPLE", base_url="", account_id=account_id)
    assert compute_signature(credentials, "GET", VECTOR_URL, "1605290625682") == expected
    assert compute_signature(credentials, "get", VECTOR_URL, "1605290625682") == expected
    headers = build_signed_headers(credentials, "GET", VECTOR_URL, 1605290625.682)
    assert headers["Scp-Signature"] == expected
    assert headers["Scp-Timestamp"] == "1605290625682"
    assert headers.get("Scp-AccountId", "") == account_id


def test_temporary_keys_are_sent_with_their_token() -> None:
    credentials = Credentials("AK", "SK", base_url="", auth_token="T")
    assert build_signed_headers(credentials, "GET", "http://x/", 1.0)["X-Auth-Token"] == "T"
    plain = build_signed_headers(Credentials("AK", "SK", base_url=""), "GET", "http://x/", 1.0)
    assert "X-Auth-Token" not in plain


def test_secrets_are_in_no_repr() -> None:
    credentials = Credentials("AKEXAMPLE", "SKEXAMPLE", base_url="u", auth_token="TOKEN")
    assert not [secret for secret in credentials.secrets if secret in repr(credentials)]


def compute_expected_signature(method: str, url: str, timestamp: str, account: str = "") -> str:
    """Compute the signature independently of the client."""
    parts = [method, url, timestamp, "AK", account, "Openapi"]
    mac = hmac.new(b"SK", "".join(parts).encode("utf-8"), hashlib.sha256)
    return base64.b64encode(mac.digest()).decode("ascii")


@dataclass
class Wire:
    """A server that keeps each request line as it was on the wire."""

    url: str = ""
    clients: dict[tuple[str, str], ScpClient] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def client(self, prefix: str, account: str = "") -> ScpClient:
        """Return one client for all examples, because creating a client is slow."""
        if (prefix, account) not in self.clients:
            credentials = Credentials("AK", "SK", base_url=self.url + prefix, account_id=account)
            self.clients[prefix, account] = ScpClient(Connection(credentials))
        return self.clients[prefix, account]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    wire = Wire()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wire.requests.append((self.command, self.path, dict(self.headers)))
            body = b'{"gpu_nodes": [], "products": []}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        wire.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield wire
        for client in wire.clients.values():
            client.close()
        server.shutdown()
        thread.join()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    name=st.text(max_size=12),
    prefix=st.sampled_from(["", "/scp", "/proxy/scp%20x", "/한글"]),
    account=st.sampled_from(["", ACCOUNT]),
)
@example(name="노드 #1&a=b+c%41/?~", prefix="/scp", account="")
@example(name="", prefix="", account="")
def test_the_sent_url_is_the_signed_one(wire: Wire, name: str, prefix: str, account: str) -> None:
    wire.requests.clear()
    wire.client(prefix, account).list_products(type=name)
    (method, path, headers) = wire.requests[0]
    url = f"http://{headers['Host']}{path}"
    assert path.isascii()
    assert httpx.URL(url).params["type"] == name
    assert headers["Scp-Signature"] == compute_expected_signature(
        method, url, headers["Scp-Timestamp"], account
    )


def test_any_id_is_one_segment_of_the_path(wire: Wire) -> None:
    wire.requests.clear()
    with pytest.raises(ServerError, match="unexpected form"):
        wire.client("/scp").get_node("가/../x?y#z")
    ((method, path, headers),) = wire.requests
    assert path == "/scp/v1/gpu-nodes/%EA%B0%80%2F..%2Fx%3Fy%23z"
    url = f"http://{headers['Host']}{path}"
    assert headers["Scp-Signature"] == compute_expected_signature(
        method, url, headers["Scp-Timestamp"]
    )


def test_each_attempt_is_signed_at_its_own_time(call: ProviderContext) -> None:
    moments = iter([10.0, 20.0, 30.0])
    stamps: list[str] = []

    def platform(request: httpx.Request) -> httpx.Response:
        stamps.append(request.headers["Scp-Timestamp"])
        signature = request.headers["Scp-Signature"]
        assert signature == compute_expected_signature("GET", str(request.url), stamps[-1])
        return httpx.Response(503 if len(stamps) < 3 else 200, json={"products": []})

    credentials = Credentials("AK", "SK", base_url="http://scp.test")
    transport = httpx.MockTransport(platform)
    with use_context(call):
        ScpClient(Connection(credentials, transport, now=lambda: next(moments))).list_products()
    assert stamps == ["10000", "20000", "30000"]


# Against a platform that checks.


@pytest.fixture(scope="module")
def scp() -> Iterator[EmulatedScp]:
    with run_emulator() as platform:
        yield platform


@pytest.mark.parametrize("name", ["노드-1", "a b", "a+b", "100%", "a&state=RUNNING", "x/y?z", ""])
def test_any_filter_is_signed_correctly(scp: EmulatedScp, name: str) -> None:
    assert scp.client.list_nodes(gpu_node_name=name, ip=name) == []


def test_any_id_is_signed_correctly(scp: EmulatedScp) -> None:
    with pytest.raises(NotFound):
        scp.client.get_node("없음 a")


def test_an_account_id_is_signed_correctly(scp: EmulatedScp) -> None:
    assert scp.create_client(SCP_TF_ACCOUNT_ID=ACCOUNT).list_nodes() == []


def test_a_wrong_key_is_refused(scp: EmulatedScp) -> None:
    with pytest.raises(AuthError, match="The signature does not match"):
        scp.create_client(SCP_TF_SECRET_KEY="wrong").list_nodes()
