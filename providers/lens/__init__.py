"""What Lens tells of GPU nodes and who uses them, and gates that wait for it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.lens.lookups import get_consumers, get_heatmap, get_overview
    from gpuform.providers.lens.resources import HealthGate

__all__ = ["HealthGate", "get_consumers", "get_heatmap", "get_overview"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for on first use: a state file needs the lifecycles alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "resources" if name == "HealthGate" else "lookups"
    return getattr(import_module(f"{__name__}.{module}"), name)
