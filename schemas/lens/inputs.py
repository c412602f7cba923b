"""Define the inputs and outputs of a health gate: bounds on Lens's overview and heatmap.

Names are the overview's own in snake_case (Lens reference, 'Get Cluster Overview'), except for
rates, sizes and the hottest GPUs, which are computed.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from gpuform.schemas.models import InputModel, OutputModel, OutputPart, Problem, optional_field
from gpuform.schemas.rules import Default, Local

DEFAULT_WAIT_MINUTES = 30


class BoundsInputs(InputModel):
    """The bounds of a number."""

    at_least: float | None = optional_field("The lowest accepted value.", ge=0, examples=[9])
    at_most: float | None = optional_field("The highest accepted value.", ge=0, examples=[10])

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if no bound is declared, or if `at_least` is more than `at_most`."""
        minimum, maximum = values.get("at_least"), values.get("at_most")
        if minimum is None and maximum is None:
            yield Problem("at_least", "is required: declare it, or at_most, or both")
        # A bound that is not known yet is not a number.
        if (
            isinstance(minimum, int | float)
            and isinstance(maximum, int | float)
            and minimum > maximum
        ):
            yield Problem(
                "at_least",
                f"{minimum:g} is more than at_most, {maximum:g}: no number can meet both",
            )


class RateBoundsInputs(BoundsInputs):
    """The bounds of a rate, from 0 to 1."""

    at_least: float | None = optional_field(
        "The lowest accepted value, from 0 to 1.", ge=0, le=1, examples=[0.95]
    )
    at_most: float | None = optional_field(
        "The highest accepted value, from 0 to 1.", ge=0, le=1, examples=[0.8]
    )


class ConditionInputs(InputModel):
    """The bounds that all have to hold. Storage is in TB of 1000 GB.

    The rates of nodes and ports are computed from the overview. The heatmap shows the five GPUs
    with the highest values, so a bound on these is a bound on all GPUs. The heatmap does not report
    memory.
    """

    total_nodes: BoundsInputs | None = optional_field("GPU nodes.", examples=[{"at_least": 10}])
    healthy_nodes: BoundsInputs | None = optional_field(
        "Healthy nodes.", examples=[{"at_least": 9}]
    )
    faulty_nodes: BoundsInputs | None = optional_field(
        "Nodes with faults.", examples=[{"at_most": 0}]
    )
    # Idle, partially idle and busy need not add up to total_nodes.
    fully_idle_nodes: BoundsInputs | None = optional_field(
        "Nodes without any GPU in use.", examples=[{"at_least": 3}]
    )
    partially_idle_nodes: BoundsInputs | None = optional_field(
        "Nodes with some GPUs in use.", examples=[{"at_most": 4}]
    )
    busy_nodes: BoundsInputs | None = optional_field(
        "Nodes with all GPUs in use.", examples=[{"at_most": 2}]
    )
    active_ports: BoundsInputs | None = optional_field(
        "Active RDMA ports.", examples=[{"at_least": 76}]
    )
    total_ports: BoundsInputs | None = optional_field("RDMA ports.", examples=[{"at_least": 80}])
    healthy_node_rate: RateBoundsInputs | None = optional_field(
        "Share of healthy nodes.", examples=[{"at_least": 0.9}]
    )
    active_port_rate: RateBoundsInputs | None = optional_field(
        "Share of active RDMA ports.", examples=[{"at_least": 0.95}]
    )
    allocation_rate: RateBoundsInputs | None = optional_field(
        "Share of the GPUs that are allocated to workloads.", examples=[{"at_most": 0.75}]
    )
    utilization: RateBoundsInputs | None = optional_field(
        "Utilization of the allocated GPUs.", examples=[{"at_least": 0.6}]
    )
    storage_utilization_rate: RateBoundsInputs | None = optional_field(
        "Used part of the storage.", examples=[{"at_most": 0.8}]
    )
    storage_total_tb: BoundsInputs | None = optional_field(
        "Storage, in TB.", examples=[{"at_least": 1000}]
    )
    storage_used_tb: BoundsInputs | None = optional_field(
        "Used storage, in TB.", examples=[{"at_most": 900}]
    )
    storage_available_tb: BoundsInputs | None = optional_field(
        "Free storage, in TB.", examples=[{"at_least": 50}]
    )
    rdma_bandwidth_gbps: BoundsInputs | None = optional_field(
        "Bandwidth of RDMA, in Gbps.", examples=[{"at_least": 400}]
    )
    # From the heatmap, which is requested only with such a bound.
    max_temperature: BoundsInputs | None = optional_field(
        "Temperature of the hottest GPU, in °C.", examples=[{"at_most": 85}]
    )
    max_power: BoundsInputs | None = optional_field(
        "Highest power of any GPU, in watts.", examples=[{"at_most": 750}]
    )


class HealthGateInputs(InputModel):
    """A gate that opens once the reports of Lens satisfy a condition.

    Resources that depend on it wait.
    """

    condition: ConditionInputs = Field(
        description="Bounds on numbers that Lens reports, by name. The condition holds if all "
        "bounds do.",
        examples=[{"healthy_nodes": {"at_least": 9}, "faulty_nodes": {"at_most": 0}}],
    )
    wait_minutes: Annotated[int | None, Local, Default(DEFAULT_WAIT_MINUTES)] = optional_field(
        "How long to wait for the condition, in minutes.", ge=1, examples=[20]
    )
    triggers: list[Any] | None = optional_field(
        "Values of any kind: a change of one evaluates the gate again.",
        examples=[["{{ clusters.train.id }}", "{{ clusters.train.num_gpus }}"]],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if the condition has no bounds."""
        if values.get("condition") == {}:
            names = ", ".join(ConditionInputs.model_fields)
            yield Problem("condition", f"is empty: declare bounds of at least one of {names}")


class SeenOutputs(OutputPart):
    """The numbers of the overview and the heatmap. Rates are from 0 to 1."""

    total_nodes: int | None = optional_field("GPU nodes.")
    healthy_nodes: int | None = optional_field("Healthy nodes.")
    faulty_nodes: int | None = optional_field("Nodes with faults.")
    fully_idle_nodes: int | None = optional_field("Nodes without GPUs in use.")
    partially_idle_nodes: int | None = optional_field("Nodes with some GPUs in use.")
    busy_nodes: int | None = optional_field("Nodes with all GPUs in use.")
    active_ports: int | None = optional_field("Active RDMA ports.")
    total_ports: int | None = optional_field("RDMA ports.")
    healthy_node_rate: float | None = optional_field("Share of healthy nodes.")
    active_port_rate: float | None = optional_field("Share of active RDMA ports.")
    allocation_rate: float | None = optional_field(
        "Share of the GPUs that are allocated to workloads."
    )
    utilization: float | None = optional_field("Utilization of the allocated GPUs.")
    storage_utilization_rate: float | None = optional_field("Used storage.")
    storage_total_tb: float | None = optional_field("Storage, in TB.")
    storage_used_tb: float | None = optional_field("Used storage, in TB.")
    storage_available_tb: float | None = optional_field("Free storage, in TB.")
    rdma_bandwidth_gbps: float | None = optional_field("Bandwidth, in Gbps.")
    max_temperature: float | None = optional_field(
        "Temperature of the hottest GPU, in °C, if the condition asks for it."
    )
    max_power: float | None = optional_field(
        "Highest power of any GPU, in watts, if the condition asks for it."
    )


class HealthGateOutputs(OutputModel):
    """The gate when it was last passed or waited at, and the findings of the last refresh."""

    overview: SeenOutputs | None = optional_field(
        "The last overview; absent if Lens reported none."
    )
    amiss_now: str | None = optional_field(
        "Violations of the condition at the last refresh; absent if none. A "
        "violation does not close a passed gate."
    )
