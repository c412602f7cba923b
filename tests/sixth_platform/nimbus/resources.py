"""Nimbus Cloud's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen nimbus
"""

from typing import Literal, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from nimbus.cluster import ClusterLifecycle

__all__ = ["Cluster"]

Region = Literal[
    "north",
    "south",
]

GpuType = Literal[
    "N100",
    "N200",
]


class ClusterArguments(TypedDict):
    """A GPU cluster of Nimbus."""

    # Name of the cluster. (replaces)
    name: pulumi.Input[str]
    # Where it is. (replaces)
    region: pulumi.Input[Region]
    # Type of the cluster's GPUs. (replaces)
    gpu_type: pulumi.Input[GpuType]
    # How many GPUs.
    gpu_count: pulumi.Input[int]


class Cluster(PlatformResource, module="gpuform.nimbus", name="Cluster"):
    """A GPU cluster of Nimbus."""

    _lifecycle = ClusterLifecycle

    name: pulumi.Output[str]
    region: pulumi.Output[str]
    gpu_type: pulumi.Output[str]
    gpu_count: pulumi.Output[int]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
