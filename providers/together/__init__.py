"""Together's GPU clusters, shared volumes and volume claims as Pulumi resources."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.together.regions import get_regions
    from gpuform.providers.together.resources import Cluster, SharedVolume, VolumeClaim

__all__ = ["Cluster", "SharedVolume", "VolumeClaim", "get_regions"]

_MODULES = {
    "Cluster": "resources",
    "SharedVolume": "resources",
    "VolumeClaim": "resources",
    "get_regions": "regions",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for on first use: a state file needs the lifecycles alone."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
