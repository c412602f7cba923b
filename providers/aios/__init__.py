"""Records of the AIOS clusters registry as Pulumi resources, and a query of them."""

from typing import TYPE_CHECKING

from gpuform.providers.aios.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.aios.lookups import clusters
    from gpuform.providers.aios.resources import Cluster, GpuNode

__all__ = ["Cluster", "GpuNode", "clusters"]

__getattr__ = PLATFORM.exported
