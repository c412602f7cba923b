"""Run one operation on one stack: preview, update, refresh, destroy, expire or repair.

`operations` and `testing` call this package. A deployment runs the program, plans and executes
steps and records the state. Creates that an earlier run left unfinished are recovered before.
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
from gpuform.stacks.engine.deployment.recovery import settle

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
