"""Whether a run's platforms are emulated: by the addresses that the environment gives them."""

import os
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from gpuform.providers.clock import CLOCK_VARIABLE

_ADDRESSES: Final = {
    "together": "TOGETHER_BASE_URL",
    "scp": "SCP_TF_ENDPOINT_OVERRIDE",
    "tensorone": "TENSORONE_BASE_URL",
    "aios": "AIOS_REGISTRY_URL",
    "lens": "LENS_URL",
}


def is_emulated(address: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether an emulator answers there: the one whose clock this process follows."""
    clock = urlsplit((os.environ if environ is None else environ).get(CLOCK_VARIABLE, ""))
    return bool(clock.netloc) and urlsplit(address)[:2] == clock[:2]


def are_emulated(
    platforms: Iterable[str] = tuple(_ADDRESSES), environ: Mapping[str, str] | None = None
) -> bool:
    """Whether an emulator answers for all of them."""
    environ = os.environ if environ is None else environ
    addresses = (environ.get(_ADDRESSES.get(each, ""), "") for each in platforms)
    return all(is_emulated(address, environ) for address in addresses)
