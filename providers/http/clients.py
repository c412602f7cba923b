"""The clients of a platform that a process has, and the addresses that they speak to."""

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from gpuform.providers.calls import mounted

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
        transport = mounted(url or "")
        with self._lock:
            if (key, transport) not in self._made:
                self._made[key, transport] = make(transport)
            return self._made[key, transport]


def with_path(url: str, path: str) -> str:
    """The URL ending in `path`, whether it was given with it, without it or with a slash."""
    url = url.rstrip("/")
    return url if url.endswith(path) else f"{url}{path}"
