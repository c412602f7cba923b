"""Replace nodes of a pool some at a time: the next ones when the last ones take jobs again.

`PoolReconciler` calls this module for rollouts and for repairs; a repair does not count nodes as
unavailable that are broken anyway and stay so. The old nodes are deleted before the new ones come,
for there are no spare GPUs. Nothing is recorded: the nodes show what is left to do, so that a
rollout that was killed is resumed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.draining import Worker
from gpuform.providers.errors import GpuformError
from gpuform.providers.scp.nodes.draining import NodeDrainer
from gpuform.providers.scp.nodes.planning import (
    PoolPlan,
    Replacement,
    find_replacement,
    is_terminating,
)
from gpuform.schemas.policies.drain import PoolDrainInputs, RemovedNodes
from gpuform.schemas.policies.repair import RolloutInputs
from gpuform.schemas.scp.outputs import FAILED_NODE_STATES, STABLE_NODE_STATES, NodeOutputs

STEP_TIMEOUT_S: Final = 7200.0
"""Within how many seconds a step's nodes must come back: the official Terraform provider's timeout.
"""

JOIN_TIMEOUT_S: Final = 1800.0
"""Within how many seconds a RUNNING node must have joined its scheduler."""

_MAX_LISTED_NAMES: Final = 12


@dataclass(frozen=True)
class RolloutLimits:
    """The limits of a rollout: the declared `rollout`, and `parallel_repairs` at a time.

    `broken_names` are nodes that are broken and stay so.
    """

    rollout: RolloutInputs | None = None
    parallel_repairs: int | None = None
    broken_names: Collection[str] = field(default=())

    def __bool__(self) -> bool:
        return self.rollout is not None or self.parallel_repairs is not None

    def get_max_unavailable(self, node_count: int) -> int:
        """Return how many of `node_count` nodes may be unavailable: the lower one of both limits.

        The caller has checked that there is a limit.
        """
        limits = [] if self.rollout is None else [self.rollout.compute_max_unavailable(node_count)]
        return min([*limits, *([] if self.parallel_repairs is None else [self.parallel_repairs])])

    @property
    def pause_s(self) -> float:
        """Return the pause after each step, in seconds."""
        return 0.0 if self.rollout is None else self.rollout.pause_s

    @property
    def stops_on_failure(self) -> bool:
        """Return True if the failure of a new node stops the rollout; always for repairs alone."""
        return self.rollout is None or self.rollout.on_failure != "continue"


class Rollout:
    """The replacements of one call; `is_due` is asked right before a node is replaced."""

    def __init__(
        self,
        context: ProviderContext,
        limits: RolloutLimits,
        drainer: NodeDrainer,
        is_due: Callable[[Replacement], bool] = lambda _: True,
    ) -> None:
        self._context = context
        self._limits = limits
        self._drainer = drainer
        self._is_still_due = is_due
        self._batch_names: Sequence[str] = ()
        self._replaced_names = set[str]()
        self._is_pause_due = False
        self._changing_since: dict[str, float] = {}
        self._joining_since: dict[str, float] = {}
        self.is_joining = False

    def get_timeout(self, plan: PoolPlan) -> float:
        """Return how many seconds the replacements may take, without the waits for jobs.

        0 without limits: nothing is then replaced step by step.
        """
        if not self._limits:
            return 0.0
        return len(plan.replace) * (STEP_TIMEOUT_S + JOIN_TIMEOUT_S + self._limits.pause_s)

    def sort_removed_nodes(self, removed: RemovedNodes) -> RemovedNodes:
        """Sort the removed nodes by the order of the removal: idle nodes first.

        Without limits they are returned unchanged.
        """
        if not self._limits:
            return removed
        nodes = sorted(removed.nodes, key=lambda node: bool(node.jobs))
        return removed.model_copy(update={"nodes": tuple(nodes)})

    def plan_step(
        self, plan: PoolPlan, nodes: Sequence[NodeOutputs], refusals: Mapping[str, str]
    ) -> PoolPlan:
        """Return the plan, reduced to the node replacements which may begin now. The others wait.

        Uncordons the successors of replaced nodes, and sleeps for the pause between two steps. The
        plan is returned unchanged without limits, or if nothing is or was replaced.

        `refusals` has the platform's reasons for nodes that were not created or deleted, by name;
        replacements of these nodes are dropped from the plan.

        Raises:
            GpuformError: the next step must not begin, or the scheduler cannot be asked.
        """
        if not self._limits or not (plan.replace or self._batch_names):
            return plan
        remaining = [item for item in plan.replace if item.name not in refusals]
        plan = replace(plan, replace=remaining)
        # Nodes of the batch that still exist: their deletion was planned, but not sent or not done.
        begun_replacements = [item for item in remaining if item.name in self._batch_names]
        if begun_replacements:
            return _keep_replacements(plan, begun_replacements)
        waiting_plan = _keep_replacements(plan, ())
        if self._has_changing_nodes(plan, nodes, refusals):
            return waiting_plan
        # The drained nodes are gone: their successors must take jobs before the next ones are
        # drained.
        if not {replacement.name for replacement in remaining} & {*self._drainer.chosen_names}:
            self._drainer.uncordon_nodes(nodes)
        workers = self._drainer.observe_workers(nodes)
        workers_by_name = None if workers is None else {worker.name: worker for worker in workers}
        unavailable_reasons = self._find_unavailable_nodes(plan, workers_by_name, refusals)
        if self.is_joining:
            return waiting_plan
        # Nodes that are unavailable for other reasons use up the limit, too.
        slots = self._limits.get_max_unavailable(len(nodes)) - len(unavailable_reasons)
        undeleted_reasons = self._find_undeleted_nodes(refusals)
        self._refuse_next_step({**undeleted_reasons, **unavailable_reasons}, remaining, slots)
        if not remaining:
            return waiting_plan
        # The pause is before the next step, not after the last one.
        if self._is_pause_due:
            self._is_pause_due = False
            if self._limits.pause_s:
                self._context.on_progress(f"pausing for {format_duration(self._limits.pause_s)}")
                self._context.sleep(self._limits.pause_s)
            return waiting_plan
        # All nodes but one at most: a fabric ends with its last node. A pool may have only one.
        slots = max(1, min(slots, len(nodes) - 1))
        next_batch = self._select_first(remaining, workers_by_name, slots)
        if not next_batch:
            return waiting_plan
        self._batch_names = [replacement.name for replacement in next_batch]
        self._replaced_names.update(self._batch_names)
        self._is_pause_due = True
        return _keep_replacements(plan, next_batch)

    def _select_first(
        self,
        remaining: Sequence[Replacement],
        workers_by_name: Mapping[str, Worker] | None,
        slots: int,
    ) -> list[Replacement]:
        """Select at most `slots` replacements by rank, each checked to be due still.

        `workers_by_name` is as for `_rank_replacement`. A repair no longer needed is not selected.
        """
        selected: list[Replacement] = []
        for replacement in sorted(
            remaining, key=lambda replacement: self._rank_replacement(replacement, workers_by_name)
        ):
            if len(selected) < slots and self._is_still_due(replacement):
                selected.append(replacement)
        return selected

    def _has_changing_nodes(
        self, plan: PoolPlan, nodes: Sequence[NodeOutputs], refused_names: Collection[str]
    ) -> bool:
        """Return True while nodes are created, deleted, or neither RUNNING, STOPPED nor failed.

        Nodes to create with a name in `refused_names` are not waited for.

        Raises:
            GpuformError: a node has been changing for longer than STEP_TIMEOUT_S.
        """
        changing_names = {declared_node.name for declared_node in plan.create} - {*refused_names}
        changing_names |= {node.gpu_node_name for node in nodes if is_terminating(node.state)}
        final_states = STABLE_NODE_STATES | FAILED_NODE_STATES
        changing_names |= {
            node.gpu_node_name for node, _ in plan.keep if node.state not in final_states
        }
        now = self._context.clock.now()
        self._changing_since = {
            name: self._changing_since.get(name, now) for name in sorted(changing_names)
        }
        late_names = [
            name for name, since in self._changing_since.items() if now - since > STEP_TIMEOUT_S
        ]
        if late_names:
            raise GpuformError(
                f"{_format_names(late_names)} did not become ready within "
                f"{format_duration(STEP_TIMEOUT_S)}"
            )
        return bool(changing_names)

    def _find_unavailable_nodes(
        self,
        plan: PoolPlan,
        workers_by_name: Mapping[str, Worker] | None,
        refusals: Mapping[str, str],
    ) -> dict[str, str]:
        """Return by name why nodes take no jobs, without nodes about to be replaced.

        `workers_by_name` is None without a scheduler to ask: states alone count then. A run of
        repairs leaves out nodes that were broken before. Sets `is_joining` if one of them may still
        join its scheduler in time.
        """
        missing_names = [
            declared_node.name for declared_node in plan.create if declared_node.name in refusals
        ]
        reasons = {name: f"was refused ({refusals[name]})" for name in missing_names}
        self.is_joining = False
        # Those that are broken anyway do not count where nodes are only repaired.
        ignored_names = (
            self._limits.broken_names if self._limits.parallel_repairs is not None else ()
        )
        for node, declared_node in plan.keep:
            name = node.gpu_node_name
            if name in ignored_names and name not in self._replaced_names:
                continue
            if node.state in FAILED_NODE_STATES:
                reasons[name] = f"is {node.state}"
            elif find_replacement(node, declared_node):
                reasons[name] = "was created with other values than the declared ones"
            elif (
                declared_node.state == "RUNNING"
                and workers_by_name is not None
                and _is_unusable(workers_by_name, name)
            ):
                reasons[name] = "has not joined its scheduler"
                now = self._context.clock.now()
                # A scheduler's agent needs time to register a fresh server.
                self.is_joining |= (
                    now - self._joining_since.setdefault(node.id, now) < JOIN_TIMEOUT_S
                )
        return reasons

    def _find_undeleted_nodes(self, refusals: Mapping[str, str]) -> dict[str, str]:
        """Return by name why nodes to be replaced still exist: SCP has refused their deletion."""
        return {
            name: f"was not deleted ({why})"
            for name, why in refusals.items()
            if name in self._replaced_names
        }

    def _refuse_next_step(
        self, unavailable_reasons: Mapping[str, str], remaining: Sequence[Replacement], slots: int
    ) -> None:
        """Raise GpuformError if no slot is free for `remaining`, or if a replaced node has failed.

        The failure counts if it stops the rollout, or if nothing remains to be replaced.
        """
        failed_names = unavailable_reasons.keys() & self._replaced_names
        stops = self._limits.stops_on_failure or not remaining
        if not (failed_names and stops) and (slots > 0 or not remaining):
            return
        reasons = "; ".join(f"{name} {why}" for name, why in sorted(unavailable_reasons.items()))
        waiting_names = [replacement.name for replacement in remaining]
        if not waiting_names:
            raise GpuformError(reasons)
        activity, limit_name = ("rollout", "rollout.max_unavailable")
        if all(replacement.is_repair for replacement in remaining):
            activity, limit_name = ("repair", "repair.max_parallel")
        raise GpuformError(
            f"the {activity} has stopped: {reasons}; {_format_names(waiting_names)} is unchanged",
            hint=f"remove the cause and run the command again to continue, or raise {limit_name}",
        )

    def _rank_replacement(
        self, replacement: Replacement, workers_by_name: Mapping[str, Worker] | None
    ) -> tuple[bool, bool, bool, str]:
        """Return a replacement's sort key: first of an earlier run, then broken, then idle.

        A node is broken by its state, or if the scheduler cannot use the node. `workers_by_name` is
        None without a scheduler to ask: states alone count, and all nodes are idle. Otherwise a
        node missing in it is broken.
        """
        worker = (workers_by_name or {}).get(replacement.name)
        is_failed = replacement.node.state in FAILED_NODE_STATES
        is_failed |= workers_by_name is not None and _is_unusable(workers_by_name, replacement.name)
        has_jobs = worker is not None and bool(worker.jobs)
        return (
            replacement.name not in self._drainer.chosen_names,
            not is_failed,
            has_jobs,
            replacement.name,
        )


def describe_rollout(declared: Mapping[str, Any], plan: PoolPlan, node_count: int) -> str:
    """Return the course of a rollout as text for plans.

    Empty without a declared `rollout`, or if the plan replaces no node. `node_count` is the number
    of existing nodes. At most `_MAX_LISTED_NAMES` nodes are named.
    """
    if declared.get("rollout") is None or not plan.replace:
        return ""
    rollout = RolloutInputs.model_validate(declared["rollout"])
    drain = PoolDrainInputs.model_validate(declared.get("drain") or {})
    names = [replacement.name for replacement in plan.replace]
    step_size = min(rollout.compute_max_unavailable(node_count), len(names))
    step_count, has_scheduler = -(-len(names) // step_size), drain.has_scheduler
    # A policy of `fail` does not wait for jobs.
    drain_wait = drain.job_wait_s if has_scheduler and drain.policy != "fail" else 0.0
    longest_duration = (
        step_count * (drain_wait + STEP_TIMEOUT_S + (JOIN_TIMEOUT_S if has_scheduler else 0.0))
        + (step_count - 1) * rollout.pause_s
    )
    order = ", those without jobs first" if has_scheduler and step_count > 1 else ""
    limit = f"at most {format_duration(longest_duration)}"
    return f"{step_size} at a time: {_format_names(names)}{order}; {limit}"


def _keep_replacements(plan: PoolPlan, begun_replacements: Sequence[Replacement]) -> PoolPlan:
    """Return the plan with only the begun replacements; all others are `waiting`."""
    waiting_replacements = [
        replacement for replacement in plan.replace if replacement not in begun_replacements
    ]
    return replace(plan, replace=begun_replacements, waiting=waiting_replacements)


def _is_unusable(workers_by_name: Mapping[str, Worker], name: str) -> bool:
    """Return True if the node is unknown to the scheduler, or unusable."""
    worker = workers_by_name.get(name)
    return worker is None or worker.scheduled_node is None or worker.scheduled_node.is_failed


def _format_names(names: Sequence[str]) -> str:
    """Join at most the first `_MAX_LISTED_NAMES` names, with an ellipsis for others."""
    return ", ".join(names[:_MAX_LISTED_NAMES]) + (
        ", ..." if len(names) > _MAX_LISTED_NAMES else ""
    )
