"""Brings the nodes of one pool to what is declared, look by look, until nothing is left to do.

Each look lists the nodes, plans with them, and does what can be done now. So it does not matter
where an earlier run was cut off.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.records import Target
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import (
    DeclaredPool,
    Inspection,
    Ledger,
    NodeSteps,
    NodeTaking,
    Plan,
    differences,
    find_fabric,
    is_leaving,
    no_members,
    plan,
    replacement,
)
from gpuform.providers.scp.pool.creating import INTERVAL, PoolCreating, pool_id_of
from gpuform.providers.scp.pool.nodes import PoolNodes
from gpuform.providers.scp.pool.repairs import PoolRepairs, stored_nodes
from gpuform.providers.scp.pool.rollout import Pace, Rollout
from gpuform.schemas.policies.drain import Leaving
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.outputs import NodeOutputs, NodePoolOutputs
from gpuform.schemas.scp.statuses import NODE_AT_REST, NODE_FAILED

Seen = Observed[NodePoolOutputs]

_TRIES = 5
"""How often nodes are chosen anew while they change."""


def target_of(node_pool_id: str, prefix: str) -> Target:
    """A pool as the record of its creates knows it."""
    return Target("scp", "NodePool", prefix, node_pool_id)


class PoolWork:
    """One call's work on a pool; of the nodes that it takes no job runs any more."""

    def __init__(
        self,
        client: ScpClient,
        settings: Settings,
        call: ProviderContext,
        want: NodePoolInputs,
        id_: str = "",
    ) -> None:
        known, pool_id = call.known, pool_id_of(want)
        what = f"pool {want.gpu_node_name_prefix}"
        self._inspection = Inspection(call, settings, what, want.dump_declared())
        self._repairs = PoolRepairs(call, self._inspection, id_ or pool_id, want.dump_declared())
        self.taking = NodeTaking.of_pool(call, id_ or pool_id, want.dump_declared())
        self._client = client
        self._call = call
        self._want = want
        self._cleared = set[str]()
        self._declared = DeclaredPool.of(want.dump_declared())
        pace = Pace(want.rollout, self._repairs.parallel, self._repairs.held)
        self._rollout = Rollout(call, pace, self.taking, self._repairs.is_due)
        target = self._own_target = target_of(want.node_pool_id, want.gpu_node_name_prefix)
        node_ids = known.get("node_ids") or ()
        self._ledger = Ledger(call, target, pool_id, node_ids, lambda: client.clock_ahead)
        self.nodes = PoolNodes(client, call, self._ledger, known, [want.cluster_fabric_name])
        for wanted in self._declared.nodes.values():
            self.nodes.made_with(wanted.name, wanted.public_ip_address_id)
        self._steps = NodeSteps(client, self.nodes)
        self._creating = PoolCreating(client, call, want, self._declared, self._ledger, self.nodes)
        self._before = {node.id: node.state for node in stored_nodes(known) or ()}
        self._had_nodes = bool(self._ledger.ids)

    def begin(self) -> None:
        """Makes the first nodes, unless an earlier attempt has made some."""
        if self._ledger.ids or self._ledger.unsure:
            self.nodes.look()
        if self._ledger.ids and not self._call.finds_only:
            self._call.on_progress("found nodes again, created by an earlier attempt")
        elif not self._ledger.ids:
            self._ledger.refuse_while_unsure()
            self._call.refuse_to_make(self._own_target)
            self._creating.begin(plan(self._declared, []).create)

    def finish(self) -> Seen:
        """Works and waits until all is as declared. Raises NotReady with what there is."""
        what = f"pool {self._want.gpu_node_name_prefix}"
        interval = self._client.rhythm(INTERVAL)
        try:
            with self._call.searching(self._rollout.patience(self.plan())):
                wait_until_done(self._call, self._look, label=what, interval=interval)
        except NotReady as error:
            if self._is_gone:
                raise NotReady(error.reason) from None
            raise type(error)(error.reason, last=self._seen(error.reason)) from None
        except GpuformError as error:
            raise NotReady(str(error), last=self._seen(str(error))) from None
        self._repairs.end()
        return self._seen(None)

    def plan(self) -> Plan:
        """What there is to do, after a look."""
        self.nodes.look()
        return self._planned()

    def clear(self, found: Plan) -> Plan:
        """The plan with nodes on which no job runs in place of those that it would take.

        Of replacements that are rolled out it has those alone that may begin now. Raises
        GpuformError when nodes must not go.
        """
        found = self._next(found)
        for _ in range(_TRIES):
            taking = self.taking.by(found, self._declared.fabric)
            taken = self._ids([*taking.these, *(node.gpu_node_name for node in found.delete)])
            if taken <= self._cleared:
                return found
            cleared = self.taking.clear(taking, self.nodes.all)
            if cleared is None:  # nobody tells the jobs
                self._cleared |= taken
                return found
            self._cleared |= self._ids(cleared)
            found = self._next(self.plan())
        raise GpuformError("its nodes change all the time: run it again")

    def leaving(self) -> Leaving | None:
        """The nodes whose GPUs would go now."""
        found = self.plan()
        taking = self.taking.by(found, self._declared.fabric)
        return self._rollout.ordered(self.taking.leaving(taking, self.nodes.all))

    def _next(self, found: Plan) -> Plan:
        unsure = dict.fromkeys(self._ledger.unsure, "it is not known whether it was made")
        refused = {**unsure, **self._creating.refused, **self._steps.refused}
        return self._rollout.step(found, self.nodes.all, refused)

    def _ids(self, names: Collection[str]) -> set[str]:
        return {node.id for node in self.nodes.all if node.gpu_node_name in names}

    @property
    def _is_gone(self) -> bool:
        """Whether there were nodes, and somebody else has deleted them all."""
        is_empty = not self._ledger.ids and not self._ledger.unsure
        return self._had_nodes and is_empty and not self._steps.has_deleted

    def _planned(self) -> Plan:
        """Not replaced is what this call has made, and what has failed since it was last seen."""
        remade = self._repairs.ids
        spare = {
            node.id
            for node in self.nodes.all
            if node.id not in self._before
            or (node.state in NODE_FAILED and self._before[node.id] not in NODE_FAILED)
        }
        declared = replace(self._declared, cleared=self.taking.chosen, remade=remade)
        return plan(declared, self.nodes.all, spare - remade)

    def _look(self) -> PollResult[None]:
        found = self.plan()
        self._had_nodes = self._had_nodes or bool(self._ledger.ids)
        if self._is_gone:
            raise NotReady(f"all nodes of the pool {self._want.gpu_node_name_prefix} are gone")
        found = self.clear(found)
        is_told = self._steps.delete(found.ending)
        is_told |= self._steps.adjust(found.keep, self._declared.fabric, self._target(found))
        self._creating.go_on(found.create)
        problems, phase = self._problems(found), self._phase(found)
        if is_told or self._is_busy(found):
            return PollResult(None, phase)
        if problems:
            return PollResult(None, phase, failure="; ".join(problems))
        return PollResult(None, phase, is_done=True)

    def _target(self, found: Plan) -> str | None:
        """The id of the fabric where nodes are to be moved, if any are."""
        fabric = self._declared.fabric
        if all(fabric.has(node) for node, _ in found.keep):
            return None
        if fabric.id is not None:
            return fabric.id
        there = find_fabric(self._client, self._want.node_pool_id, fabric.name or "")
        if there is None:
            raise GpuformError(f"cluster_fabric_name: {no_members(fabric.name or '')}")
        return there.id

    def _is_busy(self, found: Plan) -> bool:
        """Whether anything is under way, or waits for its turn."""
        refused = self._creating.refused.keys() | self._steps.refused.keys() | self._ledger.unsure
        if found.waiting or self._rollout.is_joining or self._ledger.may_show_more:
            return True
        if any(wanted.name not in refused for wanted in found.create):
            return True
        if any(node.gpu_node_name not in refused for node in found.ending):
            return True
        if any(is_leaving(node.state) for node in self.nodes.all):
            return True
        return any(
            node.state not in NODE_AT_REST | NODE_FAILED
            or (
                wanted.name not in refused and any(differences(node, wanted, self._declared.fabric))
            )
            for node, wanted in found.keep
        )

    def _problems(self, found: Plan) -> list[str]:
        """What is not as declared and does not become so by itself."""
        unsure = "it is not known whether it was made; another run looks for it"
        told = dict.fromkeys(self._ledger.unsure, unsure)
        told |= {**self._creating.refused, **self._steps.refused}
        for node, wanted in found.keep:
            wrong = replacement(node, wanted)
            if node.state in NODE_FAILED:
                told[node.gpu_node_name] = self._broken(node)
            elif wrong:
                because = f"its {wrong.field} is {wrong.before} and not {wrong.after}"
                told[node.gpu_node_name] = f"{because}; another run makes it again"
        reasons: dict[str, list[str]] = {}
        for name, reason in sorted(told.items()):
            reasons.setdefault(reason, []).append(name)
        return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]

    def _broken(self, node: NodeOutputs) -> str:
        because = f"its state is {node.state}"
        if node.gpu_node_name in self._repairs.held:
            return f"{because}, and it is not repaired: {self._repairs.held[node.gpu_node_name]}"
        return f"{because}; another run makes it again"

    def _phase(self, found: Plan) -> str:
        states = Counter(node.state or "no state" for node in self.nodes.all)
        parts = [f"{number} {state}" for state, number in sorted(states.items())]
        unseen = len(self._ledger.ids) - len(self.nodes.seen)
        missing = len(found.create) - max(0, unseen)
        if missing > 0:
            parts.append(f"{missing} to be made")
        if found.waiting:
            parts.append(f"{len(found.waiting)} to be replaced")
        return ", ".join(parts) or "no node yet"

    def _seen(self, reason: str | None) -> Seen:
        found = self._inspection.faults(self.nodes.all)
        return Observed({}, outputs_of(found, self._ledger, self._declared.key_of, reason))


def outputs_of(
    found: tuple[Sequence[NodeOutputs], list[NodeFault]],
    ledger: Ledger,
    key_of: Callable[[str], str],
    reason: str | None,
) -> NodePoolOutputs:
    """A pool as outputs: its nodes and their faults; `reason` says why it is not ready."""
    nodes, faults = found
    fabrics = Counter(node.cluster_fabric_id for node in nodes if node.cluster_fabric_id)
    keyed = {key_of(node.gpu_node_name): node for node in nodes}
    return NodePoolOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        gpu_nodes=keyed,
        node_ids=sorted(ledger.ids),
        cluster_fabric_id=next((id_ for id_, _ in fabrics.most_common(1)), None),
        faults=faults,
    )
