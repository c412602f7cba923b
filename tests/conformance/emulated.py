"""Control the emulated platforms in tests: their objects, recorded requests and faults."""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import yaml
from conformance.catalogue import ROOMS
from conformance.described import Described, Request
from processes.limits import LAST_RESORT
from support.platforms.emulator_hooks import rewrite_answers, watch_requests

from gpuform.providers.context import get_clock
from gpuform.providers.context.clock import EmulatorClock
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms
from gpuform.schemas.aios.updates import EMPTY_UPDATE

_MARKS = ("annotations", "uid")
"""What Kubernetes keeps of an object's owner and identity."""


@contextlib.contextmanager
def emulated(**options: Any) -> Iterator["Platform"]:
    """Start an emulator with the options of `serve`, and close its clients with it."""
    with serve(**options) as server:
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
            yield Platform(server, http)
        variables = environment(server.url)
        for platform in platforms().values():
            platform.import_module("client").get_client(Settings(environ=variables)).close()
        clock = get_clock(variables)
        if isinstance(clock, EmulatorClock):
            clock.close()


def product_path(environ: Mapping[str, Any]) -> str:
    """Return a request's path after the platform's prefix; empty for the emulator's controls."""
    path = str(environ["PATH_INFO"])
    prefixes = [room.prefix for room in ROOMS.values()]
    prefix = next((item for item in prefixes if path.startswith(f"{item}/")), path)
    return path.removeprefix(prefix)


@dataclass(frozen=True)
class Platform:
    """An emulator on a port, with the controls of its README."""

    server: Server
    http: httpx.Client

    def reset(self) -> None:
        self._admin("POST", "reset")

    def fault(self, method: str | None, path: str, **rule: Any) -> None:
        self._admin("POST", "faults", {"method": method, "path": path, **rule})

    def heal(self) -> None:
        """Remove all faults."""
        self._admin("DELETE", "faults")

    def advance(self, seconds: float) -> None:
        self._admin("POST", "clock", {"advance": seconds})

    def objects(self, described: Described) -> list[dict[str, Any]]:
        """Return the objects of a kind: id, name, status, and the ids of their parts."""
        room = described.room or described.platform
        listed = self._admin("GET", "objects")[room][described.listed_as]
        return described.objects(listed)

    def present(self, *kinds: Described) -> list[dict[str, Any]]:
        """Return the objects that exist and are not being deleted."""
        return [
            found_object
            for described in kinds
            for found_object in self.objects(described)
            if found_object["status"].lower() not in described.leaving
        ]

    def ids(self, *kinds: Described) -> set[str]:
        """Return the ids of the existing objects."""
        return {item["id"] for item in self.present(*kinds)}

    def parts(self, *kinds: Described) -> set[str]:
        """Return the ids of the parts of the existing objects."""
        return {part for item in self.present(*kinds) for part in item["parts"]}

    def vanish(self, described: Described) -> None:
        """Delete the objects of a kind at once, without a trace."""
        if described.control:
            for part in self.parts(described):
                self._admin("DELETE", f"{described.control}/{part}")
        else:
            self.server.store.reset()

    def prepare(self, described: Described) -> Described:
        """Create a kind's requirements if they do not exist, and return the kind with their ids."""
        if described.needs and not self._needed(described):
            for request in described.needs:
                self.send(described, request)
            self.advance(7200)
            self.forget_requests()
        url = str(self.http.base_url).rstrip("/")
        return described.placed({"{url}": url, **self._needed(described)})

    def _needed(self, described: Described) -> dict[str, str]:
        if not described.needs:
            return {}
        required = self._admin("GET", "objects")[described.platform][described.needed_as]
        return {f"{{{item['name']}}}": item["id"] for item in required}

    def requests(self, *methods: str, path: str = "") -> list[Request]:
        """Return the product requests in order, failed and unanswered ones included."""
        return [
            Request(request["method"], request["path"], _strip_identity(request["body"]))
            for request in self._admin("GET", "requests")
            if (not methods or request["method"] in methods) and re.search(path, request["path"])
        ]

    def writes(self) -> list[Request]:
        """Return the requests that change the platform's objects.

        A query of the registry is a POST and a look at a record may be a PUT, which change
        nothing; a cordon is a cluster's own.
        """
        sent = self.requests("POST", "PUT", "DELETE", "PATCH")
        return [
            item
            for item in sent
            if not (item.path.endswith("/query") or "/api/v1/nodes/" in item.path)
            and item.body != EMPTY_UPDATE.body
        ]

    def created(self, described: Described) -> int:
        """Return how many creates of a kind took effect, by their answers."""
        create = described.create
        return sum(
            request["status"] in {200, 201, 202} and set(create.body) <= set(request["body"])
            for request in self._admin("GET", "requests")
            if create and (request["method"], request["path"]) == (create.method, create.path)
        )

    def forget_requests(self) -> None:
        self._admin("DELETE", "requests")

    def send(self, described: Described, request: Request) -> Any:
        """Send a request as somebody else, without gpuform."""
        if described.room == "kubernetes" and request not in described.needs:
            return self._send_to_kubernetes(request)
        room = ROOMS[described.platform]
        path = room.prefix + request.path
        headers = dict(room.headers(request.method, f"{self.http.base_url}{path}"))
        body = described.unmasked(request.body)
        answer = self.http.request(request.method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def _send_to_kubernetes(self, request: Request) -> Any:
        """Send a request with the cluster's own credentials."""
        cluster_id = request.path.split("/")[1]
        cluster = self.http.get(
            f"{ROOMS['together'].prefix}/compute/clusters/{cluster_id}",
            headers=dict(ROOMS["together"].headers("GET", "")),
        ).json()
        user = yaml.safe_load(base64.b64decode(cluster["kube_config"]))["users"][0]["user"]
        form = "merge-patch+json" if request.method == "PATCH" else "json"
        headers = {
            "Authorization": f"Bearer {user['token']}",
            "Content-Type": f"application/{form}",
        }
        path = ROOMS["kubernetes"].prefix + request.path
        content = None if request.body is None else json.dumps(request.body)
        answer = self.http.request(request.method, path, content=content, headers=headers)
        answer.raise_for_status()
        return answer.json()

    @contextlib.contextmanager
    def meeting(self, described: Described, number: int) -> Iterator[None]:
        """Answer creates only when the given number of them are in progress together."""
        together = threading.Barrier(number, timeout=LAST_RESORT)

        def wait(environ: dict[str, Any]) -> None:
            method_and_path = (environ["REQUEST_METHOD"], product_path(environ))
            if described.create and method_and_path == (
                described.create.method,
                described.create.path,
            ):
                together.wait()

        with self.watching(wait):
            yield

    @contextlib.contextmanager
    def watching(self, hook: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Call `hook` with the WSGI environment of every request, before it is served."""
        with watch_requests(self.server, hook):
            yield

    @contextlib.contextmanager
    def answering(self, rewrite: Callable[[str, str, Any], Any]) -> Iterator[None]:
        """Replace every product answer of 200 by `rewrite(method, path, answer)`."""

        def rewrite_products(environ: dict[str, Any], answer: Any) -> Any:
            path = product_path(environ)
            return rewrite(environ["REQUEST_METHOD"], path, answer) if path else answer

        with rewrite_answers(self.server, rewrite_products):
            yield

    def _admin(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()


def _strip_identity(body: Any) -> Any:
    """Return what a body says of an object, without identifiers and owner labels."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return body
    retained = {name: item for name, item in body["metadata"].items() if name not in _MARKS}
    rest = {name: item for name, item in body.items() if name not in {"metadata", *_MARKS}}
    return {**rest, "metadata": retained} if retained else rest
