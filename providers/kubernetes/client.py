"""One cluster's Kubernetes API: requests with the same retries and errors as everywhere."""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from gpuform.providers.context import find_mounted_transport, get_trust
from gpuform.providers.errors import ApiError, Conflict
from gpuform.providers.http import ApiClient, ErrorAnswers, Listing, Retry, at
from gpuform.providers.kubernetes.kubeconfig import Access, access_by

if TYPE_CHECKING:
    import httpx

Object = Mapping[str, Any]
"""What the API speaks: JSON with apiVersion, kind and metadata."""

_CONFLICTS = 20
_READINGS = 3
"""How often a list is read that changes while its pages are read, or whose pages expire."""
_PATCH = "application/merge-patch+json"
_HINTS = {
    401: "the cluster's credential was changed: refresh (`gpuform refresh`) to fetch the new one",
    403: "the cluster's credential may not do this: ask who administers the cluster",
}


class KubernetesClient:
    """Safe for many threads. Every method raises GpuformErrors only, which name the cluster."""

    def __init__(
        self,
        access: Access,
        cluster: str,
        secrets: tuple[str, ...] = (),
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        if transport is None:
            transport = _transport(access)
            weakref.finalize(self, transport.close)  # nobody says when it is used no more
        self._api = ApiClient(
            access.server,
            errors=ErrorAnswers(
                f"Kubernetes of cluster {cluster}",
                secrets=(*access.secrets, *secrets),
                hints=_HINTS,
                page="guides/access",
                says_gone=_says_gone,
            ),
            headers=access.headers,
            sign=_with_patch_type,
            transport=transport,
        )
        self.server = access.server
        self._lock = threading.Lock()
        self._shared: dict[str, Listing[Object]] = {}

    def get(self, path: str) -> Object:
        """One object; NotFound when it is not there."""
        return self._asked("GET", path)

    def list(self, path: str, **params: str) -> "tuple[Object, ...]":
        """Return every object of the list at `path`, of all its pages.

        Each object has a `metadata.name`, and no two have the same namespace and name. Raises
        ForeignAnswer for a list of another kind, and for one that stays incomplete.
        """
        return self._list(path, params, Retry.SAFE)

    def list_once(self, path: str) -> "tuple[Object, ...]":
        """Return the same as `list`; a request without an answer is not sent again."""
        return self._list(path, {}, Retry.NEVER)

    def _list(self, path: str, params: Mapping[str, str], retry: Retry) -> "tuple[Object, ...]":
        gap = ""
        for _ in range(_READINGS):
            reading = _ListReading()
            try:
                while reading.has_more:
                    asked = {**params, **reading.position}
                    answer = self._asked("GET", path, params=asked, retry=retry)
                    if not _is_list_of(path, answer["kind"]):
                        raise self._api.not_understood("GET", path, "kind")
                    reading.add(answer)
            except _Malformed as error:
                raise self._api.not_understood("GET", path, str(error)) from None
            except _Incomplete as error:
                gap = str(error)
            except ApiError as error:
                if error.status != HTTPStatus.GONE or not reading.position:
                    raise
                gap = "its continue token has expired"
            else:
                return tuple(reading.objects.values())
        raise self._api.not_understood("GET", path, f"incomplete after {_READINGS} readings: {gap}")

    def shared(self, folder: str) -> Listing[Object]:
        """The objects of a folder for readers that may share their requests, by their names."""
        with self._lock:
            if folder not in self._shared:
                self._shared[folder] = Listing(
                    lambda: self.list(folder),
                    lambda name: self.get(folder + at(name)),
                    lambda each: self._name_of(folder, each),
                )
            return self._shared[folder]

    def _name_of(self, folder: str, each: Any) -> str:
        metadata = each.get("metadata") if isinstance(each, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str):
            raise self._api.not_understood("GET", folder, "metadata.name")
        return name

    def create(self, path: str, body: Object) -> Object:
        """Sent once: an answer that is lost is an UnknownOutcome."""
        return self._asked("POST", path, body=body, retry=Retry.CREATE)

    def patch(self, path: str, body: Object) -> Object:
        """A merge patch. With `metadata.resourceVersion` in it, Conflict when that has changed."""
        return self._asked("PATCH", path, body=body)

    def delete(self, path: str, body: Object) -> None:
        """Begins the deletion; NotFound when it is gone, Conflict for another than meant."""
        self._asked("DELETE", path, body=body)

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._api.close()

    def _asked(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        params: Mapping[str, str] | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Object:
        answer = self._api.request(method, path, body=body, params=params, retry=retry)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("kind"), str):
            raise self._api.not_understood(method, path, "kind")
        return answer


class _Malformed(Exception):
    """A page that has not the form of a list."""


class _Incomplete(Exception):
    """Pages that do not belong together, or do not add up to the whole list."""


class _ListReading:
    """One reading of a list from its first page to its last (API concepts, 'Retrieving large
    results sets in chunks'): all pages show the resourceVersion of the first one.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.has_more = True
        self.position: Mapping[str, str] = {}
        self._tokens: set[str] = set()
        self._version: object = None
        self._announced = 0
        """The most objects that a page has announced, itself and those before it included."""

    def add(self, page: Object) -> None:
        """Take in the next page. Raises _Malformed and _Incomplete."""
        metadata, items = page.get("metadata") or {}, page.get("items")
        if "items" not in page or not isinstance(items, list | None):  # null where there are none
            raise _Malformed("items")
        if not isinstance(metadata, Mapping):
            raise _Malformed("metadata")
        version = metadata.get("resourceVersion")
        if self.position and version != self._version:
            raise _Incomplete("its pages are of different moments")
        self._version = version
        for item in items or ():
            self._add_object(item, str(page["kind"]).removesuffix("List"))
        self._turn_page(metadata)

    def _add_object(self, item: Any, kind: str) -> None:
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
            raise _Malformed("items.metadata.name")
        if item.get("kind", kind) != kind:
            raise _Malformed("items.kind")
        key = (str(metadata.get("namespace") or ""), name)
        if key in self.objects:
            raise _Incomplete(f"it shows {name} twice")
        self.objects[key] = item

    def _turn_page(self, metadata: Mapping[str, Any]) -> None:
        token, remaining = metadata.get("continue") or "", metadata.get("remainingItemCount") or 0
        if not isinstance(token, str):
            raise _Malformed("metadata.continue")
        if isinstance(remaining, bool) or not isinstance(remaining, int) or remaining < 0:
            raise _Malformed("metadata.remainingItemCount")
        self._announced = max(self._announced, len(self.objects) + remaining)
        if token in self._tokens:
            raise _Incomplete("it gives the same continue token again")
        self.has_more, self.position = bool(token), {"continue": token}
        self._tokens.add(token)
        if not token and len(self.objects) < self._announced:
            raise _Incomplete(f"it ends after {len(self.objects)} of {self._announced} objects")


def _is_list_of(path: str, kind: object) -> bool:
    """Whether `kind` is the kind of lists at `path`, as Kubernetes forms plurals of kinds."""
    resource, name = path.rpartition("/")[2], str(kind)
    singular = name.removesuffix("List").lower()
    plural = f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
    return name.endswith("List") and resource in (plural, f"{singular}es")


def _says_gone(body: Object) -> bool:
    """Whether it is a Status about an object of a name, not about a path that nobody serves."""
    details = body.get("details")
    is_failure = (body.get("kind"), body.get("reason")) == ("Status", "NotFound")
    return is_failure and isinstance(details, Mapping) and bool(details.get("name"))


def until_no_conflict(change: Callable[[], None]) -> None:
    """Runs `change`, which looks and then writes, again while others write in between."""
    for _ in range(_CONFLICTS - 1):
        try:
            change()
        except Conflict:
            continue
        return
    change()


def client_by(kubeconfig: str, cluster: str, secrets: tuple[str, ...] = ()) -> KubernetesClient:
    """The client of a kubeconfig (YAML): one per process, so that connections are kept.

    `cluster` is what people call it; `secrets` are others that no message may contain.
    """
    access = _access(kubeconfig, cluster)
    return _client(access, cluster, secrets, find_mounted_transport(access.server))


_access = lru_cache(maxsize=256)(access_by)
_client = lru_cache(maxsize=256)(KubernetesClient)


def _with_patch_type(request: "httpx.Request") -> "httpx.Request":
    if request.method == "PATCH":
        request.headers["Content-Type"] = _PATCH
    return request


def _transport(access: Access) -> "httpx.BaseTransport":
    import httpx  # noqa: PLC0415 - only who sends requests pays for it

    return httpx.HTTPTransport(verify=access.tls or get_trust(access.server))
