"""What tests and people may set of what Lens shows; a reset brings the defaults back."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gpuform.providers.emulator.settings import Settings as _Settings


class Stat(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    gpuRequest: int = Field(ge=0)  # noqa: N815 - the document's name
    gpuUtilization: float = Field(ge=0, le=1)  # noqa: N815 - as above


class Consumer(BaseModel):
    """A workload, as the document shows it. Its GPUs are taken from the nodes in their order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    name: str
    namespace: str
    uid: str
    stat: Stat
    pods: None = None
    source: str


class Failure(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    code: int
    message: str


class Settings(_Settings):
    kind = "lens.settings"

    consumers: tuple[Consumer, ...] = ()
    """The workloads on the monitored nodes."""

    overview: Mapping[str, JsonValue] = {}
    """Fields of the overview, by the document's names, in the place of what is counted."""

    heatmap: dict[str, Any] | None = None
    """The whole heatmap, in the place of the computed one."""

    total: int | None = None
    """How many consumers the pages say that there are, instead of how many there are."""

    failure: Failure | None = None
    """What every answer carries, with status 200."""

    garbled: bool = False
    """Whether the unit of temperatures is sent as the document has it, â„ƒ."""
