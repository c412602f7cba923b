"""Define the calendar of stacks, and the explanation of a resource, node or object.

The calendar is everything that begins or ends at a known time: `gpuform.stacks.schedule.calendar`
builds it from declarations and states. An explanation says who did what to an object, when and why:
`gpuform.stacks.explain` builds it from a stack's history, records and state. Commands render both.
Their JSON is an interface for other programs.
"""

from typing import Literal

from pydantic import Field

from gpuform.schemas.models import FrozenModel, optional_field
from gpuform.schemas.policies.lifetime import Day

AgendaKind = Literal["reservation", "expiry", "running_hours", "rollout", "certification"]


class WeeklyHours(FrozenModel):
    """The hours of a week in which a resource runs."""

    days: tuple[Day, ...] = Field(description="The days on which the hours begin.")
    start: str = Field(description="When they begin, by the clock of time_zone: 08:00.")
    stop: str = Field(description="When they end; on the next day if it is not after start.")
    time_zone: str = Field(description="IANA name of the time zone.")


class AgendaEntry(FrozenModel):
    """A line of the calendar."""

    kind: AgendaKind = Field(
        description="reservation, expiry, running_hours, rollout or certification."
    )
    text: str = Field(description="What it is, in words.")
    start: str = Field(
        default="", description="When it begins, in UTC; empty: it has begun, or only ends."
    )
    end: str = Field(default="", description="When it ends, in UTC; empty: unknown.")
    hours: WeeklyHours | None = optional_field(
        "The hours of each week; null for an entry that does not recur."
    )
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Name of the resource in the program.")
    stack: str = Field(default="", description="The stack of the resource, as PROJECT/STACK.")

    @property
    def moment(self) -> str:
        """The time by which the entry is sorted: what is due next; empty for now."""
        return self.start or self.end


class Agenda(FrozenModel):
    """The calendar of one or several stacks, sorted by time."""

    format_version: Literal["1"] = Field(default="1", description="Version of this format.")
    made_at: str = Field(description="The time for which the calendar was made, in UTC.")
    entries: tuple[AgendaEntry, ...] = Field(default=(), description="The lines, the next first.")
    unread: tuple[str, ...] = Field(
        default=(), description="Stacks that could not be read, and why."
    )


class ExplainedRun(FrozenModel):
    """A run of the stack's history: who ran it, from where, and with which plan."""

    number: int = Field(description="Number of the run; 1 is the oldest.")
    kind: str = Field(description="Kind of the run, such as update or destroy.")
    result: str = Field(description="succeeded, failed, or in-progress: its end is not recorded.")
    started_at: str = Field(description="When the run began, in UTC.")
    ended_at: str = Field(default="", description="When the run ended; empty: not recorded.")
    engine: str = Field(default="", description="gpuform or the Pulumi CLI, with the version.")
    user: str = Field(default="", description="Who ran it; empty: not recorded.")
    host: str = Field(default="", description="The machine of the run; empty: not recorded.")
    commit: str = Field(default="", description="Git commit; empty: not recorded.")
    branch: str = Field(default="", description="Git branch; empty: not recorded.")
    is_dirty: bool = Field(
        default=False, description="Whether the folder had changes that were not committed."
    )
    pull_request: str = Field(
        default="",
        description="Pull request of the plan, of the CI job or of the commit's title; empty: "
        "not recorded.",
    )
    ci_job: str = Field(default="", description="CI system, number and job; empty: none.")
    url: str = Field(default="", description="Page of the CI job; empty: none.")
    message: str = Field(default="", description="Message of the run, or the commit's title.")
    plan_digest: str = Field(
        default="",
        description="Digest of the applied plan: of a saved plan the digest that `gpuform review` "
        "shows; empty: not recorded.",
    )
    plan_made_at: str = Field(default="", description="When the saved plan was made; empty: none.")
    approval: Literal["", "confirmed", "saved_plan", "unasked"] = Field(
        default="",
        description="How the plan was approved: a person confirmed it, it was a saved plan, or "
        "nobody was asked. Empty: not recorded.",
    )
    approved_by: str = Field(
        default="", description="The value of GPUFORM_APPROVED_BY in the run; empty: none."
    )


LifeAction = Literal[
    "created",
    "imported",
    "changed",
    "deleted",
    "forgotten",
    "missing",
    "read",
    "failed",
    "added",
    "removed",
    "repaired",
]


class LifeEvent(FrozenModel):
    """Something that happened to an object or to one of its nodes."""

    time: str = Field(description="When the run that records it ended, in UTC; empty: unknown.")
    action: LifeAction = Field(
        description="created, imported, changed, deleted, forgotten (the state alone), missing "
        "(deleted outside of the stack), read, failed; of a node also added, removed, repaired."
    )
    run: int | None = optional_field("Number of the run; null: no recorded run did it.")
    begun_by: tuple[int, ...] = Field(
        default=(),
        description="Numbers of interrupted or failed runs that may have begun it, or done it.",
    )
    urn: str = Field(description="URN of the resource.")
    id: str = Field(default="", description="Id of the object; empty: unknown or none.")
    node: str = Field(default="", description="Name of the node; empty: the whole object.")
    node_id: str = Field(default="", description="Id of the node; empty: unknown or no node.")
    reason: str = Field(default="", description="Why, by the run's plan; empty: not recorded.")
    changes: tuple[str, ...] = Field(
        default=(), description="Changed properties with their values; secrets are masked."
    )


class TestFigure(FrozenModel):
    """The result of a test of nodes."""

    certification: str = Field(description="Name of the certification, or of the tested resource.")
    category: str = Field(description="Domain and variant of the test.")
    nodes: tuple[str, ...] = Field(description="The tested nodes.")
    passed: bool = Field(description="Whether the nodes have passed.")
    measured: float | None = optional_field("The figure; null: none.")
    unit: str = Field(default="", description="Unit of the figure.")
    required: float | None = optional_field("The lowest figure that passes.")
    at: str = Field(default="", description="When the test ended, in UTC; empty: unknown.")
    because: str = Field(default="", description="Why a node failed; empty: it passed.")


class ExplainedRepair(FrozenModel):
    """A repair of a node, and its evidence."""

    node: str = Field(description="Name of the node.")
    mode: str = Field(description="Kind of repair, in the platform's words.")
    evidence: str = Field(default="", description="What was wrong; empty: not recorded.")
    run: int | None = optional_field("Run that requested it; null: the platform, or not recorded.")
    id: str = Field(default="", description="The platform's id of the repair; empty: unknown.")
    state: str = Field(default="", description="Progress, as the platform reports it.")
    requested_by: str = Field(default="", description="Who requested it, by the platform.")
    reviewed_by: str = Field(default="", description="Who approved or rejected it.")
    at: str = Field(default="", description="When it was requested or ended, in UTC.")


class ExplainedCost(FrozenModel):
    """The cost of an object between its first and its last run in the history."""

    currency: str = Field(description="Currency of the cost.")
    hourly: float = Field(default=0.0, description="Cost of an hour now; 0: it no longer exists.")
    total: float = Field(description="Cost until now, at the present prices.")
    hours: float = Field(description="Hours that are in the total.")


class Explanation(FrozenModel):
    """The life of a resource, a node or an object."""

    format_version: Literal["1"] = Field(default="1", description="Version of this format.")
    project: str = Field(description="Name of the Pulumi project.")
    stack: str = Field(description="Name of the stack.")
    name: str = Field(description="What was asked for.")
    kind: Literal["resource", "object", "node"] = Field(description="What the name is.")
    urns: tuple[str, ...] = Field(description="URNs of the resources.")
    ids: tuple[str, ...] = Field(default=(), description="Ids of the objects, the oldest first.")
    exists: bool = Field(description="Whether the present state has it.")
    events: tuple[LifeEvent, ...] = Field(default=(), description="What happened, in order.")
    tests: tuple[TestFigure, ...] = Field(default=(), description="Tests of its nodes.")
    repairs: tuple[ExplainedRepair, ...] = Field(default=(), description="Repairs of its nodes.")
    cost: tuple[ExplainedCost, ...] = Field(default=(), description="Its cost by currency.")
    runs: tuple[ExplainedRun, ...] = Field(
        default=(), description="The runs that the events and repairs name."
    )
    unknown: tuple[str, ...] = Field(
        default=(), description="What could not be found out, and why."
    )
