"""Get a short-lived SSH certificate: log in with a browser (OIDC), and have a new key signed.

`gpuform connect` calls this module for clusters with an SSH certificate authority; `ssh-config`
writes the paths. The login is OIDC's authorization code with PKCE, the signature is step-ca's
`POST /ssh/sign`; the requests are those of `tg clusters ssh` (package together 3.1.1). No API key
is sent, and neither a token nor the login is stored.
"""

import base64
import hashlib
import http.server
import secrets
import socket
import time
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    SSHCertificate,
    SSHCertificateType,
    load_ssh_private_key,
    load_ssh_public_identity,
)

from gpuform.schemas.access import SshAuthority
from gpuform.stacks.access import NoAccess
from gpuform.stacks.access.user_file import UserFile

LOGIN_TIMEOUT_S: Final = 300.0
"""How long to wait for a person to log in with the browser."""
SILENT_CONNECTION_S: Final = 2.0
"""How long a connection of the browser may be silent before it is closed."""
_CALLBACK_PORTS: Final = (3000, 10001, 11110)
"""The ports of the redirect addresses that Together's issuers accept, from its command line."""
_CALLBACK_PATH: Final = "/login-callback"
_REMAINING_S: Final = 300.0
"""A certificate that ends sooner is renewed: it has to be valid when the connection is made."""
_ALGORITHM: Final = "ecdsa-sha2-nistp256-cert-v01@openssh.com"
_LONGEST_ANSWER: Final = 200


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A private key and its certificate, for one login name at one authority."""

    key: Path
    certificate: Path

    @classmethod
    def for_login(cls, authority: SshAuthority, user: str) -> "CertificateFiles":
        """Return the files for a login name, in `~/.ssh/gpuform/certificates`."""
        digest = hashlib.sha256(f"{authority.issuer}\n{user}".encode()).hexdigest()[:16]
        folder = Path.home() / ".ssh" / "gpuform" / "certificates" / digest
        return cls(folder / "id_ecdsa", folder / "id_ecdsa-cert.pub")

    def is_valid(self, now: float) -> bool:
        """Return True if the certificate belongs to the key and is valid for some minutes more.

        `now` is in Unix seconds, by the clock of this machine, which OpenSSH uses as well.
        """
        try:
            certificate = load_ssh_public_identity(self.certificate.read_bytes())
            key = load_ssh_private_key(self.key.read_bytes(), None)
        except (OSError, ValueError, UnsupportedAlgorithm):
            return False
        return (
            isinstance(certificate, SSHCertificate)
            and certificate.public_key() == key.public_key()
            and certificate.valid_after <= now < certificate.valid_before - _REMAINING_S
        )

    def write(self, key_text: str, certificate_text: str) -> None:
        """Store a new key, then its certificate; only the user can read both.

        Raises:
            EngineError: a file cannot be written.
        """
        self.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        UserFile(self.key, "the SSH key").update(lambda _: key_text)
        UserFile(self.certificate, "the SSH certificate").update(lambda _: certificate_text)


def renew_certificate(
    authority: SshAuthority,
    user: str,
    show: Callable[[str], None],
    open_browser: Callable[[str], bool] | None = None,
) -> CertificateFiles:
    """Return the files of a valid certificate; log in and have a new key signed if necessary.

    `show` gets what a person has to know: the address to log in at.

    Raises:
        NoAccess: nobody logged in, or the issuer or the authority refuses.
        EngineError: a file cannot be written.
    """
    files = CertificateFiles.for_login(authority, user)
    if files.is_valid(time.time()):
        return files
    key = ec.generate_private_key(ec.SECP256R1())
    public_key = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    with httpx.Client(timeout=30.0, follow_redirects=False) as client:
        token = _log_in(authority, client, show, open_browser or webbrowser.open)
        body = {"publicKey": public_key.decode().split()[1], "OTT": token, "certType": "user"}
        answer = _request_json(client, "POST", authority.sign_url, "SSH certificate", json=body)
    certificate_text = f"{_ALGORITHM} {answer.get('crt')} gpuform\n"
    key_text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    ).decode()
    _require_own_certificate(certificate_text, key.public_key(), authority)
    files.write(key_text, certificate_text)
    return files


def _require_own_certificate(
    certificate_text: str, public_key: ec.EllipticCurvePublicKey, authority: SshAuthority
) -> None:
    """Raise NoAccess unless the text is a user's certificate of the key."""
    certificate = None
    with suppress(ValueError, UnsupportedAlgorithm):
        certificate = load_ssh_public_identity(certificate_text.encode())
    if (
        not isinstance(certificate, SSHCertificate)
        or certificate.type is not SSHCertificateType.USER
        or certificate.public_key() != public_key
    ):
        raise NoAccess(
            f"{authority.sign_url} returned no SSH certificate of the new key",
            hint="run the command again; if this happens again, ask Together",
        )


def _log_in(
    authority: SshAuthority,
    client: httpx.Client,
    show: Callable[[str], None],
    open_browser: Callable[[str], bool],
) -> str:
    """Have a person log in with the browser, and return the identity token.

    Raises:
        NoAccess: nobody logged in in time, or the issuer refuses.
    """
    issuer = authority.issuer
    discovery_url = f"{issuer}/.well-known/openid-configuration"
    discovery = _request_json(client, "GET", discovery_url, "OIDC configuration")
    authorization_url = _require_same_origin(discovery, "authorization_endpoint", issuer)
    token_url = _require_same_origin(discovery, "token_endpoint", issuer)
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(16)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    with _CallbackServer.open(state) as server:
        parameters = {
            "response_type": "code",
            "client_id": authority.client_id,
            "redirect_uri": server.address,
            "scope": authority.scope,
            "state": state,
            "nonce": secrets.token_urlsafe(16),
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        login_url = f"{authorization_url}?{urlencode(parameters)}"
        show(f"Log in with the browser to get an SSH certificate:\n  {login_url}")
        open_browser(login_url)
        code = server.wait_for_code(LOGIN_TIMEOUT_S)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": server.address,
            "client_id": authority.client_id,
            "code_verifier": verifier,
        }
        answer = _request_json(client, "POST", token_url, "identity token", data=form)
    token = answer.get("id_token")
    if not isinstance(token, str) or not token:
        raise NoAccess(
            f"{token_url} returned no identity token", hint="run the command, and log in, again"
        )
    return token


def _require_same_origin(discovery: Mapping[str, Any], name: str, issuer: str) -> str:
    """Return an endpoint of the OIDC configuration, at the scheme, host and port of the issuer.

    Raises:
        NoAccess: the endpoint is missing or elsewhere: a login there would leave Together.
    """
    endpoint = discovery.get(name)
    if isinstance(endpoint, str):
        theirs, ours = urlsplit(endpoint), urlsplit(issuer)
        if (theirs.scheme, theirs.netloc) == (ours.scheme, ours.netloc) and not theirs.query:
            return endpoint
    raise NoAccess(
        f"the OIDC configuration of {issuer} has no {name} at the same address",
        hint="check the issuer on Together's page of the cluster",
    )


def _request_json(
    client: httpx.Client, method: str, url: str, label: str, **body: Any
) -> Mapping[str, Any]:
    """Send a request without credentials of the platform, and return the JSON object answered.

    Raises:
        NoAccess: no answer, another status than success, or no JSON object.
    """
    try:
        answer = client.request(method, url, **body)
        content = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError) as error:
        raise NoAccess(
            f"{label}: {url} does not answer as expected: {type(error).__name__}",
            hint="check the issuer on Together's page of the cluster, and run the command again",
        ) from None
    if isinstance(content, Mapping):
        return content
    reason = " ".join(answer.text.split())[:_LONGEST_ANSWER]
    raise NoAccess(
        f"{label}: {url} answers {answer.status_code}: {reason}",
        hint="check the issuer on Together's page of the cluster, and your rights there",
    )


class _QuietServer(http.server.HTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore a connection that the browser broke off: the login continues on another one."""


class _CallbackServer:
    """The address on this machine to which the browser returns after the login."""

    def __init__(self, server: http.server.HTTPServer, codes: list[str]) -> None:
        self._server, self._codes = server, codes

    @classmethod
    def open(cls, state: str) -> "_CallbackServer":
        """Listen on the first free port. A request without the login's `state` is refused.

        Raises:
            NoAccess: every port is in use.
        """
        codes: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            # A browser may open connections in advance, and send nothing on them.
            timeout = SILENT_CONNECTION_S

            def do_GET(self) -> None:
                target = urlsplit(self.path)
                query = parse_qs(target.query)
                sent_state = query.get("state", [""])[0]
                is_ours = secrets.compare_digest(sent_state.encode(), state.encode())
                if target.path == _CALLBACK_PATH and is_ours and query.get("code"):
                    codes.append(query["code"][0])
                self.send_response(200 if codes else 400)
                self.end_headers()
                self.wfile.write(b"Logged in: close this page." if codes else b"Not a login.")

            def log_message(self, *_: object) -> None:
                """Write nothing: the query has the code of the login."""

        for port in _CALLBACK_PORTS:
            # A browser may resolve localhost to another process on IPv6.
            with suppress(OSError), socket.create_connection(("localhost", port), timeout=0.2):
                continue
            with suppress(OSError):
                return cls(_QuietServer(("localhost", port), Handler), codes)
        ports = ", ".join(map(str, _CALLBACK_PORTS))
        raise NoAccess(
            f"the login needs one of the ports {ports} of this machine, and all are in use",
            hint="end one of the programs that use them, and run the command again",
        )

    @property
    def address(self) -> str:
        """The redirect address of the login."""
        return f"http://localhost:{self._server.server_port}{_CALLBACK_PATH}"

    def wait_for_code(self, timeout_s: float) -> str:
        """Return the code of the login. Raises NoAccess if nobody logs in within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not self._codes and (remaining_s := deadline - time.monotonic()) > 0:
            self._server.timeout = remaining_s
            self._server.handle_request()
        if not self._codes:
            raise NoAccess(
                f"nobody logged in with the browser within {timeout_s / 60:.0f} minutes",
                hint="run the command again, and keep it running until the login is done",
            )
        return self._codes[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
