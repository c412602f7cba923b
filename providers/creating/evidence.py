"""Judge by evidence which objects an interrupted create made, and when to forget the create.

Nothing is guessed: an object that cannot be shown to be ours leads to an AdoptionQuestion.

Creates of single objects (`creating`) and of parts of a pool (the ledger of SCP's nodes) ask here.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.errors import (
    AdoptionQuestion,
    ApiError,
    GpuformError,
    MissingCredentials,
    Unreachable,
)
from gpuform.providers.evidence import (
    ADOPT_CREATED,
    FORGET_CREATE,
    Observation,
    find_gaps,
    require_evidence,
)
from gpuform.providers.lifetime import format_moment
from gpuform.providers.records import PROPAGATION_TIME_S, Intent
from gpuform.schemas.values import is_equal

LONGEST_EFFECT_S = 60.0
"""Seconds after its last sending within which a create takes effect: the time-out of its answer."""

CLOCK_SKEW_S = 5.0
"""Seconds by which the clocks of well-kept machines may differ."""

ROUNDING_S = 1.0
"""Seconds by which a reported time may be rounded."""

LARGEST_TIME_ERROR_S = 300.0
"""Seconds by which a platform's time may contradict our observations and still be believed."""

ANSWERS_TO_REPETITIONS = frozenset({403, 409, 429})
"""Refusals that prove nothing about a create.

A proxy may repeat a request whose answer is late. Then the refusal is of the copy: the object of
the first one exists already (409), there were too many requests (429), or a firewall stops it
(403). All other refusals (400, 401, 402, 404, 422) judge what was sent, and the first copy was the
same.
"""


@dataclass(frozen=True)
class Candidate:
    """An object of the target's name, as a list shows the object.

    Args:
        id: the platform's id.
        created_at: Unix time in seconds; None if the platform does not report the time.
        is_being_deleted: such an object is neither adopted nor in conflict.
        is_elsewhere: the object is in another project than the request names. Its name is in no
            conflict, and only a person can say that the request has created it.
        region: empty if the platform does not report the region.
        gpu_type: empty if the platform does not report the type.
        reported_properties: properties under the names that requests use; None for an unreported
            one.
    """

    id: str
    created_at: float | None = None
    is_being_deleted: bool = False
    is_elsewhere: bool = False
    region: str = ""
    gpu_type: str = ""
    reported_properties: Mapping[str, Any] = field(default_factory=dict)

    def can_be_at(self, region: str, gpu_type: str = "") -> bool:
        """Return True if region and GPU type of the object equal the arguments, where known.

        Empty values are unknown.
        """
        pairs = ((self.region, region), (self.gpu_type, gpu_type))
        return all(mine == theirs or not (mine and theirs) for mine, theirs in pairs)

    def find_differences(self, sent: Mapping[str, Any]) -> list[str]:
        """Return the names of sent properties that have another value on this object.

        A property that the platform's list does not show is no difference.
        """
        return [
            name
            for name, value in sent.items()
            if not may_equal_sent_value(self.reported_properties.get(name), value)
        ]

    def shows_any_sent(self, sent: Mapping[str, Any]) -> bool:
        """Return True if the platform's list shows one of the sent properties on this object."""
        return any(
            sent[name] is not None and self.reported_properties.get(name) is not None
            for name in sent
        )


def may_equal_sent_value(reported_value: Any, sent: Any) -> bool:
    """Return True if a property's reported value equals the sent value, or is not reported.

    The object may have more members; the order of a list does not matter.
    """
    if isinstance(reported_value, Mapping) and isinstance(sent, Mapping):
        return all(
            may_equal_sent_value(reported_value.get(name), value) for name, value in sent.items()
        )
    return reported_value is None or sent is None or is_equal(reported_value, sent, unordered=True)


@dataclass(frozen=True)
class CandidateVerdict:
    """The judgement about the objects of an intent's name: `ours`, or `doubtful` ones.

    All other objects are somebody else's.
    """

    ours: Candidate | None
    doubtful: Sequence[Candidate] = ()


def judge_candidates(
    context: ProviderContext, intent: Intent, present: Iterable[Candidate], now: float
) -> CandidateVerdict:
    """Return which object the intent's request created, at the platform's time `now`.

    Ours is the object that the user names (`--adopt ID`), unless the object belongs to another
    stack; else the one object that was not there right before the request, appeared within the time
    in which a create takes effect, has the properties that were sent, and is nobody else's. All
    other new objects are doubtful, whatever time the platform reports: a `created_at` may be hours
    off, or of the year 1. With `--create-anew`, and without `--adopt`, no object is ours or
    doubtful.
    """
    adopted_ids = context.run.adopted_ids
    present_candidates = {
        candidate.id: candidate for candidate in present if not candidate.is_being_deleted
    }.values()
    for candidate in present_candidates:
        # A person's word counts before all evidence, except for an object of another stack.
        if candidate.id in adopted_ids and not context.belongs_to_other_stack(candidate.id):
            return CandidateVerdict(candidate)
    # Several creates may be open at once: none may take the object of another one.
    ids_of_others = {
        id_ for other in context.intents.list_all() if other != intent for id_ in other.made
    }
    region = intent.tried_region or intent.region
    new_candidates = [
        candidate
        for candidate in present_candidates
        if candidate.can_be_at(region, intent.tried_gpu_type)
        and candidate.id not in intent.present_ids
        and candidate.id not in ids_of_others
        and not context.belongs_to_other_stack(candidate.id)
    ]
    if context.run.creates_anew:
        return CandidateVerdict(None)
    proven_candidates = [
        candidate for candidate in new_candidates if not _find_proof_gaps(candidate, intent, now)
    ]
    rivals = [
        candidate
        for candidate in new_candidates
        if candidate not in proven_candidates and _may_be_ours(candidate, intent, now)
    ]
    # With a second proven object, or one that may be ours as well, the choice would be a guess.
    if len(proven_candidates) == 1 and not rivals:
        return CandidateVerdict(proven_candidates[0])
    return CandidateVerdict(None, new_candidates)


def _may_be_ours(candidate: Candidate, intent: Intent, now: float) -> bool:
    """Return True if the object has all sent properties, but no credible creation time."""
    return (
        not candidate.is_elsewhere
        and find_credible_time(candidate, intent, now) is None
        and not candidate.find_differences(intent.sent)
    )


def find_credible_time(candidate: Candidate, intent: Intent, now: float) -> float | None:
    """Return the object's reported creation time, or None if not credible.

    The list right before the request did not show the object. So a time is wrong that is more than
    `LARGEST_TIME_ERROR_S` before the request, and so is a time after `now`.

    Args:
        candidate: an object that may be the result of the create.
        intent: the record of the create request.
        now: the platform's time when the list that shows the object was requested.
    """
    created_at = candidate.created_at
    if (
        created_at is None
        or not intent.started_at - LARGEST_TIME_ERROR_S <= created_at <= now + LARGEST_TIME_ERROR_S
    ):
        return None
    return created_at


def has_other_creation_time(candidate: Candidate, intent: Intent) -> bool:
    """Return True if the creation time of `candidate` proves that another request created it.

    Without a creation time, or if the time of our own request is unknown, nothing is proved.
    """
    if candidate.created_at is None or not intent.is_timed:
        return False
    delay_s = candidate.created_at - intent.started_at
    return not -LARGEST_TIME_ERROR_S <= delay_s <= LONGEST_EFFECT_S + LARGEST_TIME_ERROR_S


def _find_proof_gaps(candidate: Candidate, intent: Intent, now: float) -> list[str]:
    """Return a phrase for each missing proof of the object's creation by the intent's request."""
    missing = [f"its {name} differs" for name in candidate.find_differences(intent.sent)]
    if candidate.is_elsewhere:
        missing.append("it is in another project")
    if not _is_in_time(candidate, intent, now):
        missing.append("it did not appear in time")
    return find_gaps(ADOPT_CREATED, Observation(candidate.id, missing))


def _is_in_time(candidate: Candidate, intent: Intent, now: float) -> bool:
    """Return True if the object appeared when the intent's request can have taken effect.

    Without a creation time on the platform, the time counts when the list first showed the object.
    An incredible creation time is ignored only for an object that shows properties which were sent.
    """
    made_at = find_credible_time(candidate, intent, now)
    if made_at is not None:
        # By one and the same clock only rounding makes an object look older than its request.
        early = ROUNDING_S if intent.is_timed else CLOCK_SKEW_S
        is_in_time = -early <= made_at - intent.started_at <= LONGEST_EFFECT_S
        return is_in_time and (intent.looked_at is None or made_at < intent.looked_at - ROUNDING_S)
    is_likely = candidate.created_at is None or candidate.shows_any_sent(intent.sent)
    return is_likely and now - intent.started_at <= PROPAGATION_TIME_S + 1


def build_adoption_question(intent: Intent, doubtful: Sequence[Candidate]) -> AdoptionQuestion:
    """Return the error with the doubtful objects, one of which may be ours, and how to decide."""
    descriptions = "; ".join(_describe_candidate(candidate, intent) for candidate in doubtful)
    first = shlex.quote(doubtful[0].id)
    parts = f" ({', '.join(intent.names)})" if intent.names else ""
    create = "a refused create" if intent.is_refused else "an interrupted create"
    return AdoptionQuestion(
        f"{create} of the {intent.kind} {intent.name!r} on {intent.platform}{parts} "
        f"may have created one of these, or none: {descriptions}",
        hint=f"nothing was created or adopted. To adopt one, add `--adopt {first}`; if none "
        "is yours, add `--create-anew` (with `pulumi`: GPUFORM_ADOPT=ID, "
        "GPUFORM_CREATE_ANEW=1 in the environment)",
    )


def _describe_candidate(candidate: Candidate, intent: Intent) -> str:
    """Return id, creation time and deviating properties of an object, for a message."""
    facts = (
        [] if candidate.created_at is None else [f"created {format_moment(candidate.created_at)}"]
    )
    facts += [
        f"{name} {candidate.reported_properties[name]} instead of {intent.sent[name]}"
        for name in candidate.find_differences(intent.sent)
    ]
    return f"{candidate.id} ({', '.join(facts)})" if facts else candidate.id


def compute_remaining_propagation_s(
    intent: Intent, now: float, propagation_time_s: float = PROPAGATION_TIME_S
) -> float:
    """Return the seconds from `now` until the platform's lists must show the intent's object."""
    return max(0.0, intent.started_at + propagation_time_s - now)


def require_absence(
    intent: Intent, names: Sequence[str], seconds_left: float, failure: GpuformError | None = None
) -> None:
    """Raise NotEnoughEvidence unless the platform's list proves a create without effect.

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
    """Return True if the error shows a refused create: nothing was made.

    The answers in `ANSWERS_TO_REPETITIONS` prove nothing.
    """
    if isinstance(error, ApiError):
        return error.is_definite and error.status not in ANSWERS_TO_REPETITIONS
    return isinstance(error, MissingCredentials | Unreachable)
