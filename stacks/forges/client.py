"""The HTTP client of the forges: what is sent again, and how long it waits for a rate limit."""

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pydantic import SecretStr, TypeAdapter, ValidationError

from gpuform.providers.calls import current_call
from gpuform.providers.errors import (
    Conflict,
    GpuformError,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.stacks.forges.answers import error_of, next_page

if TYPE_CHECKING:
    import httpx
    import tenacity

logger = logging.getLogger("gpuform.http")

T = TypeVar("T")

ATTEMPTS: Final = 6
LONGEST_PAUSE: Final = 900.0
"""Seconds; a rate limit that takes longer is an error at once: a waiting job costs, too."""
_LONGEST_BACKOFF: Final = 16.0
_MOST_PAGES: Final = 500


class ForgeClient:
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

    Time is the current call's. `jitter` takes the longest pause and returns the pause, in seconds.
    """

    def __init__(
        self,
        forge: str,
        base_url: str,
        *,
        token: SecretStr,
        headers: Callable[[str], Mapping[str, str]],
        jitter: Callable[[float], float] = lambda longest: random.uniform(0, longest),  # noqa: S311 - spreads load
    ) -> None:
        import httpx  # noqa: PLC0415 - only who sends requests pays for it

        self.forge = forge
        self.base_url = base_url.rstrip("/")
        self._token = token
        self._headers = headers
        self._jitter = jitter
        self._http = httpx.Client(timeout=httpx.Timeout(60.0, connect=10.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def get(self, kind: type[T], path: str, params: Mapping[str, str] | None = None) -> T:
        """The answer. Raises the errors of `gpuform.providers.errors`."""
        return self._read(kind, self._request("GET", path, params=params))

    def write(self, kind: type[T], method: str, path: str, body: Mapping[str, Any]) -> T:
        """As `get`, with a body."""
        return self._read(kind, self._request(method, path, body=body))

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """As `write`, where nobody needs the answer."""
        self._request(method, path, body=body)

    def pages(
        self, kind: type[T], path: str, params: Mapping[str, str] | None = None
    ) -> Iterator[T]:
        """The items of a list, of all its pages."""
        query: dict[str, str] | None = {"per_page": "100", **(params or {})}
        for _ in range(_MOST_PAGES):
            response = self._request("GET", path, params=query)
            yield from self._read(list[kind], response)  # type: ignore[valid-type]
            query = next_page(response, query or {})
            if query is None:
                return
        raise GpuformError(f"{self.forge}: {path} has more than {_MOST_PAGES} pages")

    def download(self, path: str) -> bytes:
        """A file; where the forge sends elsewhere for it, it is fetched there without the token."""
        import httpx  # noqa: PLC0415 - only who sends requests pays for it

        response = self._request("GET", path, may_redirect=True)
        if response.is_redirect:
            target = str(response.url.join(response.headers["location"]))
            with self._errors("GET a kept file"):
                response = httpx.get(target, timeout=60.0, follow_redirects=True)
            if not response.is_success:
                text = f"{self.forge}: GET a kept file answered {response.status_code}"
                raise GpuformError(text)
        return response.content

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        may_redirect: bool = False,
    ) -> "httpx.Response":
        import tenacity  # noqa: PLC0415 - as above

        what = f"{self.forge}: {method} {path}"

        def send(attempt: int) -> "httpx.Response":
            headers = self._headers(self._token.get_secret_value())
            with self._errors(what):
                url = self.base_url + path
                response = self._http.request(
                    method, url, params=params, json=body, headers=headers
                )
            logger.debug("%s %s -> %d", method, path, response.status_code)
            if response.is_success or (may_redirect and response.is_redirect):
                return response
            raise error_of(response, what, attempt, self._token)

        retrying = tenacity.Retrying(
            sleep=lambda seconds: current_call().sleep(seconds),
            wait=self._pause,
            stop=_is_enough,
            retry=tenacity.retry_if_exception(lambda error: _may_repeat(error, method)),
            reraise=True,
        )
        for attempt in retrying:
            with attempt:
                return send(attempt.retry_state.attempt_number)
        raise AssertionError("tenacity ends with an answer or an error")

    def _read(self, kind: type[T], response: "httpx.Response") -> T:
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            request = response.request
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise ServerError(
                f"{self.forge}: {request.method} {request.url.path} answered in an unexpected form "
                f"({where}: {first['msg']})",
                method=request.method,
                path=request.url.path,
                status=response.status_code,
                hint=f"is {self.base_url} the address of its API?",
            ) from None

    def _pause(self, state: "tenacity.RetryCallState") -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, RateLimited) and error.retry_after is not None:
            return error.retry_after
        return self._jitter(min(2.0 ** (state.attempt_number - 1), _LONGEST_BACKOFF))

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """httpx's errors as ours; none has the request, whose headers hold the token."""
        import httpx  # noqa: PLC0415 - as above

        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise Unreachable(
                f"{what}: no connection to {self.base_url} ({type(error).__name__})",
                hint="check the network and the address",
            ) from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise GpuformError(f"{what}: {self.base_url} is no address: {error}") from None
        except httpx.HTTPError as error:
            raise UnknownOutcome(f"{what}: no answer ({type(error).__name__})") from None


def _is_enough(state: "tenacity.RetryCallState") -> bool:
    return state.attempt_number >= ATTEMPTS or state.upcoming_sleep > LONGEST_PAUSE


def _may_repeat(error: BaseException, method: str) -> bool:
    if isinstance(error, Unreachable | RateLimited | Conflict):
        return True
    return method != "POST" and isinstance(error, UnknownOutcome | ServerError)
