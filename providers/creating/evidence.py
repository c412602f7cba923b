"""What an interrupted create has made, by evidence: which objects are ours, and which may be.

Nothing is guessed: what cannot be shown to be ours is asked about (AdoptionQuestion).
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import AdoptionQuestion
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import ADOPT_CREATED
from gpuform.providers.lifetime import written
from gpuform.providers.records import SETTLE, Intent
from gpuform.schemas.values import is_equal

TAKES_EFFECT = 60.0
"""Seconds after its last sending within which a create takes effect: as long as for its answer."""

SKEW = 5.0
"""Seconds by which the clocks of machines may differ that keep time."""

WHOLE = 1.0
"""Seconds by which a time may be rounded."""

FAR = 300.0
"""Seconds by which a time that a platform tells may contradict our looks and still be believed."""


@dataclass(frozen=True)
class Candidate:
    """An object of the wanted name, as a list shows it.

    `created_at` is Unix time in seconds, None where the platform does not tell. An object that is
    `leaving` is being deleted: it is neither adopted nor in the way. `region` and `gpu_type` are
    empty where the platform does not tell them. `shown` are properties under the names that
    requests have; None is what is not told.
    """

    id: str
    created_at: float | None = None
    leaving: bool = False
    region: str = ""
    gpu_type: str = ""
    shown: Mapping[str, Any] = field(default_factory=dict)

    def is_at(self, region: str, gpu_type: str = "") -> bool:
        """Whether it can be in that region and of that type; what is empty is not known."""
        pairs = ((self.region, region), (self.gpu_type, gpu_type))
        return all(mine == theirs or not (mine and theirs) for mine, theirs in pairs)

    def differences(self, sent: Mapping[str, Any]) -> list[str]:
        """The properties in which it is not what was sent."""
        return [name for name, value in sent.items() if not covers(self.shown.get(name), value)]

    def shows_any(self, sent: Mapping[str, Any]) -> bool:
        """Return whether the list shows one of the properties that were sent."""
        return any(sent[name] is not None and self.shown.get(name) is not None for name in sent)


def covers(shown: Any, sent: Any) -> bool:
    """Whether an object shows what was sent, as far as it shows anything; it may have more.

    The order of a list says nothing.
    """
    if isinstance(shown, Mapping) and isinstance(sent, Mapping):
        return all(covers(shown.get(name), value) for name, value in sent.items())
    return shown is None or sent is None or is_equal(shown, sent, unordered=True)


@dataclass(frozen=True)
class Verdict:
    """What objects of an intent's name are: `ours`, or perhaps ours.

    All others are somebody else's.
    """

    ours: Candidate | None
    doubtful: Sequence[Candidate] = ()


def judge(
    context: ProviderContext, intent: Intent, present: Iterable[Candidate], now: float
) -> Verdict:
    """Tells what the intent's request made, at the platform's time `now`.

    Ours is the one object that was not there right before the request, appeared within the time in
    which that can take effect, has the properties that were sent, and is nobody else's; or the one
    that the user says is (`--adopt ID`). What remains is doubtful, whatever the platform says of
    its time: a `created_at` may be hours off, or of the year 1.
    """
    chosen = permissions.adopted()
    there = {each.id: each for each in present if not each.leaving}.values()
    for each in there:
        if each.id in chosen and not context.belongs_to_other_stack(each.id):
            return Verdict(each)
    theirs = {id_ for other in context.intents.all() if other != intent for id_ in other.made}
    region = intent.tried_region or intent.region
    new = [
        each
        for each in there
        if each.is_at(region, intent.tried_gpu_type)
        and each.id not in intent.present_ids
        and each.id not in theirs
        and not context.belongs_to_other_stack(each.id)
    ]
    if permissions.creates_anew():
        return Verdict(None)
    proven = [each for each in new if not _gaps_of_proof(each, intent, now)]
    rivals = [each for each in new if each not in proven and _may_be_ours(each, intent, now)]
    if len(proven) == 1 and not rivals:
        return Verdict(proven[0])
    return Verdict(None, new)


def _may_be_ours(each: Candidate, intent: Intent, now: float) -> bool:
    """Return whether nothing but the moment when we saw it speaks against the object."""
    return credible_time(each, intent, now) is None and not each.differences(intent.sent)


def credible_time(each: Candidate, intent: Intent, now: float) -> float | None:
    """Return when the object was made, None where the platform tells no time or an impossible one.

    The list right before the request did not show the object, and lists lag by a minute at most: a
    time long before the request is wrong. So is one after the answer that shows the object.

    Args:
        now: the platform's time when the list that shows the object was asked for.
    """
    made_at = each.created_at
    if made_at is None or not intent.started_at - FAR <= made_at <= now + FAR:
        return None
    return made_at


def is_of_another_time(each: Candidate, intent: Intent) -> bool:
    """Return whether an object with a truthful time is not what the intent's request made.

    Only for platforms whose ids hold the time of the creation, and are no hints.
    """
    if each.created_at is None or not intent.is_timed:
        return False
    return not -FAR <= each.created_at - intent.started_at <= TAKES_EFFECT + FAR


def _gaps_of_proof(each: Candidate, intent: Intent, now: float) -> list[str]:
    """Return what is missing to prove that the intent's request made an object of its name."""
    missing = [f"it has another {name}" for name in each.differences(intent.sent)]
    if not _is_in_time(each, intent, now):
        missing.append("it did not appear in time")
    return find_gaps(ADOPT_CREATED, Observation(each.id, missing))


def _is_in_time(each: Candidate, intent: Intent, now: float) -> bool:
    """Return whether the object appeared when the request can have taken effect.

    Without a credible time of its own, it counts when we saw it; an incredible one is forgiven only
    to an object that shows properties which were sent.
    """
    made_at = credible_time(each, intent, now)
    if made_at is not None:
        early = WHOLE if intent.is_timed else SKEW
        is_in_time = -early <= made_at - intent.started_at <= TAKES_EFFECT
        return is_in_time and (intent.looked_at is None or made_at < intent.looked_at - WHOLE)
    is_likely = each.created_at is None or each.shows_any(intent.sent)
    return is_likely and now - intent.started_at <= SETTLE + 1


def question(intent: Intent, doubtful: Sequence[Candidate]) -> AdoptionQuestion:
    """The error of an intent of which nobody can tell what it made."""
    told = "; ".join(_told(each, intent) for each in doubtful)
    first = shlex.quote(doubtful[0].id)
    return AdoptionQuestion(
        f"an interrupted create of the {intent.kind} {intent.name!r} on {intent.platform} may have "
        f"made one of these, or none: {told}",
        hint=f"nothing was made and nothing taken. `--adopt {first}` makes it this stack's; "
        "`--create-anew` says that none is (with `pulumi`: GPUFORM_ADOPT=ID, "
        "GPUFORM_CREATE_ANEW=1 in the environment)",
    )


def _told(each: Candidate, intent: Intent) -> str:
    facts = [] if each.created_at is None else [f"created {written(each.created_at)}"]
    facts += [
        f"{name} {each.shown[name]} instead of {intent.sent[name]}"
        for name in each.differences(intent.sent)
    ]
    return f"{each.id} ({', '.join(facts)})" if facts else each.id
