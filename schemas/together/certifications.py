"""A certification of the nodes of a Together cluster."""

from typing import Annotated

from pydantic import Field

from gpuform.schemas.certification import CertificationPolicy
from gpuform.schemas.rules import Immutable, Refers, TakenFrom


class CertificationInputs(CertificationPolicy):
    """A proof that a cluster's nodes are fit: what depends on it waits for it."""

    cluster_id: Annotated[str, Immutable, Refers("Cluster")] = Field(
        min_length=1,
        description="Cluster whose nodes are tested.",
        examples=["{{ clusters.train.id }}"],
    )
    num_gpus: Annotated[int, TakenFrom("Cluster", "num_gpus")] = Field(
        ge=8,
        multiple_of=8,
        description="How many GPUs the cluster has: with more of them the new nodes are tested.",
        examples=["{{ clusters.train.num_gpus }}"],
    )
