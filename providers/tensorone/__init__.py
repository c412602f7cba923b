"""TensorOne's GPU clusters as Pulumi resources."""

from typing import TYPE_CHECKING

from gpuform.providers.tensorone.platform import PLATFORM

if TYPE_CHECKING:
    from gpuform.providers.tensorone.lookups import clusters, metrics, projects, templates
    from gpuform.providers.tensorone.resources import Cluster

__all__ = ["Cluster", "clusters", "metrics", "projects", "templates"]

__getattr__ = PLATFORM.exported
