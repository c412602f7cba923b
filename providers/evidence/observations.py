"""Compare what was observed with what a decision needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence.decisions import Decision


class NotEnoughEvidence(GpuformError):
    """What was observed does not prove enough for a decision; nothing was changed."""

    help_page = "reference/evidence"


@dataclass(frozen=True)
class Observation:
    """What one party reported about one subject.

    Args:
        source: who reported it ("the Kubernetes API at https://...").
        missing: what it should have shown and did not, one text each; empty if it is complete.
        age_s: seconds since the party measured it.
    """

    source: str
    missing: Sequence[str] = ()
    age_s: float = 0.0


def find_gaps(decision: Decision, *observations: Observation) -> list[str]:
    """Return a text for each missing or stale observation needed for `decision`; empty if none.

    No observation at all is a gap: silence never means "empty", "zero" or "idle".
    """
    if not observations:
        return ["no observation exists"]
    gaps = [
        f"{observation.source}: {text}"
        for observation in observations
        for text in observation.missing
    ]
    limit = decision.max_age_s
    # Something may have changed since an old answer: it proves nothing about now.
    if limit is not None:
        gaps += [
            f"{observation.source}: the answer is {observation.age_s:.0f} s old, more than "
            f"{limit:.0f} s"
            for observation in observations
            if observation.age_s > limit
        ]
    return gaps


def require_evidence(
    decision: Decision, subject: str, *observations: Observation, hint: str | None = None
) -> None:
    """Raise NotEnoughEvidence unless the observations of `subject` suffice for `decision`.

    Raises:
        NotEnoughEvidence: the message names each gap. `hint`, or else the decision's own hint, says
            what to do.
    """
    gaps = find_gaps(decision, *observations)
    if gaps:
        raise NotEnoughEvidence(
            f"{subject}: cannot {decision.name}: {'; '.join(gaps)}",
            hint=hint or decision.without,
        )
