"""Hold what a run was asked, its clock, and the transport of its requests, real or emulated.

Commands, operations and Pulumi's hosts read the environment once, into a `RunContext`; the run's
child processes get its `environ` as theirs. `ProviderContext.run` passes it to lifecycles. The
environment variable GPUFORM_CLOCK chooses the clock. The emulator and tests mount addresses; HTTP
clients look up the transport of their address.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpuform.providers import permissions
from gpuform.providers.errors import NotAllowed, Unreachable
from gpuform.providers.permissions import Permission
from gpuform.schemas.errors import EngineError

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import ThreadPoolExecutor

    import httpx


_mounts: "dict[str, httpx.BaseTransport]" = {}


@contextmanager
def mount_transport(url: str, transport: "httpx.BaseTransport") -> Iterator[None]:
    """Serve every address under `url` by `transport`, for clients created in the block.

    Clients of all threads count.
    """
    base = url.rstrip("/")
    _mounts[base] = transport
    try:
        yield
    finally:
        del _mounts[base]


def find_mounted_transport(url: str) -> "httpx.BaseTransport | None":
    """Return the transport to serve `url` in this process, or None."""
    # With the slash, a mounted port 80 does not serve port 8080.
    return next((_mounts[base] for base in _mounts if f"{url}/".startswith(f"{base}/")), None)


def get_trust(url: str, environ: Mapping[str, str]) -> "ssl.SSLContext | bool":
    """Return how clients verify the server of `url`: by this machine's authorities, or not at all.

    Reading the authorities takes as long as ten requests: they are read for TLS only, once per
    process.
    """
    if url.startswith("http://"):
        return False
    # The variables are the cache's key: another value must read other authorities.
    return _read_authorities(environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=8)
def _read_authorities(file: str | None, folder: str | None) -> "ssl.SSLContext":
    """Return a TLS context with the authorities in `file` or `folder`, else with httpx's."""
    import ssl  # noqa: PLC0415 - only who sends requests pays for it

    import httpx  # noqa: PLC0415 - as above

    if file or folder:  # httpx reads only the variables of the process
        return ssl.create_default_context(cafile=file, capath=None if file else folder)
    return httpx.create_ssl_context(trust_env=False)


def create_wsgi_transport(app: Any) -> "httpx.BaseTransport":
    """Return a transport to a WSGI application; an exception becomes a broken connection."""
    import httpx  # noqa: PLC0415 - only who serves in process pays for it

    class InProcess(httpx.WSGITransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            try:
                return super().handle_request(request)
            except Exception as error:
                raise httpx.ReadError("the connection was closed", request=request) from error

    return InProcess(app)


CLOCK_VARIABLE = "GPUFORM_CLOCK"
EMULATOR_VARIABLE = "GPUFORM_EMULATOR"
"""The variable with the identity of the emulator that must answer at the address in GPUFORM_CLOCK.
"""
ATTEMPTS = 3


class Clock(Protocol):
    """A source of time that can wait. `is_platforms`: the platform itself uses this clock."""

    is_platforms: bool

    def now(self) -> float:
        """Return this clock's Unix time in seconds, which may be an emulator's."""

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Wait for `seconds`, or until `cancelled` is set.

        Zero seconds synchronizes a clock that other processes can move.
        """


class SystemClock:
    """The machine's clock."""

    is_platforms = False

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Wait for `seconds` of real time, or until `cancelled` is set."""
        if seconds > 0:
            cancelled.wait(seconds)


class EmulatorUnreachable(EngineError, Unreachable):
    """The emulator of this run does not answer."""


class OtherEmulator(EngineError):
    """Another emulator answers than the one that the environment names."""

    help_page = "concepts/stack"


class EmulatorClock:
    """The virtual clock of an emulator: a sleep moves the clock forward and returns at once.

    `now` is the time of the last answer. A sleep requests a point in time, not a step, so that many
    waiters with the same interval move the clock once. An answer of another emulator than
    `expected` (an identity; empty: any) raises OtherEmulator.
    """

    is_platforms = True

    def __init__(
        self, url: str, expected: str = "", environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.address = url.rstrip("/")
        self._expected = expected
        self._environ = environ
        self._identity = ""
        self._url = self.address + "/_emulator/clock"
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._now: float | None = None

    def now(self) -> float:
        """Return the Unix time in seconds of the emulator's last answer.

        The first call asks the emulator. Raises Unreachable and OtherEmulator then.
        """
        if self._now is None:
            return self._request_time("GET", None)
        return self._now

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Move the emulator's clock forward by `seconds`, instead of waiting.

        Zero seconds read the clock. Does nothing if `cancelled` is set.

        Raises:
            EmulatorUnreachable: the clock does not answer.
            OtherEmulator: another emulator answers.
        """
        if cancelled.is_set():
            return
        if seconds > 0:
            # A moment, not a step: waiters for the same moment move the clock once.
            self._request_time("POST", {"until": self.now() + seconds})
        else:
            self._request_time("GET", None)

    def get_identity(self) -> str:
        """Return the reported identity of the emulator's stored data; empty without one.

        Raises Unreachable and OtherEmulator.
        """
        # Asked each time: another emulator may have got the address of one that has ended.
        self._request_time("GET", None)
        return self._identity

    def close(self) -> None:
        """Close the connections. The clock can be used again, also for another emulator."""
        with self._lock:
            client, self._client = self._client, None
            self._now = None
        if client is not None:
            client.close()

    def _request_time(self, method: str, body: dict[str, float] | None) -> float:
        """Send a request to the emulator's clock and return the emulator's Unix time in seconds.

        Stores the latest time and the identity of the answer. `body` is None for a GET.

        Raises:
            EmulatorUnreachable: the clock does not answer.
            OtherEmulator: another emulator answers than the one of GPUFORM_EMULATOR.
        """
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        known = self._now
        try:
            answer = self._send(method, body)
            answer.raise_for_status()
            report = answer.json()
            now, identity = float(report["now"]), str(report.get("emulator") or "")
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EmulatorUnreachable(
                f"the emulator's clock at {self._url} does not answer ({type(error).__name__})",
                hint=f"start `gpuform emulator`, or unset {CLOCK_VARIABLE}",
            ) from None
        if self._expected and identity != self._expected:
            raise OtherEmulator(
                f"the emulator at {self.address} is {identity or 'of unknown identity'}, "
                f"but {EMULATOR_VARIABLE} names {self._expected}",
                hint="another emulator uses the port, or the emulator was started again with "
                f"other data: unset {CLOCK_VARIABLE} and {EMULATOR_VARIABLE}, then eval "
                '"$(gpuform emulator start)"',
            )
        with self._lock:
            # No clock goes back: one that is behind belongs to another emulator at the address.
            # Answers of parallel requests, in contrast, can arrive out of order.
            is_other = known is not None and now < known
            last = now if self._now is None or is_other else self._now
            self._now, self._identity = max(now, last), identity
        return now

    def _send(self, method: str, body: dict[str, float] | None) -> "httpx.Response":
        """Send a request and return the answer; repeat the request when a connection breaks.

        At most `ATTEMPTS` (3) times: the last error of httpx passes. A repetition is safe: the
        clock never goes back.
        """
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        for _ in range(ATTEMPTS - 1):
            with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                return self._get_client().request(method, self._url, json=body)
        return self._get_client().request(method, self._url, json=body)

    def _get_client(self) -> "httpx.Client":
        """Return the HTTP client of the emulator's clock, created on first use."""
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    transport=find_mounted_transport(self._url),
                    timeout=30.0,
                    # No proxy of the environment may answer in the place of an emulator on this
                    # machine.
                    trust_env=False,
                    verify=get_trust(self._url, self._environ),
                )
            return self._client


def synchronize_clock(clock: Clock) -> Clock:
    """Read the present time of `clock`, moved perhaps by other processes, and return `clock`."""
    clock.sleep(0, threading.Event())
    return clock


_clocks: "dict[tuple[str, str, httpx.BaseTransport | None], EmulatorClock]" = {}
_clocks_lock = threading.Lock()


def get_clock(environ: Mapping[str, str]) -> Clock:
    """Return the emulator's clock whose address is in GPUFORM_CLOCK, else the machine's clock.

    Callers with the same address and GPUFORM_EMULATOR share one emulator's clock. Sends nothing.
    """
    url = environ.get(CLOCK_VARIABLE)
    if not url:
        return SystemClock()
    expected = environ.get(EMULATOR_VARIABLE, "")
    with _clocks_lock:
        # An emulator in this process and one behind the network may have the same address.
        key = url, expected, find_mounted_transport(url)
        return _clocks.setdefault(key, EmulatorClock(url, expected, environ))


def close_all_clocks() -> None:
    """Close and forget the shared clocks of emulators: the next callers get new clocks."""
    with _clocks_lock:
        clocks = [*_clocks.values()]
        _clocks.clear()
    for clock in clocks:
        clock.close()


def find_emulator(environ: Mapping[str, str]) -> str:
    """Return the identity of the emulator whose clock this process follows; empty without one.

    Raises:
        Unreachable: the emulator does not answer.
        OtherEmulator: the emulator that answers is not the one of GPUFORM_EMULATOR.
    """
    clock = get_clock(environ)
    return clock.get_identity() if isinstance(clock, EmulatorClock) else ""


READS_ONLY: Final = "GPUFORM_READS_ONLY"
"""The environment variable under which a process changes neither a platform nor a state."""


@dataclass(frozen=True)
class RunContext:
    """What one run was asked, as environment variables, which its child processes understand too.

    Two runs of one process have a context each, and do not see each other's.
    """

    environ: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        # A copy: later changes of the process's variables belong to no run that has begun.
        object.__setattr__(self, "environ", MappingProxyType(dict(self.environ)))

    def with_variables(self, variables: Mapping[str, str]) -> "RunContext":
        """Return a copy of the context with `variables` added to the environment."""
        return RunContext({**self.environ, **variables}) if variables else self

    def with_permissions(self, names: Iterable[str]) -> "RunContext":
        """Return a copy of the context with more permissions.

        Raises EngineError for an unknown name.
        """
        merged = self.permissions | permissions.parse_permissions(",".join(names))
        variables = {permissions.VARIABLE: ",".join(sorted(merged))} if merged else {}
        return self.with_variables(variables)

    @cached_property
    def permissions(self) -> frozenset[str]:
        """The permissions of the run. Raises EngineError for an unknown name."""
        try:
            return permissions.parse_permissions(self.environ.get(permissions.VARIABLE, ""))
        except EngineError as error:
            raise EngineError(f"{permissions.VARIABLE}: {error.message}", hint=error.hint) from None

    def require_permission(self, permission: Permission, refusal: str) -> None:
        """Raise NotAllowed with `refusal` and a hint, unless the run has the permission."""
        if permission not in self.permissions:
            raise NotAllowed(
                refusal,
                hint=f"to allow this: --allow {permission}, or {permissions.VARIABLE}={permission} "
                "in the environment (with `pulumi` only the variable)",
            )

    @cached_property
    def adopted_ids(self) -> frozenset[str]:
        """Return the ids of existing objects to be adopted by the run (`--adopt ID`)."""
        joined_ids = self.environ.get(permissions.ADOPT_VARIABLE, "")
        return frozenset(filter(None, map(str.strip, joined_ids.split(","))))

    @property
    def creates_anew(self) -> bool:
        """True if the run may create an object beside same-named ones (`--create-anew`)."""
        return self.environ.get(permissions.ANEW_VARIABLE, "") in ("1", "true")

    @cached_property
    def requested_repairs(self) -> Mapping[str, str]:
        """Return the nodes to be repaired by request (`--repair`), each with the mode of repair.

        The mode is empty if any kind of repair will do.
        """
        joined_repairs = self.environ.get(permissions.REPAIR_VARIABLE, "")
        pairs = (
            entry.strip().partition("=") for entry in joined_repairs.split(",") if entry.strip()
        )
        return MappingProxyType({name.strip(): mode.strip() for name, _, mode in pairs})

    @cached_property
    def reviewed_repairs(self) -> frozenset[str]:
        """Return the keys (`compute_repair_key`) of the repairs in a reviewed plan."""
        joined_keys = self.environ.get(permissions.REVIEWED_VARIABLE, "")
        return frozenset(filter(None, joined_keys.split(",")))

    @property
    def is_read_only(self) -> bool:
        """True if the run may change neither a platform nor a state."""
        return bool(self.environ.get(READS_ONLY))

    @property
    def clock(self) -> Clock:
        """The clock of the run: the machine's, or that of the emulator at GPUFORM_CLOCK."""
        return get_clock(self.environ)


_current: ContextVar[RunContext | None] = ContextVar("gpuform_run", default=None)


@contextmanager
def use_run_context(run: RunContext) -> Iterator[RunContext]:
    """Make `run` the context of calls without a run context, in this thread or task."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


def create_thread_pool(threads: int, name: str) -> "ThreadPoolExecutor":
    """Return a pool whose threads have the run context of this thread; `name` begins theirs."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few commands need threads

    return ThreadPoolExecutor(threads, name, _current.set, (_current.get(),))


def read_run_context() -> RunContext:
    """Return the context of `use_run_context`, else read the environment of this process.

    Programs and Pulumi's hosts have a process each: its environment says what was asked.
    """
    return _current.get() or RunContext(os.environ)
