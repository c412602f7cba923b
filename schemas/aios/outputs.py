"""What the registry tells of a record beside what was declared."""

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel


class UrlMapOutputs(BaseModel):
    """Where the cluster's services are."""

    model_config = ConfigDict(frozen=True)

    controller_service: str | None = Field(default=None, description="Of the controller.")
    metrics_service: str | None = Field(default=None, description="Of the metrics.")
    blocks_query: str | None = Field(default=None, description="For queries about blocks.")
    public_gateway: str | None = Field(default=None, description="Of the public gateway.")
    parameter_updater: str | None = Field(default=None, description="For changes of parameters.")


class ClusterOutputs(OutputModel):
    """A record of the registry; that it is there says nothing of the hardware."""

    object_id: str | None = Field(
        default=None, description="Mongo's id of this very record; people choose the other one."
    )
    status: str | None = Field(default=None, description="Status, in the registry's words.")
    url_map: UrlMapOutputs | None = Field(
        default=None, description="URLs of the cluster's services, filled in by the system."
    )


class GpuNodeOutputs(OutputModel):
    """An entry of a cluster's record."""

    object_id: str | None = Field(
        default=None, description="Mongo's id of this very entry; people choose the other one."
    )
