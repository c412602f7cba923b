"""Call Lens's clusters API: one method per endpoint, models out.

Health gates, look-ups and repairs get the client from `get_client`. Facts are from the Lens
reference, 'Clusters API'. The API can only be read and documents no key; a token is sent where one
is configured.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuform.providers.errors import MissingCredentials, ServerError
from gpuform.providers.evidence import TRUST_WORKLOADS, Observation, require_evidence
from gpuform.providers.http import ApiClient, Clients, ErrorAnswers, ProbeAnswer, Retry, append_path
from gpuform.providers.operations import Settings
from gpuform.schemas.lens import wire
from gpuform.schemas.safe_text import escape_invisible

if TYPE_CHECKING:
    import httpx

URL_VARIABLE = "LENS_URL"
URL_CONFIG = "lens:url"
TOKEN_VARIABLE = "LENS_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_CONFIG = "lens:token"  # noqa: S105 - the name of a setting

PAGE_SIZE = 100
_MAX_READS = 4
"""How often all pages are read until two reads agree: workloads begin and end meanwhile."""
_OVERVIEW = "/clusters/overview"
_CONSUMERS = "/clusters/consumers"
_HEATMAP = "/clusters/gpuHeatmap"

Model = TypeVar("Model", bound=BaseModel)


class _ConsumersRead:
    """The workloads that one pass over the pages of Lens shows.

    One page is one moment. Several pages are not: when a workload ends, those behind it move up,
    over the edge of a page that was read already. So several pages prove something only if the next
    pass shows the same workloads.
    """

    def __init__(self) -> None:
        self.consumers: dict[tuple[object, ...], wire.Consumer] = {}
        self.pages = 0
        self.missing: list[str] = []
        self.is_finished = False
        self._total: int | None = None

    def add_page(self, page: wire.ConsumerPage) -> None:
        """Add the next page, and set `is_finished` after the last page or a contradiction.

        A contradiction is added to `missing`: `total` is absent, changes from page to page, or
        differs from the workloads shown.
        """
        self.pages += 1
        previous_count = len(self.consumers)
        self.consumers |= _group_by_identity(page.data)
        is_new = len(self.consumers) > previous_count
        total, page_number = page.total, self.pages
        # `total` counts the workloads of all pages: without it no read is known to be complete.
        if total is None or total < 0:
            self._finish(f"page {page_number} of consumers has no valid `total`")
        elif self._total not in (None, total):
            self._finish(
                f"`total` is {self._total} on page 1 of consumers and {total} on page {page_number}"
            )
        # A workload began or ended between two pages.
        elif len(self.consumers) > total:
            self._finish(f"consumers shows {len(self.consumers)} workloads, but `total` is {total}")
        elif len(self.consumers) == total:
            self._finish()
        # Without this, a page that only repeats others would be read for ever.
        elif not is_new:
            consumer_count = len(self.consumers)
            self._finish(
                f"consumers shows {consumer_count} different workloads, but `total` is {total}"
            )
        self._total = total

    def is_proven_by(self, previous_read: "_ConsumersRead | None") -> bool:
        """Return True if this pass proves that its workloads are complete.

        A pass with something in `missing` proves nothing. A single page is proof. Several pages are
        proof only if `previous_read`, the pass before, has the same workloads.
        """
        if self.missing or self.pages == 1:
            return not self.missing
        if previous_read is None or previous_read.missing:
            return False
        return previous_read.consumers.keys() == self.consumers.keys()

    def _finish(self, *missing: str) -> None:
        """End the read.

        `missing` has the reasons why the workloads are incomplete; empty if complete.
        """
        self.is_finished = True
        self.missing += missing


def _group_by_identity(
    consumers: Sequence[wire.Consumer],
) -> dict[tuple[object, ...], wire.Consumer]:
    """Return the workloads of one page by identity: source and uid, or source and name.

    A workload without a uid is identified by source, kind, namespace, name and a number, because
    Slurm runs many jobs of one name.
    """
    by_identity: dict[tuple[object, ...], wire.Consumer] = {}
    count_by_name: dict[tuple[str, ...], int] = {}
    for consumer in consumers:
        if consumer.uid:
            by_identity[consumer.source, consumer.uid] = consumer
            continue
        name = (consumer.source, consumer.kind, consumer.namespace, consumer.name)
        count_by_name[name] = count_by_name.get(name, 0) + 1
        by_identity[*name, count_by_name[name]] = consumer
    return by_identity


class LensClient:
    """The API at one address.

    Safe for many threads. Methods raise only `GpuformError`s; errors of Lens have its traceId, as
    `request_id` and in the hint.
    """

    def __init__(
        self, url: str | None, token: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        self._url, self._token = url, token
        self._errors = ErrorAnswers(
            "lens",
            page="start/lens",
            secrets=tuple(filter(None, (token, url))),
            hint_of=lambda response: _build_hint(_get_trace_id(response)),
            request_id_of=_get_trace_id,
        )
        self._api = ApiClient(
            url or "", errors=self._errors, headers=self._build_headers, transport=transport
        )

    def require_address(self) -> None:
        """Raise MissingCredentials if no address is configured."""
        if not self._url:
            raise MissingCredentials(
                f"the address of Lens is missing. Set {URL_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set {URL_CONFIG} URL",
                page="start/lens",
            )

    def get_overview(self, retry: Retry = Retry.SAFE) -> wire.Overview:
        """Return nodes, GPUs, storage and RDMA ports in numbers."""
        return self._request(wire.Overview, _OVERVIEW, retry=retry)

    def list_consumers(
        self, page_size: int = PAGE_SIZE, retry: Retry = Retry.SAFE
    ) -> Sequence[wire.Consumer]:
        """Return every workload on GPUs, each once, from all pages of Lens.

        Several pages are read again until two passes in succession have the same workloads, at most
        four times.

        Raises:
            NotEnoughEvidence: the last passes differ, or their pages contradict Lens's own `total`.
            GpuformError: a request fails.
        """
        previous_read: _ConsumersRead | None = None
        for _ in range(_MAX_READS):
            current_read = self._read_consumers(page_size, retry)
            if current_read.is_proven_by(previous_read):
                return list(current_read.consumers.values())
            previous_read = current_read
        missing = previous_read.missing if previous_read else ()
        observation = Observation(
            self._api.address, missing or ["the workloads change while gpuform reads the pages"]
        )
        require_evidence(
            TRUST_WORKLOADS,
            "lens",
            observation,
            hint="run the command again; if the error persists, compare the pages of GET "
            "/api/clusters/consumers with their `total`",
        )
        # `require_evidence` has raised: this line is for type checkers.
        raise AssertionError("gpuform refuses an incomplete observation")

    def _read_consumers(self, page_size: int, retry: Retry) -> "_ConsumersRead":
        """Return the workloads of one pass over the pages, up to the first contradiction."""
        current_read = _ConsumersRead()
        while not current_read.is_finished:
            # Lens counts pages from 1 (Lens reference, parameter `pageNum`).
            params = {"pageNum": str(current_read.pages + 1), "pageSize": str(page_size)}
            current_read.add_page(self._request(wire.ConsumerPage, _CONSUMERS, params, retry))
        return current_read

    def get_heatmap(self, retry: Retry = Retry.SAFE) -> wire.GpuHeatmap:
        """Return the GPUs with the most power, heat and use: only the highest of each metric."""
        return self._request(wire.GpuHeatmap, _HEATMAP, retry=retry)

    def send_probe(self) -> ProbeAnswer:
        """Fetch the overview once.

        Raises:
            GpuformError: the address, the token or the connection is wrong.
        """
        self._request(wire.Overview, _OVERVIEW, retry=Retry.NEVER)
        return ProbeAnswer(self._api.address, self._api.clock_ahead)

    @property
    def clock_ahead(self) -> float | None:
        """Return this machine's clock minus Lens's in seconds, None before an answer."""
        return self._api.clock_ahead

    def close(self) -> None:
        """Close the connections; the client may be used again."""
        self._api.close()

    def _request(
        self,
        model: type[Model],
        path: str,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Model:
        """Send a GET request and return the data in Lens's envelope as `model`.

        Raises:
            ServerError: Lens reports a failure in an answer of status 200, or the data does not fit
                `model`.
            GpuformError: as `ApiClient.request_model`.
        """
        answer = self._api.request_model(wire.Envelope, "GET", path, params=params, retry=retry)
        # Lens answers errors of its own with status 200 and another code than 0.
        if answer.code != 0:
            raise self._build_error(path, f"code {answer.code}: {answer.message}", answer.trace_id)
        try:
            return model.model_validate(answer.data)
        except ValidationError:
            raise self._build_error(path, "an unexpected body", answer.trace_id) from None

    def _build_error(self, path: str, failure: str, trace_id: str) -> ServerError:
        """Return the error for a failure answered with status 200; the token is redacted.

        Lens's text is escaped, and cut to 300 characters.
        """
        # The message is foreign text: it may have control characters, or echo the token.
        message = escape_invisible(" ".join(self._errors.redact(failure).split()))[:300]
        return ServerError(
            f"lens: GET {path} answered 200 with {message}",
            method="GET",
            path=path,
            status=200,
            request_id=self._errors.redact(trace_id) or None,
            hint=_build_hint(self._errors.redact(trace_id)),
        )

    def _build_headers(self) -> Mapping[str, str]:
        """Return the headers of a request, with the token if one is configured.

        Raises:
            MissingCredentials: no address is configured.
        """
        self.require_address()
        # Lens documents no token; a proxy in front of it may require one.
        sent = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return {"Accept": "application/json", **sent}


def _get_trace_id(response: "httpx.Response") -> str | None:
    """Return the traceId in an answer of Lens, or None without one or for other text than JSON."""
    try:
        body: Any = response.json()
    # The answer of a proxy on the way may be no JSON.
    except ValueError:
        return None
    trace_id = body.get("traceId") if isinstance(body, dict) else None
    return trace_id if isinstance(trace_id, str) else None


def _build_hint(trace_id: str | None) -> str | None:
    """Return the hint under which traceId Lens logged a failure; None without a traceId."""
    return (
        f"Lens logs the error under traceId {escape_invisible(trace_id)[:100]}"
        if trace_id
        else None
    )


_clients: Clients[LensClient] = Clients()


def is_configured(settings: Settings) -> bool:
    """Return True if an address of Lens is configured."""
    return get_base_url(settings) is not None


def get_client(settings: Settings) -> LensClient:
    """Return the client for address and token of `settings`, shared by all callers in the process.

    Without an address, every request of the client raises MissingCredentials.
    """
    url, token = get_base_url(settings), settings.get_value(TOKEN_VARIABLE, TOKEN_CONFIG)
    return _clients.get((url, token), url, partial(LensClient, url, token))


def get_base_url(settings: Settings) -> str | None:
    """Return the API's address, ending in /api, or None if none is configured."""
    url = settings.get_value(URL_VARIABLE, URL_CONFIG)
    return append_path(url, "/api") if url else None
