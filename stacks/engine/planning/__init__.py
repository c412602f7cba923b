"""Decide what to do about each registration, by Pulumi's step rules.

The resource monitor of `language_host` calls the step generator; `executing` runs the steps that it
decides. Events report planned and finished steps to views, logs and tests.
"""

from gpuform.stacks.engine.planning.constraints import (
    NEW_PLAN_HINT,
    NEW_PREVIEW_HINT,
    CheckFailed,
    PlanConstraint,
    SelectionNotes,
    format_property_problem,
)
from gpuform.stacks.engine.planning.events import (
    Diagnostic,
    Event,
    EventBus,
    Listener,
    Prelude,
    Progress,
    Severity,
    SkippedCheck,
    StepDone,
    StepFailed,
    StepStarted,
    Summary,
    build_relations,
    describe_change,
    describe_drift,
)
from gpuform.stacks.engine.planning.step_generator import (
    UNPROTECT,
    RunProgramOperation,
    StepGenerator,
    build_same_step,
)
from gpuform.stacks.engine.planning.steps import Op, Step

__all__ = [
    "NEW_PLAN_HINT",
    "NEW_PREVIEW_HINT",
    "UNPROTECT",
    "CheckFailed",
    "Diagnostic",
    "Event",
    "EventBus",
    "Listener",
    "Op",
    "PlanConstraint",
    "Prelude",
    "Progress",
    "RunProgramOperation",
    "SelectionNotes",
    "Severity",
    "SkippedCheck",
    "Step",
    "StepDone",
    "StepFailed",
    "StepGenerator",
    "StepStarted",
    "Summary",
    "build_relations",
    "build_same_step",
    "describe_change",
    "describe_drift",
    "format_property_problem",
]
