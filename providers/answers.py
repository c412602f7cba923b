"""What a platform's error answer says, as one of our errors: short, and never with a secret."""

import email.utils
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpuform.providers.call import current_call
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    InvalidRequest,
    NoCredit,
    NotFound,
    OutOfCapacity,
    PermissionDenied,
    RateLimited,
    ServerError,
)

if TYPE_CHECKING:
    import httpx

LONGEST_MESSAGE = 300
SHORTEST_SECRET = 4
"""Characters of a line, below which it may be found anywhere and tells nothing."""

_CLASSES: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: AuthError,
    402: NoCredit,
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

    `secrets` are values that no message may contain, and `secret_members` the members of request
    bodies whose values, or the values in whose objects, are such; `hints` say by status what to do,
    `hint_of` by the answer; `request_id_of` finds the platform's name for the request where no
    header has it; `is_capacity` tells from status and message that the platform has no free
    capacity.
    """

    platform: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_members: tuple[str, ...] = ()
    hints: Mapping[int, str] = field(default_factory=dict)
    hint_of: "Callable[[httpx.Response], str | None]" = lambda _response: None
    request_id_of: "Callable[[httpx.Response], str | None]" = lambda _response: None
    is_capacity: Callable[[int, str], bool] = lambda _status, _message: False

    def error_of(
        self,
        response: "httpx.Response",
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> ApiError:
        """The error that an answer to a request with `body` stands for.

        It has the platform's own message, if there is one.
        """
        status = response.status_code
        said, code = _said(response)
        said = _redacted(said, self._secrets_in(body))
        kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
        if self.is_capacity(status, said):
            kind = OutOfCapacity
        said = _shortened(said)
        headers = response.headers
        error = kind(
            f"{self.platform}: {method} {path} answered {status}" + (f": {said}" if said else ""),
            method=method,
            path=path,
            status=status,
            code=code,
            request_id=next(filter(None, map(headers.get, _REQUEST_ID_HEADERS)), None)
            or self.request_id_of(response),
            hint=self.hint_of(response) or self.hints.get(status),
        )
        if isinstance(error, RateLimited | ServerError):
            error.retry_after = retry_after(headers.get("retry-after"))
        return error

    def _secrets_in(self, body: Mapping[str, Any] | None) -> list[str]:
        sent = [body.get(name) for name in self.secret_members] if body else []
        values = (each.values() if isinstance(each, Mapping) else (each,) for each in sent)
        return [*self.secrets, *(each for each in chain(*values) if isinstance(each, str))]


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


def clock_ahead(response: "httpx.Response", now: float) -> float | None:
    """How far `now` (Unix seconds) is ahead of the answer's Date; None without one."""
    try:
        return now - email.utils.parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except ValueError:
        return None


def _said(response: "httpx.Response") -> tuple[str, str | None]:
    """The platform's message and code: `error.message`, `error`, `message` or plain text.

    Also those of `errors`, each with a `detail` that is a text or a list of texts. Anything else of
    a body is withheld: it may be a page of a proxy, or hold what was sent.
    """
    try:
        body = response.json()
    except ValueError:
        is_text = response.headers.get("content-type", "").startswith("text/plain")
        return (response.text if is_text else ""), None
    if not isinstance(body, dict):
        return "", None
    if isinstance(body.get("errors"), list):
        return _details(body["errors"])
    error = body.get("error")
    holder = error if isinstance(error, dict) else body
    named = error if isinstance(error, str) else None
    message: Any = holder.get("message", named)
    # Where there is a message beside it, `error` is the code; a number is the status once more.
    codes = (holder.get("code"), holder.get("type"), named if message is not named else None)
    return (
        message if isinstance(message, str) else "",
        next((each for each in codes if isinstance(each, str) and each), None),
    )


def _details(errors: list[Any]) -> tuple[str, str | None]:
    texts: list[str] = []
    codes: list[str] = []
    for error in filter(lambda each: isinstance(each, dict), errors):
        detail = error.get("detail")
        found = detail if isinstance(detail, list) else [detail]
        texts += [each for each in found if isinstance(each, str)]
        codes += [each for each in [error.get("code")] if isinstance(each, str)]
    return "; ".join(texts), next(iter(codes), None)


def _redacted(text: str, secrets: Iterable[str]) -> str:
    """Without the secrets, and without any line of one that has several."""
    for secret in secrets:
        lines = [line.strip() for line in secret.splitlines()]
        for hidden in (secret, *(line for line in lines if len(line) >= SHORTEST_SECRET)):
            if hidden:
                text = text.replace(hidden, "[secret]")
    return text


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}..."
