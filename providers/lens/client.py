"""Lens's clusters API: one method per endpoint, models out.

Facts are from the Lens reference, 'Clusters API'. It can only be read, and documents no key; a
token is sent where one is configured.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuform.providers.errors import MissingCredentials, ServerError
from gpuform.providers.evidence import Observation, require_evidence
from gpuform.providers.evidence.decisions import TRUST_WORKLOADS
from gpuform.providers.http import Answered, ApiClient, Clients, ErrorAnswers, Retry, with_path
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
_READINGS = 4
"""How often the pages are read until a reading is proven: workloads begin and end meanwhile."""
_OVERVIEW = "/clusters/overview"
_CONSUMERS = "/clusters/consumers"
_HEATMAP = "/clusters/gpuHeatmap"

Model = TypeVar("Model", bound=BaseModel)


class _Reading:
    """The workloads that one pass over the pages of Lens shows.

    One page is one moment. Several are not: a workload that ends moves those behind it up, over the
    edge of a page that was read already. So they prove something only if the next pass shows the
    same.
    """

    def __init__(self) -> None:
        self.consumers: dict[tuple[object, ...], wire.Consumer] = {}
        self.pages = 0
        self.missing: list[str] = []
        self.is_over = False
        self._total: int | None = None

    def add(self, page: wire.ConsumerPage) -> None:
        """Add the next page, and see whether it is the last one."""
        self.pages += 1
        before = len(self.consumers)
        self.consumers |= _by_identity(page.data)
        is_new = len(self.consumers) > before
        total, number = page.total, self.pages
        if total is None or total < 0:
            self._end(f"page {number} of consumers has no `total` that can be")
        elif self._total not in (None, total):
            self._end(
                f"`total` is {self._total} on page 1 of consumers and {total} on page {number}"
            )
        elif len(self.consumers) > total:
            self._end(f"consumers shows {len(self.consumers)} workloads, and `total` is {total}")
        elif len(self.consumers) == total:
            self._end()
        elif not is_new:
            found = len(self.consumers)
            self._end(f"consumers shows {found} different workloads, and `total` is {total}")
        self._total = total

    def is_proven_by(self, before: "_Reading | None") -> bool:
        """Return whether the workloads are complete; `before` is the pass before, if any."""
        if self.missing or self.pages == 1:
            return not self.missing
        if before is None or before.missing:
            return False
        return before.consumers.keys() == self.consumers.keys()

    def _end(self, *missing: str) -> None:
        self.is_over = True
        self.missing += missing


def _by_identity(consumers: Sequence[wire.Consumer]) -> dict[tuple[object, ...], wire.Consumer]:
    """Return the workloads of one page by what tells them apart.

    That is the uid. Without one it is the name, and which of that name it is on its page: Slurm
    runs many jobs of one name.
    """
    found: dict[tuple[object, ...], wire.Consumer] = {}
    same: dict[tuple[str, ...], int] = {}
    for each in consumers:
        if each.uid:
            found[each.source, each.uid] = each
            continue
        name = (each.source, each.kind, each.namespace, each.name)
        same[name] = same.get(name, 0) + 1
        found[*name, same[name]] = each
    return found


class LensClient:
    """The API at one address; safe for many threads. Raises `GpuformError`s only.

    The errors of Lens have its traceId, as `request_id` and in the hint.
    """

    def __init__(
        self,
        url: str | None,
        token: str | None,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        self._url, self._token = url, token
        self._errors = ErrorAnswers(
            "lens",
            page="start/lens",
            secrets=tuple(filter(None, (token, url))),
            hint_of=lambda response: _hint(_trace_of(response)),
            request_id_of=_trace_of,
        )
        self._api = ApiClient(
            url or "",
            errors=self._errors,
            headers=self._headers,
            transport=transport,
        )

    def require_address(self) -> None:
        """Raises MissingCredentials when no address is configured."""
        if not self._url:
            raise MissingCredentials(
                f"there is no address of Lens: set {URL_VARIABLE}",
                hint=f"or store it with the stack: gpuform config set {URL_CONFIG} URL",
                page="start/lens",
            )

    def overview(self, retry: Retry = Retry.SAFE) -> wire.Overview:
        """Nodes, GPUs, storage and RDMA ports in numbers."""
        return self._ask(wire.Overview, _OVERVIEW, retry=retry)

    def consumers(
        self, page_size: int = PAGE_SIZE, retry: Retry = Retry.SAFE
    ) -> Sequence[wire.Consumer]:
        """Return every workload that uses GPUs, each once.

        Raises:
            NotEnoughEvidence: Lens shows fewer or other workloads than it counts, or they change
                from page to page, at each of four readings.
        """
        before: _Reading | None = None
        for _ in range(_READINGS):
            reading = self._read_consumers(page_size, retry)
            if reading.is_proven_by(before):
                return list(reading.consumers.values())
            before = reading
        missing = before.missing if before else ()
        observed = Observation(
            self._api.address, missing or ["the workloads on its pages change while they are read"]
        )
        require_evidence(
            TRUST_WORKLOADS,
            "lens",
            observed,
            hint="try again; if it stays so, compare the pages of GET /api/clusters/consumers with "
            "their `total`",
        )
        raise AssertionError("an observation that misses something is refused")

    def _read_consumers(self, page_size: int, retry: Retry) -> "_Reading":
        """Return what one pass over the pages shows, up to the first contradiction."""
        reading = _Reading()
        while not reading.is_over:
            params = {"pageNum": str(reading.pages + 1), "pageSize": str(page_size)}
            reading.add(self._ask(wire.ConsumerPage, _CONSUMERS, params, retry))
        return reading

    def heatmap(self, retry: Retry = Retry.SAFE) -> wire.GpuHeatmap:
        """The GPUs with most power, heat and use."""
        return self._ask(wire.GpuHeatmap, _HEATMAP, retry=retry)

    def probe(self) -> Answered:
        """The cheapest look. Raises what is wrong with the address, the token or the way."""
        self._ask(wire.Overview, _OVERVIEW, retry=Retry.NEVER)
        return Answered(self._api.address, self._api.clock_ahead)

    @property
    def clock_ahead(self) -> float | None:
        """How many seconds this machine's clock is ahead of Lens's, None before an answer."""
        return self._api.clock_ahead

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _ask(
        self,
        model: type[Model],
        path: str,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Model:
        """What is in the envelope, which may carry a failure in an answer of 200."""
        answer = self._api.ask(wire.Envelope, "GET", path, params=params, retry=retry)
        if answer.code != 0:
            raise self._failed(path, f"code {answer.code}: {answer.message}", answer.trace_id)
        try:
            return model.model_validate(answer.data)
        except ValidationError:
            raise self._failed(path, "something unexpected", answer.trace_id) from None

    def _failed(self, path: str, said: str, trace_id: str) -> ServerError:
        text = escape_invisible(" ".join(self._errors.redacted(said).split()))[:300]
        return ServerError(
            f"lens: GET {path} answered 200 with {text}",
            method="GET",
            path=path,
            status=200,
            request_id=self._errors.redacted(trace_id) or None,
            hint=_hint(self._errors.redacted(trace_id)),
        )

    def _headers(self) -> Mapping[str, str]:
        self.require_address()
        sent = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return {"Accept": "application/json", **sent}


def _trace_of(response: "httpx.Response") -> str | None:
    try:
        body: Any = response.json()
    except ValueError:
        return None
    found = body.get("traceId") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


def _hint(trace_id: str | None) -> str | None:
    return (
        f"Lens has it in its logs under traceId {escape_invisible(trace_id)[:100]}"
        if trace_id
        else None
    )


_clients: Clients[LensClient] = Clients()


def is_configured(settings: Settings) -> bool:
    """Whether there is an address of Lens."""
    return address(settings) is not None


def client_for(settings: Settings) -> LensClient:
    """The client of these settings: one per process, address and token."""
    url, token = address(settings), settings.value(TOKEN_VARIABLE, TOKEN_CONFIG)
    return _clients.get((url, token), url, partial(LensClient, url, token))


def address(settings: Settings) -> str | None:
    """The API's address, ending in /api."""
    url = settings.value(URL_VARIABLE, URL_CONFIG)
    return with_path(url, "/api") if url else None
