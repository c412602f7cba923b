"""Time as providers see it: the machine's own, or an emulator's that sleeping moves forward."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gpuform.providers.context.transport import get_trust, mounted
from gpuform.providers.errors import GpuformError, Unreachable

if TYPE_CHECKING:
    import httpx

CLOCK_VARIABLE = "GPUFORM_CLOCK"
EMULATOR_VARIABLE = "GPUFORM_EMULATOR"
"""The identity of the emulator that has to answer at the address in GPUFORM_CLOCK."""
ATTEMPTS = 3


class Clock(Protocol):
    """Tells the time and waits. `is_platforms`: the platform's own clock is this one."""

    is_platforms: bool

    def now(self) -> float:
        """Unix time in seconds."""

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Waits that long, or until `cancelled` is set.

        Zero seconds brings a clock that others can move up to date.
        """


class SystemClock:
    """The machine's clock."""

    is_platforms = False

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Waits in real time."""
        if seconds > 0:
            cancelled.wait(seconds)


class OtherEmulator(GpuformError):
    """Another emulator answers than the one that is meant."""

    help_page = "concepts/stack"


class EmulatorClock:
    """The virtual clock of an emulator: sleeping moves it forward and returns at once.

    `now` is the time of the last answer. A sleep asks for a point in time, not for a step, so
    that many waiters that sleep alike move the clock once. Every answer of another emulator than
    `expected` (an identity; empty: any) raises OtherEmulator.
    """

    is_platforms = True

    def __init__(self, url: str, expected: str = "") -> None:
        self.address = url.rstrip("/")
        self._expected = expected
        self._identity = ""
        self._url = self.address + "/_emulator/clock"
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._now: float | None = None

    def now(self) -> float:
        """Unix time in seconds, as the emulator last told it."""
        if self._now is None:
            return self._tell("GET", None)
        return self._now

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        """Moves the emulator's clock to `seconds` from now."""
        if not cancelled.is_set():
            self._tell("POST", {"until": self.now() + max(0.0, seconds)})

    def identity(self) -> str:
        """Return the identity of the emulator's data; empty if the emulator reports none."""
        if self._now is None:
            self._tell("GET", None)
        return self._identity

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _tell(self, method: str, body: dict[str, float] | None) -> float:
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        try:
            answer = self._ask(method, body)
            answer.raise_for_status()
            report = answer.json()
            now, identity = float(report["now"]), str(report.get("emulator") or "")
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreachable(
                f"the emulator's clock at {self._url} does not answer ({type(error).__name__})",
                hint=f"start `gpuform emulator`, or unset {CLOCK_VARIABLE}",
            ) from None
        if self._expected and identity != self._expected:
            raise OtherEmulator(
                f"the emulator at {self.address} is {identity or 'of unknown identity'}, and "
                f"{EMULATOR_VARIABLE} names {self._expected}",
                hint="another emulator took the port, or this one started again with other data: "
                f"unset {CLOCK_VARIABLE} and {EMULATOR_VARIABLE}, then "
                'eval "$(gpuform emulator start)"',
            )
        with self._lock:
            self._now, self._identity = max(now, self._now or now), identity
        return now

    def _ask(self, method: str, body: dict[str, float] | None) -> "httpx.Response":
        """The answer; asked again when a connection breaks, for a clock never goes back."""
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        for _ in range(ATTEMPTS - 1):
            with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                return self._http().request(method, self._url, json=body)
        return self._http().request(method, self._url, json=body)

    def _http(self) -> "httpx.Client":
        import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    transport=mounted(self._url),
                    timeout=30.0,
                    trust_env=False,
                    verify=get_trust(self._url),
                )
            return self._client


def synchronised(clock: Clock) -> Clock:
    """The clock, brought up to date where others can move it."""
    clock.sleep(0, threading.Event())
    return clock


_clocks: "dict[tuple[str, str, httpx.BaseTransport | None], EmulatorClock]" = {}
_clocks_lock = threading.Lock()


def clock_from(environ: Mapping[str, str]) -> Clock:
    """The clock of GPUFORM_CLOCK (an emulator's address), else the machine's."""
    url = environ.get(CLOCK_VARIABLE)
    if not url:
        return SystemClock()
    expected = environ.get(EMULATOR_VARIABLE, "")
    with _clocks_lock:
        key = url, expected, mounted(url)
        return _clocks.setdefault(key, EmulatorClock(url, expected))


def find_emulator(environ: Mapping[str, str]) -> str:
    """Return the identity of the emulator whose clock counts; empty for none, or one without.

    Raises:
        OtherEmulator: the emulator that answers is not the one of GPUFORM_EMULATOR.
    """
    clock = clock_from(environ)
    return clock.identity() if isinstance(clock, EmulatorClock) else ""
