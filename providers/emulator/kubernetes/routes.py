"""The API over HTTP: discovery, objects and lists of them, watches, eviction, exec."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, Request, Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import DROPPED
from gpuform.providers.emulator.kubernetes import verbs
from gpuform.providers.emulator.kubernetes.controllers import brought_to, running_cluster, settle
from gpuform.providers.emulator.kubernetes.kinds import (
    BY_PLACE,
    CLAIM,
    ENGINE_GROUP,
    StatusError,
    discovered,
    failure,
    openapi_document,
    openapi_index,
)
from gpuform.providers.emulator.kubernetes.objects import (
    Event,
    Object,
    Objects,
    fields_match,
    labels_match,
)
from gpuform.providers.emulator.kubernetes.readiness import (
    ENGINE_GROUPS,
    EngineSettings,
    shown,
)
from gpuform.providers.emulator.kubernetes.streams import Execution, Executor, watched
from gpuform.providers.emulator.kubernetes.verbs import MERGE, ObjectAddress
from gpuform.providers.emulator.routing import PlatformApi, answer_json
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.operations import TogetherOperations

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_WATCH_SECONDS = 1800.0
_TRUE = {"1", "t", "true"}
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Kubernetes(PlatformApi):
    """The API servers of all clusters, as the app mounts them.

    `execute` runs commands in pods; without one they are refused.
    """

    name = "kubernetes"
    prefix = "/kubernetes"

    def __init__(
        self, store: Store, clock: Clock, faults: Faults, execute: Executor | None = None
    ) -> None:
        super().__init__(store, clock, faults)
        self._execute = execute

    def create_blueprint(self) -> Blueprint:
        routes = Blueprint(self.name, __name__)
        routes.register_error_handler(StatusError, _refused)
        path = "/<cluster_id>/<path:path>"
        routes.add_url_rule(path, view_func=self._answer, methods=_METHODS)
        # `exec`: werkzeug finds no other rule for a request that asks for a websocket.
        routes.add_url_rule(path, "exec", view_func=self._answer, websocket=True)
        return routes

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """401 without the cluster's token; where no API server runs, nobody answers."""
        cluster_id = (client_request.view_args or {}).get("cluster_id", "")
        with self._store.transaction():
            now = self._clock.now()
            self._store.remove_expired(now)
            cluster = running_cluster(self._store, cluster_id, now)
        if cluster is None:
            client_request.environ[DROPPED] = True
            return Response(status=204)
        token = self._store.derive_token(cluster_id)
        if client_request.headers.get("Authorization", "") != f"Bearer {token}":
            return self.answer_error(401, "Unauthorized")
        return None

    def answer_error(self, status: int, message: str) -> Response:
        return answer_json(failure(status, message), status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """The claims: what people make through this API and pay for."""
        with self._store.transaction():
            now = self._clock.now()
            claims = [
                (cluster.cluster_id, claim)
                for cluster in TogetherOperations(self._store, now).list_clusters()
                for claim in Objects(self._store, cluster.cluster_id, now).of(CLAIM)
            ]
        return {"volume_claims": [_shown_claim(cluster_id, claim) for cluster_id, claim in claims]}

    def _answer(self, cluster_id: str, path: str) -> Response:
        path, engine = path.strip("/"), EngineSettings.load(self._store).group
        if (asked := path.split("/")[1:2]) and asked[0] in ENGINE_GROUPS:
            if asked[0] != engine:
                raise StatusError(404, "the server could not find the requested resource")
            path = path.replace(engine, ENGINE_GROUP, 1)
        if path in {"healthz", "livez", "readyz"}:
            return Response("ok", content_type="text/plain")
        if (found := _described(cluster_id, path, engine)) is not None:
            return answer_json(found)
        place = _place(path)
        if place is None:
            raise StatusError(404, "the server could not find the requested resource")
        if place.part == "exec":
            return self._exec(cluster_id, place)
        if request.method == "GET" and request.args.get("watch", "").lower() in _TRUE:
            return self._watch(cluster_id, place)
        with self._objects(cluster_id) as objects:
            if request.method != "GET":
                content, status = _written(objects, place)
                settle(self._store, objects)
                return answer_json(shown(_as_it_is_now(objects, place, content), engine), status)
            if place.name:
                one = self._with_imposed_phase(verbs.get(objects, place))
                return answer_json(shown(one, engine))
            return answer_json(shown(_listed(objects, place), engine))

    def _with_imposed_phase(self, found: Object) -> Object:
        """With the phase that an injected fault shows."""
        path = request.path.removeprefix(self.prefix)
        imposed = self._faults.take_overrides(request.method, path, [path], self.name).get(path)
        if imposed is None:
            return found
        return {**found, "status": {**found["status"], "phase": imposed.status_override}}

    @contextmanager
    def _objects(self, cluster_id: str) -> Iterator[Objects]:
        with self._store.transaction():
            now = self._clock.now()
            self._store.remove_expired(now)
            cluster = running_cluster(self._store, cluster_id, now)
            if cluster is None:
                raise StatusError(503, "the cluster is gone")
            yield brought_to(self._store, cluster, now)

    def _watch(self, cluster_id: str, place: ObjectAddress) -> Response:
        def happened(since: int) -> tuple[list[Event], int]:
            try:
                with self._objects(cluster_id) as objects:
                    return objects.events(place.kind, since), objects.version
            except StatusError:
                return [], since

        given = request.args.get("resourceVersion", "")
        asked = request.args
        lines = watched(
            happened,
            int(given) if given.isdecimal() else 0,
            lambda each: _is_asked_for(each, place, asked.to_dict()),
            connection=request.environ.get("werkzeug.socket"),
            seconds=float(asked.get("timeoutSeconds") or _WATCH_SECONDS),
        )
        return Response(lines, content_type="application/json")

    def _exec(self, cluster_id: str, place: ObjectAddress) -> Response:
        with self._objects(cluster_id) as objects:
            pod = verbs.get(objects, place)
        containers = [each["name"] for each in pod["spec"]["containers"]]
        container = request.args.get("container") or containers[0]
        if container not in containers:
            raise StatusError(400, f"container {container} is not valid for pod {place.name}")
        if self._execute is None:
            raise StatusError(501, "nothing that could run a command is emulated in this pod")
        command = request.args.getlist("command")
        self._execute(Execution(cluster_id, pod, container, command, request.environ))
        request.environ[DROPPED] = True  # the websocket was the answer
        return Response(status=204)


def _described(cluster_id: str, path: str, engine: str) -> Object | None:
    """What the API says of itself at a path."""
    if path == "openapi/v3":
        return openapi_index(f"{Kubernetes.prefix}/{cluster_id}")
    if path.startswith("openapi/v3/"):
        return openapi_document(path.removeprefix("openapi/v3/"))
    return discovered(path, engine)


def _written(objects: Objects, place: ObjectAddress) -> tuple[Object, int]:
    method = request.method
    if method == "DELETE":
        if place.name:
            return verbs.delete(objects, place, _body(optional=True)), 200
        options = _body(optional=True)
        for each in _asked_for(objects, place):
            metadata = each["metadata"]
            one = ObjectAddress(place.kind, metadata.get("namespace", ""), metadata["name"])
            verbs.delete(objects, one, options)
        return _SUCCESS, 200
    body = _body()
    if method == "POST" and place.part == "eviction":
        verbs.evict(objects, place, body)
        return {**_SUCCESS, "code": 201}, 201
    if method == "POST" and not place.name:
        return verbs.create(objects, place, body), 201
    if method == "PUT" and place.name:
        return verbs.replace(objects, place, body), 200
    if method == "PATCH" and place.name:
        return verbs.patch(objects, place, body, request.mimetype or MERGE), 200
    raise StatusError(405, "the server does not allow this method on the requested resource")


def _as_it_is_now(objects: Objects, place: ObjectAddress, written: Object) -> Object:
    """With what followed from the change; what is gone as it was last."""
    metadata = written["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    found = objects.get(place.kind, name, namespace) if name else None
    is_same = found is not None and found["metadata"]["uid"] == metadata["uid"]
    return found if found is not None and is_same else written


def _listed(objects: Objects, place: ObjectAddress) -> Object:
    """With `limit`, a part of the list and a token for the rest."""
    found = _asked_for(objects, place)
    metadata: dict[str, Any] = {"resourceVersion": str(objects.version)}
    start = _position(request.args.get("continue", ""))
    limit = int(request.args.get("limit") or 0)
    shown = found[start : start + limit] if limit else found[start:]
    left = len(found) - start - len(shown)
    if left > 0:
        token = base64.urlsafe_b64encode(str(start + len(shown)).encode()).decode()
        metadata |= {"continue": token, "remainingItemCount": left}
    kind = place.kind
    return {
        "kind": f"{kind.name}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": shown,
    }


def _position(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token)) if token else 0
    except ValueError as error:
        raise StatusError(400, "continue key is not valid") from error


def _asked_for(objects: Objects, place: ObjectAddress) -> list[Object]:
    asked = request.args.to_dict()
    found = objects.of(place.kind, place.namespace or None)
    return [each for each in found if _is_asked_for(each, place, asked)]


def _is_asked_for(each: Object, place: ObjectAddress, asked: dict[str, str]) -> bool:
    metadata = each["metadata"]
    return (
        place.namespace in {"", metadata.get("namespace")}
        and place.name in {"", metadata["name"]}
        and labels_match(asked.get("labelSelector", ""), metadata.get("labels") or {})
        and fields_match(asked.get("fieldSelector", ""), each)
    )


def _place(path: str) -> ObjectAddress | None:
    """`api/v1/namespaces/NAMESPACE/pods/NAME/eviction` and its shorter forms."""
    parts = path.split("/")
    folder_size = 2 if parts[0] == "api" else 3
    folder, rest = "/".join(parts[:folder_size]), parts[folder_size:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and (folder, rest[2]) in BY_PLACE:
        namespace, rest = rest[1], rest[2:]
    kind = BY_PLACE.get((folder, rest[0])) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.is_namespaced):
        return None
    name, part = [*rest[1:], "", ""][:2]
    if part and part not in kind.subresources:
        return None
    if kind.is_namespaced and not namespace and (name or request.method == "POST"):
        return None
    return ObjectAddress(kind, namespace, name, part)


def _body(*, optional: bool = False) -> Any:
    text = request.get_data()
    if optional and not text:
        return {}
    try:
        read = json.loads(text)
    except ValueError as error:
        raise StatusError(400, f"the body of the request is no JSON: {error}") from error
    if not isinstance(read, dict) and request.method != "PATCH":
        raise StatusError(400, "the body of the request is no object")
    return read


def _shown_claim(cluster_id: str, claim: Object) -> dict[str, Any]:
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    return {
        "id": f"{cluster_id}/{namespace}/{name}",
        "name": f"{namespace}/{name}",
        "status": claim["status"]["phase"],
    }


def _refused(error: StatusError) -> Response:
    response = answer_json(error.body, error.status)
    retry = (error.body.get("details") or {}).get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response
