"""What a resource takes up: where, of which kind, for how long, and what of it has to be paid for.

Platforms tell it of their own resources; prices, gates and reviews read it and know no platform.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Billing(StrEnum):
    """How something is paid for."""

    ON_DEMAND = "on_demand"
    RESERVED = "reserved"
    SCHEDULED = "scheduled"
    CAPACITY_POOL = "capacity_pool"
    PREEMPTIBLE = "preemptible"
    STOPPED = "stopped"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Expense(_Part):
    """One thing that has to be paid for, and what an hour of it costs, where that is known."""

    what: Literal["gpus", "storage", "whole"] = Field(
        description="GPUs, storage, or all of the resource in one price."
    )
    amount: float | None = Field(default=None, description="How much, in unit; null: unknown.")
    unit: str = Field(default="GPU", description="GPU, TiB or GB.")
    platform: str = Field(description="The platform.")
    gpu_type: str = Field(default="", description="Type of GPU or server; empty: unknown or none.")
    region: str = Field(default="", description="Where; empty: unknown.")
    billing: Billing = Field(default=Billing.ON_DEMAND, description="How it is paid for.")
    hourly: float | None = Field(default=None, description="Cost of an hour; null: unknown.")
    currency: str = Field(default="", description="Currency of the cost.")
    source: str = Field(
        default="", description="Who says so: the platform, or file:line:column of a price."
    )
    because: str = Field(default="", description="Why the cost is not known.")
    outlives: bool = Field(default=False, description="It stays when the resource is deleted.")

    def __str__(self) -> str:
        """`16 H100_SXM GPUs, on_demand`; `5 TiB`."""
        number = "an unknown number of" if self.amount is None else f"{self.amount:,.15g}"
        if self.what == "whole":
            return str(self.billing)
        if self.what == "storage":
            return f"{number} {self.unit}"
        noun = "GPU" if self.amount == 1 else "GPUs"
        return f"{number} {f'{self.gpu_type} {noun}'.strip()}, {self.billing}"


class Footprint(_Part):
    """The facts of one resource, before or after a change."""

    region: str = Field(default="", description="Region; empty: none, or unknown.")
    gpu_types: tuple[str, ...] = Field(default=(), description="Types of its GPUs or servers.")
    tags: tuple[str, ...] | None = Field(
        default=None, description="Names of its tags; null where it can have none."
    )
    expires: bool | None = Field(
        default=None, description="Whether it ends by itself; null where nothing could end."
    )
    running: bool = Field(default=False, description="Whether it was last seen running.")
    reserved: bool = Field(default=False, description="Whether it is prepaid.")
    paid_until: str = Field(
        default="", description="Until when it is prepaid, in UTC; empty: nobody tells."
    )
    keeps_data: bool = Field(
        default=False, description="Whether what people stored by it stays when it is deleted."
    )
    unknown: tuple[str, ...] = Field(
        default=(), description="Names of the facts above that are known after apply only."
    )
    expenses: tuple[Expense, ...] = Field(default=(), description="What has to be paid for.")
