"""What SCP's answers tell beside their data: why a request is refused, that a version ends."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuform.providers.calls import duration

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
