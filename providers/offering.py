"""List what an account may declare on a platform, and what the account already holds there.

A platform that offers something has a module `offered` with a function of this name, which raises
GpuformError when the platform does not answer. `IS_DOCUMENTED` in it says that the platform has no
such lists: the offers are those of its documentation, and nothing is asked.

Each platform has a module `inventory` with a function `held`; it raises GpuformError when the
platform does not answer, so that silence is never taken for emptiness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Final

from gpuform.providers.catalog import platform_of
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

    `name` is what is written for `field`, `about` what it is called otherwise, and `gpu` the GPUs
    that it brings. An empty `region` means all. `in_stock` is None where the platform does not
    tell.
    """

    platform: str
    what: str
    name: str
    field: str
    region: str = ""
    about: str = ""
    gpu: str = ""
    in_stock: bool | None = None


def platforms_with_offers() -> list[str]:
    """The platforms that say what they offer."""
    return [name for name, each in platforms().items() if find_spec(f"{each.package}.offered")]


def is_documented(platform: str) -> bool:
    """Whether nothing is asked: the offers are those of the platform's documentation."""
    return bool(getattr(platform_of(platform).module("offered"), "IS_DOCUMENTED", False))


def offered_by(platform: str, settings: Settings, regions: Sequence[str] = ()) -> list[Offer]:
    """What a platform offers, in these regions or in all that can be asked for.

    MissingCredentials where nothing says how to reach the platform.
    """
    offered: Callable[[Settings, Sequence[str]], Iterable[Offer]]
    offered = platform_of(platform).module("offered").offered
    found = offered(settings, regions)
    return [each for each in found if not regions or not each.region or each.region in regions]


@dataclass(frozen=True)
class Held:
    """One object. What the platform does not tell is None, or empty.

    `owner` is whom the platform names as its owner or maker, in its own words: an address, a team
    or an id. `created_at` is Unix time in seconds; `hourly_cost` is in `currency`; `tags` are
    labels, or names with values, None where the platform shows none. `told` has inputs that its
    list tells, and reading the object does not. What is `made_of` others, by their ids, is not an
    object of its own: nobody pays for it, and it goes with its parts; it may be one way of several
    to group them.
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
    told: Mapping[str, Any] = field(default_factory=dict)
    made_of: tuple[str, ...] = ()


def held_by(platform: str, settings: Settings, regions: Sequence[str] = ()) -> list[Held]:
    """What the account has, without what is being deleted.

    A platform with an address for each region is asked at those of `regions`, or at the default
    one. MissingCredentials where nothing says how to reach the platform.
    """
    inventory = platform_of(platform).module("inventory")
    held: Callable[[Settings], Sequence[Held]] = inventory.held
    if not regions or not getattr(inventory, "ADDRESS_BY_REGION", False):
        return list(held(settings))
    asked = (held(replace(settings, region=region)) for region in regions)
    found = {(each.kind, each.id): each for held_there in asked for each in held_there}
    return list(found.values())
