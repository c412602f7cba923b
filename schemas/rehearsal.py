"""Define the result of a rehearsal: what a plan does to the fleet when something goes wrong.

`gpuform.stacks.rehearsing` plays the plan on the emulator and builds these models; reviews, gates
and saved plans read them. Every time is one of the emulator's clock, so that equal plans and seeds
give equal results.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic import Field

from gpuform.schemas.models import FrozenModel, optional_field

OUTAGE_S: Final = 86_400.0
"""How long capacity, quota or credit is assumed to be missing, in seconds, before somebody mends.

Only GPU-hours need the number: nobody knows when stock returns.
"""

RERUN_AFTER_S: Final = 3_600.0
"""How many seconds after a failed or killed run somebody is assumed to run the command again."""


class HazardKind(StrEnum):
    """What goes wrong in one run of a rehearsal; the values are the names of `--hazards`."""

    NONE = "none"
    NO_CAPACITY = "no-capacity"
    LOST_REQUEST = "lost-request"
    KILLED = "killed"
    NEVER_READY = "never-ready"
    NODE_FAILURE = "node-failure"
    NO_CREDIT = "no-credit"
    JOB_STARTS = "job-starts"
    QUOTA = "quota"
    RATE_LIMIT = "rate-limit"
    SLOW_PLATFORM = "slow-platform"


class Hazard(FrozenModel):
    """One hazard at one point of the run."""

    kind: HazardKind = Field(description="Kind of the hazard.")
    urn: str = Field(
        default="", description="URN of the resource that the run changes then; empty: none."
    )
    description: str = Field(
        description="The hazard in words: no capacity for cluster train after its deletion."
    )
    points: int = Field(
        default=1,
        ge=1,
        description="Number of points of the plan that this one stands for, itself included.",
    )


class Advice(FrozenModel):
    """Another declaration or another order, with which a rehearsal has shown less loss."""

    urn: str = Field(description="URN of the resource to declare or to create differently.")
    declaration: str = Field(
        default="",
        description="What to declare, as in a topology: rollout: {strategy: replace_cluster}; "
        "empty for another order.",
    )
    commands: tuple[str, ...] = Field(
        default=(),
        description="The commands that make the plan in another order, one after the other; empty "
        "for another declaration.",
    )
    condition: str = Field(
        default="", description="When the advice helps, in words; empty: under the same hazard."
    )
    lost_gpus: int = Field(ge=0, description="Lost GPUs under the same hazard then.")
    gpu_hours_without_work: float = Field(
        ge=0, description="GPU-hours without work under the same hazard then."
    )


class HazardOutcome(FrozenModel):
    """What one hazard does to the fleet, compared with the fleet before the plan.

    GPUs that the plan itself removes for good are not lost.
    """

    hazard: Hazard = Field(description="The hazard.")
    ending: str = Field(
        default="succeeded",
        description="How the run ended: succeeded, failed, killed, policy-violation, ...",
    )
    errors: tuple[str, ...] = Field(default=(), description="Errors of the run.")
    lost_gpus: int = Field(
        default=0, ge=0, description="The most GPUs that did not work at one time."
    )
    lost_for_s: float | None = Field(
        default=0.0,
        description="For how many seconds GPUs did not work; null: until the cause has ended.",
    )
    gpu_hours_without_work: float = Field(
        default=0.0,
        ge=0,
        description="Hours without work, summed over the GPUs. A missing capacity, quota or "
        "credit is assumed to be back after a day.",
    )
    jobs_ended: tuple[str, ...] = Field(
        default=(), description="Names of the jobs that ended before they were done."
    )
    data_lost: tuple[str, ...] = Field(
        default=(), description="Storage whose data is gone: volume data, 5 TiB."
    )
    extra_cost: Mapping[str, float] = Field(
        default_factory=dict,
        description="Additional cost by currency, compared with the run in which nothing goes "
        "wrong; only what has a known price.",
    )
    half_done: tuple[str, ...] = Field(
        default=(), description="What the run leaves half done, in words."
    )
    mended_by: str = Field(
        default="",
        description="The command that completes the plan afterwards; empty if none is needed, or "
        "if none was found.",
    )
    is_mended: bool = Field(
        default=True,
        description="Whether the next plan is empty, after the mending command if there is one.",
    )
    advice: tuple[Advice, ...] = Field(
        default=(), description="Declarations that avoid the loss, best first."
    )

    @property
    def has_failed(self) -> bool:
        """Return whether the run ended in another way than planned."""
        return self.ending != "succeeded"

    @property
    def has_losses(self) -> bool:
        """Return whether GPUs did not work, jobs ended, or data is gone."""
        return bool(
            self.lost_gpus or self.gpu_hours_without_work or self.jobs_ended or self.data_lost
        )

    @property
    def severity(self) -> tuple[float, ...]:
        """Return a sort key for outcomes: the larger the key, the worse the outcome."""
        is_open = self.lost_for_s is None
        return (
            float(len(self.data_lost)),
            float(self.lost_gpus if is_open else 0),
            float(len(self.jobs_ended)),
            float(not self.is_mended),
            self.gpu_hours_without_work,
            float(self.lost_gpus),
            sum(self.extra_cost.values()),
            float(len(self.half_done)),
        )

    def is_worse_than(self, other: "HazardOutcome") -> bool:
        """Return whether this outcome loses more than the other: GPUs, hours, jobs, data, money.

        An outcome that no command mends is worse than one with the same loss. GPU-hours count from
        a twentieth more on: a repeated request delays a run by a moment.
        """
        return (
            self.lost_gpus > other.lost_gpus
            or self.gpu_hours_without_work > 1.05 * other.gpu_hours_without_work + 0.1
            or len(self.jobs_ended) > len(other.jobs_ended)
            or len(self.data_lost) > len(other.data_lost)
            or sum(self.extra_cost.values()) > sum(other.extra_cost.values())
            or (other.is_mended and not self.is_mended)
        )


class UnplayedHazard(FrozenModel):
    """A hazard that was not played, or only in a part of the plan, and why."""

    kind: HazardKind = Field(description="Kind of the hazard.")
    reason: str = Field(description="Why the hazard was not played.")


class Rehearsal(FrozenModel):
    """The outcomes of one plan under its hazards."""

    project: str = Field(
        description="Name of the Pulumi project; empty for several stacks together."
    )
    stack: str = Field(description="Name of the stack; empty for several stacks together.")
    seed: int = Field(default=0, description="The seed of the emulator.")
    outcomes: tuple[HazardOutcome, ...] = Field(
        description="The outcome of each hazard, the worst first; one is of the hazard none."
    )
    not_played: tuple[UnplayedHazard, ...] = Field(
        default=(), description="The hazards that were not played, and why."
    )
    changes: int = Field(default=0, ge=0, description="Number of changes of the plan.")
    actions: Mapping[str, str] = Field(
        default_factory=dict,
        description="The plan's action on each resource that it changes, by URN. A plan with "
        "other changes was not rehearsed.",
    )
    drift: tuple[str, ...] = Field(
        default=(),
        description="What the refresh before the plan has found, and the rehearsal has, in words.",
    )
    played_changes: int | None = optional_field(
        "Number of changes that were played, the first and the largest of each kind, "
        "so that losses are those of these changes alone; null: all."
    )
    differences: tuple[str, ...] = Field(
        default=(),
        description="Where the emulator plans something else than the plan, so that the rehearsal "
        "is no statement about it.",
    )

    @property
    def undisturbed(self) -> HazardOutcome:
        """Return the outcome of the run in which nothing goes wrong."""
        return next(item for item in self.outcomes if item.hazard.kind is HazardKind.NONE)

    @property
    def harmful(self) -> tuple[HazardOutcome, ...]:
        """Return the outcomes with more harm than the undisturbed run has, the worst first."""
        usual = self.undisturbed
        return tuple(item for item in self.outcomes if item.is_worse_than(usual))

    @property
    def harmless(self) -> tuple[HazardOutcome, ...]:
        """Return the outcomes of hazards without more harm than the undisturbed run has."""
        usual = self.undisturbed
        return tuple(
            item for item in self.outcomes if item is not usual and not item.is_worse_than(usual)
        )


class StacksRehearsal(FrozenModel):
    """The rehearsal of several stacks together, or of each one where that cannot be played."""

    rehearsals: tuple[Rehearsal, ...] = Field(
        description="One rehearsal without project and stack; or the rehearsal of each stack's "
        "plan, in the order in which the plans are applied."
    )
