"""Create exactly once: the flow that neither loses an object nor takes one that is not ours.

1. List the objects of that name. An intent of an earlier attempt of this resource: its object is
   the id it recorded, else the only new one; that one is adopted and nothing is sent.
2. Without such an intent, an object of that name is somebody's: NameTaken.
3. Write the intent, send once. A definite refusal removes the intent. After an unknown outcome
   list again: the only new object is ours; otherwise the intent stays for the next attempt.
4. The id goes into the intent before anybody waits.

Where there are several attempts (the platform may be out of capacity), each is a round of 2 and 3
for itself, with an intent that says where it goes; only a definite refusal leads to the next one,
so that one slot never gets two objects.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gpuform.providers.call import Call
from gpuform.providers.capacity import first_with_capacity
from gpuform.providers.errors import (
    AmbiguousObject,
    ApiError,
    GpuformError,
    MissingCredentials,
    NameTaken,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.intents import Intent, Target

CLOCK_SKEW = 300.0
"""Seconds that the platform's clock may differ from ours when an object's age is judged."""

LONGEST_SEND = 900.0
"""Seconds after its intent in which a create can still take effect, with all its repetitions."""


@dataclass(frozen=True)
class Candidate:
    """An object of the wanted name, as a list shows it.

    `created_at` is Unix time in seconds, None where the platform does not tell. An object that is
    `leaving` is being deleted: it is neither adopted nor in the way. `region` and `gpu_type` are
    empty where the platform does not tell them.
    """

    id: str
    created_at: float | None = None
    leaving: bool = False
    region: str = ""
    gpu_type: str = ""

    def is_at(self, region: str, gpu_type: str = "") -> bool:
        """Whether it can be in that region and of that type; what is empty is not known."""
        pairs = ((self.region, region), (self.gpu_type, gpu_type))
        return all(mine == theirs or not (mine and theirs) for mine, theirs in pairs)


@dataclass(frozen=True)
class Attempt:
    """One way to make the object: `send` sends the create once, and returns the answer's id."""

    send: Callable[[], str]
    region: str = ""
    gpu_type: str = ""


@dataclass(frozen=True)
class Creation:
    """How one object is found and made.

    `candidates` lists the objects of the target's name, in every region. `attempts` are made in
    turn while the platform is out of capacity, and again for `patience` seconds. `before` runs when
    it is sure that something will be sent, and raises when that would be wrong.
    """

    target: Target
    candidates: Callable[[], Sequence[Candidate]]
    attempts: Sequence[Attempt]
    before: Callable[[], None] = lambda: None
    patience: float = 0.0

    def in_the_way(self, present: Iterable[Candidate]) -> list[Candidate]:
        """Those that have the name where one of the attempts would give it."""
        regions = {attempt.region for attempt in self.attempts}
        return [
            each
            for each in present
            if not each.leaving and any(each.is_at(region) for region in regions)
        ]


def create_once(call: Call, creation: Creation) -> str:
    """The id of the object: created now, or found again from an earlier attempt.

    Raises NameTaken, AmbiguousObject, UnknownOutcome (the intent stays), or what the platform
    refused (nothing exists).
    """
    target = creation.target
    call.held.enter_context(call.intents.claim(target))
    present = creation.candidates()
    earlier = call.intents.find(call.urn, target)
    if earlier is not None:
        found = _of_earlier_attempt(call, earlier, present)
        if found is not None:
            call.on_progress(f"found {found} again, created by an earlier attempt")
            call.intents.record_id(earlier, found)
            return found
    _refuse_taken(creation, present)
    creation.before()
    _warn_of_renamed(call, target)
    listed: list[Sequence[Candidate]] = [present]

    def make(attempt: Attempt) -> str:
        if listed:
            objects = listed.pop()
        else:  # the world has changed since the first attempt
            objects = creation.candidates()
            _refuse_taken(creation, objects)
        return _make(call, creation, attempt, objects)

    makers = [partial(make, attempt) for attempt in creation.attempts]
    return first_with_capacity(call, makers, creation.patience)


def _make(call: Call, creation: Creation, attempt: Attempt, present: Sequence[Candidate]) -> str:
    """Makes the object by one attempt, while `present` is all that has its name."""
    target = creation.target
    if len(creation.attempts) > 1:
        call.on_progress(f"trying {attempt.gpu_type} in {attempt.region}")
    intent = Intent(
        urn=call.urn,
        platform=target.platform,
        kind=target.kind,
        name=target.name,
        region=target.region,
        started_at=call.clock.now(),
        present_ids=tuple(each.id for each in present),
        tried_region=attempt.region,
        tried_gpu_type=attempt.gpu_type,
    )
    earlier = call.intents.find(call.urn, target)
    call.raise_if_cancelled()
    call.intents.record(intent)
    if earlier is not None and (earlier.urn is None) != (intent.urn is None):
        call.intents.forget(intent=earlier)  # of the other engine, and now settled
    id_ = _send(call, creation, attempt, intent)
    call.intents.record_id(intent, id_)
    return id_


def _send(call: Call, creation: Creation, attempt: Attempt, intent: Intent) -> str:
    try:
        return attempt.send()
    except (MissingCredentials, Unreachable):
        call.intents.forget(intent=intent)
        raise
    except ApiError as error:
        if error.is_definite:
            call.intents.forget(intent=intent)
            raise
        reason = error.message
    except UnknownOutcome as error:
        reason = error.message
    return _find_after_unknown_outcome(call, creation, intent, reason)


def _find_after_unknown_outcome(call: Call, creation: Creation, intent: Intent, reason: str) -> str:
    target = creation.target
    try:
        new = new_since(call, intent, creation.candidates())
    except GpuformError as error:
        reason, new = f"{reason}; {error.message}", []
    if len(new) == 1:
        call.on_warning(f"the answer to the create was lost ({reason}); found {new[0].id} again")
        return new[0].id
    if new:
        raise _ambiguous(target, new)
    raise UnknownOutcome(
        f"it is not known whether the {target.kind} {target.name!r} was created: {reason}",
        hint="run it again: an object that appeared meanwhile is found by its name",
    )


def _of_earlier_attempt(call: Call, intent: Intent, present: Iterable[Candidate]) -> str | None:
    """The object of an earlier attempt of this resource, None when it never came to be."""
    present = [each for each in present if not each.leaving]
    if intent.id is not None:
        return next((each.id for each in present if each.id == intent.id), None)
    new = new_since(call, intent, present)
    if len(new) > 1:
        raise _ambiguous(intent.target, new)
    return new[0].id if new else None


def new_since(call: Call, intent: Intent, present: Iterable[Candidate]) -> list[Candidate]:
    """Objects that can be the intent's: not there before, as old as it, and nobody else's."""
    theirs = [other for other in call.intents.all() if other.urn != intent.urn]
    others = {id_ for other in theirs for id_ in (other.id, *other.ids)}
    region = intent.tried_region or intent.region
    return [
        each
        for each in present
        if not each.leaving
        and each.is_at(region, intent.tried_gpu_type)
        and each.id not in intent.present_ids
        and each.id not in others
        and _may_be_as_old(each, intent)
    ]


def _may_be_as_old(each: Candidate, intent: Intent) -> bool:
    if each.created_at is None:
        return True
    return -CLOCK_SKEW <= each.created_at - intent.started_at <= LONGEST_SEND + CLOCK_SKEW


def _refuse_taken(creation: Creation, present: Sequence[Candidate]) -> None:
    if taken := creation.in_the_way(present):
        raise name_taken(creation.target, taken)


def name_taken(target: Target, taken: Sequence[Candidate]) -> NameTaken:
    """The error of a name that objects have which nobody may take over."""
    ids = ", ".join(each.id for each in taken)
    return NameTaken(
        f"{target.platform} already has a {target.kind} named {target.name!r} ({ids}), and no "
        "record says that this project made it",
        hint=f"to manage it, write `import: {taken[0].id}` in the options of its entry (in Python "
        f'opts=pulumi.ResourceOptions(import_="{taken[0].id}")) and run `gpuform up`, or let '
        f"`gpuform import {target.platform}:{target.kind} NAME {taken[0].id}` declare it; "
        "otherwise give it another name",
    )


def _ambiguous(target: Target, new: Sequence[Candidate]) -> AmbiguousObject:
    ids = ", ".join(each.id for each in new)
    return AmbiguousObject(
        f"several new {target.kind}s on {target.platform} are named {target.name!r} ({ids}): it "
        "is not known which one this project made",
        hint="delete the ones that are not wanted, then run it again",
    )


def _warn_of_renamed(call: Call, target: Target) -> None:
    """An attempt under another name may have left an object that nobody will look for again."""
    for other in call.intents.of_urn(call.urn) if call.urn else ():
        if other.target != target:
            region = other.tried_region or other.region
            which = f"{other.name!r} in {region}" + (f" ({other.id})" if other.id else "")
            call.on_warning(
                f"an earlier attempt may have created the {other.kind} {which}: look whether it "
                "exists and delete it if so"
            )
