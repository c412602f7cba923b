"""Who may ask: the signature over the URL as it was sent, the timestamp, the permission.

Sources: the document's request headers, and the official SDK for what is signed.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from urllib.parse import quote
from wsgiref.types import WSGIEnvironment

from flask import Request

from gpuform.providers.emulator.scp.errors import ApiError, Message
from gpuform.providers.emulator.scp.settings import KeyPair, Settings

_CLIENT_TYPE = "Openapi"
_REQUIRED = ("Scp-Accesskey", "Scp-Signature", "Scp-Timestamp", "Scp-ClientType")


def check_access(request: Request, settings: Settings, now: float) -> None:
    """`now` is the platform's real time in unix seconds, without its setting to be ahead.

    Raises `ApiError` 401 for who is not known by the signature, 403 for who may only read.
    """
    _check_headers(request)
    pair = settings.keys.get(request.headers["Scp-Accesskey"])
    if pair is None:
        raise _unauthorized(
            Message(
                "등록되지 않은 Access Key입니다. Access Key를 확인하십시오.",
                "The access key is not known. Check the access key.",
            )
        )
    _check_time(request.headers["Scp-Timestamp"], settings, now)
    _check_signature(request, pair)
    if request.method != "GET" and not pair.may_write:
        raise ApiError(
            403,
            "Forbidden",
            Message(
                "이 작업을 수행할 권한이 없습니다.",
                "This access key has no permission for this action.",
            ),
        )


def _check_headers(request: Request) -> None:
    missing = [name for name in _REQUIRED if not request.headers.get(name)]
    if missing:
        names = ", ".join(missing)
        raise _unauthorized(
            Message(f"요청 헤더가 없습니다: {names}", f"Request headers are missing: {names}")
        )
    client_type = request.headers["Scp-ClientType"]
    if client_type != _CLIENT_TYPE:
        raise _unauthorized(
            Message(
                f"Scp-ClientType은 {_CLIENT_TYPE}여야 합니다.",
                f"Scp-ClientType must be {_CLIENT_TYPE}.",
            )
        )


def _check_time(timestamp: str, settings: Settings, now: float) -> None:
    if not re.fullmatch(r"[0-9]{13}", timestamp):
        raise _unauthorized(
            Message(
                "Scp-Timestamp는 13자리 밀리초여야 합니다.",
                "Scp-Timestamp must be milliseconds since 1970, in 13 digits.",
            )
        )
    ahead = int(timestamp) / 1000 - (now + settings.clock_ahead_seconds)
    limit = settings.accepted_skew_seconds
    if abs(ahead) > limit:
        way, korean_way = ("ahead of", "빠릅니다") if ahead > 0 else ("behind", "느립니다")
        raise _unauthorized(
            Message(
                f"Scp-Timestamp가 서버 시각보다 {abs(ahead):.0f}초 {korean_way}"
                f"(허용: {limit:.0f}초). 시스템 시계를 확인하십시오.",
                f"Scp-Timestamp is {abs(ahead):.0f} seconds {way} the platform's clock; "
                f"{limit:.0f} are accepted. Check the system clock.",
            )
        )


def _check_signature(request: Request, pair: KeyPair) -> None:
    headers = request.headers
    signed = Signed(
        method=request.method,
        url=requested_url(request.environ),
        timestamp=headers["Scp-Timestamp"],
        access_key=headers["Scp-Accesskey"],
        account_id=headers.get("Scp-AccountId", ""),
        client_type=headers["Scp-ClientType"],
    )
    expected = signed.signature(pair.secret_key.get_secret_value())
    if not hmac.compare_digest(expected.encode(), headers["Scp-Signature"].encode()):
        what = f"{signed.method} {signed.url}"
        raise _unauthorized(
            Message(
                f"서명이 일치하지 않습니다: {what}",
                f"The signature does not match {what}: check the secret key and the signed URL.",
            )
        )


def _unauthorized(message: Message) -> ApiError:
    return ApiError(401, "Unauthorized", message)


@dataclass(frozen=True)
class Signed:
    """What a signature covers; the body is not part of it."""

    method: str
    url: str
    timestamp: str
    access_key: str
    account_id: str
    client_type: str

    def signature(self, secret_key: str) -> str:
        message = self.method + self.url + self.timestamp
        message += self.access_key + self.account_id + self.client_type
        digest = hmac.digest(secret_key.encode(), message.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()


def requested_url(environ: WSGIEnvironment) -> str:
    """The absolute URL as it was on the wire: scheme, the client's Host, raw path and query.

    A caller in process gives no raw path; there it is the path percent-encoded anew.
    """
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw is None:
        query = environ.get("QUERY_STRING", "")
        raw = quote(environ.get("PATH_INFO", "")) + (f"?{query}" if query else "")
    if "://" in raw.partition("?")[0]:  # a client that takes this for a proxy sends it whole
        return str(raw)
    host = environ.get("HTTP_HOST") or f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}"
    return f"{environ['wsgi.url_scheme']}://{host}{raw}"
