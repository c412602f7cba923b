"""What of a resource the whole world reaches, for gates to judge."""

from pydantic import BaseModel, ConfigDict, Field


class Exposure(BaseModel):
    """The ports of one resource that any address may reach, such as `22/tcp`.

    `unknown` says why they cannot be told, or not all of them; empty where they can.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ports: tuple[str, ...] = Field(default=(), description="Ports open to the whole world.")
    unknown: str = Field(default="", description="Why they cannot be told; empty: they can.")
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Its name in the program.")
