"""Lens's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.lens.health_gate import HealthGateLifecycle
from gpuform.providers.resource import PlatformResource

__all__ = ["HealthGate"]


class BoundsArguments(TypedDict):
    """The bounds of a number."""

    at_least: NotRequired[pulumi.Input[float] | None]
    """The lowest accepted value."""
    at_most: NotRequired[pulumi.Input[float] | None]
    """The highest accepted value."""


class RateBoundsArguments(TypedDict):
    """The bounds of a rate, from 0 to 1."""

    at_least: NotRequired[pulumi.Input[float] | None]
    """The lowest accepted value, from 0 to 1."""
    at_most: NotRequired[pulumi.Input[float] | None]
    """The highest accepted value, from 0 to 1."""


class ConditionArguments(TypedDict):
    """The bounds that all have to hold. Storage is in TB of 1000 GB."""

    total_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """GPU nodes."""
    healthy_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Healthy nodes."""
    faulty_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Nodes with faults."""
    fully_idle_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Nodes without any GPU in use."""
    partially_idle_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Nodes with some GPUs in use."""
    busy_nodes: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Nodes with all GPUs in use."""
    active_ports: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Active RDMA ports."""
    total_ports: NotRequired[pulumi.Input[BoundsArguments] | None]
    """RDMA ports."""
    healthy_node_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    """Share of healthy nodes."""
    active_port_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    """Share of active RDMA ports."""
    allocation_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    """Share of the GPUs that are allocated to workloads."""
    utilization: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    """Utilization of the allocated GPUs."""
    storage_utilization_rate: NotRequired[pulumi.Input[RateBoundsArguments] | None]
    """Used part of the storage."""
    storage_total_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Storage, in TB."""
    storage_used_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Used storage, in TB."""
    storage_available_tb: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Free storage, in TB."""
    rdma_bandwidth_gbps: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Bandwidth of RDMA, in Gbps."""
    max_temperature: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Temperature of the hottest GPU, in °C."""
    max_power: NotRequired[pulumi.Input[BoundsArguments] | None]
    """Highest power of any GPU, in watts."""


class HealthGateArguments(TypedDict):
    """A gate that opens once the reports of Lens satisfy a condition."""

    condition: pulumi.Input[ConditionArguments]
    """Bounds on numbers that Lens reports, by name. The condition holds if all bounds do."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to wait for the condition, in minutes. (nothing)"""
    triggers: NotRequired[pulumi.Input[Sequence[pulumi.Input[Any]]] | None]
    """Values of any kind: a change of one evaluates the gate again."""


if TYPE_CHECKING:

    class BoundsValues(TypedDict):
        """The bounds of a number."""

        at_least: NotRequired[float]
        """The lowest accepted value."""
        at_most: NotRequired[float]
        """The highest accepted value."""

    class RateBoundsValues(TypedDict):
        """The bounds of a rate, from 0 to 1."""

        at_least: NotRequired[float]
        """The lowest accepted value, from 0 to 1."""
        at_most: NotRequired[float]
        """The highest accepted value, from 0 to 1."""

    class ConditionValues(TypedDict):
        """The bounds that all have to hold."""

        total_nodes: NotRequired[BoundsValues]
        """GPU nodes."""
        healthy_nodes: NotRequired[BoundsValues]
        """Healthy nodes."""
        faulty_nodes: NotRequired[BoundsValues]
        """Nodes with faults."""
        fully_idle_nodes: NotRequired[BoundsValues]
        """Nodes without any GPU in use."""
        partially_idle_nodes: NotRequired[BoundsValues]
        """Nodes with some GPUs in use."""
        busy_nodes: NotRequired[BoundsValues]
        """Nodes with all GPUs in use."""
        active_ports: NotRequired[BoundsValues]
        """Active RDMA ports."""
        total_ports: NotRequired[BoundsValues]
        """RDMA ports."""
        healthy_node_rate: NotRequired[RateBoundsValues]
        """Share of healthy nodes."""
        active_port_rate: NotRequired[RateBoundsValues]
        """Share of active RDMA ports."""
        allocation_rate: NotRequired[RateBoundsValues]
        """Share of the GPUs that are allocated to workloads."""
        utilization: NotRequired[RateBoundsValues]
        """Utilization of the allocated GPUs."""
        storage_utilization_rate: NotRequired[RateBoundsValues]
        """Used part of the storage."""
        storage_total_tb: NotRequired[BoundsValues]
        """Storage, in TB."""
        storage_used_tb: NotRequired[BoundsValues]
        """Used storage, in TB."""
        storage_available_tb: NotRequired[BoundsValues]
        """Free storage, in TB."""
        rdma_bandwidth_gbps: NotRequired[BoundsValues]
        """Bandwidth of RDMA, in Gbps."""
        max_temperature: NotRequired[BoundsValues]
        """Temperature of the hottest GPU, in °C."""
        max_power: NotRequired[BoundsValues]
        """Highest power of any GPU, in watts."""

    class SeenValues(TypedDict):
        """The numbers of the overview and the heatmap."""

        total_nodes: NotRequired[int]
        """GPU nodes."""
        healthy_nodes: NotRequired[int]
        """Healthy nodes."""
        faulty_nodes: NotRequired[int]
        """Nodes with faults."""
        fully_idle_nodes: NotRequired[int]
        """Nodes without GPUs in use."""
        partially_idle_nodes: NotRequired[int]
        """Nodes with some GPUs in use."""
        busy_nodes: NotRequired[int]
        """Nodes with all GPUs in use."""
        active_ports: NotRequired[int]
        """Active RDMA ports."""
        total_ports: NotRequired[int]
        """RDMA ports."""
        healthy_node_rate: NotRequired[float]
        """Share of healthy nodes."""
        active_port_rate: NotRequired[float]
        """Share of active RDMA ports."""
        allocation_rate: NotRequired[float]
        """Share of the GPUs that are allocated to workloads."""
        utilization: NotRequired[float]
        """Utilization of the allocated GPUs."""
        storage_utilization_rate: NotRequired[float]
        """Used storage."""
        storage_total_tb: NotRequired[float]
        """Storage, in TB."""
        storage_used_tb: NotRequired[float]
        """Used storage, in TB."""
        storage_available_tb: NotRequired[float]
        """Free storage, in TB."""
        rdma_bandwidth_gbps: NotRequired[float]
        """Bandwidth, in Gbps."""
        max_temperature: NotRequired[float]
        """Temperature of the hottest GPU, in °C, if the condition asks for it."""
        max_power: NotRequired[float]
        """Highest power of any GPU, in watts, if the condition asks for it."""

else:
    BoundsValues = dict[str, Any]
    RateBoundsValues = dict[str, Any]
    ConditionValues = dict[str, Any]
    SeenValues = dict[str, Any]


class HealthGate(PlatformResource, module="gpuform.lens", name="HealthGate"):
    """A gate that opens once the reports of Lens satisfy a condition."""

    _lifecycle = HealthGateLifecycle

    condition: pulumi.Output[ConditionValues]
    """Bounds on numbers that Lens reports, by name. The condition holds if all bounds do."""
    wait_minutes: pulumi.Output[int | None]
    """How long to wait for the condition, in minutes."""
    triggers: pulumi.Output[list[Any] | None]
    """Values of any kind: a change of one evaluates the gate again."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    overview: pulumi.Output[SeenValues | None]
    """The last overview; absent if Lens reported none."""
    amiss_now: pulumi.Output[str | None]
    """Violations of the condition at the last refresh; absent if none. A violation does not close a
    passed gate."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[HealthGateArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
