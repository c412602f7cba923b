"""Admit requests: check the signature over the URL, the time, the permission and the version.

`routes` calls this module before every request. Sources: the document's request headers and its
page 'Version', the platform's common API reference, 'API Versioning', and the official SDK for what
is signed. Version 1.3 is that of the official Terraform provider v6, newer than the document. The
document ends a deprecated version when its date has come; here the version goes on being answered.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from email.utils import format_datetime
from typing import Any, Literal
from urllib.parse import quote
from wsgiref.types import WSGIEnvironment

from flask import Request
from pydantic import BaseModel, Field, SecretStr, field_serializer

from gpuform.providers.emulator.routing import PlatformSettings
from gpuform.providers.emulator.scp import (
    ACCESS_KEY,
    SECRET_KEY,
    VIEWER_ACCESS_KEY,
    VIEWER_SECRET_KEY,
)
from gpuform.providers.emulator.scp.catalogue import ScpApiError, ScpMessage, make_refusal

VERSION_HEADER = "Scp-Api-Version"
_SERVICE = "multinodegpucluster"


@dataclass(frozen=True)
class Version:
    """A version of the API, as the list of versions shows it."""

    number: str
    status: str
    not_before: date | None = None
    """The date on which a deprecated version may end."""
    has_zones: bool = False
    """Whether requests and answers of the version have the availability zone of nodes."""

    def to_json(self, url: str) -> dict[str, Any]:
        """Return the API version in the JSON form of SCP's list of versions."""
        return {
            "id": f"v{self.number}",
            "links": [{"href": f"{url}/v1", "rel": "self"}],
            "not_before": "" if self.not_before is None else self.not_before.isoformat(),
            "status": self.status,
        }

    def build_headers(self) -> dict[str, str]:
        """Return the headers for the version of an answer; a deprecated version has more of them.

        The document names no mark of a deprecated version; here the mark is that of RFC 9745 and
        RFC 8594: the headers Deprecation and Sunset.
        """
        headers = {VERSION_HEADER: f"{_SERVICE} {self.number}"}
        if self.not_before is not None:
            end = datetime.combine(self.not_before, time(), UTC)
            # RFC 9745 counts seconds since 1970 after an @; RFC 8594 has an HTTP date.
            headers["Deprecation"] = f"@{int(end.timestamp())}"
            headers["Sunset"] = format_datetime(end, usegmt=True)
        return headers


CURRENT = Version("1.2", "CURRENT")
VERSIONS = (
    # Newer than the document, so its status is ours.
    Version("1.3", "SUPPORTED", has_zones=True),
    CURRENT,
    Version("1.1", "DEPRECATED", date(2026, 3, 31)),
    Version("1.0", "DEPRECATED", date(2025, 12, 31)),
)


def choose_version(header: str | None) -> Version:
    """Return the version that a `Scp-Api-Version` header names; without a header the current one.

    Raises `Refusal` 400 for an unknown version.
    """
    if not header:
        return CURRENT
    for version in VERSIONS:
        if header == f"{_SERVICE} {version.number}":
            return version
    known_versions = ", ".join(f"{_SERVICE} {version.number}" for version in VERSIONS)
    raise make_refusal(
        "UnsupportedApiVersion",
        f"지원하지 않는 {VERSION_HEADER}입니다: {header} (지원: {known_versions})",
        f"{VERSION_HEADER} {header!r} is not supported; supported: {known_versions}",
    )


class KeyPair(BaseModel, extra="forbid", frozen=True):
    """A pair of keys; the access key is the name of the pair in the settings."""

    secret_key: SecretStr = Field(min_length=1)
    may_write: bool = True

    @field_serializer("secret_key", when_used="json")
    def _serialize_secret(self, secret_key: SecretStr) -> str:
        """Return the secret itself, for the store."""
        # Pydantic would store stars, and the settings have to survive a restart of the emulator.
        return secret_key.get_secret_value()


class ScpSettings(PlatformSettings):
    """What tests can set of SCP. Where the platform documents nothing, the defaults are ours."""

    kind = "scp.settings"

    keys: Mapping[str, KeyPair] = {
        ACCESS_KEY: KeyPair(secret_key=SecretStr(SECRET_KEY)),
        VIEWER_ACCESS_KEY: KeyPair(secret_key=SecretStr(VIEWER_SECRET_KEY), may_write=False),
    }
    """The known key pairs by access key."""

    clock_ahead_seconds: float = Field(default=0.0, allow_inf_nan=False)
    """How far the platform's clock, against which requests are signed, is ahead of the real one."""

    accepted_skew_seconds: float = Field(default=900.0, ge=0, allow_inf_nan=False)
    """How far a request's timestamp may be from the platform's clock."""

    capacity: Mapping[str, int] = {}
    """Servers of vendor pools, by pool id, instead of the catalogue's number."""

    joining_one_allowed: bool = True
    """Whether one server may join a fabric that exists; else two at least."""

    joining_while_creating: bool = False
    """Whether servers may join a fabric that is still CREATING."""

    create_answer: Literal["first", "all", "more", "foreign", "none"] = "first"
    """Which `resource_id` answers a create: that of its first node as in the document, those of all
    its nodes, these and one of no node, one of no node, or none."""

    appears_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long after the answer lists and GET still lack a new node."""

    reaction_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long an accepted action does not show: an object keeps its old state meanwhile."""

    terminated_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long a terminated node still shows, as TERMINATED; 0: a GET is 404 at once."""

    def to_public_dict(self) -> dict[str, Any]:
        """Return the settings without the secret keys."""
        return self.model_dump(mode="json", exclude={"keys": {"__all__": {"secret_key"}}})


_CLIENT_TYPE = "Openapi"
_REQUIRED_HEADERS = ("Scp-Accesskey", "Scp-Signature", "Scp-Timestamp", "Scp-ClientType")


def check_access(request: Request, settings: ScpSettings, now: float) -> None:
    """Raise `Refusal` 401 if a request is not signed with a known key, 403 for a forbidden write.

    401 is also for missing headers and a timestamp too far from the platform's clock, which is
    `now` (real unix seconds) and the setting `clock_ahead_seconds`.
    """
    _check_headers(request)
    pair = settings.keys.get(request.headers["Scp-Accesskey"])
    # An unknown key and a wrong signature are both 401; the message distinguishes them.
    if pair is None:
        raise _make_unauthorized(
            "등록되지 않은 Access Key입니다. Access Key를 확인하십시오.",
            "The access key is not known. Check the access key.",
        )
    _check_time(request.headers["Scp-Timestamp"], settings, now)
    # The permission comes last: who may not write is only known once the signature has shown who
    # asks.
    _check_signature(request, pair)
    if request.method != "GET" and not pair.may_write:
        raise ScpApiError(
            403,
            "Forbidden",
            ScpMessage(
                "이 작업을 수행할 권한이 없습니다.",
                "This access key has no permission for this action.",
            ),
        )


def _check_headers(request: Request) -> None:
    """Raise `Refusal` 401 for a missing header or another client type."""
    missing = [name for name in _REQUIRED_HEADERS if not request.headers.get(name)]
    if missing:
        names = ", ".join(missing)
        raise _make_unauthorized(
            f"요청 헤더가 없습니다: {names}",
            f"Request headers are missing: {names}",
        )
    client_type = request.headers["Scp-ClientType"]
    if client_type != _CLIENT_TYPE:
        raise _make_unauthorized(
            f"Scp-ClientType은 {_CLIENT_TYPE}여야 합니다.",
            f"Scp-ClientType must be {_CLIENT_TYPE}.",
        )


def _check_time(timestamp: str, settings: ScpSettings, now: float) -> None:
    """Raise `Refusal` 401 for a malformed timestamp, or one too far from the platform's clock.

    The timestamp has 13 digits, of milliseconds; `now` is the real time in unix seconds.
    """
    # Milliseconds, as in the document: 13 digits until the year 2286; seconds have 10.
    if not re.fullmatch(r"[0-9]{13}", timestamp):
        raise _make_unauthorized(
            "Scp-Timestamp는 13자리 밀리초여야 합니다.",
            "Scp-Timestamp must be milliseconds since 1970, in 13 digits.",
        )
    seconds_ahead = int(timestamp) / 1000 - (now + settings.clock_ahead_seconds)
    limit = settings.accepted_skew_seconds
    if abs(seconds_ahead) > limit:
        direction, korean_direction = (
            ("ahead of", "빠릅니다") if seconds_ahead > 0 else ("behind", "느립니다")
        )
        raise _make_unauthorized(
            f"Scp-Timestamp가 서버 시각보다 {abs(seconds_ahead):.0f}초 {korean_direction}"
            f"(허용: {limit:.0f}초). 시스템 시계를 확인하십시오.",
            f"Scp-Timestamp is {abs(seconds_ahead):.0f} seconds {direction} the platform's "
            f"clock; {limit:.0f} are accepted. Check the system clock.",
        )


def _check_signature(request: Request, pair: KeyPair) -> None:
    """Raise `Refusal` 401 unless the request is signed with the secret key of `pair`."""
    headers = request.headers
    signed_request = SignedRequest(
        method=request.method,
        url=get_requested_url(request.environ),
        timestamp=headers["Scp-Timestamp"],
        access_key=headers["Scp-Accesskey"],
        account_id=headers.get("Scp-AccountId", ""),
        client_type=headers["Scp-ClientType"],
    )
    expected = signed_request.compute_signature(pair.secret_key.get_secret_value())
    if not hmac.compare_digest(expected.encode(), headers["Scp-Signature"].encode()):
        signed_target = f"{signed_request.method} {signed_request.url}"
        raise _make_unauthorized(
            f"서명이 일치하지 않습니다: {signed_target}",
            f"The signature does not match {signed_target}: check the secret key "
            "and the signed URL.",
        )


def _make_unauthorized(korean: str, english: str) -> ScpApiError:
    """Return, without raising, the `Refusal` 401 with the message in both languages."""
    return ScpApiError(401, "Unauthorized", ScpMessage(korean, english))


@dataclass(frozen=True)
class SignedRequest:
    """The parts of a request that a signature covers; the body is not one of them."""

    method: str
    url: str
    timestamp: str
    access_key: str
    account_id: str
    client_type: str

    def compute_signature(self, secret_key: str) -> str:
        """Return the signature in base64: HMAC-SHA256 over all parts, as the SDK signs."""
        message = self.method + self.url + self.timestamp
        message += self.access_key + self.account_id + self.client_type
        digest = hmac.digest(secret_key.encode(), message.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()


def get_requested_url(environ: WSGIEnvironment) -> str:
    """Return the absolute URL as sent: scheme, the client's Host, raw path and query.

    A caller in process sends no raw path; then the path is percent-encoded again. An absolute URL
    in the request line, which clients send to a proxy, is returned as it is.
    """
    # The signature covers the URL with the client's own percent-encoding, which PATH_INFO has lost.
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw is None:
        query = environ.get("QUERY_STRING", "")
        raw = quote(environ.get("PATH_INFO", "")) + (f"?{query}" if query else "")
    if "://" in raw.partition("?")[0]:  # clients send a proxy the absolute URL
        return str(raw)
    host = environ.get("HTTP_HOST") or f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}"
    return f"{environ['wsgi.url_scheme']}://{host}{raw}"
