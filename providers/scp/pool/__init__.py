"""Reconcile a node pool of Samsung SCP with its declaration.

`node_pool` calls this package; `gpu_node` and `node_facts` share parts of it.
"""

from gpuform.providers.scp.pool.changes import (
    find_change_guard,
    find_deletion_guard,
    find_pool_changes,
    has_stopped_nodes,
    list_locked_nodes,
    list_planned_fields,
)
from gpuform.providers.scp.pool.creating import (
    FABRIC_READY_TIMEOUT_S,
    POLL_INTERVAL_S,
    build_pool_id,
    build_server_details,
    build_tags,
)
from gpuform.providers.scp.pool.nodes import PoolNodes, keep_stored_zones, node_to_outputs
from gpuform.providers.scp.pool.reconciler import (
    ObservedPool,
    PoolReconciler,
    build_pool_outputs,
    build_target,
)
from gpuform.providers.scp.pool.repairs import decide_pool_repairs, parse_stored_nodes

__all__ = [
    "FABRIC_READY_TIMEOUT_S",
    "POLL_INTERVAL_S",
    "ObservedPool",
    "PoolNodes",
    "PoolReconciler",
    "build_pool_id",
    "build_pool_outputs",
    "build_server_details",
    "build_tags",
    "build_target",
    "decide_pool_repairs",
    "find_change_guard",
    "find_deletion_guard",
    "find_pool_changes",
    "has_stopped_nodes",
    "keep_stored_zones",
    "list_locked_nodes",
    "list_planned_fields",
    "node_to_outputs",
    "parse_stored_nodes",
]
