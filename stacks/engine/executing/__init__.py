"""Does what was planned: steps, refreshes, deletions, and what has expired."""

from gpuform.stacks.engine.executing.deletions import DeletePhase, among, forbidden
from gpuform.stacks.engine.executing.expiring import Calendar, Due, find_due, keep_and_change
from gpuform.stacks.engine.executing.provider_resource import DefaultProviders, Package
from gpuform.stacks.engine.executing.refreshing import Refresh, refresh_all
from gpuform.stacks.engine.executing.stack_reference import (
    Foreseen,
    StackReferences,
    full_name_of,
    stacks_read,
)
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped

__all__ = [
    "Calendar",
    "DefaultProviders",
    "DeletePhase",
    "Due",
    "Foreseen",
    "Package",
    "Refresh",
    "StackReferences",
    "StepError",
    "StepExecutor",
    "Stopped",
    "among",
    "find_due",
    "forbidden",
    "full_name_of",
    "keep_and_change",
    "refresh_all",
    "stacks_read",
]
