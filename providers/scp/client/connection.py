"""Send signed requests to SCP's API, read its answers as models, and collect lists that come in
pages.

Headers are those of the SCP reference's example requests.
"""

import base64
import hashlib
import hmac
import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gpuform.providers.calls import duration
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Answered, ApiClient, ErrorAnswers, Retry, ask_once, clock_ahead
from gpuform.providers.scp.client.credentials import Credentials
from gpuform.schemas.models import WireModel
from gpuform.schemas.scp import statuses, wire

if TYPE_CHECKING:
    import httpx

NOTABLE_SKEW = 60.0
"""Seconds that two clocks may differ without a word; what the platform accepts is not documented,
and an answer's Date is a little late."""

_SHORTAGE = re.compile(
    r"out of (stock|capacity)"
    r"|(insufficient|not enough|no (free|available|remaining)|lack of|short(age)? of)"
    r"\W+(\w+\W+){0,3}?(capacity|resources?|servers?|nodes?|gpus?|stock)\b"
    r"|(capacity|stock|resources?)\W+(\w+\W+){0,3}?"
    r"(insufficient|exhausted|exceeded|unavailable|not available|sold out)"
    r"|(용량|자원|리소스|재고|수량|서버|노드|GPU)\S{0,4}\s*(\S+\s+)?(부족|소진|품절)"
    r"|(가용|여유|잔여|남은).{0,30}?(없|부족)",
    re.IGNORECASE,
)
_ABOUT_SOMETHING_ELSE = re.compile(
    r"quota|permission|privilege|할당량|쿼터|한도|권한|(?<![a-z])IPs?(?![a-z])|disk|디스크",
    re.IGNORECASE,
)


def is_out_of_capacity(status: int, message: str) -> bool:
    """Whether a refusal means that no servers are free, in Korean or English.

    The platform documents neither a status nor a text for it. A quota is no capacity: waiting does
    not help there.
    """
    return (
        status in {400, 403, 409, 422}
        and _SHORTAGE.search(message) is not None
        and _ABOUT_SOMETHING_ELSE.search(message) is None
    )


def says_gone(body: Mapping[str, Any]) -> bool:
    """Whether a 404 has the platform's error document: `errors`, each with a `detail`."""
    errors = body.get("errors")
    if not isinstance(errors, list) or not errors:
        return False
    return all(
        isinstance(each, dict) and isinstance(each.get("detail"), str | list) and each["detail"]
        for each in errors
    )


def refused_keys(source: str, ahead: float | None) -> str:
    """What to do about a 401. `ahead` is how far this machine's clock is ahead, in seconds."""
    advice = f"check the access key and the secret key ({source})"
    if ahead is not None and abs(ahead) >= NOTABLE_SKEW:
        way = "ahead of" if ahead > 0 else "behind"
        return (
            f"this machine's clock is {duration(abs(ahead))} {way} the platform's, and requests "
            f"are signed with the time: set the clock; if it is refused then, {advice}"
        )
    return f"{advice}, and this machine's clock: requests are signed with the time"


def end_of_version(response: "httpx.Response") -> str | None:
    """When the API version of an answer that is marked as deprecated ends; None without a mark.

    The mark is the Deprecation header (RFC 9745) with Sunset (RFC 8594), or the word DEPRECATED in
    one of the platform's own headers about the version: its document names none.
    """
    headers = response.headers
    mark = headers.get("deprecation", "").strip().lower()
    own = [value for name, value in headers.items() if name.startswith("scp-api-version")]
    if mark in {"", "false", "?0"} and not any("DEPRECATED" in value.upper() for value in own):
        return None
    return headers.get("sunset") or "at a date that the answer does not tell"


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
        version: str = statuses.CURRENT,
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
                secret_members=wire.SECRET_MEMBERS,
                hints=_HINTS,
                hint_of=self._hint,
                is_capacity=is_out_of_capacity,
                says_gone=says_gone,
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
            statuses.HEADER: statuses.header_value(self._version),
        }

    def _signed(self, request: "httpx.Request") -> "httpx.Request":
        url, now = str(request.url), self._now()
        request.headers.update(signed_headers(self._credentials, request.method, url, now))
        return request

    def _hint(self, response: "httpx.Response") -> str | None:
        if response.status_code != 401:
            return None
        ahead = clock_ahead(response, self._now())
        return refused_keys(self._credentials.source, ahead)

    def _warn_of_end(self, response: "httpx.Response") -> None:
        """Says once that the version in use ends."""
        end = end_of_version(response)
        if end is None and self._version in statuses.DEPRECATED:
            end = statuses.DEPRECATED[self._version].isoformat()
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


T = TypeVar("T")

PAGE_SIZE = 1000
"""More than most lists have, so that one answer is a list at one moment. The platform documents no
limit, and its official provider asks for 2147483647."""

MOST_PASSES = 5


def read_all(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> list[T]:
    """Every item once. `read_page` gets the number of a page, from 0, and gives the number of all
    items and those of the page.

    Between two pages an item can move from one to the other and be missed. So a list of several
    pages is read again until two passes see the same items; of one that never rests, what the last
    two have seen is given.
    """
    earlier: Mapping[str, T] = {}
    seen, pages = _pass(read_page, id_of)
    for _ in range(MOST_PASSES - 1):
        if pages == 1 or seen.keys() == earlier.keys():
            return list(seen.values())
        earlier = seen
        seen, pages = _pass(read_page, id_of)
    return list({**earlier, **seen}.values())


def _pass(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> tuple[Mapping[str, T], int]:
    """The items by id, and how many pages were read. A page without a new item is the last."""
    found: dict[str, T] = {}
    for page in itertools.count():
        total, items = read_page(page)
        known = len(found)
        found.update({id_of(item): item for item in items})
        is_last = len(items) < PAGE_SIZE and len(found) >= total
        if is_last or len(found) == known:
            break
    return found, page + 1
