"""What the registry tells of a record beside what was declared."""

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class UrlMapOutputs(_Part):
    """Where the cluster's services are."""

    controller_service: str | None = Field(default=None, description="Of the controller.")
    metrics_service: str | None = Field(default=None, description="Of the metrics.")
    blocks_query: str | None = Field(default=None, description="For queries about blocks.")
    public_gateway: str | None = Field(default=None, description="Of the public gateway.")
    parameter_updater: str | None = Field(default=None, description="For changes of parameters.")


class TotalsOutputs(_Part):
    """The sums that a record has, whoever wrote them; sizes are in MB, bandwidths in MB/s."""

    nodes: float | None = Field(default=None, description="Nodes.")
    gpus: float | None = Field(default=None, description="GPUs.")
    gpu_memory: float | None = Field(default=None, description="Memory of all GPUs.")
    vcpus: float | None = Field(default=None, description="Virtual CPUs.")
    memory: float | None = Field(default=None, description="Memory.")
    swap: float | None = Field(default=None, description="Swap space.")
    disks: float | None = Field(default=None, description="Disks.")
    storage: float | None = Field(default=None, description="Size of all disks.")
    interfaces: float | None = Field(default=None, description="Network interfaces.")
    tx_bandwidth: float | None = Field(default=None, description="Bandwidth of sending.")
    rx_bandwidth: float | None = Field(default=None, description="Bandwidth of receiving.")


class ClusterOutputs(OutputModel):
    """A record of the registry; that it is there says nothing of the hardware."""

    object_id: str | None = Field(
        default=None, description="Mongo's id of this very record; people choose the other one."
    )
    status: str | None = Field(default=None, description="Status, in the registry's words.")
    url_map: UrlMapOutputs | None = Field(
        default=None, description="URLs of the cluster's services, filled in by the system."
    )
    network_reputation: float | None = Field(
        default=None, description="Reputation in the registry now, which the network may change."
    )
    totals: TotalsOutputs | None = Field(
        default=None, description="The sums in the registry now, which the network may change."
    )
    totals_agree: bool | None = Field(
        default=None, description="Whether these are what the nodes of the record add up to."
    )


class GpuNodeOutputs(OutputModel):
    """An entry of a cluster's record."""

    object_id: str | None = Field(
        default=None, description="Mongo's id of this very entry; people choose the other one."
    )
