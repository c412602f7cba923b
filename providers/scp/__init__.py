"""Samsung SCP's GPU nodes and fabrics as Pulumi resources, and what there is to make them of."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.scp.lookups import fabrics, gpu_nodes, images, node_pools, products
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

_RESOURCES = ("Fabric", "GpuNode", "NodePool")


def __getattr__(name: str) -> Any:
    """Imports what is asked for on first use: a state file needs the lifecycles alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "resources" if name in _RESOURCES else "lookups"
    return getattr(import_module(f"{__name__}.{module}"), name)
