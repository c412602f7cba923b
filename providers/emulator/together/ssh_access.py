"""Sign users in for SSH, and sign their keys: the Dex and the step-ca of clusters with an SSH CA.

`routes` mounts `SshAccessApi` beside Together's API. The requests are those of the platform's own
command line (`tg clusters ssh` of the package together 3.1.1): OIDC's authorization code with PKCE,
then step-ca's `POST /ssh/sign`. Everybody who asks is signed in as one user. That the API reports
the issuer in `oidc_config` is ours: no document says where a client finds it.
"""

import base64
import hashlib
import json
import time
from typing import Any, Final
from urllib.parse import urlencode

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    SSHCertificateBuilder,
    SSHCertificateType,
    load_ssh_public_key,
)
from flask import Response, request

from gpuform.providers.emulator.routing import PlatformApi, Refusal, RouteTable, answer_json
from gpuform.providers.emulator.together.catalogue import SSH_CLIENT_ID, SSH_PREFIX
from gpuform.providers.emulator.together.operations import TogetherOperations

EMAIL: Final = "ada@example.com"
"""The user whom the emulated Dex signs in, and the principal of the certificates."""
_LIFETIME_S: Final = 16 * 3600
"""step-ca's own default for certificates of users."""
_CODE_KIND: Final = "together.ssh.code"
_TOKEN_KIND: Final = "together.ssh.token"  # noqa: S105 - a kind of stored objects


class SshAccessApi(PlatformApi):
    """The sign-in and the certificate authority of each cluster with `ssh_ca_enabled`."""

    name = "together-ssh"
    prefix = SSH_PREFIX

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in the form of step-ca: status and message."""
        return answer_json({"status": status, "message": message}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return no objects for orphan searches: a sign-in costs nothing."""
        return {}

    def _list_routes(self) -> RouteTable:
        return (
            ("GET", "/<cluster_id>/.well-known/openid-configuration", self._discover),
            ("GET", "/<cluster_id>/auth", self._authorize),
            ("POST", "/<cluster_id>/token", self._exchange_code),
            ("POST", "/step-<cluster_id>/ssh/sign", self._sign),
        )

    def _load_platform(self) -> TogetherOperations:
        """Return Together's operations at the clock's present time."""
        return TogetherOperations(self._store, self._clock.now())

    def _discover(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Answer with the addresses of the issuer. Raises `Refusal` 404."""
        _require_authority(operations, cluster_id)
        issuer = f"{request.scheme}://{request.host}{SSH_PREFIX}/{cluster_id}"
        return answer_json(
            {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/auth",
                "token_endpoint": f"{issuer}/token",
            }
        )

    def _authorize(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Sign the user in, and send the browser back with a code. Raises `Refusal` 400 and 404."""
        _require_authority(operations, cluster_id)
        query = request.args
        if query.get("client_id") != SSH_CLIENT_ID or query.get("code_challenge_method") != "S256":
            raise Refusal(400, "unknown client, or no code challenge")
        code = self._store.create_id()
        login = {
            "cluster_id": cluster_id,
            "challenge": query.get("code_challenge"),
            "redirect_uri": query.get("redirect_uri"),
        }
        self._store.put(_CODE_KIND, code, json.dumps(login))
        answer = urlencode({"code": code, "state": query.get("state", "")})
        return Response(status=302, headers={"Location": f"{query.get('redirect_uri')}?{answer}"})

    def _exchange_code(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Answer with an identity token for a code and its verifier, once.

        Raises `Refusal` 400, after which the code is still valid, and 404 without an SSH CA.
        """
        _require_authority(operations, cluster_id)
        form = request.form
        stored_login = self._store.get(_CODE_KIND, form.get("code", ""))
        self._store.remove(_CODE_KIND, form.get("code", ""))
        login = json.loads(stored_login) if stored_login else {}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        presented = (cluster_id, challenge, form.get("redirect_uri"))
        if presented != tuple(login.get(n) for n in ("cluster_id", "challenge", "redirect_uri")):
            raise Refusal(400, "invalid_grant")
        token = self._store.create_id()
        self._store.put(_TOKEN_KIND, token, cluster_id)
        return answer_json({"id_token": token, "token_type": "bearer", "expires_in": 3600})

    def _sign(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Answer with a certificate of the key in the body. Raises `Refusal` 400, 401 and 404.

        The certificate's 16 hours begin at the real time, not at that of the emulator's clock. A
        token may be used again.
        """
        _require_authority(operations, cluster_id)
        body = request.get_json()
        if self._store.get(_TOKEN_KIND, str(body.get("OTT"))) != cluster_id:
            raise Refusal(401, "The request lacked necessary authorization to be completed.")
        if body.get("certType") != "user":
            raise Refusal(400, "certType must be user")
        try:
            key = load_ssh_public_key(f"ecdsa-sha2-nistp256 {body.get('publicKey')}".encode())
        except (ValueError, UnsupportedAlgorithm):
            raise Refusal(400, "publicKey is no key of ECDSA") from None
        # OpenSSH compares with the clock of its machine, and not with that of the emulator.
        now = int(time.time())
        seed = hashlib.sha256(self._store.derive_token(cluster_id).encode()).digest()
        certificate = (
            SSHCertificateBuilder()
            .public_key(key)  # type: ignore[arg-type]
            .serial(now)
            .type(SSHCertificateType.USER)
            .key_id(EMAIL.encode())
            .valid_principals([EMAIL.encode()])
            .valid_after(now - 60)
            .valid_before(now + _LIFETIME_S)
            .add_extension(b"permit-pty", b"")
            .sign(Ed25519PrivateKey.from_private_bytes(seed))
        )
        return answer_json({"crt": certificate.public_bytes().decode().split()[1]}, 201)


def _require_authority(operations: TogetherOperations, cluster_id: str) -> None:
    """Raise `Refusal` 404 unless the cluster exists and has an SSH CA."""
    cluster = operations.get_cluster(cluster_id)
    if not cluster.settings.cluster_config.get("ssh_ca_enabled"):
        raise Refusal(404, f"cluster {cluster_id!r} has no certificate authority")
