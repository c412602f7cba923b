"""What may not be done: refused by the models, by guards without a permission, or by what is gone.

Everything here raises GpuformError, before anything is sent.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.errors import GpuformError, UnknownOutcome
from gpuform.providers.evidence import Observation, require_evidence
from gpuform.providers.evidence.decisions import FORGET_OBJECT
from gpuform.providers.lifecycle.comparing import at_this_hour, echo
from gpuform.providers.lifecycle.traits import Traits, shown
from gpuform.providers.operations import ForeignObjectLookup, Observed, ResourceOperations
from gpuform.providers.permissions import Permission
from gpuform.providers.plugin.unsettled import refuse_to_forget
from gpuform.providers.properties import Properties
from gpuform.providers.records import SETTLE
from gpuform.schemas.changes import find_refused_changes

LOOK_AGAIN = 20.0
"""Seconds between looks for an object that the platform does not show."""

Reach: TypeAlias = Callable[[], ResourceOperations[Any, Any]]
"""What finds the platform. Raises WrongEnvironment."""


def refuse_impossible(kind: Traits, old: Properties, declared: Properties) -> None:
    """Refuses changes that the platform would refuse."""
    problems = find_refused_changes(kind.inputs, echo(kind, old), declared)
    if problems:
        raise GpuformError("; ".join(f"{p.path} {p.reason}" for p in problems))


def require_for_destruction(kind: Traits, old: Properties, what: str) -> None:
    """Requires the permission that deleting or replacing an object of these outputs needs."""
    guard = kind.find_deletion_guard(old)
    if guard is not None:
        permissions.require(guard.permission, f"{guard.because}: {what}")


def require_for_change(kind: Traits, old: Properties, declared: Properties) -> None:
    """Requires the permission that this change in place needs; `declared` is typed."""
    guard = kind.find_change_guard(old, at_this_hour(kind, old, declared))
    if guard is not None:
        permissions.require(guard.permission, guard.because)


def look_before_deletion(
    kind: Traits, reach: Reach, context: ProviderContext, id_: str, known: Properties
) -> None:
    """Refuses what the platform itself shows as guarded, whatever was declared or stored.

    Raises as well when the platform does not tell. Sets `was_already_deleted` of the context.
    """
    seen = read_until_settled(kind, reach, context, id_, known)
    context.was_already_deleted = seen is None
    if seen is not None:
        current = {**context.stored_properties, **seen.inputs, **shown(kind, context, seen)}
        require_for_destruction(kind, current, "the platform says so, and this deletes it")
        actions = reach()
        if isinstance(actions, ForeignObjectLookup):
            require_for_others(actions.find_foreign_objects(context, id_, known), kind.kind)


def require_for_others(others: Sequence[str], kind: str) -> None:
    """Require the permission to delete `others`, what others have put into an object of a kind."""
    if others:
        permissions.require(
            Permission.DESTROY_OTHERS,
            f"others have put {', '.join(others)} into this {kind}, and deleting it deletes that",
        )


def read_until_settled(
    kind: Traits, reach: Reach, context: ProviderContext, id_: str, known: Properties
) -> Observed[Any] | None:
    """Return the object, or None when the platform has not shown it for the settle time.

    A replica that lags behind does not show an object for a while, with a list that agrees. Only
    looked at once is what no state has, and what a preview reads: neither is forgotten.

    Raises:
        NotEnoughEvidence: the call's time was over before.
    """
    seen = reach().read(context, id_, known)
    if (
        seen is not None
        or not kind.is_eventually_consistent
        or context.preview
        or "ready" not in context.stored_properties
    ):
        return seen
    missed_at = context.clock.now()
    context.on_progress(
        f"{kind.platform} does not show {id_}: looking again before it counts as gone"
    )
    with context.extend_deadline(SETTLE):
        while seen is None:
            left = missed_at + SETTLE - context.clock.now()
            missing = [f"it was missed {format_duration(SETTLE - left)} ago for the first time"]
            observed = Observation("its list and its lookup", missing if left > 0 else [])
            if left <= 0 or context.compute_remaining_seconds() == 0:
                require_evidence(FORGET_OBJECT, f"{kind.platform}: {id_}", observed)
                break
            context.sleep(min(LOOK_AGAIN, left))
            seen = reach().read(context, id_, known)
    return seen


def delete_when_shown(
    kind: Traits, reach: Reach, context: ProviderContext, id_: str, known: Properties
) -> None:
    """Delete the object and wait until it is gone, although the platform may hide it for a moment.

    Gone at once is what the platform has accepted to delete.
    """
    while True:
        accepted = context.accepted_deletions
        reach().delete(context, id_, known)
        if context.accepted_deletions > accepted or not kind.is_eventually_consistent:
            return
        if read_until_settled(kind, reach, context, id_, known) is None:
            return


def refuse_to_leave(context: ProviderContext) -> None:
    """Refuse a `pulumi destroy` in the dynamic form that would leave what no state has.

    Decided at the first delete of the process, for all: the destroy itself changes the state.

    Raises:
        GpuformError: an interrupted create has, or may have, made an object.
    """
    if context.can_store_unready or not context.is_pulumi_host:
        return
    with _deciding:
        if not _decided:
            try:
                refuse_to_forget(context.intents)
            except GpuformError as error:
                _decided.append(error)
            else:
                _decided.append(None)
    refusal = _decided[0]
    if refusal is not None:
        raise GpuformError(refusal.message, hint=refusal.hint)


def refuse_to_forget_others(context: ProviderContext) -> None:
    """Raise UnknownOutcome if the resource has a create of another object than the call sought.

    The declaration has changed since that create, its region for example, and nobody has looked for
    what it made.
    """
    intents = context.intents.of_urn(context.urn) if context.urn and context.searched_target else []
    others = [
        each for each in intents if each.target != context.searched_target and not each.outcome
    ]
    if not others or permissions.creates_anew():
        return
    intent = others[0]
    region = intent.tried_region or intent.region
    made = f" as {', '.join(intent.made)}" if intent.made else ""
    kind = f"{intent.platform}:{intent.kind}"
    raise UnknownOutcome(
        f"an interrupted create of the {intent.kind} {intent.name!r}"
        + (f" in {region}" if region else "")
        + f" may have made it{made}, and another one is declared now",
        hint=f"look on the platform: `gpuform import {kind} NAME ID` takes it in, `--create-anew` "
        "says that there is none",
    )


_deciding = threading.Lock()
_decided: list[GpuformError | None] = []


class ObjectGone(GpuformError):
    """The object of an id is not there: it was deleted, or does not show yet."""


def refuse_gone(reach: Reach, context: ProviderContext, id_: str, reason: str) -> None:
    """Raises ObjectGone when another look finds nothing, too; unanswered, the object may exist."""
    try:
        found = reach().read(context, id_, {})
    except GpuformError:
        return
    if found is None:
        raise ObjectGone(
            reason,
            hint="somebody deleted it. Run it again to make it anew; if the state has it "
            "already, refresh first (`gpuform refresh`, `pulumi refresh`)",
        )
