"""Nimbus Cloud's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen nimbus
"""

from typing import Literal, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from nimbus.cluster import ClusterLifecycle

__all__ = ["Cluster"]

Region = Literal["north", "south"]
GpuType = Literal["N100", "N200"]


class ClusterArguments(TypedDict):
    """A GPU cluster of Nimbus."""

    name: pulumi.Input[str]
    """Name of the cluster. (replaces)"""
    region: pulumi.Input[Region]
    """Where it is. (replaces)"""
    gpu_type: pulumi.Input[GpuType]
    """Type of the cluster's GPUs. (replaces)"""
    gpu_count: pulumi.Input[int]
    """How many GPUs."""


class Cluster(PlatformResource, module="gpuform.nimbus", name="Cluster"):
    """A GPU cluster of Nimbus."""

    _lifecycle = ClusterLifecycle

    name: pulumi.Output[str]
    """Name of the cluster."""
    region: pulumi.Output[str]
    """Where it is."""
    gpu_type: pulumi.Output[str]
    """Type of the cluster's GPUs."""
    gpu_count: pulumi.Output[int]
    """How many GPUs."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Status, in Nimbus's words."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
