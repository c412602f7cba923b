"""What has to be known before an interrupted create is forgotten and something is created again.

Creates of single objects (`creating`) and of parts of a pool (the ledger of SCP's nodes) ask here.
"""

from collections.abc import Sequence

from gpuform.providers.context import format_duration
from gpuform.providers.errors import ApiError, GpuformError, MissingCredentials, Unreachable
from gpuform.providers.evidence import Observation, require_evidence
from gpuform.providers.evidence.decisions import FORGET_CREATE
from gpuform.providers.records import PROPAGATION_TIME_S, Intent


def compute_remaining_propagation_s(
    intent: Intent, now: float, propagation_time_s: float = PROPAGATION_TIME_S
) -> float:
    """Return the seconds from `now` until the platform's lists must show the intent's object."""
    return max(0.0, intent.started_at + propagation_time_s - now)


def require_absence(
    intent: Intent, names: Sequence[str], seconds_left: float, failure: GpuformError | None = None
) -> None:
    """Raise NotEnoughEvidence unless the platform has shown that a create made no object.

    Args:
        intent: the create that is about to be forgotten.
        names: the requested names of which the platform's list shows no object.
        seconds_left: `compute_remaining_propagation_s` when the list was requested.
        failure: why the list, or a lookup of an id from the answer, has not answered.

    Raises:
        NotEnoughEvidence: the list was too early or failed; the intent has to stay.
    """
    missing = [] if failure is None else [failure.message]
    if seconds_left > 0:
        missing.append(f"it may lack new objects for another {format_duration(seconds_left)}")
    observation = Observation(f"the list of {intent.platform}", missing)
    require_evidence(FORGET_CREATE, f"{intent.kind} {', '.join(names)}", observation)


def is_refusal(error: GpuformError) -> bool:
    """Return True if the error of a create proves that the create made nothing.

    A 409 is no such proof: it can refuse the repetition of a request whose first copy, on its way
    through proxies, made the object.
    """
    if isinstance(error, ApiError):
        return error.is_definite and error.status != 409
    return isinstance(error, MissingCredentials | Unreachable)
