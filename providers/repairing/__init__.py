"""Decide which broken nodes a run repairs.

Each platform reports its faults and carries out the repairs; the functions here only decide.
"""

from gpuform.providers.repairing.decisions import (
    Fleet,
    RepairDecision,
    UnrepairedFault,
    build_due_repair_notices,
    build_repair_changes,
    build_unrepaired_notices,
    choose_repairs,
    describe_repair,
    is_unusable_for,
    parse_faults,
    parse_repair_policy,
)

__all__ = [
    "Fleet",
    "RepairDecision",
    "UnrepairedFault",
    "build_due_repair_notices",
    "build_repair_changes",
    "build_unrepaired_notices",
    "choose_repairs",
    "describe_repair",
    "is_unusable_for",
    "parse_faults",
    "parse_repair_policy",
]
