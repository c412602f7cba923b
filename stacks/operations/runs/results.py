"""How an operation ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from gpuform.schemas.plan import GateResult, Plan
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.values import (
    PropertyMap,
    contains_secret,
    drop_unknowns,
    unwrap_secrets,
)


class ExitReason(StrEnum):
    """Why an operation ended as it did."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DECLINED = "declined"
    """Whoever was asked did not want the plan."""
    POLICY_VIOLATION = "policy-violation"
    """A mandatory gate stops the plan."""
    UNCHECKED = "unchecked"
    """A check could not be made that was required."""
    UNEXPECTED_CHANGES = "unexpected-changes"
    OUT_OF_CREDIT = "out-of-credit"
    END_UNKNOWN = "end-unknown"
    """Of something that is to expire nobody tells when it was made."""
    DUE = "due"
    """A preview of `expire` has found something that is due."""


@dataclass(frozen=True, slots=True)
class OutputValue:
    """An output of the stack in plain text, and whether it is secret: then its repr hides it."""

    value: Any
    secret: bool

    def __repr__(self) -> str:
        shown = MASK if self.secret else repr(self.value)
        return f"OutputValue(value={shown}, secret={self.secret})"


@dataclass(frozen=True)
class RunResult:
    """How `preview`, `up`, `refresh`, `destroy` or `expire` ended.

    What it says is of the last run: with `preview` nothing was changed. `changes` counts
    operations by Pulumi's names: create, update, same, ... `gates` are those that stop the plan,
    `unchecked` the checks that could not be made, `unknown_ends` the names of what nobody knows the
    end of, `refusals` why `expire` left something as it is that was due. `seal` makes the plan that
    is a bound for a later run, with the seals of the plans of other stacks that it was made with;
    `foreseen` are the outputs as the engine has them, secrets and unknown values among them.
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
    make_plan: Callable[[], Plan] | None = field(default=None, repr=False)
    seal: Callable[[Mapping[str, str]], Plan] | None = field(default=None, repr=False)
    foreseen: PropertyMap = field(default_factory=dict, repr=False)

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED

    @cached_property
    def plan(self) -> Plan | None:
        """What was planned or done, with secrets masked; None where a preview failed."""
        return None if self.make_plan is None else self.make_plan()


def output_values(outputs: PropertyMap) -> dict[str, OutputValue]:
    """A stack's outputs in plain text; a preview does not know all of them."""
    return {
        name: OutputValue(unwrap_secrets(value), contains_secret(value))
        for name, value in drop_unknowns(outputs).items()
    }
