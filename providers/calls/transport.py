"""Servers in this process: addresses that are answered by an application, not by the network."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

_mounts: "dict[str, httpx.BaseTransport]" = {}


@contextmanager
def mount(url: str, transport: "httpx.BaseTransport") -> Iterator[None]:
    """Serves every address under `url` by `transport`, for clients made in the block."""
    base = url.rstrip("/")
    _mounts[base] = transport
    try:
        yield
    finally:
        del _mounts[base]


def mounted(url: str) -> "httpx.BaseTransport | None":
    """The transport that serves `url` in this process, if any."""
    return next((_mounts[base] for base in _mounts if f"{url}/".startswith(f"{base}/")), None)


def needs_authorities(url: str) -> bool:
    """Whether a client of an address has to read whom to trust: without TLS that is nobody."""
    return not url.startswith("http://")


def in_process(app: Any) -> "httpx.BaseTransport":
    """A transport that calls a WSGI application; what it raises is a broken connection."""
    import httpx  # noqa: PLC0415 - only who serves in process pays for it

    class InProcess(httpx.WSGITransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            try:
                return super().handle_request(request)
            except Exception as error:
                raise httpx.ReadError("the connection was closed", request=request) from error

    return InProcess(app)
