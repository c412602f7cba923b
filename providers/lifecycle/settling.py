"""Waiting until an object is as wanted, and the outputs whatever comes of it."""

from typing import Any, Final

from gpuform.providers.context import ProviderContext, unexpected
from gpuform.providers.errors import Cancelled, GpuformError, NotReady
from gpuform.providers.lifecycle.guarding import Reach, refuse_gone
from gpuform.providers.lifecycle.traits import Traits, shown
from gpuform.providers.operations import Observed
from gpuform.providers.properties import Properties

INTERRUPTED: Final = "its create was interrupted"
"""Why what an earlier run made is not ready."""


def settle(
    kind: Traits,
    reach: Reach,
    context: ProviderContext,
    id_: str,
    declared: Properties,
    computed: Properties,
) -> Properties:
    """Waits, and makes the outputs whatever comes of it: the id must not be lost.

    `computed` are the outputs last seen. Raises GpuformError when the object is gone: then there is
    no id to keep. The intent of a create stays, so that the next attempt looks once more before it
    makes another one. An id that is only in the answer to a create is no id to keep either: the
    intent has it, and the state gets it when the platform has shown the object.
    """
    observed: Observed[Any] | None = None
    interruption: Cancelled[Any] | None = None
    try:
        want = kind.inputs.model_validate(declared)
        settled = reach().wait_until_ready(context, id_, want)
        observed, reason = settled, settled.outputs.not_ready_reason
    except NotReady as error:
        observed, reason = error.last, error.reason
        interruption = error if isinstance(error, Cancelled) else None
        if observed is None and interruption is None:
            refuse_gone(reach, context, id_, reason)
    except GpuformError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the object exists: say so, whatever happened
        reason = unexpected("waiting", error)
    if observed is not None:
        computed = shown(kind, context, observed)
    elif _is_hearsay(context, id_) and not _is_shown(reach, context, id_):
        raise interruption or GpuformError(
            f"{reason}; it was created as {id_}, and the platform has not shown it yet",
            hint="run it again: it looks for it before anything is made",
        )
    computed = {key: value for key, value in computed.items() if key != "not_ready_reason"}
    outs = {**computed, **declared, **computed, "ready": reason is None}
    if reason is not None:
        reason = context.redact(reason)
        outs["not_ready_reason"] = reason
        context.init_errors.append(reason)
    return outs


def _is_hearsay(context: ProviderContext, id_: str) -> bool:
    """Return whether only the answer to this call's create, which its intent has, tells the id."""
    intents = context.intents.of_urn(context.urn) if context.urn else context.intents.all()
    return context.just_created and any(each.id == id_ and not each.names for each in intents)


def _is_shown(reach: Reach, context: ProviderContext, id_: str) -> bool:
    """Return whether the platform shows the object now; an interrupted call waits for nothing."""
    try:
        return reach().read(context, id_, {}) is not None
    except GpuformError:
        return False
