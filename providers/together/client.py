"""Call Together's GPU cluster API: one method for each endpoint, models in and out.

Lifecycles, lookups and commands call `get_client`, which returns one client for each address and
API key. Facts are from document 003 ("REST API") and from the platform's SDK. The base URL may end
with or without `/v1`.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.context import PollResult, PollSchedule, ProviderContext, wait_until_done
from gpuform.providers.errors import (
    Conflict,
    GpuformError,
    InvalidRequest,
    NotFound,
    NotReady,
    PermissionDenied,
)
from gpuform.providers.http import (
    ApiClient,
    Clients,
    ErrorAnswers,
    Listing,
    ProbeAnswer,
    Retry,
    append_path,
    build_bearer_headers,
    build_path,
    send_probe,
)
from gpuform.providers.operations import Settings
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs
from gpuform.schemas.together.outputs import VolumeStatus
from gpuform.schemas.together.wire import (
    Remediation,
    build_remediation_approve,
    build_remediation_create,
)

if TYPE_CHECKING:
    import httpx

DEFAULT_BASE_URL = "https://api.together.ai/v1"
BASE_URL_VARIABLE = "TOGETHER_BASE_URL"
KEY_VARIABLE = "TOGETHER_API_KEY"
KEY_CONFIG = "together:apiKey"

_CLUSTERS_PATH = "/compute/clusters"
_VOLUMES_PATH = "/compute/clusters/storage/volumes"
_NONEXISTENT_CLUSTER_ID = "00000000-0000-0000-0000-000000000000"
_HINTS = {
    401: f"set {KEY_VARIABLE} to a valid key, or: gpuform config set --secret {KEY_CONFIG}",
    402: "add credit to the account, then run the command again",
    403: "a Member key can only read: use an Admin key",
}


class TogetherClient:
    """The API for one key; safe for many threads. Its methods raise `GpuformError`s only."""

    def __init__(
        self, base_url: str, key: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        self._key = key
        self._api = ApiClient(
            base_url,
            errors=ErrorAnswers(
                "together",
                page="start/together",
                secrets=self.secrets,
                hints=_HINTS,
                is_capacity=is_out_of_stock,
                says_gone=is_together_error,
            ),
            # Not a partial, whose repr would show the key.
            headers=lambda: build_bearer_headers(
                key, platform="Together", variable=KEY_VARIABLE, config=KEY_CONFIG
            ),
            transport=transport,
        )
        self._lock, self._role_lock = threading.Lock(), threading.Lock()
        self._may_write: bool | None = None
        self._clusters: dict[str | None, Listing[wire.Cluster]] = {}
        self._volumes: dict[str | None, Listing[wire.Volume]] = {}
        self._poll_schedules: dict[float, PollSchedule] = {}

    def get_cluster_listing(self, project_id: str | None = None) -> Listing[wire.Cluster]:
        """Return the listing of a project's clusters, by which readers share requests.

        `project_id` None means the project of the key, here and in the other methods.
        """
        with self._lock:
            if project_id not in self._clusters:
                self._clusters[project_id] = Listing(
                    lambda: self.list_clusters(project_id),
                    self.get_cluster,
                    lambda cluster: cluster.cluster_id,
                )
            return self._clusters[project_id]

    def get_volume_listing(self, project_id: str | None = None) -> Listing[wire.Volume]:
        """Return the listing of a project's shared volumes, by which readers share requests."""
        with self._lock:
            if project_id not in self._volumes:
                self._volumes[project_id] = Listing(
                    lambda: self.list_volumes(project_id),
                    self.get_volume,
                    lambda volume: volume.volume_id,
                )
            return self._volumes[project_id]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts to hide in every message: the key, if there is one."""
        return (self._key,) if self._key else ()

    def get_poll_schedule(self, seconds: float) -> PollSchedule:
        """Return the poll schedule shared by all waiters of this client with one interval."""
        with self._lock:
            # one object for all: waiters that poll at one moment share one list request
            return self._poll_schedules.setdefault(seconds, PollSchedule(seconds))

    def create_cluster(self, inputs: ClusterInputs) -> str:
        """Send the request to create a cluster, and return the id.

        The request is sent again only where nothing can have been created: without a connection, or
        after a 429 with Retry-After.

        Raises:
            OutOfCapacity: Together has no free GPUs of the type in the region.
            UnknownOutcome: the answer was lost.
        """
        body = wire.build_cluster_create(inputs)
        return self._api.request_model(
            wire.Cluster, "POST", _CLUSTERS_PATH, body=body, retry=Retry.CREATE
        ).cluster_id

    def list_clusters(self, project_id: str | None = None) -> Sequence[wire.Cluster]:
        """Request the clusters of a project; None means the project of the key."""
        params = _build_project_params(project_id)
        return self._api.request_model(
            wire.ClusterList, "GET", _CLUSTERS_PATH, params=params
        ).clusters

    def get_cluster(self, cluster_id: str) -> wire.Cluster:
        """Return one cluster.

        Raises:
            NotFound: the cluster does not exist.
        """
        return self._api.request_model(wire.Cluster, "GET", _CLUSTERS_PATH + build_path(cluster_id))

    def update_cluster(
        self, cluster_id: str, inputs: ClusterInputs, changes: Sequence[FieldChange]
    ) -> wire.Cluster:
        """Send only the fields of `inputs` named in `changes`; the platform keeps all others.

        Raises:
            OutOfCapacity: Together has no free GPUs for a larger cluster.
        """
        body = wire.build_cluster_update(inputs, changes)
        return self._api.request_model(
            wire.Cluster, "PUT", _CLUSTERS_PATH + build_path(cluster_id), body=body
        )

    def delete_cluster(self, cluster_id: str) -> None:
        """Begin to delete a cluster.

        Raises:
            NotFound: the cluster does not exist.
        """
        self._api.request_model(
            wire.ClusterDeleted, "DELETE", _CLUSTERS_PATH + build_path(cluster_id)
        )

    def create_volume(self, inputs: SharedVolumeInputs) -> str:
        """Send the request to create a shared volume, and return the id.

        The request is sent again as for `create_cluster`.

        Raises:
            UnknownOutcome: the answer was lost.
        """
        body = wire.build_volume_create(inputs)
        return self._api.request_model(
            wire.Volume, "POST", _VOLUMES_PATH, body=body, retry=Retry.CREATE
        ).volume_id

    def list_volumes(self, project_id: str | None = None) -> Sequence[wire.Volume]:
        """Request the shared volumes of a project; None means the project of the key."""
        return self._api.request_model(
            wire.VolumeList, "GET", _VOLUMES_PATH, params=_build_project_params(project_id)
        ).volumes

    def get_volume(self, volume_id: str) -> wire.Volume:
        """Return one shared volume.

        Raises:
            NotFound: the volume does not exist.
        """
        return self._api.request_model(wire.Volume, "GET", _VOLUMES_PATH + build_path(volume_id))

    def update_volume(self, volume_id: str, inputs: SharedVolumeInputs) -> wire.Volume:
        """Begin to grow a volume to the declared size."""
        body = wire.build_volume_update(volume_id, inputs)
        # the id is in the body, not in the path (document 003, "Update a Shared Volume")
        return self._api.request_model(wire.Volume, "PUT", _VOLUMES_PATH, body=body)

    def delete_volume(self, volume_id: str) -> None:
        """Begin to delete a shared volume.

        Raises:
            Conflict: a cluster has the volume.
            NotFound: the volume does not exist.
        """
        self._api.request_model(wire.VolumeDeleted, "DELETE", _VOLUMES_PATH + build_path(volume_id))

    def get_remediation(
        self, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Remediation:
        """Return one repair of a node.

        Raises:
            NotFound: no repair has this id.
        """
        return self._api.request_model(
            Remediation,
            "GET",
            _build_remediations_path(cluster_id, instance_id) + build_path(remediation_id),
        )

    def create_remediation(
        self, cluster_id: str, instance_id: str, remediation_id: str, mode: str, reason: str
    ) -> Remediation:
        """Request the repair of a node under an id chosen by the caller.

        Sending the request again with one id requests no second repair (SDK, `remediations.create`:
        'Client-specified ID for idempotency').
        """
        path = _build_remediations_path(cluster_id, instance_id)
        body, params = build_remediation_create(mode, reason), {"remediation_id": remediation_id}
        return self._api.request_model(Remediation, "POST", path, body=body, params=params)

    def approve_remediation(
        self,
        cluster_id: str,
        instance_id: str,
        remediation_id: str,
        *,
        mode: str = "",
        comment: str = "",
    ) -> Remediation:
        """Approve a repair proposed by Together, with the proposed or another mode.

        Sending the request again is safe: an approved repair cannot be approved again.

        Raises:
            Conflict: the repair is no longer a proposal.
        """
        path = (
            _build_remediations_path(cluster_id, instance_id)
            + build_path(remediation_id)
            + "/approve"
        )
        return self._api.request_model(
            Remediation, "POST", path, body=build_remediation_approve(mode, comment)
        )

    def reject_remediation(
        self, cluster_id: str, instance_id: str, remediation_id: str, *, comment: str = ""
    ) -> Remediation:
        """Reject a repair proposed by Together, which cancels the repair.

        Raises:
            Conflict: the repair is no longer a proposal.
        """
        path = _build_remediations_path(cluster_id, instance_id) + build_path(remediation_id)
        return self._api.request_model(
            Remediation, "POST", f"{path}/reject", body={"comment": comment}
        )

    def cancel_remediation(
        self, cluster_id: str, instance_id: str, remediation_id: str
    ) -> Remediation:
        """Cancel a repair in a state before its run: proposed, or waiting.

        Raises:
            Conflict: the repair runs or has ended.
        """
        path = _build_remediations_path(cluster_id, instance_id) + build_path(remediation_id)
        return self._api.request_model(Remediation, "POST", f"{path}/cancel")

    def list_regions(self, retry: Retry = Retry.SAFE) -> Sequence[wire.Region]:
        """Return the regions with their offers, without free capacity."""
        return self._api.request_model(
            wire.RegionList, "GET", "/compute/regions", retry=retry
        ).regions

    @property
    def clock_ahead(self) -> float | None:
        """Return the seconds by which this machine's clock is ahead; None while unknown."""
        return self._api.clock_ahead

    def send_probe(self) -> ProbeAnswer:
        """Send the cheapest request with the key.

        Raises:
            GpuformError: the key or the connection is unusable.
        """
        return send_probe(self._api, "GET", _CLUSTERS_PATH)

    def may_write(self) -> bool:
        """Return True if the key belongs to an Admin, not to a Member (document 003, "Roles").

        No endpoint reports the role. The client asks once, by an update without changes of a
        cluster that cannot exist: a key that may write gets another answer than 403.

        Raises:
            GpuformError: any other failure; the next call asks again.
        """
        with self._role_lock:
            if self._may_write is None:
                try:
                    self._api.request(
                        "PUT",
                        _CLUSTERS_PATH + build_path(_NONEXISTENT_CLUSTER_ID),
                        body={},
                        retry=Retry.NEVER,
                    )
                except PermissionDenied:
                    self._may_write = False
                # the answers of a key that passed the check of the role: the cluster does not
                # exist, or the body is empty
                except (NotFound, InvalidRequest, Conflict):
                    self._may_write = True
                else:
                    self._may_write = True
            return self._may_write

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._api.close()


def is_out_of_stock(status: int, message: str) -> bool:
    """Return True if a 409 means "no free GPUs" rather than a conflict of states."""
    return status == 409 and "out of stock" in message.casefold()


def is_together_error(answer: Mapping[str, Any]) -> bool:
    """Return True if an answer is Together's own error document (API reference, 'Errors').

    A proxy's JSON is not: a 404 from a proxy must not remove a resource from the state.
    """
    error = answer.get("error")
    return isinstance(error, dict) and all(
        isinstance(error.get(name), str) and error[name] for name in ("message", "type")
    )


def get_base_url(settings: Settings) -> str:
    """Return the address of the API, ending in `/v1`."""
    return append_path(settings.get_value(BASE_URL_VARIABLE) or DEFAULT_BASE_URL, "/v1")


def find_write_refusal(settings: Settings) -> str:
    """Return why the configured key may not change clusters and volumes; "" if writing is allowed.

    Raises:
        GpuformError: Together does not answer.
    """
    if get_client(settings).may_write():
        return ""
    return (
        "the Together key has the role Member, which only reads clusters and volumes: use an "
        f"Admin's key ({KEY_VARIABLE}, or {KEY_CONFIG})"
    )


_clients: Clients[TogetherClient] = Clients()


def get_client(settings: Settings) -> TogetherClient:
    """Return the client for the address and the key in `settings`, shared within a process."""
    url = get_base_url(settings)
    key = settings.get_value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(TogetherClient, url, key))


def _build_remediations_path(cluster_id: str, instance_id: str) -> str:
    """Return the API path of all repairs of one node."""
    return (
        f"{_CLUSTERS_PATH}{build_path(cluster_id)}/instances{build_path(instance_id)}/remediations"
    )


def _build_project_params(project_id: str | None) -> dict[str, str] | None:
    """Build the query for a project; None without a project."""
    return {"projectId": project_id} if project_id else None


VOLUME_RELEASE_TIMEOUT_S: Final = 600.0
"""Seconds to wait until Together releases the volume of a deleted cluster."""


def reject_unusable_volume(client: TogetherClient, inputs: ClusterInputs) -> None:
    """Raise GpuformError if the declared volume does not exist or is neither available nor bound.

    Does nothing without a declared `volume_id`.
    """
    volume_id = inputs.volume_id
    if volume_id is None:
        return
    try:
        status = client.get_volume_listing(inputs.project_id).read_one(volume_id).status
    except NotFound:
        raise GpuformError(
            f"volume_id: shared volume {volume_id} not found",
            hint="declare the id of an existing volume in the cluster's region",
        ) from None
    if status not in (VolumeStatus.AVAILABLE, VolumeStatus.BOUND):
        raise GpuformError(
            f"volume_id: shared volume {volume_id} cannot be attached now: it is {status}",
            hint="a volume can be attached when it is available, or bound to other clusters",
        )


def wait_until_volume_is_released(
    context: ProviderContext,
    client: TogetherClient,
    volume_id: str,
    project_id: str | None,
    schedule: PollSchedule,
) -> None:
    """Wait until the volume of a deleted cluster is no longer bound, or does not exist.

    Returns at once if another cluster has the volume now; a cluster that binds it later is not
    noticed. If the volume is still bound after `VOLUME_RELEASE_TIMEOUT_S`, or the wait is
    interrupted, this is only a warning: deleting the volume waits again.
    """
    volumes, clusters = (
        client.get_volume_listing(project_id),
        client.get_cluster_listing(project_id),
    )
    if any(
        volume_id == volume.volume_id
        for cluster in clusters.read_all()
        for volume in cluster.volumes
    ):
        return

    def poll() -> PollResult[object]:
        try:
            status = volumes.read_one(volume_id).status
        except NotFound:
            return PollResult(None, "gone", is_done=True)
        return PollResult(None, f"volume {status}", is_done=status != VolumeStatus.BOUND)

    label = f"release of volume {volume_id}"
    try:
        wait_until_done(
            context, poll, label=label, interval=schedule, limit=VOLUME_RELEASE_TIMEOUT_S
        )
    except NotReady as error:
        # The cluster is gone; deleting the volume waits again.
        context.on_warning(error.reason)
