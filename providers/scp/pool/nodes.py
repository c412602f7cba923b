"""Observe a pool's nodes by a few lists for everybody who waits, never by a request for each node.

The pool's inputs are built from the nodes: those that SCP shows, and those that an import declares.
`PoolReconciler` and the operations of a pool call this module.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import PROPAGATION_TIME_S, SEARCH_INTERVAL_S
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.ledger import NodeLedger
from gpuform.providers.scp.nodes.planning import (
    DeclaredPool,
    get_power_state,
    is_terminating,
    parse_stored_nodes,
)
from gpuform.providers.scp.nodes.steps import run_in_parallel
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import NodeOutputs


def node_to_outputs(node: wire.GpuNode, public_ip_address_id: str | None) -> NodeOutputs:
    """Convert a node to outputs, with the id of the public IP as known to gpuform.

    The platform returns no id of a public IP, so the caller passes `public_ip_address_id`, or None
    if unknown. The output of that name is None without NAT, whatever is passed.
    """
    return NodeOutputs(
        id=node.id,
        gpu_node_name=node.gpu_node_name,
        state=node.state,
        policy_ip=node.policy_ip or None,
        policy_use_nat=node.policy_use_nat,
        policy_nat=node.policy_nat or None,
        # Without NAT a node has no public IP, whatever was stored.
        public_ip_address_id=public_ip_address_id if node.policy_use_nat else None,
        lock_enabled=node.lock_enabled,
        cluster_fabric_id=node.cluster_fabric_id or None,
        cluster_fabric_name=node.cluster_fabric_name or None,
        zone=node.zone or None,
        pfs_ip=list(node.pfs_ip),
        server_type=node.server_type or None,
        product_type_id=node.product_type_id or None,
        image_id=node.image_id or None,
        image_version=node.image_version or None,
        os_type=node.os_type or None,
        time_zone=node.time_zone or None,
        account_id=node.account_id or None,
        created_at=node.created_at,
        created_by=node.created_by or None,
        modified_at=node.modified_at,
        modified_by=node.modified_by or None,
    )


def keep_stored_zones(
    context: ProviderContext,
    client: ScpClient,
    nodes: Iterable[wire.GpuNode],
    stored_zones: Mapping[str, str | None],
) -> list[wire.GpuNode]:
    """Return the nodes, each in the zone recorded in the state for the node's id, if any.

    A server cannot change its zone, so another reported zone is wrong, and no reason to replace the
    node. Warns once in a call of nodes whose reported zone differs. A version of the API without
    zones reports none: no warning.

    Args:
        context: the context of the call.
        client: the client that read the nodes.
        nodes: the nodes as SCP reports them.
        stored_zones: the zones of the state by node id; None for an unknown zone.
    """
    kept_nodes, contradictions = list[wire.GpuNode](), list[str]()
    for node in nodes:
        stored_zone = stored_zones.get(node.id)
        if not stored_zone or node.zone == stored_zone:
            kept_nodes.append(node)
            continue
        reported_zone = node.zone or "no zone"
        contradictions.append(
            f"{node.gpu_node_name} (stored {stored_zone}, reported {reported_zone})"
        )
        kept_nodes.append(node.model_copy(update={"zone": stored_zone}))
    if contradictions and client.has_zones:
        context.warn_once(
            f"SCP reports another zone than stored: {', '.join(sorted(contradictions))}. A server "
            "stays in its zone, so gpuform keeps the stored zone"
        )
    return kept_nodes


class PoolNodes:
    """The nodes of one pool during one call.

    `nodes_by_id` are the pool's nodes at the last refresh; `other_nodes` the nodes of others in the
    same fabrics.
    """

    def __init__(
        self,
        client: ScpClient,
        context: ProviderContext,
        ledger: NodeLedger,
        stored_outputs: Mapping[str, Any],
        fabrics: Iterable[str],
    ) -> None:
        self._client = client
        self._context = context
        self._ledger = ledger
        stored_nodes = parse_stored_nodes(stored_outputs) or []
        # During a move nodes are in the old fabric and in the new one.
        self._fabrics = {*fabrics, *(node.cluster_fabric_name or "" for node in stored_nodes)} - {
            ""
        }
        self._stored_zones = {node.id: node.zone for node in stored_nodes}
        self._public_ips = {node.id: node.public_ip_address_id for node in stored_nodes}
        self._expected_public_ips: dict[str, str | None] = {}
        self.nodes_by_id: dict[str, NodeOutputs] = {}
        self.other_nodes: list[wire.GpuNode] = []

    @property
    def all(self) -> Sequence[NodeOutputs]:
        """Return the pool's nodes at the last refresh, sorted by name."""
        return sorted(self.nodes_by_id.values(), key=lambda node: (node.gpu_node_name, node.id))

    def count_absent_nodes(self) -> int:
        """Count the nodes of the pool that SCP does not show now, and may show later."""
        return len(self._ledger.ids - self.nodes_by_id.keys())

    def refresh(self) -> None:
        """List all nodes of the pool again, and forget deleted nodes.

        While the platform may not yet show what a create has made, or for a moment does not show a
        node that exists, the lists are repeated. A preview does not wait; a call that only looks
        waits for nodes that the state may lack, and before it reports that no node remains.

        Raises:
            AdoptionQuestion: nobody can say which nodes a create has made.
            GpuformError: SCP does not answer.
        """
        seconds = self._refresh_once()
        with self._context.extend_deadline(PROPAGATION_TIME_S):
            while (
                seconds and self._should_wait() and self._context.compute_remaining_seconds() != 0
            ):
                self._context.on_progress(self._describe_search())
                self._context.sleep(min(SEARCH_INTERVAL_S, seconds))
                seconds = self._refresh_once()

    def _describe_search(self) -> str:
        """Return what a repeated list looks for, for the progress of the call."""
        if self._ledger.lost_names:
            return "looking for the nodes of an interrupted create"
        if self._ledger.uncertain_names:
            return "looking for the nodes of a refused create"
        return "looking again for nodes that the platform does not show"

    def _should_wait(self) -> bool:
        """Return True if a refresh must wait for pool nodes missing in the lists; see `refresh`."""
        is_of_refused = self._ledger.uncertain_names and not self._ledger.lost_names
        # The create that follows a search waits for the nodes of a refused create.
        if self._context.preview or (is_of_refused and self._context.progress.is_search_only):
            return False
        is_needed = (
            self._ledger.lost_names or self._ledger.has_recorded_absent or not self.nodes_by_id
        )
        return bool(is_needed) or not self._context.is_read_only

    def _refresh_once(self) -> float:
        """List the nodes once, and set `nodes_by_id` and `other_nodes`.

        The ledger adopts created nodes and forgets deleted ones. Returns for how many seconds SCP
        may still lack existing nodes.
        """
        # Taken before the list is requested: an older time only makes the wait longer.
        asked_at = (
            self._ledger.get_platform_time()
            if self._ledger.has_uncertain_nodes
            else self._context.clock.now()
        )
        listed_nodes = self._list_nodes()
        # A hint of an answer may be the id of a node that lists lack; asked for only at the end.
        if self._ledger.hinted_ids and not self._ledger.get_seconds_to_wait(asked_at):
            listed_nodes |= self._get_unlisted_nodes(self._ledger.hinted_ids - listed_nodes.keys())
        self._ledger.adopt_created_nodes(listed_nodes.values(), asked_at)
        listed_nodes |= self._get_unlisted_nodes(self._ledger.ids - listed_nodes.keys())
        known_nodes = [
            node for id_, node in sorted(listed_nodes.items()) if id_ in self._ledger.ids
        ]
        pool_nodes = {
            node.id: node_to_outputs(
                node,
                self._public_ips.get(node.id, self._expected_public_ips.get(node.gpu_node_name)),
            )
            for node in keep_stored_zones(
                self._context, self._client, known_nodes, self._stored_zones
            )
        }
        self._ledger.expect_deletion(
            id_ for id_, node in pool_nodes.items() if is_terminating(node.state)
        )
        self._ledger.record_absent(self._ledger.ids - pool_nodes.keys(), asked_at)
        self.nodes_by_id = pool_nodes
        self.other_nodes = [node for id_, node in listed_nodes.items() if id_ not in pool_nodes]
        return self._ledger.get_seconds_to_wait(asked_at)

    def _list_nodes(self) -> dict[str, wire.GpuNode]:
        """List nodes by id: of the pool's fabrics, or all while a create's outcome is unknown."""
        # Where the nodes of a create are is not certain before they are seen: then all are listed.
        fabric_names = [None] if self._ledger.uncertain_names else sorted(self._fabrics)
        return {
            node.id: node
            for fabric_name in fabric_names
            for node in self._client.get_node_listing(fabric_name).read_all()
        }

    def expect_deletion(self, nodes: Iterable[NodeOutputs]) -> None:
        """Note nodes whose deletion is about to be requested."""
        self._ledger.expect_deletion(node.id for node in nodes)

    def record_public_ip(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:
        """Record, for later refreshes of this call, which public IP was assigned to a node."""
        self._public_ips[node.id] = public_ip_address_id

    def expect_public_ip(self, name: str, public_ip_address_id: str | None) -> None:
        """Record the public IP with which the node of this name is created.

        Refreshes of this call use the id. It counts until the state has the node, and a refresh
        shows it only with NAT.
        """
        self._expected_public_ips[name] = public_ip_address_id

    def _get_unlisted_nodes(self, ids: Iterable[str]) -> dict[str, wire.GpuNode]:
        """Look up nodes missing from the lists, and return the existing ones by id.

        A list may lag behind, or a node be in another fabric. A node that this lookup does not find
        is gone by the platform's own word.

        Raises:
            GpuformError: a lookup was not answered.
        """
        outcomes = run_in_parallel(
            [partial(self._client.get_node_listing().find_one, id_) for id_ in sorted(ids)]
        )
        for outcome in outcomes:
            # An unanswered lookup proves nothing: its error ends the refresh.
            if isinstance(outcome, BaseException):
                raise outcome
        return {outcome.id: outcome for outcome in outcomes if isinstance(outcome, wire.GpuNode)}


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
    """Build the inputs for a program which declares the nodes, without public IPs.

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
    """Build the inputs of a node which differ from the defaults."""
    node_inputs: dict[str, Any] = {"lock_enabled": True} if node.lock_enabled else {}
    return node_inputs | ({"state": "STOPPED"} if get_power_state(node.state) == "STOPPED" else {})
