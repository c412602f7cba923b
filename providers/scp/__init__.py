"""Declare Samsung SCP's GPU nodes, node pools and fabrics as Pulumi resources, and look up offers.

Programs import this package; names are loaded when they are used.
"""

from typing import TYPE_CHECKING

from gpuform.providers.scp.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.scp.inventory import fabrics, gpu_nodes, images, node_pools, products
    from gpuform.providers.scp.resources import Fabric, GpuNode, NodePool

__all__ = [
    "Fabric",
    "GpuNode",
    "NodePool",
    "fabrics",
    "gpu_nodes",
    "images",
    "node_pools",
    "products",
]

__getattr__ = PLATFORM.load_exported
