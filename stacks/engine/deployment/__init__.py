"""One run over one stack: preview, update, refresh, destroy or expire.

The rooms below are put together here: the program runs, steps are planned and done, the state is
kept. Creates that an earlier run left are settled before.
"""

from gpuform.stacks.engine.deployment.deployment import (
    DEFAULT_PARALLEL,
    Deployment,
    Operation,
    Options,
    Outcome,
    Subject,
)
from gpuform.stacks.engine.deployment.event_json import EventLog, PreviewDigest
from gpuform.stacks.engine.deployment.plan_basis import basis_after, basis_before, is_sealed, sealed
from gpuform.stacks.engine.deployment.settling import settle

__all__ = [
    "DEFAULT_PARALLEL",
    "Deployment",
    "EventLog",
    "Operation",
    "Options",
    "Outcome",
    "PreviewDigest",
    "Subject",
    "basis_after",
    "basis_before",
    "is_sealed",
    "sealed",
    "settle",
]
