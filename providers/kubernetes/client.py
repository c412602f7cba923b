"""One cluster's Kubernetes API: requests with the same retries and errors as everywhere."""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpuform.providers.calls import mounted
from gpuform.providers.errors import Conflict
from gpuform.providers.http import ApiClient, ErrorAnswers, Listing, Retry, at
from gpuform.providers.kubernetes.kubeconfig import Access, access_by

if TYPE_CHECKING:
    import httpx

Object = Mapping[str, Any]
"""What the API speaks: JSON with apiVersion, kind and metadata."""

_CONFLICTS = 20
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
        """All objects of a list, in one request."""
        return self._items(path, self._asked("GET", path, params=params))

    def list_once(self, path: str) -> "tuple[Object, ...]":
        """The same; what is not answered is not sent again."""
        return self._items(path, self._asked("GET", path, retry=Retry.NEVER))

    def _items(self, path: str, answer: Object) -> "tuple[Object, ...]":
        if not str(answer["kind"]).endswith("List"):
            raise self._api.not_understood("GET", path, "kind")
        items = answer.get("items")  # null where there are none
        if "items" not in answer or not isinstance(items, list | None):
            raise self._api.not_understood("GET", path, "items")
        return tuple(items or ())

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
    return _client(access, cluster, secrets, mounted(access.server))


_access = lru_cache(maxsize=256)(access_by)
_client = lru_cache(maxsize=256)(KubernetesClient)


def _with_patch_type(request: "httpx.Request") -> "httpx.Request":
    if request.method == "PATCH":
        request.headers["Content-Type"] = _PATCH
    return request


def _transport(access: Access) -> "httpx.BaseTransport":
    import httpx  # noqa: PLC0415 - only who sends requests pays for it

    return httpx.HTTPTransport(verify=access.tls or True)
