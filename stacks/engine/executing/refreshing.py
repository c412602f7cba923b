"""Refresh resources: read every resource of the state from its platform and record the result.

`deployment` refreshes all selected entries before an operation; the step executor refreshes single
ones for a refresh that runs the program.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gpuform.providers import values
from gpuform.providers.values import find_changed_keys
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import (
    Op,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
    describe_drift,
)
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.state import ResourceState, SelectedResources, format_timestamp
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_provider


def refresh_all(
    executor: StepExecutor,
    base: Sequence[ResourceState],
    *,
    count_changes: bool,
    selected: SelectedResources,
    should_resume: Callable[[ResourceState], bool] = lambda _entry: False,
) -> list[ResourceState]:
    """Read every selected resource, record the results and return the resulting state.

    With `count_changes`, each result (same, update, delete) counts as a change of the run. A
    resource that cannot be read does not stop the others, but the run stops after the refresh.
    Entries of missing objects are removed at the end, unless too many are missing; an entry for
    which `should_resume` returns True stays, to be created again.
    """
    record = executor.snapshot.record_refresh
    refresher = Refresher(
        executor, record, count_changes=count_changes, should_resume=should_resume
    )
    base = [entry for entry in base if selected.includes(entry)]
    if not base:
        return executor.snapshot.rebuild()
    workers = max(1, min(executor.parallel, len(base)))
    with ThreadPoolExecutor(workers, thread_name_prefix="refresh") as pool:
        list(pool.map(refresher.refresh_entry, base))
    executor.forget_missing_objects(count_changes=count_changes)
    # What was read is in the state; an operation on a half-refreshed state does not begin.
    if executor.failed:
        executor.stop()
    return executor.snapshot.rebuild()


class Refresher:
    """Runs the steps of a refresh. With `count_changes`, each result counts as a change of the run.

    `record` replaces the old entry with the refreshed one in the snapshot.
    """

    def __init__(
        self,
        executor: StepExecutor,
        record: Callable[[ResourceState, ResourceState], None],
        *,
        count_changes: bool,
        should_resume: Callable[[ResourceState], bool] = lambda _entry: False,
    ) -> None:
        self._executor = executor
        self._should_resume = should_resume
        self._record_entry = record
        self._count_changes = count_changes
        self._started_at = time.monotonic()

    def refresh_entry(self, old: ResourceState) -> None:
        """Refresh one entry and report the result or failure; nothing if the run is stopping.

        A missing object is only reported at the end of the refresh.
        """
        if self._executor.is_stopping:
            return
        executor = self._executor
        step = Step(Op.REFRESH, old.urn, old, old, result_op=Op.SAME)
        started_at = time.monotonic()
        try:
            self.run_step(step)
        except EngineError as error:
            executor.report_failure(old.urn, error)
            executor.events.emit(StepFailed(step, time.monotonic() - started_at))
            return
        # `forget_missing_objects` counts and reports this step later.
        if executor.outside_deletions.contains_step(step):
            return
        if self._count_changes:
            executor.count_step(step)
        executor.warn_of_secret_id(step)
        executor.events.emit(StepDone(step, executor.preview, time.monotonic() - started_at))

    def run_step(self, step: Step) -> None:
        """Report the start of the step and read the object, if a platform has one.

        The result is written into `step`; a missing object marks the step as `skipped`.

        Raises:
            EngineError: the platform did not answer, or the result exceeds the saved plan.
        """
        self._executor.events.emit(StepStarted(step, self._executor.preview))
        old = step.state
        # Pulumi's no-ops of a refresh: components, providers, and entries whose object is deleted.
        if old.custom and not is_provider(old.type) and not old.pending_replacement:
            self._read_object(step, old)

    def _read_object(self, step: Step, old: ResourceState) -> None:
        """Read the object, and record the result in `step` and in the state.

        The entry of a missing object is removed at the end of the refresh; at once if external,
        only bound, of a provider that is not gpuform's, or in an interrupted deletion. An entry
        accepted by `should_resume` stays, to be created again.
        """
        if old.type == STACK_REFERENCE_TYPE:
            outputs = self._executor.stack_references.read(old.inputs)
            self._record_result(step, old, replace(old, outputs=outputs, init_errors=[]))
            return
        timeout, started_at, causes = old.custom_timeouts.get("read"), time.monotonic(), list[str]()
        result = self._executor.host.read(
            old.urn,
            old.id,
            old.inputs,
            old.outputs,
            timeout,
            old.provider,
            as_of=self._started_at,
            on_gone=causes.append,
        )
        if result is None and self._should_resume(old):
            step.new, step.result_op = old, Op.SAME
            self._executor.snapshot.record_pending_replacement(old)
            return
        if result is None:
            step.new, step.result_op, step.skipped = None, Op.DELETE, True
            step.change = describe_drift(self._executor.host, old, None, None)
            self._check_constraint(step)
            # An object that an interrupted run was deleting is expected to be missing.
            missing = self._executor.outside_deletions
            if causes and not old.external and not missing.is_expected(old):
                missing.add(step, old, causes[0], started_at)
            else:
                self._executor.snapshot.record_delete(old)
            return
        observed, inputs = result
        outputs = values.mark_secret_outputs(
            observed.outputs, old.inputs, old.additional_secret_outputs
        )
        new = replace(
            old,
            id=observed.id,
            outputs=outputs,
            # As in Pulumi, a read without inputs leaves the declared ones.
            inputs=old.inputs if inputs is None else inputs,
            init_errors=list(observed.init_errors),
        )
        self._record_result(step, old, new)

    def _record_result(self, step: Step, old: ResourceState, new: ResourceState) -> None:
        """Write the drift between `old` and `new` into `step`, and record `new`.

        Raises EngineError for drift outside of a saved plan.
        """
        if (new.inputs, new.outputs) != (old.inputs, old.outputs):
            new.modified = format_timestamp()
        baseline, diff = find_drift(self._executor.host, old, new)
        step.new = new
        if diff.fields is not None:
            step.diffs = property_paths.list_roots(field.path for field in diff.fields)
        else:
            step.diffs = find_changed_keys(baseline.outputs, new.outputs) if diff.changes else ()
        step.result_op = Op.UPDATE if diff.changes else Op.SAME
        step.change = describe_drift(self._executor.host, baseline, new, diff)
        self._check_constraint(step)
        self._record_entry(old, new)

    def _check_constraint(self, step: Step) -> None:
        """Raise PlanExceeded if the result is not part of the saved plan of this refresh."""
        constraint = self._executor.constraint
        if constraint is not None and self._count_changes:
            constraint.check_step(step)


def find_drift(
    host: ProviderHost, old: ResourceState, new: ResourceState
) -> tuple[ResourceState, Diff]:
    """Return the difference between an entry and the read object, and the entry to compare with.

    In the returned entry, outputs of an external object that change by themselves are as read.
    External objects are compared by outputs, others by the provider or, if it leaves this to the
    engine, by inputs; a changed watched output counts too.
    """
    if old.external:
        # No inputs are declared for an object that is only read: its outputs are compared.
        baseline = _ignore_expected_changes(host, old, new)
        changes = not values.are_equal(baseline.outputs, new.outputs)
        return baseline, Diff(changes=changes, replaces=(), delete_before_replace=False)
    # Pulumi's arguments for a refresh: the read outputs are the old side, the declared inputs
    # the new side.
    diff = host.diff(old.urn, new.id, new.outputs, old.inputs, old.provider, refreshing=True)
    if diff.changes is None:
        inputs, _ = property_paths.ignore_changes(new.inputs, old.inputs, old.ignore_changes)
        diff = replace(diff, changes=bool(find_changed_keys(new.inputs, inputs)))
    watched_changes = _compare_watched_outputs(host, old, new)
    if watched_changes:
        diff = replace(diff, changes=True, fields=[*(diff.fields or ()), *watched_changes])
    return old, diff


def _ignore_expected_changes(
    host: ProviderHost, old: ResourceState, new: ResourceState
) -> ResourceState:
    """Return `old` with the new values of outputs whose change is no drift.

    These are outputs that change by themselves, and outputs missing in `old`. If the provider
    does not name such outputs, `old` is unchanged.
    """
    changing_names = host.get_volatile_outputs(old)
    if changing_names is None:
        return old
    stable_outputs = {
        name: value for name, value in old.outputs.items() if name not in changing_names
    }
    new_outputs = {
        name: value
        for name, value in new.outputs.items()
        if name in changing_names or name not in old.outputs
    }
    return replace(old, outputs={**stable_outputs, **new_outputs})


def _compare_watched_outputs(
    host: ProviderHost, old: ResourceState, new: ResourceState
) -> list[FieldChange]:
    """Return the changes of watched outputs present in both states.

    Outputs in `ignore_changes` are left out. Each change goes from the read value to the last
    known one.
    """
    names = sorted(host.get_drift_outputs(old) - {*old.ignore_changes})
    return [
        # In the direction of a refresh's diff: from the read value to the last known one.
        FieldChange(name, Action.UPDATE, new.outputs[name], old.outputs[name])
        for name in names
        if name in old.outputs and name in new.outputs
        if not values.are_equal(old.outputs[name], new.outputs[name])
    ]
