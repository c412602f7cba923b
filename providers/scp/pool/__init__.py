"""The verbs of a node pool of Samsung SCP, and what a single node shares with them."""

from gpuform.providers.scp.pool.changes import (
    change_guard,
    deleting_guard,
    is_off,
    locked_names,
    planned_names,
    pool_changes,
)
from gpuform.providers.scp.pool.creating import INTERVAL, PATIENCE, pool_id_of, server_of, tags_of
from gpuform.providers.scp.pool.nodes import PoolNodes, shown
from gpuform.providers.scp.pool.repairs import pool_repairs, stored_nodes
from gpuform.providers.scp.pool.work import PoolWork, Seen, outputs_of, target_of

__all__ = [
    "INTERVAL",
    "PATIENCE",
    "PoolNodes",
    "PoolWork",
    "Seen",
    "change_guard",
    "deleting_guard",
    "is_off",
    "locked_names",
    "outputs_of",
    "planned_names",
    "pool_changes",
    "pool_id_of",
    "pool_repairs",
    "server_of",
    "shown",
    "stored_nodes",
    "tags_of",
    "target_of",
]
