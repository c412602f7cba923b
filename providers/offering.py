"""What can be declared on a platform, from the platform's own lists.

A platform that offers something has a module `offered` with a function of this name, which raises
GpuformError when the platform does not answer. `IS_DOCUMENTED` in it says that the platform has no
such lists: the offers are those of its documentation, and nothing is asked.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import platform_of
from gpuform.providers.platforms import platforms

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
