"""What Lens tells of GPU nodes and who uses them, and gates that wait for it."""

from typing import TYPE_CHECKING

from gpuform.providers.lens.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.lens.lookups import capacity, get_consumers, get_heatmap, get_overview
    from gpuform.providers.lens.resources import HealthGate

__all__ = ["HealthGate", "capacity", "get_consumers", "get_heatmap", "get_overview"]

__getattr__ = PLATFORM.exported
