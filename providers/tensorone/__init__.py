"""Export TensorOne's clusters for Pulumi programs, and the functions that look up what exists.

Pulumi programs import this package. Classes and functions are imported on first use, so that
reading a state file loads no more than the lifecycles.
"""

from typing import TYPE_CHECKING

from gpuform.providers.tensorone.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.tensorone.inventory import clusters, metrics, projects, templates
    from gpuform.providers.tensorone.resources import Cluster

__all__ = ["Cluster", "clusters", "metrics", "projects", "templates"]

__getattr__ = PLATFORM.load_exported
