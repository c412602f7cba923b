"""Answer between gpuform and a platform over HTTP: proxies, other services, wrong lists."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.catalogue import APIS
from conformance.emulated import Platform

Answer = tuple[int, str, bytes]
"""Status, media type and body."""


@dataclass(frozen=True)
class ObservedRequest:
    """A request to a platform; `api` is the name of the platform, or `kubernetes`."""

    method: str
    api: str
    path: str

    @property
    def is_list(self) -> bool:
        is_read = self.method == "GET" or self.path.endswith("/query")
        return is_read and re.search(APIS[self.api].list_paths, self.path) is not None


Proxy = Callable[[ObservedRequest], Answer | None]
"""What it answers in the platform's place; None lets a request pass."""


def answer_page(status: int) -> Proxy:
    return lambda _asked: (status, "text/html", b"<html><h1>Nothing here</h1></html>")


def answer_nothing(status: int) -> Proxy:
    return lambda _asked: (status, "text/plain", b"")


def answer_with(status: int, body: Any) -> Proxy:
    return lambda _asked: (status, "application/json", json.dumps(body).encode())


def answer_objects_not_found(request: ObservedRequest) -> Answer | None:
    """Report every object as deleted in the platform's own form; lists still have all objects."""
    if request.is_list or request.path.endswith(
        ("/regions", "/images", "/products", "/node-pools")
    ):
        return None
    return answer_with(404, APIS[request.api].not_found_answer)(request)


def answer_not_found_with_lists(lists: Proxy) -> Proxy:
    """Report every object as gone, with the given answer to lists."""
    return lambda request: (lists if request.is_list else answer_objects_not_found)(request)


def answer_everything_not_found(request: ObservedRequest) -> Answer | None:
    """Answer every object and every list with the platform's own 404: an API version that ended."""
    return (
        answer_with(404, APIS[request.api].not_found_answer)(request)
        if request.is_list
        else answer_objects_not_found(request)
    )


def answer_empty_lists(request: ObservedRequest) -> Answer | None:
    """Answer for objects as usual, with empty lists."""
    return (
        answer_with(200, APIS[request.api].empty_list_answer)(request) if request.is_list else None
    )


STRANGERS: Final[Mapping[str, Proxy]] = {
    "404-page": answer_page(404),
    "404-empty": answer_nothing(404),
    "404-json": answer_with(404, {"detail": "Not Found"}),
    "404-message": answer_with(404, {"message": "no Route matched with those values"}),
    "404-error": answer_with(404, {"error": "Not Found", "status": 404, "path": "/"}),
    "404-list": answer_with(404, []),
    "410-page": answer_page(410),
    "200-page": answer_page(200),
    "200-object": answer_with(200, {}),
    "200-list": answer_with(200, [1]),
    "200-health": answer_with(200, {"status": "ok"}),
}
"""They answer everything."""

CONTRADICTIONS: Final[Mapping[str, Proxy]] = {
    "the-list-shows-it": answer_objects_not_found,
    "the-list-fails": answer_not_found_with_lists(answer_with(500, {"error": "no lists today"})),
    "the-list-is-not-found-either": answer_everything_not_found,
    "the-list-is-a-page": answer_not_found_with_lists(answer_page(200)),
    "the-list-is-another-object": answer_not_found_with_lists(answer_with(200, {"status": "ok"})),
    "the-list-is-of-numbers": answer_not_found_with_lists(answer_with(200, [1])),
    "the-list-is-of-something-else": answer_not_found_with_lists(
        answer_with(200, [{"kind": "Beer"}])
    ),
}
"""Proxies that report objects as deleted, with evidence against the report."""

HARMLESS: Final[Mapping[str, Proxy]] = {"the-list-is-empty": answer_empty_lists}


@contextlib.contextmanager
def put_proxy_before(platform: Platform, proxy: Proxy, api: str = "") -> Iterator[None]:
    """Put a proxy in front of every platform, or only of the API with this name."""

    def wrap_app(inner: Any) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            path = str(environ["PATH_INFO"])
            api_names = [name for name, item in APIS.items() if path.startswith(f"{item.prefix}/")]
            answer = None
            if api_names and api in ("", api_names[0]):
                short = path.removeprefix(APIS[api_names[0]].prefix)
                answer = proxy(ObservedRequest(environ["REQUEST_METHOD"], api_names[0], short))
            if answer is None:
                return inner(environ, start_response)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, kind, body = answer
            headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
            start_response(f"{status} Told", headers)
            return [body]

        return app

    with platform.server.serve_through(wrap_app):
        yield
