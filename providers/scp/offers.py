"""Compare what is declared with what SCP offers: images, server types and their stock, and the
vendor's node pools. A newer image is a notice, never a change.

Asked while planning, once per process, and only if there are credentials; the lists say what there
is, not what is free.

SCP reference, 'List GPU Node products': a product names its GPU as `product_attrs.gpu_model`.

SCP reference, 'List GPU Node images': an image has a distribution, a type and a version of its
system (`os_distro`, `scp_image_type`, `scp_os_version`). What else sets two apart is in their names
alone (`RHEL 8.8 for BM`): only those whose names differ in nothing but numbers are compared.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.scp.client import ScpClient, client_for
from gpuform.schemas.checking import nearest
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs, NodePoolInputs
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NewerImageOutputs, NodePoolOutputs
from gpuform.schemas.values import UNKNOWN

T = TypeVar("T")

AVAILABLE = "AVAILABLE"
"""The one state of products that is documented."""

known_lists: WeakKeyDictionary[ScpClient, dict[str, Sequence[Any] | GpuformError]]
known_lists = WeakKeyDictionary()
"""What this process was answered, by what was asked; an error where there was no answer."""

_lock = threading.Lock()
_told: WeakSet[ScpClient] = WeakSet()
"""The clients whose failed look-up Pulumi's host has shown."""


def checked(
    client: ScpClient, call: ProviderContext, found: Iterable[Problem]
) -> Iterator[Problem]:
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
    return _once(client, f"images {region}", partial(client.list_images, region, Retry.NEVER))


def products(client: ScpClient) -> Sequence[wire.Product]:
    """All types of servers, asked for once in a process."""
    return _once(client, "products", partial(client.list_products, retry=Retry.NEVER))


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
    send = partial(client.list_products, image_id=image, retry=Retry.NEVER)
    return _once(client, f"products {image}", send)


def _pool(client: ScpClient, pool: str, subnet: str | None) -> Iterator[Problem]:
    send = partial(client.list_node_pools, retry=Retry.NEVER)
    offered: Sequence[wire.VendorPool] = _once(client, "node pools", send)
    names = [each.node_pool_id for each in offered]
    if pool not in names:
        yield Problem(
            "node_pool_id",
            f"the platform has no node pool {pool} for this account: {_advice(pool, names)}",
        )
    elif subnet is not None:
        send = partial(client.list_node_pools, subnet_id=subnet, retry=Retry.NEVER)
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


def tell_unchecked(client: ScpClient, call: ProviderContext, reason: str) -> None:
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


Values = Mapping[str, Any]


def completed(
    settings: Settings, call: ProviderContext, values: Values
) -> tuple[dict[str, Any], list[Problem]]:
    """Declared values with the server_type_id of their gpu_type, and what is wrong with that.

    An id that was found for the same GPU is kept, and nobody is asked. When the platform does not
    answer, a new resource stays without an id: its create asks again (`id_of`).
    """
    gpu, given, old = values.get("gpu_type"), values.get("server_type_id"), call.known
    if gpu is None:
        return dict(values), []
    kept = old.get("server_type_id") if old.get("gpu_type") == gpu else None
    if given is not None and given != kept:
        reason = "does not go with server_type_id: keep one of the two"
        return dict(values), [Problem("gpu_type", reason)]
    if kept is not None or gpu is UNKNOWN:
        return {**values, "server_type_id": UNKNOWN if gpu is UNKNOWN else kept}, []
    region = values.get("region_id")
    client = client_for(settings, region if isinstance(region, str) else None)
    try:
        offered = products(client)
    except GpuformError as error:
        before = old.get("gpu_type") or old.get("server_type_id")
        if before not in (None, gpu):
            reason = (
                f"is not known to be the same as {before} or another, for the server types could "
                f"not be listed: {error.message}: plan again, or leave it as it was"
            )
            return dict(values), [Problem("gpu_type", reason)]
        tell_unchecked(client, call, error.message)
        return dict(values), []
    found = _having(offered, gpu)
    if old.get("server_type_id") in [each.id for each in found]:
        return {**values, "server_type_id": old["server_type_id"]}, []
    problem = _problem(offered, found, gpu)
    if problem:
        return dict(values), [Problem("gpu_type", problem)]
    return {**values, "server_type_id": _to_choose(found)[0].id}, []


def id_of(client: ScpClient, want: GpuNodeInputs | NodePoolInputs) -> str:
    """The id that a create sends. Raises GpuformError where no one type has the GPU."""
    if want.server_type_id is not None:
        return want.server_type_id
    gpu = str(want.gpu_type)
    try:
        offered = products(client)
    except GpuformError:
        offered = client.list_products()
    found = _having(offered, gpu)
    problem = _problem(offered, found, gpu)
    if problem:
        raise GpuformError(f"gpu_type: {problem}")
    return _to_choose(found)[0].id


def _having(offered: Sequence[wire.Product], gpu: str) -> list[wire.Product]:
    return [each for each in offered if each.product_attrs.gpu_model == gpu]


def _to_choose(found: Sequence[wire.Product]) -> Sequence[wire.Product]:
    """Those with stock, if any: one without is nobody's choice."""
    in_stock = [each for each in found if each.state in ("", AVAILABLE)]
    return in_stock or found


def _problem(
    offered: Sequence[wire.Product], found: Sequence[wire.Product], gpu: str
) -> str | None:
    """Why no one type can be chosen."""
    choices = _to_choose(found)
    if len(choices) > 1:
        listed = ", ".join(f"{each.id} ({each.name})" for each in choices)
        return f"{len(choices)} types of servers have {gpu}: declare the server_type_id of {listed}"
    if choices:
        return None
    known = tuple(sorted({each.product_attrs.gpu_model for each in offered} - {""}))
    near = nearest(gpu, known)
    listed = ", ".join(known)
    advice = f"did you mean {near}? There are {listed}" if near else f"use one of {listed}"
    if not known:
        advice = "declare a server_type_id: the platform names the GPU of no type"
    return f"no type of server has the GPU {gpu}: {advice}"


Out = TypeVar("Out", GpuNodeOutputs, NodePoolOutputs)


def with_newer_image(
    client: ScpClient, call: ProviderContext, values: Mapping[str, Any], seen: Observed[Out]
) -> Observed[Out]:
    """What was seen, and the newest image of the same kind as that of `values`, if one is newer.

    One list for each region and process. Without an answer what was known stays.
    """
    image, region = values.get("image_id"), values.get("region_id")
    if not isinstance(image, str) or not isinstance(region, str):
        return seen
    try:
        found = newest(images(client, region), image)
    except GpuformError:
        found = _stored(call.known.get("newer_image"))
    return replace(seen, outputs=seen.outputs.model_copy(update={"newer_image": found}))


def newest(offered: Sequence[wire.Image], image_id: str) -> NewerImageOutputs | None:
    """The newest image of the same distribution and kind; None where the image is that."""
    own = next((each for each in offered if each.id == image_id), None)
    version = _version(own) if own else None
    if own is None or version is None:
        return None
    later = [
        (other, each)
        for each in offered
        if _kind(each) == _kind(own) and (other := _version(each)) is not None and other > version
    ]
    if not later:
        return None
    best = max(later, key=lambda each: (each[0], each[1].id))[1]
    return NewerImageOutputs(id=best.id, name=best.name)


def image_notices(seen: Mapping[str, Any]) -> Iterator[Notice]:
    """That there is a newer image, by the outputs last seen."""
    newer = seen.get("newer_image")
    if isinstance(newer, Mapping) and newer.get("id"):
        yield Notice(
            kind=NoticeKind.IMAGE,
            text=f"there is a newer image of its system: {newer['id']} ({newer.get('name')}). "
            "Another image_id replaces the nodes",
        )


def _stored(before: Any) -> NewerImageOutputs | None:
    if not isinstance(before, Mapping) or not isinstance(before.get("id"), str):
        return None
    return NewerImageOutputs(id=before["id"], name=str(before.get("name") or ""))


def _kind(image: wire.Image) -> Iterable[str]:
    return image.os_distro, image.scp_image_type, re.sub(r"[0-9][0-9.]*", "#", image.name)


def _version(image: wire.Image) -> tuple[int, ...] | None:
    """None where it is no version, or nobody says of what."""
    is_one = image.os_distro and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", image.scp_os_version)
    return tuple(map(int, image.scp_os_version.split("."))) if is_one else None
