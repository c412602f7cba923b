"""Whether a run's platforms are emulated: by the addresses that the environment gives them."""

import os
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from gpuform.providers.calls import CLOCK_VARIABLE
from gpuform.providers.platforms import platforms as all_platforms


def is_emulated(address: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether an emulator answers there: the one whose clock this process follows."""
    clock = urlsplit((os.environ if environ is None else environ).get(CLOCK_VARIABLE, ""))
    return bool(clock.netloc) and urlsplit(address)[:2] == clock[:2]


def are_emulated(
    platforms: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> bool:
    """Whether an emulator answers for all of them; without `platforms`, for all that have one."""
    environ = os.environ if environ is None else environ
    known = all_platforms()
    if platforms is None:
        platforms = [name for name, platform in known.items() if platform.emulator]
    return all(
        each in known and is_emulated(environ.get(known[each].address, ""), environ)
        for each in platforms
    )
