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
from conformance.catalogue import APIS
from conformance.kind_descriptions import KindDescription, Request
from processes.limits import LAST_RESORT
from support.platforms.emulator_hooks import rewrite_answers, watch_requests

from gpuform.providers.context.run_context import close_all_clocks
from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.http import close_all_clients
from gpuform.schemas.aios.updates import EMPTY_UPDATE

_OWNER_FIELDS = ("annotations", "uid")
"""What Kubernetes keeps of an object's owner and identity."""


@contextlib.contextmanager
def start_emulated_platform(**options: Any) -> Iterator["Platform"]:
    """Start an emulator with the options of `serve`, and close all clients at the end."""
    # A client of an earlier emulator at the same address would poll by that emulator's schedule.
    close_all_clients()
    with serve(**options) as server:
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
            yield Platform(server, http)
        close_all_clients()
        close_all_clocks()


def get_platform_path(environ: Mapping[str, Any]) -> str:
    """Return a request's path after the platform's prefix, or the complete path of a control."""
    path = str(environ["PATH_INFO"])
    prefixes = [api.prefix for api in APIS.values()]
    prefix = next((item for item in prefixes if path.startswith(f"{item}/")), path)
    return path.removeprefix(prefix)


@dataclass(frozen=True)
class Platform:
    """An emulator on a port, with the controls of its README."""

    server: Server
    http: httpx.Client

    def reset(self) -> None:
        self._send_control("POST", "reset")

    def add_fault(self, method: str | None, path: str, **rule: Any) -> None:
        self._send_control("POST", "faults", {"method": method, "path": path, **rule})

    def remove_faults(self) -> None:
        """Remove all faults."""
        self._send_control("DELETE", "faults")

    def advance(self, seconds: float) -> None:
        self._send_control("POST", "clock", {"advance": seconds})

    def list_objects(self, description: KindDescription) -> list[dict[str, Any]]:
        """Return the emulator's objects of a kind: id, name, status, and the ids of their parts."""
        api = description.api or description.platform
        listed = self._send_control("GET", "objects")[api][description.listed_as]
        return description.convert_objects(listed)

    def list_existing_objects(self, *kinds: KindDescription) -> list[dict[str, Any]]:
        """Return the objects of these kinds, without objects in deletion."""
        return [
            found_object
            for description in kinds
            for found_object in self.list_objects(description)
            if found_object["status"].lower() not in description.deleting_statuses
        ]

    def list_ids(self, *kinds: KindDescription) -> set[str]:
        """Return the ids of `list_existing_objects`."""
        return {item["id"] for item in self.list_existing_objects(*kinds)}

    def list_parts(self, *kinds: KindDescription) -> set[str]:
        """Return the ids of the parts of `list_existing_objects`."""
        return {part for item in self.list_existing_objects(*kinds) for part in item["parts"]}

    def delete_without_trace(self, description: KindDescription) -> None:
        """Delete all objects of a kind at once, and every sign of them.

        Without a control path, the complete emulator is reset.
        """
        if description.control_path:
            for part in self.list_parts(description):
                self._send_control("DELETE", f"{description.control_path}/{part}")
        else:
            self.server.store.reset()

    def prepare(self, description: KindDescription) -> KindDescription:
        """Create a kind's missing requirements, and return the kind with the new ids."""
        if description.requirements and not self._find_requirement_ids(description):
            for request in description.requirements:
                self.send(description, request)
            self.advance(7200)
            self.forget_requests()
        url = str(self.http.base_url).rstrip("/")
        return description.fill_placeholders(
            {"{url}": url, **self._find_requirement_ids(description)}
        )

    def _find_requirement_ids(self, description: KindDescription) -> dict[str, str]:
        if not description.requirements:
            return {}
        required = self._send_control("GET", "objects")[description.platform][
            description.requirements_listed_as
        ]
        return {f"{{{item['name']}}}": item["id"] for item in required}

    def list_requests(self, *methods: str, path: str = "") -> list[Request]:
        """Return the requests to platforms in order, with failed and unanswered ones.

        `methods` and the regular expression `path` select requests.
        """
        return [
            Request(request["method"], request["path"], _strip_identity(request["body"]))
            for request in self._send_control("GET", "requests")
            if (not methods or request["method"] in methods) and re.search(path, request["path"])
        ]

    def list_writes(self) -> list[Request]:
        """Return the requests with effects on objects of the platform.

        A query of the registry is a POST, and a check of a record may be a PUT; both change
        nothing. A cordon changes a cluster's Kubernetes, not the platform.
        """
        sent = self.list_requests("POST", "PUT", "DELETE", "PATCH")
        return [
            item
            for item in sent
            if not (item.path.endswith("/query") or "/api/v1/nodes/" in item.path)
            and item.body != EMPTY_UPDATE.body
        ]

    def count_creates(self, description: KindDescription) -> int:
        """Return the number of successful creates of a kind."""
        create = description.create
        return sum(
            request["status"] in {200, 201, 202} and set(create.body) <= set(request["body"])
            for request in self._send_control("GET", "requests")
            if create and (request["method"], request["path"]) == (create.method, create.path)
        )

    def forget_requests(self) -> None:
        self._send_control("DELETE", "requests")

    def send(self, description: KindDescription, request: Request) -> Any:
        """Send a request as another client of the platform, without gpuform."""
        if description.api == "kubernetes" and request not in description.requirements:
            return self._send_to_kubernetes(request)
        api = APIS[description.platform]
        path = api.prefix + request.path
        headers = dict(api.headers(request.method, f"{self.http.base_url}{path}"))
        body = description.restore_secrets(request.body)
        answer = self.http.request(request.method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def _send_to_kubernetes(self, request: Request) -> Any:
        """Send a request with the cluster's own credentials."""
        cluster_id = request.path.split("/")[1]
        cluster = self.http.get(
            f"{APIS['together'].prefix}/compute/clusters/{cluster_id}",
            headers=dict(APIS["together"].headers("GET", "")),
        ).json()
        user = yaml.safe_load(base64.b64decode(cluster["kube_config"]))["users"][0]["user"]
        form = "merge-patch+json" if request.method == "PATCH" else "json"
        headers = {
            "Authorization": f"Bearer {user['token']}",
            "Content-Type": f"application/{form}",
        }
        path = APIS["kubernetes"].prefix + request.path
        content = None if request.body is None else json.dumps(request.body)
        answer = self.http.request(request.method, path, content=content, headers=headers)
        answer.raise_for_status()
        return answer.json()

    @contextlib.contextmanager
    def hold_creates(self, description: KindDescription, number: int) -> Iterator[None]:
        """Answer creates only when `number` of them are in progress."""
        barrier = threading.Barrier(number, timeout=LAST_RESORT)

        def wait(environ: dict[str, Any]) -> None:
            method_and_path = (environ["REQUEST_METHOD"], get_platform_path(environ))
            if description.create and method_and_path == (
                description.create.method,
                description.create.path,
            ):
                barrier.wait()

        with self.watch_requests(wait):
            yield

    @contextlib.contextmanager
    def watch_requests(self, hook: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Call `hook` with the WSGI environment of every request in advance."""
        with watch_requests(self.server, hook):
            yield

    @contextlib.contextmanager
    def rewrite_answers(self, rewrite: Callable[[str, str, Any], Any]) -> Iterator[None]:
        """Replace every product answer of 200 by `rewrite(method, path, answer)`."""

        def rewrite_products(environ: dict[str, Any], answer: Any) -> Any:
            path = get_platform_path(environ)
            return rewrite(environ["REQUEST_METHOD"], path, answer) if path else answer

        with rewrite_answers(self.server, rewrite_products):
            yield

    def _send_control(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()


def _strip_identity(body: Any) -> Any:
    """Return a body without identifiers and owner labels."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return body
    retained = {name: item for name, item in body["metadata"].items() if name not in _OWNER_FIELDS}
    rest = {name: item for name, item in body.items() if name not in {"metadata", *_OWNER_FIELDS}}
    return {**rest, "metadata": retained} if retained else rest
