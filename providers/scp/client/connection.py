"""Send signed requests to SCP's API, parse its answers into models, and collect paged lists.

`ScpClient` calls this module; requests go through `providers.http.ApiClient`. Headers are those of
the SCP reference's example requests.
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

from gpuform.providers.context import format_duration
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import (
    ApiClient,
    ErrorAnswers,
    ProbeAnswer,
    Retry,
    compute_clock_ahead,
    send_probe,
)
from gpuform.providers.scp.client.credentials import VERSION_CONFIG, Credentials
from gpuform.schemas.models import WireModel
from gpuform.schemas.scp import outputs, wire

if TYPE_CHECKING:
    import httpx

NOTABLE_CLOCK_SKEW_S = 60.0
"""How many seconds two clocks may differ without a hint.

SCP does not document the skew that it accepts, and an answer's Date is a little late.
"""

# SCP's messages come in the language of Accept-Language: Korean and English words are matched.
_SHORTAGE_PATTERN = re.compile(
    r"out of (stock|capacity)"
    r"|(insufficient|not enough|no (free|available|remaining)|lack of|short(age)? of)"
    r"\W+(\w+\W+){0,3}?(capacity|resources?|servers?|nodes?|gpus?|stock)\b"
    r"|(capacity|stock|resources?)\W+(\w+\W+){0,3}?"
    r"(insufficient|exhausted|exceeded|unavailable|not available|sold out)"
    r"|(용량|자원|리소스|재고|수량|서버|노드|GPU)\S{0,4}\s*(\S+\s+)?(부족|소진|품절)"
    r"|(가용|여유|잔여|남은).{0,30}?(없|부족)",
    re.IGNORECASE,
)
_OTHER_LIMIT_PATTERN = re.compile(
    r"quota|permission|privilege|할당량|쿼터|한도|권한|(?<![a-z])IPs?(?![a-z])|disk|디스크",
    re.IGNORECASE,
)


def is_out_of_capacity(status: int, message: str) -> bool:
    """Return True if a refusal reports a shortage of servers, in Korean or English.

    The platform documents neither a status nor a text for a shortage. A quota is no shortage:
    waiting does not help there.
    """
    return (
        status in {400, 403, 409, 422}
        and _SHORTAGE_PATTERN.search(message) is not None
        and _OTHER_LIMIT_PATTERN.search(message) is None
    )


def is_not_found_answer(body: Mapping[str, Any]) -> bool:
    """Return True if the body of a 404 is SCP's error document: `errors`, each with a `detail`.

    A 404 of a proxy or a wrong address has no such document: no object is gone then.
    """
    errors = body.get("errors")
    if not isinstance(errors, list) or not errors:
        return False
    return all(
        isinstance(error, dict) and isinstance(error.get("detail"), str | list) and error["detail"]
        for error in errors
    )


def build_unauthorized_hint(source: str, clock_ahead_s: float | None) -> str:
    """Return the hint for a 401: check the keys; with a notably wrong clock, first set the clock.

    The difference of the clocks is only stated from `NOTABLE_CLOCK_SKEW_S` seconds on.

    Args:
        source: where the keys come from, for people.
        clock_ahead_s: how many seconds this machine's clock is ahead of SCP's; None if unknown.
    """
    advice = f"check the access key and the secret key ({source})"
    if clock_ahead_s is not None and abs(clock_ahead_s) >= NOTABLE_CLOCK_SKEW_S:
        direction = "ahead of" if clock_ahead_s > 0 else "behind"
        return (
            f"this machine's clock is {format_duration(abs(clock_ahead_s))} {direction} the "
            "platform's, and requests carry a signed time: set the clock; if the platform still "
            f"refuses, {advice}"
        )
    return f"{advice}, and this machine's clock: requests carry a signed time"


def is_version_refusal(status: int, message: str, version: str) -> bool:
    """Return True if an error answer refuses the requested version of the API.

    The platform documents no such answer: the text has to name the version, in Korean or English.
    """
    # Not the digits of an address such as 10.1.3.0.
    has_number = re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", message) is not None
    has_word = re.search(r"version|버전", message, re.IGNORECASE) is not None
    return status in {400, 406} and has_number and has_word


def find_version_end(response: "httpx.Response") -> str | None:
    """Return when the API version of an answer ends; None without a mark of deprecation.

    The result is a text: the header's date, or words for an unknown date. The mark is the
    Deprecation header (RFC 9745) with Sunset (RFC 8594), or the word DEPRECATED in one of the
    platform's own headers about the version: its document names none.
    """
    headers = response.headers
    deprecation = headers.get("deprecation", "").strip().lower()
    version_headers = [
        value for name, value in headers.items() if name.startswith("scp-api-version")
    ]
    if deprecation in {"", "false", "?0"} and not any(
        "DEPRECATED" in value.upper() for value in version_headers
    ):
        return None
    return headers.get("sunset") or "at an unknown date"


logger = logging.getLogger("gpuform")

_HINTS = {
    403: (
        "the user of these keys lacks the permission, or may not use this address: an "
        "administrator of the account can allow it in IAM"
    )
}
_NO_CREDENTIALS = Credentials("", "", base_url="")

Answer = TypeVar("Answer", bound=WireModel)


class Connection:
    """Connection to the API at one address by the keys of one user; safe for many threads.

    With an error instead of credentials every request raises that error. `version` is that of the
    API, `language` that of the platform's messages; `now` the real time that requests are signed
    with, in Unix seconds.
    """

    def __init__(
        self,
        credentials: Credentials | GpuformError,
        transport: "httpx.BaseTransport | None" = None,
        *,
        version: str = outputs.CURRENT_VERSION,
        language: str = "en-US",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._error = credentials if isinstance(credentials, GpuformError) else None
        self._credentials = (
            _NO_CREDENTIALS if isinstance(credentials, GpuformError) else credentials
        )
        self.version = version
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
                hint_of=self._find_hint,
                is_capacity=is_out_of_capacity,
                says_gone=is_not_found_answer,
            ),
            headers=self._build_headers,
            sign=self._sign_request,
            on_answer=self._warn_about_version_end,
            transport=transport,
        )

    def send_request(
        self,
        model: type[Answer],
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Answer:
        """Send one request and return the answer as `model`.

        Raises:
            GpuformError: as `ApiClient.request_model`, or the error passed in place of credentials.
        """
        return self._api.request_model(model, method, path, body=body, params=params, retry=retry)

    @property
    def clock_ahead(self) -> float | None:
        """Return how many seconds this machine's clock is ahead of SCP's; None if unknown."""
        return self._api.clock_ahead

    def send_probe(self, path: str) -> ProbeAnswer:
        """Request a list of at most one object, without repetition, and return the probe's answer.

        Raises:
            GpuformError: as `ApiClient.request`, or the error passed in place of credentials.
        """
        return send_probe(self._api, "GET", path, params={"page": "0", "size": "1"})

    def close(self) -> None:
        """Close the connections; later requests open new ones."""
        self._api.close()

    def _build_headers(self) -> Mapping[str, str]:
        """Build the headers of a request for format, language and API version.

        Raises:
            GpuformError: a copy of the error passed in place of credentials.
        """
        if self._error is not None:
            # A new error for each request: threads must not share one traceback.
            error_copy = type(self._error)(self._error.message, hint=self._error.hint)
            error_copy.help_page = self._error.help_page
            raise error_copy
        return {
            "Accept": "application/json",
            "Accept-Language": self._language,
            outputs.VERSION_HEADER: outputs.format_version_header(self.version),
        }

    def _sign_request(self, request: "httpx.Request") -> "httpx.Request":
        """Add headers with keys, time and signature to the request, and return it."""
        # Signed last, with the URL as httpx has encoded it: the query is part of the signature.
        url, now = str(request.url), self._now()
        request.headers.update(build_signed_headers(self._credentials, request.method, url, now))
        return request

    def _find_hint(self, response: "httpx.Response") -> str | None:
        """Return the hint for a 401 (keys or clock), or for a refused version; else None.

        The hint for a 401 names the source of the keys. The difference of the clocks is stated only
        if the answer shows the platform's time and the clocks differ notably. The hint for a
        refused version names the default one.
        """
        if self.version != outputs.CURRENT_VERSION and is_version_refusal(
            response.status_code, response.text, self.version
        ):
            return (
                f"if this address has no version {self.version} of SCP's API, set {VERSION_CONFIG} "
                f"to {outputs.CURRENT_VERSION}"
            )
        if response.status_code != 401:
            return None
        clock_ahead_s = compute_clock_ahead(response, self._now())
        return build_unauthorized_hint(self._credentials.source, clock_ahead_s)

    def _warn_about_version_end(self, response: "httpx.Response") -> None:
        """Log a warning, once, if the API version in use is deprecated and may end.

        Once for each connection. The mark is in the answer, or the version is one of
        `DEPRECATED_VERSIONS`.
        """
        end = find_version_end(response)
        if end is None and self.version in outputs.DEPRECATED_VERSIONS:
            end = outputs.DEPRECATED_VERSIONS[self.version].isoformat()
        if end is None:
            return
        with self._lock:
            was_warned, self._is_warned = self._is_warned, True
        if not was_warned:
            logger.warning(
                "scp: version %s of the API is deprecated and may end (%s): look for a newer "
                "gpuform",
                self.version,
                end,
            )


CLIENT_TYPE = "Openapi"


def compute_signature(credentials: Credentials, method: str, url: str, timestamp: str) -> str:
    """Compute the value of the header Scp-Signature.

    `url` is absolute, with its query; `timestamp` is milliseconds since 1970, as in the header
    Scp-Timestamp.
    """
    message = method.upper() + url + timestamp
    # Without an account id the empty text is signed, and no Scp-AccountId is sent.
    message += credentials.access_key + credentials.account_id + CLIENT_TYPE
    digest = hmac.digest(credentials.secret_key.encode(), message.encode(), hashlib.sha256)
    return base64.b64encode(digest).decode()


def build_signed_headers(
    credentials: Credentials, method: str, url: str, now: float
) -> dict[str, str]:
    """Build the headers to identify and sign a request; `now` is in Unix seconds.

    The account id and the token have headers only if the credentials have them.
    """
    timestamp = str(int(now * 1000))
    headers = {
        "Scp-Accesskey": credentials.access_key,
        "Scp-Signature": compute_signature(credentials, method, url, timestamp),
        "Scp-Timestamp": timestamp,
        "Scp-ClientType": CLIENT_TYPE,
    }
    if credentials.account_id:
        headers["Scp-AccountId"] = credentials.account_id
    # Only temporary keys come with a token.
    if credentials.auth_token:
        headers["X-Auth-Token"] = credentials.auth_token
    return headers


T = TypeVar("T")

PAGE_SIZE = 1000
"""How many items a page has at most: more than most lists, so that one answer is one moment's list.

The platform documents no limit, and its official provider asks for 2147483647.
"""

MAX_PASSES = 5
"""How often a list of several pages is read at most."""


def read_all_pages(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> list[T]:
    """Read every item of a paged list once.

    Between two pages an item can move from one to the other and be missed. So a list of several
    pages is read again until two passes see the same items. After `MAX_PASSES` passes, the items of
    the last two are returned.

    Args:
        read_page: takes the number of a page, from 0; returns the total number of items and the
            items of the page.
        id_of: returns the id of an item.
    """
    previous_items: Mapping[str, T] = {}
    items, page_count = _read_pass(read_page, id_of)
    for _ in range(MAX_PASSES - 1):
        # A list of one page is one answer, and so of one moment.
        if page_count == 1 or items.keys() == previous_items.keys():
            return list(items.values())
        previous_items = items
        items, page_count = _read_pass(read_page, id_of)
    return list({**previous_items, **items}.values())


def _read_pass(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> tuple[Mapping[str, T], int]:
    """Read the pages once; return the items by id, and the number of pages.

    A page without a new item ends the pass, too, whatever the total.
    """
    items_by_id: dict[str, T] = {}
    for page in itertools.count():
        total, items = read_page(page)
        count_before = len(items_by_id)
        items_by_id.update({id_of(item): item for item in items})
        # A server may cap `size`: a short page is the last one only if all items have come.
        is_last = len(items) < PAGE_SIZE and len(items_by_id) >= total
        # A page without a new item ends the pass: a wrong `count` must not make it endless.
        if is_last or len(items_by_id) == count_before:
            break
    return items_by_id, page + 1
