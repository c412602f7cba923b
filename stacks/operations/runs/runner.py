"""Run the operations `preview`, `up`, `refresh`, `destroy`, `expire` and `repair`.

Commands and the Python API call `run_operation`. It opens the stack, recovers interrupted runs, and
has the engine make a preview and, if it is confirmed, the update.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gpuform.providers import permissions
from gpuform.providers.context import RunContext, use_run_context
from gpuform.providers.permissions import Permission
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.stacks_plan import UnfinishedStep
from gpuform.schemas.values import RemovalCount
from gpuform.stacks.config_keys import ConfigKeys
from gpuform.stacks.engine.deployment import (
    DEFAULT_PARALLEL,
    Deployment,
    Options,
    Outcome,
)
from gpuform.stacks.engine.machine import require_version
from gpuform.stacks.engine.planning import EventBus, Listener, PlanConstraint
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.gates.base_branch import open_project_gates
from gpuform.stacks.gates.evaluating import list_blocking_gates
from gpuform.stacks.operations.config_setting import set_config_values
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    describe_lock_holder,
    enter_environment,
    warn_of_recovery,
)
from gpuform.stacks.operations.runs.callbacks import (
    Interrupted,
    OperationCallbacks,
    RunEnded,
    RunStarted,
)
from gpuform.stacks.operations.runs.due_runs import Expiry, RepairRun, limit_repairs
from gpuform.stacks.operations.runs.evaluator import PlanEvaluator, RunRecord
from gpuform.stacks.operations.runs.options import (
    ExitReason,
    FinalState,
    RunOptions,
    RunResult,
    convert_outputs,
)
from gpuform.stacks.operations.runs.plan_file import mask_plan, write_plan
from gpuform.stacks.operations.runs.recovery import (
    KeyRights,
    add_adoption_answers,
    forget_deleted_objects,
    forget_pending_creates,
    recover_earlier_runs,
)
from gpuform.stacks.operations.runs.run_log import (
    RunLogger,
    Stopwatch,
    list_unfinished_steps,
    open_event_log,
    write_profile,
)
from gpuform.stacks.operations.runs.saved_plans import (
    SavedPlan,
    build_constraint,
    build_import_constraint,
    build_origin,
    build_sealed_plan,
    require_digest,
    sum_removals,
)
from gpuform.stacks.resource_rules import DELETION_RULES, RULES, should_delete_first
from gpuform.stacks.schedule.noticing import is_out_of_credit, list_entry_notices
from gpuform.stacks.topology import run_topology


def _apply_project_refresh(options: RunOptions, project: Project) -> RunOptions:
    """Return the options with the project's `refresh: always`, unless the user chose otherwise."""
    is_refreshing = project.always_refreshes and options.operation in ("update", "destroy")
    return replace(options, refresh=is_refreshing) if options.refresh is None else options


def run_operation(
    selected: SelectedStack,
    options: RunOptions,
    callbacks: OperationCallbacks,
    saved_plan: SavedPlan | None = None,
) -> RunResult:
    """Run the operation of `options` on the stack, under the stack's lock except for a preview.

    `saved_plan` is a plan that limits the changes; the file of `options.plan` replaces it.

    Raises:
        EngineError: the run cannot begin, a check of the preview fails, or a saved plan does not
            fit; no platform was changed, but `options.config` may be written. The removal of the
            stack with `options.remove` may fail after the run.
    """
    workspace, name = selected.workspace, selected.name
    if workspace.project.required_version:
        require_version(workspace.project.required_version, "Pulumi.yaml")
    saved_plan = _read_saved_plan(selected, options, saved_plan)
    if saved_plan is not None:
        options = saved_plan.merge_options(options)
    # After the plan, which has its own value.
    options = _apply_project_refresh(options, workspace.project)
    with _open_run(selected, options, callbacks, saved_plan) as run:
        result = run.run()
    if options.remove and not options.preview_only and result.succeeded:
        # After the run has given its lock back: the removal takes the lock itself.
        workspace.remove(name, force=False, timeout=selected.build_lock_timeout(callbacks.warn))
        callbacks.report(f"Removed stack {name}.")
    return result


@contextlib.contextmanager
def _open_run(
    selected: SelectedStack,
    options: RunOptions,
    callbacks: OperationCallbacks,
    saved_plan: SavedPlan | None,
) -> "Iterator[PlannedRun]":
    """Yield the run of an operation, with the stack open, and locked except for a preview."""
    workspace = selected.workspace
    with contextlib.ExitStack() as resources:
        selected = resources.enter_context(
            selected.begin_operation(lambda run_context: _add_requests(run_context, options))
        )
        # A preview takes no lock: it may run while another command changes the stack.
        lock = None
        if not options.preview_only:
            lock_timeout = selected.build_lock_timeout(callbacks.warn)
            lock = resources.enter_context(
                workspace.backend.create_lock(workspace.project.name, selected.name, lock_timeout)
            )
        # Opened under the lock: what is read now is what the run changes.
        stack = selected.open(exclusive=lock is not None)
        unfinished = list_unfinished_steps(stack) if lock else ()
        lock_holder = "" if lock else describe_lock_holder(workspace, selected.name)
        _warn_of_other_runs(callbacks, lock_holder, stack.recovered)
        emulated = resources.enter_context(enter_environment(stack, emulate=options.emulate))
        selected = selected.with_context(stack)
        stack = _prepare_stack(
            selected, options, stack, callbacks, lock, is_planned=saved_plan is not None
        )
        options = _exclude_protected_resources(options, stack)
        event_log = resources.enter_context(open_event_log(options.event_log))
        resources.enter_context(write_profile(options.profile))
        rehearse = partial(_find_rehearsal, selected, callbacks, saved_plan)
        project_gates = resources.enter_context(
            open_project_gates(stack.project, options.gates_from)
        )
        evaluator = PlanEvaluator.load(
            stack, stack.run_context.permissions, rehearse, project_gates
        )
        yield PlannedRun(
            selected,
            options,
            callbacks,
            stack,
            lock,
            evaluator,
            event_log,
            saved_plan,
            emulated=emulated,
            lock_holder=lock_holder,
            unfinished=unfinished,
        )


def _read_saved_plan(
    selected: SelectedStack, options: RunOptions, saved_plan: SavedPlan | None
) -> SavedPlan | None:
    """Return the plan of the file `options.plan`, else `saved_plan`, with the required digest.

    Raises:
        EngineError: the file cannot be used, or the plan has another digest than `options.digest`.
    """
    if options.plan is not None:
        project = selected.workspace.project.name
        saved_plan = SavedPlan.read(options.plan, project, selected.name, options.operation)
    if options.digest is not None:
        require_digest(saved_plan, options.digest)
    return saved_plan


def _find_rehearsal(
    selected: SelectedStack, callbacks: OperationCallbacks, saved_plan: SavedPlan | None, plan: Plan
) -> Rehearsal | None:
    """Return the rehearsal of the saved plan, or else the result of the callback, or None.

    A run with a saved plan does no more than that plan, whose seal includes its rehearsal.
    """
    if saved_plan is not None:
        return saved_plan.plan.rehearsal
    return callbacks.rehearse(selected, plan) if callbacks.rehearse else None


def _exclude_protected_resources(options: RunOptions, stack: Stack) -> RunOptions:
    """Return the options, with protected resources excluded if `exclude_protected` is set."""
    if not options.exclude_protected:
        return options
    protected_urns = (resource.urn for resource in stack.snapshot.resources if resource.protect)
    return replace(options, exclude=(*options.exclude, *protected_urns))


def _prepare_stack(
    selected: SelectedStack,
    options: RunOptions,
    stack: Stack,
    callbacks: OperationCallbacks,
    lock: StackLock | None,
    *,
    is_planned: bool,
) -> Stack:
    """Return the stack with the run's configuration set, and interrupted runs recovered.

    The values of `--config` are written to the settings file, also in a preview. Pending creates
    are forgotten if the options say so, but never in a preview. An update warns of plain-text
    secrets.

    Raises:
        EngineError: the stack lacks a selected resource; not checked for updates and saved plans.
        UnresolvedCreate: an interrupted create of unknown result.
    """
    if options.config:
        set_config_values(
            selected, options.config, by_path=options.config_path, report=callbacks.report
        )
        # The values were written to the file, not to the settings of the open stack.
        stack.settings = StackSettings.load(stack.project, stack.name)
    creates_objects = options.operation == "update"
    if creates_objects:
        _warn_of_plaintext_secrets(stack, callbacks)
    stack = recover_earlier_runs(selected, stack, callbacks, lock, creates_objects=creates_objects)
    if options.clear_pending_creates and lock is not None:
        stack = forget_pending_creates(selected, stack, callbacks)
    if not creates_objects and not is_planned:  # a saved plan reports changed targets itself
        options.selection.require_matches(entry.urn for entry in stack.snapshot.resources)
    return stack


def _warn_of_other_runs(callbacks: OperationCallbacks, lock_holder: str, recovered: int) -> None:
    """Warn of a run in progress, else of an interrupted run."""
    if lock_holder:
        callbacks.warn(f"{lock_holder}: the state shown may be out of date")
    else:
        warn_of_recovery(recovered, callbacks.warn)


def _warn_of_plaintext_secrets(stack: Stack, callbacks: OperationCallbacks) -> None:
    """Warn of secrets stored in plain text in the stack's settings.

    A topology reports its own keys, also under the Pulumi CLI: they are left out here.
    """
    for problem in ConfigKeys.without_topology(stack.project).find_plaintext_secrets(
        stack.settings
    ):
        callbacks.warn(f"warning: {problem.text}\n  {problem.remedy}")


def _add_requests(run_context: RunContext, options: RunOptions) -> RunContext:
    """Return the context with the permissions, answers and repairs of the options, too.

    Raises EngineError for an unknown permission.
    """
    run_context = run_context.with_permissions(options.allow)
    if options.repair_nodes:
        repair_variables = {permissions.REPAIR_VARIABLE: ",".join(options.repair_nodes)}
        run_context = run_context.with_variables(repair_variables)
    return add_adoption_answers(run_context, options.adopt, create_anew=options.create_anew)


@dataclass(slots=True)
class PlannedRun:
    """One operation on an open stack, which is locked if anything may change.

    `check_preview` receives the preview's outcome, and raises an error to stop the operation. With
    `is_preview_limit` an update does no more than its preview has shown. `event_log` are further
    listeners of the engine. `unfinished` are the steps of interrupted runs, for the log.
    """

    selected: SelectedStack
    options: RunOptions
    callbacks: OperationCallbacks
    stack: Stack
    lock: StackLock | None
    evaluator: PlanEvaluator
    event_log: tuple[Listener, ...] = ()
    saved_plan: SavedPlan | None = None
    check_preview: Callable[[Outcome], None] = lambda _outcome: None
    is_preview_limit: bool = False
    emulated: bool = False
    lock_holder: str = ""
    unfinished: tuple[UnfinishedStep, ...] = ()
    expiry: Expiry = field(init=False)
    rights: KeyRights = field(init=False)

    def __post_init__(self) -> None:
        self.expiry = Expiry.for_stack(self.stack, self.evaluator.clock)
        self.rights = KeyRights.for_stack(self.stack)

    def run(self) -> RunResult:
        """Preview the operation where needed, have the plan confirmed, and apply the plan.

        A part of a saved plan that an earlier run has applied is left alone. A failed preview,
        blocking gates, skipped checks and a refusal end the run with their reason in the result,
        without a change. With `preview_only` a blocked plan is saved as well.

        Raises:
            EngineError: a saved plan does not fit, `check_preview` refuses the preview, or the API
                keys do not allow a change.
        """
        if self.saved_plan is None:
            return self._preview_and_apply(None)
        constraint = self.saved_plan.require_current(self.options, self.stack)
        if constraint is None:
            return RunResult(ExitReason.SUCCEEDED, preview=False, was_applied=True)
        return self._preview_and_apply(constraint)

    def _preview_and_apply(self, constraint: PlanConstraint | None) -> RunResult:
        """Preview, confirm and apply the operation within the constraint of a saved plan."""
        options, saved_plan = self.options, self.saved_plan
        run_context, planned_removals = self.stack.run_context, dict[str, RemovalCount]()
        if options.preview_only or not options.skip_preview or saved_plan or self._must_be_planned:
            with use_run_context(self._preview_context) as preview_context:
                run_ended, outcome = self._run_deployment(preview_context, preview=True)
            if not outcome.succeeded:
                return self._build_result(run_ended, outcome)
            self.check_preview(outcome)
            if saved_plan and constraint:
                # A saved plan is an upper bound: the new preview may do less, and never more.
                saved_plan.reject_additional_changes(constraint, run_ended.plan, outcome)
            if options.preview_only:
                self._save_plan(run_ended, outcome)
                return self._build_result(run_ended, outcome, self._find_stop_reason(run_ended))
            if stop_reason := self._find_stop_reason(run_ended):
                return self._build_result(run_ended, outcome, stop_reason)
            if constraint is None and options.operation == "update":
                constraint = self._build_constraint(run_ended.plan, outcome)
            # A refresh writes the state alone, which needs no rights of a platform.
            if options.operation != "refresh":
                self.rights.require_allowed(outcome)
            if not self._is_confirmed(run_ended, outcome):
                return self._build_result(run_ended, outcome, ExitReason.DECLINED)
            if options.operation == "expire":
                self.expiry.record_expired(outcome)
            run_context = (
                limit_repairs(run_context, run_ended.plan) if self._is_reviewed else run_context
            )
            planned_removals = self._list_planned_removals(run_ended.plan)
        with use_run_context(run_context):
            return self._apply(run_context, constraint, planned_removals)

    def _build_constraint(self, plan: Plan, preview: Outcome) -> PlanConstraint:
        """Return the constraint by which an update without a saved plan keeps to its preview.

        Only imports are limited in a run without gates.
        """
        if self._must_pass_gates or self.is_preview_limit:
            # What only the run knows must not lead to more changes than the gates, or
            # `check_preview`, have judged.
            return build_constraint(plan, self.options, self.stack, preview)
        return build_import_constraint(plan, self.stack, preview)

    def _list_planned_removals(self, preview_plan: Plan) -> dict[str, RemovalCount]:
        """Return the most that the run may remove of each resource: as the reviewed plan shows.

        Old objects that an interrupted run has left to delete have no limit of their own.
        """
        plan = self.saved_plan.plan if self.saved_plan else preview_plan
        leftover_urns = {entry.urn for entry in self.stack.snapshot.resources if entry.delete}
        removals = sum_removals(plan.changes)
        return {urn: count for urn, count in removals.items() if urn not in leftover_urns}

    def _apply(
        self,
        run_context: RunContext,
        constraint: PlanConstraint | None,
        planned_removals: Mapping[str, RemovalCount],
    ) -> RunResult:
        """Run the operation, and store the run and the log in the history.

        The caller has confirmed the plan, which removes at most `planned_removals`. Also removes
        deleted clusters and hosts from the user's kubeconfig and SSH files.
        """
        options = self.options
        if options.preview_only or self.lock is None:
            raise AssertionError("a run that only previews, or has no lock, applies nothing")
        origin = build_origin(self.stack, options.message, self.saved_plan)
        # The history names the run before its first change, also if the process is killed.
        history_run = self.stack.begin(options.operation, origin)
        logger = RunLogger(Stopwatch(run_context.clock))
        run_ended, outcome = self._run_deployment(
            run_context,
            preview=False,
            constraint=constraint,
            planned_removals=planned_removals,
            logger=logger,
        )
        log = logger.build_log(run_ended.plan, self.stack, outcome).model_copy(
            update={"approval": self._approval, "unfinished": self.unfinished}
        )
        self.stack.finish(history_run, outcome, log.model_dump_json(exclude_defaults=True).encode())
        forget_deleted_objects(self.stack, outcome.snapshot, self.callbacks.warn)
        self.expiry.forget_existing(outcome)
        return self._build_result(run_ended, outcome)

    @property
    def _preview_context(self) -> RunContext:
        """Return the context of the preview, in which a reviewer sees all repairs up for review."""
        # Without a reviewer only automatic repairs may happen, and the preview shows those.
        repair_permissions = {Permission.REPAIR} if self._is_reviewed else ()
        return self.stack.run_context.with_permissions(repair_permissions)

    @property
    def _is_reviewed(self) -> bool:
        """Return True if a person sees the plan before the run applies it."""
        options = self.options
        if options.reviewed is not None:
            return options.reviewed
        is_asked = self.callbacks.confirm is not None and not options.skip_preview
        return options.preview_only or self.saved_plan is not None or is_asked

    @property
    def _approval(self) -> str:
        """Return how the plan of this run was approved, for the log."""
        if self.saved_plan is not None:
            return "saved_plan"
        return "confirmed" if self._is_reviewed else "unasked"

    @property
    def _must_be_planned(self) -> bool:
        """Return True if gates, checks, unknown targets or limited API keys need a preview.

        Unknown targets of an update match no resource of the state yet. A refresh needs no preview.
        """
        if self.options.operation == "refresh":
            return False
        urns = [entry.urn for entry in self.stack.snapshot.resources]
        has_unmatched_patterns = self.options.operation == "update" and any(
            self.options.selection.find_unmatched_errors(urns)
        )
        is_required = self._must_pass_gates or self.options.require_checks
        return has_unmatched_patterns or is_required or self.rights.are_limited

    @property
    def _must_pass_gates(self) -> bool:
        """Return True if the project has gates, which no option skips; a refresh passes none."""
        return self.evaluator.has_gates and self.options.operation != "refresh"

    def _find_stop_reason(self, run_ended: RunEnded) -> ExitReason | None:
        """Return POLICY_VIOLATION for a blocking gate, UNCHECKED for a missing check, or None.

        Nothing stops a refresh.
        """
        # A refresh changes no platform: gates do not stop it.
        if self.options.operation == "refresh":
            return None
        if list_blocking_gates(run_ended.plan):
            return ExitReason.POLICY_VIOLATION
        is_unchecked = self.options.require_checks and run_ended.plan.unchecked
        return ExitReason.UNCHECKED if is_unchecked else None

    def _is_confirmed(self, run_ended: RunEnded, outcome: Outcome) -> bool:
        """Return True if the plan may be applied.

        A run with `skip_preview` needs no confirmation, nor does one without changes, which updates
        the state alone.
        """
        confirm = self.callbacks.confirm
        if confirm is None or self.options.skip_preview or not outcome.has_changes:
            return True
        return confirm(run_ended.plan)

    def _save_plan(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Write the sealed plan to the file of `options.save_plan`, if any, and report the file."""
        path = self.options.save_plan
        if path is not None:
            write_plan(path, self._seal_plan(run_ended, outcome, {}, ""))
            command = "up" if self.options.operation == "update" else self.options.operation
            self.callbacks.report(
                f"Saved the plan to {path}. To apply it, run `gpuform {command} --plan {path}`."
            )

    def _seal_plan(
        self,
        run_ended: RunEnded,
        outcome: Outcome,
        planned_with: Mapping[str, str],
        stacks_digest: str,
    ) -> Plan:
        """Seal the plan together with the seals of other stacks' plans in `planned_with`.

        `stacks_digest` stands for all stacks that are planned together; empty for one stack.
        """
        updates = {"planned_with": dict(planned_with), "stacks_digest": stacks_digest}
        plan = run_ended.plan.model_copy(update=updates)
        return build_sealed_plan(plan, self.options, self.stack, outcome)

    def _build_result(
        self, run_ended: RunEnded, outcome: Outcome, reason: ExitReason | None = None
    ) -> RunResult:
        """Report idle resources, and return the result of the run.

        A failed preview gives no plan. `reason` says why the run ended early; None derives the
        reason from the outcome.
        """
        for line in self.expiry.idle.format_verdicts():
            self.callbacks.report(line)
        is_stopped = reason in (ExitReason.POLICY_VIOLATION, ExitReason.UNCHECKED)
        reason = reason or self._choose_reason(outcome)
        unknown_ends = (
            self.expiry.list_names_with_unknown_end(outcome)
            if reason is ExitReason.END_UNKNOWN
            else ()
        )
        secrets = self.stack.build_target().program.collect_secrets
        plan = run_ended.plan if outcome.succeeded or not run_ended.started.preview else None
        return RunResult(
            reason,
            run_ended.started.preview,
            outputs=convert_outputs(outcome.outputs),
            changes=dict(outcome.changes),
            has_changes=outcome.has_changes,
            diagnostics=run_ended.record.diagnostics,
            gates=list_blocking_gates(run_ended.plan) if is_stopped else (),
            unchecked=run_ended.plan.unchecked
            if is_stopped and self.options.require_checks
            else (),
            unknown_ends=unknown_ends,
            refusals=self.expiry.refusals,
            seconds=outcome.seconds,
            build_plan=None if plan is None else lambda: mask_plan(plan, secrets()),
            planned_outputs=outcome.outputs,
            seal_plan=lambda *others: self._seal_plan(run_ended, outcome, *others),
            final_state=FinalState(
                self.stack,
                outcome.snapshot.resources,
                self.expiry.now,
                self.expiry.clock.is_platforms,
                self.emulated,
            ),
        )

    def _choose_reason(self, outcome: Outcome) -> ExitReason:
        """Return the exit reason of a run which ended without an interruption.

        OUT_OF_CREDIT, also if the run succeeded but a platform has stopped something. CANCELLED or
        FAILED if the run failed; UNEXPECTED_CHANGES if none were expected. Of `expire`: FAILED
        after refusals, END_UNKNOWN for unknown ends. DUE for a preview of `expire` or `repair` with
        changes. Else SUCCEEDED.
        """
        if self._is_out_of_credit(outcome):
            return ExitReason.OUT_OF_CREDIT
        if not outcome.succeeded:
            return ExitReason.CANCELLED if outcome.cancelled else ExitReason.FAILED
        if self.options.expect_no_changes and outcome.has_changes:
            return ExitReason.UNEXPECTED_CHANGES
        if self.expiry.refusals:
            return ExitReason.FAILED
        if self.options.operation == "expire" and self.expiry.list_names_with_unknown_end(outcome):
            return ExitReason.END_UNKNOWN
        is_maintenance = self.options.operation in ("expire", "repair")
        if is_maintenance and self.options.preview_only and outcome.has_changes:
            return ExitReason.DUE
        return ExitReason.SUCCEEDED

    def _is_out_of_credit(self, outcome: Outcome) -> bool:
        """Return True if a platform refused or stopped something for lack of credit.

        Stopped objects count only in an update or a refresh.
        """
        if self.options.operation not in ("update", "refresh"):
            return outcome.out_of_credit
        entries = [entry for entry in outcome.snapshot.resources if not entry.delete]
        return outcome.out_of_credit or is_out_of_credit(
            list_entry_notices(entries, self.expiry.now)
        )

    def _run_deployment(
        self,
        run_context: RunContext,
        *,
        preview: bool,
        constraint: PlanConstraint | None = None,
        planned_removals: Mapping[str, RemovalCount] | None = None,
        logger: RunLogger | None = None,
    ) -> tuple[RunEnded, Outcome]:
        """Run the engine once, between the events RunStarted and RunEnded.

        RunEnded is sent in any case, also after an exception.
        """
        run_options, stack, callbacks = self.options, self.stack, self.callbacks
        parallel = run_options.parallel or DEFAULT_PARALLEL
        subject = stack.build_target(parallel, run_context)
        options = Options(
            operation=run_options.operation,
            preview=preview,
            refresh=bool(run_options.refresh),
            parallel=parallel,
            rules=(*RULES, self.expiry.expired.find_renewal_problems),
            deletion_rules=DELETION_RULES,
            should_delete_first=should_delete_first,
            run_program=run_options.run_program,
            run_topology=run_topology,
            selection=run_options.selection,
            continue_on_error=run_options.continue_on_error,
            constraint=constraint,
            planned_removals=planned_removals or {},
            concurrent_run=self.lock_holder,
        )
        if run_options.operation == "expire":
            options = self.expiry.build_options(options)
        if run_options.operation == "repair":
            options = RepairRun(stack, run_options.repair_nodes).build_options(options)
        run_started = RunStarted(
            run_options.operation, preview, stack.project.name, stack.name, emulated=self.emulated
        )
        run_ended = RunEnded(run_started, RunRecord(), self.evaluator)
        callbacks.on_event(run_started)
        listeners: list[Listener] = [run_ended.record, callbacks.on_event, *self.event_log]
        events = EventBus([*listeners, logger] if logger else listeners, self.selected.debug)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            callbacks.on_event(Interrupted())

        try:
            with callbacks.interruptions.register(cancel, self._release_lock):
                run_ended.outcome = outcome = deployment.run()
        finally:
            # Also after an exception: a live display must end before the error is printed.
            callbacks.on_event(run_ended)
        return run_ended, outcome

    def _release_lock(self) -> None:
        """Release the lock at once; operations in progress stay in the state as pending."""
        if self.lock is not None:
            self.lock.release()
