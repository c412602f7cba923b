"""Send requests to Nimbus's API: one method for each endpoint, models in and out."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuform.providers.context import PollSchedule
from gpuform.providers.errors import MissingCredentials
from gpuform.providers.http import (
    ApiClient,
    Clients,
    ErrorAnswers,
    Listing,
    ProbeAnswer,
    Retry,
    build_path,
    send_probe,
)
from gpuform.providers.operations import Settings
from nimbus.schemas import Cluster, ClusterInputs, ClusterList

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE, KEY_CONFIG = "NIMBUS_API_KEY", "nimbus:apiKey"
_CLUSTERS = "/clusters"
_HINTS = {401: f"set {KEY_VARIABLE} to a valid key"}


class NimbusClient:
    """Client of the API for one key; safe for many threads. Methods raise only `GpuformError`s."""

    def __init__(
        self, url: str, key: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        self._key = key
        answers = ErrorAnswers(
            "nimbus",
            secrets=self.secrets,
            hints=_HINTS,
            is_capacity=lambda status, message: status == 409 and "no free GPUs" in message,
            says_gone=lambda body: body.get("code") == "no_such_cluster",
        )
        self._api = ApiClient(url, errors=answers, headers=self._build_headers, transport=transport)
        self.listing = Listing(self.list_clusters, self.get_cluster, lambda cluster: cluster.id)
        self.poll_schedule = PollSchedule(10.0)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that no message may contain."""
        return (self._key,) if self._key else ()

    @property
    def clock_ahead(self) -> float | None:
        """Return this machine's clock minus Nimbus's in seconds, or None before an answer."""
        return self._api.clock_ahead

    def create_cluster(self, inputs: ClusterInputs) -> Cluster:
        """Send the request to create a cluster; a lost answer raises UnknownOutcome."""
        body = inputs.dump_declared()
        return self._api.request_model(Cluster, "POST", _CLUSTERS, body=body, retry=Retry.CREATE)

    def list_clusters(self) -> Sequence[Cluster]:
        """Return all clusters that the key may see."""
        return self._api.request_model(ClusterList, "GET", _CLUSTERS).clusters

    def get_cluster(self, cluster_id: str) -> Cluster:
        """Return one cluster; raises NotFound if the cluster does not exist."""
        return self._api.request_model(Cluster, "GET", _CLUSTERS + build_path(cluster_id))

    def update_cluster(self, cluster_id: str, changes: Mapping[str, Any]) -> Cluster:
        """Send the changed fields of a cluster, and return the cluster."""
        path = _CLUSTERS + build_path(cluster_id)
        return self._api.request_model(Cluster, "PUT", path, body=changes)

    def delete_cluster(self, cluster_id: str) -> None:
        """Request the deletion, without waiting; raises NotFound for a missing cluster."""
        self._api.request_model(Cluster, "DELETE", _CLUSTERS + build_path(cluster_id))

    def send_probe(self) -> ProbeAnswer:
        """Send the cheapest request that needs the key, for `gpuform doctor`."""
        return send_probe(self._api, "GET", _CLUSTERS)

    def close(self) -> None:
        """Close the connections; later requests open new ones."""
        self._api.close()

    def _build_headers(self) -> Mapping[str, str]:
        if not self._key:
            raise MissingCredentials(
                f"the API key of Nimbus is missing: set {KEY_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set --secret {KEY_CONFIG}",
            )
        return {"Authorization": f"Bearer {self._key}"}


def get_base_url(settings: Settings) -> str:
    """Return the address of the API."""
    return (settings.get_value("NIMBUS_URL") or "https://api.nimbus.example").rstrip("/")


_clients: Clients[NimbusClient] = Clients()


def get_client(settings: Settings) -> NimbusClient:
    """Return the client for these settings: one for each address and key in a process."""
    url, key = get_base_url(settings), settings.get_value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(NimbusClient, url, key))
