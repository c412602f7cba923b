"""TensorOne's GPU clusters as Pulumi resources."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.tensorone.resources import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for on first use: a state file needs the lifecycles alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.resources"), name)
