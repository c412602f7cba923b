"""What Together's regions offer: for programs, and for checks while planning.

The list says what a region supports, not what is free there (Together reference, 'List Regions').
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from gpuform.providers.actions import lookup_settings
from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.together.client import TogetherClient, client_for
from gpuform.schemas.checking import nearest
from gpuform.schemas.models import Problem
from gpuform.schemas.together.drivers import is_same_version, unknown_gpu_type
from gpuform.schemas.together.wire import DriverVersion, Region
from gpuform.schemas.values import UNKNOWN

known_regions: WeakKeyDictionary[TogetherClient, Sequence[Region] | str] = WeakKeyDictionary()
"""What this process was answered; the error's message where there was no answer."""

"""By client: the regions, or why they could not be listed. Once per process."""
_lock = threading.Lock()
_told: WeakSet[TogetherClient] = WeakSet()
"""The clients whose failed lookup Pulumi's host has shown."""


def get_regions() -> Sequence[Region]:
    """Every region with its GPU types and driver versions.

    Uses the credentials of the environment, else of the running program's configuration
    (`together:apiKey`). Raises GpuformError when the platform does not answer.
    """
    return client_for(lookup_settings()).regions()


def problems(client: TogetherClient, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What the regions' list says against `values`, which may be UNKNOWN in places.

    Without an answer nothing is refused: `call` hears which checks were not made.
    """
    regions = _list_once(client)
    gpu_type = values.get("gpu_type")
    if isinstance(regions, str):
        _tell_unchecked(client, call, regions)
        if isinstance(gpu_type, str) and unknown_gpu_type(gpu_type):
            call.on_warning(f"gpu_type {gpu_type} is not a type that is known here")
        return
    name = values.get("region")
    if not isinstance(name, str):
        yield from _nowhere(gpu_type, regions)
        return
    region = next((region for region in regions if region.name == name), None)
    if region is None:
        yield Problem("region", _no_such_region(name, regions))
        return
    yield from _gpu_type(gpu_type, region, regions)
    yield from _drivers(values, region)


def _list_once(client: TogetherClient) -> Sequence[Region] | str:
    with _lock:
        found = known_regions.get(client)
        if found is None:
            try:
                # Planning must not wait for a platform that does not answer: one attempt.
                found = client.regions(Retry.NEVER)
            except GpuformError as error:
                found = error.message
            known_regions[client] = found
        return found


def _tell_unchecked(client: TogetherClient, call: Call, reason: str) -> None:
    # An engine collects these; Pulumi's hosts would show one per resource.
    if call.urn is None or call.stores_answers:
        with _lock:
            if client in _told:
                return
            _told.add(client)
    call.on_unchecked(
        f"regions, GPU types and driver versions were not checked with Together: {reason}"
    )


def _no_such_region(name: str, regions: Iterable[Region]) -> str:
    names = tuple(region.name for region in regions)
    near = nearest(name, names)
    meant = f"did you mean {near}?" if near else f"use one of {', '.join(names)}"
    return f"{name} is not a region of Together: {meant}"


def _nowhere(gpu_type: Any, regions: Iterable[Region]) -> Iterator[Problem]:
    """Without a known region: a type that no region offers."""
    offered = sorted({each for region in regions for each in region.supported_instance_types})
    if isinstance(gpu_type, str) and offered and gpu_type not in offered:
        yield Problem("gpu_type", f"no region offers {gpu_type}: use one of {', '.join(offered)}")


def _gpu_type(gpu_type: Any, region: Region, regions: Iterable[Region]) -> Iterator[Problem]:
    offered = region.supported_instance_types
    if not isinstance(gpu_type, str) or not offered or gpu_type in offered:
        return
    elsewhere = [other.name for other in regions if gpu_type in other.supported_instance_types]
    advice = f"use one of {', '.join(offered)}"
    if elsewhere:
        advice += f", or another region ({', '.join(elsewhere)})"
    yield Problem("gpu_type", f"{region.name} does not offer {gpu_type}: {advice}")


def _drivers(values: Mapping[str, Any], region: Region) -> Iterator[Problem]:
    offered = region.driver_versions
    chosen = values.get("nvidia_version_id")
    if isinstance(chosen, str):
        ids = [version.id for version in offered if version.id]
        if ids and chosen not in ids:
            yield Problem(
                "nvidia_version_id",
                f"{region.name} has no version {chosen}: use one of {', '.join(ids)}",
            )
    cuda, driver = values.get("cuda_version"), values.get("nvidia_driver_version")
    if not offered or UNKNOWN in (cuda, driver) or cuda is None or driver is None:
        return
    if not any(_is(version, cuda, driver) for version in offered):
        pairs = sorted({f"{v.cuda_version} with {v.nvidia_driver_version}" for v in offered})
        yield Problem(
            "cuda_version",
            f"{region.name} does not offer CUDA {cuda} with driver {driver}: "
            f"use one of {', '.join(pairs)}",
        )


def _is(version: DriverVersion, cuda: str, driver: str) -> bool:
    return is_same_version(version.cuda_version, cuda) and is_same_version(
        version.nvidia_driver_version, driver
    )
