"""Define the inputs of a Nimbus cluster, the API's objects, and the outputs of the resource."""

from typing import Annotated, Literal

from pydantic import Field

from gpuform.schemas.models import InputModel, OutputModel, WireList, WireModel
from gpuform.schemas.rules import Immutable


class ClusterInputs(InputModel):
    """A GPU cluster of Nimbus."""

    name: Annotated[
        str,
        Immutable,
        Field(
            pattern="^[a-z][a-z0-9-]{0,40}$", description="Name of the cluster.", examples=["train"]
        ),
    ]
    region: Annotated[
        Literal["north", "south"], Immutable, Field(description="Where it is.", examples=["north"])
    ]
    gpu_type: Annotated[
        Literal["N100", "N200"],
        Immutable,
        Field(description="Type of the cluster's GPUs.", examples=["N100"]),
    ]
    gpu_count: Annotated[int, Field(ge=1, le=64, description="How many GPUs.", examples=[8])]


class Cluster(WireModel):
    """Nimbus reference, 'Clusters'."""

    id: str
    name: str
    region: str = ""
    gpu_type: str = ""
    gpu_count: int = 0
    status: str = ""


class ClusterList(WireList):
    """Nimbus reference, 'List clusters'."""

    clusters: tuple[Cluster, ...]


class ClusterOutputs(OutputModel):
    """The outputs of a Nimbus cluster beside its inputs."""

    status: str = Field(description="Status, in Nimbus's words.")
