"""`gcpkms://`: Google Cloud KMS, by its REST interface."""

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

from gpuform.stacks.engine.secrets.keepers.opening import KeyUrl, refusal_of
from gpuform.stacks.engine.secrets.passphrase import SecretsError

_SCOPES: Final = ("https://www.googleapis.com/auth/cloudkms",)
_ENDPOINT: Final = "https://cloudkms.googleapis.com/"
_OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS"  # gcloud's own variable
_TIMEOUT: Final = 30
_NEEDS: Final = (
    "Check the credentials (GOOGLE_CREDENTIALS, or `gcloud auth application-default login`): they "
    "need the role roles/cloudkms.cryptoKeyEncrypterDecrypter on this key."
)


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "GoogleKey":
    """A key by its resource name; `additional_authenticated_data` is base64, for URLs.

    Credentials are GOOGLE_CREDENTIALS (JSON), GOOGLE_OAUTH_ACCESS_TOKEN, else the application's
    default ones.
    """
    address.refuse_unknown({"additional_authenticated_data"})
    given = address.text("additional_authenticated_data") or ""
    try:
        data = base64.b64decode(given, altchars=b"-_", validate=True)
    except binascii.Error:
        raise SecretsError(
            f"{address.shown}: additional_authenticated_data is not base64", hint="For URLs: -_"
        ) from None
    try:
        session = AuthorizedSession(_credentials(environ))
    except (google.auth.exceptions.GoogleAuthError, ValueError) as error:
        why = "GOOGLE_CREDENTIALS is not the JSON of credentials"
        why = str(error) if isinstance(error, google.auth.exceptions.GoogleAuthError) else why
        raise refusal_of(address, "be asked about", why, _NEEDS) from None
    again = Retry(
        3,
        allowed_methods=None,  # any: both requests change nothing
        backoff_factor=0.5,
        raise_on_status=False,
        status_forcelist=(429, 500, 502, 503, 504),
    )
    session.mount("https://", HTTPAdapter(max_retries=again))
    return GoogleKey(address, data, session, environ.get(_OVERRIDE) or _ENDPOINT)


def _credentials(environ: Mapping[str, str]) -> Any:
    if text := environ.get("GOOGLE_CREDENTIALS"):
        return google.auth.load_credentials_from_dict(json.loads(text), scopes=_SCOPES)[0]
    if token := environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        return google.oauth2.credentials.Credentials(token)
    return google.auth.default(scopes=_SCOPES)[0]


class GoogleKey:
    """A key of Google Cloud KMS."""

    def __init__(
        self, address: KeyUrl, data: bytes, session: AuthorizedSession, endpoint: str
    ) -> None:
        self._address, self._session = address, session
        self._more = {"additionalAuthenticatedData": _text(data)} if data else {}
        self._url = f"{endpoint.rstrip('/')}/v1/{quote(address.key)}"

    def close(self) -> None:
        """See Keeper."""
        self._session.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """See Keeper."""
        return self._ask("encrypt", "ciphertext", plaintext=_text(plaintext))

    def decrypt(self, ciphertext: bytes) -> bytes:
        """See Keeper."""
        return self._ask("decrypt", "plaintext", ciphertext=_text(ciphertext))

    def _ask(self, what: str, name: str, **given: str) -> bytes:
        try:
            answer = self._session.post(
                f"{self._url}:{what}", json={**given, **self._more}, timeout=_TIMEOUT
            )
            if answer.ok:
                return base64.b64decode(answer.json()[name], validate=True)
            why = f"{answer.status_code} {_message(answer)}".strip()
        except google.auth.exceptions.GoogleAuthError as error:
            why = str(error)
        except requests.ConnectionError:
            why = "it cannot be reached"
        except (requests.RequestException, ValueError, KeyError, TypeError):
            why = "its answer is not one of Google's"
        raise refusal_of(self._address, f"{what} with", why, _NEEDS) from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _message(answer: requests.Response) -> str:
    """What an error's document says; a page of a proxy says nothing."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
