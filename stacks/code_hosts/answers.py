"""Read the answers of GitHub and GitLab, and word their errors.

GitHub: docs.github.com/rest/using-the-rest-api (rate limits, pagination, troubleshooting). GitLab:
docs.gitlab.com/api/rest (pagination, status codes) and its user and IP rate limits.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import (
    ApiError,
    AuthError,
    Conflict,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RateLimited,
    ServerError,
)
from gpuform.providers.http import retry_after
from gpuform.providers.values import Redactor
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.summary_text import duration

if TYPE_CHECKING:
    import httpx

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
        hint=_HINTS.get(kind) if pause is None else f"run it again in {duration(pause)}",
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
