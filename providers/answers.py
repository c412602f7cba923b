"""What a platform's error answer says, as one of our errors: short, and never with a secret."""

import email.utils
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuform.providers.call import current_call
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfCapacity,
    PermissionDenied,
    RateLimited,
    ServerError,
)

if TYPE_CHECKING:
    import httpx

LONGEST_MESSAGE = 300

_CLASSES: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: AuthError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    422: InvalidRequest,
    429: RateLimited,
}

_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-api-request-id", "cf-ray")


@dataclass(frozen=True)
class ErrorAnswers:
    """How to read the error answers of one platform.

    `secrets` are values that no message may contain; `hints` say by status what to do;
    `is_capacity` tells from status and message that the platform has no free capacity.
    """

    platform: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    hints: Mapping[int, str] = field(default_factory=dict)
    is_capacity: Callable[[int, str], bool] = lambda _status, _message: False

    def error_of(self, response: "httpx.Response", method: str, path: str) -> ApiError:
        """The error that an answer stands for, with the platform's own message if it has one."""
        status = response.status_code
        said, code = _said(response)
        for secret in filter(None, self.secrets):
            said = said.replace(secret, "[secret]")
        kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
        if self.is_capacity(status, said):
            kind = OutOfCapacity
        headers = response.headers
        error = kind(
            f"{self.platform}: {method} {path} answered {status}" + (f": {said}" if said else ""),
            method=method,
            path=path,
            status=status,
            code=code,
            request_id=next(filter(None, map(headers.get, _REQUEST_ID_HEADERS)), None),
            hint=self.hints.get(status),
        )
        if isinstance(error, RateLimited | ServerError):
            error.retry_after = retry_after(headers.get("retry-after"))
        return error


def retry_after(header: str | None) -> float | None:
    """The pause a Retry-After header asks for, in seconds, from its number or its date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        at = email.utils.parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
    return max(0.0, at - current_call().clock.now())


def _said(response: "httpx.Response") -> tuple[str, str | None]:
    """The platform's message and code: `error.message`, `error`, `message` or plain text.

    Anything else of a body is withheld: it may be a page of a proxy, or hold what was sent.
    """
    try:
        body = response.json()
    except ValueError:
        is_text = response.headers.get("content-type", "").startswith("text/plain")
        return (_shortened(response.text) if is_text else ""), None
    if not isinstance(body, dict):
        return "", None
    error = body.get("error")
    holder = error if isinstance(error, dict) else body
    message: Any = holder.get("message", error if isinstance(error, str) else None)
    code: Any = holder.get("code") or holder.get("type")
    return (
        _shortened(message) if isinstance(message, str) else "",
        code if isinstance(code, str) else None,
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}..."
