"""Several stacks as one: which there are, what they read of each other, and in which order."""

from gpuform.stacks.multi_stack.members import FILE, Estate, EstateError, Member
from gpuform.stacks.multi_stack.ordering import (
    Order,
    check_estate,
    circles,
    filtered,
    reaching,
    sequence,
)
from gpuform.stacks.multi_stack.reading import (
    find_estate,
    named,
    project_files,
    read_estate,
    stacks_with_settings,
)

__all__ = [
    "FILE",
    "Estate",
    "EstateError",
    "Member",
    "Order",
    "check_estate",
    "circles",
    "filtered",
    "find_estate",
    "named",
    "project_files",
    "reaching",
    "read_estate",
    "sequence",
    "stacks_with_settings",
]
