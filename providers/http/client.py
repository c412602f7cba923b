"""Send the requests of all platforms: one client for each account, one policy for errors.

Platforms create an `ApiClient` for each address and account, and keep their clients in `Clients`;
`gpuform doctor` calls `probe_platform`.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from gpuform.providers.context import (
    find_mounted_transport,
    get_current_context,
    get_run_context,
    get_trust,
    trace_span,
)
from gpuform.providers.errors import (
    ApiError,
    ForeignAnswer,
    GpuformError,
    MissingCredentials,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.http.answers import (
    ErrorAnswers,
    build_foreign_answer_error,
    compute_clock_ahead,
)
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms
from gpuform.schemas.models import validate_id
from gpuform.schemas.safe_text import escape_invisible, truncate

if TYPE_CHECKING:
    import httpx
    import tenacity

logger = logging.getLogger("gpuform.http")

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
# Longer than ANSWER_TIMEOUT: a request that waits for a connection outlasts a slow answer.
POOL_TIMEOUT = 120.0
_ONLY_LOOK = frozenset({"GET", "HEAD"})
CONNECTIONS = 64
_POOLS = 8
"""Pools of connections.

At each request httpcore scans all connections of a pool, and for each idle one all again.
"""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class _Pool:
    """The connections of one HTTP client, and how many requests they carry now."""

    http: "httpx.Client"
    requests: int = 0


class Retry(Enum):
    """Which failed requests may be sent again; see `ApiClient`."""

    SAFE = "safe"
    CREATE = "create"
    NEVER = "never"


class RequestOptions(TypedDict, total=False):
    """What a request may have beside its method and path. Any method may have a body."""

    body: Mapping[str, Any] | None
    params: Mapping[str, str] | None
    retry: Retry
    """SAFE where nothing is said."""


def read_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies by scheme (`http`, `https`, `all`), and the value of NO_PROXY as `no`.

    As in curl and urllib, a variable in small letters wins over the one in capitals.
    """
    # Sorted: capitals come first, and what comes later wins.
    values_by_name = {name.lower(): value for name, value in sorted(environ.items())}
    return {
        name.removesuffix("_proxy"): value
        for name, value in values_by_name.items()
        if name.endswith("_proxy") and value
    }


def find_proxy(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy (see `read_proxies`) for requests to `url`, or None."""
    from urllib.request import (  # type: ignore[attr-defined]  # noqa: PLC0415 - httpx imports it
        proxy_bypass_environment,
    )

    parts = urlsplit(url)
    location = parts.netloc.rpartition("@")[2]
    if any(proxy_bypass_environment(host, proxies) for host in (parts.hostname or "", location)):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class ApiClient:
    """One platform's API for one set of credentials; safe for many threads, built lazily.

    What is tried again, at most `ATTEMPTS` times and never past the deadline of the current call:

    | what happened                           | SAFE (GET, PUT, DELETE) | CREATE (POST)       |
    |-----------------------------------------|-------------------------|---------------------|
    | could not connect                       | again                   | again               |
    | no answer: time-out, broken connection  | again                   | UnknownOutcome      |
    | 429                                     | again                   | with Retry-After*   |
    | 502, 503, 504                           | again                   | ServerError         |
    | other 5xx                               | ServerError             | ServerError         |
    | other 4xx                               | its error               | its error           |

    * Unless `can_repeat_create` of the context is False. NEVER sends once. The pause is Retry-After
    (seconds or a date, at most `LONGEST_PAUSE`), else full jitter under 0.5 s, 1 s, 2 s, ... up to
    `LONGEST_BACKOFF`. A pause goes through the current call, so that it ends when the run is
    interrupted.

    `headers` gives the headers of a request when it is sent, credentials included; it may raise
    MissingCredentials. `sign` gets every request as it is about to be sent, at each attempt again,
    and returns it with a signature over `str(request.url)`, the URL that goes over the wire.
    `errors` turns the platform's error answers into ours, `on_answer` sees all answers; `looks` are
    the paths whose POST changes nothing. `jitter` takes the longest pause and returns the pause, in
    seconds; `transport` replaces the network.
    """

    ATTEMPTS = 5
    LONGEST_PAUSE = 60.0
    FIRST_BACKOFF = 0.5
    LONGEST_BACKOFF = 8.0

    def __init__(  # noqa: PLR0913 - what differs between platforms, all by keyword
        self,
        base_url: str,
        *,
        errors: ErrorAnswers,
        headers: Callable[[], Mapping[str, str]] = dict,
        sign: "Callable[[httpx.Request], httpx.Request] | None" = None,
        on_answer: "Callable[[httpx.Response], None]" = lambda _answer: None,
        looks: Collection[str] = (),
        transport: "httpx.BaseTransport | None" = None,
        jitter: Callable[[float], float] = lambda longest: random.uniform(0, longest),  # noqa: S311 - spreads load
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.platform = errors.platform
        self._errors = errors
        self._headers = headers
        self._sign = sign
        self._on_answer = on_answer
        self._looks = looks
        self._transport = transport
        self._jitter = jitter
        self._lock = threading.Lock()
        self._pools: list[_Pool] = []
        self.clock_ahead: float | None = None
        """How far this machine's clock was ahead of the last answer's Date, in seconds."""

    @property
    def address(self) -> str:
        """The base URL's scheme, host and port, without path and credentials."""
        return _extract_host(self.base_url)

    def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Any:
        """Send a request and return the JSON of the platform's answer, or None for an empty answer.

        `path` follows the base URL.

        Raises:
            ForeignAnswer: the answer is other text.
            GpuformError: one of `gpuform.providers.errors`.
            Cancelled: the run was interrupted during a pause.
        """
        response = self.send_request(method, path, **options)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise build_foreign_answer_error(self.platform, response, method, path) from None

    def send_request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
        may_redirect: bool = False,
    ) -> "httpx.Response":
        """Send a request as `request` does, and return the HTTP answer; follows no redirect.

        Raises:
            ApiError: the answer is an error, or a redirect without `may_redirect`.
            GpuformError: no answer came, or this process may change nothing.
            Cancelled: the run was interrupted during a pause.
        """
        import tenacity  # noqa: PLC0415 - only who sends requests pays for it

        # Once for all attempts: missing credentials are reported before anything is sent.
        headers = self._headers()
        retrying = tenacity.Retrying(
            sleep=lambda seconds: get_current_context().sleep(seconds),
            wait=self._compute_pause,
            stop=self._is_enough,
            retry=tenacity.retry_if_exception(lambda error: self._may_repeat(error, retry)),
            reraise=True,
        )
        unanswered_errors: list[GpuformError] = []

        def send() -> "httpx.Response":
            try:
                return self._send(method, path, body=body, params=params, headers=headers)
            except (ServerError, UnknownOutcome) as error:
                unanswered_errors.append(error)
                raise

        try:
            response = retrying(send)
        except GpuformError as error:
            # A refusal, or the end of the pause before it, says nothing about earlier attempts.
            earlier_errors = [earlier for earlier in unanswered_errors if earlier is not error]
            error.has_unanswered_attempt = bool(earlier_errors)
            raise
        # The new address may be another host's, which must not get the credentials.
        if response.is_redirect and not may_redirect:
            raise self._build_error(response, method, path, body)
        return response

    def request_model(
        self,
        model: type[Model],
        method: str,
        path: str,
        **options: Unpack[RequestOptions],
    ) -> Model:
        """Send a request as `request` does, and return the answer as a model.

        An empty answer counts as an empty object.

        Raises:
            ForeignAnswer: the answer has another form; names the fields, and never a value.
        """
        answer = self.request(method, path, **options)
        try:
            return model.model_validate({} if answer is None else answer)
        except ValidationError as error:
            fields = ", ".join(
                truncate(escape_invisible(".".join(map(str, problem["loc"]))), 100)
                or "the whole answer"
                for problem in error.errors(include_input=False, include_url=False)
            )
            raise self.build_form_error(method, path, fields) from None

    def build_form_error(self, method: str, path: str, fields: str = "") -> ForeignAnswer:
        """Return the error for a successful answer that is not in the documented form."""
        return ForeignAnswer(
            f"{self.platform}: {method} {path} answered in an unexpected form"
            + (f" ({fields})" if fields else ""),
            method=method,
            path=path,
            status=200,
            hint=f"gpuform ignored the answer: check that {self.address} is the base URL of "
            f"{self.platform}, and the proxy on the way",
        )

    def close(self) -> None:
        """Close the connections. The client can be used again."""
        with self._lock:
            pools, self._pools = self._pools, []
        for pool in pools:
            pool.http.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
    ) -> "httpx.Response":
        """Send one request without repetition, and return the answer if a success or a redirect.

        Passes every answer, errors among them, to `on_answer`. Stores how far this machine's clock
        is ahead, and counts an accepted DELETE in the context.

        Raises:
            ApiError: the platform answered with an error.
            GpuformError: the process may only read, the stack's lock is lost, or no answer came.
        """
        started = time.monotonic()
        content = None if body is None else json.dumps(body).encode()
        # Percent-encoded here, so that no library changes it.
        query = f"?{urlencode(params, quote_via=quote, safe='')}" if params else ""
        content_headers = {} if body is None else {"Content-Type": "application/json"}
        redacted_path = get_current_context().redact(path)
        label = f"{self.platform}: {method} {redacted_path}"
        if not (method in _ONLY_LOOK or (method == "POST" and path in self._looks)):
            # A run that lost its lock, or may only read, must not change a platform.
            get_current_context().authorize_change()
        with (
            trace_span(
                "request", label, get_current_context().urn, platform=self.platform
            ) as add_fact,
            convert_httpx_errors(label, self.base_url),
            self._borrow_client() as http,
        ):
            response = http.request(
                method,
                self.base_url + path + query,
                content=content,
                headers={**headers, **content_headers},
            )
            # The names are OpenTelemetry's ("Semantic conventions for HTTP spans").
            add_fact("http.request.method", method)
            add_fact("http.response.status_code", response.status_code)
        duration_ms = (time.monotonic() - started) * 1000
        logger.debug(
            "%s %s -> %d in %.0f ms", method, redacted_path, response.status_code, duration_ms
        )
        self.clock_ahead = compute_clock_ahead(response, time.time())
        get_current_context().on_clock_skew(self.platform, self.clock_ahead)
        # Clients read rate limits and other headers here, of error answers too.
        self._on_answer(response)
        # Lifecycles take an accepted deletion as proof that the object is gone.
        if method == "DELETE" and response.is_success:
            get_current_context().progress.accepted_deletions += 1
        if response.is_success or response.is_redirect:
            return response
        raise self._build_error(response, method, path, body)

    def _build_error(
        self,
        response: "httpx.Response",
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
    ) -> ApiError:
        """Return the ApiError for an error answer; clients of code hosts override this method."""
        return self._errors.build_error(response, method, path, body)

    @contextmanager
    def _borrow_client(self) -> "Iterator[httpx.Client]":
        """Yield, for one request, the HTTP client with the fewest requests in progress."""
        with self._lock:
            pool = min(self._pools, key=lambda known_pool: known_pool.requests, default=None)
            # Another pool is opened only while all of them are busy.
            if pool is None or (pool.requests and len(self._pools) < _POOLS):
                pool = _Pool(self._create_http_client())
                self._pools.append(pool)
            pool.requests += 1
        try:
            yield pool.http
        finally:
            with self._lock:
                pool.requests -= 1

    def _create_http_client(self) -> "httpx.Client":
        """Return a new HTTP client with this platform's authentication, time-outs and transport."""
        import httpx  # noqa: PLC0415 - only who sends requests pays for it

        connections = CONNECTIONS // _POOLS
        environ = get_run_context().environ
        transport = self._transport or find_mounted_transport(self.base_url)
        proxies = None if transport else read_proxies(environ)
        return httpx.Client(
            auth=self._sign,
            transport=transport,
            # Without variables httpx reads the settings of macOS and Windows.
            trust_env=not proxies,
            proxy=find_proxy(self.base_url, proxies) if proxies else None,
            verify=get_trust(self.base_url, environ),
            timeout=httpx.Timeout(ANSWER_TIMEOUT, connect=CONNECT_TIMEOUT, pool=POOL_TIMEOUT),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    def _compute_pause(self, state: "tenacity.RetryCallState") -> float:
        """Return the seconds before the next attempt: the platform's Retry-After, or a backoff."""
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, RateLimited | ServerError) else None
        if asked is not None:
            # A platform may ask for hours.
            return min(asked, self.LONGEST_PAUSE)
        return self._jitter(
            min(self.FIRST_BACKOFF * 2 ** (state.attempt_number - 1), self.LONGEST_BACKOFF)
        )

    def _is_enough(self, state: "tenacity.RetryCallState") -> bool:
        """Return True if no further attempt may follow: too many, or past the call's deadline."""
        remaining = get_current_context().compute_remaining_seconds()
        too_late = remaining is not None and state.upcoming_sleep >= remaining
        return state.attempt_number >= self.ATTEMPTS or too_late

    def _may_repeat(self, error: BaseException, retry: Retry) -> bool:
        """Return True if a request that failed with `error` may be sent again under `retry`.

        The table of `ApiClient` has the errors that allow a repetition.
        """
        if retry is Retry.NEVER:
            return False
        if isinstance(error, Unreachable):
            return True
        if isinstance(error, RateLimited):
            # A platform that names a time for the repetition has done nothing: then a create is
            # repeated, too. A proxy may repeat requests itself: then an earlier copy of the create
            # may have had its effect.
            return retry is Retry.SAFE or (
                error.retry_after is not None and get_current_context().can_repeat_create()
            )
        if retry is Retry.CREATE:
            return False
        if isinstance(error, ServerError):
            return error.status in {502, 503, 504}
        return isinstance(error, UnknownOutcome)


@contextmanager
def convert_httpx_errors(label: str, base_url: str) -> Iterator[None]:
    """Convert httpx's errors in the block into gpuform's, with `label` in the messages.

    Raises:
        Unreachable: nothing was sent.
        UnknownOutcome: the request may have arrived, and no answer came.
        GpuformError: any other error of httpx.
    """
    import httpx  # noqa: PLC0415 - only who sends requests pays for it

    try:
        yield
    # Nothing was sent in these cases, so that another attempt cannot do anything twice.
    except (
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.PoolTimeout,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
        httpx.InvalidURL,
    ) as error:
        raise Unreachable(
            f"{label}: no connection to {_extract_host(base_url)} ({type(error).__name__})",
            hint="check the network and the address",
        ) from None
    # The request may have left this machine, and the platform may have acted on it.
    except httpx.TransportError as error:
        raise UnknownOutcome(f"{label}: no answer ({type(error).__name__})") from None
    except httpx.HTTPError as error:
        raise GpuformError(f"{label}: {type(error).__name__}") from None


def build_path(*parts: str) -> str:
    """Return the path of objects, such as `/clusters/a%20b`: a slash before each quoted part.

    Raises:
        GpuformError: a part is empty, dots (which would lead to another object), too long, or has
            invisible characters.
    """
    for part in parts:
        try:
            validate_id(part)
        except ValueError as error:
            raise GpuformError(
                f"no request was sent: an id or a name {error} "
                f"({truncate(escape_invisible(part), 80)!r})",
                hint="correct it in the state (`gpuform state show`) or in the declaration",
            ) from None
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _extract_host(url: str) -> str:
    """Return a URL's scheme, host and port, without path and credentials."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


class _Closable(Protocol):
    """A client with connections."""

    def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=_Closable)


class Clients(Generic[C]):
    """The clients of one platform in this process, each created on first use.

    Callers with the same address and account share a client: its connections, lists and request
    rate.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[Hashable, httpx.BaseTransport | None], C] = {}
        self._lock = threading.Lock()
        _clients_of_platforms.append(self)

    def get(
        self,
        key: Hashable,
        url: str | None,
        create_client: "Callable[[httpx.BaseTransport | None], C]",
    ) -> C:
        """Return the shared client for address and credentials in `key`; create one if missing.

        `create_client` receives the transport that serves `url` in this process, or None.
        """
        # Clients of an emulator in this process and of the network must not share connections.
        transport = find_mounted_transport(url or "")
        with self._lock:
            if (key, transport) not in self._clients:
                self._clients[key, transport] = create_client(transport)
            return self._clients[key, transport]

    def close(self) -> None:
        """Close and forget the clients."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


_clients_of_platforms: list[Clients[Any]] = []


def close_all_clients() -> None:
    """Close and forget the shared clients of all platforms: the next callers get new clients."""
    for clients in _clients_of_platforms:
        clients.close()


def build_bearer_headers(
    key: str | None, *, platform: str, variable: str, config: str
) -> Mapping[str, str]:
    """Build the headers of requests with an API key.

    Args:
        key: the API key.
        platform: the platform as people call it; its page of the documentation has this name.
        variable: the environment variable for the key.
        config: the key in a stack's configuration.

    Raises:
        MissingCredentials: there is no key.
    """
    if not key:
        raise MissingCredentials(
            f"the API key for {platform} is missing. Set {variable}",
            hint=f"or store it with the stack: gpuform config set --secret {config}",
            page=f"start/{platform.lower()}",
        )
    return {"Authorization": f"Bearer {key}", "Accept": "application/json"}


def append_path(url: str, path: str) -> str:
    """Return the URL with `path` at its end, whether `url` has the path already or not."""
    url = url.rstrip("/")
    return url if url.endswith(path) else f"{url}{path}"


@dataclass(frozen=True)
class ProbeAnswer:
    """A platform's correct answer to a probe.

    Args:
        address: where the platform answered.
        clock_ahead: how many seconds this machine's clock is ahead of the platform's; None if
            unknown.
    """

    address: str
    clock_ahead: float | None = None


class ProbingClient(Protocol):
    """A client that can be probed, as every platform's."""

    def send_probe(self) -> ProbeAnswer:
        """Send the cheapest request that needs the credentials, and return the probe's answer.

        Raises GpuformError.
        """


def probe_platform(platform: str, settings: Settings) -> ProbeAnswer:
    """Probe a platform with these settings once.

    Raises:
        GpuformError: the error that a run would meet: MissingCredentials, AuthError, Unreachable
            and others.
    """
    client: ProbingClient = platforms()[platform].import_module("client").get_client(settings)
    return client.send_probe()


def send_probe(
    api: ApiClient, method: str, path: str, **options: Unpack[RequestOptions]
) -> ProbeAnswer:
    """Send one request without repetition, and ignore the content of its answer.

    Raises GpuformError.
    """
    options["retry"] = Retry.NEVER
    api.request(method, path, **options)
    return ProbeAnswer(api.address, api.clock_ahead)
