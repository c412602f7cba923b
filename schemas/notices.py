"""What people have to know beside what changes: ends, lack of credit, what is left, use."""

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


class NoticeKind(StrEnum):
    """What it is about."""

    EXPIRY = "expiry"
    CREDIT = "credit"
    SELECTION = "selection"
    USE = "use"
    RENAMED = "renamed"
    WORKERS = "workers"
    CHANGED = "changed"
    TEMPLATE = "template"
    IMAGE = "image"
    ROLLOUT = "rollout"
    REPAIR = "repair"
    FABRICS = "fabrics"
    OPTIONS = "options"


class Notice(BaseModel):
    """One thing to know. `urn` and `name` are empty where it is about the whole stack."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: NoticeKind = Field(
        description="What it is about: expiry, credit, selection, use, renamed, workers, changed, "
        "template, image, rollout, repair, fabrics or options."
    )
    text: str = Field(description="What there is to know, and what to do.")
    at: str = Field(default="", description="The moment that it is about, in UTC; empty: none.")
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Its name in the program.")
