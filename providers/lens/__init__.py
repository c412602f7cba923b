"""Read what Lens reports of GPU nodes and their users, and wait for it with health gates.

Programs import `HealthGate` and the look-ups from here.
"""

from typing import TYPE_CHECKING

from gpuform.providers.lens.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.lens.inventory import capacity, get_consumers, get_heatmap, get_overview
    from gpuform.providers.lens.resources import HealthGate

__all__ = ["HealthGate", "capacity", "get_consumers", "get_heatmap", "get_overview"]

__getattr__ = PLATFORM.load_exported
