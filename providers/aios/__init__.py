"""Records of the AIOS clusters registry as Pulumi resources, and a query of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.aios.lookups import clusters
    from gpuform.providers.aios.resources import Cluster, GpuNode

__all__ = ["Cluster", "GpuNode", "clusters"]

_MODULES = {"Cluster": "resources", "GpuNode": "resources", "clusters": "lookups"}


def __getattr__(name: str) -> Any:
    """Imports what is asked for on first use: a state file needs the lifecycles alone."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
