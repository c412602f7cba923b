"""Apply one step: make its provider call and record the result in the snapshot.

The step executor calls this module and decides when a step may run; this module knows one function
for each operation.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuform.providers import values
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.stacks.engine.executing.builtin_resources import StackReferences
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.provider_host import Created, ProviderHost
from gpuform.stacks.engine.state import ResourceState, SnapshotManager, format_timestamp
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_provider

if TYPE_CHECKING:
    from gpuform.stacks.engine.executing.step_executor import OutsideDeletions

_REMOVAL_VERBS = {Op.DELETE: "deleted", Op.DELETE_REPLACED: "deleted", Op.REPLACE: "replaced"}
"""What happens to the nodes of an object that a step removes, as plans show the reason."""


@dataclass(slots=True)
class StepApplier:
    """Applies steps, each on the thread of its caller.

    `report_start` reports that a step begins. `limit_provider_calls` wraps a provider call: it
    waits until the step may begin, and reports the start. Objects that a delete finds missing go to
    `outside_deletions`. `may_have_created` says whether a failed create of a URN may have made an
    object.
    """

    host: ProviderHost
    stack_references: StackReferences
    snapshot: SnapshotManager
    outside_deletions: "OutsideDeletions"
    report_start: Callable[[Step], None]
    limit_provider_calls: Callable[[Step], AbstractContextManager[None]]
    may_have_created: Callable[[str], bool]
    _functions: dict[Op, Callable[[Step], list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        self._functions = {
            Op.SAME: self._keep_unchanged,
            Op.CREATE: self._create_resource,
            Op.CREATE_REPLACEMENT: self._create_resource,
            Op.UPDATE: self._update_resource,
            Op.IMPORT: self._record_import,
            Op.READ: self._read_resource,
            Op.READ_REPLACEMENT: self._read_resource,
            Op.DELETE: self._delete_resource,
            Op.DELETE_REPLACED: self._delete_resource,
            Op.DISCARD: self._delete_resource,
            Op.DISCARD_REPLACED: self._delete_resource,
            Op.REPLACE: self._report_only,
            Op.REMOVE_PENDING_REPLACE: self._remove_entry,
        }

    def apply(self, step: Step) -> list[str]:
        """Apply the step and return the init errors: why the object exists without being ready.
        Raises:
            EngineError: the provider call failed, or too many objects are missing.
        """
        return self._functions[step.op](step)

    def predict(self, step: Step) -> None:
        """Predict the outputs of a step in a preview, and the nodes and objects the step removes.

        Changes `step.new` and `step.change`. Objects to read are really read.

        Raises:
            EngineError: the provider does not allow the deletion, or an object to read does not
                exist.
        """
        new, old = step.new, step.old
        objects_of_others = self._predict_removals(step)
        if new is None:
            if step.op in (Op.DELETE, Op.DELETE_REPLACED) and not step.is_forget_only:
                deleted_entry = _require_old(step)
                self.host.check_deletion(
                    step.urn, deleted_entry.outputs, deleted_entry.provider, objects_of_others
                )
            return
        # Reads are made in previews too, as under the CLI.
        if step.op in (Op.READ, Op.READ_REPLACEMENT):
            self._read_object(step)
            return
        if step.op is Op.SAME and old is not None:
            new.id, new.outputs = old.id, _keep_outputs(old, new)
        # As the CLI: the preview of an update returns only the checked inputs, not the old outputs,
        # so that dependents see unknown values.
        elif step.op is Op.UPDATE and old is not None:
            new.id, new.outputs = old.id, dict(new.inputs) if new.custom else {}
        elif step.op in (Op.CREATE, Op.CREATE_REPLACEMENT):
            new.outputs = dict(new.inputs) if new.custom else {}
        new.outputs = _mark_secret_outputs(new)

    def _predict_removals(self, step: Step) -> Sequence[str]:
        """Add nodes that the step removes, and others' objects in them, to the planned change.

        The removed GPUs are those of the nodes on the platform, which somebody may have enlarged
        since the state was written. Return the names of objects of others inside the object that
        the step removes. Nothing is added if the nodes are unknown, or if the step only forgets the
        object.
        """
        old, new, change = step.old, step.new, step.change
        if old is None or step.is_forget_only or not old.custom or old.external:
            return ()
        objects_of_others: tuple[str, ...] = ()
        updates: dict[str, Any] = {}
        if step.op is Op.UPDATE and new is not None and change is not None:
            removed_nodes = self.host.predict_removed_nodes(
                old.urn, old.id, old.outputs, new.inputs, new.provider
            )
            updates = _describe_update(change, removed_nodes)
        elif step.op in _REMOVAL_VERBS and not old.pending_replacement:
            if change is not None:
                removed_nodes = self.host.predict_nodes_removed_with_object(
                    old.urn, old.id, old.outputs, _REMOVAL_VERBS[step.op], old.provider
                )
                if removed_nodes is not None and removed_nodes.nodes:
                    updates = {"leaving": removed_nodes, "gpus_removed": removed_nodes.count_gpus()}
            objects_of_others = tuple(
                self.host.find_foreign_objects(old.urn, old.id, old.outputs, old.provider)
            )
            updates |= {"others": objects_of_others} if objects_of_others else {}
        if change is not None and updates:
            step.change = change.model_copy(update=updates)
        return objects_of_others

    def _keep_unchanged(self, step: Step) -> list[str]:
        """Record the declared inputs and options with the old id, outputs and times.

        A skipped step records nothing. Returns no init errors.
        """
        self.report_start(step)
        if step.skipped:
            return []
        # Pulumi's "same" stores the new inputs and options with the old id, outputs and times.
        old, new = _require_both(step)
        new.id, new.outputs = old.id, _keep_outputs(old, new)
        new.outputs = _mark_secret_outputs(new)
        new.created, new.modified = old.created, old.modified
        new.init_errors = old.init_errors
        self.snapshot.record_replacement(old, new)
        return []

    def _create_resource(self, step: Step) -> list[str]:
        """Create the object, record the entry, and return the object's init errors.

        A component or provider has no object: only its entry is recorded.
        """
        new = _require_new(step)
        new.created = new.modified = format_timestamp()
        if not new.custom or is_provider(new.type):
            self.report_start(step)
            if new.custom:
                # A provider has no object: its id is random, as under the Pulumi CLI.
                new.id, new.outputs = new.id or str(uuid.uuid4()), dict(new.inputs)
            self._record_created(step, new)
            return []
        with self._record_pending_operation(step, "creating", new):
            created = self.host.create(
                new.urn,
                new.inputs,
                _get_timeout(new, "create"),
                new.provider,
                replaces=self._find_replaced_id(step),
            )
            new.id = created.id
            self._store_result(new, created)
            self._record_created(step, new)
        return list(created.init_errors)

    def _find_replaced_id(self, step: Step) -> str:
        """Return the id of the old object while both objects exist, or an empty string."""
        old = step.old
        still_exists = old is not None and not self.snapshot.is_pending_replacement(old)
        return old.id if still_exists and old is not None else ""

    def _record_created(self, step: Step, new: ResourceState) -> None:
        """Record the created entry: alone, instead of the old entry, or beside it.

        Instead of it if the old object is deleted already; beside it if its deletion follows.
        """
        old = step.old
        if old is None:
            self.snapshot.record_create(new)
        # The mark pendingReplacement stays until the replacement exists, so that a run that is
        # killed before creates it next time.
        elif self.snapshot.is_pending_replacement(old):
            self.snapshot.record_replacement(old, new)
        else:
            # Create first: the old entry stays with `delete: true` until the delete phase.
            self.snapshot.record_create_replacement(old, new)

    def _update_resource(self, step: Step) -> list[str]:
        """Update the object, record the entry, and return the object's init errors.

        With init errors the entry keeps the old inputs, so that the next run updates again. A
        component or provider has no object: only its entry is recorded, a component's without
        outputs, which follow later.
        """
        old, new = _require_both(step)
        new.id, new.created, new.modified = old.id, old.created, format_timestamp()
        if not new.custom or is_provider(new.type):
            self.report_start(step)
            if new.custom:
                new.outputs = dict(new.inputs)
            else:
                # The outputs of a component come only from RegisterResourceOutputs of this run.
                new.outputs, new.modified = {}, old.modified
            self.snapshot.record_replacement(old, new)
            return []
        with self._record_pending_operation(step, "updating", new):
            updated = self.host.update(
                new.urn, old.id, old.outputs, new.inputs, _get_timeout(new, "update"), new.provider
            )
            self._store_result(new, updated)
            if updated.init_errors:
                # Pulumi's rule for a partly failed update: old inputs with new outputs, so that the
                # next run finds the difference again.
                new.inputs = old.inputs
            self.snapshot.record_replacement(old, new)
        return list(updated.init_errors)

    def _store_result(self, new: ResourceState, result: Created) -> None:
        """Store the provider's outputs, secrets marked, and init errors in `new`."""
        new.outputs = result.outputs
        new.outputs = _mark_secret_outputs(new)
        new.init_errors = list(result.init_errors)

    def _record_import(self, step: Step) -> list[str]:
        """Record the entry of an imported object, which was read when the step was planned.

        It replaces an entry of the object that was only read so far.
        """
        self.report_start(step)
        new = _require_new(step)
        new.created = new.modified = format_timestamp()
        if step.old is None:
            self.snapshot.record_create(new)
        else:
            self.snapshot.record_replacement(step.old, new)
        return []

    def _read_resource(self, step: Step) -> list[str]:
        """Read the step's object into `step.new`, and record the result in the state.

        The entry of a replaced object stays for its deletion. Returns the object's init errors.
        """
        old, new = step.old, _require_new(step)
        with self._record_pending_operation(step, "reading", new):
            self._read_object(step)
            if old is None:
                self.snapshot.record_create(new)
            elif step.op is Op.READ or self.snapshot.is_pending_replacement(old):
                self.snapshot.record_replacement(old, new)
            else:
                self.snapshot.record_create_replacement(old, new)
        return list(new.init_errors)

    def _read_object(self, step: Step) -> None:
        """Read the object named by an id in the program, in previews too, and fill in `step.new`.

        An id still unknown in a preview reads nothing.

        Raises:
            EngineError: the object does not exist.
        """
        new, old = _require_new(step), step.old
        read_result = None
        # A preview: the id comes from a resource that does not exist yet.
        if new.id == values.UNKNOWN_TEXT:
            new.id = ""
            return
        if new.type == STACK_REFERENCE_TYPE:
            new.outputs = self.stack_references.read(new.inputs)
        else:
            read_result = self.host.read(
                new.urn, new.id, new.inputs, new.inputs, provider=new.provider
            )
            if read_result is None:
                raise EngineError(
                    f"resource '{new.id}' does not exist",
                    hint="check the id, and that the credentials belong to the owner of the object",
                )
            self._store_result(new, read_result[0])
            new.id = read_result[0].id
        if old is not None:
            # Compared before secrets are marked, as in Pulumi: an output that
            # `additional_secret_outputs` makes secret differs from the plain value that was read.
            read_outputs = new.outputs if read_result is None else read_result[0].outputs
            is_same = values.are_equal(new.inputs, old.inputs) and values.are_equal(
                read_outputs, old.outputs
            )
            new.created = old.created
            new.modified = old.modified if is_same else format_timestamp()

    def _delete_resource(self, step: Step) -> list[str]:
        """Delete the object, unless the step only forgets, and remove the object's entry.

        The entry of a deleted object that is to be replaced stays, marked so. The entry of an
        object that was missing already stays until `forget_missing_objects`, unless an interrupted
        run was deleting the object.
        """
        old = _require_old(step)
        started_at, causes = time.monotonic(), list[str]()
        with self._record_pending_operation(step, "deleting", old):
            if not step.is_forget_only:
                timeout = _get_timeout(old, "delete")
                self.host.delete(
                    old.urn, old.id, old.outputs, timeout, old.provider, on_gone=causes.append
                )
            if step.op is Op.DELETE_REPLACED and not old.delete:
                for cause in () if self.outside_deletions.is_expected(old) else causes:
                    self.outside_deletions.count_replaced(old, cause)
                # Marked only after the provider's delete has succeeded: the mark says that the
                # object is gone.
                self.snapshot.record_pending_replacement(old)
            elif causes and not self.outside_deletions.is_expected(old):
                self.outside_deletions.add(step, old, causes[0], started_at)
            else:
                self.snapshot.record_delete(old)
        return []

    def _remove_entry(self, step: Step) -> list[str]:
        """Remove the entry from the state without a request to a provider."""
        self.report_start(step)
        self.snapshot.record_delete(_require_old(step))
        return []

    def _report_only(self, step: Step) -> list[str]:
        """Report the logical step of a replacement; other steps make the provider calls."""
        self.report_start(step)
        return []

    @contextmanager
    def _record_pending_operation(
        self, step: Step, kind: str, resource: ResourceState
    ) -> Iterator[None]:
        """Record a pending operation in the state, then hold a provider call slot.

        The operation is removed at the end, unless a failed create may have created an object.
        """
        # Recorded before the call: a run that is killed meanwhile leaves the pending operation.
        token = self.snapshot.begin(kind, resource)
        is_settled = True
        try:
            with self.limit_provider_calls(step):
                yield
        except EngineError:
            # The failed request may have created an object. The pending operation stays, because
            # the search for this object needs the declared inputs.
            is_settled = kind != "creating" or not self.may_have_created(resource.urn)
            raise
        finally:
            if is_settled:
                self.snapshot.end(token)


def _describe_update(change: ResourceChange, removed_nodes: RemovedNodes | None) -> dict[str, Any]:
    """Return the fields of an update's change that follow from the nodes that it removes now.

    Nothing if the nodes are unknown.
    """
    if removed_nodes is None:
        return {}
    lost_gpus, gpus_added = removed_nodes.count_lost_gpus(), change.gpus_added
    if lost_gpus and removed_nodes.is_shrinking:
        gpus_added = 0  # whatever the state lacks: the object has more GPUs than declared
    elif lost_gpus and gpus_added is not None and change.gpus_removed is not None:
        # The state shows the balance of nodes that are exchanged by their names.
        gpus_added = max(0, gpus_added - change.gpus_removed + lost_gpus)
    leaving = removed_nodes if removed_nodes.nodes else None
    return {"leaving": leaving, "gpus_removed": lost_gpus, "gpus_added": gpus_added}


def _require_new(step: Step) -> ResourceState:
    """Return the step's new state. Raises AssertionError without one."""
    if step.new is None:
        raise AssertionError(f"{step.op} of {step.urn} has no new state")
    return step.new


def _require_old(step: Step) -> ResourceState:
    """Return the step's old state. Raises AssertionError without one."""
    if step.old is None:
        raise AssertionError(f"{step.op} of {step.urn} has no old state")
    return step.old


def _require_both(step: Step) -> tuple[ResourceState, ResourceState]:
    """Return the step's old and new state. Raises AssertionError if one is missing."""
    return _require_old(step), _require_new(step)


def _keep_outputs(old: ResourceState, new: ResourceState) -> PropertyMap:
    """Return the old outputs, plus the provider key for a resource leaving plugin form."""
    if not new.custom or PROVIDER_KEY not in new.inputs or PROVIDER_KEY in old.outputs:
        return old.outputs
    return {**old.outputs, PROVIDER_KEY: new.inputs[PROVIDER_KEY]}


def _mark_secret_outputs(new: ResourceState) -> PropertyMap:
    """Return the outputs of a new state with secrets marked."""
    # Providers get and return plain values; the engine marks secrets again, by Pulumi's rules.
    return values.mark_secret_outputs(new.outputs, new.inputs, new.additional_secret_outputs)


def _get_timeout(resource: ResourceState, verb: str) -> float | None:
    """Return the declared timeout of an operation such as `create` in seconds, or None."""
    return resource.custom_timeouts.get(verb)
