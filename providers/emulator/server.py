"""Serve the emulator on a loopback port for clients in other processes, with TLS where clients send
tokens over nothing else (kubectl).

The certificates are for this machine alone, and the key is known to everybody and worth nothing.
"""

import contextlib
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.request import getproxies

from flask import Flask
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import platforms

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBfDCCASKgAwIBAgIBATAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhncHVmb3Jt
IGVtdWxhdG9yIHRlc3QgQ0EwIBcNMjQwMTAxMDAwMDAwWhgPMjEyNDAxMDEwMDAw
MDBaMCMxITAfBgNVBAMMGGdwdWZvcm0gZW11bGF0b3IgdGVzdCBDQTBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABOmf5LAmak2p9xss3zdIHZ2ql9udwvGk+mBnSjYg
TOhVspOmz9dOhsjQJkB6EQYAPCeOol23cdlz5K3x1EHGr6+jRTBDMBIGA1UdEwEB
/wQIMAYBAf8CAQAwDgYDVR0PAQH/BAQDAgEGMB0GA1UdDgQWBBTy8dJe3dn7xFHH
WrpUofP3hzG30TAKBggqhkjOPQQDAgNIADBFAiAGWlaV88072us/kOtWRuUpvQf4
YdA2qaQdZj0QLOjs/wIhAO0Xn2SkPfAChcFxezKpc2LxKsQWEBZsXaM0epvZyUVY
-----END CERTIFICATE-----
"""
"""What clients have to trust. Nobody holds its key."""

_SERVER = """\
-----BEGIN CERTIFICATE-----
MIIB1TCCAXqgAwIBAgIBAjAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhncHVmb3Jt
IGVtdWxhdG9yIHRlc3QgQ0EwIBcNMjQwMTAxMDAwMDAwWhgPMjEyNDAxMDEwMDAw
MDBaMBsxGTAXBgNVBAMMEGdwdWZvcm0gZW11bGF0b3IwWTATBgcqhkjOPQIBBggq
hkjOPQMBBwNCAARtDF70cjWbPLfGIOb5GmhU4YoeH3P/AXsyghRAMy5bmL+rcffJ
O8EckAYAucXilWLw5wlkQ+1Bi0NhfoVAtZo+o4GkMIGhMAwGA1UdEwEB/wQCMAAw
DgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMBMCwGA1UdEQQlMCOC
CWxvY2FsaG9zdIcEfwAAAYcQAAAAAAAAAAAAAAAAAAAAATAdBgNVHQ4EFgQUeZ+n
ID2Q7xYauwiJGaZCi3ZRHV8wHwYDVR0jBBgwFoAU8vHSXt3Z+8RRx1q6VKHz94cx
t9EwCgYIKoZIzj0EAwIDSQAwRgIhAMyxxgcho9qf2NVqbHWAsB8xxiQEO67I9kO3
q8jHDqrnAiEAzB01XXIDYZ2Jkm4HNqOd+nGIuRqrmwITj6VlIbWbPx8=
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgG63EotqXodx91sQz
mTC8ZB4QtNLe9CNaRtn6CBFCnAyhRANCAARtDF70cjWbPLfGIOb5GmhU4YoeH3P/
AXsyghRAMy5bmL+rcffJO8EckAYAucXilWLw5wlkQ+1Bi0NhfoVAtZo+
-----END PRIVATE KEY-----
"""


@cache
def tls() -> ssl.SSLContext:
    """The server's side, for `localhost` and the loopback addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "chain.pem")
        chain.write_text(_SERVER + _KEY, "ascii")
        context.load_cert_chain(chain)  # from a file, and from nothing else
    return context


_HOST = "127.0.0.1"
_HANDSHAKE = b"\x16"  # the type of TLS's first record


def environment(url: str, identity: str = "") -> dict[str, str]:
    """The variables that point clients at an emulator at `url` (as in `Server.url`).

    With its `identity`, gpuform refuses another emulator that answers there.
    """
    emulated = (each.emulated.items() for each in platforms().values())
    variables = {name: value.replace("{url}", url) for name, value in chain.from_iterable(emulated)}
    meant = {"GPUFORM_EMULATOR": identity} if identity else {}
    return {**variables, "GPUFORM_CLOCK": url, **meant, **_no_proxy()}


def _no_proxy() -> dict[str, str]:
    """Where requests go through a proxy: those to this machine, whose loopback a proxy on another
    does not reach, do not. Both spellings, as clients differ in which they read."""
    proxies = getproxies()
    if not proxies:
        return {}
    excepted = ",".join(filter(None, (proxies.get("no", ""), _HOST)))
    return {"NO_PROXY": excepted, "no_proxy": excepted}


def serve(
    port: int = 0,
    store_path: Path | None = None,
    *,
    seed: str | None = None,
    start: float | None = None,
    speed: float = 0.0,
) -> "Server":
    """A running emulator; `store_path` None keeps state in memory.

    `port` 0 takes the port that the store was first served on, so that addresses in what clusters
    show stay the same, or a free one.
    `seed` (ids and tokens) and `start` (unix seconds of the clock) make a new store repeatable.
    `speed` are the seconds of its clock in a real one; with none others move it.
    Raises `OSError` when the port cannot be bound, `StoreError` when the file is no store.
    """
    store = Store(store_path, seed=seed)
    try:
        listener = _listener(port) if port else _usual_listener(store)
    except BaseException:
        store.close()
        raise
    return Server(listener, store, Clock(store, start=start, speed=speed))


def _usual_listener(store: Store) -> socket.socket:
    usual = store.setting("port")
    if usual is not None:
        with contextlib.suppress(OSError):
            return _listener(int(usual))
    listener = _listener(0)
    if usual is None:
        store.set("port", listener.getsockname()[1])
    return listener


def _listener(port: int) -> socket.socket:
    return socket.create_server((_HOST, port), backlog=1024)


class Server:
    """Serves from a thread of its own until `close`. `serve` makes it."""

    def __init__(self, listener: socket.socket, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.url = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._is_own_process = False
        self.app = create_app(store, clock, self._stop_on_request)
        with listener:
            self._http = _HttpServer(listener, self.app)
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="gpuform-emulator",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Close the port, every connection and the store. Calling it again does nothing."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.hang_up()
        self.store.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point clients at this very emulator."""
        return environment(self.url, self.store.identity)

    @contextlib.contextmanager
    def serve_through(self, wrap: "Callable[[WSGIApplication], WSGIApplication]") -> Iterator[None]:
        """Answer through `wrap(app)` within the block, for tests that watch or change answers."""
        inner = self._http.app
        self._http.app = wrap(inner)
        try:
            yield
        finally:
            self._http.app = inner

    def _stop_on_request(self) -> bool:
        """Stop soon, after the answer; return whether this process is there for the emulator."""
        if self._is_own_process:
            # The thread that serves cannot wait for its own end.
            threading.Thread(target=self._http.shutdown, daemon=True).start()
        return self._is_own_process

    def run_forever(self) -> None:
        """Block until `close`, a request to stop or Ctrl-C, which is not raised; then close."""
        self._is_own_process = True
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _HttpServer(ThreadedWSGIServer):
    """Werkzeug's server; it remembers connections, which keep-alive lets outlive their request."""

    def __init__(self, listener: socket.socket, app: Flask) -> None:
        # By descriptor: werkzeug ends the process when it cannot bind.
        super().__init__(_HOST, listener.getsockname()[1], app, _Handler, fd=listener.fileno())
        self._connections: set[socket.socket] = set()
        self._connections_lock = threading.Lock()
        self._is_closing = False

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._connections_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._connections_lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Plain HTTP or, when a client begins with a TLS handshake, HTTPS on the same port."""
        if request.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
            super().finish_request(request, client_address)
            return
        with tls().wrap_socket(request, server_side=True) as secured:
            with self._connections_lock:
                self._connections.add(secured)
            try:
                super().finish_request(secured, client_address)
            finally:
                with self._connections_lock:
                    self._connections.discard(secured)

    def hang_up(self) -> None:
        self._is_closing = True
        with self._connections_lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A request cut off by `close` is no news; any other error is a bug and is shown."""
        if not self._is_closing and not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    """HTTP/1.1 with keep-alive, which werkzeug's handler refuses, and no lines on stderr."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for head and body

    def finish(self) -> None:
        """Close both streams, also where the last bytes reach nobody any more."""
        try:
            super().finish()
        finally:
            self.rfile.close()

    def run_wsgi(self) -> None:
        environ = self.make_environ()
        head: list[tuple[str, list[tuple[str, str]]]] = []
        begun = False

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> Any:
            head.append((status, headers))
            return None

        try:
            chunks = self.server.app(environ, start_response)
            try:
                if "Content-Length" in dict(head[-1][1]) or self.command == "HEAD":
                    body = b"".join(chunks)
                    begun = True
                    self._respond(*head[-1], body)
                else:
                    begun = True
                    self._stream(*head[-1], chunks)
            finally:
                getattr(chunks, "close", lambda: None)()
        except DroppedConnection:
            self.close_connection = True
        except Exception:
            self.close_connection = True
            if not begun:
                self.send_error(500)
            raise

    def _respond(self, status: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self._begin(status, headers)
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _stream(
        self, status: str, headers: Sequence[tuple[str, str]], chunks: Iterable[bytes]
    ) -> None:
        """Each chunk as soon as it is there; 204 has none."""
        is_empty = status.startswith("204")
        framing = [] if is_empty else [("Transfer-Encoding", "chunked")]
        self._begin(status, [*headers, *framing])
        self.wfile.flush()
        for chunk in filter(None, () if is_empty else chunks):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if not is_empty:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _begin(self, status: str, headers: Sequence[tuple[str, str]]) -> None:
        code, _, reason = status.partition(" ")
        self.send_response_only(int(code), reason)
        if "Date" not in dict(headers):  # a platform's clock may be off
            self.send_header("Date", self.date_time_string())
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
        """Silent: requests are in the log of the app, and bugs go through `handle_error`."""
