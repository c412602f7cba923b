"""Execute what was planned: steps, refreshes, the delete phase and due changes.

`deployment` and `language_host` call this package; this package calls `provider_host` for provider
requests and records every result in the snapshot of `state`.
"""

from gpuform.stacks.engine.executing.builtin_resources import (
    DefaultProviders,
    PlannedOutputs,
    ProviderRequest,
    StackReferences,
    find_referenced_stacks,
    qualify_stack_name,
)
from gpuform.stacks.engine.executing.refreshing import Refresher, find_drift, refresh_all
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped
from gpuform.stacks.engine.executing.undeclared_changes import (
    Calendar,
    DeletePhase,
    DueChange,
    apply_due_changes,
    can_delete,
    find_due_changes,
    select_deletions,
)

__all__ = [
    "Calendar",
    "DefaultProviders",
    "DeletePhase",
    "DueChange",
    "PlannedOutputs",
    "ProviderRequest",
    "Refresher",
    "StackReferences",
    "StepError",
    "StepExecutor",
    "Stopped",
    "apply_due_changes",
    "can_delete",
    "find_drift",
    "find_due_changes",
    "find_referenced_stacks",
    "qualify_stack_name",
    "refresh_all",
    "select_deletions",
]
