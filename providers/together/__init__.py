"""Together's GPU clusters, shared volumes and volume claims as Pulumi resources."""

from typing import TYPE_CHECKING

from gpuform.providers.together.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.together.lookups import clusters, volumes
    from gpuform.providers.together.regions import get_regions
    from gpuform.providers.together.resources import Cluster, SharedVolume, VolumeClaim

__all__ = ["Cluster", "SharedVolume", "VolumeClaim", "clusters", "get_regions", "volumes"]

__getattr__ = PLATFORM.exported
