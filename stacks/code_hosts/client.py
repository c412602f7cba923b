"""Send requests to GitHub and GitLab, read their answers, and describe their errors.

GitHub: docs.github.com/rest/using-the-rest-api (rate limits, pagination, troubleshooting). GitLab:
docs.gitlab.com/api/rest (pagination, status codes) and its user and IP rate limits.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, TypeAdapter, ValidationError

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    GpuformError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.http import ApiClient, ErrorAnswers, Retry, httpx_errors, retry_after
from gpuform.providers.values import Redactor
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.summary_text import format_elapsed

if TYPE_CHECKING:
    import httpx
    import tenacity

_LONGEST_MESSAGE: Final = 300
_LEAST_PAUSE: Final = 60.0
"""Seconds after a limit of which nothing else is said; GitHub asks for a minute, then for more."""

_CLASSES: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidRequest,
    401: AuthError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}
_HINTS: Final[Mapping[type[ApiError], str]] = {
    AuthError: "the token is wrong or has expired",
    PermissionDenied: "the token may not do this: in GitHub Actions the job needs `permissions: "
    "pull-requests: write`, in GitLab the token needs the scope `api` and the role Reporter",
    NotFound: "check the repository and the number; to a token that may not see it, a private "
    "repository is not there",
}


class CommentTooLong(InvalidRequest):
    """The forge takes no comment of this length."""


def error_of(response: "httpx.Response", what: str, attempt: int, token: SecretStr) -> ApiError:
    """The error that an answer stands for; `what` says what was sent. It never has the token.

    A RateLimited has `retry_after` in any case, which grows by `attempt`, from 1, where the forge
    does not say how long to wait.
    """
    status, said = response.status_code, _said(response, token.get_secret_value())
    pause = _pause(response, said, attempt)
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    if pause is not None:
        kind = RateLimited
    elif kind is InvalidRequest and (status == 413 or "too long" in said.lower()):
        kind = CommentTooLong
    moved = " and sends elsewhere" if response.is_redirect else ""
    error = kind(
        f"{what} answered {status}{moved}" + (f": {said}" if said else ""),
        method=response.request.method,
        path=response.request.url.path,
        status=status,
        request_id=response.headers.get("x-github-request-id")
        or response.headers.get("x-request-id"),
        hint=_HINTS.get(kind) if pause is None else f"run it again in {format_elapsed(pause)}",
    )
    if isinstance(error, RateLimited):
        error.retry_after = pause
    return error


def next_page(response: "httpx.Response", params: Mapping[str, str]) -> dict[str, str] | None:
    """The query of the next page; None on the last one.

    Only the query of a link is taken: wherever it points, a token goes to the forge alone.
    """
    link = response.links.get("next", {}).get("url")
    if link:
        return dict(parse_qsl(urlsplit(link).query))
    page = response.headers.get("x-next-page", "").strip()
    return {**params, "page": page} if page else None


def _pause(response: "httpx.Response", said: str, attempt: int) -> float | None:
    """Seconds to wait when a rate limit was met; None when it is something else."""
    headers, status = response.headers, response.status_code
    if status not in (403, 429):
        return None
    asked = retry_after(headers.get("retry-after"))
    if asked is not None:
        return asked
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and reset.isdigit():
            return max(0.0, float(reset) - get_current_context().clock.now()) + 1
    is_limit = status == 429 or re.search(r"rate limit|abuse detection", said, re.IGNORECASE)
    return _LEAST_PAUSE * 2 ** (attempt - 1) if is_limit else None


def _said(response: "httpx.Response", token: str) -> str:
    """The texts in `message`, `error` and `errors`; nothing else of a body is repeated."""
    try:
        body = response.json()
    except ValueError:
        return ""
    found = body if isinstance(body, dict) else {}
    texts = [text for name in ("message", "error", "errors") for text in _texts(found.get(name))]
    told = Redactor([token]).redact(": ".join(dict.fromkeys(texts)))
    line = escape_invisible(" ".join(told.split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict) and isinstance(value.get("message"), str):
        yield value["message"]
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from (f"{name} {text}" for text in _texts(item))


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class GitHubUser(_Wire):
    login: str = ""
    type: str = ""


class GitHubComment(_Wire):
    id: int
    body: str | None = None
    html_url: str = ""
    user: GitHubUser | None = None


class GitHubHead(_Wire):
    sha: str


class GitHubPull(_Wire):
    number: int
    head: GitHubHead
    merged_at: str | None = None


class GitHubRun(_Wire):
    head_sha: str | None = None


class GitHubArtifact(_Wire):
    id: int
    expired: bool
    created_at: str | None = None
    workflow_run: GitHubRun | None = None


class GitHubArtifacts(_Wire):
    artifacts: list[GitHubArtifact]


class GitLabUser(_Wire):
    id: int


class GitLabNote(_Wire):
    id: int
    body: str = ""
    system: bool = False
    author: GitLabUser | None = None


class GitLabMergeRequest(_Wire):
    iid: int
    state: str


class GitLabPipeline(_Wire):
    id: int


class GitLabJob(_Wire):
    id: int
    name: str
    status: str


T = TypeVar("T")

_MOST_PAGES: Final = 500


class ForgeClient(ApiClient):
    """One forge's REST API with one token. No redirect is followed with the token.

    What is tried again, at most `ATTEMPTS` times:

    | what happened                          | GET, PUT, PATCH, DELETE | POST              |
    |----------------------------------------|-------------------------|-------------------|
    | could not connect                      | again                   | again             |
    | no answer: time-out, broken connection | again                   | UnknownOutcome    |
    | a rate limit (429, or 403 that says so)| when the forge allows   | as before         |
    | 409                                    | again                   | again             |
    | 5xx                                    | again                   | ServerError       |
    | other                                  | its error               | its error         |

    The rest is as for platforms. A rate limit that takes longer than `LONGEST_PAUSE` is an error at
    once: a waiting job costs, too. For one run and one thread.
    """

    ATTEMPTS = 6
    LONGEST_PAUSE = 900.0
    FIRST_BACKOFF = 1.0
    LONGEST_BACKOFF = 16.0

    def __init__(
        self,
        forge: str,
        base_url: str,
        *,
        token: SecretStr,
        headers: Callable[[str], Mapping[str, str]],
        **others: Any,
    ) -> None:
        super().__init__(
            base_url,
            errors=ErrorAnswers(forge, page="guides/review", secrets=(token.get_secret_value(),)),
            headers=lambda: headers(token.get_secret_value()),
            **others,
        )
        self._token = token
        self._attempt = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def get(self, kind: type[T], path: str, params: Mapping[str, str] | None = None) -> T:
        """The answer. Raises the errors of `gpuform.providers.errors`."""
        return self._read(kind, self._asked("GET", path, params=params))

    def write(self, kind: type[T], method: str, path: str, body: Mapping[str, Any]) -> T:
        """As `get`, with a body."""
        return self._read(kind, self._asked(method, path, body=body))

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """As `write`, where nobody needs the answer."""
        self._asked(method, path, body=body)

    def pages(
        self, kind: type[T], path: str, params: Mapping[str, str] | None = None
    ) -> Iterator[T]:
        """The items of a list, of all its pages."""
        query: dict[str, str] | None = {"per_page": "100", **(params or {})}
        for _ in range(_MOST_PAGES):
            response = self._asked("GET", path, params=query)
            yield from self._read(list[kind], response)  # type: ignore[valid-type]
            query = next_page(response, query or {})
            if query is None:
                return
        raise GpuformError(f"{self.platform}: {path} has more than {_MOST_PAGES} pages")

    def download(self, path: str) -> bytes:
        """A file; where the forge sends elsewhere for it, it is fetched there without the token."""
        import httpx  # noqa: PLC0415 - only who sends requests pays for it

        response = self._asked("GET", path, may_redirect=True)
        if response.is_redirect:
            target = str(response.url.join(response.headers["location"]))
            with httpx_errors(f"{self.platform}: GET a kept file", target):
                response = httpx.get(target, timeout=60.0, follow_redirects=True)
            if not response.is_success:
                text = f"{self.platform}: GET a kept file answered {response.status_code}"
                raise GpuformError(text)
        return response.content

    def _asked(self, method: str, path: str, **sent: Any) -> "httpx.Response":
        if not self.base_url.startswith(("http://", "https://")):
            raise GpuformError(f"{self.platform}: {method} {path}: {self.base_url} is no address")
        self._attempt = 0
        retry = Retry.CREATE if method == "POST" else Retry.SAFE
        return self.answer(method, path, retry=retry, **sent)

    def _send(self, *asked: Any, **sent: Any) -> "httpx.Response":
        self._attempt += 1
        return super()._send(*asked, **sent)

    def _read(self, kind: type[T], response: "httpx.Response") -> T:
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            request = response.request
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise ServerError(
                f"{self.platform}: {request.method} {request.url.path} answered in an unexpected "
                f"form ({where}: {first['msg']})",
                method=request.method,
                path=request.url.path,
                status=response.status_code,
                hint=f"is {self.base_url} the address of its API?",
            ) from None

    def _error_of(
        self,
        response: "httpx.Response",
        method: str,
        path: str,
        body: Mapping[str, Any] | None,  # noqa: ARG002 - a comment is no secret
    ) -> ApiError:
        return error_of(response, f"{self.platform}: {method} {path}", self._attempt, self._token)

    def _is_enough(self, state: "tenacity.RetryCallState") -> bool:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, RateLimited) else None
        return super()._is_enough(state) or (asked or 0.0) > self.LONGEST_PAUSE

    def _may_repeat(self, error: BaseException, retry: Retry) -> bool:
        if isinstance(error, Unreachable | RateLimited | Conflict):
            return True
        return retry is Retry.SAFE and isinstance(error, UnknownOutcome | ServerError)
