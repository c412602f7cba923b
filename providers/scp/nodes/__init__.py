"""Plan, create, change and delete GPU nodes of SCP, alone or in a pool.

The operations of node pools and GPU nodes call this package, which calls `scp.client`.
"""

from gpuform.providers.scp.nodes.draining import NodeDrainer, find_interruptions
from gpuform.providers.scp.nodes.ledger import NodeLedger, node_to_candidate, request_to_node_fields
from gpuform.providers.scp.nodes.moving import (
    describe_empty_fabric,
    describe_missing_fabric,
    find_fabric,
    find_fabric_by_id,
    find_move_obstacle,
    find_node_problems,
    find_pool_problems,
    refuse_other_pool,
    refuse_unsafe_changes,
)
from gpuform.providers.scp.nodes.planning import (
    MIN_FABRIC_SIZE,
    ROLLOUT_FIELDS,
    DeclaredNode,
    DeclaredPool,
    PoolPlan,
    Replacement,
    TargetFabric,
    find_differences,
    find_replacement,
    format_locked_nodes,
    get_power_state,
    is_switched_while_locked,
    is_terminating,
    plan_pool,
    split_into_batches,
)
from gpuform.providers.scp.nodes.repairs import (
    VERDICT_OWNER,
    NodeInspection,
    decide_repairs,
    find_uncertified_nodes,
)
from gpuform.providers.scp.nodes.steps import NodeSteps, run_in_parallel

__all__ = [
    "MIN_FABRIC_SIZE",
    "ROLLOUT_FIELDS",
    "VERDICT_OWNER",
    "DeclaredNode",
    "DeclaredPool",
    "NodeDrainer",
    "NodeInspection",
    "NodeLedger",
    "NodeSteps",
    "PoolPlan",
    "Replacement",
    "TargetFabric",
    "decide_repairs",
    "describe_empty_fabric",
    "describe_missing_fabric",
    "find_differences",
    "find_fabric",
    "find_fabric_by_id",
    "find_interruptions",
    "find_move_obstacle",
    "find_node_problems",
    "find_pool_problems",
    "find_replacement",
    "find_uncertified_nodes",
    "format_locked_nodes",
    "get_power_state",
    "is_switched_while_locked",
    "is_terminating",
    "node_to_candidate",
    "plan_pool",
    "refuse_other_pool",
    "refuse_unsafe_changes",
    "request_to_node_fields",
    "run_in_parallel",
    "split_into_batches",
]
