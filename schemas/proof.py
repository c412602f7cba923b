"""Whether the nodes of a resource are certified, for gates to judge."""

from pydantic import BaseModel, ConfigDict, Field


class Proof(BaseModel):
    """One resource with GPUs that stays or is made.

    `problem` says why its nodes are not certified once the plan is applied; empty where they are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    urn: str = Field(description="URN of the resource.")
    name: str = Field(description="Its name in the program.")
    problem: str = Field(default="", description="Why its nodes are not certified, if so.")
