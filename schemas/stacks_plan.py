"""The plan of several stacks: the plan of each, in the order in which they are applied."""

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuform.schemas.plan import GateResult, Plan

FORMAT_VERSION: Final = "1"
"""Grows when a reader of the old form would misread the new one."""


class StacksPlan(BaseModel):
    """Everything that one operation would do to several stacks."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    format_version: Literal["1"] = Field(
        default=FORMAT_VERSION, description="Version of this form."
    )
    name: str = Field(
        default="",
        description="What it is called: the name of the folder that the stacks are in.",
    )
    plans: tuple[Plan, ...] = Field(
        min_length=1, description="The plan of each stack, in the order in which they are applied."
    )
    gates: tuple[GateResult, ...] | None = Field(
        default=None,
        description="What the gates of stacks.yaml say of all plans together; null where there are "
        "none.",
    )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        names = [(plan.project, plan.stack) for plan in self.plans]
        if len(set(names)) != len(names):
            raise ValueError("two plans are of one stack")
        if len({plan.operation for plan in self.plans}) > 1:
            raise ValueError("the plans are of several operations")
        return self

    @property
    def has_changes(self) -> bool:
        """Whether applying it would do anything."""
        return any(plan.has_changes for plan in self.plans)

    @property
    def has_failed(self) -> bool:
        """Whether a preview has failed: then not all is known that would be done."""
        return any(plan.errors for plan in self.plans)
