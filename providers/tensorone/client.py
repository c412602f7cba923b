"""Call TensorOne's cluster API: one method for each endpoint, with the age of each cached answer.

The lifecycle, the lookups and the commands call `get_client`, which returns one client for each
address and API key. Facts are from TensorOne's documentation ('GPU Clusters'); that an update is a
PUT of the changed fields is our reading of its table of limits. The base URL may end with or
without `/v1`.

An answer reports the age of its data (`meta.data_freshness_seconds` and `meta.cache_hit`, document
000).
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuform.providers.context import PollSchedule, get_current_context
from gpuform.providers.errors import ServerError
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
)
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.rate_limits import RateLimitedPollSchedule, RateLimits
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.outputs import is_before

if TYPE_CHECKING:
    import httpx

AGE_ROUNDING_S = 1.0
"""Seconds to add to an age: the platform reports whole seconds."""


@dataclass(frozen=True)
class ClusterReading:
    """A cluster as one answer shows it, with the time at which the platform read it.

    `as_of` is the result of `compute_read_time` for the answer.
    """

    cluster: wire.Cluster
    as_of: float | None


def compute_read_time(meta: wire.Meta, sent_at: float) -> float | None:
    """Return a time in our clock after which the platform read the data of an answer.

    Args:
        meta: the part of the answer that describes its age.
        sent_at: when the request was sent.

    Returns:
        None if the answer is not cached and has no age.
    """
    age = meta.data_freshness_seconds
    return sent_at - age - AGE_ROUNDING_S if meta.cache_hit or age > 0 else None


class WriteLog:
    """When this process last changed which cluster; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed_at: dict[str, float] = {}

    def record(self, cluster_id: str, moment: float) -> None:
        """Record when this process last changed the cluster, in Unix seconds."""
        with self._lock:
            self._changed_at[cluster_id] = moment

    def is_stale(self, reading: ClusterReading, outputs: Mapping[str, Any]) -> bool:
        """Return True if a reading may lack our last change, or is older than known `outputs`."""
        with self._lock:
            changed_at = self._changed_at.get(reading.cluster.id)
        # a cached answer from before our own request shows the cluster without the change
        if changed_at is not None and reading.as_of is not None and reading.as_of <= changed_at:
            return True
        return is_before(reading.cluster.updated_at, outputs.get("updated_at"))


DEFAULT_BASE_URL = "https://api.tensorone.ai/v1"
BASE_URL_VARIABLE = "TENSORONE_BASE_URL"
KEY_VARIABLE = "TENSORONE_API_KEY"
KEY_CONFIG = "tensorone:apiKey"
PAGE_SIZE = 100
POLL_INTERVAL_S = 60.0
"""Longest pause between two polls, in seconds: a free key may read 100 times an hour."""

NO_CAPACITY_CODE = "SEMANTIC_ERROR"
"""Code of a 422 which means that there are not enough GPUs ('Error Handling')."""

NOT_FOUND_CODE = "RESOURCE_NOT_FOUND"
"""Code of a 404 of the platform itself ('Error Handling'); a proxy's 404 has none."""

_CLUSTERS_PATH = "/clusters"
_HINTS: Final[Mapping[int, str]] = {
    401: f"set {KEY_VARIABLE} to a valid key, or: gpuform config set --secret {KEY_CONFIG}",
    403: (
        "the key lacks the permission for this request: use a key with the permission "
        "clusters:write"
    ),
    429: "the key has used up its limits: wait, or use a key of a higher tier",
}
_CODE_HINTS: Final[Mapping[str, str]] = {
    "INSUFFICIENT_CREDITS": "add credit to the account, then run the command again",
    "PAYMENT_METHOD_DECLINED": "check the account's payment method, then run the command again",
}

Answer = TypeVar("Answer", wire.ClusterAnswer, wire.ClusterListAnswer, wire.Accepted)


class TensorOneClient:
    """The API for one key; safe for many threads. Its methods raise `GpuformError`s only.

    Requests wait for their turn while the limits of the key are used up.
    """

    def __init__(
        self, base_url: str, key: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        self._key = key
        self._rate_limits = RateLimits()
        self._api = ApiClient(
            base_url,
            errors=ErrorAnswers(
                "tensorone",
                page="start/tensorone",
                secrets=(key,) if key else (),
                secret_members=wire.SECRET_MEMBERS,
                hints=_HINTS,
                hint_of=_find_hint,
                says_gone=lambda body: body.get("error") == NOT_FOUND_CODE,
            ),
            # Not a partial, whose repr would show the key.
            headers=lambda: build_bearer_headers(
                key, platform="TensorOne", variable=KEY_VARIABLE, config=KEY_CONFIG
            ),
            sign=self._rate_limits.wait_for_turn,
            on_answer=self._rate_limits.record_answer,
            transport=transport,
        )
        self._poll_schedule = RateLimitedPollSchedule(POLL_INTERVAL_S, self._rate_limits)
        self._cluster_listing = Listing(
            self.list_clusters, self.get_cluster, lambda reading: reading.cluster.id
        )
        self.writes = WriteLog()

    @property
    def cluster_listing(self) -> Listing[ClusterReading]:
        """Return the listing of the account's clusters, by which readers share requests."""
        return self._cluster_listing

    @property
    def poll_schedule(self) -> PollSchedule:
        """Return the poll schedule shared by all waiters of this client."""
        return self._poll_schedule

    def create(self, body: Mapping[str, Any]) -> wire.Cluster:
        """Send the request to create a cluster, once.

        Raises:
            UnknownOutcome: the answer was lost.
        """
        return self._send_change("POST", _CLUSTERS_PATH, body, Retry.CREATE)

    def list_clusters(self) -> Sequence[ClusterReading]:
        """Return every cluster visible to the key, from as many pages as there are."""
        return self.list_clusters_with_age()[0]

    def list_clusters_with_age(self) -> tuple[Sequence[ClusterReading], float | None]:
        """Return every cluster and the oldest read time of the pages.

        A cluster that existed before the returned time is in the list. None means that no page was
        cached.
        """
        oldest_read_at: float | None = None
        reading_by_id: dict[str, ClusterReading] = {}
        page, page_count = 1, 1
        while page <= page_count:
            sent_at = get_current_context().clock.now()
            params = {"page": str(page), "limit": str(PAGE_SIZE)}
            answer = self._send_request(
                wire.ClusterListAnswer, "GET", _CLUSTERS_PATH, params=params
            )
            as_of = compute_read_time(answer.meta, sent_at)
            if as_of is not None:
                oldest_read_at = as_of if oldest_read_at is None else min(oldest_read_at, as_of)
            # a cluster may be on two pages if another one is deleted between the requests
            reading_by_id |= {
                cluster.id: ClusterReading(cluster, as_of) for cluster in answer.data.clusters
            }
            page, page_count = page + 1, answer.data.pagination.total_pages
        return list(reading_by_id.values()), oldest_read_at

    def get_cluster(self, cluster_id: str, metrics_window: str = "") -> ClusterReading:
        """Return one cluster, with metrics over a window, as `24h`.

        Without a window the platform chooses one.

        Raises:
            NotFound: the cluster does not exist.
        """
        sent_at = get_current_context().clock.now()
        params = {"metrics_window": metrics_window} if metrics_window else {}
        answer = self._send_request(
            wire.ClusterAnswer, "GET", _CLUSTERS_PATH + build_path(cluster_id), params=params
        )
        return ClusterReading(answer.data, compute_read_time(answer.meta, sent_at))

    def update(self, cluster_id: str, body: Mapping[str, Any]) -> wire.Cluster:
        """Send `body`, the changed fields of a cluster, and return the cluster.

        The platform keeps the fields that are not sent.
        """
        return self._send_change("PUT", _CLUSTERS_PATH + build_path(cluster_id), body)

    def start(self, cluster_id: str, body: Mapping[str, Any]) -> wire.Cluster:
        """Begin to start a stopped cluster; the request is sent once.

        Raises:
            Conflict: the cluster is not stopped.
        """
        return self._send_change(
            "POST", f"{_CLUSTERS_PATH}{build_path(cluster_id)}/start", body, Retry.CREATE
        )

    def stop(self, cluster_id: str) -> wire.Cluster:
        """Begin to stop a running cluster; the request is sent once.

        Raises:
            Conflict: the cluster does not run.
        """
        return self._send_change(
            "POST", f"{_CLUSTERS_PATH}{build_path(cluster_id)}/stop", {}, Retry.CREATE
        )

    def delete(self, cluster_id: str, body: Mapping[str, Any]) -> None:
        """Begin to delete a cluster; `body` may request a last snapshot.

        Raises:
            NotFound: the cluster does not exist.
            Conflict: the cluster has to be stopped first.
        """
        self._send_request(
            wire.Accepted, "DELETE", _CLUSTERS_PATH + build_path(cluster_id), body=body
        )
        self.writes.record(cluster_id, get_current_context().clock.now())

    @property
    def clock_ahead(self) -> float | None:
        """Return the seconds by which this machine's clock is ahead; None while unknown."""
        return self._api.clock_ahead

    def send_probe(self) -> ProbeAnswer:
        """Send the cheapest request with the key.

        Raises:
            GpuformError: the key or the connection is unusable.
        """
        params = {"page": "1", "limit": "1"}
        self._send_request(
            wire.ClusterListAnswer, "GET", _CLUSTERS_PATH, params=params, retry=Retry.NEVER
        )
        return ProbeAnswer(self._api.address, self._api.clock_ahead)

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._api.close()

    def _send_change(
        self, method: str, path: str, body: Mapping[str, Any], retry: Retry = Retry.SAFE
    ) -> wire.Cluster:
        """Send a change of a cluster, record the time of the write, and return the cluster."""
        cluster = self._send_request(wire.ClusterAnswer, method, path, body=body, retry=retry).data
        # readings from before this moment are not believed any more
        self.writes.record(cluster.id, get_current_context().clock.now())
        return cluster

    def _send_request(self, model: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """Send a request and return the answer as `model`.

        Raises:
            ServerError: the answer itself reports no success, in spite of the status 200.
            GpuformError: as `ApiClient.request_model`.
        """
        answer = self._api.request_model(model, method, path, **options)
        # the envelope of every answer has `success` beside the HTTP status (document 000)
        if not answer.success:
            raise ServerError(
                f"tensorone: {method} {path} answered 200 without success",
                method=method,
                path=path,
                status=200,
            )
        return answer


def get_base_url(settings: Settings) -> str:
    """Return the address of the API, ending in `/v1`."""
    return append_path(settings.get_value(BASE_URL_VARIABLE) or DEFAULT_BASE_URL, "/v1")


_clients: Clients[TensorOneClient] = Clients()


def get_client(settings: Settings) -> TensorOneClient:
    """Return the client for these settings: one for each address and key in a process."""
    url = get_base_url(settings)
    key = settings.get_value(KEY_VARIABLE, KEY_CONFIG)
    return _clients.get((url, key), url, partial(TensorOneClient, url, key))


def _find_hint(response: "httpx.Response") -> str | None:
    """Return the hint for the error code in an answer's body; None for any other code."""
    try:
        body = response.json()
    except ValueError:
        return None
    # one status has several causes: only the code in the body names the right hint
    code = body.get("error") if isinstance(body, dict) else None
    return _CODE_HINTS.get(code) if isinstance(code, str) else None
