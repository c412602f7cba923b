"""Nimbus's API: one method per endpoint, models in and out."""

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
    """The API for one key; safe for many threads. Every method raises `GpuformError`s only."""

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
        self._api = ApiClient(url, errors=answers, headers=self._headers, transport=transport)
        self.shared = Listing(self.clusters, self.cluster, lambda each: each.id)
        self.rhythm = PollSchedule(10.0)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may contain."""
        return (self._key,) if self._key else ()

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of Nimbus's, in seconds; None: not told."""
        return self._api.clock_ahead

    def create(self, inputs: ClusterInputs) -> Cluster:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        body = inputs.dump_declared()
        return self._api.request_model(Cluster, "POST", _CLUSTERS, body=body, retry=Retry.CREATE)

    def clusters(self) -> Sequence[Cluster]:
        """All clusters that the key may see."""
        return self._api.request_model(ClusterList, "GET", _CLUSTERS).clusters

    def cluster(self, id_: str) -> Cluster:
        """One cluster; NotFound when it is gone."""
        return self._api.request_model(Cluster, "GET", _CLUSTERS + build_path(id_))

    def update(self, id_: str, changed: Mapping[str, Any]) -> Cluster:
        """Sends the changed fields alone."""
        return self._api.request_model(Cluster, "PUT", _CLUSTERS + build_path(id_), body=changed)

    def delete(self, id_: str) -> None:
        """Begins the deletion; NotFound when it is gone."""
        self._api.request_model(Cluster, "DELETE", _CLUSTERS + build_path(id_))

    def send_probe(self) -> ProbeAnswer:
        """The cheapest look that needs the key, for `gpuform doctor`."""
        return send_probe(self._api, "GET", _CLUSTERS)

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _headers(self) -> Mapping[str, str]:
        if not self._key:
            raise MissingCredentials(
                f"there is no API key for Nimbus: set {KEY_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set --secret {KEY_CONFIG}",
            )
        return {"Authorization": f"Bearer {self._key}"}


def get_base_url(settings: Settings) -> str:
    """The API's address."""
    return (settings.get_value("NIMBUS_URL") or "https://api.nimbus.example").rstrip("/")


_clients: Clients[NimbusClient] = Clients()


def get_client(settings: Settings) -> NimbusClient:
    """The client of these settings: one per process and credentials."""
    url, key = get_base_url(settings), settings.get_value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(NimbusClient, url, key))
