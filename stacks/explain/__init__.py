"""Explain a resource, node or object from the stack's history, records and state.

`operations/explaining` calls `explain`; nothing here asks a platform.
"""

from gpuform.stacks.explain.explanation import explain
from gpuform.stacks.explain.recorded_runs import RecordedRun, read_recorded_runs

__all__ = ["RecordedRun", "explain", "read_recorded_runs"]
