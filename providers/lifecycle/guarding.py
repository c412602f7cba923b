"""Refuse operations that are not allowed, and wait until an object is ready.

`Lifecycle` calls these functions around its requests. All raise GpuformError. `Lifecycle.create`
and `Lifecycle.update` call `wait_and_build_outputs`.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.providers.context import (
    ProviderContext,
    RunContext,
    describe_unexpected_error,
    format_duration,
)
from gpuform.providers.errors import Cancelled, GpuformError, NotReady, UnknownOutcome
from gpuform.providers.evidence import FORGET_OBJECT, Observation, require_evidence
from gpuform.providers.lifecycle.comparing import apply_running_hours, extract_inputs
from gpuform.providers.lifecycle.traits import Properties, Traits, extract_outputs
from gpuform.providers.operations import ForeignObjectLookup, Observed
from gpuform.providers.permissions import Permission
from gpuform.providers.records import (
    PROPAGATION_TIME_S,
    is_pulumi_destroy,
    list_owner_urns,
    refuse_incomplete_destroy,
    to_dynamic_urn,
)
from gpuform.schemas.changes import find_refused_changes

RECHECK_INTERVAL_S = 20.0
"""Seconds between reads of an object that the platform does not show."""


def refuse_impossible(kind: Traits, old: Properties, declared: Properties) -> None:
    """Raise GpuformError if the new inputs need a change in place that the platform refuses.

    Such a change is a smaller value of a field that can only grow; nothing is refused if another
    change replaces the object, because a new object may have any size. A requested end of a repair
    that cannot be ended any more is refused, too. `old` are the stored outputs.
    """
    problems = find_refused_changes(kind.inputs, extract_inputs(kind, old), declared)
    if problems:
        raise GpuformError("; ".join(f"{p.path} {p.reason}" for p in problems))
    refusal = kind.hooks.decide_repairs(old, declared).refusal
    if refusal is not None:
        raise refusal


def require_deletion_permission(
    run: RunContext, kind: Traits, old: Mapping[str, Any], action: str
) -> None:
    """Raise NotAllowed if the object has a deletion guard whose permission `run` lacks.

    The kind's `find_deletion_guard` decides by `old`, the stored or observed properties. `action`
    says what would happen (a deletion or replacement), for the message.
    """
    guard = kind.hooks.find_deletion_guard(old)
    if guard is not None:
        run.require_permission(guard.permission, f"{guard.because}: {action}")


def require_change_permission(
    run: RunContext, kind: Traits, old: Properties, declared: Properties
) -> None:
    """Raise NotAllowed if the kind guards this change in place and `run` lacks the permission.

    The kind's `find_change_guard` decides, by the stored outputs `old` and by the `declared` inputs
    after running hours were applied.
    """
    guard = kind.hooks.find_change_guard(old, apply_running_hours(kind, old, declared))
    if guard is not None:
        run.require_permission(guard.permission, guard.because)


def check_before_deletion(
    kind: Traits,
    context: ProviderContext,
    object_id: str,
    known_inputs: Properties,
) -> None:
    """Read the object, and raise NotAllowed if the run lacks a permission to delete it.

    The object counts as the platform shows it, not as declared or stored. A protected object needs
    the permission of the kind's `find_deletion_guard`, one in which others have created objects
    `destroy-others`. A missing object needs none. Sets `was_already_deleted` of the context to
    whether the object is missing.

    Raises:
        NotAllowed: a permission is missing.
        NotEnoughEvidence: the object is missing, but not for the whole propagation time.
        GpuformError: the platform does not answer.
    """
    observed = read_confirming_absence(kind, context, object_id, known_inputs)
    context.progress.was_already_deleted = observed is None
    if observed is not None:
        # What the platform shows now comes last: the state may be older than the object's
        # protection.
        current = {
            **context.stored_properties,
            **observed.inputs,
            **extract_outputs(kind, context, observed),
        }
        require_deletion_permission(
            context.run, kind, current, "the platform reports this, and the run would delete it"
        )
        operations = kind.open_operations()
        if isinstance(operations, ForeignObjectLookup):
            others = operations.find_foreign_objects(context, object_id, known_inputs)
            require_foreign_deletion_permission(context.run, others, kind.kind)


def require_foreign_deletion_permission(run: RunContext, others: Sequence[str], kind: str) -> None:
    """Raise NotAllowed if there are `others` and `run` lacks the permission `destroy-others`.

    `others` are the names of objects that others created inside the object, and that its deletion
    would delete; without any nothing is required. `kind` names the kind of the object for the
    message.
    """
    if others:
        run.require_permission(
            Permission.DESTROY_OTHERS,
            f"this {kind} contains {', '.join(others)}, created by others: deleting the "
            f"{kind} deletes these objects as well",
        )


def read_confirming_absence(
    kind: Traits,
    context: ProviderContext,
    object_id: str,
    known_inputs: Properties,
) -> Observed[Any] | None:
    """Return the object, or None if it is gone: not shown during the whole propagation time.

    A replica that lags behind hides an object for a while, and its list agrees. So a missing object
    is read again until the propagation time is over. One answer suffices if the kind is not
    eventually consistent, and if nothing would be forgotten: in a preview, and for an object that
    no state has.

    Raises:
        NotEnoughEvidence: the deadline passed before the propagation time.
        GpuformError: the platform does not answer.
    """
    observed_object = kind.open_operations().read(context, object_id, known_inputs)
    if (
        observed_object is not None
        or not kind.is_eventually_consistent
        or context.preview
        or "ready" not in context.stored_properties
    ):
        return observed_object
    # Counted from the first miss: nobody knows when the object was deleted.
    missed_at = context.clock.now()
    context.on_progress(
        f"{object_id} is missing on {kind.platform}: looking again before it counts as removed"
    )
    with context.extend_deadline(PROPAGATION_TIME_S):
        while observed_object is None:
            remaining = missed_at + PROPAGATION_TIME_S - context.clock.now()
            missing_for = format_duration(PROPAGATION_TIME_S - remaining)
            missing = [f"the object has been missing for only {missing_for}"]
            observed = Observation("its list and its lookup", missing if remaining > 0 else [])
            # At the deadline, too: `require_evidence` then raises, because the object was not
            # missed long enough.
            if remaining <= 0 or context.compute_remaining_seconds() == 0:
                require_evidence(FORGET_OBJECT, f"{kind.platform}: {object_id}", observed)
                break
            context.sleep(min(RECHECK_INTERVAL_S, remaining))
            observed_object = kind.open_operations().read(context, object_id, known_inputs)
    return observed_object


def delete_and_confirm(
    kind: Traits,
    context: ProviderContext,
    object_id: str,
    known_inputs: Properties,
) -> None:
    """Delete the object, and repeat until the platform has certainly deleted it.

    Only a deletion that the platform accepted, or an object that stays hidden for the propagation
    time, counts as gone. One delete suffices for a kind that is not eventually consistent.

    Raises:
        NotEnoughEvidence: the deadline passed before the propagation time.
        GpuformError: the platform refuses or does not answer.
    """
    while True:
        accepted = context.progress.accepted_deletions
        kind.open_operations().delete(context, object_id, known_inputs)
        # An accepted DELETE proves the end; a 404 may come from a replica that lags behind.
        if context.progress.accepted_deletions > accepted or not kind.is_eventually_consistent:
            return
        if read_confirming_absence(kind, context, object_id, known_inputs) is None:
            return


def refuse_interrupted_creates(context: ProviderContext) -> None:
    """Raise GpuformError if a `pulumi destroy` would leave objects of interrupted creates behind.

    Only in the dynamic form. The first delete of the process decides for all: the destroy itself
    changes the state.

    Raises:
        GpuformError: an interrupted create has made, or may have made, an object.
    """
    if context.can_store_unready or not context.is_pulumi_host:
        return
    # Decided once: the deletes of the destroy change the state from which the answer follows.
    with _deciding:
        if not _decided:
            try:
                refuse_incomplete_destroy(context.intents, creates_anew=context.run.creates_anew)
            except GpuformError as error:
                _decided.append(error)
            else:
                _decided.append(None)
    refusal = _decided[0]
    if refusal is not None:
        raise GpuformError(refusal.message, hint=refusal.hint)


def refuse_shared_object(kind: Traits, context: ProviderContext, object_id: str) -> None:
    """Raise GpuformError if another resource of the stack has the object that Pulumi deletes.

    A program that imports its own object under a new name makes Pulumi import the object, and then
    delete it as that of the old name. gpuform's engine refuses such an import. A `pulumi destroy`
    is meant for both names. Kinds that create no object share objects by design.
    """
    if not context.is_pulumi_host or context.urn is None or kind.creates_no_object or kind.is_bound:
        return
    # First, because it reads no state: a destroy would read the whole state for each object.
    if is_pulumi_destroy():
        return
    # The plugin may be several processes: one deletes what another one imports.
    is_only_process = not context.can_store_unready
    owner_urns = set(
        list_owner_urns(context.intents, context.urn, object_id, is_deleted=is_only_process)
    )
    own_urn = to_dynamic_urn(context.urn)
    other_urns = sorted(owner_urns - {own_urn})
    # Without its own URN the state is older than an alias.
    if own_urn not in owner_urns or not other_urns:
        return
    other_name = other_urns[0].rpartition("::")[2]
    raise GpuformError(
        f"{object_id} was not deleted: it is also the object of {other_name!r} in this stack",
        hint=f"to keep the object as {other_name!r}, run `pulumi state delete '{context.urn}'`. "
        "If the resource was renamed, declare an alias with the earlier name instead of an import",
    )


def refuse_other_interrupted_creates(context: ProviderContext) -> None:
    """Raise UnknownOutcome if an interrupted create of this resource may have made another object.

    The caller has searched in vain for the object of the present declaration
    (`context.progress.searched_target`). An earlier declaration, for example with another region,
    has another object, for which nobody has searched. Does nothing without a search, with
    `--create-anew`, and if the state has the object.
    """
    intents = (
        context.intents.list_for_urn(context.urn)
        if context.urn and context.progress.searched_target
        else []
    )
    others = [
        intent_item
        for intent_item in intents
        if intent_item.target != context.progress.searched_target
        and not (intent_item.outcome or intent_item.is_refused)
    ]
    if not others or context.run.creates_anew:
        return
    records = context.intents.records
    stored = (*(records.list_stored_objects() or ()), *records.list_stored_parts())
    stored_ids = {id_ for _, id_ in stored}
    # An import of an object that the stack has would give the object a second owner.
    others = [
        intent_item
        for intent_item in others
        if not intent_item.made or intent_item.open_names or {*intent_item.made} - stored_ids
    ]
    if not others:
        return
    intent = others[0]
    region = intent.tried_region or intent.region
    made = f" as {', '.join(intent.made)}" if intent.made else ""
    kind = f"{intent.platform}:{intent.kind}"
    raise UnknownOutcome(
        f"an interrupted create of the {intent.kind} {intent.name!r}"
        + (f" in {region}" if region else "")
        + f" may have created this object{made}, but this run declares another object",
        hint=f"look on the platform: to manage the object, run `gpuform import {kind} NAME ID`; "
        "if no object exists, add `--create-anew`",
    )


_deciding = threading.Lock()
_decided: list[GpuformError | None] = []


class ObjectGone(GpuformError):
    """The object of an id does not exist: it was deleted, or the platform does not show it yet."""


def raise_if_gone(kind: Traits, context: ProviderContext, object_id: str, reason: str) -> None:
    """Raise ObjectGone if the platform no longer has an object, after a request got a 404.

    Without an answer to the second read the object may exist, and nothing is raised.
    """
    try:
        observed = kind.open_operations().read(context, object_id, {})
    # The error of the caller's own request says more than a failed second look.
    except GpuformError:
        return
    if observed is None:
        raise ObjectGone(
            reason,
            hint="run the command again to recreate the object; if the state still contains the "
            "object, first run `gpuform refresh` (or `pulumi refresh`)",
        )


INTERRUPTED: Final = "its create was interrupted"
"""The `not_ready_reason` of an object whose create was interrupted."""


def wait_and_build_outputs(
    kind: Traits,
    context: ProviderContext,
    object_id: str,
    declared: Properties,
    computed: Properties,
) -> Properties:
    """Wait until the object is ready, and return its outputs even if the wait fails.

    The id must not be lost: a failed wait returns `ready: false` with the reason, and adds the
    reason to `context.progress.init_errors`. The intent of a create stays, so that the next attempt
    searches again before it creates.

    Args:
        kind: the kind of the resource.
        context: the context of the call.
        object_id: the id of the object.
        declared: the inputs in their declared types.
        computed: the outputs that were observed last.

    Raises:
        ObjectGone: the platform no longer has the object.
        GpuformError: only the answer to a create has the id, and the platform does not show the
            object yet (Cancelled if the run was interrupted meanwhile). The intent keeps such an id
            until the platform shows the object.
    """
    observed: Observed[Any] | None = None
    interruption: Cancelled[Any] | None = None
    try:
        inputs = kind.inputs.model_validate(declared)
        ready_object = kind.open_operations().wait_until_ready(context, object_id, inputs)
        observed, reason = ready_object, ready_object.outputs.not_ready_reason
    except NotReady as error:
        observed, reason = error.last, error.reason
        interruption = error if isinstance(error, Cancelled) else None
        if observed is None and interruption is None:
            raise_if_gone(kind, context, object_id, reason)
    except GpuformError as error:
        reason = str(error)
    # The object exists: an unexpected error must not lose its id.
    except Exception as error:  # noqa: BLE001 - the object exists: say so, whatever happened
        reason = describe_unexpected_error("waiting", error)
    if observed is not None:
        computed = extract_outputs(kind, context, observed)
    elif _is_id_unconfirmed(context, object_id) and not _is_object_visible(
        kind, context, object_id
    ):
        raise interruption or GpuformError(
            f"{reason}; the platform created it as {object_id}, and does not show it yet",
            hint="run the command again: it looks for the object before it creates anything",
        )
    # A reason of an earlier wait is not the reason of this one.
    computed = {key: value for key, value in computed.items() if key != "not_ready_reason"}
    # An output with the name of an input has the platform's value, not the declared one.
    outs = {**computed, **declared, **computed, "ready": reason is None}
    if reason is not None:
        reason = context.redact(reason)
        outs["not_ready_reason"] = reason
        context.progress.init_errors.append(reason)
    return outs


def _is_id_unconfirmed(context: ProviderContext, object_id: str) -> bool:
    """Return True if only the answer to this call's create has shown the object's id so far.

    The object's intent has that id, too.
    """
    intents = (
        context.intents.list_for_urn(context.urn) if context.urn else context.intents.list_all()
    )
    return context.progress.just_created and any(
        intent.id == object_id and not intent.names for intent in intents
    )


def _is_object_visible(kind: Traits, context: ProviderContext, object_id: str) -> bool:
    """Read the object once, and return True if the platform shows it now.

    False, too, if the platform does not answer.
    """
    try:
        return kind.open_operations().read(context, object_id, {}) is not None
    except GpuformError:
        return False
