"""The HTTP client of the forges: what is sent again, and how long it waits for a rate limit."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pydantic import SecretStr, TypeAdapter, ValidationError

from gpuform.providers.errors import (
    ApiError,
    Conflict,
    GpuformError,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.http import ApiClient, ErrorAnswers, Retry, httpx_errors
from gpuform.stacks.code_hosts.answers import error_of, next_page

if TYPE_CHECKING:
    import httpx
    import tenacity

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
