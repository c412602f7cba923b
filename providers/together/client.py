"""Call Together's GPU cluster API: one method per endpoint, models in and out.

Facts are from the Together reference ('REST API'); the base URL may come with or without `/v1`.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.actions import Settings
from gpuform.providers.calls import Call, Look, Rhythm, wait_until
from gpuform.providers.errors import (
    Conflict,
    GpuformError,
    InvalidRequest,
    MissingCredentials,
    NotFound,
    NotReady,
    PermissionDenied,
)
from gpuform.providers.http import (
    Answered,
    ApiClient,
    Clients,
    ErrorAnswers,
    Listing,
    Retry,
    ask_once,
    at,
    with_path,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.together import requests, wire
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs
from gpuform.schemas.together.statuses import VolumeStatus
from gpuform.schemas.together.wire import Remediation, remediation_approve, remediation_create

if TYPE_CHECKING:
    import httpx

DEFAULT_BASE_URL = "https://api.together.ai/v1"
BASE_URL_VARIABLE = "TOGETHER_BASE_URL"
KEY_VARIABLE = "TOGETHER_API_KEY"
KEY_CONFIG = "together:apiKey"

_CLUSTERS = "/compute/clusters"
_VOLUMES = "/compute/clusters/storage/volumes"
_NOBODY = "00000000-0000-0000-0000-000000000000"
_HINTS = {
    401: f"set {KEY_VARIABLE} to a valid key, or: gpuform config set --secret {KEY_CONFIG}",
    402: "add credit to the account, then run it again",
    403: "a Member key can only read: use an Admin key",
}


class TogetherClient:
    """The API for one key; safe for many threads. Every method raises `GpuformError`s only."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        transport: "httpx.BaseTransport | None" = None,
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
                says_gone=says_gone,
            ),
            headers=self._headers,
            transport=transport,
        )
        self._lock, self._role_lock = threading.Lock(), threading.Lock()
        self._may_write: bool | None = None
        self._clusters: dict[str | None, Listing[wire.Cluster]] = {}
        self._volumes: dict[str | None, Listing[wire.Volume]] = {}
        self._rhythms: dict[float, Rhythm] = {}

    def shared_clusters(self, project_id: str | None = None) -> Listing[wire.Cluster]:
        """The clusters of a project for readers that may share their requests."""
        with self._lock:
            if project_id not in self._clusters:
                self._clusters[project_id] = Listing(
                    lambda: self.clusters(project_id), self.cluster, lambda each: each.cluster_id
                )
            return self._clusters[project_id]

    def shared_volumes(self, project_id: str | None = None) -> Listing[wire.Volume]:
        """The shared volumes of a project for readers that may share their requests."""
        with self._lock:
            if project_id not in self._volumes:
                self._volumes[project_id] = Listing(
                    lambda: self.volumes(project_id), self.volume, lambda each: each.volume_id
                )
            return self._volumes[project_id]

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may contain."""
        return (self._key,) if self._key else ()

    def rhythm(self, interval: float) -> Rhythm:
        """The beat of all that wait for this client's objects at an interval, in seconds."""
        with self._lock:
            return self._rhythms.setdefault(interval, Rhythm(interval))

    def create_cluster(self, inputs: ClusterInputs) -> wire.Cluster:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        body = requests.cluster_create(inputs)
        return self._api.ask(wire.Cluster, "POST", _CLUSTERS, body=body, retry=Retry.CREATE)

    def clusters(self, project_id: str | None = None) -> Sequence[wire.Cluster]:
        """The clusters of the key's project, or of another one."""
        params = _project(project_id)
        return self._api.ask(wire.ClusterList, "GET", _CLUSTERS, params=params).clusters

    def cluster(self, cluster_id: str) -> wire.Cluster:
        """One cluster; NotFound when it is gone."""
        return self._api.ask(wire.Cluster, "GET", _CLUSTERS + at(cluster_id))

    def update_cluster(
        self, cluster_id: str, inputs: ClusterInputs, changes: Sequence[FieldChange]
    ) -> wire.Cluster:
        """Sends the changed fields alone; the platform keeps the others."""
        body = requests.cluster_update(inputs, changes)
        return self._api.ask(wire.Cluster, "PUT", _CLUSTERS + at(cluster_id), body=body)

    def delete_cluster(self, cluster_id: str) -> None:
        """Begins the deletion; NotFound when it is gone."""
        self._api.ask(wire.ClusterDeleted, "DELETE", _CLUSTERS + at(cluster_id))

    def create_volume(self, inputs: SharedVolumeInputs) -> wire.Volume:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        body = requests.volume_create(inputs)
        return self._api.ask(wire.Volume, "POST", _VOLUMES, body=body, retry=Retry.CREATE)

    def volumes(self, project_id: str | None = None) -> Sequence[wire.Volume]:
        """The shared volumes of the key's project, or of another one."""
        return self._api.ask(wire.VolumeList, "GET", _VOLUMES, params=_project(project_id)).volumes

    def volume(self, volume_id: str) -> wire.Volume:
        """One shared volume; NotFound when it is gone."""
        return self._api.ask(wire.Volume, "GET", _VOLUMES + at(volume_id))

    def update_volume(self, volume_id: str, inputs: SharedVolumeInputs) -> wire.Volume:
        """Grows a volume to the declared size; the id goes into the body."""
        body = requests.volume_update(volume_id, inputs)
        return self._api.ask(wire.Volume, "PUT", _VOLUMES, body=body)

    def delete_volume(self, volume_id: str) -> None:
        """Begins the deletion; Conflict while a cluster has it, NotFound when it is gone."""
        self._api.ask(wire.VolumeDeleted, "DELETE", _VOLUMES + at(volume_id))

    def remediation(self, cluster_id: str, instance_id: str, id_: str) -> Remediation:
        """One repair; NotFound where there is none of this id."""
        return self._api.ask(Remediation, "GET", _remediations(cluster_id, instance_id) + at(id_))

    def create_remediation(
        self, cluster_id: str, instance_id: str, id_: str, mode: str, reason: str
    ) -> Remediation:
        """Asks for a repair under an id of ours, so that sending it again asks for no second one.

        Source: SDK, `remediations.create`: 'Client-specified ID for idempotency'.
        """
        path = _remediations(cluster_id, instance_id)
        body, params = remediation_create(mode, reason), {"remediation_id": id_}
        return self._api.ask(Remediation, "POST", path, body=body, params=params)

    def approve_remediation(
        self, cluster_id: str, instance_id: str, id_: str, *, mode: str = "", comment: str = ""
    ) -> Remediation:
        """Approves a proposal, as it is or with another mode; Conflict where it is none any more.

        Sending it again is safe: what is approved already cannot be approved again.
        """
        path = _remediations(cluster_id, instance_id) + at(id_) + "/approve"
        return self._api.ask(Remediation, "POST", path, body=remediation_approve(mode, comment))

    def regions(self, retry: Retry = Retry.SAFE) -> Sequence[wire.Region]:
        """What each region supports, which says nothing about what is free there."""
        return self._api.ask(wire.RegionList, "GET", "/compute/regions", retry=retry).regions

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of the platform's, in seconds; None: not told."""
        return self._api.clock_ahead

    def probe(self) -> Answered:
        """The cheapest look that needs the key. Raises what is wrong with it, or with the way."""
        return ask_once(self._api, "GET", _CLUSTERS)

    def may_write(self) -> bool:
        """Whether the key is an Admin's, not a Member's (Together reference, 'Roles').

        The API has nothing that tells a role. It is asked, once, to change nothing of a cluster
        that cannot exist: who may write gets another answer than 403.
        """
        with self._role_lock:
            if self._may_write is None:
                try:
                    self._api.request("PUT", _CLUSTERS + at(_NOBODY), body={}, retry=Retry.NEVER)
                except PermissionDenied:
                    self._may_write = False
                except (NotFound, InvalidRequest, Conflict):
                    self._may_write = True
                else:
                    self._may_write = True
            return self._may_write

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _headers(self) -> Mapping[str, str]:
        if not self._key:
            raise MissingCredentials(
                f"there is no API key for Together: set {KEY_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set --secret {KEY_CONFIG}",
                page="start/together",
            )
        return {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}


def is_out_of_stock(status: int, message: str) -> bool:
    """Whether a 409 means that no GPUs are free, rather than a conflict of states."""
    return status == 409 and "out of stock" in message.casefold()


def says_gone(body: Mapping[str, Any]) -> bool:
    """Whether it is Together's error document (API reference, 'Errors'), not anybody's JSON."""
    error = body.get("error")
    return isinstance(error, dict) and all(
        isinstance(error.get(name), str) and error[name] for name in ("message", "type")
    )


def base_url(settings: Settings) -> str:
    """The API's address, ending in /v1."""
    return with_path(settings.value(BASE_URL_VARIABLE) or DEFAULT_BASE_URL, "/v1")


address = base_url


def write_refusal(settings: Settings) -> str:
    """Why the key of these settings may not change clusters and volumes; empty when it may.

    Raises GpuformError when that cannot be asked.
    """
    if client_for(settings).may_write():
        return ""
    return (
        "the Together key is a Member's, and the role Member may only look at clusters and "
        f"volumes: use an Admin's key ({KEY_VARIABLE}, or {KEY_CONFIG})"
    )


_clients: Clients[TogetherClient] = Clients()


def client_for(settings: Settings) -> TogetherClient:
    """The client of these settings: one per process and credentials."""
    url = base_url(settings)
    key = settings.value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(TogetherClient, url, key))


def _remediations(cluster_id: str, instance_id: str) -> str:
    return f"{_CLUSTERS}{at(cluster_id)}/instances{at(instance_id)}/remediations"


def _project(project_id: str | None) -> dict[str, str] | None:
    return {"projectId": project_id} if project_id else None


RELEASE: Final = 600.0
"""Seconds to wait for the volume of a deleted cluster."""


def refuse_unusable(client: TogetherClient, want: ClusterInputs) -> None:
    """Raises GpuformError where the declared volume cannot be attached now."""
    volume_id = want.volume_id
    if volume_id is None:
        return
    try:
        status = client.shared_volumes(want.project_id).one(volume_id).status
    except NotFound:
        raise GpuformError(
            f"volume_id: there is no shared volume {volume_id}",
            hint="declare the id of a volume that exists, in the cluster's region",
        ) from None
    if status not in (VolumeStatus.AVAILABLE, VolumeStatus.BOUND):
        raise GpuformError(
            f"volume_id: the shared volume {volume_id} cannot be attached now: it is {status}",
            hint="a volume can be attached when it is available, or bound to other clusters",
        )


def wait_until_free(
    call: Call, client: TogetherClient, volume_id: str, project_id: str | None, rhythm: Rhythm
) -> None:
    """Waits until the volume of a cluster that is gone can be used, unless another one has it."""
    volumes, clusters = client.shared_volumes(project_id), client.shared_clusters(project_id)
    if any(volume_id == each.volume_id for one in clusters.all() for each in one.volumes):
        return

    def probe() -> Look[object]:
        try:
            status = volumes.one(volume_id).status
        except NotFound:
            return Look(None, "gone", done=True)
        return Look(None, f"volume {status}", done=status != VolumeStatus.BOUND)

    what = f"release of volume {volume_id}"
    try:
        wait_until(call, probe, what=what, interval=rhythm, limit=RELEASE)
    except NotReady as error:
        # The cluster is gone; deleting the volume waits again.
        call.on_warning(error.reason)
