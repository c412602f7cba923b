"""What may not be done: refused by the models, by guards without a permission, or by what is gone.

Everything here raises GpuformError, before anything is sent.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gpuform.providers import permissions
from gpuform.providers.actions import Actions, HoldsOthers
from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle.comparing import at_this_hour, echo
from gpuform.providers.lifecycle.showing import shown
from gpuform.providers.lifecycle.traits import Traits
from gpuform.providers.permissions import Permission
from gpuform.providers.plugin.unsettled import refuse_to_forget
from gpuform.providers.properties import Properties
from gpuform.schemas.changes import refusals

Reach: TypeAlias = Callable[[], Actions[Any, Any]]
"""What finds the platform. Raises OtherWorld."""


def refuse_impossible(kind: Traits, old: Properties, declared: Properties) -> None:
    """Refuses changes that the platform would refuse."""
    problems = refusals(kind.inputs, echo(kind, old), declared)
    if problems:
        raise GpuformError("; ".join(f"{p.path} {p.reason}" for p in problems))


def require_for_destruction(kind: Traits, old: Properties, what: str) -> None:
    """Requires the permission that deleting or replacing an object of these outputs needs."""
    guard = kind.guarded(old)
    if guard is not None:
        permissions.require(guard.permission, f"{guard.because}: {what}")


def require_for_change(kind: Traits, old: Properties, declared: Properties) -> None:
    """Requires the permission that this change in place needs; `declared` is typed."""
    guard = kind.guarded_change(old, at_this_hour(kind, old, declared))
    if guard is not None:
        permissions.require(guard.permission, guard.because)


def look_before_deletion(
    kind: Traits, reach: Reach, call: Call, id_: str, known: Properties
) -> None:
    """Refuses what the platform itself shows as guarded, whatever was declared or stored.

    Raises as well when the platform does not tell. Sets `found_gone` of the call.
    """
    seen = reach().read(call, id_, known)
    call.found_gone = seen is None
    if seen is not None:
        current = {**call.known, **seen.inputs, **shown(kind, call, seen)}
        require_for_destruction(kind, current, "the platform says so, and this deletes it")
        actions = reach()
        if isinstance(actions, HoldsOthers):
            require_for_others(actions.others_within(call, id_, known), kind.kind)


def require_for_others(others: Sequence[str], kind: str) -> None:
    """Require the permission to delete `others`, what others have put into an object of a kind."""
    if others:
        permissions.require(
            Permission.DESTROY_OTHERS,
            f"others have put {', '.join(others)} into this {kind}, and deleting it deletes that",
        )


def refuse_to_leave(call: Call) -> None:
    """Refuse a `pulumi destroy` in the dynamic form that would leave what no state has.

    Decided at the first delete of the process, for all: the destroy itself changes the state.

    Raises:
        GpuformError: an interrupted create has, or may have, made an object.
    """
    if call.keeps_unready or not call.stores_answers:
        return
    with _deciding:
        if not _decided:
            try:
                refuse_to_forget(call.intents)
            except GpuformError as error:
                _decided.append(error)
            else:
                _decided.append(None)
    refusal = _decided[0]
    if refusal is not None:
        raise GpuformError(refusal.message, hint=refusal.hint)


_deciding = threading.Lock()
_decided: list[GpuformError | None] = []


class ObjectGone(GpuformError):
    """The object of an id is not there: it was deleted, or does not show yet."""


def refuse_gone(reach: Reach, call: Call, id_: str, reason: str) -> None:
    """Raises ObjectGone when another look finds nothing, too; unanswered, the object may exist."""
    try:
        found = reach().read(call, id_, {})
    except GpuformError:
        return
    if found is None:
        raise ObjectGone(
            reason,
            hint="somebody deleted it. Run it again to make it anew; if the state has it "
            "already, refresh first (`gpuform refresh`, `pulumi refresh`)",
        )
