"""Repair nodes of a cluster, some at a time and none under a job: drain, request, wait, uncordon.

The operations of a cluster (`cluster`) call `add_faults` for each refresh and run a
`ClusterRepairRun` for an update. Requests go through `client`, drains through `node_removal`.

A repair is requested under an id that follows from the fault and its mode, so that a run that was
killed never requests a repair twice. A proposal of Together itself is approved instead.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.context import PollResult, PollSchedule, ProviderContext, wait_until_done
from gpuform.providers.draining import finish_drain
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    Conflict,
    GpuformError,
    NotFound,
    NotReady,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.lens.inventory import describe_overheated_nodes
from gpuform.providers.lifetime import format_moment
from gpuform.providers.operations import Settings
from gpuform.providers.records import PROPAGATION_TIME_S, Drains, Repair, Repairs, Verdicts
from gpuform.providers.repairing import find_overheated_faults, parse_repair_policy
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster_view import (
    ObservedCluster,
    count_nodes,
    list_standard_workers,
)
from gpuform.providers.together.node_removal import (
    ClusterNodeRemoval,
    count_standard_gpus,
    get_slurm_inputs,
)
from gpuform.providers.together.repairs import (
    ENDED,
    MODES_BEYOND_APPROVAL,
    PROPOSED,
    STATES_BEFORE_RUN,
    SUCCEEDED,
    WITHDRAWN,
    build_late_withdrawal_error,
    find_proposed_repairs,
    find_uncertified_workers,
    find_unusable_workers,
    is_under_repair,
)
from gpuform.providers.together.workers import read_worker_states
from gpuform.schemas.policies.repair import (
    DEFAULT_NOT_READY_S,
    REJECT,
    FaultCause,
    NodeFault,
    NodeRepair,
)
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import ClusterRepairInputs
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.wire import Remediation

REPAIR_TIMEOUT_S: Final = 7200.0
"""Seconds that one repair may take. No document has a limit."""

REJOIN_TIMEOUT_S: Final = 1800.0
"""Seconds after a repair in which the node has to become usable again."""

REPEAT_WINDOW_S: Final = 3600.0
"""Seconds after its record in which a repair that people ask for by name is not repeated."""

_REQUEST_ID_NAMESPACE: Final = uuid.UUID("6c0f9a46-6b6b-5c53-9f0e-7b1f8f4f2c11")


def add_faults(
    context: ProviderContext,
    observed: ObservedCluster,
    cluster: wire.Cluster,
    known_inputs: Mapping[str, object],
    settings: Settings,
    client: TogetherClient,
) -> ObservedCluster:
    """Return an observed cluster with proposals and unusable, uncertified or hot nodes as faults.

    Preemptible nodes are left out. Together is asked for the alerts behind each proposal, and Lens
    for temperatures where `repair.max_temperature` is declared. A source that cannot be asked is
    reported through `context.on_skipped_check` and adds no fault.
    """
    policy = parse_repair_policy(known_inputs, ClusterRepairInputs)
    workers = list_standard_workers(cluster)
    nodes = [
        worker
        for worker in observed.outputs.gpu_worker_nodes
        if worker.host_name in {standard_worker.host_name for standard_worker in workers}
    ]
    detailed_remediations: dict[str, Remediation] = {}
    for fault in find_proposed_repairs(workers):
        try:
            remediation = client.get_remediation(cluster.cluster_id, fault.instance, fault.id)
            detailed_remediations[remediation.id] = remediation
        except GpuformError as error:
            context.on_skipped_check(
                f"the reason of Together's proposal to repair {fault.node}: {error.message}"
            )
    not_ready_limit_s = DEFAULT_NOT_READY_S if policy is None else policy.not_ready_s
    faults: list[NodeFault] = [*find_proposed_repairs(workers, detailed_remediations)]
    now, _ = context.get_platform_time(client.clock_ahead)
    faults += find_unusable_workers(nodes, not_ready_limit_s, now)
    faults += _find_uncertified(context, cluster)
    # temperatures come from Lens, which not everybody has: it is asked only where a limit is
    # declared
    max_temperature = None if policy is None else policy.max_temperature
    if max_temperature is not None:
        names = [node.host_name for node in nodes]
        faults += find_overheated_faults(
            context,
            "the nodes",
            lambda: describe_overheated_nodes(settings, names, max_temperature),
            [(node.host_name, node.instance_id or "") for node in nodes],
        )
    outputs = observed.outputs.model_copy(update={"faults": faults})
    return type(observed)(observed.inputs, outputs)


@dataclass(frozen=True)
class ClusterRepairRun:
    """The repairs of one update of one cluster.

    `require_cluster` reads the cluster again and raises GpuformError if it does not exist.
    `create_removal` returns what drains the nodes of a cluster.
    """

    context: ProviderContext
    client: TogetherClient
    settings: Settings
    inputs: ClusterInputs
    cluster_id: str
    require_cluster: Callable[[], wire.Cluster]
    create_removal: Callable[[wire.Cluster], ClusterNodeRemoval]
    poll_schedule: PollSchedule

    @property
    def is_interrupted(self) -> bool:
        """Return True if an earlier run left the record of nodes drained for a repair."""
        drain = Drains.from_intents(self.context.intents).find(self.cluster_id)
        # the drain of a repair names every node that it chose; a removal also lists the nodes
        # present
        return drain is not None and not drain.present

    def run(self, repairs: Sequence[NodeRepair]) -> None:
        """Repair nodes in order, as many at a time as declared; stop at the first failure.

        Repairs that the plan rejects or cancels come first, then the end of the repairs of an
        interrupted run. Nodes are drained before and uncordoned afterwards.

        Raises:
            GpuformError: a repair failed or may not be done, or cannot be ended any more.
            Cancelled: the run was interrupted.
        """
        # first: the repair of an interrupted run may be the one to cancel
        for repair in repairs:
            if repair.is_withdrawal:
                self._end_open_repair(repair)
        self._finish_interrupted_run()
        remaining_repairs = [repair for repair in repairs if not repair.is_withdrawal]
        while remaining_repairs:
            batch_size = self._count_allowed_repairs(remaining_repairs)
            with self.context.extend_deadline(REPAIR_TIMEOUT_S + REJOIN_TIMEOUT_S):
                self._repair_batch(remaining_repairs[:batch_size])
            del remaining_repairs[:batch_size]

    def _end_open_repair(self, repair: NodeRepair) -> None:
        """Reject or cancel Together's open repair of a node, and record this.

        A repair that has ended meanwhile, in any way, only gives a warning.

        Raises:
            GpuformError: the repair has begun, another mode of repair is proposed by now, or the
                answer was lost and the repair is still open.
            NotReady: Together accepted the request, but still shows the repair as open.
        """
        path = (self.cluster_id, repair.instance, repair.id)
        if not self._can_end(repair, self.client.get_remediation(*path)):
            return
        Repairs.from_intents(self.context.intents).record(
            Repair(
                self.cluster_id,
                repair.node,
                repair.id,
                repair.instance,
                repair.mode,
                self.context.clock.now(),
            )
        )
        failure: GpuformError | None = None
        try:
            if repair.mode == REJECT:
                self.client.reject_remediation(*path, comment="gpuform: rejected by `repair`")
            else:
                self.client.cancel_remediation(*path)
        except (ApiError, Unreachable, UnknownOutcome) as error:
            failure = error

        # Whatever the answer, or without one: what Together shows now counts.
        def poll() -> PollResult[None]:
            remediation = self.client.get_remediation(*path)
            is_open = remediation.state not in WITHDRAWN and self._can_end(repair, remediation)
            if is_open and failure is not None:
                raise failure
            return PollResult(None, f"{repair.node} {remediation.state}", is_done=not is_open)

        wait_until_done(
            self.context,
            poll,
            label=f"{repair.mode} of the repair of {repair.node}",
            interval=self.poll_schedule,
            limit=PROPAGATION_TIME_S,
        )

    def _can_end(self, repair: NodeRepair, remediation: Remediation) -> bool:
        """Return True if a repair is open in the planned state; warn if the repair has ended.

        Raises:
            GpuformError: the repair has begun, or has another mode by now.
        """
        if not self._is_as_planned(repair, remediation):
            return False
        if remediation.state not in STATES_BEFORE_RUN[repair.mode]:
            raise build_late_withdrawal_error(repair.node, repair.mode, remediation.state)
        return True

    def _count_allowed_repairs(self, remaining_repairs: Sequence[NodeRepair]) -> int:
        """Return how many of the repairs may run now, beside repairs started by others.

        One at a time without a declared `repair`, or if people asked for all of them by name.

        Raises:
            GpuformError: none may run now.
        """
        policy = self.inputs.repair
        # people who name nodes get them repaired one at a time, whatever the policy
        if policy is None or all(repair.cause == FaultCause.ASKED for repair in remaining_repairs):
            return 1
        own_nodes = {repair.node for repair in remaining_repairs}
        other_repairs = [
            worker.host_name
            for worker in list_standard_workers(self.require_cluster())
            if is_under_repair(worker) and worker.host_name not in own_nodes
        ]
        if len(other_repairs) >= policy.parallel:
            raise GpuformError(
                f"the repair of {', '.join(other_repairs)} is running, and repair.max_parallel "
                f"is {policy.parallel}",
                hint="run the command again when that repair has ended",
            )
        return policy.parallel - len(other_repairs)

    def _repair_batch(self, batch: Sequence[NodeRepair]) -> None:
        """Drain and repair the nodes of a batch at the same time, wait for the end, and uncordon.

        Repairs no longer needed are skipped, with a warning. Nodes are uncordoned also after a
        failed repair; all failures are raised together at the end. A repair not ended in time, a
        lost answer, or an interruption once a repair has begun, leaves the nodes cordoned, for the
        next run. In a run with `--allow evict-jobs`, jobs are ended, and nodes whose scheduler
        cannot be asked are repaired without a drain.

        Raises:
            GpuformError: too many nodes are unhealthy, jobs keep a node, or a repair failed.
            NotReady: a repair has not ended within `REPAIR_TIMEOUT_S`.
        """
        cluster = self.require_cluster()
        # the plan may be old: whatever has recovered since is left alone
        needed_repairs = [repair for repair in batch if self._is_needed(cluster, repair)]
        if not needed_repairs:
            return
        self._refuse_too_many_unhealthy(cluster, needed_repairs)
        removal = self.create_removal(cluster)
        names_before = {worker.host_name for worker in list_standard_workers(cluster)}
        eviction = removal.build_repair_eviction(
            [needed_repair.node for needed_repair in needed_repairs]
        )
        with removal.create_repair_drain().drain_during(eviction):
            remediations, refusals = self._request_repairs(needed_repairs)
        problems = [
            *refusals,
            *(self._finish_repairs(cluster, remediations, names_before) if remediations else ()),
        ]
        # uncordoned whether the repairs succeeded or not: a cordon would otherwise stay unnoticed
        self._uncordon_nodes()
        if problems:
            raise GpuformError(
                "; ".join(problems),
                hint="look at the node with kubectl and on Together's pages; for another repair, "
                "run `gpuform repair NODE --mode ...`",
            )

    def _request_repairs(
        self, repairs: Sequence[NodeRepair]
    ) -> tuple[dict[NodeRepair, Remediation], list[str]]:
        """Request each repair which is still needed; the caller has drained the nodes.

        Returns:
            The remediations, and a sentence for each repair that could not be requested. Repairs
            that are no longer needed are in neither.

        Raises:
            GpuformError: the answer was lost, or Together refused before any repair had begun.
            Cancelled: the run was interrupted before any repair had begun; a later interruption is
                one of the sentences.
        """
        remediations: dict[NodeRepair, Remediation] = {}
        refusals: list[str] = []
        for repair in repairs:
            try:
                cluster = self.require_cluster()
                if self._is_needed(cluster, repair):
                    remediations[repair] = self._request_repair(cluster, repair)
            except GpuformError as error:
                is_answered = isinstance(error, ApiError)
                is_answer_lost = isinstance(error, ApiError) and not error.is_definite
                if is_answer_lost or (
                    not remediations and (is_answered or isinstance(error, Cancelled))
                ):
                    raise
                # The repairs requested before go on: they end before any node is uncordoned.
                refusals.append(f"{repair.node}: {error.message}")
        return remediations, refusals

    def _finish_repairs(
        self,
        cluster: wire.Cluster,
        remediations: Mapping[NodeRepair, Remediation],
        names_before: set[str],
    ) -> list[str]:
        """Wait until all repairs have ended and nodes are back; return a sentence per failure.

        A node that does not come back in time is a failure, too.

        Raises:
            NotReady: a repair has not ended within `REPAIR_TIMEOUT_S`.
            Cancelled: the run was interrupted.
            GpuformError: the cluster is gone, or Together refuses to show a repair.
        """
        ended_repairs = self._wait_until_ended(cluster, remediations)
        problems = [*_describe_failures(ended_repairs)]
        succeeded = [
            repair
            for repair, remediation in ended_repairs.items()
            if remediation.state == SUCCEEDED
        ]
        try:
            if succeeded:
                self._wait_for_workers(succeeded, names_before)
        except Cancelled:
            raise
        except NotReady as error:
            problems.append(error.reason)
        return problems

    def _refuse_too_many_unhealthy(
        self, cluster: wire.Cluster, repairs: Sequence[NodeRepair]
    ) -> None:
        """Raise GpuformError if more nodes are unhealthy than `repair.max_unhealthy` allows.

        The cause may then be something other than the nodes. Unhealthy are nodes under repair,
        proposed for repair, unusable for a scheduler, or in `repairs`. A scheduler that cannot be
        asked adds none. Without a declared `repair`, and if people asked for all repairs by name,
        nothing is refused.
        """
        policy = self.inputs.repair
        if policy is None or all(repair.cause == FaultCause.ASKED for repair in repairs):
            return
        workers = list_standard_workers(cluster)
        states = read_worker_states(
            self.context, cluster, get_slurm_inputs(self.inputs.dump_declared())
        )
        unhealthy = {worker.host_name for worker in workers if is_under_repair(worker)}
        unhealthy |= {fault.node for fault in find_proposed_repairs(workers)}
        unhealthy |= {*states.failures} | {needed_repair.node for needed_repair in repairs}
        if len(unhealthy) > policy.compute_max_unhealthy(len(workers)):
            raise GpuformError(
                f"{len(unhealthy)} of {len(workers)} nodes are unhealthy now, more than "
                f"repair.max_unhealthy ({policy.limit}) allows: {', '.join(sorted(unhealthy))}",
                hint="look for a common cause; to repair one node by name, run `gpuform "
                "repair NODE`",
            )

    def _is_needed(self, cluster: wire.Cluster, repair: NodeRepair) -> bool:
        """Return True if the plan's reason for a repair still exists; else warn and return False.

        A repair requested by name is needed unless any run requested the same repair (mode and
        machine) within `REPEAT_WINDOW_S` and it has ended, successfully or not. No repair is needed
        of a node that is missing or another machine by now.

        Raises:
            GpuformError: the reason cannot be checked, or Together now proposes another repair.
        """
        worker = next(
            (
                standard_worker
                for standard_worker in list_standard_workers(cluster)
                if standard_worker.host_name == repair.node
            ),
            None,
        )
        # for example, the same update has removed the node
        if worker is None:
            self.context.on_warning(
                f"node {repair.node} is no longer part of the cluster: it is not repaired"
            )
            return False
        # the machine was exchanged meanwhile: the fault was that of the old one
        if repair.instance and worker.instance_id != repair.instance:
            self.context.on_warning(f"node {repair.node} is another machine now: it stays as it is")
            return False
        if repair.id:
            return self._is_still_proposed(cluster, repair)
        if repair.cause == FaultCause.NOT_READY:
            states = read_worker_states(
                self.context, cluster, get_slurm_inputs(self.inputs.dump_declared())
            )
            if states.unreachable:
                raise GpuformError(f"the state of node {repair.node}: {states.unreachable}")
            return self._warn_unless(repair, repair.node in states.failures, "is usable again")
        if repair.cause == FaultCause.OVERHEATED and self.inputs.repair is not None:
            limit = float(self.inputs.repair.max_temperature or 0)
            overheated_nodes = describe_overheated_nodes(self.settings, [repair.node], limit)
            return self._warn_unless(
                repair, repair.node in overheated_nodes, "is no longer too hot"
            )
        if repair.cause == FaultCause.FAILED_CERTIFICATION:
            failed = {
                (fault.node, fault.since) for fault in _find_uncertified(self.context, cluster)
            }
            holds = (repair.node, repair.since) in failed
            return self._warn_unless(repair, holds, "was repaired or certified since")
        return self._is_not_done_lately(cluster, repair)

    def _warn_unless(self, repair: NodeRepair, is_needed: bool, reason: str) -> bool:
        """Return `is_needed`; if False, warn about the node being left alone, with the reason."""
        if not is_needed:
            self.context.on_warning(f"node {repair.node} {reason}: it stays as it is")
        return is_needed

    def _is_still_proposed(self, cluster: wire.Cluster, repair: NodeRepair) -> bool:
        """Return True if Together's proposed repair has not ended, approved or not; else warn.

        Raises:
            GpuformError: another mode of repair is proposed by now, or Together does not show the
                proposal.
        """
        remediation = self.client.get_remediation(cluster.cluster_id, repair.instance, repair.id)
        return self._is_as_planned(repair, remediation)

    def _is_as_planned(self, repair: NodeRepair, remediation: Remediation) -> bool:
        """Return True if the planned remediation has not ended; else warn.

        Raises:
            GpuformError: another mode of repair is proposed by now.
        """
        if remediation.state == PROPOSED and remediation.mode != repair.proposed:
            raise GpuformError(
                f"Together now proposes another repair of node {repair.node}: {remediation.mode} "
                f"instead of {repair.proposed}",
                hint="nothing was done: plan again, with --refresh",
            )
        if remediation.state in ENDED:
            self.context.on_warning(
                f"the proposed repair of node {repair.node} has ended: "
                f"{_format_remediation(remediation)}"
            )
        return remediation.state not in ENDED

    def _is_not_done_lately(self, cluster: wire.Cluster, repair: NodeRepair) -> bool:
        """Return False, with a warning, if any run did an equal repair within `REPEAT_WINDOW_S`.

        The same repair has the same mode and the same machine of the node. It counts as done if it
        was recorded within the window and has ended, successfully or not. A repair still under way,
        and one that Together does not know, count as not done: `_request_repair` then uses the
        recorded id again.

        Raises:
            GpuformError: Together does not answer.
        """
        last_repair = Repairs.from_intents(self.context.intents).find(
            cluster.cluster_id, repair.node
        )
        if (
            last_repair is None
            or last_repair.mode != repair.mode
            or last_repair.instance != repair.instance
        ):
            return True
        if self.context.clock.now() - last_repair.at >= REPEAT_WINDOW_S:
            return True
        try:
            remediation = self.client.get_remediation(
                cluster.cluster_id, last_repair.instance, last_repair.repair
            )
        except NotFound:
            return True  # the run that recorded the repair never requested it
        if remediation.state in ENDED:
            self.context.on_warning(
                f"node {repair.node} was repaired already, at {format_moment(last_repair.at)}: "
                f"{_format_remediation(remediation)}"
            )
        return remediation.state not in ENDED

    def _request_repair(self, cluster: wire.Cluster, repair: NodeRepair) -> Remediation:
        """Approve a proposed repair, or request a repair under an id which prevents repetition.

        The evidence is sent along, cut to 500 characters. Returns the earlier remediation if the
        repair was approved or requested before.

        Raises:
            GpuformError: Together refuses, or the answer was lost.
        """
        path = (cluster.cluster_id, repair.instance)
        if not repair.id:
            request_id = self._choose_request_id(cluster, repair)
            reason = f"gpuform: {repair.evidence}"[:500]
            try:
                return self.client.create_remediation(*path, request_id, repair.mode, reason)
            except Conflict:
                try:  # no document has the answer to a second request with one id
                    return self.client.get_remediation(*path, request_id)
                except NotFound:
                    pass
                raise
        # The reviewed mode is sent: the proposal may have changed since the plan.
        mode = "" if repair.mode in MODES_BEYOND_APPROVAL else repair.mode
        comment = f"gpuform: {repair.evidence}"[:500]
        try:
            return self.client.approve_remediation(*path, repair.id, mode=mode, comment=comment)
        except Conflict:
            remediation = self.client.get_remediation(*path, repair.id)
            if remediation.state == PROPOSED:
                raise
            return remediation

    def _choose_request_id(self, cluster: wire.Cluster, repair: NodeRepair) -> str:
        """Return the id for the request of a repair; a repeated run gets the id of the first run.

        For a repair that people ask for by name, the id is recorded first. A recorded id of the
        same repair (mode and machine) is used again within `REPEAT_WINDOW_S`, also after the repair
        has ended.
        """
        # one fault, one id: a repeated run requests the same remediation
        fault_key = (cluster.cluster_id, repair.instance, repair.cause, repair.since, repair.mode)
        if repair.cause != FaultCause.ASKED:
            return str(uuid.uuid5(_REQUEST_ID_NAMESPACE, "\n".join(fault_key)))
        repairs, now = Repairs.from_intents(self.context.intents), self.context.clock.now()
        last_repair = repairs.find(cluster.cluster_id, repair.node)
        is_same_repair = last_repair is not None and (last_repair.instance, last_repair.mode) == (
            repair.instance,
            repair.mode,
        )
        # a run that was killed after the record continues under its id
        if last_repair is not None and is_same_repair and now - last_repair.at < REPEAT_WINDOW_S:
            return last_repair.repair
        request_id = str(uuid.uuid5(_REQUEST_ID_NAMESPACE, "\n".join((*fault_key, str(now)))))
        repairs.record(
            Repair(cluster.cluster_id, repair.node, request_id, repair.instance, repair.mode, now)
        )
        return request_id

    def _wait_until_ended(
        self, cluster: wire.Cluster, remediations: Mapping[NodeRepair, Remediation]
    ) -> dict[NodeRepair, Remediation]:
        """Wait until every repair has ended, successfully or not, and return the last states.

        Raises:
            NotReady: a repair has not ended within `REPAIR_TIMEOUT_S`.
            Cancelled: the run was interrupted.
        """
        latest = dict(remediations)

        def poll() -> PollResult[None]:
            for repair, remediation in latest.items():
                if remediation.state not in ENDED:
                    path = (cluster.cluster_id, remediation.instance_id or repair.instance)
                    latest[repair] = self.client.get_remediation(*path, remediation.id)
            states = ", ".join(
                f"{repair.node} {remediation.state}" for repair, remediation in latest.items()
            )
            return PollResult(
                None,
                states,
                is_done=all(remediation_now.state in ENDED for remediation_now in latest.values()),
            )

        names = ", ".join(repair.node for repair in remediations)
        wait_until_done(
            self.context,
            poll,
            label=f"repair of {names}",
            interval=self.poll_schedule,
            limit=REPAIR_TIMEOUT_S,
        )
        return latest

    def _wait_for_workers(self, succeeded: Sequence[NodeRepair], names_before: set[str]) -> None:
        """Wait until the schedulers can use the repaired or replaced nodes.

        A repair may replace a node by one with another name: as many nodes as in `names_before`
        have to be there, too. If somebody makes the cluster smaller meanwhile, as many nodes as it
        is to have now; a repaired node that was removed then only gives a warning. Nodes that
        somebody adds are not waited for.

        Raises:
            NotReady: a node has not come back within `REJOIN_TIMEOUT_S`.
            Cancelled: the run was interrupted.
            GpuformError: the cluster is gone.
        """
        slurm = get_slurm_inputs(self.inputs.dump_declared())
        repaired_names = {repair.node for repair in succeeded}

        def poll() -> PollResult[None]:
            cluster = self.require_cluster()
            present_names = {worker.host_name for worker in list_standard_workers(cluster)}
            # a repair may replace the node by another one with a new name
            new_names = present_names - names_before
            absent_names = repaired_names - present_names
            wanted_count = min(
                len(names_before), count_nodes(cluster, count_standard_gpus(cluster))
            )
            is_shrunk = len(present_names) <= wanted_count < len(names_before)
            removed_count = max(0, len(absent_names) - len(new_names)) if is_shrunk else 0
            replaced_count = len(absent_names) - removed_count
            if len(present_names) < wanted_count or len(new_names) < replaced_count:
                progress = f"{len(present_names)} of {wanted_count} nodes have returned"
                return PollResult(None, progress)
            states = read_worker_states(self.context, cluster, slurm)
            joined_names = {name for name in present_names if states.can_use(name)}
            missing = sorted((repaired_names & present_names) - joined_names)
            # more new nodes than replaced ones are those of somebody who enlarges the cluster
            if len(new_names & joined_names) < replaced_count:
                missing += sorted(new_names - joined_names)
            is_done = not missing and not states.unreachable
            if is_done and removed_count:
                self.context.on_warning(
                    f"{', '.join(sorted(absent_names))}: removed after the repair, because "
                    f"somebody else has changed the cluster to {cluster.num_gpus} GPUs"
                )
            progress = states.unreachable or f"waiting for {', '.join(missing)} to join"
            return PollResult(None, progress, is_done=is_done)

        names = ", ".join(repair.node for repair in succeeded)
        label = f"return of {names} after the repair"
        wait_until_done(
            self.context, poll, label=label, interval=self.poll_schedule, limit=REJOIN_TIMEOUT_S
        )

    def _finish_interrupted_run(self) -> None:
        """Wait for the repairs requested by an earlier run, if any, and uncordon the nodes.

        Raises:
            NotReady: a repair has not ended within `REPAIR_TIMEOUT_S`.
            GpuformError: the cluster is gone, or nodes stay cordoned.
        """
        if not self.is_interrupted:
            return

        def poll() -> PollResult[None]:
            is_under_way = self.create_removal(self.require_cluster()).is_under_way
            return PollResult(None, "running", is_done=not is_under_way)

        label = "the changes that an earlier run has begun"
        with self.context.extend_deadline(REPAIR_TIMEOUT_S):
            wait_until_done(
                self.context, poll, label=label, interval=self.poll_schedule, limit=REPAIR_TIMEOUT_S
            )
        self._uncordon_nodes()

    def _uncordon_nodes(self) -> None:
        """Uncordon the nodes drained for repairs, and delete the record; nothing without a record.

        Raises:
            GpuformError: the cluster is gone, or nodes stay cordoned.
        """
        cluster = self.require_cluster()
        drain = Drains.from_intents(self.context.intents).find(self.cluster_id)
        if drain is not None:
            names = [worker.host_name for worker in list_standard_workers(cluster)]
            finish_drain(
                self.context, drain, self.create_removal(cluster).connect_to_scheduler, names
            )


def _find_uncertified(context: ProviderContext, cluster: wire.Cluster) -> list[NodeFault]:
    """Return a fault for each worker with a recorded failed certification and no repair since."""
    verdicts = Verdicts.from_intents(context.intents).list_for(cluster.cluster_id)
    return [*find_uncertified_workers(list_standard_workers(cluster), verdicts)]


def _describe_failures(ended_repairs: Mapping[NodeRepair, Remediation]) -> Iterator[str]:
    """Yield a sentence for each repair with another end than success or self-recovery."""
    for repair, remediation in ended_repairs.items():
        if remediation.state not in (SUCCEEDED, "AUTO_RESOLVED"):
            yield f"the repair of node {repair.node} has ended: {_format_remediation(remediation)}"


def _format_remediation(remediation: Remediation) -> str:
    """Return a remediation in words, as `HOST_AWARE FAILED (no host is free)`."""
    reason = remediation.error_message or remediation.review_comment or ""
    return f"{remediation.mode} {remediation.state}{f' ({reason})' if reason else ''}"
