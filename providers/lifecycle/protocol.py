"""Implement Pulumi's dynamic provider once, so that platforms write typed operations only.

`Lifecycle` runs under gpuform's engine, the plugin and Pulumi's stock host. It alone handles
`__provider`, Pulumi's unknowns and doubles; all code below works on models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)

from gpuform.providers import lifetime
from gpuform.providers.context import (
    HostBoundary,
    ProviderContext,
    adapt_to_stock_host,
    get_current_context,
)
from gpuform.providers.environment import enter_environment
from gpuform.providers.errors import Cancelled, GpuformError, NotFound, NothingMade, Unfinished
from gpuform.providers.lifecycle.comparing import (
    apply_running_hours,
    compare_inputs,
    extract_inputs,
    find_changes,
    parse_inputs,
    select_import_inputs,
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
    require_change_permission,
    require_deletion_permission,
    require_foreign_deletion_permission,
    wait_and_build_outputs,
)
from gpuform.providers.lifecycle.traits import (
    Properties,
    Traits,
    extract_outputs,
    to_properties,
    to_pulumi,
)
from gpuform.providers.operations import (
    ForeignObjectLookup,
    NodeRemovalOperations,
    ResourceOperations,
    Settings,
)
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.records import PROPAGATION_TIME_S, Drains
from gpuform.schemas.changes import (
    FieldChange,
    find_refused_changes,
    requires_action,
    select_declared_fields,
)
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel, OutputModel, Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.values import UNKNOWN, contains_unknown

In = TypeVar("In", bound=InputModel)
Out = TypeVar("Out", bound=OutputModel)


class Lifecycle(Traits, ResourceProvider, Generic[In, Out]):
    """The lifecycle of one kind of resource of one platform.

    Instances are stateless for pickle: a state file has the class's dotted path, which is therefore
    fixed for ever. Outputs are the declared inputs in their declared types, each with the value
    last observed, and the computed outputs; an output with the name of an input has the platform's
    value. `ready` alone says whether the resource can be used. Methods are thread-safe, do not
    change their arguments, and raise only GpuformError.
    """

    serialize_as_secret_always = False  # there is no secret in a dotted path

    operations: ClassVar[type[ResourceOperations[Any, Any]]]

    _settings: Settings | None = None

    @classmethod
    def with_settings(cls, settings: Settings) -> Self:
        """Return a lifecycle of this kind that uses these settings for address and credentials."""
        lifecycle = cls()
        lifecycle._settings = settings
        return lifecycle

    def __getstate__(self) -> None:
        """Pickle nothing: the configuration of an instance stays in its process."""
        return

    def configure(self, req: ConfigureRequest) -> None:
        """Take settings which the environment lacks from the stack's configuration.

        In Pulumi's stock host, also adapts the host: see `adapt_to_stock_host`.
        """
        self._settings = Settings(config=req.config.get)
        adapt_to_stock_host()

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Return the declared inputs in normal form, and each problem with its property path.

        Unknown values are skipped. Only inputs that have no problem by themselves are completed and
        checked by the kind's operations, which ask the platform if it can be asked. Warns of former
        names of inputs.

        `_olds` are the stored inputs, empty for a new object. A change from them that the kind
        refuses, such as a smaller value of a field that may only grow, is a problem; an `expires`
        in the past is one only for a new object.
        """
        with self._create_host_boundary("check", _olds, news) as host_context:
            context = replace(host_context, stored_properties=to_properties(_olds))
            values, problems = validate_inputs(self.inputs, to_properties(news))
            for name, now in self.inputs.former_names.items():
                if news.get(name) is not None:
                    context.on_warning(f"{name} is now {now}: write {now}")
            # One group of problems after the other: each check needs inputs that passed the one
            # before.
            problems = problems or find_refused_changes(
                self.inputs, extract_inputs(self, context.stored_properties), values
            )
            problems = problems or list(
                lifetime.find_lifetime_problems(
                    self.power, values, is_new=not context.stored_properties
                )
            )
            if not problems:
                operations = self._open_operations()
                values, problems = self._complete_inputs(context, values)
                problems = problems or list(operations.find_planning_problems(context, values))
            failures = [
                CheckFailure(problem.path, context.redact(problem.reason)) for problem in problems
            ]
            return CheckResult(to_pulumi(values), failures)

    def list_changes(self, olds: Properties, news: Properties, id_: str = "") -> list[FieldChange]:
        """Return the changes between old outputs and new inputs, by which `diff` decides.

        Pure, except for the records of an interrupted removal of nodes and of interrupted creates
        of parts of the object. Without `id_` these records do not count.

        Raises:
            GpuformError: a node that a person requests to repair cannot be repaired as requested.
        """
        return self._compute_changes(
            id_,
            to_properties(olds),
            parse_inputs(self, to_properties(news)),
            _is_unclaimed(olds, news),
        )

    def _compute_changes(
        self, id_: str, old: Properties, declared: Properties, is_unclaimed: bool
    ) -> list[FieldChange]:
        """Return the changes between stored outputs and declared inputs of the object `id_`.

        Interrupted operations in the stack's records count as changes, too, and so does a resource
        that the state does not attribute to a program (`is_unclaimed`).
        """
        context = get_current_context()
        return find_changes(
            self,
            old,
            declared,
            is_interrupted=_was_interrupted(context, id_),
            is_unclaimed=is_unclaimed,
            begun_parts=self._find_begun_parts(context, id_, old),
        )

    def _find_begun_parts(
        self, context: ProviderContext, id_: str, old: Properties
    ) -> Sequence[str]:
        """Return the names of nodes or other parts that an interrupted update may have created."""
        if not self.parts_field or not id_:
            return ()
        return context.intents.find_begun_parts(context.urn, id_, old.get(self.parts_field) or ())

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Return whether the new inputs need an update or a replacement; send no request.

        Raises:
            NotAllowed: under gpuform's engine, outside a refresh: the run lacks a permission for
                the change or replacement.
            GpuformError: a node that a person requests to repair cannot be repaired as requested;
                or under gpuform's engine, outside a refresh: the platform refuses such a change in
                place, and no other change replaces the object.
        """
        return self.diff_with_changes(_id, _olds, _news)[0]

    def diff_with_changes(
        self, _id: str, _olds: Properties, _news: Properties
    ) -> tuple[DiffResult, list[FieldChange]]:
        """Return the answer of `diff`, and the changes by which `diff` decides.

        In a refresh, due repairs and the records of interrupted operations do not count.

        Raises:
            NotAllowed: under gpuform's engine, outside a refresh: the run lacks a permission for
                the change or replacement.
            GpuformError: a node that a person requests to repair cannot be repaired as requested;
                or under gpuform's engine, outside a refresh: the platform refuses such a change in
                place, and no other change replaces the object.
        """
        with self._create_host_boundary("diff", _olds, _news) as context:
            # Pulumi's hosts do not say whether somebody plans, or shows what a refresh found:
            # update and delete refuse what may not be done.
            is_planning = (
                context.urn is not None and not context.refreshing and not context.is_pulumi_host
            )
            old, declared = to_properties(_olds), parse_inputs(self, to_properties(_news))
            recorded_for = "" if context.refreshing else _id
            changes = self._compute_changes(
                recorded_for, old, declared, _is_unclaimed(_olds, _news)
            )
            if context.refreshing:  # that a node is broken is news, and no drift
                changes = [change for change in changes if change.repair is None]
            replaces = [change.path for change in changes if change.replaces]
            if is_planning:
                refuse_impossible(self, old, declared)
                if replaces:
                    require_deletion_permission(
                        context.run, self, old, f"this change replaces it ({', '.join(replaces)})"
                    )
                else:
                    require_change_permission(context.run, self, old, declared)
            creates_first = self.hooks.should_create_first(declared)
            result = DiffResult(
                changes=requires_action(changes),
                replaces=replaces,
                delete_before_replace=bool(replaces) and not creates_first,
            )
            return result, changes

    def create(self, props: Properties) -> CreateResult:
        """Create the object, wait until the object is ready, and return its id and outputs.

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
        with self._create_host_boundary("create", props) as host_context:
            context = replace(host_context, stored_properties={})
            context.start_deadline(self.timeouts.create)
            declared = self._validate_declared(props)
            operations, desired_inputs = (
                self._open_operations(),
                self.inputs.model_validate(declared),
            )
            # Holds the claim on the name until the object is visible under it.
            with context.progress.exit_stack:
                id_, outs = self._create_and_wait(context, operations, desired_inputs, declared)
            self._refuse_unready(context, outs)
            if context.urn is None:
                # Nobody would recover the intent later. Another host may be gone before it gets
                # this answer: its next call about the object shows that it has stored the id.
                context.intents.forget(
                    id_=id_, stored=outs.get(self.parts_field) if self.parts_field else None
                )
            return CreateResult(id_, outs)

    def _create_and_wait(
        self,
        context: ProviderContext,
        operations: ResourceOperations[Any, Any],
        desired_inputs: Any,
        declared: Properties,
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
        id_ = operations.create(context, desired_inputs)
        began = context.clock.now()
        while True:
            context.progress.just_created = True
            try:
                return id_, wait_and_build_outputs(
                    self, self._open_operations, context, id_, declared, {}
                )
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
        with self._create_host_boundary("create", props) as context:
            context.progress.is_search_only = True
            context.start_deadline(self.timeouts.create)
            declared = self._validate_declared(props)
            operations, desired_inputs = (
                self._open_operations(),
                self.inputs.model_validate(declared),
            )
            with context.progress.exit_stack:
                try:
                    id_ = operations.create(context, desired_inputs)
                except NothingMade:
                    refuse_other_interrupted_creates(context)
                    return None
            known = replace(context, stored_properties={**declared, "ready": False})
            observed = operations.read(known, id_, declared)
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

    @classmethod
    def predict_outputs(cls, news: Properties) -> Properties:
        """Return the outputs known while planning: declared inputs, and UNKNOWN for all others.

        An update may change any computed output.
        """
        computed = dict.fromkeys(cls.outputs.model_fields, UNKNOWN)
        return {**validate_inputs(cls.inputs, to_properties(news))[0], **computed}

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
        with self._create_host_boundary("read", props) as host_context:
            context = replace(host_context, stored_properties=to_properties(props))
            known_inputs = parse_inputs(self, extract_inputs(self, context.stored_properties))
            observed = read_confirming_absence(
                self, self._open_operations, context, id_, known_inputs
            )
            # The state has the id by now: nobody has to search for the object any more.
            self._forget_stored_intents(context, id_)
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
        with self._create_host_boundary("update", _olds, _news) as host_context:
            old = to_properties(_olds)
            context = replace(host_context, stored_properties=old)
            context.start_deadline(self.timeouts.update)
            declared = apply_running_hours(self, old, self._validate_declared(_news))
            self._forget_stored_intents(context, _id)
            refuse_impossible(self, old, declared)
            require_change_permission(context.run, self, old, declared)
            changes = compare_inputs(self, old, declared)
            sent_changes = [change for change in changes if change.is_sent]
            if (
                sent_changes
                or _was_interrupted(context, _id)
                or self._find_begun_parts(context, _id, old)
            ):
                desired_inputs = self.inputs.model_validate(declared)
                try:
                    self._open_operations().update(context, _id, desired_inputs, sent_changes)
                except NotFound as error:
                    raise_if_gone(self._open_operations, context, _id, error.message)
                    raise
                # The old outputs stay, so that the next run computes the same changes again.
                except Unfinished as error:
                    return UpdateResult(self._build_unfinished_outputs(context, old, error))
            # Stored again if the wait fails before it has observed the object.
            computed = {key: old[key] for key in self.outputs.model_fields if key in old}
            outs = wait_and_build_outputs(
                self, self._open_operations, context, _id, declared, computed
            )
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
        """Delete the object and wait until the object is gone; a missing object is no error.

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
        with self._create_host_boundary("delete", _props) as host_context:
            context = replace(host_context, stored_properties=to_properties(_props))
            known_inputs = parse_inputs(self, extract_inputs(self, context.stored_properties))
            require_deletion_permission(
                context.run, self, context.stored_properties, "the run would delete it"
            )
            refuse_interrupted_creates(context)
            context.start_deadline(self.timeouts.delete)
            if not self.is_bound:
                check_before_deletion(self, self._open_operations, context, _id, known_inputs)
            # Nodes of a deleted object may live on in their scheduler, cordoned.
            if context.progress.was_already_deleted:
                self._uncordon_leftover_nodes(context, _id, known_inputs)
            else:
                delete_and_confirm(self, self._open_operations, context, _id, known_inputs)
                Drains.from_intents(context.intents).forget(_id)
            context.intents.forget(urn=context.urn, id_=_id)

    def _uncordon_leftover_nodes(
        self, context: ProviderContext, id_: str, known: Properties
    ) -> None:
        """Uncordon the nodes which an interrupted removal left cordoned in a deleted object.

        Then deletes the record of the removal. Does nothing without such a record, or for a kind
        without nodes.

        Raises:
            GpuformError: nodes may still be cordoned; the record stays.
        """
        operations = self._open_operations()
        if _was_interrupted(context, id_) and isinstance(operations, NodeRemovalOperations):
            operations.uncordon_leftover_nodes(context, id_, known)
            Drains.from_intents(context.intents).forget(id_)

    def _try_uncordon_leftover_nodes(
        self, context: ProviderContext, id_: str, known: Properties
    ) -> None:
        """Uncordon nodes left by an interrupted removal; warn on failure. Nothing in a preview."""
        # A preview changes nothing, not even a scheduler.
        if context.preview:
            return
        try:
            self._uncordon_leftover_nodes(context, id_, known)
        except GpuformError as error:
            context.on_warning(str(error))

    def predict_removed_nodes(
        self, id_: str, olds: Properties, news: Properties
    ) -> RemovedNodes | None:
        """Return the nodes that an update removes, with their present jobs.

        Returns None if the update removes no node, if the nodes are unknown, if the new inputs are
        invalid or partly unknown, and for a kind without nodes. `context.on_skipped_check` gets the
        name of a scheduler that did not answer.

        Raises:
            GpuformError: the declaration names nodes that do not exist.
        """
        with self._create_host_boundary("plan", olds, news) as host_context:
            context = replace(host_context, stored_properties=to_properties(olds))
            values, problems = validate_inputs(self.inputs, to_properties(news))
            if problems or contains_unknown(values):
                return None
            operations, desired_inputs = self._open_operations(), self.inputs.model_validate(values)
            return (
                operations.predict_removed_nodes(context, id_, desired_inputs)
                if isinstance(operations, NodeRemovalOperations)
                else None
            )

    def predict_nodes_removed_with_object(
        self, id_: str, olds: Properties, because: str
    ) -> RemovedNodes | None:
        """Return the nodes that a planned end of the object removes, with their running jobs.

        None if there are no nodes, or if nobody knows their jobs: `context.on_skipped_check` then
        receives the reason. `because` says what happens to the object.

        Raises:
            Cancelled: the run was interrupted.
        """
        with self._create_host_boundary("plan", olds) as host_context:
            context = replace(host_context, stored_properties=to_properties(olds))
            operations, known_inputs = (
                self._open_operations(),
                parse_inputs(self, extract_inputs(self, context.stored_properties)),
            )
            if not isinstance(operations, NodeRemovalOperations):
                return None
            try:
                return operations.predict_nodes_removed_with_object(
                    context, id_, known_inputs, because
                )
            except Cancelled:
                raise
            # A plan without the jobs is better than none: the operation itself asks again, and
            # refuses.
            except GpuformError as error:
                context.on_skipped_check(
                    f"the nodes removed with it, and their jobs: {error.message}"
                )
                return None

    def find_foreign_objects(self, id_: str, olds: Properties) -> Sequence[str]:
        """Return, while planning, the names of objects by others inside this one.

        Empty if there are none, if the kind has no such lookup, or if the platform could not be
        asked: then `context.on_skipped_check` receives the reason, and the deletion itself asks
        again. The deletion of an object with such objects needs the permission `destroy-others`.

        Raises:
            Cancelled: the run was interrupted.
        """
        with self._create_host_boundary("plan", olds) as host_context:
            context = replace(host_context, stored_properties=to_properties(olds))
            try:
                operations, known_inputs = (
                    self._open_operations(),
                    parse_inputs(self, extract_inputs(self, context.stored_properties)),
                )
                if not isinstance(operations, ForeignObjectLookup):
                    return ()
                return operations.find_foreign_objects(context, id_, known_inputs)
            except Cancelled:
                raise
            except GpuformError as error:
                context.on_skipped_check(f"the objects of others in {id_}: {error.message}")
                return ()

    def check_deletion(self, props: Properties, others: Sequence[str] = ()) -> None:
        """Raise an error while planning if a later delete would be refused; send no request.

        `others` are the names from `find_foreign_objects`: any need the permission
        `destroy-others`. A guarded object needs the guard's permission, decided by the stored
        outputs `props`. Without an error, warns of what a deletion leaves behind, if the kind has a
        `deletion_note`.

        Raises:
            NotAllowed: the run lacks one of the permissions.
        """
        with self._create_host_boundary("delete", props) as context:
            require_deletion_permission(
                context.run, self, to_properties(props), "the run would delete it"
            )
            require_foreign_deletion_permission(context.run, others, self.kind)
            if self.deletion_note:
                context.on_warning(self.deletion_note)

    def _complete_inputs(
        self,
        context: ProviderContext,  # noqa: ARG002 - a hook
        values: Properties,
    ) -> tuple[Properties, list[Problem]]:
        """Return valid inputs completed by the platform, and the problems of the result.

        By default the inputs themselves, and no problems. `context.stored_properties` has the
        stored inputs. May be called again with its own result.
        """
        return values, []

    def _forget_stored_intents(self, context: ProviderContext, id_: str) -> None:
        """Delete the records of creates whose objects are in the state.

        A create of parts of which the state lacks one is kept.
        """
        stored = context.stored_properties.get(self.parts_field, ()) if self.parts_field else None
        context.intents.forget(urn=context.urn, id_=id_, stored=stored)

    def _open_operations(self) -> ResourceOperations[Any, Any]:
        """Return the kind's operations in the stack's own environment. Raises WrongEnvironment."""
        settings = self._settings or Settings()
        # Before any request: a run on the emulator must never reach a real platform.
        enter_environment(get_current_context(), self.platform, settings)
        return type(self).operations(settings)

    def _validate_declared(self, props: Properties) -> Properties:
        """Return inputs in their declared types. Raises GpuformError if they are not valid."""
        values, problems = validate_inputs(self.inputs, to_properties(props))
        if problems:
            raise GpuformError("; ".join(f"{p.path}: {p.reason}" for p in problems))
        return values

    def _create_host_boundary(self, verb: str, *property_maps: Mapping[str, Any]) -> HostBoundary:
        """Return the context manager around a host's call, with the secrets to hide in messages.

        `verb` names the call; the secret values in `property_maps` are hidden, too.
        """
        secrets = (self._settings or Settings()).list_secrets()
        names = self.list_secret_names()
        values = (properties.get(name) for properties in property_maps for name in names)
        return HostBoundary(verb, f"a {self.platform} {self.kind}", (*secrets, *values))


def _is_unclaimed(olds: Properties, news: Properties) -> bool:
    """Return True if the program names the provider of the resource, and the state does not."""
    return PROVIDER_KEY in news and PROVIDER_KEY not in olds


def _was_interrupted(context: ProviderContext, id_: str) -> bool:
    """Return True if the stack's records have an unfinished removal of the object's nodes."""
    return bool(id_) and Drains.from_intents(context.intents).find(id_) is not None
