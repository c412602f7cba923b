"""What a health gate gives out: whether it is open, and the overview that it opened on."""

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel


class SeenOutputs(BaseModel):
    """The overview's numbers; rates are from 0 to 1."""

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


class HealthGateOutputs(OutputModel):
    """The gate as it was when it was last passed, or waited at."""

    overview: SeenOutputs | None = Field(
        default=None, description="What the overview told last; absent when it told nothing."
    )
