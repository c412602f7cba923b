"""The results of operations: reason, outputs, counts, plan and diagnostics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from gpuform.providers.values import PropertyMap, contains_secret, drop_unknowns, unwrap_secrets
from gpuform.schemas.plan import GateResult, Plan
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState


class ExitReason(StrEnum):
    """Why an operation ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DECLINED = "declined"
    """The user did not confirm the plan."""
    POLICY_VIOLATION = "policy-violation"
    """A mandatory gate stops the plan."""
    UNCHECKED = "unchecked"
    """A required check could not be made."""
    UNEXPECTED_CHANGES = "unexpected-changes"
    OUT_OF_CREDIT = "out-of-credit"
    END_UNKNOWN = "end-unknown"
    """A resource has a time to live, but its creation time is unknown."""
    DUE = "due"
    """A preview of `expire` or `repair` has found something that is due."""


@dataclass(frozen=True, slots=True)
class OutputValue:
    """An output of the stack in plain text; the repr of a secret output hides its value."""

    value: Any
    secret: bool

    def __repr__(self) -> str:
        # Programs that use the API may log results.
        value_text = MASK if self.secret else repr(self.value)
        return f"OutputValue(value={value_text}, secret={self.secret})"


@dataclass(frozen=True, slots=True)
class FinalState:
    """The open stack at the end of an operation, and its resources as the operation has seen them.

    `now` is the operation's time in Unix seconds, by an emulator's clock with `has_emulated_clock`.
    """

    stack: Stack
    entries: Sequence[ResourceState]
    now: float
    has_emulated_clock: bool = False
    emulated: bool = False


@dataclass(frozen=True)
class RunResult:
    """The result of `preview`, `up`, `refresh`, `destroy`, `expire` or `repair`.

    Attributes:
        preview: the last run was a preview: nothing was changed.
        outputs: the stack's outputs, without values that a preview cannot know.
        changes: the number of operations by Pulumi's names: create, update, same, ...
        gates: the gates that stop the plan.
        unchecked: the checks that could not be made, where they stop the plan.
        unknown_ends: the names of resources with an unknown expiry time.
        refusals: the reasons why `expire` left something due unchanged.
        seconds: the duration of the last run.
        build_plan: builds `plan`; None where a preview failed.
        seal_plan: returns the plan that limits a later run; receives the seals of the plans of
            other stacks that the plan depends on.
        planned_outputs: the planned outputs in the engine's form, with secrets and unknown values.
        final_state: the stack at the end of the operation.
    """

    reason: ExitReason
    preview: bool
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    has_changes: bool = False
    diagnostics: Sequence[Diagnostic] = ()
    gates: Sequence[GateResult] = ()
    unchecked: Sequence[str] = ()
    unknown_ends: Sequence[str] = ()
    refusals: Sequence[str] = ()
    seconds: float = 0.0
    build_plan: Callable[[], Plan] | None = field(default=None, repr=False)
    seal_plan: Callable[[Mapping[str, str]], Plan] | None = field(default=None, repr=False)
    planned_outputs: PropertyMap = field(default_factory=dict, repr=False)
    final_state: FinalState | None = field(default=None, repr=False)

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED

    @cached_property
    def plan(self) -> Plan | None:
        """Return the planned or made changes, with secrets masked; None where a preview failed."""
        return None if self.build_plan is None else self.build_plan()


def convert_outputs(outputs: PropertyMap) -> dict[str, OutputValue]:
    """Return a stack's outputs in plain text, without outputs unknown in a preview."""
    return {
        name: OutputValue(unwrap_secrets(value), contains_secret(value))
        for name, value in drop_unknowns(outputs).items()
    }
