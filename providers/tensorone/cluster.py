"""TensorOne's GPU cluster: what it takes to make, change, start, stop and delete one.

Statuses and requests are from TensorOne's documentation ('GPU Clusters'). Auto-termination that
stops a cluster is what its declaration allows: no drift, said by the plan, and undone only with the
permission `start-terminated`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.environment import Live
from gpuform.providers.errors import (
    ApiError,
    Conflict,
    GpuformError,
    NotFound,
    NotReady,
    OutOfCapacity,
)
from gpuform.providers.evidence import Observation
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import Power, Verdict
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStops, Repairs, Target
from gpuform.providers.repairing import Decision
from gpuform.providers.tensorone.client import ClusterReading, client_for
from gpuform.providers.tensorone.cluster_facts import (
    describe_cluster_access,
    describe_cluster_exposure,
    describe_cluster_usage,
    describe_start_effect,
    find_cluster_notices,
    plan_state_changes,
    read_live_figures,
)
from gpuform.providers.tensorone.course import (
    StartStopSequence,
    build_out_of_stock_error,
    get_capacity_wait,
    to_out_of_capacity,
)
from gpuform.providers.tensorone.idleness import evaluate_idleness, find_idle_stop_reason
from gpuform.providers.tensorone.repairing import Restarting, cluster_repairs, observe_use
from gpuform.providers.tensorone.shown import (
    build_outputs,
    extract_inputs,
    find_failed_checks,
    find_failure,
)
from gpuform.schemas.access import Access
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import iterate_alternatives
from gpuform.schemas.resource_facts import Credit, Exposure, Notice, ResourceUsage
from gpuform.schemas.tensorone import requests, wire
from gpuform.schemas.tensorone.inputs import START_FIELDS, ClusterInputs
from gpuform.schemas.tensorone.outputs import ClusterOutputs
from gpuform.schemas.tensorone.statuses import STABLE_STATUSES, ClusterStatus, to_unix_time
from gpuform.schemas.tensorone.termination import find_stopping_limit, read_credit

BY_START: Final = (*START_FIELDS, "restore_snapshot")
SHOWN: Final = ("gpu_type", "gpu_count", "storage_gb")
"""What tells a cluster that we have asked for from another one of its name."""
OLDEST = 300.0
"""Seconds to ask again for an answer that is new enough."""
AGAIN = 5.0
"""Seconds between such questions."""

Seen = Observed[ClusterOutputs]


class ClusterActions:
    """The verbs of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        values: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> Iterable[Problem]:
        """The platform has nothing that could be asked."""
        return ()

    def create(self, call: ProviderContext, inputs: ClusterInputs) -> str:
        """OutOfCapacity names all that was tried."""
        target = Target("tensorone", "Cluster", call.redact_for_record(inputs.name), inputs.region)

        def candidates() -> list[Candidate]:
            # The list may be older than its answer. A search for what an earlier request has made
            # needs one that is newer than that request.
            is_search = call.intents.find(call.urn, target) is not None
            seen = self._listed(call) if is_search else self._client.shared_clusters.all()
            return [_candidate(each) for each in seen if each.cluster.name == inputs.name]

        creation = Creation(
            target,
            candidates,
            exists=lambda id_: self._find(id_) is not None,
            attempts=[
                Attempt(
                    partial(self._send, placed),
                    placed.region,
                    placed.gpu_type,
                    {name: getattr(placed, name) for name in SHOWN},
                )
                for placed in inputs.iterate_placements()
            ],
            patience=get_capacity_wait(inputs),
            clock_ahead=lambda: self._client.clock_ahead,
        )
        try:
            with call.extend_deadline(creation.patience):
                return create_once(call, creation)
        except OutOfCapacity as error:
            places = [(each.gpu_type, each.region) for each in inputs.iterate_placements()]
            raise build_out_of_stock_error(error, inputs, places, "created") from None

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> Seen:
        """Running or stopped, as declared, with everything that changes at a start alone."""
        course = StartStopSequence(self._client, call, object_id, inputs)
        last: list[ClusterReading] = []

        def probe() -> PollResult[Seen]:
            seen = self._find(object_id)
            if seen is None:
                raise NotReady(f"cluster {object_id} is gone from the platform")
            last[:] = [seen]
            cluster = seen.cluster
            phase, failed = cluster.status or "no status", find_failure(cluster)
            done = False
            if self._client.writes.is_stale(seen, call.stored_properties):
                phase, failed = f"{phase}, as it was before the last change", None
            elif cluster.status in STABLE_STATUSES:
                step = course.request_next_step(cluster)
                phase = f"{phase}; asked to {step}" if step else phase
                failed = None if step else course.describe_unmet_inputs(cluster)
                ill = (
                    None
                    if step or failed
                    else find_failed_checks(cluster, inputs.require_healthy or ())
                )
                phase = f"{phase}; {ill}" if ill else phase
                done = not (step or failed or ill)
            reason = None if done else failed or phase
            by = course.find_accepted_stop_reason(cluster) if done else None
            made_from = call.stored_properties.get("made_from_version")
            outputs = build_outputs(
                cluster, reason, by, course.restored_snapshot, created_version=made_from
            )
            return PollResult(Observed({}, outputs), phase, is_done=done, failure=failed)

        with call.extend_deadline(get_capacity_wait(inputs)):
            found = wait_until_done(
                call, probe, label=f"cluster {inputs.name}", interval=self._client.poll_schedule
            )
        restarting = self._restarting(call, object_id, inputs.name)
        restarting.end()
        return restarting.inspected(last[0], found, call.stored_properties)

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Auto-termination is no drift, nor is where a search for capacity has placed it. An answer
        that may be older than what is known is not believed: it is asked for again."""
        seen = self._fresh(call, object_id)
        if seen is None:
            return None
        cluster = seen.cluster
        inputs = extract_inputs(cluster, known_inputs)
        if known_inputs:
            inputs = _without_placement(inputs, known_inputs, call.stored_properties)
        by = (
            find_stopping_limit(cluster)
            if known_inputs and known_inputs.get("state") != "stopped"
            else None
        )
        if by is None and known_inputs.get("idle") is not None:
            by = find_idle_stop_reason(
                cluster, IdleStops.beside(call.intents), call.stored_properties
            )
        if by is not None:
            del inputs["state"]
        at_rest = cluster.status in STABLE_STATUSES
        ill = find_failed_checks(cluster, known_inputs.get("require_healthy") or ())
        reason = ill if at_rest else find_failure(cluster) or f"it is {cluster.status or 'unknown'}"
        restored, made_from = map(
            call.stored_properties.get, ("restored_snapshot", "made_from_version")
        )
        outputs = build_outputs(cluster, reason, by, restored, created_version=made_from)
        restarting = self._restarting(call, object_id, known_inputs.get("name") or cluster.name)
        return restarting.inspected(seen, Observed(inputs, outputs), call.stored_properties)

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send what changes in place, if anything does; `wait_until_ready` does the rest.

        One that is broken is stopped, so that `wait_until_ready` starts it.
        """
        body = requests.build_update(inputs, changes)
        if body:
            self._client.update(object_id, body)
        if any(each.repair is not None for each in changes):
            self._restarting(call, object_id, inputs.name).run()

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Done when the cluster answers 404; stopped before, where the platform insists."""
        body = requests.build_delete(
            final_snapshot=bool(known_inputs.get("final_snapshot")),
            snapshot_name=known_inputs.get("final_snapshot_name"),
        )
        refusal = self._begin_deletion(object_id, body)
        was_stopped = False

        def probe() -> PollResult[object] | None:
            nonlocal refusal, was_stopped
            seen = self._find(object_id)
            if seen is None:
                return None
            status = seen.cluster.status
            is_stale = self._client.writes.is_stale(seen, {})
            if refusal is None or is_stale or status == ClusterStatus.DELETING:
                return PollResult(None, status)
            if status == ClusterStatus.RUNNING and not was_stopped:
                with suppress(Conflict):  # it stops already: the next look says so
                    self._client.stop(object_id)
                was_stopped = True
            elif status in (ClusterStatus.STOPPED, ClusterStatus.ERROR):
                refusal = self._begin_deletion(object_id, body)
                if refusal is not None:
                    raise refusal
            return PollResult(None, status)

        what = f"cluster {known_inputs.get('name') or object_id}"
        wait_until_gone(call, probe, label=what, interval=self._client.poll_schedule)
        IdleStops.beside(call.intents).forget(object_id)
        Repairs.beside(call.intents).forget(object_id)

    def _restarting(self, call: ProviderContext, id_: str, name: str) -> Restarting:
        return Restarting(call, self._client, id_, name, partial(self._fresh, call, id_))

    def _send(self, want: ClusterInputs) -> str:
        try:
            return self._client.create(requests.build_create(want)).id
        except ApiError as error:
            raise to_out_of_capacity(error) from None

    def _begin_deletion(self, id_: str, body: Mapping[str, Any]) -> Conflict | None:
        """Why the cluster has to be stopped first, if so."""
        try:
            self._client.delete(id_, body)
        except NotFound as error:
            left = self._find(id_)
            if left is None or left.cluster.status == ClusterStatus.DELETING:
                return None
            if not self._client.writes.is_stale(left, {}):
                raise contradicted(error, "it is still there") from None
        except Conflict as error:
            return error
        return None

    def _find(self, id_: str) -> ClusterReading | None:
        try:
            seen = self._client.shared_clusters.one(id_)
            if seen.cluster.status in STABLE_STATUSES and not seen.cluster.is_whole:
                # Nothing says that lists have everything: look at the cluster alone.
                seen = self._client.shared_clusters.alone(id_)
        except NotFound:
            return None
        return seen

    def _fresh(self, call: ProviderContext, id_: str) -> ClusterReading | None:
        """As `_find`, from an answer that shows our last change."""
        for _since in _attempts(call, f"cluster {id_}"):
            seen = self._find(id_)
            if seen is None or not self._client.writes.is_stale(seen, call.stored_properties):
                return seen
        raise AssertionError("unreachable")

    def _listed(self, call: ProviderContext) -> Sequence[ClusterReading]:
        """The clusters from a list that has all which were there when it was asked for."""
        for since in _attempts(call, "the list of clusters"):
            seen, as_of = self._client.list_clusters_with_age()
            if as_of is None or as_of > since:
                return seen
        raise AssertionError("unreachable")


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A GPU cluster of TensorOne."""

    platform = "tensorone"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    # The limits of a free key are renewed every hour.
    timeouts = Timeouts(create=7200, update=7200, delete=7200)
    operations = ClusterActions
    id_example = "cluster_7c2e81b0a4f3"
    relevant_permissions = (Permission.START_TERMINATED, Permission.EVICT_JOBS)
    is_eventually_consistent = True
    gpus_field = "gpu_count"
    planned_fields = frozenset({"state", *BY_START})
    power = Power("state", "running", "stopped")
    drift_outputs = frozenset({"firewall_rules"})
    volatile_outputs = frozenset({"alerts", "estimated_termination", "updated_at"})

    @classmethod
    def compute_resource_usage(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> ResourceUsage:
        """At the platform's own rate while that holds."""
        return describe_cluster_usage(inputs, outputs)

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:
        """Its one host by SSH, and its mapped ports."""
        return describe_cluster_access(outputs)

    @classmethod
    def measure_gpu_usage(cls, settings: Settings, object_id: str) -> float | None:
        """The platform's own current utilization; none of what does not run."""
        try:
            cluster = client_for(settings).shared_clusters.alone(object_id).cluster
        except NotFound:
            return 0.0
        if cluster.status == ClusterStatus.STOPPED:
            return 0.0
        used = cluster.metrics.current.gpu_utilization if cluster.metrics else None
        if used is None or not 0 <= used <= 100:
            raise GpuformError(f"tensorone: the answer about {object_id} tells no use of its GPUs")
        return used / 100

    @classmethod
    def observe_gpu_work(cls, settings: Settings, object_id: str) -> Observation | None:
        """By its metrics, which is all that TensorOne tells of work."""
        client = client_for(settings)
        try:
            cluster = client.shared_clusters.alone(object_id).cluster
        except NotFound:
            return Observation("TensorOne")
        now, _ = get_current_context().get_platform_time(client.clock_ahead)
        return observe_use(cluster, now)

    @classmethod
    def judge_idleness(
        cls, settings: Settings, object_id: str, idleness: Idleness
    ) -> Verdict | None:
        """By its metrics, and all that may contradict them."""
        return evaluate_idleness(client_for(settings), object_id, idleness)

    @classmethod
    def read_live_metrics(cls, settings: Settings, ids: Sequence[str]) -> Mapping[str, Live]:
        """What the platform measures, and what it has cost so far."""
        return read_live_figures(client_for(settings), ids)

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:
        """Its project's."""
        return str(outputs.get("owner_email") or outputs.get("owner_id") or "")

    @classmethod
    def is_off(cls, outputs: Mapping[str, Any]) -> bool:
        """Stopped, by whom ever."""
        return outputs.get("status") in (ClusterStatus.STOPPED, ClusterStatus.STOPPING)

    @classmethod
    def decide_repairs(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Decision:
        """It is restarted when it is broken."""
        return cluster_repairs(old_outputs, declared)

    @classmethod
    def get_credit(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Credit | None:  # noqa: ARG003 - a hook
        """What the text of its status says."""
        return read_credit(outputs)

    @classmethod
    def list_notices(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any], now: float
    ) -> Iterable[Notice]:
        """Its end, the end that its own limits set, and a template that has moved on."""
        return (*super().list_notices(inputs, outputs, now), *find_cluster_notices(outputs, now))

    @classmethod
    def get_exposure(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Exposure | None:
        """By its firewall rules."""
        return describe_cluster_exposure(inputs, outputs)

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:
        """By the platform."""
        return to_unix_time(outputs.get("created_at"))

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:
        """In error."""
        return old_outputs.get("status") == ClusterStatus.ERROR

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterator[FieldChange]:
        """Whether it is to be started or stopped, and what changes only by that."""
        yield from plan_state_changes(old_outputs, declared)
        parts = (
            {k: v for k, v in each.items() if k in BY_START} for each in (old_outputs, declared)
        )
        for change in by_rules(ClusterInputs, *parts):
            if change.action is Action.KEEP:
                if change.path in START_FIELDS:
                    yield change
            else:
                because = change.because or describe_start_effect(
                    change.path, old_outputs, declared
                )
                yield replace(change, because=because)


def _without_placement(
    inputs: Mapping[str, Any], known: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Where it is may be an alternative to what is declared: outputs say so, no change."""
    alternatives = [each for _, each in iterate_alternatives(known)]
    own = {
        name
        for name in ("region", "gpu_type")
        if inputs.get(name) == stored.get(f"placed_{name}")
        or any(each.get(name) == inputs.get(name) for each in alternatives)
    }
    return {name: value for name, value in inputs.items() if name not in own}


def _candidate(seen: ClusterReading) -> Candidate:
    cluster = seen.cluster
    place = cluster.configuration or wire.Configuration()
    return Candidate(
        cluster.id,
        to_unix_time(cluster.created_at),
        leaving=cluster.status == ClusterStatus.DELETING,
        region=place.region or "",
        gpu_type=place.gpu_type or "",
        shown={name: getattr(cluster.configuration, name, None) for name in SHOWN},
    )


def _attempts(call: ProviderContext, what: str) -> Iterator[float]:
    """Yields for each question for an answer that is new enough, a pause before all but the first.

    What it yields is the time of the first one. Raises GpuformError when it takes too long.
    """
    began = call.clock.now()
    while True:
        yield began
        if call.clock.now() >= began + OLDEST:
            raise GpuformError(
                f"TensorOne keeps answering from before the last change ({what})",
                hint="run it again in a few minutes",
            )
        call.on_progress("the answer is older than the last change; asking again")
        call.sleep(AGAIN)
