"""What lack of credit has done to a resource, and what it does next."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class CreditState(StrEnum):
    """Whether lack of credit has taken it away: `stopped` and `revoked` only happen without any."""

    STOPPED = "stopped"
    REVOKED = "revoked"
    RUNS = "runs"


class Credit(BaseModel):
    """One resource in an account whose credit is used up, or may be.

    `text` says what has happened, or until when it still runs; empty where there is nothing to
    say. `next` says what is lost next of it, if anything is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: CreditState = Field(description="stopped, revoked or runs.")
    text: str = Field(default="", description="What has happened to it.")
    at: str = Field(default="", description="Since when, or until when it runs; empty: unknown.")
    next: str = Field(default="", description="What is lost next of it.")
