"""Answer requests to chosen addresses in this process, with an application instead of the network.

The emulator and tests mount addresses; HTTP clients look up the transport of their address.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

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
    """Return the transport that serves `url` in this process, or None."""
    # With the slash, a mounted port 80 does not serve port 8080.
    return next((_mounts[base] for base in _mounts if f"{url}/".startswith(f"{base}/")), None)


def get_trust(url: str) -> "ssl.SSLContext | bool":
    """Return how clients verify the server of `url`: by this machine's authorities, or not at all.

    Reading the authorities takes as long as ten requests: they are read for TLS only, once per
    process.
    """
    if url.startswith("http://"):
        return False
    # The variables are the cache's key: another value must read other authorities.
    return _read_authorities(*(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@lru_cache(maxsize=8)
def _read_authorities(*_paths: str | None) -> "ssl.SSLContext":
    """Return a TLS context with this machine's certificate authorities, once per set of paths."""
    import httpx  # noqa: PLC0415 - only who sends requests pays for it

    return httpx.create_ssl_context()


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
