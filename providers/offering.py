"""List what an account may declare on a platform, and what the account already has there.

A platform with lists of GPU types, regions or images has a module `offer_list` with a function
`list_offers`, which raises GpuformError when the platform does not answer. `IS_DOCUMENTED` in the
module says that the offers are those of the platform's documentation, and nothing is requested.

Each platform has a module `inventory` with a function `list_existing_objects`, which raises
GpuformError when the platform does not answer, so that silence is never taken for emptiness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class, require_platform
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms

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
    return [
        name
        for name, platform in platforms().items()
        if find_spec(f"{platform.package}.offer_list")
    ]


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
    return bool(
        getattr(require_platform(platform).import_module("offer_list"), "IS_DOCUMENTED", False)
    )


def list_offers(platform: str, settings: Settings, regions: Sequence[str] = ()) -> list[Offer]:
    """Return the GPU types and other offers of a platform, in these regions or in all.

    Raises:
        MissingCredentials: nothing configures the access to the platform.
        GpuformError: the platform does not answer.
    """
    fetch_offers: Callable[[Settings, Sequence[str]], Iterable[Offer]]
    fetch_offers = require_platform(platform).import_module("offer_list").list_offers
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
    platform: str, settings: Settings, regions: Sequence[str] = ()
) -> list[ExistingObject]:
    """Return the objects of the account, without objects that are being deleted.

    A platform with an address for each region is asked in `regions`, or in the default region.
    Other platforms ignore `regions` and return all objects.

    Raises:
        MissingCredentials: nothing configures the access to the platform.
        GpuformError: the platform does not answer.
    """
    inventory = require_platform(platform).import_module("inventory")
    fetch_objects: Callable[[Settings], Sequence[ExistingObject]] = inventory.list_existing_objects
    if not regions or not getattr(inventory, "ADDRESS_BY_REGION", False):
        return list(fetch_objects(settings))
    regional_objects = (fetch_objects(replace(settings, region=region)) for region in regions)
    objects_by_id = {
        (existing_object.kind, existing_object.id): existing_object
        for objects_of_region in regional_objects
        for existing_object in objects_of_region
    }
    return list(objects_by_id.values())
