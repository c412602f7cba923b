"""Define the calendar of stacks: everything that begins or ends at a known time.

`gpuform.stacks.schedule.calendar` builds it from declarations and states; `gpuform calendar`
renders it. Its JSON is an interface for other programs.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.policies.lifetime import Day


class _AgendaModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


AgendaKind = Literal["reservation", "expiry", "running_hours", "rollout", "certification"]


class WeeklyHours(_AgendaModel):
    """The hours of a week in which a resource runs."""

    days: tuple[Day, ...] = Field(description="The days on which the hours begin.")
    start: str = Field(description="When they begin, by the clock of time_zone: 08:00.")
    stop: str = Field(description="When they end; on the next day if it is not after start.")
    time_zone: str = Field(description="IANA name of the time zone.")


class AgendaEntry(_AgendaModel):
    """A line of the calendar."""

    kind: AgendaKind = Field(
        description="reservation, expiry, running_hours, rollout or certification."
    )
    text: str = Field(description="What it is, in words.")
    start: str = Field(
        default="", description="When it begins, in UTC; empty: it has begun, or only ends."
    )
    end: str = Field(default="", description="When it ends, in UTC; empty: unknown.")
    hours: WeeklyHours | None = Field(
        default=None, description="The hours of each week; null for an entry that does not recur."
    )
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Name of the resource in the program.")
    stack: str = Field(default="", description="The stack of the resource, as PROJECT/STACK.")

    @property
    def moment(self) -> str:
        """The time by which the entry is sorted: what is due next; empty for now."""
        return self.start or self.end


class Agenda(_AgendaModel):
    """The calendar of one or several stacks, sorted by time."""

    format_version: Literal["1"] = Field(default="1", description="Version of this format.")
    made_at: str = Field(description="The time for which the calendar was made, in UTC.")
    entries: tuple[AgendaEntry, ...] = Field(default=(), description="The lines, the next first.")
    unread: tuple[str, ...] = Field(
        default=(), description="Stacks that could not be read, and why."
    )
