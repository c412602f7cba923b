"""Serve the Kubernetes API over HTTP: discovery, objects and lists, watches, eviction, exec.

The emulated Together mounts the routes for its clusters; `verbs` does what is asked of objects. A
watch sends changes as lines of JSON for as long as the client listens, and an `Executor` runs the
commands of `pods/NAME/exec`.
"""

import base64
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from flask import Blueprint, Request, Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.kubernetes import verbs
from gpuform.providers.emulator.kubernetes.controllers import (
    find_running_cluster,
    load_current_objects,
    reconcile_objects,
)
from gpuform.providers.emulator.kubernetes.kinds import (
    CLAIM,
    KIND_BY_PATH,
    KubernetesSettings,
    ServedVersions,
    StatusError,
    build_failure_status,
    build_openapi_index,
    find_discovery_document,
    find_openapi_document,
    find_stored_path,
    rename_api_version,
)
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    WatchEvent,
    matches_fields,
    matches_labels,
)
from gpuform.providers.emulator.kubernetes.verbs import MERGE_PATCH, ObjectAddress
from gpuform.providers.emulator.routing import DROPPED, Fleet, PlatformApi, StoredData, answer_json
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.operations import TogetherOperations

# Seconds between two looks for changes.
_POLL_SECONDS = 0.05


def stream_events(
    list_events: Callable[[int], tuple[list[WatchEvent], int]],
    since: int,
    is_selected: Callable[[Object], bool],
    *,
    connection: socket.socket | None,
    seconds: float,
) -> Iterator[bytes]:
    """Yield changes as lines of JSON until `seconds` have passed or the client hangs up.

    Args:
        list_events: returns the events after a version, and the version that they lead to.
        since: the version after which the watch begins.
        is_selected: whether the watch selects an object.
        connection: the client's connection; None in process.
        seconds: how long the watch lasts, in real time.
    """
    ends_at = time.monotonic() + seconds
    shown_uids: set[str] = set()
    while True:
        events, since = list_events(since)
        for event in events:
            if line := _encode_event(event, shown_uids, is_selected):
                yield line
        # Real time: a client waits in it, whatever the emulator's clock does.
        if time.monotonic() >= ends_at or _is_closed(connection):
            return


def _encode_event(
    event: WatchEvent, shown_uids: set[str], is_selected: Callable[[Object], bool]
) -> bytes | None:
    """Return an event as a line of JSON, or None for an object outside of the watch.

    An object that is selected no longer is sent as DELETED. `shown_uids` is updated: the objects
    that the client has.
    """
    uid = event.object["metadata"]["uid"]
    kind = event.kind
    if not is_selected(event.object):
        if uid not in shown_uids:
            return None
        kind = "DELETED"  # for this watch: it is not selected any more
    shown_uids.discard(uid) if kind == "DELETED" else shown_uids.add(uid)
    message: dict[str, Any] = {"type": kind, "object": event.object}
    return json.dumps(message).encode() + b"\n"


def _is_closed(connection: socket.socket | None) -> bool:
    """Wait at most one poll interval and return whether the client has closed the connection.

    The client of a watch sends nothing, so that any readable byte means the end. Without a
    connection the answer is False.
    """
    if connection is None:
        time.sleep(_POLL_SECONDS)
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(_POLL_SECONDS))


@dataclass(frozen=True)
class Execution:
    """A request to run a command; the websocket's handshake has not been answered yet."""

    cluster_id: str
    container: str
    command: Sequence[str]
    environ: WSGIEnvironment
    """The environment of the request; `werkzeug.socket` is the connection."""


class Executor(Protocol):
    """Answers the handshake, runs the command and closes the websocket, then returns."""

    def __call__(self, execution: Execution) -> Any: ...


_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_WATCH_SECONDS = 1800.0
_TRUE = {"1", "t", "true"}
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class KubernetesApi(PlatformApi):
    """The API servers of all clusters, as `app` mounts them.

    `execute` runs commands in pods; without an executor commands are refused.
    """

    name = "kubernetes"
    prefix = "/kubernetes"

    def __init__(
        self, store: Store, clock: Clock, faults: Faults, execute: Executor | None = None
    ) -> None:
        super().__init__(store, clock, faults)
        self._execute = execute

    def create_blueprint(self) -> Blueprint:
        """Return the route for all paths of the clusters' APIs, and the websocket for `exec`."""
        routes = Blueprint(self.name, __name__)
        routes.register_error_handler(StatusError, _answer_refusal)
        path = "/<cluster_id>/<path:path>"
        routes.add_url_rule(path, view_func=self._answer_request, methods=_METHODS)
        # `exec`: werkzeug finds no other rule for a request that asks for a websocket.
        routes.add_url_rule(path, "exec", view_func=self._answer_request, websocket=True)
        return routes

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """Return a 401 for a request without the emulated cluster's token, else None.

        Where no API server runs, also for an unknown cluster, the request is marked to be dropped
        and an empty response returned: the connection closes without an answer.
        """
        cluster_id = (client_request.view_args or {}).get("cluster_id", "")
        with self._store.transaction():
            now = self._clock.now()
            self._store.remove_expired(now)
            cluster = find_running_cluster(self._store, cluster_id, now)
        if cluster is None:
            # Before the control plane runs, and after the end, nothing listens there.
            client_request.environ[DROPPED] = True
            return Response(status=204)
        token = self._store.derive_token(cluster_id)
        if client_request.headers.get("Authorization", "") != f"Bearer {token}":
            return self.answer_error(401, "Unauthorized")
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error as a `Status` object of Kubernetes."""
        return answer_json(build_failure_status(status, message), status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the volume claims of all clusters: users pay for these objects alone."""
        return {
            "volume_claims": [
                _claim_to_json(cluster.cluster_id, claim) for cluster, claim in self._list_claims()
            ]
        }

    def describe_fleet(self) -> Fleet:
        """Return the claims whose volumes a storage class has provisioned.

        The data of other claims is on a volume of the platform, which outlives the claim.
        """
        views = [
            _claim_to_json(cluster.cluster_id, claim)
            for cluster, claim in self._list_claims()
            if cluster.get_status(self._clock.now()) != "Deleting"
            if claim["spec"].get("storageClassName")
        ]
        return Fleet(data=[StoredData(view["id"], f"claim {view['name']}") for view in views])

    def _list_claims(self) -> list[tuple[Cluster, Object]]:
        """Return the volume claims of all clusters, each with its cluster."""
        with self._store.transaction():
            now = self._clock.now()
            return [
                (cluster, claim)
                for cluster in TogetherOperations(self._store, now).list_clusters()
                for claim in ClusterObjects(self._store, cluster.cluster_id, now).list_objects(
                    CLAIM
                )
            ]

    def _answer_request(self, cluster_id: str, path: str) -> Response:
        """Answer an admitted request to a cluster's API: discovery, objects, lists, watch or exec.

        After a write the controllers run once, so that the answer shows what followed. Raises
        `StatusError`.
        """
        path, served = path.strip("/"), KubernetesSettings.load(self._store).served_versions
        if path in {"healthz", "livez", "readyz"}:
            return Response("ok", content_type="text/plain")
        if (description := _find_description(cluster_id, path, served)) is not None:
            return answer_json(description)
        # Objects are stored under one group and version, whatever the cluster serves.
        address = _parse_address(find_stored_path(path, served))
        if address is None:
            raise StatusError(404, "the server could not find the requested resource")
        if address.part == "exec":
            return self._run_command(cluster_id, address)
        if request.method == "GET" and request.args.get("watch", "").lower() in _TRUE:
            return self._watch(cluster_id, address)
        with self._load_objects(cluster_id) as objects:
            if request.method != "GET":
                content, status = _write_object(objects, address)
                # The answer shows what follows from the change at once, such as a pod's node.
                reconcile_objects(self._store, objects)
                return answer_json(
                    rename_api_version(_reload_object(objects, address, content), path), status
                )
            if address.name:
                item = self._apply_phase_override(verbs.get_object(objects, address))
                return answer_json(rename_api_version(item, path))
            return answer_json(rename_api_version(_build_list(objects, address), path))

    def _apply_phase_override(self, item: Object) -> Object:
        """Return the object with an injected fault's `status.phase`, and count the fault's use.

        Without a fault the object is returned unchanged.
        """
        path = request.path.removeprefix(self.prefix)
        rule = self._faults.take_overrides(request.method, path, [path], self.name).get(path)
        if rule is None:
            return item
        return {**item, "status": {**item["status"], "phase": rule.status_override}}

    @contextmanager
    def _load_objects(self, cluster_id: str) -> Iterator[ClusterObjects]:
        """Give the block the cluster's objects at the present time, within a transaction.

        Raises `StatusError` 503 if the cluster has ended since the request was admitted.
        """
        with self._store.transaction():
            now = self._clock.now()
            self._store.remove_expired(now)
            cluster = find_running_cluster(self._store, cluster_id, now)
            # The gate admitted the request while the cluster was still there.
            if cluster is None:
                raise StatusError(503, "the cluster is gone")
            yield load_current_objects(self._store, cluster, now)

    def _watch(self, cluster_id: str, address: ObjectAddress) -> Response:
        """Answer a watch with a stream of changes after the requested version.

        Without a numeric version the stream begins with all present objects, as ADDED. The stream
        ends after the query's `timeoutSeconds` of real time, by default half an hour; a cluster
        that has ended sends no more changes.
        """

        def list_events(since: int) -> tuple[list[WatchEvent], int]:
            try:
                with self._load_objects(cluster_id) as objects:
                    return objects.list_events(address.kind, since), objects.version
            except StatusError:
                return [], since

        start_version = request.args.get("resourceVersion", "")
        parameters = request.args
        lines = stream_events(
            list_events,
            int(start_version) if start_version.isdecimal() else 0,
            lambda item: _is_selected(item, address, parameters.to_dict()),
            connection=request.environ.get("werkzeug.socket"),
            seconds=float(parameters.get("timeoutSeconds") or _WATCH_SECONDS),
        )
        return Response(lines, content_type="application/json")

    def _run_command(self, cluster_id: str, address: ObjectAddress) -> Response:
        """Run the query's command in a container of a pod, with the answer sent by websocket.

        The returned response is never sent. Raises `StatusError`: 404 without the pod, 400 for an
        unknown container, 501 without an executor.
        """
        with self._load_objects(cluster_id) as objects:
            pod = verbs.get_object(objects, address)
        containers = [container_spec["name"] for container_spec in pod["spec"]["containers"]]
        container = request.args.get("container") or containers[0]
        if container not in containers:
            raise StatusError(400, f"container {container} is not valid for pod {address.name}")
        if self._execute is None:
            raise StatusError(501, "this emulator runs no commands in pods")
        command = request.args.getlist("command")
        self._execute(Execution(cluster_id, container, command, request.environ))
        request.environ[DROPPED] = True  # the websocket was the answer
        return Response(status=204)


def _find_description(cluster_id: str, path: str, served: ServedVersions) -> Object | None:
    """Return the discovery or OpenAPI document at a path, or None for any other path."""
    if path == "openapi/v3":
        return build_openapi_index(f"{KubernetesApi.prefix}/{cluster_id}")
    if path.startswith("openapi/v3/"):
        return find_openapi_document(path.removeprefix("openapi/v3/"))
    return find_discovery_document(path, served)


def _write_object(objects: ClusterObjects, address: ObjectAddress) -> tuple[Object, int]:
    """Run the create, replace, patch, delete or eviction of the present request at an address.

    A DELETE without a name deletes every object that the query selects. Returns content and status
    of the answer. Raises `StatusError`, 405 for another method.
    """
    method = request.method
    if method == "DELETE":
        if address.name:
            return verbs.delete_object(objects, address, _parse_body(optional=True)), 200
        options = _parse_body(optional=True)
        # A delete of a collection: every object that the selectors choose.
        for item in _select_objects(objects, address):
            metadata = item["metadata"]
            item_address = ObjectAddress(
                address.kind, metadata.get("namespace", ""), metadata["name"]
            )
            verbs.delete_object(objects, item_address, options)
        return _SUCCESS, 200
    body = _parse_body()
    if method == "POST" and address.part == "eviction":
        verbs.evict_pod(objects, address, body)
        return {**_SUCCESS, "code": 201}, 201
    if method == "POST" and not address.name:
        return verbs.create_object(objects, address, body), 201
    if method == "PUT" and address.name:
        return verbs.replace_object(objects, address, body), 200
    if method == "PATCH" and address.name:
        return verbs.patch_object(objects, address, body, request.mimetype or MERGE_PATCH), 200
    raise StatusError(405, "the server does not allow this method on the requested resource")


def _reload_object(objects: ClusterObjects, address: ObjectAddress, written: Object) -> Object:
    """Return the stored successor of the object `written`, or `written` if it was removed."""
    metadata = written["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    current = objects.get(address.kind, name, namespace) if name else None
    is_same = current is not None and current["metadata"]["uid"] == metadata["uid"]
    return current if current is not None and is_same else written


def _build_list(objects: ClusterObjects, address: ObjectAddress) -> Object:
    """Return the list of the objects at an address that the query's selectors choose.

    With the query's `limit`, the list is one page, with a token for the next page. Raises
    `StatusError` 400 for a malformed selector or token.
    """
    matches = _select_objects(objects, address)
    metadata: dict[str, Any] = {"resourceVersion": str(objects.version)}
    start = _parse_continue_token(request.args.get("continue", ""))
    limit = int(request.args.get("limit") or 0)
    page = matches[start : start + limit] if limit else matches[start:]
    remaining = len(matches) - start - len(page)
    if remaining > 0:
        token = base64.urlsafe_b64encode(str(start + len(page)).encode()).decode()
        metadata |= {"continue": token, "remainingItemCount": remaining}
    kind = address.kind
    return {
        "kind": f"{kind.name}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": page,
    }


def _parse_continue_token(token: str) -> int:
    """Return the number of objects already listed, from a list's `continue` token; "" is 0.

    Raises `StatusError` 400.
    """
    try:
        return int(base64.urlsafe_b64decode(token)) if token else 0
    except ValueError as error:
        raise StatusError(400, "continue key is not valid") from error


def _select_objects(objects: ClusterObjects, address: ObjectAddress) -> list[Object]:
    """Return the stored objects at an address with labels and fields as the query selects."""
    parameters = request.args.to_dict()
    items = objects.list_objects(address.kind, address.namespace or None)
    return [item for item in items if _is_selected(item, address, parameters)]


def _is_selected(item: Object, address: ObjectAddress, parameters: dict[str, str]) -> bool:
    """Return whether an object matches the address and the query's label and field selectors.

    Raises `StatusError` 400 for a malformed selector.
    """
    metadata = item["metadata"]
    return (
        address.namespace in {"", metadata.get("namespace")}
        and address.name in {"", metadata["name"]}
        and matches_labels(parameters.get("labelSelector", ""), metadata.get("labels") or {})
        and matches_fields(parameters.get("fieldSelector", ""), item)
    )


def _parse_address(path: str) -> ObjectAddress | None:
    """Return the address of `api/v1/namespaces/NAMESPACE/pods/NAME/eviction` or a shorter path.

    None for a path where the API serves nothing, such as a namespaced object without its namespace:
    only lists span all namespaces.
    """
    parts = path.split("/")
    # The core group has no name: `api/v1`, but `apis/apps/v1`.
    folder_size = 2 if parts[0] == "api" else 3
    folder, rest = "/".join(parts[:folder_size]), parts[folder_size:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and (folder, rest[2]) in KIND_BY_PATH:
        namespace, rest = rest[1], rest[2:]
    kind = KIND_BY_PATH.get((folder, rest[0])) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.is_namespaced):
        return None
    name, part = [*rest[1:], "", ""][:2]
    if part and part not in kind.subresources:
        return None
    # A namespaced object has no address without its namespace; only lists span all of them.
    if kind.is_namespaced and not namespace and (name or request.method == "POST"):
        return None
    return ObjectAddress(kind, namespace, name, part)


def _parse_body(*, optional: bool = False) -> Any:
    """Return the request's JSON object; {} without a body if `optional`.

    A PATCH may also have any other JSON value. Raises `StatusError` 400 for any other body.
    """
    raw_body = request.get_data()
    if optional and not raw_body:
        return {}
    try:
        body = json.loads(raw_body)
    except ValueError as error:
        raise StatusError(400, f"the body of the request is not JSON: {error}") from error
    if not isinstance(body, dict) and request.method != "PATCH":
        raise StatusError(400, "the body of the request is not an object")
    return body


def _claim_to_json(cluster_id: str, claim: Object) -> dict[str, Any]:
    """Return id, name and phase of a volume claim for the emulator's list of objects."""
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    return {
        "id": f"{cluster_id}/{namespace}/{name}",
        "name": f"{namespace}/{name}",
        "status": claim["status"]["phase"],
    }


def _answer_refusal(error: StatusError) -> Response:
    """Answer a `StatusError` with its `Status` object, and with Retry-After if named there."""
    response = answer_json(error.body, error.status)
    retry_seconds = (error.body.get("details") or {}).get("retryAfterSeconds")
    if retry_seconds:
        response.headers["Retry-After"] = str(retry_seconds)
    return response
