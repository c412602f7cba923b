"""Run one operation on one stack: preview, update, refresh, destroy, expire or repair.

`operations` and `testing` call this package. A deployment runs the program, plans and executes
steps and records the state. `recover_creates` first recovers creates that an earlier run left
unfinished.
"""

from gpuform.stacks.engine.deployment.deployment import Deployment
from gpuform.stacks.engine.deployment.event_json import EventLog, PreviewDigest
from gpuform.stacks.engine.deployment.options import (
    DEFAULT_PARALLEL,
    DeploymentTarget,
    Operation,
    Options,
    Outcome,
    build_initial_basis,
    complete_basis,
    is_sealed,
    seal_plan,
)
from gpuform.stacks.engine.deployment.recovery import recover_creates

__all__ = [
    "DEFAULT_PARALLEL",
    "Deployment",
    "DeploymentTarget",
    "EventLog",
    "Operation",
    "Options",
    "Outcome",
    "PreviewDigest",
    "build_initial_basis",
    "complete_basis",
    "is_sealed",
    "recover_creates",
    "seal_plan",
]
