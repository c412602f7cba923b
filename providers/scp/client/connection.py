"""The way to SCP's API: signed requests, answers as models, and what is said of versions and keys.

Headers are those of the SCP reference's example requests.
"""

import base64
import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Answered, ApiClient, ErrorAnswers, Retry, ask_once, clock_ahead
from gpuform.providers.scp.client import answers
from gpuform.providers.scp.client.credentials import Credentials
from gpuform.schemas.models import WireModel
from gpuform.schemas.scp import requests, versions

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("gpuform")

_HINTS = {
    403: "the user of these keys may not do this, or not from this address: an administrator of "
    "the account can allow it in IAM",
}
_NOBODY = Credentials("", "", base_url="")

Answer = TypeVar("Answer", bound=WireModel)


class Connection:
    """The API at one address by one user's keys; safe for many threads.

    With an error instead of credentials every request raises that error. `language` is that of the
    platform's messages; `now` the real time that requests are signed with, in Unix seconds.
    """

    def __init__(
        self,
        credentials: Credentials | GpuformError,
        transport: "httpx.BaseTransport | None" = None,
        *,
        version: str = versions.CURRENT,
        language: str = "en-US",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._error = credentials if isinstance(credentials, GpuformError) else None
        self._credentials = _NOBODY if isinstance(credentials, GpuformError) else credentials
        self._version = version
        self._language = language
        self._now = now
        self._lock = threading.Lock()
        self._is_warned = False
        self._api = ApiClient(
            self._credentials.base_url,
            errors=ErrorAnswers(
                "scp",
                page="start/scp",
                secrets=self._credentials.secrets,
                secret_members=requests.SECRET_MEMBERS,
                hints=_HINTS,
                hint_of=self._hint,
                is_capacity=answers.is_out_of_capacity,
                says_gone=answers.says_gone,
            ),
            headers=self._headers,
            sign=self._signed,
            on_answer=self._warn_of_end,
            transport=transport,
        )

    def call(
        self,
        model: type[Answer],
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Answer:
        """The answer to one request. Raises as `ApiClient.ask`."""
        return self._api.ask(model, method, path, body=body, params=params, retry=retry)

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of the platform's, in seconds; None: not told."""
        return self._api.clock_ahead

    def probe(self, path: str) -> Answered:
        """One request for at most one object. Raises as `ApiClient.request`."""
        return ask_once(self._api, "GET", path, params={"page": "0", "size": "1"})

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _headers(self) -> Mapping[str, str]:
        if self._error is not None:
            again = type(self._error)(self._error.message, hint=self._error.hint)
            again.page = self._error.page
            raise again
        return {
            "Accept": "application/json",
            "Accept-Language": self._language,
            versions.HEADER: versions.header_value(self._version),
        }

    def _signed(self, request: "httpx.Request") -> "httpx.Request":
        url, now = str(request.url), self._now()
        request.headers.update(signed_headers(self._credentials, request.method, url, now))
        return request

    def _hint(self, response: "httpx.Response") -> str | None:
        if response.status_code != 401:
            return None
        ahead = clock_ahead(response, self._now())
        return answers.refused_keys(self._credentials.source, ahead)

    def _warn_of_end(self, response: "httpx.Response") -> None:
        """Says once that the version in use ends."""
        end = answers.end_of_version(response)
        if end is None and self._version in versions.DEPRECATED:
            end = versions.DEPRECATED[self._version].isoformat()
        if end is None:
            return
        with self._lock:
            was_warned, self._is_warned = self._is_warned, True
        if not was_warned:
            logger.warning(
                "scp: version %s of the API is deprecated and may end (%s): look for a newer "
                "gpuform",
                self._version,
                end,
            )


CLIENT_TYPE = "Openapi"


def signature(credentials: Credentials, method: str, url: str, timestamp: str) -> str:
    """`url` is absolute, with its query; `timestamp` is milliseconds since 1970, as in the header.

    An account id is part of what is signed only when there is one.
    """
    message = method.upper() + url + timestamp
    message += credentials.access_key + credentials.account_id + CLIENT_TYPE
    digest = hmac.digest(credentials.secret_key.encode(), message.encode(), hashlib.sha256)
    return base64.b64encode(digest).decode()


def signed_headers(credentials: Credentials, method: str, url: str, now: float) -> dict[str, str]:
    """The headers that say who asks; `now` is the real time, in Unix seconds."""
    timestamp = str(int(now * 1000))
    headers = {
        "Scp-Accesskey": credentials.access_key,
        "Scp-Signature": signature(credentials, method, url, timestamp),
        "Scp-Timestamp": timestamp,
        "Scp-ClientType": CLIENT_TYPE,
    }
    if credentials.account_id:
        headers["Scp-AccountId"] = credentials.account_id
    if credentials.auth_token:
        headers["X-Auth-Token"] = credentials.auth_token
    return headers
