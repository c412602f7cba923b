"""Serve buckets over real HTTP: moto's S3 server as a process, and a proxy that injects faults."""

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
from support.servers.ports import reserve_port

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@dataclass(frozen=True)
class BucketServer:
    """A server of buckets at a port of this machine."""

    port: int

    def create_bucket(self) -> str:
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


def build_bucket_url(bucket: str, port: int, **parameters: Any) -> str:
    """Return the URL of the backend in a bucket, under a prefix."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return (
        f"s3://{bucket}/team/state?region=us-east-1&endpoint=127.0.0.1:{port}&disableSSL=true"
        f"&s3ForcePathStyle=true{more}"
    )


@contextlib.contextmanager
def serve_buckets() -> Iterator[BucketServer]:
    """Run moto's S3 server until the block ends."""
    with reserve_port() as port:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **KEYS},
        )
        try:
            wait_until_listening(port, process)
            yield BucketServer(port)
        finally:
            process.kill()
            process.wait()


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until something listens at the port; fail if the process ends before."""
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError("the server ended")


@dataclass(frozen=True)
class Request:
    """A request that the proxy received.

    `number` counts from 1, `sent` is the length of the body.
    """

    number: int
    method: str
    path: str
    sent: int

    @property
    def name(self) -> str:
        return self.path.partition("?")[0]


@dataclass(frozen=True)
class Fault:
    """An injected answer; with status 0 the connection breaks.

    With `effect`, the server gets the request all the same.
    """

    status: int
    code: str = ""
    effect: bool = False


Rule = Callable[[Request], Fault | None]


@dataclass
class Proxy:
    """A proxy between clients and server: `rule` injects faults, `seen` has the requests."""

    port: int
    rule: Rule | None = None
    requests: list[Request] = field(default_factory=list)
    delay: float = 0.0
    dropped_headers: tuple[str, ...] = ()  # headers that the server does not come to see
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_request(self, method: str, path: str, sent: int) -> Request:
        with self._lock:
            request = Request(len(self.requests) + 1, method, path, sent)
            self.requests.append(request)
            return request

    def stop_faults(self) -> None:
        self.rule = None


@contextlib.contextmanager
def serve_proxy(server: BucketServer) -> Iterator[Proxy]:
    """Serve a proxy in front of `server` until the block ends."""
    front = _ProxyServer(server.port)
    thread = threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield front.proxy
    finally:
        front.shutdown()
        front.server_close()
        thread.join()


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.proxy = Proxy(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections of killed clients."""


_Answer = tuple[int, list[tuple[str, str]], bytes]
_OWN_HEADERS = ("content-length", "connection", "transfer-encoding")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _ProxyServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        request = proxy.record_request(self.command, self.path, len(body))
        if proxy.delay:
            time.sleep(proxy.delay)
        fault = proxy.rule(request) if proxy.rule else None
        answer = self._forward(body) if fault is None or fault.effect else None
        if fault is not None:
            answer = _build_answer(fault)
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815 - their names

    def _forward(self, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.target, timeout=LAST_RESORT
        )
        with contextlib.closing(connection):
            forgets = self.server.proxy.dropped_headers
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


def _build_answer(fault: Fault) -> _Answer | None:
    body = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>"
    return (fault.status, [], body.encode()) if fault.status else None
