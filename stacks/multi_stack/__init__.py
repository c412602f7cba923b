"""Plan and apply several stacks together: find them, read their references, and order them."""

from gpuform.stacks.multi_stack.ordering import (
    StackOrder,
    check_workspace,
    find_cycles,
    find_dependants,
    is_mentioned,
    order_workspace,
    select_stacks,
    sort_stacks,
)
from gpuform.stacks.multi_stack.reading import (
    FILE,
    MultiStackError,
    MultiStackWorkspace,
    WorkspaceStack,
    find_project_files,
    find_workspace,
    find_workspace_root,
    list_stacks_with_settings,
    read_some_stacks,
    read_workspace,
    select_by_name,
)

__all__ = [
    "FILE",
    "MultiStackError",
    "MultiStackWorkspace",
    "StackOrder",
    "WorkspaceStack",
    "check_workspace",
    "find_cycles",
    "find_dependants",
    "find_project_files",
    "find_workspace",
    "find_workspace_root",
    "is_mentioned",
    "list_stacks_with_settings",
    "order_workspace",
    "read_some_stacks",
    "read_workspace",
    "select_by_name",
    "select_stacks",
    "sort_stacks",
]
