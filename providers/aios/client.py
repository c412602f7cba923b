"""The clusters registry and its Parser: one method per endpoint, models in and out.

Facts are from the AIOS references 'Clusters registry' and 'Parser'. Neither asks for a key.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from pydantic import ValidationError

from gpuform.providers.errors import (
    ApiError,
    Conflict,
    ForeignAnswer,
    GpuformError,
    InvalidRequest,
    MissingCredentials,
    ServerError,
    UnknownOutcome,
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
)
from gpuform.providers.operations import Settings
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import Document
from gpuform.schemas.aios.filters import Filter, find_filter_problems, matches
from gpuform.schemas.aios.updates import UpdateRequest
from gpuform.schemas.safe_text import escape_invisible

if TYPE_CHECKING:
    import httpx

REGISTRY_VARIABLE = "AIOS_REGISTRY_URL"
REGISTRY_CONFIG = "aios:registryUrl"
PARSER_VARIABLE = "AIOS_PARSER_URL"
PARSER_CONFIG = "aios:parserUrl"

Envelope = Literal["raw", "wrapped"]
"""How a query's filter is sent: as the body, which is documented, or as the body's `query`."""

_CLUSTERS = "/clusters"
_QUERY = "/clusters/query"
_PARSER_CREATE = "/api/createCluster"
_HEADER = {"templateUri": "Parser/V1", "parameters": {}}
_NOBODY = "gpuform-probe"
_NO_RECORD = "Cluster not found"
_LONGEST_MESSAGE = 300


class Refused(InvalidRequest):
    """The registry answers 500 to what is not valid: certainly nothing was changed."""

    is_definite = True


class Duplicate(Conflict):
    """The registry answers 500 to a second record of an id."""

    is_definite = True


class AiosClient:
    """The two services at their addresses; safe for many threads. Raises `GpuformError`s only."""

    def __init__(
        self,
        registry_url: str | None,
        parser_url: str | None,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        self._registry = _Service(registry_url, REGISTRY_VARIABLE, REGISTRY_CONFIG, transport)
        self._parser = _Service(parser_url, PARSER_VARIABLE, PARSER_CONFIG, transport)
        self._lock = threading.Lock()
        self._edits: dict[str, threading.Lock] = {}
        self._answered: dict[str, wire.Cluster] = {}
        self._shared = Listing(
            lambda: self._readable({}), self.cluster, lambda each: each.id, self._some
        )

    def shared_clusters(self) -> Listing[wire.Cluster]:
        """The records for readers that may share their requests."""
        return self._shared

    @contextmanager
    def editing(self, cluster_id: str) -> Iterator[None]:
        """Alone among this process's threads with a record: for changes by an entry's place."""
        with self._lock:
            lock = self._edits.setdefault(cluster_id, threading.Lock())
        with lock:
            yield

    def cluster(self, cluster_id: str) -> wire.Cluster:
        """One record; NotFound when there is none."""
        return self._registry.api.ask(wire.Cluster, "GET", _CLUSTERS + at(cluster_id))

    def query(self, wanted: Filter, envelope: Envelope = "raw") -> Sequence[wire.Cluster]:
        """The records that pass a Mongo filter.

        Each is checked here, too: a registry that wants the other envelope takes a raw filter for
        none, and answers with all that it has. Raises GpuformError for operators that cannot be
        checked.
        """
        problems = [str(problem) for problem in find_filter_problems(wanted)]
        if problems:
            raise GpuformError("; ".join(problems))
        body = dict(wanted) if envelope == "raw" else {"query": dict(wanted)}
        return [_cluster(each) for each in self._asked(body) if matches(each, wanted)]

    def create_by_parser(self, document: Document) -> wire.Cluster:
        """Sent once. An answer of 200 may carry a failure, which is one."""
        body = {"header": _HEADER, "body": {"spec": {"values": document}}}
        with _refusals():
            answer = self._parser.api.ask(
                wire.Parsed, "POST", _PARSER_CREATE, body=body, retry=Retry.CREATE
            )
            if answer.failure is not None:
                raise _failed(answer.failure)
        return self._keep(_cluster(answer.result, "POST", _PARSER_CREATE))

    def create_directly(self, document: Document) -> wire.Cluster:
        """Sent once, to the registry itself."""
        with _refusals():
            record = self._registry.api.ask(
                wire.Cluster, "POST", _CLUSTERS, body=document, retry=Retry.CREATE
            )
        return self._keep(record)

    def update(self, cluster_id: str, request: UpdateRequest) -> wire.Cluster:
        """Apply a Mongo update, and return the record as the registry answers it right after.

        A request whose repetition could have another effect is sent once.
        """
        retry = Retry.SAFE if request.is_repeatable else Retry.CREATE
        with _refusals():
            record = self._registry.api.ask(
                wire.Cluster, "PUT", _CLUSTERS + at(cluster_id), body=request.body, retry=retry
            )
        return self._keep(record)

    def _keep(self, record: wire.Cluster) -> wire.Cluster:
        self._answered[record.id] = record
        return record

    def last_answered(self, cluster_id: str) -> wire.Cluster | None:
        """Return the record as the last write of this process has left it, if there was one."""
        return self._answered.get(cluster_id)

    def delete(self, cluster_id: str) -> None:
        """Deletes a record; NotFound when there is none. It does not touch any hardware."""
        self._answered.pop(cluster_id, None)
        self._registry.api.ask(wire.Deleted, "DELETE", _CLUSTERS + at(cluster_id))

    def _some(self, ids: Collection[str]) -> list[wire.Cluster]:
        return self._readable({"id": {"$in": sorted(ids)}})

    def _readable(self, wanted: Filter) -> list[wire.Cluster]:
        """The records but those that cannot be read, which are looked at alone by who wants one."""
        found, answer = [], self._asked(wanted)
        if answer and not any(isinstance(each, dict) and each.get("id") for each in answer):
            _not_understood("POST", _QUERY)  # a list of something else
        for each in answer:
            with suppress(ValidationError):
                found.append(wire.Cluster.model_validate(each))
        return found

    def _asked(self, body: Mapping[str, object]) -> list[object]:
        answer = self._registry.api.request("POST", _QUERY, body=body, retry=Retry.SAFE)
        if not isinstance(answer, list):
            _not_understood("POST", _QUERY)
        return answer

    @property
    def has_parser(self) -> bool:
        """Whether an address of the Parser is configured; records can be made without one."""
        return bool(self._parser.url)

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of the registry's, in seconds; None: not told."""
        return self._registry.api.clock_ahead

    def probe(self) -> Answered:
        """A look for a record that nobody has, and at the Parser, which can only be written to.

        Raises what is wrong with the addresses or the way.
        """
        answered = ask_once(self._registry.api, "POST", _QUERY, body={"id": _NOBODY})
        if self.has_parser:
            # Any answer says that it is there, and so does a connection that is closed without one:
            # the path is documented for POST alone.
            with suppress(ApiError, UnknownOutcome):
                ask_once(self._parser.api, "GET", _PARSER_CREATE)
        return answered

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        for service in (self._registry, self._parser):
            service.api.close()


class _Service:
    """One of the two, whose address is asked for when it is used."""

    def __init__(
        self,
        url: str | None,
        variable: str,
        config_key: str,
        transport: "httpx.BaseTransport | None",
    ) -> None:
        self.url, self._variable, self._config_key = url, variable, config_key
        self.api = ApiClient(
            url or "",
            errors=ErrorAnswers(
                "aios",
                page="start/aios",
                secrets=(url,) if url else (),
                says_gone=lambda body: body.get("error") == _NO_RECORD,
            ),
            headers=self._headers,
            looks=(_QUERY,),
            transport=transport,
        )

    def _headers(self) -> Mapping[str, str]:
        if not self.url:
            raise MissingCredentials(
                f"there is no address of the AIOS service: set {self._variable}",
                hint=f"or store it with the stack: gpuform config set {self._config_key} URL",
                page="start/aios",
            )
        return {"Accept": "application/json"}


@contextmanager
def _refusals() -> Iterator[None]:
    """Mongoose's refusals, which the services answer with 500 like any failure."""
    try:
        yield
    except ServerError as error:
        kind: type[Refused | Duplicate]
        if "duplicate key" in error.message:
            kind = Duplicate
        elif "validation failed" in error.message or "Cast to " in error.message:
            kind = Refused
        else:
            raise
        raise kind(
            error.message, method=error.method, path=error.path, status=error.status
        ) from None


def _failed(told: str) -> ServerError:
    """Whether anything was made before it failed is not known."""
    text = escape_invisible(" ".join(told.split()))[:_LONGEST_MESSAGE]
    said = f": {text}" if text else ""
    return ServerError(
        f"aios: POST {_PARSER_CREATE} answered 200 with a failure{said}",
        method="POST",
        path=_PARSER_CREATE,
        status=200,
    )


def _cluster(found: object, method: str = "POST", path: str = _QUERY) -> wire.Cluster:
    try:
        return wire.Cluster.model_validate(found)
    except ValidationError:
        _not_understood(method, path)


def _not_understood(method: str, path: str) -> NoReturn:
    raise ForeignAnswer(
        f"aios: {method} {path} answered in an unexpected form",
        method=method,
        path=path,
        status=200,
        hint="nothing was taken from it: check the addresses of the registry and its Parser, and "
        "the proxy on the way",
    )


_clients: Clients[AiosClient] = Clients()


def client_for(settings: Settings) -> AiosClient:
    """The client of these settings: one per process and addresses."""
    registry = _url(settings.value(REGISTRY_VARIABLE, REGISTRY_CONFIG))
    parser = _url(settings.value(PARSER_VARIABLE, PARSER_CONFIG))
    make = partial(AiosClient, registry, parser)
    return _clients.get((registry, parser), registry or parser, make)


def address(settings: Settings) -> str | None:
    """The address of the registry, which has the records; None where none is configured."""
    return _url(settings.value(REGISTRY_VARIABLE, REGISTRY_CONFIG))


def _url(value: str | None) -> str | None:
    return value.rstrip("/") if value else None
