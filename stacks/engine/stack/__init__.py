"""A project's stacks: found, selected, made, opened, imported, renamed and removed.

The highest room of the engine: operations and commands begin here.
"""

from gpuform.stacks.engine.stack.foreign_stack import ForeignStack, LiveResource, read_resources
from gpuform.stacks.engine.stack.renaming import (
    is_anything_beside,
    move_records_into,
    parse_new_name,
    rename_stack,
)
from gpuform.stacks.engine.stack.secrets_change import SecretsChange
from gpuform.stacks.engine.stack.stack import Stack, Workspace, path_of_unsaved
from gpuform.stacks.engine.stack.state_import import StackImport, recover
from gpuform.stacks.engine.stack.workspace import (
    HOST,
    JOB,
    PLAN_MADE_AT,
    PLAN_SEAL,
    USER,
    Origin,
    StackNotFound,
    selected_stack,
    short_name,
)

__all__ = [
    "HOST",
    "JOB",
    "PLAN_MADE_AT",
    "PLAN_SEAL",
    "USER",
    "ForeignStack",
    "LiveResource",
    "Origin",
    "SecretsChange",
    "Stack",
    "StackImport",
    "StackNotFound",
    "Workspace",
    "is_anything_beside",
    "move_records_into",
    "parse_new_name",
    "path_of_unsaved",
    "read_resources",
    "recover",
    "rename_stack",
    "selected_stack",
    "short_name",
]
