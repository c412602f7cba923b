"""Export Together's resources for Pulumi programs, and the functions that look up what exists.

Pulumi programs import this package. Classes and functions are imported on first use, so that
reading a state file loads no more than the lifecycles.
"""

from typing import TYPE_CHECKING

from gpuform.providers.together.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.together.inventory import clusters, volumes
    from gpuform.providers.together.regions import get_regions
    from gpuform.providers.together.resources import Cluster, SharedVolume, VolumeClaim

__all__ = ["Cluster", "SharedVolume", "VolumeClaim", "clusters", "get_regions", "volumes"]

__getattr__ = PLATFORM.load_exported
