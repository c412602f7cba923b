"""A bucket over real HTTP: moto's S3 server as a process, and a proxy in which things go wrong."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from processes.limits import LAST_RESORT

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@dataclass(frozen=True)
class BucketServer:
    """The server at a port of this machine."""

    port: int

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"b-{uuid4()}"
        self.send("PUT", f"/{name}")
        return name

    def send(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LAST_RESORT)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            assert answer.status < 300, answer.read()
            return answer.read()


def url(bucket: str, port: int, **parameters: Any) -> str:
    """The backend in a bucket, under a prefix."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return (
        f"s3://{bucket}/team/state?region=us-east-1&endpoint=127.0.0.1:{port}&disableSSL=true"
        f"&s3ForcePathStyle=true{more}"
    )


@contextlib.contextmanager
def serving() -> Iterator[BucketServer]:
    """moto's server, until the end."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **KEYS},
    )
    try:
        wait_for(port, process)
        yield BucketServer(port)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """One that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the process answers there."""
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60):
            return
        time.sleep(0.1)
    raise AssertionError("the server ended")


@dataclass(frozen=True)
class Request:
    """One request on its way. `number` counts from 1."""

    number: int
    method: str
    path: str
    sent: int

    @property
    def name(self) -> str:
        return self.path.partition("?")[0]


@dataclass(frozen=True)
class Fault:
    """What happens instead: an answer, or with status 0 none, after the effect or without it."""

    status: int
    code: str = ""
    effect: bool = False


Rule = Callable[[Request], Fault | None]


@dataclass
class Proxy:
    """Stands between the clients and the server; `rule` says what goes wrong, `seen` what came."""

    port: int
    rule: Rule | None = None
    seen: list[Request] = field(default_factory=list)
    delay: float = 0.0
    forgets: tuple[str, ...] = ()  # headers that the server does not come to see
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, path: str, sent: int) -> Request:
        with self._lock:
            request = Request(len(self.seen) + 1, method, path, sent)
            self.seen.append(request)
            return request

    def heal(self) -> None:
        self.rule = None


@contextlib.contextmanager
def proxy(server: BucketServer) -> Iterator[Proxy]:
    """A proxy before the server, until the end."""
    front = _Front(server.port)
    thread = threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield front.proxy
    finally:
        front.shutdown()
        front.server_close()
        thread.join()


class _Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.proxy = Proxy(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed leave broken connections."""


_Answer = tuple[int, list[tuple[str, str]], bytes]
_OWN_HEADERS = ("content-length", "connection", "transfer-encoding")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Front

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        request = proxy.note(self.command, self.path, len(body))
        if proxy.delay:
            time.sleep(proxy.delay)
        fault = proxy.rule(request) if proxy.rule else None
        answer = self._forwarded(body) if fault is None or fault.effect else None
        if fault is not None:
            answer = _answer_of(fault)
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815 - their names

    def _forwarded(self, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.target, timeout=LAST_RESORT
        )
        with contextlib.closing(connection):
            forgets = self.server.proxy.forgets
            headers = {k: v for k, v in self.headers.items() if k.lower() not in forgets}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _answer_of(fault: Fault) -> _Answer | None:
    text = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>"
    return (fault.status, [], text.encode()) if fault.status else None
