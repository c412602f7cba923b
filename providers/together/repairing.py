"""Repairs nodes of a cluster, some at a time and none under a job: drain, ask, wait, uncordon.

Together is asked under an id that follows from what is broken and how it is repaired, so that a
run that was killed never asks twice. A proposal of Together's own is approved instead.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.context import PollResult, PollSchedule, ProviderContext, wait_until_done
from gpuform.providers.draining import conclude
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    Conflict,
    GpuformError,
    NotFound,
    NotReady,
)
from gpuform.providers.lens.lookups import overheated
from gpuform.providers.lifetime import written
from gpuform.providers.operations import Settings
from gpuform.providers.records import Drains, Repair, Repairs, Verdicts
from gpuform.providers.repairing import repair_of
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster_view import ObservedCluster, list_standard_workers
from gpuform.providers.together.repairs import (
    ENDED,
    MODES_BEYOND_APPROVAL,
    PROPOSED,
    SUCCEEDED,
    find_overheated_workers,
    find_proposed_repairs,
    find_uncertified_workers,
    find_unusable_workers,
    is_under_repair,
)
from gpuform.providers.together.shrinking import Shrinking, slurm_of
from gpuform.providers.together.workers import look_at_workers
from gpuform.schemas.policies.repair import DEFAULT_NOT_READY_S, FaultCause, NodeFault, NodeRepair
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import ClusterRepairInputs
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.wire import Remediation

LONGEST: Final = 7200.0
"""Seconds that one repair may take; nobody documents it."""

JOIN: Final = 1800.0
"""Seconds after a repair in which the node has to be usable again."""

AGAIN: Final = 3600.0
"""Seconds in which a node is not repaired a second time because somebody asks for it."""

_NAMESPACE: Final = uuid.UUID("6c0f9a46-6b6b-5c53-9f0e-7b1f8f4f2c11")


def with_faults(
    call: ProviderContext,
    seen: ObservedCluster,
    cluster: wire.Cluster,
    known: Mapping[str, object],
    settings: Settings,
    client: TogetherClient,
) -> ObservedCluster:
    """What was seen of a cluster, with what is broken in it by whoever is asked.

    Alerts are asked for where Together proposes a repair. Who cannot be asked is told to `call`,
    and breaks nothing.
    """
    policy = repair_of(known, ClusterRepairInputs)
    workers = list_standard_workers(cluster)
    nodes = [
        each
        for each in seen.outputs.gpu_worker_nodes
        if each.host_name in {one.host_name for one in workers}
    ]
    told: dict[str, Remediation] = {}
    for fault in find_proposed_repairs(workers):
        try:
            whole = client.get_remediation(cluster.cluster_id, fault.instance, fault.id)
            told[whole.id] = whole
        except GpuformError as error:
            call.on_skipped_check(f"why Together proposes to repair {fault.node}: {error.message}")
    patience = DEFAULT_NOT_READY_S if policy is None else policy.not_ready_s
    faults: list[NodeFault] = [*find_proposed_repairs(workers, told)]
    now, _ = call.get_platform_time(client.clock_ahead)
    faults += find_unusable_workers(nodes, patience, now)
    faults += _uncertified(call, cluster)
    if policy is not None and policy.max_temperature is not None:
        try:
            names = [each.host_name for each in nodes]
            faults += find_overheated_workers(
                nodes, overheated(settings, names, policy.max_temperature)
            )
        except GpuformError as error:
            call.on_skipped_check(f"how hot the nodes are: {error.message}")
    outputs = seen.outputs.model_copy(update={"faults": faults})
    return type(seen)(seen.inputs, outputs)


@dataclass(frozen=True)
class Repairing:
    """The repairs of one update. `find` looks at the cluster anew, or raises GpuformError."""

    call: ProviderContext
    client: TogetherClient
    settings: Settings
    want: ClusterInputs
    id: str
    find: Callable[[], wire.Cluster]
    shrinking_of: Callable[[wire.Cluster], Shrinking]
    rhythm: PollSchedule

    @property
    def is_interrupted(self) -> bool:
        """Whether an earlier run has left a repair: its record names all nodes that it chose."""
        drain = Drains.beside(self.call.intents).find(self.id)
        return drain is not None and not drain.present

    def run(self, repairs: Sequence[NodeRepair]) -> None:
        """Repairs them in their order, as many at a time as declared; stops at the first failure.

        Raises GpuformError when one fails or may not be done, and Cancelled.
        """
        self._end_earlier()
        left = [*repairs]
        while left:
            room = self._room(left)
            with self.call.extend_deadline(LONGEST + JOIN):
                self._repair(left[:room])
            del left[:room]

    def _room(self, left: Sequence[NodeRepair]) -> int:
        """How many of these may be away now, beside those that others repair."""
        policy = self.want.repair
        if policy is None or all(each.cause == FaultCause.ASKED for each in left):
            return 1
        mine = {each.node for each in left}
        going = [
            each.host_name
            for each in list_standard_workers(self.find())
            if is_under_repair(each) and each.host_name not in mine
        ]
        if len(going) >= policy.parallel:
            raise GpuformError(
                f"{', '.join(going)} is repaired now, and repair.max_parallel is {policy.parallel}",
                hint="run it again when that has ended",
            )
        return policy.parallel - len(going)

    def _repair(self, batch: Sequence[NodeRepair]) -> None:
        cluster = self.find()
        wanted = [each for each in batch if self._is_needed(cluster, each)]
        if not wanted:
            return
        self._refuse_too_many(cluster, wanted)
        shrinking = self.shrinking_of(cluster)
        before = {each.host_name for each in list_standard_workers(cluster)}
        taking = shrinking.repairing([each.node for each in wanted])
        with shrinking.draining_for_repair().taken(taking):
            begun, refused = self._begin(wanted)
        problems = [*refused, *(self._finish(cluster, begun, before) if begun else ())]
        self._conclude()
        if problems:
            raise GpuformError(
                "; ".join(problems),
                hint="look at the node with kubectl and on Together's pages; `gpuform repair NODE "
                "--mode ...` repairs it in another way",
            )

    def _begin(
        self, wanted: Sequence[NodeRepair]
    ) -> tuple[dict[NodeRepair, Remediation], list[str]]:
        """Asks for each that is needed still, now that no job runs there; and what was refused.

        Raises GpuformError where nothing was begun, or nobody can tell.
        """
        begun: dict[NodeRepair, Remediation] = {}
        refused: list[str] = []
        for each in wanted:
            try:
                cluster = self.find()
                if self._is_needed(cluster, each):
                    begun[each] = self._ask(cluster, each)
            except GpuformError as error:
                is_answered = isinstance(error, ApiError)
                is_lost = isinstance(error, ApiError) and not error.is_definite
                if is_lost or (not begun and (is_answered or isinstance(error, Cancelled))):
                    raise
                # What was asked for goes on: it is waited for before anything is uncordoned.
                refused.append(f"{each.node}: {error.message}")
        return begun, refused

    def _finish(
        self, cluster: wire.Cluster, begun: Mapping[NodeRepair, Remediation], before: set[str]
    ) -> list[str]:
        """Waits until all is over; what went wrong."""
        ended = self._wait(cluster, begun)
        problems = [*_failures(ended)]
        done = [each for each, last in ended.items() if last.state == SUCCEEDED]
        try:
            if done:
                self._wait_for_workers(done, before)
        except Cancelled:
            raise
        except NotReady as error:
            problems.append(error.reason)
        return problems

    def _refuse_too_many(self, cluster: wire.Cluster, wanted: Sequence[NodeRepair]) -> None:
        """When more nodes are broken by now, the fault may not be the nodes'."""
        policy = self.want.repair
        if policy is None or all(each.cause == FaultCause.ASKED for each in wanted):
            return
        workers = list_standard_workers(cluster)
        found = look_at_workers(self.call, cluster, slurm_of(self.want.dump_declared()))
        broken = {each.host_name for each in workers if is_under_repair(each)}
        broken |= {each.node for each in find_proposed_repairs(workers)}
        broken |= {*found.failing} | {each.node for each in wanted}
        if len(broken) > policy.compute_max_unhealthy(len(workers)):
            raise GpuformError(
                f"{len(broken)} of {len(workers)} nodes are unhealthy by now, more than "
                f"repair.max_unhealthy ({policy.limit}) lets be: {', '.join(sorted(broken))}",
                hint="look for what they have in common; `gpuform repair NODE` repairs one by name",
            )

    def _is_needed(self, cluster: wire.Cluster, each: NodeRepair) -> bool:
        """Whether it is still so as the plan says. Raises GpuformError where it is otherwise."""
        worker = next((w for w in list_standard_workers(cluster) if w.host_name == each.node), None)
        if worker is None or (each.instance and worker.instance_id != each.instance):
            self.call.on_warning(f"node {each.node} is another machine by now: it is left")
            return False
        if each.id:
            return self._is_proposed(cluster, each)
        if each.cause == FaultCause.NOT_READY:
            found = look_at_workers(self.call, cluster, slurm_of(self.want.dump_declared()))
            if found.unasked:
                raise GpuformError(f"whether node {each.node} can be used: {found.unasked}")
            return self._is_so(each, each.node in found.failing, "can be used again")
        if each.cause == FaultCause.OVERHEATED and self.want.repair is not None:
            limit = float(self.want.repair.max_temperature or 0)
            found_hot = overheated(self.settings, [each.node], limit)
            return self._is_so(each, each.node in found_hot, "is no longer too hot")
        if each.cause == FaultCause.FAILED_CERTIFICATION:
            failed = {(fault.node, fault.since) for fault in _uncertified(self.call, cluster)}
            holds = (each.node, each.since) in failed
            return self._is_so(each, holds, "was repaired or certified since")
        return self._is_not_done(cluster, each)

    def _is_so(self, each: NodeRepair, holds: bool, otherwise: str) -> bool:
        if not holds:
            self.call.on_warning(f"node {each.node} {otherwise}: it is left as it is")
        return holds

    def _is_proposed(self, cluster: wire.Cluster, each: NodeRepair) -> bool:
        found = self.client.get_remediation(cluster.cluster_id, each.instance, each.id)
        if found.state == PROPOSED and found.mode != each.proposed:
            raise GpuformError(
                f"Together proposes another repair of node {each.node} by now: {found.mode} in "
                f"place of {each.proposed}",
                hint="nothing was done: make a new plan, with --refresh",
            )
        if found.state in ENDED:
            self.call.on_warning(
                f"the proposed repair of node {each.node} has ended meanwhile: {_told(found)}"
            )
        return found.state not in ENDED

    def _is_not_done(self, cluster: wire.Cluster, each: NodeRepair) -> bool:
        """Of what somebody asks for: not where it was done just now, by a run that was killed."""
        last = Repairs.beside(self.call.intents).find(cluster.cluster_id, each.node)
        if last is None or last.mode != each.mode or last.instance != each.instance:
            return True
        if self.call.clock.now() - last.at >= AGAIN:
            return True
        try:
            found = self.client.get_remediation(cluster.cluster_id, last.instance, last.repair)
        except NotFound:
            return True  # it was never asked for
        if found.state in ENDED:
            self.call.on_warning(
                f"node {each.node} was repaired at {written(last.at)} already: {_told(found)}"
            )
        return found.state not in ENDED

    def _ask(self, cluster: wire.Cluster, each: NodeRepair) -> Remediation:
        """Approves what is proposed, else asks; what is asked for already is not asked again."""
        path = (cluster.cluster_id, each.instance)
        if not each.id:
            id_ = self._id_of(cluster, each)
            reason = f"gpuform: {each.evidence}"[:500]
            try:
                return self.client.create_remediation(*path, id_, each.mode, reason)
            except Conflict:
                try:  # nobody documents what a second request of one id is answered
                    return self.client.get_remediation(*path, id_)
                except NotFound:
                    pass
                raise
        # What was reviewed is said: a proposal could have changed since it was looked at.
        mode = "" if each.mode in MODES_BEYOND_APPROVAL else each.mode
        comment = f"gpuform: {each.evidence}"[:500]
        try:
            return self.client.approve_remediation(*path, each.id, mode=mode, comment=comment)
        except Conflict:
            found = self.client.get_remediation(*path, each.id)
            if found.state == PROPOSED:
                raise
            return found

    def _id_of(self, cluster: wire.Cluster, each: NodeRepair) -> str:
        """The id of what is asked for; of what somebody asks for by name, kept beforehand."""
        fault = (cluster.cluster_id, each.instance, each.cause, each.since, each.mode)
        if each.cause != FaultCause.ASKED:
            return str(uuid.uuid5(_NAMESPACE, "\n".join(fault)))
        repairs, now = Repairs.beside(self.call.intents), self.call.clock.now()
        last = repairs.find(cluster.cluster_id, each.node)
        is_same = last is not None and (last.instance, last.mode) == (each.instance, each.mode)
        if last is not None and is_same and now - last.at < AGAIN:
            return last.repair
        id_ = str(uuid.uuid5(_NAMESPACE, "\n".join((*fault, str(now)))))
        repairs.record(Repair(cluster.cluster_id, each.node, id_, each.instance, each.mode, now))
        return id_

    def _wait(
        self, cluster: wire.Cluster, begun: Mapping[NodeRepair, Remediation]
    ) -> dict[NodeRepair, Remediation]:
        """Each as it ended."""
        last = dict(begun)

        def probe() -> PollResult[None]:
            for each, found in last.items():
                if found.state not in ENDED:
                    path = (cluster.cluster_id, found.instance_id or each.instance)
                    last[each] = self.client.get_remediation(*path, found.id)
            states = ", ".join(f"{each.node} {found.state}" for each, found in last.items())
            return PollResult(None, states, is_done=all(f.state in ENDED for f in last.values()))

        names = ", ".join(each.node for each in begun)
        wait_until_done(
            self.call, probe, label=f"repair of {names}", interval=self.rhythm, limit=LONGEST
        )
        return last

    def _wait_for_workers(self, done: Sequence[NodeRepair], before: set[str]) -> None:
        """What was repaired, or is there in its place, can be used by its scheduler."""
        slurm = slurm_of(self.want.dump_declared())

        def probe() -> PollResult[None]:
            cluster = self.find()
            there = {each.host_name for each in list_standard_workers(cluster)}
            watched = {each.node for each in done if each.node in there} | (there - before)
            if len(there) < len(before) or len(watched) < len(done):
                return PollResult(None, f"{len(there)} of {len(before)} nodes are there")
            found = look_at_workers(self.call, cluster, slurm)
            missing = sorted(name for name in watched if not found.can_use(name))
            told = found.unasked or f"waiting for {', '.join(missing)} to join"
            return PollResult(None, told, is_done=not missing and not found.unasked)

        names = ", ".join(each.node for each in done)
        what = f"return of {names} after the repair"
        wait_until_done(self.call, probe, label=what, interval=self.rhythm, limit=JOIN)

    def _end_earlier(self) -> None:
        """Waits for what an earlier run asked for, and uncordons what that has left."""
        if not self.is_interrupted:
            return

        def probe() -> PollResult[None]:
            is_going_on = self.shrinking_of(self.find()).is_under_way
            return PollResult(None, "under way", is_done=not is_going_on)

        what = "what an earlier run has begun"
        with self.call.extend_deadline(LONGEST):
            wait_until_done(self.call, probe, label=what, interval=self.rhythm, limit=LONGEST)
        self._conclude()

    def _conclude(self) -> None:
        cluster = self.find()
        drain = Drains.beside(self.call.intents).find(self.id)
        if drain is not None:
            names = [each.host_name for each in list_standard_workers(cluster)]
            conclude(self.call, drain, self.shrinking_of(cluster).scheduler, names)


def _uncertified(call: ProviderContext, cluster: wire.Cluster) -> list[NodeFault]:
    verdicts = Verdicts.beside(call.intents).of(cluster.cluster_id)
    return [*find_uncertified_workers(list_standard_workers(cluster), verdicts)]


def _failures(ended: Mapping[NodeRepair, Remediation]) -> Iterator[str]:
    for each, last in ended.items():
        if last.state not in (SUCCEEDED, "AUTO_RESOLVED"):
            yield f"the repair of node {each.node} has ended: {_told(last)}"


def _told(remediation: Remediation) -> str:
    """`HOST_AWARE FAILED (no host is free)`."""
    why = remediation.error_message or remediation.review_comment or ""
    return f"{remediation.mode} {remediation.state}{f' ({why})' if why else ''}"
