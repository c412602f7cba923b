"""What happened in a run, as it is kept beside its entry in the history; never with a secret."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.plan import Plan

LOG_VERSION: Final = "1"
"""Grows when a reader of the old form would misread the new one."""


class _LogModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class LogLine(_LogModel):
    """One thing that happened."""

    time: float = Field(description="When, in Unix seconds of the machine that ran it.")
    event: Literal["started", "progress", "done", "failed", "message", "unchecked"] = Field(
        description="What: of work on a resource, or something to be read."
    )
    urn: str = Field(default="", description="Of which resource; empty: of the whole run.")
    op: str = Field(default="", description="What was done to it: Pulumi's name of the step.")
    found: str = Field(default="", description="Of a refresh: what it found, as such a name.")
    seconds: float = Field(default=0.0, description="How long it took, by the platform's clock.")
    severity: str = Field(default="", description="Of a message: info, warning or error.")
    text: str = Field(default="", description="What was said.")


class RunLog(_LogModel):
    """What a run changed, and what happened in it, in order."""

    log_version: Literal["1"] = Field(default=LOG_VERSION, description="Version of this form.")
    plan: Plan = Field(description="What was to be done.")
    lines: tuple[LogLine, ...] = Field(default=(), description="What happened.")
