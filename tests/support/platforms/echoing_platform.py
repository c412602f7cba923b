"""Serve an emulated platform over HTTP that quotes in its errors what a client has sent."""

import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.serving import WSGIRequestHandler, make_server

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store

Body = dict[str, Any]


class EchoingPlatform:
    """A WSGI application in front of an emulator that refuses requests and alters answers.

    `refuse` gets the body of a request that would change something and its Authorization header,
    and returns the message of an error, or None to pass the request on. `alter` gets the JSON of an
    answer of the emulator, and returns the JSON that is sent.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self.refuse: Callable[[Body, str], str | None] = lambda _body, _key: None
        self.alter: Callable[[Any], Any] = lambda answer: answer

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/_emulator"):
            return self._app(environ, start)
        sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(sent)
        body = json.loads(sent) if sent else {}
        is_change = environ["REQUEST_METHOD"] in ("POST", "PUT", "PATCH")
        message = self.refuse(body, environ.get("HTTP_AUTHORIZATION", "")) if is_change else None
        if message is not None:
            head = [("Content-Type", "application/json"), ("X-Request-Id", message[:200].strip())]
            printable = all(
                character.isprintable() and character.isascii() for character in head[1][1]
            )
            start("400 BAD REQUEST", head if printable else head[:1])
            return [json.dumps({"error": {"message": message, "code": message}}).encode()]
        return self._alter_answer(environ, start)

    def _alter_answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        started_responses: list[Any] = []
        content = b"".join(self._app(environ, lambda *head: started_responses.append(head)))
        status, head = started_responses[0][:2]
        with suppress(ValueError):
            content = json.dumps(self.alter(json.loads(content))).encode()
        start(status, [header for header in head if header[0].lower() != "content-length"])
        return [content]


class _Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serve_echoing_platform() -> Iterator[tuple[str, EchoingPlatform]]:
    """Serve a new echoing platform, and yield URL and platform."""
    store = Store(None, seed="echo")
    platform = EchoingPlatform(create_app(store, Clock(store)))
    server = make_server("127.0.0.1", 0, platform, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", platform
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        store.close()
