"""List the regions, GPU types and drivers of Together for `gpuform offers` and for completion.

The platform's list says what a region supports, not what is free there (document 003, "List
Regions").
"""

from collections.abc import Iterator, Sequence

from gpuform.providers.catalog import DRIVER, GPU_TYPE, REGION, Offer
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.schemas.together.drivers import format_driver_version
from gpuform.schemas.together.wire import DriverVersion


def list_offers(settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """Yield an offer for each region, GPU type and driver, from one request.

    All regions are listed, whatever `_regions`.

    Raises:
        GpuformError: Together does not answer.
    """
    for region in get_client(settings).list_regions():
        name = region.name
        yield Offer("together", REGION, name, "region", name)
        for gpu_type in region.supported_instance_types:
            yield Offer("together", GPU_TYPE, gpu_type, "gpu_type", name, gpu=gpu_type)
        # two versions of the list may stand for one declared name: offer the name once
        systems_by_driver: dict[tuple[str, str], list[str]] = {}
        for version in region.driver_versions:
            systems_by_driver.setdefault(_describe_driver(version), []).append(version.os or "")
        for (driver, versions), systems in systems_by_driver.items():
            system_names = " or ".join(filter(None, systems))
            description = f"{versions}, {system_names}" if system_names else versions
            yield Offer("together", DRIVER, driver, "driver_version", name, description)


def _describe_driver(version: DriverVersion) -> tuple[str, str]:
    """Return the declared name of a driver version and the two versions behind the name."""
    pair = f"CUDA {version.cuda_version}, NVIDIA driver {version.nvidia_driver_version}"
    try:
        return format_driver_version(version.cuda_version, version.nvidia_driver_version), pair
    except ValueError:
        # a form of version number that no declared name exists for: show what the platform calls it
        return version.id or pair, pair
