"""Where nodes are, as far as their platform tells it: region, vendor pool, fabric.

Platforms tell it of their own resources; what writes topologies for schedulers knows no platform.
What a platform does not tell is absent, never guessed.
"""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from gpuform.schemas.drain import KubernetesInputs


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class PlacedNode(_Part):
    """One GPU node."""

    name: str = Field(description="Its name on the platform; a host name.")
    slurm: str = Field(default="", description="Its name in Slurm; empty: the same.")
    address: str = Field(default="", description="Where it is reached; empty: nobody tells.")
    fabric_id: str = Field(default="", description="Id of its fabric; empty: not told.")
    fabric: str = Field(default="", description="Name of its fabric; empty: not told.")

    @property
    def name_in_slurm(self) -> str:
        """What Slurm calls it."""
        return self.slurm or self.name


class Placement(_Part):
    """The nodes of one resource, and what they have in common."""

    name: str = Field(description="Its name on the platform.")
    region: str = Field(default="", description="Region of the nodes; empty: not told.")
    pool: str = Field(default="", description="The platform's own pool of nodes; empty: none told.")
    nodes: tuple[PlacedNode, ...] = Field(default=(), description="Its nodes, in any order.")
    has_own_scheduler: bool = Field(
        default=False, description="Whether its nodes, and no others, have a Kubernetes or a Slurm."
    )
    kubeconfig: SecretStr | None = Field(
        default=None, description="Credential (YAML) of that Kubernetes; absent: none known."
    )
    kubernetes: KubernetesInputs | None = Field(
        default=None, description="Where the stack declares the Kubernetes of the nodes."
    )
    untold: tuple[str, ...] = Field(
        default=(), description="What the platform never tells, such as `switches`."
    )

    @property
    def fabrics(self) -> dict[str, str]:
        """Names of its nodes' fabrics by id; a fabric without an id counts by its name."""
        told = {node.fabric_id or node.fabric: node.fabric or node.fabric_id for node in self.nodes}
        return {key: name for key, name in told.items() if key}
