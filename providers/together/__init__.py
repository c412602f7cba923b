"""Together's GPU clusters, shared volumes and volume claims as Pulumi resources."""

from typing import TYPE_CHECKING

from gpuform.providers.together.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.together.regions import get_regions
    from gpuform.providers.together.resources import Cluster, SharedVolume, VolumeClaim

__all__ = ["Cluster", "SharedVolume", "VolumeClaim", "get_regions"]

__getattr__ = PLATFORM.exported
