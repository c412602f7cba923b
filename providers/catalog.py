"""Find kinds of resources, offers and existing objects of each platform, and summarize a resource.

A platform with lists of GPU types, regions or images names a function for them in its descriptor
(`Platform.offers`). Each platform has a module `inventory` with a function `list_existing_objects`,
which raises GpuformError when the platform does not answer, so that silence is never taken for
emptiness.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.errors import BrokenPlatform, UnsupportedKind
from gpuform.providers.platform import (
    KINDS,
    Platform,
    list_unusable_platforms,
    load_object,
    platforms,
)
from gpuform.schemas.checking import suggest_name

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle
    from gpuform.providers.operations import Settings
    from gpuform.providers.resource import PlatformResource


def require_platform(name: str) -> Platform:
    """Return the descriptor of a platform by the platform's name, such as `together`.

    Raises:
        UnsupportedKind: no such platform is known.
        BrokenPlatform: the platform is installed and cannot be used; has the reason.
    """
    platform = platforms().get(name)
    if platform is not None:
        return platform
    unusable = list_unusable_platforms().get(name)
    if unusable is not None:
        raise BrokenPlatform(
            f"the platform {name} cannot be used: {unusable.because}", hint=unusable.hint
        )
    suggestion = suggest_name(name, platforms(), f"use one of {', '.join(platforms())}")
    raise UnsupportedKind(f"{name} is not a platform", hint=suggestion)


def has_kind(platform: str, kind: str) -> bool:
    """Return True if the platform exists and has the kind of resource."""
    known_platform = platforms().get(platform)
    return known_platform is not None and kind in known_platform.lifecycles


def list_kinds() -> list[tuple[str, str]]:
    """Return a pair of platform and kind for each kind of resource of each platform."""
    return [(name, kind) for name, platform in platforms().items() for kind in platform.lifecycles]


def load_lifecycle_class(platform: str, kind: str) -> "type[Lifecycle[Any, Any]]":
    """Import and return the lifecycle of a kind on a platform.

    Raises:
        UnsupportedKind: no such platform is known, or the platform has no such kind.
        BrokenPlatform: the platform cannot be used.
    """
    path = require_platform(platform).lifecycles.get(kind)
    if path is None:
        raise UnsupportedKind(_describe_missing_kind(platform, kind))
    lifecycle: type[Lifecycle[Any, Any]] = load_object(path)
    return lifecycle


def load_resource_class(platform: str, kind: str) -> "type[PlatformResource]":
    """Import and return the Pulumi resource class of a kind. Raises as `load_lifecycle_class`."""
    load_lifecycle_class(platform, kind)
    resource: type[PlatformResource] = require_platform(platform).load_exported(kind)
    return resource


def list_lookups(platform: str) -> list[str]:
    """Return the names of the functions by which a program can query a platform."""
    return list(require_platform(platform).lookups)


def load_lookup(platform: str, name: str) -> Callable[..., Any]:
    """Import and return a platform's lookup function, by its name.

    Raises:
        UnsupportedKind: no such platform is known.
        BrokenPlatform: the platform cannot be used.
        KeyError: the platform has no such lookup (`list_lookups`).
    """
    function: Callable[..., Any] = load_object(require_platform(platform).lookups[name])
    return function


def list_platforms_with(kind: str) -> list[str]:
    """Return the names of the platforms that have this kind of resource."""
    return [name for name, platform in platforms().items() if kind in platform.lifecycles]


def render_capability_table() -> str:
    """Return a Markdown table of all kinds of resources, with the platforms that have each."""
    names = list(platforms())
    rows = [["kind", *names], ["---"] * (len(names) + 1)]
    rows += [
        [kind, *("yes" if has_kind(platform, kind) else "-" for platform in names)]
        for kind in KINDS
        if list_platforms_with(kind)
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _describe_missing_kind(platform: str, kind: str) -> str:
    """Return the message for a kind a platform lacks, with the platforms that have it."""
    owners = list_platforms_with(kind)
    if owners:
        return f"{platform} has no {kind}: declare it on {' or '.join(owners)}"
    kinds = ", ".join(platforms()[platform].lifecycles)
    return f"{platform} has no {kind}, and no other platform has one: it has {kinds}"


@dataclass(frozen=True)
class Summary:
    """The main facts of a resource for an overview.

    Args:
        state: the platform's own word; empty if it has none.
        ready: None for a resource that is not gpuform's own.
        hourly_cost: in `currency`.
        owner: the owner that the platform names.
    """

    state: str = ""
    ready: bool | None = None
    reason: str = ""
    gpus: int = 0
    hourly_cost: float | None = None
    currency: str = ""
    alerts: tuple[str, ...] = ()
    owner: str = ""


def summarize_resource(platform: str, kind: str, outputs: Mapping[str, Any]) -> Summary:
    """Return state, readiness, GPUs, cost, alerts and owner of a resource, for an overview.

    All are empty for a kind that is not gpuform's. `outputs` are unwrapped values, with secrets
    masked.
    """
    if not has_kind(platform, kind):
        return Summary()
    lifecycle = load_lifecycle_class(platform, kind)
    gpus = lifecycle.hooks.count_gpus(outputs)
    cost = outputs.get("current_hourly_rate")
    return Summary(
        state=_get_state(outputs),
        ready=outputs.get("ready") is True,
        reason=str(outputs.get("not_ready_reason") or ""),
        gpus=gpus or 0,
        hourly_cost=float(cost) if isinstance(cost, int | float) else None,
        currency=str(outputs.get("currency") or ""),
        alerts=tuple(_list_alerts(outputs)),
        owner=lifecycle.hooks.get_owner_name(outputs),
    )


def _get_state(outputs: Mapping[str, Any]) -> str:
    """Return how many nodes are in each state, such as `2 RUNNING`, else the resource's own state.

    Empty for a resource that has a list of nodes, but no node.
    """
    own = outputs.get("status") or outputs.get("state")
    nodes = outputs.get("gpu_nodes")
    if isinstance(nodes, Mapping):
        states = Counter(str(node.get("state")) for node in nodes.values())
        return ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return str(own or "")


def _list_alerts(outputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the platform's alerts, and each part (`*_health`) that is not healthy.

    A part without a value gives no alert.
    """
    alerts = outputs.get("alerts")
    for alert in alerts if isinstance(alerts, list) else ():
        severity = alert.get("severity")
        message = alert.get("message") or alert.get("type") or "no message"
        yield f"{message} ({severity})" if severity else str(message)
    for name, value in sorted(outputs.items()):
        if name.endswith("_health") and value not in (None, "", "healthy"):
            yield f"{name} is {value}"


REGION: Final = "region"
GPU_TYPE: Final = "GPU type"
DRIVER: Final = "driver"
IMAGE: Final = "image"
SERVER_TYPE: Final = "server type"
NODE_POOL: Final = "node pool"


@dataclass(frozen=True)
class Offer:
    """One value that can be declared.

    Args:
        platform: the platform's name.
        what: the category of the value, such as `GPU type`.
        name: the value to write for `field`.
        field: the input.
        region: empty for all regions.
        about: another name of the value.
        gpu: the GPUs that the value brings.
        in_stock: None if the platform does not report stock.
    """

    platform: str
    what: str
    name: str
    field: str
    region: str = ""
    about: str = ""
    gpu: str = ""
    in_stock: bool | None = None


def list_platforms_with_offers() -> list[str]:
    """Return the names of the platforms that can list GPU types and other offers."""
    return [name for name, platform in platforms().items() if platform.offers]


def list_platforms_with_objects() -> list[str]:
    """Return the names of the platforms with a kind that creates objects.

    A kind with `is_bound` only binds existing ones.
    """
    return [
        name
        for name, platform in platforms().items()
        if any(not load_lifecycle_class(name, kind).is_bound for kind in platform.lifecycles)
    ]


def is_documented(platform: str) -> bool:
    """Return True if the platform's offers come from its documentation, without any request."""
    return require_platform(platform).has_documented_offers


def list_offers(platform: str, settings: "Settings", regions: Sequence[str] = ()) -> list[Offer]:
    """Return the GPU types and other offers of a platform, in these regions or in all.

    Raises:
        MissingCredentials: nothing configures the access to the platform.
        GpuformError: the platform does not answer.
    """
    fetch_offers: Callable[[Settings, Sequence[str]], Iterable[Offer]]
    fetch_offers = load_object(require_platform(platform).offers)
    offers = fetch_offers(settings, regions)
    return [offer for offer in offers if not regions or not offer.region or offer.region in regions]


@dataclass(frozen=True)
class ExistingObject:
    """One existing object of an account. Facts that the platform does not report are None or empty.

    Args:
        owner: the owner or maker in the platform's words: an address, a team or an id.
        created_at: Unix time in seconds.
        hourly_cost: in `currency`.
        tags: labels, or names with values; None if the platform shows none.
        listed_inputs: inputs that only the platform's list reports.
        part_ids: the ids of the parts of a group, which costs nothing itself and ends with its
            parts.
    """

    platform: str
    kind: str
    id: str
    name: str
    region: str = ""
    tags: Mapping[str, str | None] | None = None
    status: str = ""
    owner: str = ""
    created_at: float | None = None
    hourly_cost: float | None = None
    currency: str = ""
    listed_inputs: Mapping[str, Any] = field(default_factory=dict)
    part_ids: tuple[str, ...] = ()


def list_existing_objects(
    platform: str, settings: "Settings", regions: Sequence[str] = ()
) -> list[ExistingObject]:
    """Return the objects of the account, without objects that are being deleted.

    A platform with an address for each region is asked in `regions`, or in the default region.
    Other platforms ignore `regions` and return all objects.

    Raises:
        MissingCredentials: nothing configures the access to the platform.
        GpuformError: the platform does not answer.
    """
    inventory = require_platform(platform).import_module("inventory")
    fetch_objects: Callable[[Settings], Sequence[ExistingObject]]
    fetch_objects = inventory.list_existing_objects
    if not regions or not getattr(inventory, "ADDRESS_BY_REGION", False):
        return list(fetch_objects(settings))
    regional_objects = (fetch_objects(replace(settings, region=region)) for region in regions)
    objects_by_id = {
        (existing_object.kind, existing_object.id): existing_object
        for objects_of_region in regional_objects
        for existing_object in objects_of_region
    }
    return list(objects_by_id.values())
