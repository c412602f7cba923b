"""Call the AIOS clusters registry and its Parser: one method per endpoint, models in and out.

Lifecycles and look-ups get the client from `get_client`. Facts are from the AIOS references
'Clusters registry' and 'Parser'. Neither service needs a key.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
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
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.updates import UpdateRequest
from gpuform.schemas.aios.wire import Document, Filter, find_filter_problems, matches_filter
from gpuform.schemas.safe_text import escape_invisible

if TYPE_CHECKING:
    import httpx

REGISTRY_VARIABLE = "AIOS_REGISTRY_URL"
REGISTRY_CONFIG = "aios:registryUrl"
PARSER_VARIABLE = "AIOS_PARSER_URL"
PARSER_CONFIG = "aios:parserUrl"

Envelope = Literal["raw", "wrapped"]
"""How a query sends its filter: as the body, as documented, or as `query` in the body."""

_CLUSTERS = "/clusters"
_QUERY = "/clusters/query"
_PARSER_CREATE = "/api/createCluster"
_PARSER_HEADER = {"templateUri": "Parser/V1", "parameters": {}}
_PROBE_ID = "gpuform-probe"
_NOT_FOUND_MESSAGE = "Cluster not found"
_MAX_MESSAGE_LENGTH = 300


class InvalidDocument(InvalidRequest):
    """The registry answered 500 to an invalid document; certainly nothing was changed."""

    is_definite = True


class DuplicateId(Conflict):
    """The registry answered 500 to a second record of an id."""

    is_definite = True


class AiosClient:
    """The registry and the Parser at their addresses.

    Safe for many threads. Methods raise only `GpuformError`s.
    """

    def __init__(
        self,
        registry_url: str | None,
        parser_url: str | None,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        self._registry = _Service(registry_url, REGISTRY_VARIABLE, REGISTRY_CONFIG, transport)
        self._parser = _Service(parser_url, PARSER_VARIABLE, PARSER_CONFIG, transport)
        self._lock = threading.Lock()
        self._record_locks: dict[str, threading.Lock] = {}
        self._last_answers: dict[str, wire.Cluster] = {}
        self._shared_listing = Listing(
            lambda: self._query_readable({}),
            self.get_cluster,
            lambda cluster: cluster.id,
            lambda ids: self._query_readable({"id": {"$in": sorted(ids)}}),
        )

    def get_shared_listing(self) -> Listing[wire.Cluster]:
        """Return the Listing of all records, whose readers share requests; sends nothing yet."""
        return self._shared_listing

    @contextmanager
    def lock_record(self, cluster_id: str) -> Iterator[None]:
        """Keep other threads of this process from changing a record during the block.

        Only threads that take this lock wait, and the lock must not be taken twice by one thread.
        """
        with self._lock:
            # A change by position would hit another entry if a thread removed one in between.
            lock = self._record_locks.setdefault(cluster_id, threading.Lock())
        with lock:
            yield

    def get_cluster(self, cluster_id: str) -> wire.Cluster:
        """Request and return the record of a cluster.

        Raises:
            NotFound: there is no such record.
        """
        return self._registry.api.request_model(
            wire.Cluster, "GET", _CLUSTERS + build_path(cluster_id)
        )

    def query_clusters(
        self, mongo_filter: Filter, envelope: Envelope = "raw"
    ) -> Sequence[wire.Cluster]:
        """Return the records which pass a Mongo filter.

        Each record is checked here, too: a registry that expects the other envelope ignores the
        filter and answers with all records.

        Raises:
            ForeignAnswer: the answer, or a matching record in it, has another form.
            GpuformError: the filter has Mongo operators that gpuform cannot check; nothing was
                sent.
        """
        problems = [str(problem) for problem in find_filter_problems(mongo_filter)]
        if problems:
            raise GpuformError("; ".join(problems))
        body = dict(mongo_filter) if envelope == "raw" else {"query": dict(mongo_filter)}
        return [
            _parse_cluster(document)
            for document in self._post_query(body)
            if matches_filter(document, mongo_filter)
        ]

    def create_by_parser(self, document: Document) -> wire.Cluster:
        """Create a record through the Parser, by one request, which is never sent again.

        The returned record is the one in the answer, and stays available from `get_last_answer`.

        Raises:
            InvalidDocument: the document was refused; nothing was created.
            DuplicateId: the registry has a record of this id already.
            ServerError: the Parser failed, maybe with an answer of 200. Nobody knows whether a
                record was created.
            UnknownOutcome: the answer was lost.
        """
        body = {"header": _PARSER_HEADER, "body": {"spec": {"values": document}}}
        with _translate_refusals():
            answer = self._parser.api.request_model(
                wire.Parsed, "POST", _PARSER_CREATE, body=body, retry=Retry.CREATE
            )
            # The Parser reports failures with status 200, too.
            if answer.failure is not None:
                raise _build_parser_error(answer.failure)
        return self._remember_answer(_parse_cluster(answer.result, "POST", _PARSER_CREATE))

    def create_directly(self, document: Document) -> wire.Cluster:
        """Create a record directly in the registry, by one request, which is never sent again.

        The returned record is the one in the answer, and stays available from `get_last_answer`.

        Raises:
            InvalidDocument: the document was refused; nothing was created.
            DuplicateId: the registry has a record of this id already.
            UnknownOutcome: the answer was lost.
        """
        with _translate_refusals():
            record = self._registry.api.request_model(
                wire.Cluster, "POST", _CLUSTERS, body=document, retry=Retry.CREATE
            )
        return self._remember_answer(record)

    def update_cluster(self, cluster_id: str, request: UpdateRequest) -> wire.Cluster:
        """Apply a Mongo update, and return the record from the registry's answer.

        The record stays available from `get_last_answer`. A request whose repetition could have
        another effect is sent once.

        Raises:
            NotFound: there is no such record.
            InvalidDocument: the registry refuses the updated record.
            UnknownOutcome: the answer was lost.
        """
        retry = Retry.SAFE if request.is_repeatable else Retry.CREATE
        with _translate_refusals():
            record = self._registry.api.request_model(
                wire.Cluster,
                "PUT",
                _CLUSTERS + build_path(cluster_id),
                body=request.body,
                retry=retry,
            )
        return self._remember_answer(record)

    def _remember_answer(self, record: wire.Cluster) -> wire.Cluster:
        """Keep a record for `get_last_answer`, and return it."""
        self._last_answers[record.id] = record
        return record

    def get_last_answer(self, cluster_id: str) -> wire.Cluster | None:
        """Return the record in the answer to this process's last create or update, or None.

        None without such a write, and after `delete_cluster`. Sends no request.
        """
        return self._last_answers.get(cluster_id)

    def delete_cluster(self, cluster_id: str) -> None:
        """Delete a record; the hardware stays.

        Raises:
            NotFound: there is no such record.
        """
        # Before the request: its answer may be lost, and the record gone all the same.
        self._last_answers.pop(cluster_id, None)
        self._registry.api.request_model(wire.Deleted, "DELETE", _CLUSTERS + build_path(cluster_id))

    def _query_readable(self, mongo_filter: Filter) -> list[wire.Cluster]:
        """Return the registry's records for a filter, without unreadable records.

        One unreadable record must not hide the others: a request for that record alone raises the
        error. Whether a record matches the filter is not checked here.

        Raises:
            ForeignAnswer: the answer is no list of records.
        """
        clusters, documents = [], self._post_query(mongo_filter)
        # A list without any id is no list of records, but the answer of another service.
        if documents and not any(
            isinstance(document, dict) and document.get("id") for document in documents
        ):
            _raise_unexpected_form("POST", _QUERY)  # a list of something else
        for document in documents:
            with suppress(ValidationError):
                clusters.append(wire.Cluster.model_validate(document))
        return clusters

    def _post_query(self, body: Mapping[str, object]) -> list[object]:
        """Send a query and return the listed documents.

        Raises ForeignAnswer if there is no list.
        """
        answer = self._registry.api.request("POST", _QUERY, body=body, retry=Retry.SAFE)
        if not isinstance(answer, list):
            _raise_unexpected_form("POST", _QUERY)
        return answer

    @property
    def has_parser(self) -> bool:
        """Return True if an address of the Parser is configured.

        Without the Parser, records can be created directly in the registry.
        """
        return bool(self._parser.url)

    @property
    def clock_ahead(self) -> float | None:
        """Return this machine's clock minus the registry's in seconds, None before an answer."""
        return self._registry.api.clock_ahead

    def send_probe(self) -> ProbeAnswer:
        """Query a record which nobody has, and check that the Parser answers if it is configured.

        Any answer of the Parser will do, also an error.

        Raises:
            GpuformError: an address or the connection is wrong.
        """
        answered = send_probe(self._registry.api, "POST", _QUERY, body={"id": _PROBE_ID})
        if self.has_parser:
            # Any answer says that it is there, and so does a connection that is closed without one:
            # the path is documented for POST alone.
            with suppress(ApiError, UnknownOutcome):
                send_probe(self._parser.api, "GET", _PARSER_CREATE)
        return answered

    def close(self) -> None:
        """Close the connections; the client may be used again."""
        for service in (self._registry, self._parser):
            service.api.close()


class _Service:
    """One of the two services; a missing address is an error only when a request is sent."""

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
                # Only the registry's own 404 says that a record is missing: a proxy's has another
                # body.
                says_gone=lambda body: body.get("error") == _NOT_FOUND_MESSAGE,
            ),
            headers=self._build_headers,
            looks=(_QUERY,),
            transport=transport,
        )

    def _build_headers(self) -> Mapping[str, str]:
        """Return the headers of a request.

        Raises MissingCredentials if no address is configured.
        """
        if not self.url:
            raise MissingCredentials(
                f"the address of the AIOS service is missing. Set {self._variable}",
                hint=f"or store it with the stack: gpuform config set {self._config_key} URL",
                page="start/aios",
            )
        return {"Accept": "application/json"}


@contextmanager
def _translate_refusals() -> Iterator[None]:
    """Raise DuplicateId or InvalidDocument for a ServerError with MongoDB's refusal as text.

    DuplicateId is raised for a second record of an id, InvalidDocument for a refused document. The
    services answer them with 500, like any failure of their own; other errors pass unchanged.
    """
    try:
        yield
    except ServerError as error:
        error_type: type[InvalidDocument | DuplicateId]
        # MongoDB's words for a second document with a unique id.
        if "duplicate key" in error.message:
            error_type = DuplicateId
        # Mongoose's words for a document that its schema refuses.
        elif "validation failed" in error.message or "Cast to " in error.message:
            error_type = InvalidDocument
        else:
            raise
        raise error_type(
            error.message, method=error.method, path=error.path, status=error.status
        ) from None


def _build_parser_error(failure: str) -> ServerError:
    """Return the error of a failed Parser; whether a record was created is unknown.

    The Parser's text is escaped, and cut to `_MAX_MESSAGE_LENGTH` characters.
    """
    message = escape_invisible(" ".join(failure.split()))[:_MAX_MESSAGE_LENGTH]
    suffix = f": {message}" if message else ""
    return ServerError(
        f"aios: POST {_PARSER_CREATE} answered 200 with a failure{suffix}",
        method="POST",
        path=_PARSER_CREATE,
        status=200,
    )


def _parse_cluster(document: object, method: str = "POST", path: str = _QUERY) -> wire.Cluster:
    """Parse a document of an answer into a record.

    Raises ForeignAnswer, with method and path, for another form.
    """
    try:
        return wire.Cluster.model_validate(document)
    except ValidationError:
        _raise_unexpected_form(method, path)


def _raise_unexpected_form(method: str, path: str) -> NoReturn:
    """Raise ForeignAnswer: the answer to this request has another form than documented."""
    raise ForeignAnswer(
        f"aios: {method} {path} answered in an unexpected form",
        method=method,
        path=path,
        status=200,
        hint="gpuform ignored the answer: check the addresses of the registry and its Parser, and "
        "the proxy on the way",
    )


_clients: Clients[AiosClient] = Clients()


def get_client(settings: Settings) -> AiosClient:
    """Return the client for the addresses in `settings`, one per process and pair of addresses.

    A missing address is an error only when a request is sent there.
    """
    registry = _normalize_url(settings.get_value(REGISTRY_VARIABLE, REGISTRY_CONFIG))
    parser = _normalize_url(settings.get_value(PARSER_VARIABLE, PARSER_CONFIG))
    make = partial(AiosClient, registry, parser)
    return _clients.get((registry, parser), registry or parser, make)


def get_base_url(settings: Settings) -> str | None:
    """Return the address of the registry, which has the records; None if none is configured."""
    return _normalize_url(settings.get_value(REGISTRY_VARIABLE, REGISTRY_CONFIG))


def _normalize_url(value: str | None) -> str | None:
    """Return a URL without slashes at its end; None for an empty one."""
    return value.rstrip("/") if value else None
