"""Manage records of the AIOS clusters registry as Pulumi resources, and query them.

Programs import `Cluster`, `GpuNode` and `clusters` from here.
"""

from typing import TYPE_CHECKING

from gpuform.providers.aios.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.aios.inventory import clusters
    from gpuform.providers.aios.resources import Cluster, GpuNode

__all__ = ["Cluster", "GpuNode", "clusters"]

__getattr__ = PLATFORM.load_exported
