"""Call TensorOne's cluster API: one method per endpoint, with the age of each cached answer.

Facts are from TensorOne's documentation ('GPU Clusters'); that an update is a PUT of the changed
fields is our reading of its table of limits. The base URL may come with or without `/v1`.

An answer says how old its data is (`meta.data_freshness_seconds`, `meta.cache_hit` of the platform
document).
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuform.providers.context import PollSchedule, get_current_context
from gpuform.providers.errors import MissingCredentials, ServerError
from gpuform.providers.http import (
    Answered,
    ApiClient,
    Clients,
    ErrorAnswers,
    Listing,
    Retry,
    at,
    with_path,
)
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.pacing import Pace, SparingRhythm
from gpuform.schemas.tensorone import requests, wire
from gpuform.schemas.tensorone.statuses import is_before

if TYPE_CHECKING:
    import httpx

ROUNDING = 1.0
"""Seconds: ages are whole."""


@dataclass(frozen=True)
class Sighting:
    """A cluster as an answer shows it, with the answer's `read_at`."""

    cluster: wire.Cluster
    as_of: float | None


def read_at(meta: wire.Meta, sent_at: float) -> float | None:
    """A time after which the platform read the data of an answer to a request sent at `sent_at`.

    Both in our own time. None when the answer is of the moment.
    """
    age = meta.data_freshness_seconds
    return sent_at - age - ROUNDING if meta.cache_hit or age > 0 else None


class Writes:
    """When this process last changed which cluster; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments: dict[str, float] = {}

    def note(self, cluster_id: str, now: float) -> None:
        with self._lock:
            self._moments[cluster_id] = now

    def is_stale(self, seen: Sighting, known: Mapping[str, Any]) -> bool:
        """Whether it may miss a change of ours, or is older than what is `known` (outputs)."""
        with self._lock:
            moment = self._moments.get(seen.cluster.id)
        if moment is not None and seen.as_of is not None and seen.as_of <= moment:
            return True
        return is_before(seen.cluster.updated_at, known.get("updated_at"))


DEFAULT_BASE_URL = "https://api.tensorone.ai/v1"
BASE_URL_VARIABLE = "TENSORONE_BASE_URL"
KEY_VARIABLE = "TENSORONE_API_KEY"
KEY_CONFIG = "tensorone:apiKey"
PAGE_SIZE = 100
INTERVAL = 60.0
"""Seconds between looks at the most: a free key may read 100 times an hour."""

NO_CAPACITY = "SEMANTIC_ERROR"
"""The code of a 422 that says that there are not enough GPUs ('Error Handling')."""

NO_OBJECT = "RESOURCE_NOT_FOUND"
"""The code of a 404 of the platform's own ('Error Handling')."""

_CLUSTERS = "/clusters"
_HINTS: Final[Mapping[int, str]] = {
    401: f"set {KEY_VARIABLE} to a valid key, or: gpuform config set --secret {KEY_CONFIG}",
    403: "the key may not do this: use one with the permission clusters:write",
    429: "the limits of the key are used up: wait, or use a key of a higher tier",
}
_CODE_HINTS: Final[Mapping[str, str]] = {
    "INSUFFICIENT_CREDITS": "add credit to the account, then run it again",
    "PAYMENT_METHOD_DECLINED": "check the account's payment method, then run it again",
}

Answer = TypeVar("Answer", wire.ClusterAnswer, wire.ClusterListAnswer, wire.Accepted)


class TensorOneClient:
    """The API for one key; safe for many threads. Every method raises `GpuformError`s only.

    Requests wait for their turn where the key's limits are used up.
    """

    def __init__(
        self, base_url: str, key: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        self._key = key
        self._pace = Pace()
        self._api = ApiClient(
            base_url,
            errors=ErrorAnswers(
                "tensorone",
                page="start/tensorone",
                secrets=(key,) if key else (),
                secret_members=requests.SECRET_MEMBERS,
                hints=_HINTS,
                hint_of=_hint,
                says_gone=lambda body: body.get("error") == NO_OBJECT,
            ),
            headers=self._headers,
            sign=self._pace.take,
            on_answer=self._pace.learn,
            transport=transport,
        )
        self._rhythm = SparingRhythm(INTERVAL, self._pace)
        self._shared = Listing(self.clusters, self.cluster, lambda each: each.cluster.id)
        self.writes = Writes()

    @property
    def shared_clusters(self) -> Listing[Sighting]:
        """The clusters for readers that may share their requests."""
        return self._shared

    @property
    def rhythm(self) -> PollSchedule:
        """The beat of all that wait for this client's clusters."""
        return self._rhythm

    def create(self, body: Mapping[str, Any]) -> wire.Cluster:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        return self._changed("POST", _CLUSTERS, body, Retry.CREATE)

    def clusters(self) -> Sequence[Sighting]:
        """All clusters that the key may see, from as many pages as there are."""
        return self.listed()[0]

    def listed(self) -> tuple[Sequence[Sighting], float | None]:
        """The same, and the oldest `read_at` of the pages: what was there before is among them."""
        oldest: float | None = None
        found: dict[str, Sighting] = {}
        page, pages = 1, 1
        while page <= pages:
            sent_at = get_current_context().clock.now()
            params = {"page": str(page), "limit": str(PAGE_SIZE)}
            answer = self._ask(wire.ClusterListAnswer, "GET", _CLUSTERS, params=params)
            as_of = read_at(answer.meta, sent_at)
            if as_of is not None:
                oldest = as_of if oldest is None else min(oldest, as_of)
            found |= {each.id: Sighting(each, as_of) for each in answer.data.clusters}
            page, pages = page + 1, answer.data.pagination.total_pages
        return list(found.values()), oldest

    def cluster(self, cluster_id: str, metrics_window: str = "") -> Sighting:
        """One cluster; NotFound when it is gone. A window is such as 24h; the platform's own when
        none is given."""
        sent_at = get_current_context().clock.now()
        params = {"metrics_window": metrics_window} if metrics_window else {}
        answer = self._ask(wire.ClusterAnswer, "GET", _CLUSTERS + at(cluster_id), params=params)
        return Sighting(answer.data, read_at(answer.meta, sent_at))

    def update(self, cluster_id: str, body: Mapping[str, Any]) -> wire.Cluster:
        """Sends the changed fields; the platform keeps the others."""
        return self._changed("PUT", _CLUSTERS + at(cluster_id), body)

    def start(self, cluster_id: str, body: Mapping[str, Any]) -> wire.Cluster:
        """Begins to start a stopped cluster. Sent once; Conflict when it is not stopped."""
        return self._changed("POST", f"{_CLUSTERS}{at(cluster_id)}/start", body, Retry.CREATE)

    def stop(self, cluster_id: str) -> wire.Cluster:
        """Begins to stop a running cluster. Sent once; Conflict when it does not run."""
        return self._changed("POST", f"{_CLUSTERS}{at(cluster_id)}/stop", {}, Retry.CREATE)

    def delete(self, cluster_id: str, body: Mapping[str, Any]) -> None:
        """Begins the deletion; NotFound when it is gone, Conflict when it has to be stopped."""
        self._ask(wire.Accepted, "DELETE", _CLUSTERS + at(cluster_id), body=body)
        self.writes.note(cluster_id, get_current_context().clock.now())

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of the platform's, in seconds; None: not told."""
        return self._api.clock_ahead

    def probe(self) -> Answered:
        """The cheapest look that needs the key. Raises what is wrong with it, or with the way."""
        one = {"page": "1", "limit": "1"}
        self._ask(wire.ClusterListAnswer, "GET", _CLUSTERS, params=one, retry=Retry.NEVER)
        return Answered(self._api.address, self._api.clock_ahead)

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _changed(
        self, method: str, path: str, body: Mapping[str, Any], retry: Retry = Retry.SAFE
    ) -> wire.Cluster:
        cluster = self._ask(wire.ClusterAnswer, method, path, body=body, retry=retry).data
        self.writes.note(cluster.id, get_current_context().clock.now())
        return cluster

    def _ask(self, model: type[Answer], method: str, path: str, **rest: Any) -> Answer:
        answer = self._api.ask(model, method, path, **rest)
        if not answer.success:
            raise ServerError(
                f"tensorone: {method} {path} answered 200 and that it had no success",
                method=method,
                path=path,
                status=200,
            )
        return answer

    def _headers(self) -> Mapping[str, str]:
        if not self._key:
            raise MissingCredentials(
                f"there is no API key for TensorOne: set {KEY_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set --secret {KEY_CONFIG}",
                page="start/tensorone",
            )
        return {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}


def base_url(settings: Settings) -> str:
    """The API's address, ending in /v1."""
    return with_path(settings.value(BASE_URL_VARIABLE) or DEFAULT_BASE_URL, "/v1")


address = base_url

_clients: Clients[TensorOneClient] = Clients()


def client_for(settings: Settings) -> TensorOneClient:
    """The client of these settings: one per process and credentials."""
    url = base_url(settings)
    key = settings.value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(TensorOneClient, url, key))


def _hint(response: "httpx.Response") -> str | None:
    try:
        body = response.json()
    except ValueError:
        return None
    code = body.get("error") if isinstance(body, dict) else None
    return _CODE_HINTS.get(code) if isinstance(code, str) else None
