"""Define the plan of several stacks and its parts, the log of a run, and `stacks.yaml`.

Written and read by the multi-stack commands of `gpuform.stacks`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuform.schemas.gates import GateInputs, WaiverInputs, find_name_problems, find_waiver_problems
from gpuform.schemas.models import FrozenModel, InputModel, Problem, optional_field
from gpuform.schemas.notify import NotifyRuleInputs
from gpuform.schemas.plan import GateResult, Plan
from gpuform.schemas.rehearsal import Rehearsal

FORMAT_VERSION: Final = "1"
"""Increased when a reader of the old form would misread the new one."""


def compute_stacks_digest(commit: str, names: Iterable[str]) -> str:
    """Return the SHA-256 of a commit and of the stacks, as PROJECT/STACK, in any order.

    The sealed plan of each stack has this digest of all stacks that were planned together.
    """
    document = json.dumps([commit, sorted(names)], separators=(",", ":"))
    return hashlib.sha256(document.encode()).hexdigest()


class StacksPlan(FrozenModel):
    """Everything that one operation would do to several stacks."""

    format_version: Literal["1"] = Field(
        default=FORMAT_VERSION, description="Version of this format."
    )
    name: str = Field(default="", description="Name of the folder of the stacks.")
    commit: str = Field(default="", description="The commit of the stacks; empty without git.")
    plans: tuple[Plan, ...] = Field(
        min_length=1, description="The plan of each stack, in the order in which they are applied."
    )
    gates: tuple[GateResult, ...] | None = optional_field(
        "Results of the gates of stacks.yaml for all plans together; null without gates."
    )
    weakened_gates: tuple[str, ...] = Field(
        default=(),
        description="How the change removes or weakens the gates that stacks.yaml has at the "
        "revision of --gates-from.",
    )
    rehearsal: Rehearsal | None = optional_field(
        "What hazards do to the plans of all stacks, played together; null: not rehearsed together."
    )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        """Return the plan if all parts are of different stacks and one operation.

        Else ValueError.
        """
        names = [(plan.project, plan.stack) for plan in self.plans]
        if len(set(names)) != len(names):
            raise ValueError("two plans are for one stack")
        if len({plan.operation for plan in self.plans}) > 1:
            raise ValueError("the plans are for different operations")
        return self

    def list_foreign_names(self) -> list[str]:
        """Return the stacks whose plan was not made together with exactly the other ones."""
        digest = compute_stacks_digest(self.commit, (plan.project_stack for plan in self.plans))
        return [plan.project_stack for plan in self.plans if plan.stacks_digest != digest]

    @property
    def has_changes(self) -> bool:
        """True if applying the plan would change the resources of a stack."""
        return any(plan.has_changes for plan in self.plans)

    @property
    def has_failed(self) -> bool:
        """Return True if the preview of a stack has failed, and the plan is incomplete."""
        return any(plan.errors for plan in self.plans)


PART_VERSION: Final = "1"
"""Increased when a reader of the old form would misread the new one."""


class WavePart(FrozenModel):
    """The stacks of one wave that one runner plans."""

    part: str = Field(description="Name of the part: number of the wave and of the part, as 1-2.")
    stacks: str = Field(description="The stacks as PROJECT/STACK, with a space between them.")


class ScheduledStack(FrozenModel):
    """A stack that is planned on one of several runners."""

    name: str = Field(description="The stack as PROJECT/STACK.")
    folder: str = Field(description="The project's folder, relative to the folder of all stacks.")
    dependencies: tuple[str, ...] = Field(
        default=(), description="The planned stacks that come before this one."
    )


class PartSchedule(FrozenModel):
    """Which stacks are planned together on several runners, and in which waves."""

    format_version: Literal["1"] = Field(
        default=PART_VERSION, description="Version of this format."
    )
    made_by: str = Field(description="The release that made the schedule: gpuform 0.1.0.")
    commit: str = Field(default="", description="The commit of the stacks; empty without git.")
    stacks: tuple[ScheduledStack, ...] = Field(description="The stacks, in their order.")
    waves: tuple[tuple[WavePart, ...], ...] = Field(
        description="The parts of each wave; a wave begins when the wave before has ended."
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Return the schedule if each stack is listed once and every dependency is listed, too.

        Else ValueError.
        """
        names = {stack.name for stack in self.stacks}
        required_names = {name for stack in self.stacks for name in stack.dependencies}
        if len(names) < len(self.stacks) or not required_names <= names:
            raise ValueError("a stack is listed twice, or one that another stack needs is missing")
        return self


class PlanPart(FrozenModel):
    """The sealed plan of one stack, made on one of several runners, with its planned outputs."""

    format_version: Literal["1"] = Field(
        default=PART_VERSION, description="Version of this format."
    )
    made_by: str = Field(description="The release that made the part: gpuform 0.1.0.")
    commit: str = Field(default="", description="The commit of the stacks; empty without git.")
    schedule: str = Field(description="SHA-256 of the schedule that the part belongs to.")
    plan: Plan = Field(description="The plan of the stack.")
    outputs: dict[str, Any] = Field(
        default_factory=dict,
        description="The planned outputs in the form of Pulumi's state: secrets are encrypted with "
        "the key of the stack, unknown values have Pulumi's text for them.",
    )
    seal: str = Field(default="", description="Keyed digest of everything else in the part.")


LOG_VERSION: Final = "1"
"""Increased when a reader of the old form would misread the new one."""


class _LogModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class LoggedNode(_LogModel):
    """A GPU node of an object that a step changed."""

    id: str = Field(default="", description="The platform's id of the node; empty: unknown.")
    name: str = Field(default="", description="Name of the node; empty: unknown.")


class LogLine(_LogModel):
    """One event of a run."""

    time: float = Field(description="When the step ran, in Unix seconds of the machine of the run.")
    event: Literal["started", "progress", "done", "failed", "message", "unchecked"] = Field(
        description="Kind of the line: work on a resource, or a message."
    )
    urn: str = Field(default="", description="URN of the resource; empty: a line of the whole run.")
    op: str = Field(default="", description="The step on the resource, by Pulumi's name.")
    found: str = Field(
        default="", description="Of a refresh: the step that the refresh found, by Pulumi's name."
    )
    seconds: float = Field(
        default=0.0, description="Duration of the step, by the platform's clock."
    )
    severity: str = Field(default="", description="Severity of a message: info, warning or error.")
    text: str = Field(default="", description="The text of the message.")
    id: str = Field(
        default="", description="Id of the object of a step that ended; empty: none or unknown."
    )
    added: tuple[LoggedNode, ...] = Field(
        default=(), description="The nodes that the object has since the step."
    )
    removed: tuple[LoggedNode, ...] = Field(
        default=(), description="The nodes that the object had before the step only."
    )


class UnfinishedStep(_LogModel):
    """A step of an earlier run that had begun and not ended when this run began."""

    urn: str = Field(description="URN of the resource.")
    type: str = Field(description="creating, updating, deleting, reading or importing.")
    id: str = Field(default="", description="Id of the object; empty: unknown.")


class RunLog(_LogModel):
    """The plan of a run, and the events of the run in order."""

    log_version: Literal["1"] = Field(default=LOG_VERSION, description="Version of this format.")
    plan: Plan = Field(description="The plan that was applied.")
    plan_digest: str = Field(
        default="",
        description="SHA-256 of the plan as it is in this log; empty in a log of an earlier "
        "release.",
    )
    approval: Literal["", "confirmed", "saved_plan", "unasked"] = Field(
        default="",
        description="How the plan was approved: a person confirmed it, it was a saved plan, or "
        "nobody was asked (--yes, --skip-preview). Empty: unknown.",
    )
    unfinished: tuple[UnfinishedStep, ...] = Field(
        default=(), description="Steps of interrupted runs, which this run has continued or undone."
    )
    lines: tuple[LogLine, ...] = Field(default=(), description="The steps and messages of the run.")


# They ask schedulers and platforms, which a plan of several stacks does not contain.
SINGLE_STACK_RULES: Final = ("not_busy", "no_open_ports", "certified")
"""Rules of gates that need facts which only a run of a single stack has."""


class StackEntryInputs(InputModel):
    """One folder's stacks."""

    folder: str = Field(
        min_length=1,
        description="The project's folder, relative to the file's own folder; * stands for any "
        "text and can match several folders.",
        examples=["network", "clusters/*"],
    )
    stack: str | None = optional_field(
        "Name of the stack; by default every stack that has a Pulumi.STACK.yaml in the folder.",
        min_length=1,
        examples=["prod"],
    )
    after: list[str] | None = optional_field(
        "Other stacks, as PROJECT/STACK, that are applied first although the "
        "stack reads none of their outputs.",
        examples=[["network/prod"]],
    )
    environment: str | None = optional_field(
        "The environment of the code host whose jobs apply the stack, for "
        "`gpuform new ci --all`; gpuform-STACK if not declared.",
        min_length=1,
        examples=["production"],
    )
    approve: Literal["reviewed", "automatic"] | None = optional_field(
        "reviewed: people approve the job that applies the stack after the merge; "
        "automatic: the merge is the approval. reviewed if not declared. For `gpuform new ci "
        "--all`; all stacks of an environment have the same.",
        examples=["automatic"],
    )


class StacksInputs(InputModel):
    """The file of stacks."""

    stacks: list[StackEntryInputs] = Field(
        min_length=1,
        description="The stacks, in any order: gpuform computes the order from the outputs "
        "that the stacks read of each other.",
        examples=[[{"folder": "network", "stack": "prod"}]],
    )
    gates: dict[str, GateInputs] | None = optional_field(
        "Gates for the combined plan of all stacks, with the fields of gates.yaml. "
        "The gates of each project hold as well.",
        examples=[{"budget": {"max_hourly_cost": {"amount": 900, "currency": "USD"}}}],
    )
    waive: list[WaiverInputs] | None = optional_field(
        "Waivers of these gates, each with a last day, with the fields of gates.yaml.",
        examples=[
            [{"gate": "budget", "until": "2026-12-31", "reason": "a move", "by": "ana@example.com"}]
        ],
    )
    notify: dict[str, NotifyRuleInputs] | None = optional_field(
        "Notification rules for all stacks, with the fields of notify.yaml. The rules "
        "of each project hold as well.",
        examples=[{"on-call": {"events": ["failed", "out-of-capacity"]}}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield problems of names, of waivers, and of each gate rule about one stack."""
        rules = values.get("notify")
        if isinstance(rules, Mapping):
            yield from find_name_problems(rules, "notify")
        gates, waivers = values.get("gates"), values.get("waive")
        names = tuple(gates) if isinstance(gates, Mapping) else ()
        yield from find_waiver_problems(waivers if isinstance(waivers, list) else (), names)
        if not isinstance(gates, Mapping):
            return
        yield from find_name_problems(gates, "gates")
        for name, gate in gates.items():
            for rule in SINGLE_STACK_RULES:
                if isinstance(gate, Mapping) and gate.get(rule) is not None:
                    reason = "is a rule over one stack: write it in the gates.yaml of the projects"
                    yield Problem(f"gates.{name}.{rule}", reason)
