"""Who may stand between gpuform and a platform, over HTTP: proxies, other services, bad lists."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.emulated import _PREFIXES, Platform

Answer = tuple[int, str, bytes]
"""Status, media type and body."""

_OWN: Final[Mapping[str, Any]] = {
    "together": {"error": {"message": "not found", "type": "not_found_error", "code": 404}},
    "scp": {"errors": [{"detail": "The GPU Node is not found.", "status": 404}]},
    "tensorone": {
        "error": "RESOURCE_NOT_FOUND",
        "message": "Cluster not found",
        "code": 404,
        "details": {"resource": "cluster", "id": "x"},
    },
    "aios": {"error": "Cluster not found"},
    "kubernetes": {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "NotFound",
        "message": 'persistentvolumeclaims "scratch" not found',
        "details": {"name": "scratch", "kind": "persistentvolumeclaims"},
        "code": 404,
    },
}
"""What each platform itself answers about an object that there is not."""

_LIST: Final = re.compile(
    r"/compute/clusters$|/storage/volumes$|/v1/gpu-nodes$|/v1/cluster-fabrics$|^/clusters$"
    r"|^/clusters/query$|/persistentvolumeclaims$"
)

_EMPTY: Final[Mapping[str, Any]] = {
    "together": {"clusters": [], "volumes": []},
    "scp": {"count": 0, "gpu_nodes": [], "cluster_fabrics": []},
    "tensorone": {"success": True, "data": {"clusters": [], "pagination": {"total_pages": 1}}},
    "aios": [],
    "kubernetes": {"kind": "PersistentVolumeClaimList", "apiVersion": "v1", "items": []},
}


@dataclass(frozen=True)
class Asked:
    """A request to a platform. `room` is the platform, or the Kubernetes of its clusters."""

    method: str
    room: str
    path: str

    @property
    def is_list(self) -> bool:
        is_read = self.method == "GET" or self.path.endswith("/query")
        return is_read and _LIST.search(self.path) is not None


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
    return told(404, _OWN[asked.room])(asked)


def no_object_and(lists: Proxy) -> Proxy:
    """The same, with lists that say something else."""
    return lambda asked: (lists if asked.is_list else no_object)(asked)


def no_listed(asked: Asked) -> Answer | None:
    """Objects answer as ever, and lists are empty."""
    return told(200, _EMPTY[asked.room])(asked) if asked.is_list else None


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
    http = platform.server._http
    inner = http.app

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        path = str(environ["PATH_INFO"])
        rooms = [name for name, each in _PREFIXES.items() if path.startswith(f"{each}/")]
        answer = None
        if rooms and room in ("", rooms[0]):
            short = path.removeprefix(_PREFIXES[rooms[0]])
            answer = proxy(Asked(environ["REQUEST_METHOD"], rooms[0], short))
        if answer is None:
            return inner(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, kind, body = answer
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start_response(f"{status} Told", headers)
        return [body]

    http.app = app
    try:
        yield
    finally:
        http.app = inner
