"""Where the service is (SCP reference, 'OpenAPI URL' and 'Environment and Region List')."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator

from gpuform.schemas.reasons import nearest

REGIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "s": ("kr-west1", "kr-east1"),
        "g": ("kr-south1", "kr-south2", "kr-south3"),
        "e": ("kr-west1", "kr-east1"),
    }
)
"""Environment -> its regions."""


def checked_region(region: str) -> str:
    """The region, if it is one. Raises ValueError with the nearest, or with all."""
    known = {each: None for regions in REGIONS.values() for each in regions}
    if region in known:
        return region
    near = nearest(region, known)
    advice = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
    raise ValueError(f"{region} is not a region of Samsung SCP: {advice}")


RegionId = Annotated[str, AfterValidator(checked_region)]


def service_url(region: str, environment: str) -> str:
    """The address of the API. Raises ValueError that lists the pairs when there is none such."""
    if region not in REGIONS.get(environment, ()):
        raise ValueError(
            f"SCP has no region {region} in environment {environment}: {all_regions()}"
        )
    return f"https://multinodegpucluster.{region}.{environment}.samsungsdscloud.com"


def environments_of(region: str) -> list[str]:
    """The environments that have a region; none for one that is not known."""
    return [each for each, regions in REGIONS.items() if region in regions]


def all_regions() -> str:
    """The regions of each environment, for messages."""
    return "; ".join(f"{each} has {', '.join(regions)}" for each, regions in REGIONS.items())
