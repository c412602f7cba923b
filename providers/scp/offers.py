"""Compare declared values with SCP's lists: images, server types and their stock, and vendor pools.

Operations call this module while planning. Each list is requested once in a process, and only with
credentials; a list says what exists, not what is free. A newer image is a notice, never a change.

SCP reference, 'List GPU Node products': a product names its GPU as `product_attrs.gpu_model`. SCP
reference, 'List GPU Node images': an image has a distribution, a type and a version of its system
(`os_distro`, `scp_image_type`, `scp_os_version`). Other differences are in the names alone (`RHEL
8.8 for BM`): only images whose names differ in nothing but numbers are compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import PlanningLists, Retry
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.scp.client import ScpClient, get_client
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs, NodePoolInputs
from gpuform.schemas.scp.outputs import (
    ZONE_VERSION,
    GpuNodeOutputs,
    NewerImageOutputs,
    NodePoolOutputs,
)
from gpuform.schemas.values import UNKNOWN

AVAILABLE = "AVAILABLE"
"""The only documented state of products."""

cached_lists = PlanningLists()


def find_planning_problems(
    client: ScpClient,
    context: ProviderContext,
    values: Mapping[str, Any],
    fabric_problems: Iterable[Problem],
) -> Iterator[Problem]:
    """Yield problems of zones, then contradictions to SCP's lists, then the problems of fabrics."""
    # The version is a setting of the user: it is checked even if SCP does not answer.
    yield from find_zone_problems(client, values)
    problems = chain(find_offer_problems(client, values), fabric_problems)
    yield from yield_while_answered(client, context, problems)


def yield_while_answered(
    client: ScpClient, context: ProviderContext, problems: Iterable[Problem]
) -> Iterator[Problem]:
    """Yield the problems as long as the platform answers.

    An error of the platform ends them, and is reported to the context as skipped checks.
    """
    try:
        yield from problems
    except GpuformError as error:
        report_unchecked(client, context, error.message)


def find_zone_problems(client: ScpClient, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each zone missing though required by the API's version, or forbidden.

    Nothing is requested. `nodes` may have zones of their own; UNKNOWN values may be right.
    """
    nodes = values.get("nodes")
    if nodes is UNKNOWN:
        return
    node_zones = {
        f"nodes.{key}.zone": node.get("zone") if isinstance(node, Mapping) else UNKNOWN
        for key, node in (nodes or {}).items()
    }
    zones = {"zone": values.get("zone"), **node_zones}
    if not client.has_zones:
        for path, zone in zones.items():
            if zone not in (None, UNKNOWN):
                reason = f"needs version {ZONE_VERSION} of SCP's API: set scp:apiVersion"
                yield Problem(path, f"{reason} to {ZONE_VERSION}, or remove the zone")
    # A zone of the pool is the zone of every node that declares none.
    elif zones["zone"] is None and (not node_zones or None in node_zones.values()):
        reason = f"is required by version {ZONE_VERSION} of SCP's API"
        yield Problem("zone", f"{reason}: declare the zone of the servers, such as kr-west1-a")


def list_zones(values: Mapping[str, Any]) -> list[str]:
    """Return the declared zones of a pool or a node, sorted; UNKNOWN ones are left out."""
    nodes = values.get("nodes")
    shared_zone = values.get("zone")
    zones = (
        [node.get("zone", shared_zone) for node in nodes.values() if isinstance(node, Mapping)]
        if isinstance(nodes, Mapping)
        else [shared_zone]
    )
    return sorted({zone for zone in zones if isinstance(zone, str)})


def find_offer_problems(client: ScpClient, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield contradictions between `values` and SCP's lists.

    Checked are image, server type, vendor pool and subnet; unknown or undeclared ones are not. With
    version 1.3 of the API the vendor pool is checked only with a subnet and a zone.

    Raises:
        GpuformError: SCP does not answer; a list is asked for once in a process.
    """
    image_id, product_id, node_pool_id, region_id, subnet_id = (
        value if isinstance(value := values.get(name), str) else None
        for name in ("image_id", "server_type_id", "node_pool_id", "region_id", "subnet_id")
    )
    image_problems = (
        list(_find_image_problems(client, image_id, region_id)) if image_id and region_id else []
    )
    yield from image_problems
    if product_id:
        declared_field = "server_type_id" if values.get("gpu_type") is None else "gpu_type"
        # The products of a wrong image say nothing about the product.
        for problem in _find_product_problems(
            client, product_id, None if image_problems else image_id
        ):
            yield replace(problem, path=declared_field)
    if node_pool_id and client.has_zones:
        for zone in list_zones(values) if subnet_id else ():
            yield from _find_pool_problems(client, node_pool_id, subnet_id, zone)
    elif node_pool_id:
        yield from _find_pool_problems(client, node_pool_id, subnet_id)


def _find_image_problems(client: ScpClient, image_id: str, region_id: str) -> Iterator[Problem]:
    """Yield a problem if the region has no image of this id.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    images = list_images_once(client, region_id)
    if all(image.id != image_id for image in images):
        choices = [f"{image.id} ({image.name})" for image in images]
        yield Problem(
            "image_id",
            f"image {image_id} not found in {region_id}: {_suggest_value(image_id, choices)}",
        )


def list_images_once(client: ScpClient, region: str) -> Sequence[wire.Image]:
    """List the images of a region, requested once in a process; an error is cached, too.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    return cached_lists.get(
        client, f"images {region}", partial(client.list_images, region, Retry.NEVER)
    )


def list_products_once(client: ScpClient) -> Sequence[wire.Product]:
    """List all server types, requested once in a process; an error is cached, too.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    return cached_lists.get(client, "products", partial(client.list_products, retry=Retry.NEVER))


def _find_product_problems(
    client: ScpClient, product_id: str, image_id: str | None
) -> Iterator[Problem]:
    """Yield a problem if the server type is unknown, not AVAILABLE, or unfit for the image.

    A server type without a reported state counts as AVAILABLE. With `image_id` None the image is
    not compared.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    products = list_products_once(client)
    declared_product = next((product for product in products if product.id == product_id), None)
    # People write the name that they see in the console; the API wants the id.
    product_of_name = next((product for product in products if product.name == product_id), None)
    if declared_product is None:
        choices = [
            f"{product.id} ({product.name})" for product in products if product.state == AVAILABLE
        ]
        advice = (
            f"write {product_of_name.id}"
            if product_of_name
            else _suggest_value(product_id, choices)
        )
        yield Problem("server_type_id", f"product {product_id} not found: {advice}")
    elif declared_product.state and declared_product.state != AVAILABLE:
        choices = [
            f"{product.id} ({product.name})" for product in products if product.state == AVAILABLE
        ]
        advice = f"use one of {', '.join(choices)}" if choices else "ask the platform's support"
        yield Problem(
            "server_type_id", f"{declared_product.name} is {declared_product.state}: {advice}"
        )
    elif image_id and all(
        product.id != product_id for product in _list_products_of_image(client, image_id)
    ):
        yield Problem(
            "server_type_id",
            f"{declared_product.name} does not run the image {image_id}: change one of the two",
        )


def _list_products_of_image(client: ScpClient, image_id: str) -> Sequence[wire.Product]:
    """List the server types for an image, requested once in a process; an error is cached, too.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    send = partial(client.list_products, image_id=image_id, retry=Retry.NEVER)
    return cached_lists.get(client, f"products {image_id}", send)


def _find_pool_problems(
    client: ScpClient, node_pool_id: str, subnet_id: str | None, zone: str | None = None
) -> Iterator[Problem]:
    """Yield a problem if the vendor pool does not exist or does not serve the subnet.

    With `subnet_id` None the subnet is not compared. With a zone (API 1.3), which needs a subnet,
    the pool has to serve the subnet there. The lists are requested once in a process.

    Raises:
        GpuformError: SCP does not answer, or did not at the first request of this process.
    """
    # API 1.3 lists only the pools of a subnet and a zone.
    filters = {"subnet_id": subnet_id, "zone": zone} if subnet_id and zone else {}
    pool_ids = _list_pool_ids_once(client, **filters)
    if node_pool_id not in pool_ids:
        lack = (
            f"does not serve the subnet {subnet_id} in zone {zone}"
            if zone
            else "not found for this account"
        )
        advice = _suggest_value(node_pool_id, pool_ids)
        yield Problem("node_pool_id", f"node pool {node_pool_id} {lack}: {advice}")
    elif subnet_id is not None and zone is None:
        serving_ids = _list_pool_ids_once(client, subnet_id=subnet_id)
        if node_pool_id not in serving_ids:
            yield Problem(
                "subnet_id",
                f"node pool {node_pool_id} does not serve the subnet {subnet_id} (its pools: "
                f"{', '.join(serving_ids) or 'none'}): use another subnet, or another pool",
            )


def _list_pool_ids_once(client: ScpClient, **filters: str) -> list[str]:
    """List the ids of vendor pools, requested once in a process; an error is cached, too."""
    send = partial(client.list_node_pools, retry=Retry.NEVER, **filters)
    pools: Sequence[wire.VendorPool] = cached_lists.get(
        client, " ".join(["node pools", *filters.values()]), send
    )
    return [pool.node_pool_id for pool in pools]


def _suggest_value(value: str, choices: Sequence[str]) -> str:
    """Return advice for a wrong id: the nearest choice, all choices, or the support."""
    ids = (choice.partition(" ")[0] for choice in choices)
    otherwise = f"use one of {', '.join(choices)}" if choices else "ask the platform's support"
    return suggest_name(value, ids, otherwise)


def report_unchecked(client: ScpClient, context: ProviderContext, reason: str) -> None:
    """Report to the context `reason` as the cause of unchecked lists and fabrics of SCP."""
    message = "images, types of servers, node pools and fabrics were not checked with SCP"
    cached_lists.report_unchecked(client, context, f"{message}: {reason}")


Values = Mapping[str, Any]


def add_server_type(
    settings: Settings, context: ProviderContext, values: Values
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values with the server_type_id of a declared gpu_type, and problems.

    The values are unchanged without a gpu_type, or with a problem, as for an own server_type_id
    beside it. An unknown gpu_type gives an unknown id. An id that was found for the same GPU stays,
    and nothing is requested. When the platform does not answer, a new resource stays without an id:
    its create asks again (`get_server_type_id`). For another GPU than the stored one that is a
    problem.
    """
    gpu, declared_id, stored = (
        values.get("gpu_type"),
        values.get("server_type_id"),
        context.stored_properties,
    )
    if gpu is None:
        return dict(values), []
    stored_id = stored.get("server_type_id") if stored.get("gpu_type") == gpu else None
    if declared_id is not None and declared_id != stored_id:
        reason = "conflicts with server_type_id: keep one of the two"
        return dict(values), [Problem("gpu_type", reason)]
    if stored_id is not None or gpu is UNKNOWN:
        return {**values, "server_type_id": UNKNOWN if gpu is UNKNOWN else stored_id}, []
    region = values.get("region_id")
    client = get_client(settings, region)
    try:
        products = list_products_once(client)
    except GpuformError as error:
        old_gpu = stored.get("gpu_type") or stored.get("server_type_id")
        if old_gpu not in (None, gpu):
            reason = (
                f"may be another GPU than {old_gpu}: the list of server types could not be "
                f"read ({error.message}): plan again, or keep the old value"
            )
            return dict(values), [Problem("gpu_type", reason)]
        report_unchecked(client, context, error.message)
        return dict(values), []
    matching_products = _filter_by_gpu(products, gpu)
    # The stored type has the new GPU name, too: another id would replace the nodes for nothing.
    if stored.get("server_type_id") in [product.id for product in matching_products]:
        return {**values, "server_type_id": stored["server_type_id"]}, []
    problem = _find_choice_problem(products, matching_products, gpu)
    if problem:
        return dict(values), [Problem("gpu_type", problem)]
    return {**values, "server_type_id": _prefer_in_stock(matching_products)[0].id}, []


def get_server_type_id(client: ScpClient, inputs: GpuNodeInputs | NodePoolInputs) -> str:
    """Return the declared server_type_id, else the one of the only server type with the GPU.

    Server types in stock are preferred. The list that planning has requested is used; if it failed,
    SCP is asked again.

    Raises:
        GpuformError: no server type has the GPU, several have it, or SCP does not answer.
    """
    if inputs.server_type_id is not None:
        return inputs.server_type_id
    gpu = str(inputs.gpu_type)
    try:
        products = list_products_once(client)
    except GpuformError:
        # The cached list may be the error of planning: a create asks the platform again.
        products = client.list_products()
    matching_products = _filter_by_gpu(products, gpu)
    problem = _find_choice_problem(products, matching_products, gpu)
    if problem:
        raise GpuformError(f"gpu_type: {problem}")
    return _prefer_in_stock(matching_products)[0].id


def _filter_by_gpu(products: Sequence[wire.Product], gpu_model: str) -> list[wire.Product]:
    """Return the products with exactly this GPU model, in the given order."""
    return [product for product in products if product.product_attrs.gpu_model == gpu_model]


def _prefer_in_stock(products: Sequence[wire.Product]) -> Sequence[wire.Product]:
    """Return the products in stock, or all products if none is in stock.

    A server type without a reported state counts as in stock.
    """
    # A product without a state may be in stock: the reference requires no state.
    in_stock = [product for product in products if product.state in ("", AVAILABLE)]
    return in_stock or products


def _find_choice_problem(
    products: Sequence[wire.Product], matching_products: Sequence[wire.Product], gpu: str
) -> str | None:
    """Return why no single server type can be chosen, or None.

    Server types out of stock count only if none is in stock.
    """
    choices = _prefer_in_stock(matching_products)
    if len(choices) > 1:
        listed = ", ".join(f"{product.id} ({product.name})" for product in choices)
        return (
            f"{len(choices)} server types have {gpu}: declare server_type_id with one of {listed}"
        )
    if choices:
        return None
    gpu_models = sorted({product.product_attrs.gpu_model for product in products} - {""})
    suggestion = suggest_name(gpu, gpu_models)
    listed = ", ".join(gpu_models)
    advice = f"{suggestion} The platform has {listed}" if suggestion else f"use one of {listed}"
    if not gpu_models:
        advice = "declare a server_type_id: the platform reports no GPU of any server type"
    return f"no server type has the GPU {gpu}: {advice}"


Out = TypeVar("Out", GpuNodeOutputs, NodePoolOutputs)


def add_newer_image(
    client: ScpClient, context: ProviderContext, values: Mapping[str, Any], observed: Observed[Out]
) -> Observed[Out]:
    """Return `observed` with the output `newer_image`, or None there if no image is newer.

    Compared is the `image_id` of `values`: unknown, or without a region, `observed` is returned
    unchanged. The list is requested once for each region and process. Without an answer the stored
    value stays.
    """
    image, region = values.get("image_id"), values.get("region_id")
    if not isinstance(image, str) or not isinstance(region, str):
        return observed
    try:
        newer_image = find_newer_image(list_images_once(client, region), image)
    except GpuformError:
        newer_image = _parse_stored_image(context.stored_properties.get("newer_image"))
    return replace(
        observed, outputs=observed.outputs.model_copy(update={"newer_image": newer_image})
    )


def find_newer_image(images: Sequence[wire.Image], image_id: str) -> NewerImageOutputs | None:
    """Return the newest image of the kind of `image_id`.

    None if `image_id` is the newest, is not in `images`, or has no version to compare.
    """
    current_image = next((image for image in images if image.id == image_id), None)
    current_version = _parse_image_version(current_image) if current_image else None
    if current_image is None or current_version is None:
        return None
    newer_images = [
        (version, image)
        for image in images
        if _get_image_kind(image) == _get_image_kind(current_image)
        and (version := _parse_image_version(image)) is not None
        and version > current_version
    ]
    if not newer_images:
        return None
    newest_image = max(
        newer_images, key=lambda versioned_image: (versioned_image[0], versioned_image[1].id)
    )[1]
    return NewerImageOutputs(id=newest_image.id, name=newest_image.name)


def build_image_notices(outputs: Mapping[str, Any]) -> Iterator[Notice]:
    """Yield a notice if the stored outputs have a newer image."""
    newer_image = outputs.get("newer_image")
    if isinstance(newer_image, Mapping) and newer_image.get("id"):
        yield Notice(
            kind=NoticeKind.IMAGE,
            text=f"the platform has a newer image of its system: {newer_image['id']} "
            f"({newer_image.get('name')}). Another image_id replaces the nodes",
        )


def _parse_stored_image(stored: Any) -> NewerImageOutputs | None:
    """Parse the newer image of stored outputs; None if absent or malformed."""
    if not isinstance(stored, Mapping) or not isinstance(stored.get("id"), str):
        return None
    return NewerImageOutputs(id=stored["id"], name=str(stored.get("name") or ""))


def _get_image_kind(image: wire.Image) -> Iterable[str]:
    """Return distribution, type and name without numbers: equal for images of one kind."""
    # Numbers are taken out: `RHEL 8.8 for BM` and `RHEL 8.10 for BM` are one kind.
    return image.os_distro, image.scp_image_type, re.sub(r"[0-9][0-9.]*", "#", image.name)


def _parse_image_version(image: wire.Image) -> tuple[int, ...] | None:
    """Parse the version of an image; None without a distribution or a numeric version."""
    has_version = image.os_distro and re.fullmatch(
        r"[0-9]{1,9}(\.[0-9]{1,9})*", image.scp_os_version
    )
    return tuple(map(int, image.scp_os_version.split("."))) if has_version else None
