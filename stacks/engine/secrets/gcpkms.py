"""Encrypt with Google Cloud KMS (`gcpkms://`) through its REST interface.

`key_services` imports this module for such a URL.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import google.auth
import google.auth.exceptions
import google.oauth2.credentials
import requests
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from gpuform.stacks.engine.secrets.passphrase import SecretsError
from gpuform.stacks.engine.secrets.stack_secrets import KeyUrl, build_service_error

_SCOPES: Final = ("https://www.googleapis.com/auth/cloudkms",)
_ENDPOINT: Final = "https://cloudkms.googleapis.com/"
_OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS"  # gcloud's own variable
_TIMEOUT: Final = 30
_PERMISSIONS_HINT: Final = (
    "Check the credentials (GOOGLE_CREDENTIALS, or `gcloud auth application-default login`): they "
    "need the role roles/cloudkms.cryptoKeyEncrypterDecrypter on this key."
)


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "GoogleKey":
    """Open a key by resource name; `additional_authenticated_data` is URL-safe base64.

    Credentials are GOOGLE_CREDENTIALS (JSON), GOOGLE_OAUTH_ACCESS_TOKEN, else the application's
    default ones. Raises SecretsError for wrong parameters or without credentials.
    """
    address.reject_unknown_parameters({"additional_authenticated_data"})
    encoded_data = address.get_text("additional_authenticated_data") or ""
    try:
        data = base64.b64decode(encoded_data, altchars=b"-_", validate=True)
    except binascii.Error:
        raise SecretsError(
            f"{address.display_url}: additional_authenticated_data is not base64",
            hint="Use URL-safe base64, with - and _",
        ) from None
    try:
        session = AuthorizedSession(_load_credentials(environ))
    except (google.auth.exceptions.GoogleAuthError, ValueError) as error:
        why = "GOOGLE_CREDENTIALS does not contain credentials as JSON"
        why = str(error) if isinstance(error, google.auth.exceptions.GoogleAuthError) else why
        raise build_service_error(address, "be reached with", why, _PERMISSIONS_HINT) from None
    retry = Retry(
        3,
        allowed_methods=None,  # retries any method: neither request changes anything
        backoff_factor=0.5,
        raise_on_status=False,
        status_forcelist=(429, 500, 502, 503, 504),
    )
    session.mount("https://", HTTPAdapter(max_retries=retry))
    return GoogleKey(address, data, session, environ.get(_OVERRIDE) or _ENDPOINT)


def _load_credentials(environ: Mapping[str, str]) -> Any:
    """Load the credentials listed at `open_key`; Google's errors pass through."""
    if credentials_json := environ.get("GOOGLE_CREDENTIALS"):
        return google.auth.load_credentials_from_dict(json.loads(credentials_json), scopes=_SCOPES)[
            0
        ]
    if token := environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        return google.oauth2.credentials.Credentials(token)
    return google.auth.default(scopes=_SCOPES)[0]


class GoogleKey:
    """A key of Google Cloud KMS."""

    def __init__(
        self, address: KeyUrl, data: bytes, session: AuthorizedSession, endpoint: str
    ) -> None:
        self._address, self._session = address, session
        self._extra_fields = {"additionalAuthenticatedData": _encode_base64(data)} if data else {}
        self._url = f"{endpoint.rstrip('/')}/v1/{quote(address.key)}"

    def close(self) -> None:
        """Close the connections to Google Cloud KMS."""
        self._session.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt under the Cloud KMS key. Raises SecretsError."""
        return self._post("encrypt", "ciphertext", plaintext=_encode_base64(plaintext))

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Decrypt a ciphertext by the key service. Raises SecretsError."""
        return self._post("decrypt", "plaintext", ciphertext=_encode_base64(ciphertext))

    def _post(self, action: str, name: str, **fields: str) -> bytes:
        """Send a request and return the decoded field `name` of the answer. Raises SecretsError."""
        try:
            answer = self._session.post(
                f"{self._url}:{action}", json={**fields, **self._extra_fields}, timeout=_TIMEOUT
            )
            if answer.ok:
                return base64.b64decode(answer.json()[name], validate=True)
            reason = f"{answer.status_code} {_parse_error_message(answer)}".strip()
        except google.auth.exceptions.GoogleAuthError as error:
            reason = str(error)
        except requests.ConnectionError:
            reason = "Google Cloud KMS cannot be reached"
        except (requests.RequestException, ValueError, KeyError, TypeError):
            reason = "the answer is not from Google Cloud KMS"
        raise build_service_error(
            self._address, f"{action} with", reason, _PERMISSIONS_HINT
        ) from None


def _encode_base64(data: bytes) -> str:
    """Return the data in Base64, as text for JSON."""
    return base64.b64encode(data).decode()


def _parse_error_message(answer: requests.Response) -> str:
    """Return the message of Google's error document, or "" for another answer."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
