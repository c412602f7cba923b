"""Repairing broken nodes: which of them now, and the record of what was asked for.

Pure, but for the record: each platform says what is broken, and does the repairing.
"""

from gpuform.providers.repairing.deciding import (
    Decision,
    Fleet,
    Held,
    changes_of,
    decide,
    due_notices,
    faults_in,
    is_unusable_for,
    notices_of,
    repair_of,
    repair_text,
)

__all__ = [
    "Decision",
    "Fleet",
    "Held",
    "changes_of",
    "decide",
    "due_notices",
    "faults_in",
    "is_unusable_for",
    "notices_of",
    "repair_of",
    "repair_text",
]
