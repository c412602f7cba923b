"""Who may stand between gpuform and a platform, over HTTP: proxies, other services, bad lists."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.catalogue import ROOMS
from conformance.emulated import Platform

Answer = tuple[int, str, bytes]
"""Status, media type and body."""


@dataclass(frozen=True)
class Asked:
    """A request to a platform. `room` is the platform, or the Kubernetes of its clusters."""

    method: str
    room: str
    path: str

    @property
    def is_list(self) -> bool:
        is_read = self.method == "GET" or self.path.endswith("/query")
        return is_read and re.search(ROOMS[self.room].lists, self.path) is not None


Proxy = Callable[[Asked], Answer | None]
"""What it answers in the platform's place; None lets a request pass."""


def page(status: int) -> Proxy:
    return lambda _asked: (status, "text/html", b"<html><h1>Nothing here</h1></html>")


def nothing(status: int) -> Proxy:
    return lambda _asked: (status, "text/plain", b"")


def told(status: int, body: Any) -> Proxy:
    return lambda _asked: (status, "application/json", json.dumps(body).encode())


def no_object(asked: Asked) -> Answer | None:
    """Every object is said to be gone, in the platform's own words; its lists still show it."""
    if asked.is_list or asked.path.endswith(("/regions", "/images", "/products", "/node-pools")):
        return None
    return told(404, ROOMS[asked.room].gone)(asked)


def no_object_and(lists: Proxy) -> Proxy:
    """The same, with lists that say something else."""
    return lambda asked: (lists if asked.is_list else no_object)(asked)


def no_object_nor_list(asked: Asked) -> Answer | None:
    """Answer every object and every list with the platform's own 404: an API version that ended."""
    return told(404, ROOMS[asked.room].gone)(asked) if asked.is_list else no_object(asked)


def no_listed(asked: Asked) -> Answer | None:
    """Objects answer as ever, and lists are empty."""
    return told(200, ROOMS[asked.room].empty)(asked) if asked.is_list else None


STRANGERS: Final[Mapping[str, Proxy]] = {
    "404-page": page(404),
    "404-empty": nothing(404),
    "404-json": told(404, {"detail": "Not Found"}),
    "404-message": told(404, {"message": "no Route matched with those values"}),
    "404-error": told(404, {"error": "Not Found", "status": 404, "path": "/"}),
    "404-list": told(404, []),
    "410-page": page(410),
    "200-page": page(200),
    "200-object": told(200, {}),
    "200-list": told(200, [1]),
    "200-health": told(200, {"status": "ok"}),
}
"""They answer everything."""

CONTRADICTIONS: Final[Mapping[str, Proxy]] = {
    "the-list-shows-it": no_object,
    "the-list-fails": no_object_and(told(500, {"error": "no lists today"})),
    "the-list-is-not-found-either": no_object_nor_list,
    "the-list-is-a-page": no_object_and(page(200)),
    "the-list-is-another-object": no_object_and(told(200, {"status": "ok"})),
    "the-list-is-of-numbers": no_object_and(told(200, [1])),
    "the-list-is-of-something-else": no_object_and(told(200, [{"kind": "Beer"}])),
}
"""Objects are said to be gone, and something speaks against it."""

HARMLESS: Final[Mapping[str, Proxy]] = {"the-list-is-empty": no_listed}


@contextlib.contextmanager
def behind(platform: Platform, proxy: Proxy, room: str = "") -> Iterator[None]:
    """Puts a proxy before every platform, or before one room alone."""

    def wrap(inner: Any) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            path = str(environ["PATH_INFO"])
            rooms = [name for name, each in ROOMS.items() if path.startswith(f"{each.prefix}/")]
            answer = None
            if rooms and room in ("", rooms[0]):
                short = path.removeprefix(ROOMS[rooms[0]].prefix)
                answer = proxy(Asked(environ["REQUEST_METHOD"], rooms[0], short))
            if answer is None:
                return inner(environ, start_response)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, kind, body = answer
            headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
            start_response(f"{status} Told", headers)
            return [body]

        return app

    with platform.server.serve_through(wrap):
        yield
