"""What an account of a platform holds, from the platform's own lists.

Each platform has a module `inventory` with a function `held`; it raises GpuformError when the
platform does not answer, so that silence is never taken for emptiness.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import platform_of


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
