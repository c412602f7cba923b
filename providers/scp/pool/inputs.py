"""Build a pool's inputs from its nodes: those that SCP shows, and those that an import declares.

`NodePoolOperations` calls this module while it reads a pool.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.scp.nodes import DeclaredPool, get_power_state, is_terminating
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import NodeOutputs


def build_observed_inputs(nodes: Sequence[NodeOutputs], declared: DeclaredPool) -> dict[str, Any]:
    """Build the observed inputs: `{"count": number}`, or `{"nodes": settings by key}`.

    A pool declared by a `count` gives the first, any other pool the second. Nodes under deletion
    are left out.
    """
    live_nodes = [node for node in nodes if not is_terminating(node.state)]
    if declared.count is not None:
        return {"count": len(live_nodes)}
    inputs_by_key = {
        declared.get_key(node.gpu_node_name): {
            "gpu_node_name": node.gpu_node_name,
            "ip_address": node.policy_ip,
            "zone": node.zone,
            "nat_enabled": node.policy_use_nat,
            "lock_enabled": node.lock_enabled,
            "state": get_power_state(node.state),
        }
        for node in live_nodes
    }
    return {"nodes": inputs_by_key}


def add_interrupted_nodes(
    observed: dict[str, Any],
    declared: DeclaredPool,
    known_inputs: Mapping[str, Any],
    missing_names: Sequence[str],
) -> dict[str, Any]:
    """Return the observed `count` or `nodes` with the nodes of an interrupted repair added.

    A count never exceeds the declared and the observed one. A refresh keeps the nodes declared, so
    that a run from the state alone creates them again. `observed` has the `count` or the `nodes`
    that the platform shows, `declared` is the pool as the state has it, `known_inputs` are the
    inputs of the state, and `missing_names` are the names of missing nodes whose repair has not
    ended.
    """
    if declared.count is not None:
        # Never more nodes than declared or observed: a record may be about a node declared no
        # longer.
        max_count = max(declared.count, observed["count"])
        return {"count": min(max_count, observed["count"] + len(missing_names))}
    keys = {declared.get_key(name) for name in missing_names} - observed["nodes"].keys()
    interrupted_nodes = {
        key: node_inputs
        for key, node_inputs in (known_inputs.get("nodes") or {}).items()
        if key in keys
    }
    return {"nodes": {**observed["nodes"], **interrupted_nodes}}


def build_import_inputs(member_nodes: Sequence[wire.GpuNode], prefix: str) -> dict[str, Any]:
    """Build the inputs that a program would declare for these nodes, without public IPs.

    Equal nodes with numbers as names become a `count`, others `nodes`. The platform returns no id
    of a public IP. The server type is left out, too.
    """
    # All nodes of a pool share these values: the first node stands for all.
    first_node = member_nodes[0]
    has_one_zone = len({node.zone for node in member_nodes}) == 1
    shared_zone = {"zone": first_node.zone} if has_one_zone and first_node.zone else {}
    inputs_by_key = {
        node.gpu_node_name.removeprefix(f"{prefix}-"): {
            **_build_node_inputs(node),
            **({} if has_one_zone or not node.zone else {"zone": node.zone}),
        }
        for node in member_nodes
    }
    are_equal = all(
        node_inputs == inputs_by_key[key]
        for key in list(inputs_by_key)[:1]
        for node_inputs in inputs_by_key.values()
    )
    members: dict[str, Any] = {"nodes": inputs_by_key}
    # Names as a pool with a count gives them: -001, -002, ...
    if are_equal and all(re.fullmatch(r"[0-9]{3}", key) for key in inputs_by_key):
        members = {"count": len(inputs_by_key), **_build_node_inputs(first_node)}
    return {
        "node_pool_id": first_node.node_pool_id,
        "cluster_fabric_name": first_node.cluster_fabric_name,
        "gpu_node_name_prefix": prefix,
        **shared_zone,
        **members,
        "image_id": first_node.image_id,
        "region_id": first_node.region_id,
        "vpc_id": first_node.vpc_id,
        "subnet_id": first_node.network_id,
        "init_script": first_node.init_script.get_secret_value(),
    }


def _build_node_inputs(node: wire.GpuNode) -> dict[str, Any]:
    """Build the inputs of a node that differ from the defaults."""
    node_inputs: dict[str, Any] = {"lock_enabled": True} if node.lock_enabled else {}
    return node_inputs | ({"state": "STOPPED"} if get_power_state(node.state) == "STOPPED" else {})
