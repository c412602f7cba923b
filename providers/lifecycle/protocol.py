"""Implement Pulumi's dynamic provider once, so that platforms write typed operations only.

`Lifecycle` runs under gpuform's engine, the plugin and Pulumi's stock host. With `PlannedKind`,
its base for plans, it alone handles `__provider`, Pulumi's unknowns and doubles; all other code
works on models.
"""

from dataclasses import replace
from typing import Generic, TypeVar

from pulumi.dynamic import ConfigureRequest, CreateResult, ReadResult, UpdateResult

from gpuform.providers.context import ProviderContext, adapt_to_stock_host
from gpuform.providers.errors import GpuformError, NotFound, NothingMade, Unfinished
from gpuform.providers.lifecycle.comparing import (
    apply_running_hours,
    compare_inputs,
    find_begun_parts,
    parse_stored_inputs,
    select_import_inputs,
    was_interrupted,
)
from gpuform.providers.lifecycle.guarding import (
    INTERRUPTED,
    ObjectGone,
    check_before_deletion,
    delete_and_confirm,
    raise_if_gone,
    read_confirming_absence,
    refuse_impossible,
    refuse_interrupted_creates,
    refuse_other_interrupted_creates,
    refuse_shared_object,
    require_change_permission,
    require_deletion_permission,
    wait_and_build_outputs,
)
from gpuform.providers.lifecycle.planning import PlannedKind
from gpuform.providers.lifecycle.traits import Properties, extract_outputs, to_properties
from gpuform.providers.operations import NodeRemovalOperations, Settings
from gpuform.providers.records import PROPAGATION_TIME_S, Drains
from gpuform.schemas.changes import select_declared_fields
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel, OutputModel

In = TypeVar("In", bound=InputModel)
Out = TypeVar("Out", bound=OutputModel)


class Lifecycle(PlannedKind, Generic[In, Out]):
    """The lifecycle of one kind of resource of one platform.

    Instances are stateless for pickle: a state file has the class's dotted path, which is therefore
    fixed for ever. Outputs are the declared inputs in their declared types, each with the value
    last observed, and the computed outputs; an output with the name of an input has the platform's
    value. `ready` alone says whether the resource can be used. Methods are thread-safe, do not
    change their arguments, and raise only GpuformError.
    """

    serialize_as_secret_always = False  # there is no secret in a dotted path

    def __getstate__(self) -> None:
        """Pickle nothing: the configuration of an instance stays in its process."""
        return

    def configure(self, req: ConfigureRequest) -> None:
        """Take settings which the environment lacks from the stack's configuration.

        In Pulumi's stock host, also adapts the host: see `adapt_to_stock_host`.
        """
        self._settings = Settings(config=req.config.get)
        adapt_to_stock_host()

    def create(self, props: Properties) -> CreateResult:
        """Create the object, wait until it is ready, and return its id and outputs.

        An object that an interrupted create of this resource has made is taken over and waited for,
        instead of creating another one. Once the platform has shown the object, its id is returned,
        with `ready: false` and the reason if the wait fails. Under a host that reports no URN, the
        record of the create is deleted at the end.

        Raises:
            AdoptionQuestion: it is unknown whether an existing object is that of an interrupted
                create.
            GpuformError: nothing was created; the outcome is unknown; the platform does not show
                the object that it answered with, and the record of the create keeps the id; or a
                kind without an object is not ready under a host that cannot store such a state.
        """
        with self._begin_call("create", {}, props) as context:
            context.start_deadline(self.timeouts.create)
            declared = self._validate_declared(props)
            # Holds the claim on the name until the object is visible under it.
            with context.progress.exit_stack:
                id_, outs = self._create_and_wait(context, declared)
            self._refuse_unready(context, outs)
            if context.urn is None:
                # Nobody would recover the intent later. Another host may be gone before it gets
                # this answer: its next call about the object shows that it has stored the id.
                context.intents.forget(
                    id_=id_, stored=outs.get(self.parts_field) if self.parts_field else None
                )
            return CreateResult(id_, outs)

    def _create_and_wait(
        self, context: ProviderContext, declared: Properties
    ) -> tuple[str, Properties]:
        """Create the object, wait until it is ready, and return its id and outputs.

        An object that an interrupted create has made is taken over instead. Platforms answer a
        create before lookups show the object: a missing object is searched for like that of an
        interrupted create.

        Raises:
            ObjectGone: the search finds nothing, or the object stays missing for longer than the
                propagation time.
            GpuformError: as `create`.
        """
        operations, desired_inputs = self.open_operations(), self.inputs.model_validate(declared)
        id_ = operations.create(context, desired_inputs)
        began = context.clock.now()
        while True:
            context.progress.just_created = True
            try:
                return id_, wait_and_build_outputs(self, context, id_, declared, {})
            except ObjectGone as gone:
                if context.clock.now() - began > PROPAGATION_TIME_S:
                    raise
                # The platform answered with an id: from now on only search, because a second
                # request could make a second object.
                context.progress.just_created, context.progress.is_search_only = False, True
                context.progress.exit_stack.close()  # it claims the name again
                try:
                    id_ = operations.create(context, desired_inputs)
                except NothingMade:
                    raise gone from None
                finally:
                    context.progress.is_search_only = False

    def _refuse_unready(self, context: ProviderContext, outs: Properties) -> None:
        """Raise GpuformError for a check that is not ready, if the host cannot store such a state.

        Only for kinds that create no object.
        """
        if self.creates_no_object and not context.can_store_unready and outs.get("ready") is False:
            raise GpuformError(
                str(outs.get("not_ready_reason")),
                hint="remove the cause, and run the command again; nothing was created",
            )

    def recover_create(self, props: Properties) -> CreateResult | None:
        """Return the object that an interrupted create has made, or None if no object was made.

        The outputs have `ready: false`, because nobody has waited for the object. Sends no changing
        request. Waits only while lists may lag behind.

        Raises:
            AdoptionQuestion: it is unknown which object is ours.
            UnknownOutcome: an interrupted create under an earlier declaration may have made an
                object.
            GpuformError: the platform does not answer, or does not show the object that it listed.
        """
        with self._begin_call("create", {}, props) as context:
            context.progress.is_search_only = True
            context.start_deadline(self.timeouts.create)
            declared = self._validate_declared(props)
            operations = self.open_operations()
            with context.progress.exit_stack:
                try:
                    id_ = operations.create(context, self.inputs.model_validate(declared))
                except NothingMade:
                    refuse_other_interrupted_creates(context)
                    return None
            unready_context = replace(context, stored_properties={**declared, "ready": False})
            observed = operations.read(unready_context, id_, declared)
            if observed is None:
                raise GpuformError(
                    f"{id_}: the record of a create names this object, but the platform "
                    "does not show the object",
                    hint="run the command again: it looks for the object again before it removes "
                    "the object from the state",
                )
            inputs = select_declared_fields(self.inputs, observed.inputs, declared)
            observed_properties = {**inputs, **extract_outputs(self, context, observed)}
            # Not ready, so that the next update compares the object and waits for it.
            unready = {"ready": False, "not_ready_reason": INTERRUPTED}
            return CreateResult(id_, {**declared, **observed_properties, **unready})

    def read(self, id_: str, props: Properties) -> ReadResult:
        """Return the object as of now, as outputs and as inputs; an empty id if the object is gone.

        Where lookups may lag behind, a missing object is looked up again until the propagation time
        is over. Known inputs get the platform's values where the platform returns them. Without
        known inputs (an import), the inputs are those that the platform reports, without documented
        defaults. Deletes the records of creates whose objects the state has. If the object is gone,
        nodes of an interrupted removal are uncordoned, except in a preview.

        Raises:
            GpuformError: the platform does not answer, or contradicts its own answer.
        """
        with self._begin_call("read", props) as context:
            known_inputs = parse_stored_inputs(self, context.stored_properties)
            observed = read_confirming_absence(self, context, id_, known_inputs)
            # The state has the id by now: nobody has to search for the object any more.
            self._forget_stored_intents(context, id_, exists=observed is not None)
            if observed is None:
                self._try_uncordon_leftover_nodes(context, id_, known_inputs)
                return ReadResult("", {})
            if known_inputs:
                inputs = select_declared_fields(self.inputs, observed.inputs, known_inputs)
            else:
                inputs = select_import_inputs(self, observed.inputs)
            return ReadResult(id_, {**inputs, **extract_outputs(self, context, observed)}, inputs)

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Send the changed fields, if any, and wait until the object is as declared.

        Also ends an interrupted removal of nodes and interrupted creates of parts, and deletes the
        records of creates whose objects the state has. Safe to repeat: without a change the update
        only continues to wait. If the wait fails, or nobody knows whether a change is done, the
        outputs have `ready: false` and the reason.

        Raises:
            GpuformError: the platform refuses such a change, the run lacks a permission, or the
                object is gone; under a host that cannot store an unready resource, also if nobody
                knows whether a change is done.
        """
        with self._begin_call("update", _olds, _news) as context:
            old = {**context.stored_properties}
            context.start_deadline(self.timeouts.update)
            declared = apply_running_hours(self, old, self._validate_declared(_news))
            self._forget_stored_intents(context, _id)
            refuse_impossible(self, old, declared)
            require_change_permission(context.run, self, old, declared)
            changes = compare_inputs(self, old, declared)
            sent_changes = [change for change in changes if change.is_sent]
            is_interrupted = was_interrupted(context, _id)
            if sent_changes or is_interrupted or find_begun_parts(self, context, _id, old):
                desired_inputs = self.inputs.model_validate(declared)
                try:
                    self.open_operations().update(context, _id, desired_inputs, sent_changes)
                except NotFound as error:
                    raise_if_gone(self, context, _id, error.message)
                    raise
                # The old outputs stay, so that the next run computes the same changes again.
                except Unfinished as error:
                    return UpdateResult(self._build_unfinished_outputs(context, old, error))
            # Stored again if the wait fails before it has observed the object.
            computed = {key: old[key] for key in self.outputs.model_fields if key in old}
            outs = wait_and_build_outputs(self, context, _id, declared, computed)
            self._refuse_unready(context, outs)
            return UpdateResult(outs)

    def _build_unfinished_outputs(
        self, context: ProviderContext, old: Properties, error: Unfinished
    ) -> Properties:
        """Return the stored outputs with `ready: false` and the error as the reason.

        Adds the reason to `context.progress.init_errors`. Raises the error if the host cannot store
        a resource that is not ready.
        """
        if not context.can_store_unready:
            raise error
        reason = context.redact(str(error))
        context.progress.init_errors.append(reason)
        outs = {name: old[name] for name in self.list_property_names() if name in old}
        return {**outs, "ready": False, "not_ready_reason": reason}

    def delete(self, _id: str, _props: Properties) -> None:
        """Delete the object and wait until it is gone; a missing object is no error.

        A protected object needs the permission of the kind's `find_deletion_guard`, and an object
        in which others have created objects needs `destroy-others`. Protection counts as stored,
        and as the platform shows it now, except for a kind that only binds an object (`is_bound`):
        such an object is not read first. Also uncordons nodes of an interrupted removal, and
        deletes the records of the object. gpuform's engine forgets at most two missing objects
        without `--allow forget-many`. In the stock host the first delete of `pulumi destroy`
        refuses to abandon what interrupted creates made; the plugin refuses that when it is
        configured. Under the stock host and the plugin each call stands for itself: the Pulumi
        engine forgets every object that the platform, uncontradicted, reports as gone.

        Raises:
            NotAllowed: the run lacks a permission; nothing was deleted.
            GpuformError: the platform refuses, or the object is still there at the deadline.
        """
        with self._begin_call("delete", _props) as context:
            known_inputs = parse_stored_inputs(self, context.stored_properties)
            require_deletion_permission(
                context.run, self, context.stored_properties, "the run would delete it"
            )
            refuse_interrupted_creates(context)
            refuse_shared_object(self, context, _id)
            context.start_deadline(self.timeouts.delete)
            if not self.is_bound:
                check_before_deletion(self, context, _id, known_inputs)
            # Nodes of a deleted object may live on in their scheduler, cordoned.
            if context.progress.was_already_deleted:
                self._uncordon_leftover_nodes(context, _id, known_inputs)
            else:
                delete_and_confirm(self, context, _id, known_inputs)
                Drains.from_intents(context.intents).forget(_id)
            context.intents.forget(urn=context.urn, id_=_id)

    def _uncordon_leftover_nodes(
        self, context: ProviderContext, id_: str, known_inputs: Properties
    ) -> None:
        """Uncordon the nodes which an interrupted removal left cordoned in a deleted object.

        Then deletes the record of the removal. Does nothing without such a record, or for a kind
        without nodes.

        Raises:
            GpuformError: nodes may still be cordoned; the record stays.
        """
        operations = self.open_operations()
        if was_interrupted(context, id_) and isinstance(operations, NodeRemovalOperations):
            operations.uncordon_leftover_nodes(context, id_, known_inputs)
            Drains.from_intents(context.intents).forget(id_)

    def _try_uncordon_leftover_nodes(
        self, context: ProviderContext, id_: str, known_inputs: Properties
    ) -> None:
        """Uncordon nodes left by an interrupted removal; warn on failure. Nothing in a preview."""
        # A preview changes nothing, not even a scheduler.
        if context.preview:
            return
        try:
            self._uncordon_leftover_nodes(context, id_, known_inputs)
        except GpuformError as error:
            context.on_warning(str(error))

    def _forget_stored_intents(
        self, context: ProviderContext, id_: str, *, exists: bool = True
    ) -> None:
        """Delete the records of creates whose objects are in the state.

        A create of parts of which the state lacks one is kept. An object that no longer exists
        resolves no create of unknown result: such a create may have replaced the object.
        """
        stored = context.stored_properties.get(self.parts_field, ()) if self.parts_field else None
        values = context.stored_properties.values() if exists else ()
        object_names = {value for value in values if isinstance(value, str)}
        context.intents.forget(urn=context.urn, id_=id_, stored=stored, object_names=object_names)

    def _validate_declared(self, props: Properties) -> Properties:
        """Return inputs in their declared types. Raises GpuformError if they are not valid."""
        values, problems = validate_inputs(self.inputs, to_properties(props))
        if problems:
            raise GpuformError("; ".join(f"{p.path}: {p.reason}" for p in problems))
        return values
