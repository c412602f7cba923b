"""Lens's clusters API: one method per endpoint, models out.

Facts are from the Lens reference, 'Clusters API'. It can only be read, and documents no key; a
token is sent where one is configured.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuform.providers.actions import Settings
from gpuform.providers.errors import MissingCredentials, ServerError
from gpuform.providers.http import Answered, ApiClient, Clients, ErrorAnswers, Retry, with_path
from gpuform.schemas.lens import wire
from gpuform.schemas.visible import visible

if TYPE_CHECKING:
    import httpx

URL_VARIABLE = "LENS_URL"
URL_CONFIG = "lens:url"
TOKEN_VARIABLE = "LENS_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_CONFIG = "lens:token"  # noqa: S105 - the name of a setting

PAGE_SIZE = 100
_OVERVIEW = "/clusters/overview"
_CONSUMERS = "/clusters/consumers"
_HEATMAP = "/clusters/gpuHeatmap"

Model = TypeVar("Model", bound=BaseModel)


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
        """The workloads that use GPUs, of all pages; each once, if they move meanwhile."""
        found: dict[tuple[str, ...], wire.Consumer] = {}
        number, seen = 1, 0
        while True:
            params = {"pageNum": str(number), "pageSize": str(page_size)}
            page = self._ask(wire.ConsumerPage, _CONSUMERS, params, retry)
            known = len(found)
            for each in page.data:
                found[each.source, each.uid, each.kind, each.namespace, each.name] = each
            number, seen = number + 1, seen + len(page.data)
            if page.total is None:  # until a page brings nothing new
                is_last = len(found) == known
            else:
                is_last = not page.data or seen >= page.total
            if is_last:
                return list(found.values())

    def heatmap(self, retry: Retry = Retry.SAFE) -> wire.GpuHeatmap:
        """The GPUs with most power, heat and use."""
        return self._ask(wire.GpuHeatmap, _HEATMAP, retry=retry)

    def probe(self) -> Answered:
        """The cheapest look. Raises what is wrong with the address, the token or the way."""
        self._ask(wire.Overview, _OVERVIEW, retry=Retry.NEVER)
        return Answered(self._api.address, self._api.clock_ahead)

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
        text = visible(" ".join(self._errors.redacted(said).split()))[:300]
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
    return f"Lens has it in its logs under traceId {visible(trace_id)[:100]}" if trace_id else None


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
