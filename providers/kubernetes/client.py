"""Send requests to one cluster's Kubernetes API, with the retries and errors of all clients.

Schedulers, volume claims and the Cluster Readiness Engine get theirs from `get_kubernetes_client`.
"""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuform.providers.context import find_mounted_transport, get_run_context, get_trust
from gpuform.providers.errors import ApiError, Conflict, ServerError
from gpuform.providers.http import ApiClient, ErrorAnswers, Listing, Retry, build_path
from gpuform.providers.kubernetes.kubeconfig import KubernetesAccess, load_access

if TYPE_CHECKING:
    import httpx

Model = TypeVar("Model", bound=BaseModel)

KubernetesObject = Mapping[str, Any]
"""An object of the API: JSON with apiVersion, kind and metadata."""

_MAX_CONFLICTS = 20
"""How often a change is sent in all while other writers come in between."""
_MAX_READS = 3
"""How often a list is read again that changes between its pages, or whose pages expire."""
_MERGE_PATCH_TYPE = "application/merge-patch+json"
_HINTS = {
    401: "the cluster has a new credential: run `gpuform refresh` to fetch it",
    403: "the cluster's credential lacks the permission: ask the administrator of the cluster",
}


class KubernetesClient:
    """The API of one cluster.

    Safe for many threads. Every method raises only GpuformErrors, which name the cluster.
    """

    def __init__(
        self,
        access: KubernetesAccess,
        cluster: str,
        secrets: tuple[str, ...] = (),
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        if transport is None:
            transport = _create_transport(access)
            # Clients stay in a cache without a known end: the connections close when the client is
            # collected.
            weakref.finalize(self, transport.close)  # nobody says when it is used no more
        self._api = ApiClient(
            access.server,
            errors=ErrorAnswers(
                f"Kubernetes of cluster {cluster}",
                secrets=(*access.secrets, *secrets),
                hints=_HINTS,
                page="guides/access",
                says_gone=_is_object_not_found,
            ),
            headers=access.headers,
            sign=partial(_complete_request, tls_server_name=access.tls_server_name),
            transport=transport,
        )
        self.server = access.server
        self._lock = threading.Lock()
        self._shared: dict[str, Listing[KubernetesObject]] = {}

    def get_object(self, path: str) -> KubernetesObject:
        """Return the object at `path`.

        Raises:
            NotFound: there is no such object.
        """
        return self._request("GET", path)

    def list_objects(
        self, path: str, *, retry: Retry = Retry.SAFE, **params: str
    ) -> "tuple[KubernetesObject, ...]":
        """Return every object of the list at `path`, from all pages.

        Each object has a `metadata.name`, and no two have the same namespace and name. A list whose
        pages do not fit together, or whose continue token expires, is read three times at most.

        Raises:
            ForeignAnswer: the answer is no list of this kind, or stays incomplete.
        """
        incomplete_reason = ""
        for _ in range(_MAX_READS):
            reader = _ListReader()
            try:
                while reader.has_more:
                    page_params = {**params, **reader.next_page_params}
                    answer = self._request("GET", path, params=page_params, retry=retry)
                    # Another kind with status 200 is a foreign answer, not an empty list.
                    if not _is_list_of(path, answer["kind"]):
                        raise self._api.build_form_error("GET", path, "kind")
                    reader.add_page(answer)
            except _MalformedPage as error:
                raise self._api.build_form_error("GET", path, str(error)) from None
            except _IncompleteList as error:
                incomplete_reason = str(error)
            except ApiError as error:
                # etcd compacts old versions: 410 ends a continue token, and only a new first page
                # helps.
                if error.status != HTTPStatus.GONE or not reader.next_page_params:
                    raise
                incomplete_reason = "its continue token has expired"
            else:
                return tuple(reader.objects.values())
        raise self._api.build_form_error(
            "GET", path, f"incomplete after {_MAX_READS} readings: {incomplete_reason}"
        )

    def get_shared_listing(self, path: str) -> Listing[KubernetesObject]:
        """Return the Listing of the collection at `path`, one per path; sends nothing yet.

        Readers of a Listing share requests. Its ids are the objects' names.
        """
        with self._lock:
            # One listing for each path, so that all threads share its requests.
            if path not in self._shared:
                self._shared[path] = Listing(
                    lambda: self.list_objects(path),
                    lambda name: self.get_object(path + build_path(name)),
                    lambda listed_object: self._require_name(path, listed_object),
                )
            return self._shared[path]

    def _require_name(self, path: str, listed_object: Any) -> str:
        """Return the name of a listed object. Raises ForeignAnswer if the object has none."""
        metadata = listed_object.get("metadata") if isinstance(listed_object, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str):
            raise self._api.build_form_error("GET", path, "metadata.name")
        return name

    def create_object(self, path: str, body: KubernetesObject) -> KubernetesObject:
        """Create an object by one request, which is never sent again.

        Raises:
            UnknownOutcome: the answer was lost.
        """
        return self._request("POST", path, body=body, retry=Retry.CREATE)

    def patch_object(self, path: str, body: KubernetesObject) -> KubernetesObject:
        """Apply a merge patch to an object, and return the patched object.

        Raises:
            NotFound: there is no such object.
            Conflict: the body has `metadata.resourceVersion`, and the object has another one.
        """
        return self._request("PATCH", path, body=body)

    def delete_object(self, path: str, body: KubernetesObject) -> None:
        """Begin to delete an object, without waiting for its end; `body` is a DeleteOptions.

        Raises:
            NotFound: there is no such object.
            Conflict: the object is another one than the preconditions of `body` name.
        """
        self._request("DELETE", path, body=body)

    def close(self) -> None:
        """Close the connections; the client may be used again."""
        self._api.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: KubernetesObject | None = None,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> KubernetesObject:
        """Send a request and return the object in the answer.

        Raises:
            ForeignAnswer: the answer is no object with a kind.
            GpuformError: the errors of `ApiClient.request`.
        """
        answer = self._api.request(method, path, body=body, params=params, retry=retry)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("kind"), str):
            raise self._api.build_form_error(method, path, "kind")
        return answer


class _MalformedPage(Exception):
    """A page is not a list; the message is the path of the wrong field."""


class _IncompleteList(Exception):
    """Pages do not belong together, or do not add up to the whole list."""


class _ListReader:
    """Collects one list from its first page to the last.

    All pages show the resourceVersion of the first one (Kubernetes API concepts, 'Retrieving large
    results sets in chunks').
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], KubernetesObject] = {}
        self.has_more = True
        self.next_page_params: Mapping[str, str] = {}
        self._used_tokens: set[str] = set()
        self._version: object = None
        self._announced_count = 0
        """The most objects that a page has announced, itself and those before it included."""

    def add_page(self, page: KubernetesObject) -> None:
        """Add the objects of the next page.

        Raises:
            _MalformedPage: `page` is not a list.
            _IncompleteList: `page` does not continue the pages before.
        """
        metadata, items = page.get("metadata") or {}, page.get("items")
        if "items" not in page or not isinstance(items, list | None):  # null where there are none
            raise _MalformedPage("items")
        if not isinstance(metadata, Mapping):
            raise _MalformedPage("metadata")
        version = metadata.get("resourceVersion")
        # Pages of another version may miss an object, or have it twice.
        if self.next_page_params and version != self._version:
            raise _IncompleteList("its pages are from different moments")
        self._version = version
        for item in items or ():
            self._add_object(item, str(page["kind"]).removesuffix("List"))
        self._read_position(metadata)

    def _add_object(self, item: Any, kind: str) -> None:
        """Add one object of a page to the collected Kubernetes list.

        Raises:
            _MalformedPage: the object has no name, or another kind.
            _IncompleteList: the list has the object already.
        """
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
            raise _MalformedPage("items.metadata.name")
        if item.get("kind", kind) != kind:
            raise _MalformedPage("items.kind")
        key = (str(metadata.get("namespace") or ""), name)
        if key in self.objects:
            raise _IncompleteList(f"it shows {name} twice")
        self.objects[key] = item

    def _read_position(self, metadata: Mapping[str, Any]) -> None:
        """Set from a page's metadata whether more pages follow, and the parameters of the next one.

        Raises:
            _MalformedPage: the metadata has another form.
            _IncompleteList: a continue token comes again, or fewer objects came than announced.
        """
        token, remaining = metadata.get("continue") or "", metadata.get("remainingItemCount") or 0
        if not isinstance(token, str):
            raise _MalformedPage("metadata.continue")
        if isinstance(remaining, bool) or not isinstance(remaining, int) or remaining < 0:
            raise _MalformedPage("metadata.remainingItemCount")
        # A list that is shorter than announced has lost a page on the way.
        self._announced_count = max(self._announced_count, len(self.objects) + remaining)
        # A token that comes back would make the client read the same pages for ever.
        if token in self._used_tokens:
            raise _IncompleteList("it returns the same continue token again")
        self.has_more, self.next_page_params = bool(token), {"continue": token}
        self._used_tokens.add(token)
        if not token and len(self.objects) < self._announced_count:
            raise _IncompleteList(
                f"it ends after {len(self.objects)} of {self._announced_count} objects"
            )


def _is_list_of(path: str, kind: object) -> bool:
    """Return True if `kind` is the kind of lists at `path`, by the rules for plurals."""
    resource, kind_name = path.rpartition("/")[2], str(kind)
    singular = kind_name.removesuffix("List").lower()
    plural = f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
    return kind_name.endswith("List") and resource in (plural, f"{singular}es")


def _is_object_not_found(body: KubernetesObject) -> bool:
    """Return True if an answer reports a missing object, not an unknown path."""
    details = body.get("details")
    is_failure = (body.get("kind"), body.get("reason")) == ("Status", "NotFound")
    return is_failure and isinstance(details, Mapping) and bool(details.get("name"))


def retry_on_conflict(change: Callable[[], None]) -> None:
    """Call `change`, which reads and then writes, until no other writer comes in between.

    Raises:
        Conflict: others wrote in between each of 20 calls.
    """
    for _ in range(_MAX_CONFLICTS - 1):
        try:
            change()
        except Conflict:
            continue
        return
    change()


def get_kubernetes_client(
    kubeconfig: str, cluster: str, secrets: tuple[str, ...] = ()
) -> KubernetesClient:
    """Return the client of a kubeconfig: one per process, to keep connections.

    No request is sent.

    Args:
        kubeconfig: YAML.
        cluster: the cluster's name for messages.
        secrets: further secrets that no message may contain.

    Raises:
        MissingCredentials: the kubeconfig cannot be used; see `load_access`.
    """
    access = _load_access(kubeconfig, cluster)
    return _create_client(access, cluster, secrets, find_mounted_transport(access.server))


def parse_object(model: type[Model], body: KubernetesObject, path: str) -> Model:
    """Parse the answer to a GET of `path`. Raises ServerError for an answer of another form."""
    try:
        return model.model_validate(body)
    except ValidationError:
        raise ServerError(
            f"Kubernetes: GET {path} answered in an unexpected form",
            method="GET",
            path=path,
            status=200,
        ) from None


_load_access = lru_cache(maxsize=256)(load_access)
_create_client = lru_cache(maxsize=256)(KubernetesClient)


def _complete_request(request: "httpx.Request", *, tls_server_name: str | None) -> "httpx.Request":
    """Set a PATCH's content type to merge patch, and the server's name for TLS.

    Without a `tls_server_name` the certificate has to be for the host of the URL.
    """
    if tls_server_name:
        request.extensions["sni_hostname"] = tls_server_name
    if request.method == "PATCH":
        request.headers["Content-Type"] = _MERGE_PATCH_TYPE
    return request


def _create_transport(access: KubernetesAccess) -> "httpx.BaseTransport":
    """Return a transport which trusts the kubeconfig's authority, or this machine's without one."""
    import httpx  # noqa: PLC0415 - only who sends requests pays for it

    environ = get_run_context().environ
    return httpx.HTTPTransport(verify=access.tls or get_trust(access.server, environ))
