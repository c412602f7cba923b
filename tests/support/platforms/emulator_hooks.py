"""Ways to watch and to change what an emulator in this process answers."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from gpuform.providers.emulator.server import Server


@contextlib.contextmanager
def watch_requests(server: Server, hook: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Call `hook` with the WSGI environment of every request in advance."""

    def wrap(inner: Any) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            hook(environ)
            return inner(environ, start_response)

        return app

    with server.serve_through(wrap):
        yield


@contextlib.contextmanager
def rewrite_answers(
    server: Server, rewrite: Callable[[dict[str, Any], Any], Any]
) -> Iterator[None]:
    """Put `rewrite(environ, answer)` in the place of every platform's answer of 200."""

    def wrap(inner: Any) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            head: list[Any] = []
            body = b"".join(inner(environ, lambda *given: head.append(given)))
            status, headers = head[-1][:2]
            if status.startswith("20") and not environ["PATH_INFO"].startswith("/_emulator"):
                body = json.dumps(rewrite(environ, json.loads(body))).encode()
                headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
                headers.append(("Content-Length", str(len(body))))
            start_response(status, headers)
            return [body]

        return app

    with server.serve_through(wrap):
        yield
