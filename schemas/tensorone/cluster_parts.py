"""The objects inside a cluster's declaration, and the texts with rules."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.models import InputModel

Protocol = Literal["tcp", "udp"]
Port = Annotated[int, Field(ge=1, le=65535)]

_NAME = re.compile(r"[A-Za-z0-9-]{3,64}")


def checked_name(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not _NAME.fullmatch(text):
        raise ValueError("must have 3 to 64 letters, digits and hyphens")
    return text


Name = Annotated[str, AfterValidator(checked_name)]


class PortMappingInputs(InputModel):
    """A port of the cluster that is reached from outside."""

    internal_port: Port = Field(description="Port inside the cluster.", examples=[8888])
    external_port: Port | None = Field(
        default=None,
        description="Port outside; the platform's choice when not declared.",
        examples=[32001],
    )
    protocol: Protocol | None = Field(default=None, description="tcp or udp.", examples=["tcp"])
    description: str | None = Field(
        default=None, description="What it is for.", examples=["Jupyter"]
    )


class AutoTerminateInputs(InputModel):
    """When the platform stops the cluster by itself."""

    enabled: bool | None = Field(default=None, description="Whether it does.", examples=[True])
    idle_minutes: int | None = Field(
        default=None, ge=1, description="After so long without work.", examples=[60]
    )
    max_runtime_hours: int | None = Field(
        default=None, ge=1, description="After so many hours.", examples=[24]
    )
    cost_limit_usd: float | None = Field(
        default=None, gt=0, description="At this cost, in USD.", examples=[500]
    )
