"""What Together offers: its regions, with their GPU types and drivers.

The list says what a region supports, not what is free there (Together reference, 'List Regions').
"""

from collections.abc import Iterator, Sequence

from gpuform.providers.actions import Settings
from gpuform.providers.offering import DRIVER, GPU_TYPE, REGION, Offer
from gpuform.providers.together.client import client_for
from gpuform.schemas.together.drivers import driver_name
from gpuform.schemas.together.wire import DriverVersion


def offered(settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """One list of all regions."""
    for region in client_for(settings).regions():
        name = region.name
        yield Offer("together", REGION, name, "region", name)
        for gpu_type in region.supported_instance_types:
            yield Offer("together", GPU_TYPE, gpu_type, "gpu_type", name, gpu=gpu_type)
        drivers = dict.fromkeys(map(_named, region.driver_versions))
        for driver, about in drivers:
            yield Offer("together", DRIVER, driver, "driver_version", name, about)


def _named(version: DriverVersion) -> tuple[str, str]:
    """The name that is declared, and what it stands for."""
    pair = f"CUDA {version.cuda_version}, NVIDIA driver {version.nvidia_driver_version}"
    try:
        return driver_name(version.cuda_version, version.nvidia_driver_version), pair
    except ValueError:
        return version.id or pair, pair
