"""Send requests to code hosts, read their answers, and describe their errors.

GitHub: docs.github.com/rest/using-the-rest-api (rate limits, pagination, troubleshooting). GitLab:
docs.gitlab.com/api/rest (pagination, status codes) and its user and IP rate limits. Azure DevOps:
learn.microsoft.com/azure/devops/integrate/concepts/rate-limits. Bitbucket Cloud:
developer.atlassian.com/cloud/bitbucket/rest/intro (pagination, errors).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

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
from gpuform.providers.http import (
    ApiClient,
    ErrorAnswers,
    Retry,
    convert_httpx_errors,
    parse_retry_after,
)
from gpuform.providers.values import Redactor
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.value_text import format_elapsed

if TYPE_CHECKING:
    import httpx
    import tenacity

MAX_MESSAGE_LENGTH: Final = 300
SIGN_IN_STATUS: Final = 203
TOO_LONG_PATTERN: Final = re.compile(
    r"too long|at most \d+ characters|maximum length|exceeds? the", re.IGNORECASE
)
"""The words of GitHub and GitLab, of Bitbucket, and of Azure DevOps about a long comment."""
MIN_RATE_LIMIT_PAUSE_S: Final = 60.0
"""Seconds to wait after a rate limit that names no time.

GitHub asks for at least a minute, then for longer waits.
"""

ERROR_CLASSES: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidRequest,
    401: AuthError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}
ERROR_HINTS: Final[Mapping[type[ApiError], str]] = {
    AuthError: "the token is wrong or has expired",
    PermissionDenied: "the token may not do this: in GitHub Actions the job needs `permissions: "
    "pull-requests: write`, in GitLab the token needs the scope `api` and the role Reporter, in "
    "Azure DevOps the build service needs the permission `Contribute to pull requests`, in "
    "Bitbucket the token needs the scope `pullrequest:write`",
    NotFound: "check the repository and the number; a private repository seems to be missing if "
    "the token has no access to it",
}


class CommentTooLong(InvalidRequest):
    """The code host refused a comment because of its length."""


def create_error(
    response: "httpx.Response", request_label: str, attempt: int, token: SecretStr
) -> ApiError:
    """Build the error for an unsuccessful response, without the token.

    Args:
        request_label: the code host, method and path, for the message.
        attempt: number of the attempt, from 1. A RateLimited has a `retry_after` that grows with
            the attempt where the code host names no time.
    """
    status, message = response.status_code, format_error_message(response, token.get_secret_value())
    wait_seconds = get_rate_limit_wait(response, message, attempt)
    error_class = ERROR_CLASSES.get(status, ServerError if status >= 500 else ApiError)
    # GitHub's secondary rate limits have status 403: the wait decides, not the status.
    if wait_seconds is not None:
        error_class = RateLimited
    # Azure DevOps answers an expired token with its page for people who sign in, as a success.
    elif status == SIGN_IN_STATUS:
        error_class = AuthError
    # A comment that is too long has no status of its own.
    elif error_class is InvalidRequest and (status == 413 or TOO_LONG_PATTERN.search(message)):
        error_class = CommentTooLong
    redirect_note = " and sends elsewhere" if response.is_redirect else ""
    error = error_class(
        f"{request_label} answered {status}{redirect_note}" + (f": {message}" if message else ""),
        method=response.request.method,
        path=response.request.url.path,
        status=status,
        request_id=response.headers.get("x-github-request-id")
        or response.headers.get("x-request-id")
        or response.headers.get("x-vss-e2eid"),
        hint=ERROR_HINTS.get(error_class)
        if wait_seconds is None
        else f"run the command again in {format_elapsed(wait_seconds)}",
    )
    if isinstance(error, RateLimited):
        error.retry_after = wait_seconds
    return error


def get_next_page_query(
    response: "httpx.Response", params: Mapping[str, str], next_url: str | None = None
) -> dict[str, str] | None:
    """Return the query of the next page of a list, or None on the last page.

    Only the query of the link is used: the token goes to the code host's own address, wherever a
    link points. `next_url` is the link in the answer's body, if the code host puts it there.
    """
    next_url = next_url or response.links.get("next", {}).get("url")
    if next_url:
        return dict(parse_qsl(urlsplit(next_url).query))
    # GitLab sends no Link header for large lists, only the number of the next page.
    page_number = response.headers.get("x-next-page", "").strip()
    return {**params, "page": page_number} if page_number else None


def get_rate_limit_wait(response: "httpx.Response", message: str, attempt: int) -> float | None:
    """Return the seconds until a rate limit ends, or None if the response is no rate limit.

    Without a time in the response, the wait doubles with each `attempt`, from 1.
    """
    headers, status = response.headers, response.status_code
    if status not in (403, 429):
        return None
    requested_wait = parse_retry_after(headers.get("retry-after"))
    if requested_wait is not None:
        return requested_wait
    for prefix in ("x-ratelimit", "ratelimit"):
        reset_time = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and reset_time.isdigit():
            # Reset times are whole seconds: one more is safe.
            return max(0.0, float(reset_time) - get_current_context().clock.now()) + 1
    # GitHub answers secondary rate limits with 403 and says so in the text only.
    is_limit = status == 429 or re.search(r"rate limit|abuse detection", message, re.IGNORECASE)
    return MIN_RATE_LIMIT_PAUSE_S * 2 ** (attempt - 1) if is_limit else None


def format_error_message(response: "httpx.Response", token: str) -> str:
    """Return the texts of `message`, `error` and `errors` in a body, without the token.

    The result is one line, cut after 300 characters, and empty for a body that is not JSON.
    """
    try:
        body = response.json()
    except ValueError:
        return ""
    fields = body if isinstance(body, dict) else {}
    messages = [
        error_text
        for name in ("message", "error", "errors")
        for error_text in iterate_error_texts(fields.get(name))
    ]
    # An error text may quote the request: Basic encodes the token, and EMAIL:TOKEN has two parts.
    authorization = response.request.headers.get("authorization", "")
    secrets = {token, token.rpartition(":")[2], authorization.rpartition(" ")[2]} - {""}
    redacted_message = Redactor(secrets).redact(": ".join(dict.fromkeys(messages)))
    line = escape_invisible(" ".join(redacted_message.split()))
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[:MAX_MESSAGE_LENGTH]}..."


def iterate_error_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a part of an error's body, nested ones too; other values yield nothing.

    An object yields its `message`, or else the texts of all members, each after the member's name.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from iterate_error_texts(item)
    elif isinstance(value, dict) and isinstance(value.get("message"), str):
        yield value["message"]
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from (f"{name} {nested_text}" for nested_text in iterate_error_texts(item))


class CodeHostModel(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


T = TypeVar("T")

MAX_PAGES: Final = 500


class ListPage(CodeHostModel, Generic[T]):
    """A page of a list as an object: `values` and `next` of Bitbucket, `value` of Azure DevOps."""

    values: list[T] = Field(validation_alias=AliasChoices("values", "value"))
    next: str | None = None


class CodeHostClient(ApiClient):
    """Send requests to the REST API of one code host with one token.

    No redirect is followed with the token.

    Requests are sent again, at most `ATTEMPTS` times:

    | what happened                          | GET, PUT, PATCH, DELETE | POST              |
    |----------------------------------------|-------------------------|-------------------|
    | could not connect                      | again                   | again             |
    | no answer: time-out, broken connection | again                   | UnknownOutcome    |
    | a rate limit (429, or 403 that says so)| when the limit ends     | as before         |
    | 409                                    | again                   | again             |
    | 5xx                                    | again                   | ServerError       |
    | other                                  | its error               | its error         |

    Everything else is as for platforms. A rate limit that lasts longer than `LONGEST_PAUSE` is an
    error at once, because a waiting CI job costs money. A client serves one run and one thread.

    `params` are in the query of each request, `page_params` also in that of lists. With
    `wraps_lists`, the code host answers lists as the objects of `ListPage`.
    """

    ATTEMPTS = 6
    LONGEST_PAUSE = 900.0
    FIRST_BACKOFF = 1.0
    LONGEST_BACKOFF = 16.0

    def __init__(  # noqa: PLR0913 - what differs between code hosts, all by keyword
        self,
        code_host: str,
        base_url: str,
        *,
        token: SecretStr,
        headers: Callable[[str], Mapping[str, str]],
        params: Mapping[str, str] | None = None,
        page_params: Mapping[str, str] | None = None,
        wraps_lists: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            base_url,
            errors=ErrorAnswers(
                code_host, page="guides/review", secrets=(token.get_secret_value(),)
            ),
            headers=lambda: headers(token.get_secret_value()),
            **options,
        )
        self._token = token
        self._params = dict(params or {})
        self._page_params = {"per_page": "100"} if page_params is None else dict(page_params)
        self._wraps_lists = wraps_lists
        self._attempt = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def get(self, answer_type: type[T], path: str, params: Mapping[str, str] | None = None) -> T:
        """Return the answer of a GET request as `answer_type`.

        Raises the errors of `gpuform.providers.errors`.
        """
        return self._parse_answer(answer_type, self._send_request("GET", path, params=params))

    def write(self, answer_type: type[T], method: str, path: str, body: Mapping[str, Any]) -> T:
        """Send a request with a body, and return the answer as `answer_type`.

        Raises the errors of `gpuform.providers.errors`; UnknownOutcome if a POST may have
        succeeded.
        """
        return self._parse_answer(answer_type, self._send_request(method, path, body=body))

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Send a request to the code host and ignore the answer's body."""
        self._send_request(method, path, body=body)

    def iterate_items(
        self, item_type: type[T], path: str, params: Mapping[str, str] | None = None
    ) -> Iterator[T]:
        """Yield the items of a list from all pages.

        Raises GpuformError after `MAX_PAGES` pages, and the errors of `get`.
        """
        query: dict[str, str] | None = {**self._page_params, **(params or {})}
        for _ in range(MAX_PAGES):
            response = self._send_request("GET", path, params=query)
            page = self._parse_page(item_type, response)
            yield from page.values
            query = get_next_page_query(response, query or {}, page.next)
            if query is None:
                return
        raise GpuformError(f"{self.platform}: {path} has more than {MAX_PAGES} pages")

    def download(self, path: str) -> bytes:
        """Return a file. A redirect to a file store is followed without the token."""
        import httpx  # noqa: PLC0415 - only who sends requests pays for it

        response = self._send_request("GET", path, may_redirect=True)
        if response.is_redirect:
            target = str(response.url.join(response.headers["location"]))
            with convert_httpx_errors(f"{self.platform}: GET a kept file", target):
                # Not with this client: the token must not reach the file store.
                response = httpx.get(target, timeout=60.0, follow_redirects=True)
            if not response.is_success:
                message = f"{self.platform}: GET a kept file answered {response.status_code}"
                raise GpuformError(message)
        return response.content

    def _send_request(self, method: str, path: str, **options: Any) -> "httpx.Response":
        """Send a request with repetitions, a POST only as `Retry.CREATE`, and return the response.

        Raises:
            GpuformError: the base URL is not an address, or the request failed.
        """
        if not self.base_url.startswith(("http://", "https://")):
            raise GpuformError(f"{self.platform}: {method} {path}: {self.base_url} is no address")
        self._attempt = 0
        retry = Retry.CREATE if method == "POST" else Retry.SAFE
        options["params"] = {**self._params, **(options.get("params") or {})}
        return self.send_request(method, path, retry=retry, **options)

    def _send(self, method: str, path: str, **options: Any) -> "httpx.Response":
        """Count the attempt, and send the request once. Raises ApiError for a sign-in page."""
        self._attempt += 1
        response = super()._send(method, path, **options)
        if response.status_code == SIGN_IN_STATUS:
            raise self._build_error(response, method, path, options.get("body"))
        return response

    def _parse_page(self, item_type: type[T], response: "httpx.Response") -> ListPage[T]:
        """Return a page of a list, parsed from an array or from an object around the array."""
        if self._wraps_lists:
            return self._parse_answer(ListPage[item_type], response)  # type: ignore[valid-type]
        items = self._parse_answer(list[item_type], response)  # type: ignore[valid-type]
        return ListPage[item_type].model_construct(values=items, next=None)  # type: ignore[valid-type]

    def _parse_answer(self, answer_type: type[T], response: "httpx.Response") -> T:
        """Return the response's JSON as `answer_type`.

        Raises:
            ServerError: the JSON has another form.
        """
        try:
            return TypeAdapter(answer_type).validate_json(response.content)
        except ValidationError as error:
            request = response.request
            first_error = error.errors(include_input=False, include_url=False)[0]
            location = ".".join(map(str, first_error["loc"])) or "the whole"
            raise ServerError(
                f"{self.platform}: {request.method} {request.url.path} answered in an unexpected "
                f"form ({location}: {first_error['msg']})",
                method=request.method,
                path=request.url.path,
                status=response.status_code,
                hint=f"is {self.base_url} the address of its API?",
            ) from None

    def _build_error(
        self,
        response: "httpx.Response",
        method: str,
        path: str,
        body: Mapping[str, Any] | None,  # noqa: ARG002 - a comment is no secret
    ) -> ApiError:
        """Return, without raising, the error for a failed response, without the token."""
        return create_error(
            response, f"{self.platform}: {method} {path}", self._attempt, self._token
        )

    def _is_enough(self, state: "tenacity.RetryCallState") -> bool:
        """Return True if no attempt may follow, as for a pause longer than `LONGEST_PAUSE`."""
        error = state.outcome.exception() if state.outcome else None
        requested_wait = error.retry_after if isinstance(error, RateLimited) else None
        return super()._is_enough(state) or (requested_wait or 0.0) > self.LONGEST_PAUSE

    def _may_repeat(self, error: BaseException, retry: Retry) -> bool:
        """Return True if the request may be sent again after `error`.

        Every request may after Unreachable, RateLimited and Conflict; after other errors only with
        `Retry.SAFE`, and only after UnknownOutcome and ServerError.
        """
        # None of these has changed anything, so that even a POST is safe.
        if isinstance(error, Unreachable | RateLimited | Conflict):
            return True
        return retry is Retry.SAFE and isinstance(error, UnknownOutcome | ServerError)
