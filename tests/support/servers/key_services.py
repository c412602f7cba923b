"""Serve key services over real HTTP: moto's AWS KMS, and stand-ins for the others.

The stand-ins answer the requests that the services' documentation describes.
"""

import base64
import contextlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID

ACCOUNT, REGION = "123456789012", "us-east-1"
VAULT_HOST = "team.vault.azure.net"


@dataclass
class Service:
    """A running key service: the URL of its key, and the variables by which it is found.

    `requests` has method, path and body of each request; with `denied` the service refuses all.
    `addresses` maps host names of the service to ports of this machine.
    """

    url: str
    environment: dict[str, str]
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    denied: bool = False
    addresses: dict[str, int] = field(default_factory=dict)


Answer = Callable[[str, str, Any, Any], tuple[int, Any, dict[str, str]]]
"""From method, path, headers and body: status, document, headers."""


@contextlib.contextmanager
def serve_aws_kms(key_id: str, material: bytes) -> Iterator[Service]:
    """Serve moto's KMS with one key, `alias/team-ml`. One at a time in a process."""
    import boto3
    from moto.kms.models import kms_backends
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    client = boto3.client(
        "kms",
        region_name=REGION,
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    keys = kms_backends[ACCOUNT][REGION].keys
    created_id = client.create_key()["KeyMetadata"]["KeyId"]
    keys[key_id] = keys.pop(created_id)
    keys[key_id].id, keys[key_id].key_material = key_id, material
    client.create_alias(AliasName="alias/team-ml", TargetKeyId=key_id)
    url = f"awskms://alias/team-ml?region={REGION}&awssdk=v2&context_team=ml"
    try:
        yield Service(url, environment)
    finally:
        client.close()
        kms_backends.reset()
        server.stop()


@contextlib.contextmanager
def serve_vault() -> Iterator[Service]:
    """Serve the transit engine of HashiCorp Vault, with the key `team`."""
    key = AESGCM(os.urandom(32))

    def answer(_method: str, path: str, headers: Any, body: Any) -> Any:
        if service.denied or headers["X-Vault-Token"] != "s.token":
            return 403, {"errors": ["permission denied"]}, {}
        if path == "/v1/transit/encrypt/team":
            nonce = os.urandom(12)
            sealed = nonce + key.encrypt(nonce, base64.b64decode(body["plaintext"]), None)
            return 200, {"data": {"ciphertext": f"vault:v1:{_encode_base64(sealed)}"}}, {}
        if path == "/v1/transit/decrypt/team":
            sealed = base64.b64decode(body["ciphertext"].removeprefix("vault:v1:"))
            return (
                200,
                {
                    "data": {
                        "plaintext": _encode_base64(key.decrypt(sealed[:12], sealed[12:], None))
                    }
                },
                {},
            )
        return 404, {"errors": ["no handler for route"]}, {}

    service = Service("hashivault://team", {"VAULT_TOKEN": "s.token"})
    with _serve(answer, service) as port:
        service.environment["VAULT_ADDR"] = f"http://127.0.0.1:{port}"
        yield service


@contextlib.contextmanager
def serve_google_kms() -> Iterator[Service]:
    """Serve Google Cloud KMS, with one key."""
    name = "projects/p/locations/global/keyRings/r/cryptoKeys/team"
    key = AESGCM(os.urandom(32))

    def answer(_method: str, path: str, headers: Any, body: Any) -> Any:
        if service.denied or headers["Authorization"] != "Bearer ya29.token":
            error = {"code": 403, "message": "Permission denied on the key", "status": "X"}
            return 403, {"error": error}, {}
        more = base64.b64decode(body.get("additionalAuthenticatedData", ""))
        if path == f"/v1/{name}:encrypt":
            nonce = os.urandom(12)
            sealed = nonce + key.encrypt(nonce, base64.b64decode(body["plaintext"]), more)
            return (
                200,
                {"name": f"{name}/cryptoKeyVersions/1", "ciphertext": _encode_base64(sealed)},
                {},
            )
        if path == f"/v1/{name}:decrypt":
            sealed = base64.b64decode(body["ciphertext"])
            return (
                200,
                {"plaintext": _encode_base64(key.decrypt(sealed[:12], sealed[12:], more))},
                {},
            )
        return 404, {"error": {"code": 404, "message": "not found"}}, {}

    service = Service(
        f"gcpkms://{name}?additional_authenticated_data=dGVhbQ==",
        {"GOOGLE_OAUTH_ACCESS_TOKEN": "ya29.token"},
    )
    with _serve(answer, service) as port:
        override = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS"
        service.environment[override] = f"http://127.0.0.1:{port}/"
        yield service


@contextlib.contextmanager
def serve_azure_vault(folder: Path, *, may_get: bool = True) -> Iterator[Service]:
    """Serve Azure Key Vault over TLS, and the machine's identity endpoint.

    Without `may_get` nobody may read the public key: the vault itself has to encrypt.
    """
    key = rsa.generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    version = f"https://{VAULT_HOST}/keys/team/v1"

    def answer(method: str, path: str, headers: Any, body: Any) -> Any:
        if headers["Authorization"] != "Bearer eyJ.token":
            challenge = 'Bearer authorization="https://login.microsoftonline.com/t", '
            challenge += 'resource="https://vault.azure.net"'
            return (
                401,
                {"error": {"code": "Unauthorized", "message": "x"}},
                {"WWW-Authenticate": challenge},
            )
        is_get = method == "GET"
        if service.denied or (is_get and not may_get):
            error = {"code": "Forbidden", "message": "The user does not have keys permission"}
            return 403, {"error": error}, {}
        if is_get:
            n, e = _encode_number(numbers.n), _encode_number(numbers.e)
            operations = ["encrypt", "decrypt"]
            public_key = {"kid": version, "kty": "RSA", "key_ops": operations, "n": n, "e": e}
            return 200, {"key": public_key, "attributes": {"enabled": True}}, {}
        value = base64.urlsafe_b64decode(body["value"] + "==")
        result = (
            key.public_key().encrypt(value, oaep)
            if path.partition("?")[0].endswith("/encrypt")
            else key.decrypt(value, oaep)
        )
        return 200, {"kid": version, "value": _encode_base64url(result)}, {}

    def identity(_method: str, path: str, headers: Any, _body: Any) -> Any:
        assert headers["X-IDENTITY-HEADER"] == "machine"
        expires = str(int(time.time()) + 3600)
        return 200, {"access_token": "eyJ.token", "expires_on": expires, "resource": "x"}, {}

    service = Service(f"azurekeyvault://{VAULT_HOST}/keys/team", {"IDENTITY_HEADER": "machine"})
    chain = _create_certificate(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain)
    with _serve(identity, Service("", {})) as port:
        service.environment["IDENTITY_ENDPOINT"] = f"http://127.0.0.1:{port}/token"
        service.environment["REQUESTS_CA_BUNDLE"] = str(chain)
        with _serve(answer, service, tls) as vaults_port:
            service.addresses[VAULT_HOST] = vaults_port
            yield service


def build_resolver(service: Service) -> Callable[..., Any]:
    """Return a `socket.getaddrinfo` with the service's host names on this machine."""
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host in service.addresses:
            return real("127.0.0.1", service.addresses[host], *args, **kwargs)
        return real(host, port, *args, **kwargs)

    return resolve


@contextlib.contextmanager
def _serve(answer: Answer, service: Service, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(data) if data else None
            service.requests.append((self.command, self.path, body))
            status, document, headers = answer(self.command, self.path, self.headers, body)
            sent = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(sent))}.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = respond  # noqa: N815 - the names of the library

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _create_certificate(folder: Path) -> Path:
    """Write a self-signed certificate of the vault's host with a key; return the path."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, VAULT_HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(VAULT_HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "vault.pem"
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    file.write_bytes(certificate.public_bytes(pem) + key.private_bytes(pem, form, plain))
    return file


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode_number(value: int) -> str:
    return _encode_base64url(value.to_bytes((value.bit_length() + 7) // 8))
