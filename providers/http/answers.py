"""What a platform's error answer says, as one of our errors: short, and never with a secret."""

import email.utils
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    ForeignAnswer,
    InvalidRequest,
    NoCredit,
    NotFound,
    OutOfCapacity,
    PermissionDenied,
    RateLimited,
    ServerError,
)
from gpuform.providers.values import Redactor, texts_in, without_request
from gpuform.schemas.safe_text import escape_invisible

if TYPE_CHECKING:
    import httpx

LONGEST_MESSAGE = 300
LONGEST_READ = 10_000
"""Characters of a message that are looked at for what is to be hidden: the rest is not told."""
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,60}")

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
    capacity; `says_gone` tells from the body of a 404 that it is the platform's own, about an
    object that there is not. Without it no 404 is believed. `page` of the documentation tells about
    keys and what they may do.
    """

    platform: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_members: tuple[str, ...] = ()
    hints: Mapping[int, str] = field(default_factory=dict)
    hint_of: "Callable[[httpx.Response], str | None]" = lambda _response: None
    request_id_of: "Callable[[httpx.Response], str | None]" = lambda _response: None
    is_capacity: Callable[[int, str], bool] = lambda _status, _message: False
    says_gone: Callable[[Mapping[str, Any]], bool] = lambda _body: False
    page: str | None = None

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
        said = said[:LONGEST_READ]
        kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
        is_out = self.is_capacity(status, said)
        said = _shortened(self.redacted(without_request(said, body or {}), body))
        if kind is NotFound and not self._is_gone(response):
            return foreign(self.platform, response, method, path, said)
        if is_out:
            kind = OutOfCapacity
        headers = response.headers
        request_id = next(filter(None, map(headers.get, _REQUEST_ID_HEADERS)), None)
        request_id = request_id or self.request_id_of(response)
        hint = self.hint_of(response) or self.hints.get(status)
        error = kind(
            f"{self.platform}: {method} {path} answered {status}" + (f": {said}" if said else ""),
            method=method,
            path=path,
            status=status,
            code=code and self.redacted(code, body),
            request_id=request_id and self.redacted(request_id, body),
            hint=hint and self.redacted(hint, body),
        )
        if isinstance(error, AuthError | PermissionDenied):
            error.help_page = self.page or error.help_page
        if isinstance(error, RateLimited | ServerError):
            error.retry_after = retry_after(headers.get("retry-after"))
        return error

    def redacted(self, text: str, body: Mapping[str, Any] | None = None) -> str:
        """A text of the platform without what is secret, of the request to which it says it, too.

        Nor has it what the current call hides.
        """
        sent = [(body or {}).get(name) for name in self.secret_members]
        return Redactor([*self.secrets, *texts_in(sent), *get_current_context().secrets]).redact(
            text
        )

    def _is_gone(self, response: "httpx.Response") -> bool:
        try:
            body = response.json()
        except ValueError:
            return False
        return isinstance(body, dict) and self.says_gone(body)


def foreign(
    platform: str, response: "httpx.Response", method: str, path: str, said: str = ""
) -> ForeignAnswer:
    """The error of an answer that is not in the platform's form; `said` is without secrets."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    form = kind if _MEDIA_TYPE.fullmatch(kind) else "nothing"
    status = response.status_code
    what = "its own error document" if status >= 400 else "the form of its answers"
    said = f" ({_shortened(said)})" if said else ""
    return ForeignAnswer(
        f"{platform}: {method} {path} answered {status} with {form}{said}, which is not {what}",
        method=method,
        path=path,
        status=status,
        hint=f"somebody else answers at {response.url.host}, so this says nothing of any object "
        f"and nothing is forgotten: check the base URL of {platform}, and the proxy on the way",
    )


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
    return max(0.0, at - get_current_context().clock.now())


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


def _shortened(text: str) -> str:
    line = escape_invisible(" ".join(text.split()))
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}..."
