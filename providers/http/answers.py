"""Turn a platform's error answer into one of gpuform's errors: short, and without secrets.

`ApiClient` calls this module with the `ErrorAnswers` of its platform.
"""

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
from gpuform.providers.values import Redactor, collect_texts, redact_request
from gpuform.schemas.safe_text import escape_invisible

if TYPE_CHECKING:
    import httpx

LONGEST_MESSAGE = 300
LONGEST_READ = 10_000
"""Characters of a message that are searched for secrets; the rest is not shown."""
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

    Args:
        platform: the platform's name in messages.
        secrets: values that no message may contain.
        secret_members: members of request bodies whose values no message may contain.
        hints: what to do, by status.
        hint_of: returns a hint for an answer, which precedes `hints`.
        request_id_of: finds the platform's id of the request if no header has it.
        is_capacity: True if a status and a message mean a lack of capacity.
        says_gone: True if the body of a 404 is the platform's own, about a missing object. No other
            404 is believed.
        page: the documentation page about keys and their rights.
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

    def build_error(
        self,
        response: "httpx.Response",
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> ApiError:
        """Return the ApiError for an error answer, with the platform's message and without secrets.

        The message becomes one line of at most `LONGEST_MESSAGE` characters. A 404 that is not the
        platform's own becomes a ForeignAnswer, and a message about a lack of capacity
        OutOfCapacity. `body` is the body of the request, whose values the message must not repeat.
        """
        status = response.status_code
        message, code = _extract_message(response)
        # The search for secrets takes time in proportion to the text.
        message = message[:LONGEST_READ]
        kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
        # Decided before secrets are cut out of the message, which could change its words.
        is_out_of_capacity = self.is_capacity(status, message)
        message = _shorten(self.redact(redact_request(message, body or {}), body))
        # A proxy answers 404 as well, and so does a wrong base URL: objects must not count as gone.
        if kind is NotFound and not self._is_gone(response):
            return build_foreign_answer_error(self.platform, response, method, path, message)
        if is_out_of_capacity:
            kind = OutOfCapacity
        headers = response.headers
        request_id = next(filter(None, map(headers.get, _REQUEST_ID_HEADERS)), None)
        request_id = request_id or self.request_id_of(response)
        hint = self.hint_of(response) or self.hints.get(status)
        error = kind(
            f"{self.platform}: {method} {path} answered {status}"
            + (f": {message}" if message else ""),
            method=method,
            path=path,
            status=status,
            code=code and self.redact(code, body),
            request_id=request_id and self.redact(request_id, body),
            hint=hint and self.redact(hint, body),
        )
        if isinstance(error, AuthError | PermissionDenied):
            error.help_page = self.page or error.help_page
        if isinstance(error, RateLimited | ServerError):
            error.retry_after = parse_retry_after(headers.get("retry-after"))
        return error

    def redact(self, text: str, body: Mapping[str, Any] | None = None) -> str:
        """Return a platform's text without secrets of its client, the request and the call."""
        sent = [(body or {}).get(name) for name in self.secret_members]
        return Redactor(
            [*self.secrets, *collect_texts(sent), *get_current_context().progress.secrets]
        ).redact(text)

    def _is_gone(self, response: "httpx.Response") -> bool:
        """Return True if the answer's JSON says, in the platform's way, that the object is gone."""
        try:
            body = response.json()
        except ValueError:
            return False
        return isinstance(body, dict) and self.says_gone(body)


def build_foreign_answer_error(
    platform: str, response: "httpx.Response", method: str, path: str, message: str = ""
) -> ForeignAnswer:
    """Return the error for an answer that does not come from the platform, such as a proxy's page.

    `message` contains no secrets.
    """
    media_type = response.headers.get("content-type", "").partition(";")[0].strip()
    # Another server wrote the header: nothing but a media type may get into the message.
    form = media_type if _MEDIA_TYPE.fullmatch(media_type) else "nothing"
    status = response.status_code
    expected_form = "its own error document" if status >= 400 else "the form of its answers"
    message = f" ({_shorten(message)})" if message else ""
    return ForeignAnswer(
        f"{platform}: {method} {path} answered {status} with {form}{message}, which is not "
        f"{expected_form}",
        method=method,
        path=path,
        status=status,
        hint=f"another server answers at {response.url.host}, so gpuform ignores the answer and "
        f"keeps the object in the state: check the base URL of {platform}, and the proxy on "
        "the way",
    )


def parse_retry_after(header: str | None) -> float | None:
    """Return the pause of a Retry-After header (a number or a date) in seconds, or None."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        retry_at = email.utils.parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
    return max(0.0, retry_at - get_current_context().clock.now())


def compute_clock_ahead(response: "httpx.Response", now: float) -> float | None:
    """Return how many seconds `now` (Unix time) is ahead of the answer's Date.

    None without a Date.
    """
    try:
        return now - email.utils.parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except ValueError:
        return None


def _extract_message(response: "httpx.Response") -> tuple[str, str | None]:
    """Return the platform's message (`error.message`, `error`, `message` or text) and error code.

    Also reads `errors`, each with a `detail` that is a text or a list of texts. Text counts only as
    `text/plain`. The rest of a body is withheld: the body may be a page of a proxy, or contain what
    was sent. The code may be None.
    """
    try:
        body = response.json()
    except ValueError:
        is_text = response.headers.get("content-type", "").startswith("text/plain")
        return (response.text if is_text else ""), None
    if not isinstance(body, dict):
        return "", None
    if isinstance(body.get("errors"), list):
        return _join_details(body["errors"])
    error = body.get("error")
    holder = error if isinstance(error, dict) else body
    named = error if isinstance(error, str) else None
    message: Any = holder.get("message", named)
    # Where there is a message beside it, `error` is the code; a number is the status once more.
    codes = (holder.get("code"), holder.get("type"), named if message is not named else None)
    return (
        message if isinstance(message, str) else "",
        next((code for code in codes if isinstance(code, str) and code), None),
    )


def _join_details(errors: list[Any]) -> tuple[str, str | None]:
    """Return the texts of an `errors` list in one line, and the first error code or None."""
    texts: list[str] = []
    codes: list[str] = []
    for error in filter(lambda item: isinstance(item, dict), errors):
        detail = error.get("detail")
        detail_texts = detail if isinstance(detail, list) else [detail]
        texts += [text for text in detail_texts if isinstance(text, str)]
        codes += [code for code in [error.get("code")] if isinstance(code, str)]
    return "; ".join(texts), next(iter(codes), None)


def _shorten(message: str) -> str:
    """Return a platform's message as one visible line of at most `LONGEST_MESSAGE` characters."""
    line = escape_invisible(" ".join(message.split()))
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}..."
