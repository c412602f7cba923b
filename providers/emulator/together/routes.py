"""Serve Together's API (platform document, 'REST API') under `/together/v1`. Every success is 200.

`app` mounts the routes through `create_parts`; `operations` does the work.
"""

from typing import Any

from flask import Request, Response, request
from pydantic import BaseModel

from gpuform.providers.emulator.clock import Clock, get_value_at
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.kubernetes.controllers import KubernetesControls
from gpuform.providers.emulator.kubernetes.routes import KubernetesApi
from gpuform.providers.emulator.routing import (
    EmulatorParts,
    Fleet,
    PlatformApi,
    PlatformControls,
    RouteTable,
    StoredData,
    answer_json,
    get_fault_effects,
)
from gpuform.providers.emulator.slurm.commands import SlurmControls, SlurmExecutor
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY
from gpuform.providers.emulator.together.catalogue import REGIONS, TogetherApiError
from gpuform.providers.emulator.together.clusters import Cluster, status_to_phase
from gpuform.providers.emulator.together.nodes import Volume, format_timestamp
from gpuform.providers.emulator.together.operations import TogetherOperations
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
    parse_body,
)
from gpuform.providers.emulator.together.ssh_access import SshAccessApi

_CLUSTERS = "/compute/clusters"
_VOLUMES = "/compute/clusters/storage/volumes"
TRIGGERS = frozenset({"REMEDIATION_TRIGGER_MANUAL", "REMEDIATION_TRIGGER_AUTOMATED"})
_REMEDIATIONS = f"{_CLUSTERS}/<cluster_id>/instances/<instance_id>/remediations"
_PAGE_SIZE = 50
"""Remediations of a page where a request names no number, and the largest number; ours."""
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


class TogetherApi(PlatformApi):
    """Together's API, as `app` mounts it."""

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
        """Return 401 without a known key, 403 when a Member writes, else None."""
        scheme, _, key = client_request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or key not in {ADMIN_KEY, MEMBER_KEY}:
            return self.answer_error(401, "Invalid API key provided")
        if key == MEMBER_KEY and client_request.method != "GET":
            return self.answer_error(
                403, "A Member may only view GPU clusters; this needs an Admin key"
            )
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in Together's form: message, type and code."""
        kind = _ERROR_TYPES.get(
            status, "server_error" if status >= 500 else "invalid_request_error"
        )
        return answer_json({"error": {"message": message, "type": kind, "code": status}}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the clusters and volumes of all projects."""
        with self._store.transaction():
            operations = self._load_platform()
            now = operations.now
            return {
                "clusters": [
                    {
                        "id": cluster.cluster_id,
                        "name": cluster.settings.cluster_name,
                        "status": cluster.get_status(now),
                    }
                    for cluster in operations.list_clusters()
                ],
                "volumes": [
                    {
                        "id": volume.volume_id,
                        "name": volume.volume_name,
                        "status": volume.get_status(now),
                    }
                    for volume in operations.list_volumes()
                ],
            }

    def describe_fleet(self) -> Fleet:
        """Return the workers of all clusters, and the volumes."""
        with self._store.transaction():
            operations = self._load_platform()
            now = operations.now
            volumes = operations.list_volumes()
            return Fleet(
                [
                    node
                    for cluster in operations.list_clusters()
                    for node in cluster.list_fleet_nodes(now)
                ],
                [
                    StoredData(
                        volume.volume_id,
                        f"volume {volume.volume_name}, {get_value_at(volume.sizes, now)} TiB",
                    )
                    for volume in volumes
                    if volume.get_status(now) != "deleting"
                ],
            )

    def _load_platform(self) -> TogetherOperations:
        """Return Together's operations at the clock's present time, without expired objects."""
        now = self._clock.now()
        self._store.remove_expired(now)
        return TogetherOperations(self._store, now, _get_address())

    def _list_regions(self, _: TogetherOperations) -> Response:
        """Answer with all regions with GPU types and drivers."""
        return answer_json({"regions": [region.to_json() for region in REGIONS.values()]})

    def _create_cluster(self, operations: TogetherOperations) -> Response:
        """Create the cluster in the body, and answer with the cluster."""
        body = parse_body(CreateCluster, request.get_data())
        return self._answer_cluster(
            operations, operations.create_cluster(body, get_fault_effects())
        )

    def _list_clusters(self, operations: TogetherOperations) -> Response:
        """Answer with the clusters of the query's project, or all, with injected faults' statuses.

        A fault may first remove the running preemptible nodes of all these clusters.
        """
        clusters = operations.list_clusters(request.args.get("projectId"))
        # The nodes are taken before the answer, so that the client sees the loss in this very list.
        if get_fault_effects().is_preempted:
            clusters = [operations.preempt(cluster) for cluster in clusters]
        # Read once for the list, not once for each cluster.
        volumes = {volume.volume_id: volume for volume in operations.list_volumes()}
        views = [
            operations.cluster_to_json(cluster, volumes.get(cluster.volume_id or ""))
            for cluster in clusters
        ]
        self._show_overrides(operations, views, _CLUSTERS, "cluster_id")
        return answer_json({"clusters": views})

    def _get_cluster(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Answer with a cluster; a fault may first preempt its nodes. Raises `Refusal` 404."""
        cluster = operations.get_cluster(cluster_id)
        return self._answer_cluster(
            operations, operations.preempt(cluster) if get_fault_effects().is_preempted else cluster
        )

    def _update_cluster(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Set the fields in the body, begin the changes, and answer with the cluster."""
        body = parse_body(UpdateCluster, request.get_data())
        return self._answer_cluster(
            operations, operations.update_cluster(cluster_id, body, get_fault_effects())
        )

    def _delete_cluster(self, operations: TogetherOperations, cluster_id: str) -> Response:
        """Begin to delete a cluster, and answer with its id."""
        operations.delete_cluster(cluster_id, get_fault_effects())
        return answer_json({"cluster_id": cluster_id})

    def _create_volume(self, operations: TogetherOperations) -> Response:
        """Create the volume in the body, and answer with the volume."""
        body = parse_body(CreateVolume, request.get_data())
        return self._answer_volume(operations, operations.create_volume(body, get_fault_effects()))

    def _list_volumes(self, operations: TogetherOperations) -> Response:
        """Answer with the volumes of the query's project, or all, with faults' statuses."""
        volumes = operations.list_volumes(request.args.get("projectId"))
        views = [volume.to_json(operations.now) for volume in volumes]
        self._show_overrides(operations, views, _VOLUMES, "volume_id")
        return answer_json({"volumes": views})

    def _get_volume(self, operations: TogetherOperations, volume_id: str) -> Response:
        """Answer with a volume. Raises `Refusal` 404."""
        return self._answer_volume(operations, operations.get_volume(volume_id))

    def _update_volume(self, operations: TogetherOperations) -> Response:
        """Begin to resize the volume that the body names, and answer with the volume."""
        body = parse_body(UpdateVolume, request.get_data())
        return self._answer_volume(operations, operations.update_volume(body, get_fault_effects()))

    def _delete_volume(self, operations: TogetherOperations, volume_id: str) -> Response:
        """Begin to delete a volume, and answer `{"success": true}`."""
        operations.delete_volume(volume_id, get_fault_effects())
        return answer_json({"success": True})

    # Remediations (SDK, `clusters.remediations`).

    def _create_remediation(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str
    ) -> Response:
        """Begin the repair of a machine, under the query's id if any, and answer with it."""
        body = parse_body(CreateRemediation, request.get_data())
        remediation_id = request.args.get("remediation_id")
        remediation = operations.remediations.create(
            operations.get_cluster(cluster_id), instance_id, remediation_id, body
        )
        return answer_json(remediation.to_json(operations.now))

    def _list_remediations(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str
    ) -> Response:
        """Answer with a page of a machine's remediations, the newest first by default.

        The query filters by mode, state and trigger, and sets order and page (at most 50
        remediations). The SDK has the name of `order_by` alone; its values are ours. An unknown
        machine has no remediations. Raises `Refusal`: 404 without the cluster, 400 for a bad
        parameter.
        """
        operations.get_cluster(cluster_id)
        remediations = operations.remediations.list_remediations(cluster_id, instance_id)
        views = [remediation.to_json(operations.now) for remediation in remediations]
        for name, known_values in (("mode", MODES), ("state", STATES), ("trigger", TRIGGERS)):
            allowed_values = _parse_list(name)
            # Unknown values are refused, so that a misspelled filter does not look like an empty
            # list.
            if not allowed_values <= known_values:
                raise TogetherApiError(
                    400,
                    f"{name}: {', '.join(sorted(allowed_values - known_values))} is not a {name}",
                )
            views = [view for view in views if not allowed_values or view[name] in allowed_values]
        order = request.args.get("order_by", "create_time desc")
        if order not in ("create_time", "create_time asc", "create_time desc"):
            raise TogetherApiError(400, f"order_by: {order} cannot be ordered by")
        views = views if order.endswith("desc") else views[::-1]
        size, first = _parse_number("page_size", _PAGE_SIZE), _parse_number("page_token", 0)
        size = min(size or _PAGE_SIZE, _PAGE_SIZE)
        has_next = first + size < len(views)
        # The token is the number of the next remediation; clients may not read it.
        token = str(first + size) if has_next else ""
        page = views[first : first + size]
        return answer_json({"remediations": page, "has_next": has_next, "next_page_token": token})

    def _get_remediation(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        """Answer with a repair of a machine. Raises `Refusal` 404."""
        remediation = operations.remediations.get(cluster_id, instance_id, remediation_id)
        return answer_json(remediation.to_json(operations.now))

    def _approve_remediation(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        """Begin a proposed repair, and answer with the repair. An empty body is allowed.

        Raises `Refusal`: 404, 409 unless proposed.
        """
        remediation = operations.remediations.get(cluster_id, instance_id, remediation_id)
        body = parse_body(ApproveRemediation, request.get_data() or b"{}")
        approved = operations.remediations.approve(
            operations.get_cluster(cluster_id), remediation, body
        )
        return answer_json(approved.to_json(operations.now))

    def _reject_remediation(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        """Cancel a proposed repair with the body's comment, and answer with the repair.

        An empty body is allowed. Raises `Refusal`: 404, 409 unless proposed.
        """
        remediation = operations.remediations.get(cluster_id, instance_id, remediation_id)
        body = parse_body(RejectRemediation, request.get_data() or b"{}")
        rejected = operations.remediations.reject(remediation, body.comment)
        return answer_json(rejected.to_json(operations.now))

    def _cancel_remediation(
        self, operations: TogetherOperations, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Response:
        """Cancel a repair that is proposed or waits, and answer with it.

        Raises `Refusal`: 404, 409 in another state.
        """
        remediation = operations.remediations.get(cluster_id, instance_id, remediation_id)
        cancelled = operations.remediations.cancel(operations.get_cluster(cluster_id), remediation)
        return answer_json(cancelled.to_json(operations.now))

    def _answer_cluster(self, operations: TogetherOperations, cluster: Cluster) -> Response:
        """Answer with the cluster with its volume, and with injected faults' statuses."""
        volume_id = cluster.volume_id
        volume = None if volume_id is None else operations.get_volume(volume_id)
        view = operations.cluster_to_json(cluster, volume)
        self._show_overrides(operations, [view], _CLUSTERS, "cluster_id")
        return answer_json(view)

    def _answer_volume(self, operations: TogetherOperations, volume: Volume) -> Response:
        """Answer with the volume with an injected fault's status."""
        view = volume.to_json(operations.now)
        self._show_overrides(operations, [view], _VOLUMES, "volume_id")
        return answer_json(view)

    def _show_overrides(
        self, operations: TogetherOperations, views: list[dict[str, Any]], folder: str, key: str
    ) -> None:
        """Set statuses of injected faults in `views`, in place, and add phases to histories."""
        for view, rule in self._apply_status_overrides(views, folder, key=key):
            phase = rule.phase or status_to_phase(str(rule.status_override))
            if phase and "phase_transitions" in view:
                moment = format_timestamp(operations.now)
                view["phase_transitions"].append({"phase": phase, "transition_time": moment})


def _get_address() -> str:
    """Return the emulator's URL as addressed by the client of this request.

    Over a socket the scheme is https; a client in the same process keeps its own.
    """
    # kubectl sends a token over nothing but TLS; in process there is no socket that could speak it.
    scheme = "https" if "werkzeug.socket" in request.environ else request.scheme
    return f"{scheme}://{request.host}"


def _parse_list(name: str) -> set[str]:
    """Return the values of a parameter, repeated or with commas, as the SDKs send lists."""
    values = (value for argument in request.args.getlist(name) for value in argument.split(","))
    return {value for value in values if value}


def _parse_number(name: str, default: int) -> int:
    """Return a parameter of the query as a number, or `default`. Raises `Refusal` 400."""
    argument = request.args.get(name) or str(default)
    if not argument.isdecimal():
        raise TogetherApiError(400, f"{name}: {argument} is not a number")
    return int(argument)


class _WorkerBody(BaseModel, extra="forbid", strict=True):
    """The message with which repairs of a worker fail."""

    repair_fails: str = ""


class _CreditBody(BaseModel, extra="forbid", strict=True):
    """Whether the account is without credit."""

    exhausted: bool


class TogetherControls(PlatformControls):
    """What tests do to Together past its API: credit, proposals of repairs, failing repairs."""

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/credit", self._set_credit),
            ("POST", "/remediations", self._propose_remediation),
            ("POST", "/remediations/<remediation_id>/resolve", self._resolve_remediation),
            ("POST", "/workers/<name>", self._set_worker),
        )

    def _propose_remediation(self) -> Response:
        """Let the platform propose the repair of a worker, or show a repair in another state.

        Answers 201 with the repair. Raises `Refusal` 404 without the cluster or worker.
        """
        proposal = parse_body(ProposeRemediation, request.get_data())
        operations = self._create_operations()
        remediation = operations.remediations.propose(
            operations.get_cluster(proposal.cluster_id), proposal
        )
        return answer_json(remediation.to_json(operations.now), 201)

    def _resolve_remediation(self, remediation_id: str) -> Response:
        """Let the alerts of a proposal end, and answer with the proposal, which this resolves."""
        operations = self._create_operations()
        return answer_json(operations.remediations.resolve(remediation_id).to_json(operations.now))

    def _set_worker(self, name: str) -> Response:
        """Let every repair of this worker that a user requests from now on fail; "" lets none fail.

        The body has the message as `repair_fails`. Proposed repairs have a message of their own.
        """
        body = parse_body(_WorkerBody, request.get_data())
        self._create_operations().remediations.set_failure(name, body.repair_fails)
        return answer_json(body.model_dump())

    def _create_operations(self) -> TogetherOperations:
        """Return Together's operations at the clock's present time, without expired objects."""
        now = self._clock.now()
        self._store.remove_expired(now)
        return TogetherOperations(self._store, now)

    def _set_credit(self) -> Response:
        """Exhaust or restore the account's credit, with the effects on clusters and volumes.

        Without credit, Ready clusters with compute on demand are paused at once; those completely
        on demand are deleted later. Access to volumes that are available or bound is revoked after
        a week. With credit again, paused clusters and revoked volumes that still exist resume;
        deleted ones stay deleted. A repeated call changes nothing.
        """
        body = _CreditBody.model_validate_json(request.get_data())
        now = self._clock.now()
        self._store.remove_expired(now)
        TogetherOperations(self._store, now).set_credit(is_exhausted=body.exhausted)
        return answer_json({"exhausted": body.exhausted})


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return Together's part of the emulator, with the clusters' Kubernetes, Slurm and SSH CA.

    Test controls are under `together`, `kubernetes` and `slurm`.
    """
    return EmulatorParts(
        (
            TogetherApi(store, clock, faults),
            KubernetesApi(store, clock, faults, SlurmExecutor(store, clock)),
            SshAccessApi(store, clock, faults),
        ),
        {
            "together": TogetherControls(store, clock).create_blueprint(),
            "kubernetes": KubernetesControls(store, clock).create_blueprint(),
            "slurm": SlurmControls(store, clock).create_blueprint(),
        },
    )
