"""Lens's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.lens.health_gate import HealthGateLifecycle
from gpuform.providers.resource import PlatformResource

__all__ = ["HealthGate"]


class BoundsArguments(TypedDict):
    """The bounds of a number."""

    # The lowest accepted value.
    at_least: NotRequired[pulumi.Input[float] | None]
    # The highest accepted value.
    at_most: NotRequired[pulumi.Input[float] | None]


class RateBoundsArguments(TypedDict):
    """The bounds of a rate, from 0 to 1."""

    # The lowest accepted value, from 0 to 1.
    at_least: NotRequired[pulumi.Input[float] | None]
    # The highest accepted value, from 0 to 1.
    at_most: NotRequired[pulumi.Input[float] | None]


class ConditionArguments(TypedDict):
    """The bounds that all have to hold. Storage is in TB of 1000 GB."""

    # GPU nodes.
    total_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Healthy nodes.
    healthy_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Nodes with faults.
    faulty_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Nodes without any GPU in use.
    fully_idle_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Nodes with some GPUs in use.
    partially_idle_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Nodes with all GPUs in use.
    busy_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Active RDMA ports.
    active_ports: NotRequired[pulumi.Input[BoundsArguments] | None]
    # RDMA ports.
    total_ports: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Share of healthy nodes.
    healthy_node_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    # Share of active RDMA ports.
    active_port_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    # Share of the GPUs that are allocated to workloads.
    allocation_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    # Utilization of the allocated GPUs.
    utilization: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    # Used part of the storage.
    storage_utilization_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    # Storage, in TB.
    storage_total_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Used storage, in TB.
    storage_used_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Free storage, in TB.
    storage_available_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Bandwidth of RDMA, in Gbps.
    rdma_bandwidth_gbps: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Temperature of the hottest GPU, in °C.
    max_temperature: NotRequired[pulumi.Input[BoundsArguments] | None]
    # Highest power of any GPU, in watts.
    max_power: NotRequired[pulumi.Input[BoundsArguments] | None]


class HealthGateArguments(TypedDict):
    """A gate that opens once the reports of Lens satisfy a condition."""

    # Bounds on numbers that Lens reports, by name. The condition holds if all bounds do.
    condition: pulumi.Input[ConditionArguments]
    # How long to wait for the condition, in minutes. (nothing)
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # Values of any kind: a change of one evaluates the gate again.
    triggers: NotRequired[pulumi.Input[Sequence[pulumi.Input[Any]]] | None]


class HealthGate(PlatformResource, module="gpuform.lens", name="HealthGate"):
    """A gate that opens once the reports of Lens satisfy a condition."""

    _lifecycle = HealthGateLifecycle

    condition: pulumi.Output[dict[str, Any]]
    wait_minutes: pulumi.Output[int | None]
    triggers: pulumi.Output[list[Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    overview: pulumi.Output[dict[str, Any] | None]
    amiss_now: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[HealthGateArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
