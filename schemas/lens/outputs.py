"""What a health gate gives out: whether it is open, and the overview that it opened on."""

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel


class SeenOutputs(BaseModel):
    """The numbers of the overview and the heatmap; rates are from 0 to 1."""

    model_config = ConfigDict(frozen=True)

    total_nodes: int | None = Field(default=None, description="GPU nodes.")
    healthy_nodes: int | None = Field(default=None, description="Healthy nodes.")
    faulty_nodes: int | None = Field(default=None, description="Nodes with faults.")
    fully_idle_nodes: int | None = Field(default=None, description="Nodes without GPUs in use.")
    partially_idle_nodes: int | None = Field(default=None, description="With some in use.")
    busy_nodes: int | None = Field(default=None, description="With all in use.")
    active_ports: int | None = Field(default=None, description="Active RDMA ports.")
    total_ports: int | None = Field(default=None, description="RDMA ports.")
    healthy_node_rate: float | None = Field(default=None, description="Healthy nodes of all.")
    active_port_rate: float | None = Field(default=None, description="Active ports of all.")
    allocation_rate: float | None = Field(default=None, description="GPUs allotted.")
    utilization: float | None = Field(default=None, description="Use of allotted GPUs.")
    storage_utilization_rate: float | None = Field(default=None, description="Used storage.")
    storage_total_tb: float | None = Field(default=None, description="Storage, in TB.")
    storage_used_tb: float | None = Field(default=None, description="Used storage, in TB.")
    storage_available_tb: float | None = Field(default=None, description="Free storage, in TB.")
    rdma_bandwidth_gbps: float | None = Field(default=None, description="Bandwidth, in Gbps.")
    max_temperature: float | None = Field(
        default=None, description="Of the hottest GPU, in °C, where the condition asks for it."
    )
    max_power: float | None = Field(
        default=None, description="The most of a GPU, in watts, where the condition asks for it."
    )


class HealthGateOutputs(OutputModel):
    """The gate as it was when it was last passed, or waited at, and what a look at it says now."""

    overview: SeenOutputs | None = Field(
        default=None, description="What the overview told last; absent when it told nothing."
    )
    amiss_now: str | None = Field(
        default=None,
        description="What the last refresh found that would keep a passed gate closed now; absent "
        "when nothing would. It closes no gate.",
    )
