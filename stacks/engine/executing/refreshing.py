"""Refresh: what the platforms say of every resource in the state."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gpuform.schemas.changes import Action, FieldChange
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.deleted_outside import DeletedOutside
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import (
    Op,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
    describe_drift,
)
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import Chosen, ResourceState, timestamp
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_provider
from gpuform.stacks.engine.values import find_changed_keys, property_paths

Keep = Callable[[ResourceState, ResourceState], None]


def refresh_all(
    executor: StepExecutor,
    base: Sequence[ResourceState],
    *,
    counted: bool,
    chosen: Chosen,
    resumed: Callable[[ResourceState], bool] = lambda _entry: False,
) -> list[ResourceState]:
    """Reads every selected resource and keeps what it finds; the state to go on with.

    With `counted`, each result (same, update, delete) counts as a change of the run. One that
    cannot be read does not keep the others from it, but the run ends there. Those that are gone are
    forgotten at the end, when it is known how many they are. One that is `resumed` is kept as one
    to be created again.
    """
    keep = executor.snapshot.record_refresh
    refresh = Refresh(executor, keep, counted=counted, resumed=resumed)
    base = [entry for entry in base if chosen.includes(entry)]
    if not base:
        return executor.snapshot.rebuild()
    workers = max(1, min(executor.parallel, len(base)))
    with ThreadPoolExecutor(workers, thread_name_prefix="refresh") as pool:
        list(pool.map(refresh.one, base))
    executor.settle_vanished(counted=counted)
    if executor.failed:
        executor.stop()
    return executor.snapshot.rebuild()


class Refresh:
    """Does the steps of a refresh. With `counted`, each result counts as a change of the run.

    `keep` puts what was found into the place of an entry.
    """

    def __init__(
        self,
        executor: StepExecutor,
        keep: Keep,
        *,
        counted: bool,
        resumed: Callable[[ResourceState], bool] = lambda _entry: False,
    ) -> None:
        self._executor = executor
        self._resumed = resumed
        self._keep_entry = keep
        self._counted = counted
        self._began = time.monotonic()

    def one(self, old: ResourceState) -> None:
        """Puts what the platform has into the entry's place."""
        if self._executor.stopping:
            return
        executor = self._executor
        step = Step(Op.REFRESH, old.urn, old, old, result_op=Op.SAME)
        began = time.monotonic()
        try:
            self.read(step)
        except EngineError as error:
            executor.note_failure(old.urn, error)
            executor.events.emit(StepFailed(step, time.monotonic() - began))
            return
        if executor.vanished.holds(step):
            return
        if self._counted:
            executor.count(step)
        executor.warn_of_secret_id(step)
        executor.events.emit(StepDone(step, executor.preview, time.monotonic() - began))

    def read(self, step: Step) -> None:
        """Asks the platform, if there is one to ask; what is gone is `skipped` from then on."""
        self._executor.events.emit(StepStarted(step, self._executor.preview))
        old = step.state
        if old.custom and not is_provider(old.type) and not old.pending_replacement:
            self._read(step, old)

    def _read(self, step: Step, old: ResourceState) -> None:
        if old.type == STACK_REFERENCE_TYPE:
            outputs = self._executor.stack_references.read(old.inputs)
            self._keep(step, old, replace(old, outputs=outputs, init_errors=[]))
            return
        timeout, began, causes = old.custom_timeouts.get("read"), time.monotonic(), list[str]()
        read = self._executor.host.read(
            old.urn,
            old.id,
            old.inputs,
            old.outputs,
            timeout,
            old.provider,
            as_of=self._began,
            on_gone=causes.append,
        )
        if read is None and self._resumed(old):
            step.new, step.result_op = old, Op.SAME
            self._executor.snapshot.record_pending_replacement(old)
            return
        if read is None:
            step.new, step.result_op, step.skipped = None, Op.DELETE, True
            step.change = describe_drift(self._executor.host, old, None, None)
            self._keep_within_bound(step)
            if causes and not old.external and not self._executor.was_deleting(old):
                seconds = time.monotonic() - began
                self._executor.vanished.hold(DeletedOutside(step, old, causes[0], seconds))
            else:
                self._executor.snapshot.record_delete(old)
            return
        found, inputs = read
        outputs = values.mark_secret_outputs(
            found.outputs, old.inputs, old.additional_secret_outputs
        )
        new = replace(
            old,
            id=found.id,
            outputs=outputs,
            inputs=old.inputs if inputs is None else inputs,
            init_errors=list(found.init_errors),
        )
        self._keep(step, old, new)

    def _keep(self, step: Step, old: ResourceState, new: ResourceState) -> None:
        if (new.inputs, new.outputs) != (old.inputs, old.outputs):
            new.modified = timestamp()
        known = self._still(old, new) if old.external else old
        diff = self._drift(known, new)
        step.new, step.diffs = new, self._keys(diff, known, new)
        step.result_op = Op.UPDATE if diff.changes else Op.SAME
        step.change = describe_drift(self._executor.host, known, new, diff)
        self._keep_within_bound(step)
        self._keep_entry(old, new)

    def _keep_within_bound(self, step: Step) -> None:
        """Raises PlanExceeded for a find that a saved plan of a refresh does not have."""
        constraint = self._executor.constraint
        if constraint is not None and self._counted:
            constraint.check_step(step)

    def _still(self, old: ResourceState, new: ResourceState) -> ResourceState:
        """The entry of what is only read, with all that is no drift as it was found just now.

        That are the outputs that move by themselves, and those that an old state has not got yet.
        """
        moving = self._executor.host.moving(old)
        if moving is None:
            return old
        stays = {name: value for name, value in old.outputs.items() if name not in moving}
        found = {
            name: value
            for name, value in new.outputs.items()
            if name in moving or name not in old.outputs
        }
        return replace(old, outputs={**stays, **found})

    def _drift(self, old: ResourceState, new: ResourceState) -> Diff:
        if old.external:
            # Nobody declares it: only what it shows can have changed.
            changes = not values.are_equal(old.outputs, new.outputs)
            return Diff(changes=changes, replaces=(), delete_before_replace=False)
        host = self._executor.host
        diff = host.diff(old.urn, new.id, new.outputs, old.inputs, old.provider, refreshing=True)
        if diff.changes is None:
            inputs, _ = property_paths.ignore_changes(new.inputs, old.inputs, old.ignore_changes)
            diff = replace(diff, changes=bool(find_changed_keys(new.inputs, inputs)))
        found = self._watched(old, new)
        return replace(diff, changes=True, fields=[*(diff.fields or ()), *found]) if found else diff

    def _watched(self, old: ResourceState, new: ResourceState) -> list[FieldChange]:
        """The watched outputs that are not what they were; an old state may not have them yet."""
        names = sorted(self._executor.host.watched(old) - {*old.ignore_changes})
        return [
            # As a diff of a refresh: from what was found to what was known.
            FieldChange(name, Action.UPDATE, new.outputs[name], old.outputs[name])
            for name in names
            if name in old.outputs and name in new.outputs
            if not values.are_equal(old.outputs[name], new.outputs[name])
        ]

    def _keys(self, diff: Diff, old: ResourceState, new: ResourceState) -> list[str]:
        if diff.fields is not None:
            return property_paths.top_level(field.path for field in diff.fields)
        return find_changed_keys(old.outputs, new.outputs) if diff.changes else []
