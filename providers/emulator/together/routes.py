"""Together's routes (platform document, 'REST API'), under `/together/v1`. Every success is 200."""

from typing import Any

from flask import Request, Response, request
from pydantic import BaseModel, ConfigDict

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.kubernetes.controls import KubernetesControls
from gpuform.providers.emulator.kubernetes.routes import Kubernetes
from gpuform.providers.emulator.routing import (
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
    get_fault_effects,
)
from gpuform.providers.emulator.slurm.controls import SlurmControls, SlurmExecutor
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY
from gpuform.providers.emulator.together.catalogue import REGIONS, ApiError
from gpuform.providers.emulator.together.clusters import Cluster, phase_of
from gpuform.providers.emulator.together.nodes import timestamp
from gpuform.providers.emulator.together.operations import Operations
from gpuform.providers.emulator.together.remediations import MODES, STATES
from gpuform.providers.emulator.together.requests import (
    ApproveRemediation,
    CreateCluster,
    CreateRemediation,
    CreateVolume,
    ProposeRemediation,
    RejectRemediation,
    UpdateCluster,
    UpdateVolume,
    parse,
)
from gpuform.providers.emulator.together.volumes import Volume

_CLUSTERS = "/compute/clusters"
_VOLUMES = "/compute/clusters/storage/volumes"
TRIGGERS = frozenset({"REMEDIATION_TRIGGER_MANUAL", "REMEDIATION_TRIGGER_AUTOMATED"})
_REMEDIATIONS = f"{_CLUSTERS}/<cluster_id>/instances/<instance_id>/remediations"
_PAGE = 50
"""Remediations of a page, where a request names no number; at most as many."""
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


class Together(PlatformApi):
    """The platform as the app mounts it."""

    name = "together"
    prefix = "/together/v1"

    def _list_routes(self) -> RouteTable:
        return (
            ("GET", "/compute/regions", self._list_regions),
            ("POST", _VOLUMES, self._create_volume),
            ("GET", _VOLUMES, self._list_volumes),
            ("PUT", _VOLUMES, self._update_volume),
            ("GET", f"{_VOLUMES}/<volume_id>", self._get_volume),
            ("DELETE", f"{_VOLUMES}/<volume_id>", self._delete_volume),
            ("POST", _CLUSTERS, self._create_cluster),
            ("GET", _CLUSTERS, self._list_clusters),
            ("GET", f"{_CLUSTERS}/<cluster_id>", self._get_cluster),
            ("PUT", f"{_CLUSTERS}/<cluster_id>", self._update_cluster),
            ("DELETE", f"{_CLUSTERS}/<cluster_id>", self._delete_cluster),
            ("POST", _REMEDIATIONS, self._create_remediation),
            ("GET", _REMEDIATIONS, self._list_remediations),
            ("GET", f"{_REMEDIATIONS}/<remediation_id>", self._get_remediation),
            ("POST", f"{_REMEDIATIONS}/<remediation_id>/approve", self._approve_remediation),
            ("POST", f"{_REMEDIATIONS}/<remediation_id>/reject", self._reject_remediation),
            ("POST", f"{_REMEDIATIONS}/<remediation_id>/cancel", self._cancel_remediation),
        )

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """401 without a known key, 403 when a Member writes."""
        scheme, _, key = client_request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or key not in {ADMIN_KEY, MEMBER_KEY}:
            return self.answer_error(401, "Invalid API key provided")
        if key == MEMBER_KEY and client_request.method != "GET":
            return self.answer_error(
                403, "A Member may only view GPU clusters; this needs an Admin key"
            )
        return None

    def answer_error(self, status: int, message: str) -> Response:
        kind = _ERROR_TYPES.get(
            status, "server_error" if status >= 500 else "invalid_request_error"
        )
        return answer_json({"error": {"message": message, "type": kind, "code": status}}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        with self._store.transaction():
            operations = self._load_platform()
            now = operations.now
            return {
                "clusters": [
                    {
                        "id": each.cluster_id,
                        "name": each.settings.cluster_name,
                        "status": each.status(now),
                    }
                    for each in operations.list_clusters()
                ],
                "volumes": [
                    {"id": each.volume_id, "name": each.volume_name, "status": each.status(now)}
                    for each in operations.list_volumes()
                ],
            }

    def _load_platform(self) -> Operations:
        now = self._clock.now()
        self._store.remove_expired(now)
        return Operations(self._store, now, _address())

    def _list_regions(self, _: Operations) -> Response:
        return answer_json({"regions": [region.view() for region in REGIONS.values()]})

    def _create_cluster(self, operations: Operations) -> Response:
        body = parse(CreateCluster, request.get_data())
        return self._cluster(operations, operations.create_cluster(body, get_fault_effects()))

    def _list_clusters(self, operations: Operations) -> Response:
        found = operations.list_clusters(request.args.get("projectId"))
        if get_fault_effects().is_preempted:
            found = [operations.preempt(each) for each in found]
        volumes = {each.volume_id: each for each in operations.list_volumes()}
        views = [operations.cluster_view(each, volumes.get(each.volume_id or "")) for each in found]
        self._override(operations, views, _CLUSTERS, "cluster_id")
        return answer_json({"clusters": views})

    def _get_cluster(self, operations: Operations, cluster_id: str) -> Response:
        cluster = operations.cluster(cluster_id)
        return self._cluster(
            operations, operations.preempt(cluster) if get_fault_effects().is_preempted else cluster
        )

    def _update_cluster(self, operations: Operations, cluster_id: str) -> Response:
        body = parse(UpdateCluster, request.get_data())
        return self._cluster(
            operations, operations.update_cluster(cluster_id, body, get_fault_effects())
        )

    def _delete_cluster(self, operations: Operations, cluster_id: str) -> Response:
        operations.delete_cluster(cluster_id, get_fault_effects())
        return answer_json({"cluster_id": cluster_id})

    def _create_volume(self, operations: Operations) -> Response:
        body = parse(CreateVolume, request.get_data())
        return self._volume(operations, operations.create_volume(body, get_fault_effects()))

    def _list_volumes(self, operations: Operations) -> Response:
        found = operations.list_volumes(request.args.get("projectId"))
        views = [volume.view(operations.now) for volume in found]
        self._override(operations, views, _VOLUMES, "volume_id")
        return answer_json({"volumes": views})

    def _get_volume(self, operations: Operations, volume_id: str) -> Response:
        return self._volume(operations, operations.volume(volume_id))

    def _update_volume(self, operations: Operations) -> Response:
        body = parse(UpdateVolume, request.get_data())
        return self._volume(operations, operations.update_volume(body, get_fault_effects()))

    def _delete_volume(self, operations: Operations, volume_id: str) -> Response:
        operations.delete_volume(volume_id, get_fault_effects())
        return answer_json({"success": True})

    # Remediations (SDK, `clusters.remediations`).

    def _create_remediation(
        self, operations: Operations, cluster_id: str, instance_id: str
    ) -> Response:
        body = parse(CreateRemediation, request.get_data())
        id_ = request.args.get("remediation_id")
        made = operations.create_remediation(cluster_id, instance_id, id_, body)
        return answer_json(made.view(operations.now))

    def _list_remediations(
        self, operations: Operations, cluster_id: str, instance_id: str
    ) -> Response:
        """The newest first, unless `order_by` says `create_time` (the documents name no words)."""
        operations.cluster(cluster_id)
        found = operations.remediations.of(cluster_id, instance_id)
        views = [each.view(operations.now) for each in found]
        for name, words in (("mode", MODES), ("state", STATES), ("trigger", TRIGGERS)):
            wanted = _several(name)
            if not wanted <= words:
                raise ApiError(400, f"{name}: {', '.join(sorted(wanted - words))} is no {name}")
            views = [each for each in views if not wanted or each[name] in wanted]
        order = request.args.get("order_by", "create_time desc")
        if order not in ("create_time", "create_time asc", "create_time desc"):
            raise ApiError(400, f"order_by: {order} cannot be ordered by")
        views = views if order.endswith("desc") else views[::-1]
        size, first = _whole("page_size", _PAGE), _whole("page_token", 0)
        size = min(size or _PAGE, _PAGE)
        has_next = first + size < len(views)
        token = str(first + size) if has_next else ""
        page = views[first : first + size]
        return answer_json({"remediations": page, "has_next": has_next, "next_page_token": token})

    def _get_remediation(
        self, operations: Operations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        found = operations.remediations.one(cluster_id, instance_id, remediation_id)
        return answer_json(found.view(operations.now))

    def _approve_remediation(
        self, operations: Operations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        found = operations.remediations.one(cluster_id, instance_id, remediation_id)
        body = parse(ApproveRemediation, request.get_data() or b"{}")
        return answer_json(operations.approve_remediation(found, body).view(operations.now))

    def _reject_remediation(
        self, operations: Operations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        found = operations.remediations.one(cluster_id, instance_id, remediation_id)
        body = parse(RejectRemediation, request.get_data() or b"{}")
        rejected = operations.remediations.reject(found, body.comment)
        return answer_json(rejected.view(operations.now))

    def _cancel_remediation(
        self, operations: Operations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        found = operations.remediations.one(cluster_id, instance_id, remediation_id)
        return answer_json(operations.cancel_remediation(found).view(operations.now))

    def _cluster(self, operations: Operations, cluster: Cluster) -> Response:
        volume_id = cluster.volume_id
        volume = None if volume_id is None else operations.volume(volume_id)
        view = operations.cluster_view(cluster, volume)
        self._override(operations, [view], _CLUSTERS, "cluster_id")
        return answer_json(view)

    def _volume(self, operations: Operations, volume: Volume) -> Response:
        view = volume.view(operations.now)
        self._override(operations, [view], _VOLUMES, "volume_id")
        return answer_json(view)

    def _override(
        self, operations: Operations, views: list[dict[str, Any]], folder: str, key: str
    ) -> None:
        """Show the status that an injected fault imposes."""
        for view, rule in self._apply_status_overrides(views, folder, key=key):
            phase = rule.phase or phase_of(str(rule.status_override))
            if phase and "phase_transitions" in view:
                moment = timestamp(operations.now)
                view["phase_transitions"].append({"phase": phase, "transition_time": moment})


def _address() -> str:
    """Where this client finds the emulator: by TLS, unless it calls the application in process."""
    scheme = "https" if "werkzeug.socket" in request.environ else request.scheme
    return f"{scheme}://{request.host}"


def _several(name: str) -> set[str]:
    """The values of a parameter that may be repeated, or have commas, as the SDKs send it."""
    given = (each for text in request.args.getlist(name) for each in text.split(","))
    return {each for each in given if each}


def _whole(name: str, default: int) -> int:
    text = request.args.get(name) or str(default)
    if not text.isdecimal():
        raise ApiError(400, f"{name}: {text} is no number")
    return int(text)


class _Worker(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    repair_fails: str = ""


class _Credit(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    exhausted: bool


class TogetherControls(PlatformControls):
    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/credit", self._set_credit),
            ("POST", "/remediations", self._propose),
            ("POST", "/remediations/<remediation_id>/resolve", self._resolve),
            ("POST", "/workers/<name>", self._set_worker),
        )

    def _propose(self) -> Response:
        """The platform proposes the repair of a worker, or shows one in another state."""
        wanted = parse(ProposeRemediation, request.get_data())
        operations = self._operations()
        proposed = operations.remediations.propose(operations.cluster(wanted.cluster_id), wanted)
        return answer_json(proposed.view(operations.now), 201)

    def _resolve(self, remediation_id: str) -> Response:
        """The alerts of a proposal have ended."""
        operations = self._operations()
        return answer_json(operations.remediations.resolve(remediation_id).view(operations.now))

    def _set_worker(self, name: str) -> Response:
        """Every repair fails that is asked for this worker, with these words; empty: none."""
        wanted = parse(_Worker, request.get_data())
        self._operations().remediations.fail_next(name, wanted.repair_fails)
        return answer_json(wanted.model_dump())

    def _operations(self) -> Operations:
        now = self._clock.now()
        self._store.remove_expired(now)
        return Operations(self._store, now)

    def _set_credit(self) -> Response:
        """From now on there is none, or some again; what is lost by then stays lost."""
        body = _Credit.model_validate_json(request.get_data())
        now = self._clock.now()
        self._store.remove_expired(now)
        Operations(self._store, now).set_credit(exhausted=body.exhausted)
        return answer_json({"exhausted": body.exhausted})


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Together's part of the emulator, with the Kubernetes and the Slurm of its clusters."""
    return EmulatorParts(
        (
            Together(store, clock, faults),
            Kubernetes(store, clock, faults, SlurmExecutor(store, clock)),
        ),
        {
            "together": TogetherControls(store, clock).create_blueprint(),
            "kubernetes": KubernetesControls(store, clock).create_blueprint(),
            "slurm": SlurmControls(store, clock).create_blueprint(),
        },
    )
