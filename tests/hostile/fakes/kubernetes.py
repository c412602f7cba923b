"""Fake the API of one Kubernetes cluster, from its API conventions and concepts alone.

The cluster stores its objects, and answers wrongly in the ways that its `Misbehavior` names.
`serve_cluster` serves it on a port of its own; `render_kubeconfig` returns its kubeconfig.
"""

import base64
import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml
from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import CHANGE, CREATE, GET, LIST

Json = dict[str, Any]
TOKEN = "planted-kubernetes-token"
_KINDS = {"nodes": "Node", "pods": "Pod"}


@dataclass
class Misbehavior:
    """Ways of misbehaving; none by default."""

    page_size: int = 0
    """Objects of a page; 0 shows all at once."""
    expired_tokens: int = 0
    """How many continue tokens it still refuses as expired (410 Gone)."""
    shifts_pages: bool = False
    """Each page is of the moment when it is asked for, with that moment's resourceVersion."""
    drops_continue: bool = False
    """The first page has no continue token, and its remainingItemCount is right."""
    repeats_page: bool = False
    """The first page comes for every token."""
    lag_s: float = 0.0
    """Lists are as they were so many seconds ago; a single object is not."""
    is_foreign: bool = False
    """It shows the nodes and pods of another cluster."""
    hidden_nodes: set[str] = field(default_factory=set)
    hidden_namespaces: set[str] = field(default_factory=set)
    """Namespaces whose pods a filtering gateway omits from lists."""
    forbidden: set[str] = field(default_factory=set)
    """The resources that RBAC forbids (403)."""
    wrong_kind: str = ""
    """The kind that every list has in place of its own."""
    is_doubled: bool = False
    """Every list shows its first object twice."""
    partial_lists: int = 0
    """How many of the next lists omit every second object without a sign of it."""


class Kubernetes:
    """One cluster. `clock.now()` is the time; requests that change something need no resource lock.

    The caller moves the clock and ends the pods.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._version = 100
        self.objects: dict[str, dict[str, Json]] = {"nodes": {}, "pods": {}}
        self._history: list[tuple[float, dict[str, dict[str, Json]]]] = []
        self._snapshots: dict[str, list[Json]] = {}
        self.misbehavior = Misbehavior()
        self.before: Callable[[PlatformRequest], None] = lambda _: None
        """Called ahead of every request."""
        self.requests: list[str] = []

    def add_node(self, name: str, **fields: Any) -> None:
        """Add a node with `provider_id`, `addresses` (type -> address), `labels` and `ready`.

        A kube-proxy pod runs on the node unless `has_proxy` is False.
        """
        created = format_time(self._clock.now() - 3600)
        ready = fields.get("ready", True)
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "reason": "KubeletReady" if ready else "NodeStatusUnknown",
            "lastTransitionTime": fields.get("since", created),
        }
        addresses = {"Hostname": name, **fields.get("addresses", {})}
        spec = {"providerID": fields["provider_id"]} if "provider_id" in fields else {}
        self._put(
            "nodes",
            name,
            {
                "metadata": {
                    "name": name,
                    "uid": f"node-{name}",
                    "creationTimestamp": fields.get("created", created),
                    "labels": dict(fields.get("labels", {})),
                },
                "spec": spec,
                "status": {
                    "conditions": [condition],
                    "addresses": [{"type": k, "address": v} for k, v in addresses.items()],
                    "capacity": {"nvidia.com/gpu": "8"},
                },
            },
        )

        if fields.get("has_proxy", True):
            self.start_pod(name, f"kube-proxy-{name}", "kube-system", owner="DaemonSet")

    def start_pod(self, node: str, name: str, namespace: str = "ml", **fields: Any) -> None:
        """Start a pod on a node; `owner` is the controller's kind, `gpus` the request."""
        metadata: Json = {"name": name, "namespace": namespace, "uid": f"pod-{namespace}-{name}"}
        if owner := fields.get("owner"):
            reference = {"kind": owner, "name": f"{name}-owner", "controller": True}
            metadata["ownerReferences"] = [reference]
        limits = {"nvidia.com/gpu": str(fields["gpus"])} if fields.get("gpus") else {}
        self._put(
            "pods",
            f"{namespace}/{name}",
            {
                "metadata": metadata,
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "main", "resources": {"limits": limits}}],
                },
                "status": {"phase": "Running"},
            },
        )

    def end_pod(self, name: str, namespace: str = "ml") -> None:
        """End a pod whose work is done."""
        pod = copy.deepcopy(self.objects["pods"][f"{namespace}/{name}"])
        pod["status"]["phase"] = "Succeeded"
        self._put("pods", f"{namespace}/{name}", pod)

    def remove_node(self, name: str) -> None:
        """Remove a node with all pods."""
        with self._lock:
            self._record_history()
            self.objects["nodes"].pop(name, None)
            pods = self.objects["pods"]
            for key in [k for k, pod in pods.items() if pod["spec"]["nodeName"] == name]:
                del pods[key]

    def get_node(self, name: str) -> Json:
        return self.objects["nodes"][name]

    def list_jobs_on(self, node: str) -> list[str]:
        """Return the keys of all pods on `node`, also of pods hidden by the API."""
        return [
            key
            for key, pod in self.objects["pods"].items()
            if pod["spec"]["nodeName"] == node and pod["status"]["phase"] == "Running"
            if "kube-proxy" not in key
        ]

    def classify_request(self, request: PlatformRequest) -> str:
        if request.method == "GET":
            return LIST if request.path[-1] in _KINDS else GET
        return CREATE if request.method == "POST" else CHANGE

    def serve(self, request: PlatformRequest) -> Answer:
        self.before(request)
        self.requests.append(f"{request.method} /{'/'.join(request.path)}")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _answer_status(401, "Unauthorized", "Unauthorized")
        with self._lock:
            return self._route(request)

    def _route(self, request: PlatformRequest) -> Answer:
        match request.path:
            case ("api", "v1", "nodes" | "pods" as resource):
                return self._list(resource, request.query)
            case ("api", "v1", "nodes", name):
                return (
                    self._change_node(name, request)
                    if request.method == "PATCH"
                    else self._get(name)
                )
            case ("api", "v1", "namespaces", namespace, "pods", name, "eviction"):
                return self._evict(f"{namespace}/{name}")
            case _:
                return _answer_status(
                    404, "NotFound", "the server could not find the requested resource"
                )

    def _list(self, resource: str, query: Mapping[str, str]) -> Answer:
        misbehavior = self.misbehavior
        if resource in misbehavior.forbidden:
            return _answer_status(
                403, "Forbidden", f"{resource} is forbidden: cannot list at the cluster scope"
            )
        start, token = 0, query.get("continue", "")
        visible_objects = self._list_visible(resource, query.get("fieldSelector", ""))
        version = str(self._version)
        if token:
            if misbehavior.expired_tokens:
                misbehavior.expired_tokens -= 1
                return _answer_status(410, "Expired", "The provided continue parameter is too old")
            version, key, at = base64.b64decode(token).decode().split("|")
            start = 0 if misbehavior.repeats_page else int(at)
            if misbehavior.shifts_pages:
                version = str(self._version)
            else:
                visible_objects = self._snapshots[key]
        size = misbehavior.page_size or len(visible_objects) or 1
        page, remaining = visible_objects[start : start + size], len(visible_objects) - start - size
        metadata: Json = {"resourceVersion": version}
        if remaining > 0:
            key = f"{resource}-{version}"
            self._snapshots[key] = visible_objects
            following = f"{version}|{key}|{start + size}"
            metadata["remainingItemCount"] = remaining
            if not misbehavior.drops_continue:
                metadata["continue"] = base64.b64encode(following.encode()).decode()
        items = [copy.deepcopy(item) for item in page]
        if misbehavior.is_doubled and items:
            items.append(copy.deepcopy(items[0]))
        kind = misbehavior.wrong_kind or f"{_KINDS[resource]}List"
        return Answer(200, {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items})

    def _list_visible(self, resource: str, selector: str) -> list[Json]:
        misbehavior = self.misbehavior
        if misbehavior.is_foreign:
            return [] if resource == "pods" else [_build_foreign_node()]
        visible_objects = list(self._get_shown_objects()[resource].values())
        for term in filter(None, selector.split(",")):
            _, _, phase = term.partition("!=")
            visible_objects = [
                visible_object
                for visible_object in visible_objects
                if visible_object["status"].get("phase") != phase
            ]
        visible_objects = [
            visible_object
            for visible_object in visible_objects
            if not self._is_hidden(resource, visible_object["metadata"])
        ]
        if misbehavior.partial_lists and resource == "pods":
            misbehavior.partial_lists -= 1
            visible_objects = visible_objects[1::2]
        return sorted(
            visible_objects, key=lambda visible_object: str(visible_object["metadata"]["name"])
        )

    def _is_hidden(self, resource: str, metadata: Json) -> bool:
        if resource == "nodes":
            return metadata["name"] in self.misbehavior.hidden_nodes
        return metadata["namespace"] in self.misbehavior.hidden_namespaces

    def _get_shown_objects(self) -> dict[str, dict[str, Json]]:
        """Return the objects of lists: the objects of `lag_s` seconds ago."""
        moment = self._clock.now() - self.misbehavior.lag_s
        for until, objects in self._history:
            if until > moment:
                return objects
        return self.objects

    def _get(self, name: str) -> Answer:
        node = self.objects["nodes"].get(name)
        if node is None or name in self.misbehavior.hidden_nodes or self.misbehavior.is_foreign:
            return _answer_not_found(name)
        return Answer(200, {"kind": "Node", "apiVersion": "v1", **node})

    def _change_node(self, name: str, request: PlatformRequest) -> Answer:
        node = self.objects["nodes"].get(name)
        if node is None:
            return _answer_not_found(name)
        requested_version = request.body["metadata"].get("resourceVersion")
        if requested_version not in (None, node["metadata"]["resourceVersion"]):
            return _answer_status(409, "Conflict", "the object has been modified", name)
        changed = _apply_merge_patch(copy.deepcopy(node), request.body)
        self._put("nodes", name, changed)
        return Answer(200, {"kind": "Node", "apiVersion": "v1", **changed})

    def _evict(self, key: str) -> Answer:
        pod = self.objects["pods"].get(key)
        if pod is None:
            return _answer_not_found(key)
        changed = copy.deepcopy(pod)
        changed["status"]["phase"] = "Failed"
        self._put("pods", key, changed)
        return Answer(201, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _put(self, resource: str, key: str, body: Json) -> None:
        with self._lock:
            self._record_history()
            self._version += 1
            body["metadata"]["resourceVersion"] = str(self._version)
            self.objects[resource][key] = body

    def _record_history(self) -> None:
        """Store the present objects in the history."""
        self._history.append((self._clock.now(), {k: dict(v) for k, v in self.objects.items()}))


def format_time(moment: float) -> str:
    """Return `moment` (seconds since 1970) in the format of Kubernetes."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def render_kubeconfig(address: str, **user: Any) -> str:
    """Return a kubeconfig of one context `train`, as YAML."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "train",
            "contexts": [{"name": "train", "context": {"cluster": "train", "user": "train"}}],
            "clusters": [{"name": "train", "cluster": {"server": address}}],
            "users": [{"name": "train", "user": user or {"token": TOKEN}}],
        }
    )


def _build_foreign_node() -> Json:
    created = "2026-01-01T00:00:00Z"
    return {
        "metadata": {"name": "somebody-1", "uid": "s1", "creationTimestamp": created},
        "spec": {"providerID": "aws:///eu-west-1a/i-0f"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}],
            "addresses": [{"type": "InternalIP", "address": "10.255.0.1"}],
        },
    }


def _apply_merge_patch(node: Json, change: Json) -> Json:
    """Return the node with a merge patch by RFC 7386."""
    for key, value in change.items():
        if value is None:
            node.pop(key, None)
        elif isinstance(value, dict):
            node[key] = _apply_merge_patch(node.get(key) or {}, value)
        else:
            node[key] = value
    return node


def _answer_not_found(name: str) -> Answer:
    return _answer_status(404, "NotFound", f'"{name}" not found', name)


def _answer_status(code: int, reason: str, message: str, name: str = "") -> Answer:
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if name:
        body["details"] = {"name": name}
    return Answer(code, body)


@contextmanager
def serve_cluster(cluster: Kubernetes) -> Iterator[str]:
    """Serve `cluster` over HTTP, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            pass

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            request = PlatformRequest(
                actor="ours",
                method=self.command,
                path=tuple(unquote(part) for part in url.path.strip("/").split("/")),
                query=dict(parse_qsl(url.query, keep_blank_values=True)),
                body=json.loads(body) if body else None,
                headers=self.headers,
                address=self.path,
            )
            answer = cluster.serve(request)
            data = answer.encode_body()
            self.send_response_only(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - their names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
