"""Serve the emulator on a loopback port for clients in other processes, by HTTP and HTTPS.

`serve` starts a server, `environment` returns the variables that point clients at the server. TLS
is there for clients that send tokens over nothing else (kubectl). The certificates are for this
machine alone, and the key is known to everybody and worth nothing.
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
from typing import TYPE_CHECKING, Any, Self
from urllib.request import getproxies

from flask import Flask, Response
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import platforms

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CA_CERTIFICATE = """\
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
"""The certificate of the authority that clients have to trust. Nobody holds its key."""

_SERVER_CERTIFICATE = """\
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
_SERVER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgG63EotqXodx91sQz
mTC8ZB4QtNLe9CNaRtn6CBFCnAyhRANCAARtDF70cjWbPLfGIOb5GmhU4YoeH3P/
AXsyghRAMy5bmL+rcffJO8EckAYAucXilWLw5wlkQ+1Bi0NhfoVAtZo+
-----END PRIVATE KEY-----
"""


@cache
def create_tls_context() -> ssl.SSLContext:
    """Create the server's TLS context, for `localhost` and the loopback addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain_file = Path(folder, "chain.pem")
        chain_file.write_text(_SERVER_CERTIFICATE + _SERVER_KEY, "ascii")
        context.load_cert_chain(chain_file)  # the ssl module reads chains from files alone
    return context


_HOST = "127.0.0.1"
_TLS_HANDSHAKE = b"\x16"  # the type of TLS's first record


def environment(url: str, identity: str = "") -> dict[str, str]:
    """Return the environment variables for clients of the emulator at `url` (`Server.url`).

    They point all emulated platforms and the clock at `url`, and keep local requests off a proxy.
    With the emulator's `identity`, gpuform refuses another emulator that answers at `url`.
    """
    platform_variables = (platform.emulated.items() for platform in platforms().values())
    variables = {
        name: value.replace("{url}", url) for name, value in chain.from_iterable(platform_variables)
    }
    identity_variable = {"GPUFORM_EMULATOR": identity} if identity else {}
    return {**variables, "GPUFORM_CLOCK": url, **identity_variable, **_build_no_proxy_variables()}


def _build_no_proxy_variables() -> dict[str, str]:
    """Return variables to bypass a proxy for requests to this machine; {} without a proxy.

    Hosts that bypass the proxy already stay in the value. A proxy on another machine does not reach
    the loopback address. Clients differ in which spelling of the variable they read, so both are
    set.
    """
    proxies = getproxies()
    if not proxies:
        return {}
    hosts = ",".join(filter(None, (proxies.get("no", ""), _HOST)))
    return {"NO_PROXY": hosts, "no_proxy": hosts}


def serve(
    port: int = 0,
    store_path: Path | None = None,
    *,
    seed: str | None = None,
    start: float | None = None,
    speed: float = 0.0,
    smallest_wait: float = 0.0,
) -> "Server":
    """Start an emulator and return the server, which the caller closes.

    Args:
        port: 0 takes the port that the store was first served on, so that addresses in answers stay
            the same, or any free port if that one is taken.
        store_path: the SQLite file; None keeps the state in memory.
        seed: makes ids and tokens of a new store repeatable.
        start: the time of a new store's clock in unix seconds; None is the real time.
        speed: seconds of the clock in a real second; with 0 clients move the clock.
        smallest_wait: by how many seconds a client that waits moves the clock at least.

    Raises:
        OSError: the port cannot be bound.
        StoreError: the file is no store.
    """
    store = Store(store_path, seed=seed)
    try:
        listener = _open_port(port) if port else _open_previous_port(store)
    except BaseException:
        store.close()
        raise
    clock = Clock(store, start=start, speed=speed, smallest_wait=smallest_wait)
    return Server(listener, store, clock)


def _open_previous_port(store: Store) -> socket.socket:
    """Return a listener on the port that `store` was first served on, else on a free port.

    The store remembers the port only at the first time, not when the first port is taken.
    """
    previous_port = store.get_setting("port")
    if previous_port is not None:
        # Another process may have the port by now; then any free port has to do.
        with contextlib.suppress(OSError):
            return _open_port(int(previous_port))
    listener = _open_port(0)
    if previous_port is None:
        store.set_setting("port", listener.getsockname()[1])
    return listener


def _open_port(port: int) -> socket.socket:
    """Listen on a port of this machine, and return the socket; port 0 is any free port.

    Raises OSError if the port is in use.
    """
    return socket.create_server((_HOST, port), backlog=1024)


class Server:
    """Serves the emulator from a thread of its own until `close`. `serve` creates it."""

    def __init__(self, listener: socket.socket, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.url = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._is_own_process = False
        self.app = create_app(store, clock, self._stop_after)
        # The server has duplicated the descriptor; ours would keep the port open after `close`.
        with listener:
            self._http = _HttpServer(listener, self.app)
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="gpuform-emulator",
            # A process that forgets to close the server still ends.
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Close the port, every connection and the store. Calling it again does nothing."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.close_connections()
        self.store.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for clients of this very emulator."""
        return environment(self.url, self.store.identity)

    @contextlib.contextmanager
    def serve_through(self, wrap: "Callable[[WSGIApplication], WSGIApplication]") -> Iterator[None]:
        """Answer through `wrap(app)` within the block, for tests to watch or change answers."""
        inner = self._http.app
        # Requests that are under way keep the application with which they began.
        self._http.app = wrap(inner)
        try:
            yield
        finally:
            self._http.app = inner

    def _stop_after(self, answer: Response) -> bool:
        """Stop serving once the answer is sent, if `run_forever` runs; return whether it does."""
        if self._is_own_process:
            # Not before: closing cuts every connection, and so an answer on the way.
            answer.call_on_close(self._http.shutdown)
        return self._is_own_process

    def run_forever(self) -> None:
        """Block until `close`, a request to stop or Ctrl-C, which is not raised; then close."""
        self._is_own_process = True
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _HttpServer(ThreadedWSGIServer):
    """Werkzeug's server, which also remembers connections: keep-alive lets them live on."""

    def __init__(self, listener: socket.socket, app: Flask) -> None:
        # By descriptor: werkzeug ends the process when it cannot bind.
        super().__init__(
            _HOST, listener.getsockname()[1], app, _RequestHandler, fd=listener.fileno()
        )
        self._connections: set[socket.socket] = set()
        self._connections_lock = threading.Lock()
        self._is_closing = False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection for `close_connections`, and serve the connection in a thread."""
        # Werkzeug forgets a connection once its thread runs, and `close` has to reach it.
        with self._connections_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection and forget it."""
        with self._connections_lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection by HTTP or, where the client begins with a TLS handshake, by HTTPS."""
        # Only a look at the first byte: whoever serves the connection reads it again.
        if request.recv(1, socket.MSG_PEEK) != _TLS_HANDSHAKE:
            super().finish_request(request, client_address)
            return
        with create_tls_context().wrap_socket(request, server_side=True) as tls_socket:
            with self._connections_lock:
                self._connections.add(tls_socket)
            try:
                super().finish_request(tls_socket, client_address)
            finally:
                with self._connections_lock:
                    self._connections.discard(tls_socket)

    def close_connections(self) -> None:
        """Shut every open connection, so that idle keep-alive clients do not wait for an answer.

        Errors of requests that this cuts off are ignored from here on.
        """
        self._is_closing = True
        with self._connections_lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show an error of a request on stderr, unless the client or `close` cut the connection."""
        if not self._is_closing and not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _RequestHandler(WSGIRequestHandler):
    """Answers by HTTP/1.1 with keep-alive, which werkzeug's handler refuses, and logs nothing."""

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
        """Answer one request from the application, as one body or as a stream of chunks.

        A dropped answer closes the connection without a word. Any other error closes it, too, is
        answered with 500 if nothing was sent yet, and is raised.
        """
        environ = self.make_environ()
        head: list[tuple[str, list[tuple[str, str]]]] = []
        is_begun = False

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> Any:
            head.append((status, headers))
            return None

        try:
            chunks = self.server.app(environ, start_response)
            try:
                # Flask gives a length to all answers but to streams, such as watches of Kubernetes.
                if "Content-Length" in dict(head[-1][1]) or self.command == "HEAD":
                    body = b"".join(chunks)
                    is_begun = True
                    self._send_response(*head[-1], body)
                else:
                    is_begun = True
                    self._send_stream(*head[-1], chunks)
            finally:
                getattr(chunks, "close", lambda: None)()
        except DroppedConnection:
            self.close_connection = True
        except Exception:
            self.close_connection = True
            if not is_begun:
                self.send_error(500)
            raise

    def _send_response(self, status: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send the complete response; an answer to HEAD has no body."""
        self._send_head(status, headers)
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _send_stream(
        self, status: str, headers: Sequence[tuple[str, str]], chunks: Iterable[bytes]
    ) -> None:
        """Send the application's chunks one by one as they come; an answer of 204 has none."""
        is_empty = status.startswith("204")
        framing_headers = [] if is_empty else [("Transfer-Encoding", "chunked")]
        self._send_head(status, [*headers, *framing_headers])
        self.wfile.flush()
        for chunk in filter(None, () if is_empty else chunks):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if not is_empty:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _send_head(self, status: str, headers: Sequence[tuple[str, str]]) -> None:
        """Send the status line and the headers; a missing `Date` is the real time."""
        code, _, reason = status.partition(" ")
        self.send_response_only(int(code), reason)
        if "Date" not in dict(headers):  # a platform's clock may be off
            self.send_header("Date", self.date_time_string())
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
        """Log nothing: requests are in the log of the app, and bugs go through `handle_error`."""
