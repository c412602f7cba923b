"""Does what was planned: steps, refreshes, deletions, and what has expired."""

from gpuform.stacks.engine.executing import expiring, refreshing
from gpuform.stacks.engine.executing.deletions import DeletePhase, among, forbidden
from gpuform.stacks.engine.executing.expiring import Calendar, Due
from gpuform.stacks.engine.executing.provider_resource import DefaultProviders, Package
from gpuform.stacks.engine.executing.stack_reference import StackReferences
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped

__all__ = [
    "Calendar",
    "DefaultProviders",
    "DeletePhase",
    "Due",
    "Package",
    "StackReferences",
    "StepError",
    "StepExecutor",
    "Stopped",
    "among",
    "expiring",
    "forbidden",
    "refreshing",
]
