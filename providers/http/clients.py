"""Keep one client for each platform, address and account of a process, and probe platforms once.

Platforms keep their clients in `Clients`; `gpuform doctor` calls `probe_platform`.
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
    """The clients of one platform in this process, each created on first use.

    Callers with the same address and account share a client: its connections, lists and request
    rate.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[Hashable, httpx.BaseTransport | None], C] = {}
        self._lock = threading.Lock()

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
    api: ApiClient,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> ProbeAnswer:
    """Send one request without repetition, and ignore the content of its answer.

    Raises GpuformError.
    """
    api.request(method, path, body=body, params=params, retry=Retry.NEVER)
    return ProbeAnswer(api.address, api.clock_ahead)
