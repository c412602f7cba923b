"""Keep the clients of a platform that a process has, and probe a platform once: address,
credentials and clock.
"""

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gpuform.providers.context import find_mounted_transport
from gpuform.providers.http.client import ApiClient, Retry
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms

if TYPE_CHECKING:
    import httpx

C = TypeVar("C")


class Clients(Generic[C]):
    """The clients of one platform in this process, each made on first use.

    Callers of one address and account share a client: its connections, lists and pace.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, httpx.BaseTransport | None], C] = {}
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, url: str | None, make: "Callable[[httpx.BaseTransport | None], C]"
    ) -> C:
        """The client of this key, which has the address and the credentials in it.

        `make` gets what serves `url` in this process, if anything does.
        """
        transport = find_mounted_transport(url or "")
        with self._lock:
            if (key, transport) not in self._made:
                self._made[key, transport] = make(transport)
            return self._made[key, transport]


def with_path(url: str, path: str) -> str:
    """The URL ending in `path`, whether it was given with it, without it or with a slash."""
    url = url.rstrip("/")
    return url if url.endswith(path) else f"{url}{path}"


@dataclass(frozen=True)
class Answered:
    """A platform has answered as it should: from which address, and how far this machine's clock
    is ahead of its own, in seconds; None when it does not tell."""

    address: str
    clock_ahead: float | None = None


class Probed(Protocol):
    """What every platform's client has."""

    def probe(self) -> Answered:
        """Sends the cheapest request that needs the credentials. Raises GpuformError."""


def probe(platform: str, settings: Settings) -> Answered:
    """Looks at a platform with these settings, once.

    Raises the `GpuformError` that a run would meet: MissingCredentials, AuthError,
    PermissionDenied, Unreachable and others.
    """
    client: Probed = platforms()[platform].module("client").client_for(settings)
    return client.probe()


def ask_once(
    api: ApiClient,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> Answered:
    """Sends one request, and never again; what it answers does not matter. Raises GpuformError."""
    api.request(method, path, body=body, params=params, retry=Retry.NEVER)
    return Answered(api.address, api.clock_ahead)
