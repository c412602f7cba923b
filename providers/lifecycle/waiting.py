"""Wait until an object is ready, and build its outputs even when the wait fails.

`Lifecycle.create` and `Lifecycle.update` call `wait_and_build_outputs`.
"""

from typing import Any, Final

from gpuform.providers.context import ProviderContext, describe_unexpected_error
from gpuform.providers.errors import Cancelled, GpuformError, NotReady
from gpuform.providers.lifecycle.guarding import OpenOperations, raise_if_gone
from gpuform.providers.lifecycle.traits import Traits, extract_outputs
from gpuform.providers.operations import Observed
from gpuform.providers.properties import Properties

INTERRUPTED: Final = "its create was interrupted"
"""The `not_ready_reason` of an object whose create was interrupted."""


def wait_and_build_outputs(
    kind: Traits,
    open_operations: OpenOperations,
    context: ProviderContext,
    object_id: str,
    declared: Properties,
    computed: Properties,
) -> Properties:
    """Wait until the object is ready, and return its outputs even if the wait fails.

    The id must not be lost: a failed wait returns `ready: false` with the reason, and adds the
    reason to `context.init_errors`. The intent of a create stays, so that the next attempt searches
    again before it creates.

    Args:
        kind: the kind of the resource.
        open_operations: returns the operations of the kind.
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
        ready_object = open_operations().wait_until_ready(context, object_id, inputs)
        observed, reason = ready_object, ready_object.outputs.not_ready_reason
    except NotReady as error:
        observed, reason = error.last, error.reason
        interruption = error if isinstance(error, Cancelled) else None
        if observed is None and interruption is None:
            raise_if_gone(open_operations, context, object_id, reason)
    except GpuformError as error:
        reason = str(error)
    # The object exists: an unexpected error must not lose its id.
    except Exception as error:  # noqa: BLE001 - the object exists: say so, whatever happened
        reason = describe_unexpected_error("waiting", error)
    if observed is not None:
        computed = extract_outputs(kind, context, observed)
    elif _is_id_unconfirmed(context, object_id) and not _is_object_visible(
        open_operations, context, object_id
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
        context.init_errors.append(reason)
    return outs


def _is_id_unconfirmed(context: ProviderContext, object_id: str) -> bool:
    """Return True if only the answer to this call's create has shown the object's id so far.

    The object's intent has that id, too.
    """
    intents = (
        context.intents.list_for_urn(context.urn) if context.urn else context.intents.list_all()
    )
    return context.just_created and any(
        intent.id == object_id and not intent.names for intent in intents
    )


def _is_object_visible(
    open_operations: OpenOperations, context: ProviderContext, object_id: str
) -> bool:
    """Read the object once, and return True if the platform shows the object now.

    False, too, if the platform does not answer.
    """
    try:
        return open_operations().read(context, object_id, {}) is not None
    except GpuformError:
        return False
