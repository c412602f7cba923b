"""Find broken nodes, by SCP, their scheduler and Lens, and decide which of them a run recreates.

SCP has no call that repairs a server: a broken one is deleted and created again. So a repair is
about one server, by its id: nothing happens to the server that came in its place. Node pools and
GPU nodes call this module while they read, plan and update; `PoolRepairs` checks each repair of a
pool again before the node is deleted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import call_interruptibly
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.kubernetes.scheduler import accept_time_between
from gpuform.providers.lens.inventory import describe_overheated_nodes
from gpuform.providers.lifetime import format_moment
from gpuform.providers.operations import Settings
from gpuform.providers.records import RecordedVerdict, Repair, Repairs, Verdicts
from gpuform.providers.repairing import (
    Fleet,
    RepairDecision,
    build_faults,
    choose_repairs,
    find_overheated_faults,
    is_unusable_for,
    parse_faults,
    parse_repair_policy,
)
from gpuform.providers.scp.nodes.planning import (
    DeclaredPool,
    Replacement,
    is_terminating,
    parse_stored_nodes,
)
from gpuform.providers.slurm.scheduler import NodeCondition, list_node_conditions
from gpuform.schemas.policies.certification import NodeFailure
from gpuform.schemas.policies.drain import PoolDrainInputs
from gpuform.schemas.policies.repair import (
    FaultCause,
    NodeFault,
    NodeRepair,
    RepairInputs,
    RepairPolicy,
)
from gpuform.schemas.scp.outputs import FAILED_NODE_STATES, NodeOutputs, NodeState, to_unix_time

VERDICT_OWNER: Final = "scp"
"""The owner under which failed certifications are recorded: node ids are unique on all of SCP."""

REMAKE: Final = "REMAKE"
"""The one way to repair a node."""

_MODES: Final = (REMAKE,)


def decide_repairs(
    policy: RepairPolicy | None, outputs: Mapping[str, Any], nodes: Sequence[NodeOutputs]
) -> RepairDecision:
    """Decide which nodes a run recreates, by the states of the nodes and the faults in `outputs`.

    Without a policy every update recreates failed nodes, and `unrepaired` is empty. Nodes that
    people request by name are recreated whatever the policy says.

    Raises:
        GpuformError: a requested mode of repair does not exist for SCP.
    """
    live_nodes = [node for node in nodes if not is_terminating(node.state)]
    known_faults = parse_faults(outputs)
    fleet = Fleet(
        node_names=[node.gpu_node_name for node in live_nodes],
        allowed_modes=_MODES,
        all_modes=_MODES,
        unhealthy_names=[node.gpu_node_name for node in live_nodes if node.trouble],
        instance_ids={node.gpu_node_name: node.id for node in live_nodes},
    )
    decision = choose_repairs(
        policy,
        [
            *find_failed_nodes(live_nodes, known_faults),
            *keep_known_faults(live_nodes, known_faults),
        ],
        fleet,
    )
    return decision if policy is not None else replace(decision, unrepaired=())


def find_failed_nodes(
    nodes: Iterable[NodeOutputs], known_faults: Sequence[NodeFault], now: str = ""
) -> list[NodeFault]:
    """Return a fault for each node in a failed state.

    A fault that `known_faults` does not have begins at `now`: the platform gives no time.
    """
    failed_nodes = (
        (node.gpu_node_name, node.id, f"its state is {node.state}")
        for node in nodes
        if node.state in FAILED_NODE_STATES
    )
    return build_faults(FaultCause.PLATFORM, failed_nodes, known_faults, now)


def keep_known_faults(
    nodes: Iterable[NodeOutputs], known_faults: Sequence[NodeFault]
) -> list[NodeFault]:
    """Return the known faults of existing nodes, without faults reported by SCP."""
    existing_ids = {node.id for node in nodes}
    return [
        fault
        for fault in known_faults
        if fault.cause != FaultCause.PLATFORM and fault.instance in existing_ids
    ]


def find_unusable_nodes(
    nodes: Iterable[NodeOutputs], not_ready_limit_s: float, now: float
) -> Iterator[NodeFault]:
    """Yield a fault for each node unusable for the scheduler for `not_ready_limit_s` seconds.

    `now` is in Unix seconds. The node has the scheduler's reason in `trouble`.
    """
    for node in nodes:
        since, created_at = to_unix_time(node.unusable_since), to_unix_time(node.created_at)
        if node.trouble and is_unusable_for(
            not_ready_limit_s, unusable_since=since, now=now, created_at=created_at
        ):
            yield NodeFault(
                node=node.gpu_node_name,
                cause=FaultCause.NOT_READY,
                because=node.trouble,
                since=node.unusable_since or "",
                instance=node.id,
            )


def find_uncertified_nodes(
    nodes: Iterable[NodeOutputs], verdicts: Iterable[RecordedVerdict]
) -> Iterator[NodeFault]:
    """Yield a fault for each node whose id is recorded as failed in `verdicts`."""
    failures = [
        NodeFailure.model_validate(failure) for verdict in verdicts for failure in verdict.failures
    ]
    failures_by_id = {failure.machine: failure for failure in failures}
    for node in nodes:
        if (failure := failures_by_id.get(node.id)) is not None:
            yield NodeFault(
                node=node.gpu_node_name,
                cause=FaultCause.FAILED_CERTIFICATION,
                because=f"{failure.category}: {failure.because}",
                since=failure.at,
                instance=node.id,
            )


_MAX_REASON_LENGTH: Final = 200


@dataclass(frozen=True)
class NodeInspection:
    """Inspection of the nodes of one resource, which `label` names; `declared` are its inputs."""

    context: ProviderContext
    settings: Settings
    label: str
    declared: Mapping[str, Any]

    def find_faults(
        self, nodes: Sequence[NodeOutputs]
    ) -> tuple[Sequence[NodeOutputs], list[NodeFault]]:
        """Return the nodes with the scheduler's complaints, and the faults of broken nodes.

        Without a declared `repair` there are only faults that SCP reports. With one, a call that
        may change nodes adds the known faults from the state. A call that only reads checks RUNNING
        nodes again: by the stack's records of failed certifications, by the scheduler if `drain`
        declares one, and by Lens if `repair.max_temperature` is declared. If the scheduler or Lens
        does not answer, this is reported as a skipped check, and is not a fault.

        Raises:
            Cancelled: the run was interrupted.
        """
        known_faults, now = parse_faults(self.context.stored_properties), self.context.clock.now()
        faults = find_failed_nodes(nodes, known_faults, format_moment(now))
        policy = parse_repair_policy(self.declared, RepairInputs)
        if policy is None:
            return nodes, faults
        # A run that changes nodes does what its plan has shown: no new faults in between.
        if not self.context.is_read_only:
            return nodes, [*faults, *keep_known_faults(nodes, known_faults)]
        # A node that is stopped or changing is no fault of its scheduler or its GPUs.
        running_nodes = [node for node in nodes if node.state == NodeState.RUNNING]
        faults += find_uncertified_nodes(running_nodes, self.list_verdicts())
        if running_nodes and self._drain.has_scheduler:
            nodes_by_id = self._add_conditions(running_nodes, known_faults, format_moment(now))
            nodes = [nodes_by_id.get(node.id, node) for node in nodes]
            faults += find_unusable_nodes(nodes, policy.not_ready_s, now)
        max_temperature = policy.max_temperature
        if running_nodes and max_temperature is not None:
            faults += find_overheated_faults(
                self.context,
                f"the nodes of {self.label}",
                lambda: self.measure_overheated_nodes(running_nodes, max_temperature),
                [(node.gpu_node_name, node.id) for node in running_nodes],
                known_faults,
                format_moment(now),
            )
        return nodes, faults

    def list_verdicts(self) -> list[RecordedVerdict]:
        """Return the stack's recorded certification failures of nodes of SCP; send no request.

        Each verdict is of one certification resource of this stack. The failed nodes may belong to
        other resources: compare their ids.
        """
        return Verdicts.from_intents(self.context.intents).list_for(VERDICT_OWNER)

    def get_conditions(self, nodes: Sequence[NodeOutputs]) -> dict[str, NodeCondition]:
        """Ask the declared schedulers for the conditions of nodes; return the known ones by id.

        A node that no scheduler knows by its name or id is missing in the result. A node without a
        problem has a condition, too. The caller has checked that a scheduler is declared: without
        one the result is empty.

        Raises:
            GpuformError: a scheduler cannot be asked.
            Cancelled: the run was interrupted.
        """
        conditions = call_interruptibly(
            self.context, lambda: list_node_conditions(self._drain, self.label)
        )
        # A scheduler may know a server by its name or by its id.
        pairs = (
            (node, conditions.get(node.gpu_node_name) or conditions.get(node.id)) for node in nodes
        )
        return {node.id: condition for node, condition in pairs if condition is not None}

    def measure_overheated_nodes(
        self, nodes: Sequence[NodeOutputs], max_temperature: float
    ) -> Mapping[str, str]:
        """Ask Lens which nodes are hotter than `max_temperature`; return the reasons by name.

        Raises:
            GpuformError: Lens cannot be asked.
            Cancelled: the run was interrupted.
        """
        names = [node.gpu_node_name for node in nodes]
        return call_interruptibly(
            self.context, lambda: describe_overheated_nodes(self.settings, names, max_temperature)
        )

    @property
    def _drain(self) -> PoolDrainInputs:
        """Return the declared `drain`, or the defaults."""
        return PoolDrainInputs.model_validate(self.declared.get("drain") or {})

    def _add_conditions(
        self, running_nodes: Sequence[NodeOutputs], known_faults: Sequence[NodeFault], now: str
    ) -> dict[str, NodeOutputs]:
        """Return unusable nodes by id, with the scheduler's reason and the start time.

        The reason, cut to `_MAX_REASON_LENGTH` characters, is in `trouble`, the time in
        `unusable_since`. The time is the scheduler's, else the stored one, else `now`; a time
        before the node's creation or after `now` does not count. Usable nodes, and nodes that the
        scheduler does not know, are missing in the result. Empty, with a skipped check, if the
        scheduler cannot be asked or knows none of the nodes. `running_nodes` must not be empty.

        Raises:
            Cancelled: the run was interrupted.
        """
        try:
            conditions = self.get_conditions(running_nodes)
        # An interruption ends the call; it is no missing answer.
        except Cancelled:
            raise
        except GpuformError as error:
            self.context.on_skipped_check(
                f"the state of the nodes of {self.label} in the scheduler: {error.message}"
            )
            return {}
        if not conditions:
            self.context.on_skipped_check(
                f"the state of the nodes of {self.label}: the scheduler knows none of these nodes"
            )
        known_times = self._get_known_unusable_times(running_nodes, known_faults)
        return {
            node.id: node.model_copy(
                update={
                    "trouble": conditions[node.id].problem[:_MAX_REASON_LENGTH],
                    # No time is reported for this machine: gpuform's first observation counts.
                    "unusable_since": self._validate_since(
                        node, conditions[node.id].problem_since, now
                    )
                    or self._validate_since(node, known_times.get(node.id), now)
                    or now,
                }
            )
            for node in running_nodes
            if node.id in conditions and conditions[node.id].problem
        }

    @staticmethod
    def _validate_since(node: NodeOutputs, since: str | None, now: str) -> str:
        """Return `since` if the time is between the node's creation and `now`, else "".

        Machines may share a name over time: an earlier time is of another machine.
        """
        created, latest = to_unix_time(node.created_at), to_unix_time(now)
        assert latest is not None  # noqa: S101 - we have written it
        return accept_time_between(since, created, latest)

    def _get_known_unusable_times(
        self, running_nodes: Sequence[NodeOutputs], known_faults: Sequence[NodeFault]
    ) -> dict[str, str]:
        """Return by node id since when nodes were unusable, as stored, else as known faults say.

        The result has every node of the state with a stored time, and every node with a NOT_READY
        fault; other faults do not count. Nodes without either are missing. `running_nodes` must not
        be empty, and filters nothing: for a GpuNode, whose stored outputs have no id, the first one
        gives the id.
        """
        nodes = self.context.stored_properties.get("gpu_nodes")
        # The outputs of a GpuNode are those of its one node, without an id.
        single_node = {"id": running_nodes[0].id, **self.context.stored_properties}
        stored_nodes = nodes.values() if isinstance(nodes, Mapping) else [single_node]
        stored_times = {
            str(node["id"]): str(node["unusable_since"])
            for node in stored_nodes
            if node.get("unusable_since")
        }
        fault_times = {
            fault.instance: fault.since
            for fault in known_faults
            if fault.cause == FaultCause.NOT_READY
        }
        return fault_times | stored_times


RERUN_WINDOW_S: Final = 3600.0
"""For how many seconds a repair that was cut off counts as the one that is run again."""

Values = Mapping[str, Any]


def decide_pool_repairs(outputs: Values, declared: Values) -> RepairDecision:
    """Decide which broken nodes of the outputs a run recreates, by the declaration."""
    return decide_repairs(
        parse_repair_policy(declared, RepairInputs), outputs, parse_stored_nodes(outputs) or ()
    )


def build_declared_pool(outputs: Values, declared: Values) -> DeclaredPool:
    """Build the declaration, with the ids of the stored nodes whose repair is due."""
    due_repairs = decide_pool_repairs(outputs, declared).due_repairs
    return replace(
        DeclaredPool.from_inputs(declared),
        recreated_ids=frozenset(repair.instance for repair in due_repairs),
    )


class PoolRepairs:
    """The repairs of one pool during one call."""

    def __init__(
        self, context: ProviderContext, inspection: NodeInspection, id_: str, declared: Values
    ) -> None:
        self._context = context
        self._inspection = inspection
        self._id = id_
        self._policy = parse_repair_policy(declared, RepairInputs)
        self._decision = decide_pool_repairs(context.stored_properties, declared)
        self._due_repairs = {repair.instance: repair for repair in self._decision.due_repairs}
        self._records = Repairs.from_intents(context.intents)

    @property
    def node_ids(self) -> frozenset[str]:
        """Return the ids of the nodes whose repair is due in this call."""
        return frozenset(self._due_repairs)

    @property
    def max_parallel(self) -> int | None:
        """Return how many nodes may be recreated at a time; None if no repair is due."""
        return self._decision.max_parallel if self._decision.due_repairs else None

    @property
    def unrepaired_reasons(self) -> Mapping[str, str]:
        """Return by name why a broken node is not recreated."""
        return {
            held_fault.fault.node: held_fault.reason for held_fault in self._decision.unrepaired
        }

    def is_due(self, replacement: Replacement) -> bool:
        """Return True if a node should be replaced now, after a second look at the node's fault.

        Always True for a replacement that is not a repair. Records a repair that people have
        requested by name. A repair that is no longer needed is dropped with a warning.

        Raises:
            GpuformError: the scheduler or Lens cannot be asked.
        """
        repair = self._due_repairs.get(replacement.node.id)
        if repair is None:
            return True
        # A person's request holds whatever the node's health; only a repetition of it is ignored.
        reason = (
            self._record_request(repair)
            if repair.node in self._context.run.requested_repairs
            else self._find_recovery(replacement, repair)
        )
        if reason:
            self._context.on_warning(f"node {replacement.name} {reason}: it stays as it is")
            del self._due_repairs[replacement.node.id]
        return not reason

    def forget_requests(self) -> None:
        """Delete the records of the pool's repairs if this run was asked to repair nodes by name.

        A later request then means another repair.
        """
        if self._context.run.requested_repairs:
            self._records.forget(self._id)

    def _find_recovery(self, replacement: Replacement, repair: NodeRepair) -> str:
        """Return why a node needs no repair any more; empty while the fault persists.

        A node that its scheduler does not know counts as unusable still.

        Raises:
            GpuformError: the scheduler or Lens cannot be asked.
        """
        policy = self._policy
        if repair.cause == FaultCause.NOT_READY:
            condition = self._inspection.get_conditions([replacement.node]).get(replacement.node.id)
            return "" if condition is None or condition.problem else "is usable again"
        if repair.cause == FaultCause.OVERHEATED and policy and policy.max_temperature is not None:
            max_temperature = policy.max_temperature
            reasons = self._inspection.measure_overheated_nodes([replacement.node], max_temperature)
            return "" if replacement.name in reasons else "is no longer too hot"
        if repair.cause == FaultCause.FAILED_CERTIFICATION:
            failure_times = {
                fault.since
                for fault in find_uncertified_nodes(
                    [replacement.node], self._inspection.list_verdicts()
                )
            }
            return "" if repair.since in failure_times else "was certified since"
        return "" if replacement.node.state in FAILED_NODE_STATES else "is no longer broken"

    def _record_request(self, repair: NodeRepair) -> str:
        """Record a requested repair; return the reason to skip one done by an interrupted run.

        Only a repair recorded within `RERUN_WINDOW_S` counts as done. Empty if the repair is still
        to be done.
        """
        last_repair, now = self._records.find(self._id, repair.node), self._context.clock.now()
        # The name has another server than the recorded one: the earlier run has recreated it.
        if (
            last_repair is not None
            and last_repair.instance != repair.instance
            and now - last_repair.at < RERUN_WINDOW_S
        ):
            finished_at = format_moment(last_repair.at)
            return f"was recreated already, by the interrupted run of {finished_at}"
        if last_repair is None or last_repair.instance != repair.instance:
            new_repair = Repair(self._id, repair.node, "", repair.instance, repair.mode, now)
            self._records.record(new_repair)
        return ""
