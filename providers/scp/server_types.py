"""Which type of server has a declared GPU: `gpu_type: H100` instead of the id of a product.

SCP reference, 'List GPU Node products': a product names its GPU as `product_attrs.gpu_model`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.actions import Settings
from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient, client_for
from gpuform.schemas.models import Problem
from gpuform.schemas.reasons import nearest
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs, NodePoolInputs
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]


def completed(
    settings: Settings, call: Call, values: Values
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
        offered = offers.products(client)
    except GpuformError as error:
        before = old.get("gpu_type") or old.get("server_type_id")
        if before not in (None, gpu):
            reason = (
                f"is not known to be the same as {before} or another, for the server types could "
                f"not be listed: {error.message}: plan again, or leave it as it was"
            )
            return dict(values), [Problem("gpu_type", reason)]
        offers.tell_unchecked(client, call, error.message)
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
        offered = offers.products(client)
    except GpuformError:
        offered = client.products()
    found = _having(offered, gpu)
    problem = _problem(offered, found, gpu)
    if problem:
        raise GpuformError(f"gpu_type: {problem}")
    return _to_choose(found)[0].id


def _having(offered: Sequence[wire.Product], gpu: str) -> list[wire.Product]:
    return [each for each in offered if each.product_attrs.gpu_model == gpu]


def _to_choose(found: Sequence[wire.Product]) -> Sequence[wire.Product]:
    """Those with stock, if any: one without is nobody's choice."""
    in_stock = [each for each in found if each.state in ("", offers.AVAILABLE)]
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
