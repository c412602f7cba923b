"""One run over one stack: preview, update, refresh, destroy or expire.

The rooms below are put together here: the program runs, steps are planned and done, the state is
kept. Creates that an earlier run left are settled before.
"""

from gpuform.stacks.engine.deployment.deployment import Deployment
from gpuform.stacks.engine.deployment.event_json import EventLog, PreviewDigest
from gpuform.stacks.engine.deployment.options import (
    DEFAULT_PARALLEL,
    DeploymentTarget,
    Operation,
    Options,
    Outcome,
    basis_after,
    basis_before,
    is_sealed,
    seal_plan,
)
from gpuform.stacks.engine.deployment.settling import settle

__all__ = [
    "DEFAULT_PARALLEL",
    "Deployment",
    "DeploymentTarget",
    "EventLog",
    "Operation",
    "Options",
    "Outcome",
    "PreviewDigest",
    "basis_after",
    "basis_before",
    "is_sealed",
    "seal_plan",
    "settle",
]
