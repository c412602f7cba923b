"""GPU nodes of Samsung SCP, in a pool or alone: what they are to become, and the steps there."""

from gpuform.providers.scp.nodes.batching import LEAST, batches
from gpuform.providers.scp.nodes.changes import differences, is_stopped_by_force, locked
from gpuform.providers.scp.nodes.fabrics import (
    fabric_of_id,
    find_fabric,
    no_members,
    refuse_other_pool,
)
from gpuform.providers.scp.nodes.ledger import Ledger, candidate, sent
from gpuform.providers.scp.nodes.looking import Inspection
from gpuform.providers.scp.nodes.moving import (
    no_fabric,
    node_problems,
    pool_problems,
    refuse_moves,
    why_not_to,
)
from gpuform.providers.scp.nodes.parallel import in_parallel
from gpuform.providers.scp.nodes.planning import (
    ROLLED,
    DeclaredNode,
    DeclaredPool,
    Fabric,
    Plan,
    Replacement,
    plan,
    replacement,
)
from gpuform.providers.scp.nodes.repairs import OWNER, decided, uncertified
from gpuform.providers.scp.nodes.states import is_leaving, power_of
from gpuform.providers.scp.nodes.steps import NodeSteps
from gpuform.providers.scp.nodes.taking import NodeTaking, interruptions

__all__ = [
    "LEAST",
    "OWNER",
    "ROLLED",
    "DeclaredNode",
    "DeclaredPool",
    "Fabric",
    "Inspection",
    "Ledger",
    "NodeSteps",
    "NodeTaking",
    "Plan",
    "Replacement",
    "batches",
    "candidate",
    "decided",
    "differences",
    "fabric_of_id",
    "find_fabric",
    "in_parallel",
    "interruptions",
    "is_leaving",
    "is_stopped_by_force",
    "locked",
    "no_fabric",
    "no_members",
    "node_problems",
    "plan",
    "pool_problems",
    "power_of",
    "refuse_moves",
    "refuse_other_pool",
    "replacement",
    "sent",
    "uncertified",
    "why_not_to",
]
