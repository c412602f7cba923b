"""What is to be done about each registration: Pulumi's step rules.

The step generator decides, `executing` does. Events tell everybody what is planned and done.
"""

from gpuform.stacks.engine.planning.constraints import (
    MAKE_A_NEW_ONE,
    CheckFailed,
    PlanConstraint,
    SelectionNotes,
    problem_text,
)
from gpuform.stacks.engine.planning.events import (
    Diagnostic,
    Event,
    EventBus,
    Listener,
    Prelude,
    Progress,
    Severity,
    StepDone,
    StepFailed,
    StepStarted,
    Summary,
    Unchecked,
    describe,
    describe_drift,
    place_of,
)
from gpuform.stacks.engine.planning.step_generator import (
    UNPROTECT,
    Holding,
    StepGenerator,
    unchanged,
)
from gpuform.stacks.engine.planning.steps import Op, Step

__all__ = [
    "MAKE_A_NEW_ONE",
    "UNPROTECT",
    "CheckFailed",
    "Diagnostic",
    "Event",
    "EventBus",
    "Holding",
    "Listener",
    "Op",
    "PlanConstraint",
    "Prelude",
    "Progress",
    "SelectionNotes",
    "Severity",
    "Step",
    "StepDone",
    "StepFailed",
    "StepGenerator",
    "StepStarted",
    "Summary",
    "Unchecked",
    "describe",
    "describe_drift",
    "place_of",
    "problem_text",
    "unchanged",
]
