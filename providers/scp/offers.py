"""What SCP offers, against what is declared: images, types of servers and vendor pools.

Asked while planning, once per process, and only if there are credentials; the lists say what there
is, not what is free.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.scp.client import ScpClient
from gpuform.schemas.models import Problem
from gpuform.schemas.reasons import nearest
from gpuform.schemas.scp import wire

T = TypeVar("T")

AVAILABLE = "AVAILABLE"
"""The one state of products that is documented."""

known_lists: WeakKeyDictionary[ScpClient, dict[str, Sequence[Any] | GpuformError]]
known_lists = WeakKeyDictionary()
"""What this process was answered, by what was asked; an error where there was no answer."""

_lock = threading.Lock()
_told: WeakSet[ScpClient] = WeakSet()
"""The clients whose failed look-up Pulumi's host has shown."""


def checked(client: ScpClient, call: Call, found: Iterable[Problem]) -> Iterator[Problem]:
    """The problems found, as long as the platform answers.

    Without an answer nothing more is refused: `call` hears that checks were not made.
    """
    try:
        yield from found
    except GpuformError as error:
        tell_unchecked(client, call, error.message)


def problems(client: ScpClient, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What the platform's lists say against `values`, which may be UNKNOWN in places."""
    image, product, pool, region, subnet = (
        value if isinstance(value := values.get(name), str) else None
        for name in ("image_id", "server_type_id", "node_pool_id", "region_id", "subnet_id")
    )
    wrong = list(_image(client, image, region)) if image and region else []
    yield from wrong
    if product:
        declared = "server_type_id" if values.get("gpu_type") is None else "gpu_type"
        for each in _product(client, product, None if wrong else image):
            yield replace(each, path=declared)
    if pool:
        yield from _pool(client, pool, subnet)


def _image(client: ScpClient, image: str, region: str) -> Iterator[Problem]:
    offered = images(client, region)
    if all(each.id != image for each in offered):
        known = [f"{each.id} ({each.name})" for each in offered]
        yield Problem("image_id", f"{region} has no image {image}: {_advice(image, known)}")


def images(client: ScpClient, region: str) -> Sequence[wire.Image]:
    """The images of a region, asked for once in a process."""
    return _once(client, f"images {region}", partial(client.images, region, Retry.NEVER))


def products(client: ScpClient) -> Sequence[wire.Product]:
    """All types of servers, asked for once in a process."""
    return _once(client, "products", partial(client.products, retry=Retry.NEVER))


def _product(client: ScpClient, product: str, image: str | None) -> Iterator[Problem]:
    offered = products(client)
    found = next((each for each in offered if each.id == product), None)
    named = next((each for each in offered if each.name == product), None)
    if found is None:
        known = [f"{each.id} ({each.name})" for each in offered if each.state == AVAILABLE]
        advice = f"write {named.id}" if named else _advice(product, known)
        yield Problem("server_type_id", f"there is no product of id {product}: {advice}")
    elif found.state and found.state != AVAILABLE:
        known = [f"{each.id} ({each.name})" for each in offered if each.state == AVAILABLE]
        advice = f"use one of {', '.join(known)}" if known else "ask the platform's support"
        yield Problem("server_type_id", f"{found.name} is {found.state}: {advice}")
    elif image and all(each.id != product for each in _products_of(client, image)):
        yield Problem(
            "server_type_id", f"{found.name} does not run the image {image}: use another of the two"
        )


def _products_of(client: ScpClient, image: str) -> Sequence[wire.Product]:
    send = partial(client.products, image_id=image, retry=Retry.NEVER)
    return _once(client, f"products {image}", send)


def _pool(client: ScpClient, pool: str, subnet: str | None) -> Iterator[Problem]:
    send = partial(client.node_pools, retry=Retry.NEVER)
    offered: Sequence[wire.VendorPool] = _once(client, "node pools", send)
    names = [each.node_pool_id for each in offered]
    if pool not in names:
        yield Problem(
            "node_pool_id",
            f"the platform has no node pool {pool} for this account: {_advice(pool, names)}",
        )
    elif subnet is not None:
        send = partial(client.node_pools, subnet_id=subnet, retry=Retry.NEVER)
        serving: Sequence[wire.VendorPool] = _once(client, f"node pools {subnet}", send)
        if all(each.node_pool_id != pool for each in serving):
            pools = ", ".join(each.node_pool_id for each in serving) or "none"
            yield Problem(
                "subnet_id",
                f"the node pool {pool} does not serve the subnet {subnet} (its pools: {pools}): "
                "use another subnet, or another pool",
            )


def _advice(value: str, known: Sequence[str]) -> str:
    ids = tuple(each.partition(" ")[0] for each in known)
    near = nearest(value, ids)
    if near:
        return f"did you mean {near}?"
    return f"use one of {', '.join(known)}" if known else "ask the platform's support"


def _once(client: ScpClient, what: str, send: Callable[[], Sequence[T]]) -> Sequence[T]:
    """A list of the platform's, asked for once; planning does not wait for one without answer."""
    with _lock:
        kept = known_lists.setdefault(client, {})
        if what not in kept:
            try:
                kept[what] = send()
            except GpuformError as error:
                kept[what] = error
        found = kept[what]
    if isinstance(found, GpuformError):
        raise found.with_traceback(None)
    return found


def tell_unchecked(client: ScpClient, call: Call, reason: str) -> None:
    """Says that the lists could not be asked, and why."""
    # An engine collects these; Pulumi's hosts would show one per resource.
    if call.urn is None or call.stores_answers:
        with _lock:
            if client in _told:
                return
            _told.add(client)
    call.on_unchecked(
        f"images, types of servers, node pools and fabrics were not checked with SCP: {reason}"
    )
