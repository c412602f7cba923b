"""What an account of a platform holds, from the platform's own lists.

Each platform has a module `inventory` with a function `held`; it raises GpuformError when the
platform does not answer, so that silence is never taken for emptiness.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gpuform.providers.actions import Settings


@dataclass(frozen=True)
class Held:
    """One object. What the platform does not tell is None, or empty.

    `created_at` is Unix time in seconds; `hourly_cost` is in `currency`; `tags` are labels, or
    names with values, None where the platform shows none. `told` has inputs that its list tells,
    and reading the object does not. An object that is `bound` exists with its parts: nobody pays
    for it, and nobody can delete it.
    """

    platform: str
    kind: str
    id: str
    name: str
    region: str = ""
    tags: Mapping[str, str | None] | None = None
    status: str = ""
    created_at: float | None = None
    hourly_cost: float | None = None
    currency: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    bound: bool = False


Inventory = Callable[[Settings, str | None], Sequence[Held]]


def held_by(platform: str, settings: Settings, region: str | None = None) -> Sequence[Held]:
    """What the account has, without what is being deleted.

    A `region` chooses the address that is asked, where a platform has one for each region; it is
    no filter. MissingCredentials where nothing says how to reach the platform.
    """
    held: Inventory = import_module(f"gpuform.providers.{platform}.inventory").held
    return held(settings, region)
