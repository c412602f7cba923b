"""Find, select, create, open, import, rename and remove a project's stacks.

The highest package of the engine: operations and commands start here; it calls `store`, `state`,
`secrets` and `project`.
"""

from gpuform.stacks.engine.stack.foreign_states import (
    ForeignStack,
    LiveResource,
    StackImport,
    read_resources,
    recover,
)
from gpuform.stacks.engine.stack.moving import (
    build_lasting_url,
    has_local_records,
    migrate_stack,
    move_local_records,
    parse_new_name,
    rename_stack,
)
from gpuform.stacks.engine.stack.secrets_change import SecretsChange
from gpuform.stacks.engine.stack.stack import Stack, Workspace, get_unsaved_path
from gpuform.stacks.engine.stack.workspace import (
    APPROVED_BY,
    HOST,
    JOB,
    PLAN_MADE_AT,
    PLAN_PULL_REQUEST,
    PLAN_SEAL,
    USER,
    Origin,
    StackNotFound,
    find_selected_stack,
    get_short_name,
)

__all__ = [
    "APPROVED_BY",
    "HOST",
    "JOB",
    "PLAN_MADE_AT",
    "PLAN_PULL_REQUEST",
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
    "build_lasting_url",
    "find_selected_stack",
    "get_short_name",
    "get_unsaved_path",
    "has_local_records",
    "migrate_stack",
    "move_local_records",
    "parse_new_name",
    "read_resources",
    "recover",
    "rename_stack",
]
