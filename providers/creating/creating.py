"""Create exactly once: the flow that neither loses an object nor takes one that is not ours.

1. An intent of an earlier attempt of this resource is settled first: what it made is found by the
   id that it has, else by `evidence`, and nothing is sent. While the settle time since
   its request runs, lists and lookups may lag behind, with an id and without: they are repeated.
2. List the objects of that name. One that nothing shows to be ours is somebody's: NameTaken; where
   an earlier attempt may have made it, nobody can tell: AdoptionQuestion.
3. Write the intent, send once. A definite refusal removes the intent. After an unknown outcome look
   as in 1; what did not appear leaves the intent for the next run, which looks once more. After a
   409, which may answer a repetition of our own request, look once.
4. The id goes into the intent before anybody waits. Where answers have only hints (SCP), it is
   believed when the platform shows the object under its name.

Where there are several attempts (the platform may be out of capacity), each is a round of 2 and 3
for itself, with an intent that says where it goes; only a definite refusal leads to the next one,
so that one slot never gets two objects.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.context import TRANSIENT_ERRORS, ProviderContext
from gpuform.providers.creating.capacity import first_with_capacity
from gpuform.providers.creating.evidence import (
    SKEW,
    Candidate,
    credible_time,
    judge,
    question,
)
from gpuform.providers.creating.forgetting import (
    is_refusal,
    require_absence,
    seconds_until_settled,
)
from gpuform.providers.errors import (
    AdoptionQuestion,
    ApiError,
    Cancelled,
    Conflict,
    GpuformError,
    MissingCredentials,
    NameTaken,
    OutOfCapacity,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.records import ANEW, SETTLE, Intent, Target

AGAIN = 5.0
"""Seconds between looks for what a request may have made."""


@dataclass(frozen=True)
class Attempt:
    """One way to make the object: `send` sends the create once, and returns the answer's id.

    `sent` are the properties that it sends, as far as a list shows them; no secret is among them.
    """

    send: Callable[[], str]
    region: str = ""
    gpu_type: str = ""
    sent: Mapping[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """Which one it is, for people."""
        return f"{self.gpu_type} in {self.region}"


@dataclass(frozen=True)
class Creation:
    """How one object is found and made.

    `candidates` lists the objects of the target's name, in every region; `exists` asks for one by
    its id. `has_hints`: an answer's id may be that of another object, or of none. `attempts` are
    made in turn while the platform is out of capacity, and again for `patience` seconds. `before`
    runs when it is sure that something will be sent, and raises when that would be wrong.
    `clock_ahead` says how far this machine's clock is ahead of the platform's, in seconds;
    `settle_time` how long lists may lag behind.
    """

    target: Target
    candidates: Callable[[], Sequence[Candidate]]
    exists: Callable[[str], bool]
    attempts: Sequence[Attempt]
    has_hints: bool = False
    before: Callable[[], None] = lambda: None
    patience: float = 0.0
    clock_ahead: Callable[[], float | None] = lambda: None
    settle_time: float = SETTLE

    def in_the_way(
        self, present: Iterable[Candidate], ignored: Iterable[str] = ()
    ) -> list[Candidate]:
        """Those that have the name where one of the attempts would give it, but the `ignored`."""
        regions = {attempt.region for attempt in self.attempts}
        return [
            each
            for each in present
            if not each.leaving
            and each.id not in ignored
            and any(each.is_at(region) for region in regions)
        ]


def create_once(context: ProviderContext, creation: Creation) -> str:
    """The id of the object: created now, or found again from an earlier attempt.

    Raises NameTaken, AdoptionQuestion, UnknownOutcome (the intent stays), or what the platform
    refused (nothing exists). For a call that only finds: NothingMade when there is nothing.
    """
    target = creation.target
    context.exit_stack.enter_context(context.intents.claim(target))
    earlier = context.intents.find(context.urn, target)
    if earlier is not None:
        found = _of_earlier_attempt(context, creation, earlier)
        if found is not None:
            if not context.is_search_only:
                context.on_progress(f"found {found} again, created by an earlier attempt")
            context.intents.record_id(earlier, found)
            return found
    context.refuse_creation(target)
    listed: list[Sequence[Candidate]] = [creation.candidates()]
    ignored = {context.replaced_id, *_not_in_the_way(earlier, listed[0])}
    taken = creation.in_the_way(listed[0], ignored)
    if taken:
        raise _not_ours(target, earlier, taken)
    creation.before()
    _warn_of_renamed(context, target)

    def make(attempt: Attempt) -> str:
        if listed:
            objects = listed.pop()
        else:  # the world has changed since the first attempt
            objects = creation.candidates()
            if taken := creation.in_the_way(objects, ignored):
                raise name_taken(target, taken)
        return _make(context, creation, attempt, objects)

    makers = [partial(make, attempt) for attempt in creation.attempts]
    names = [each.what for each in creation.attempts] if len(makers) > 1 else []
    return first_with_capacity(context, makers, creation.patience, names)


def _not_ours(target: Target, earlier: Intent | None, taken: Sequence[Candidate]) -> GpuformError:
    """The refusal of a name: of an attempt that may have made what has it now, as a question."""
    before = earlier.present_ids if earlier is not None else ()
    if earlier is None or all(each.id in before for each in taken):
        return name_taken(target, taken)
    return question(earlier, taken)


def _not_in_the_way(earlier: Intent | None, present: Iterable[Candidate]) -> set[str]:
    """The objects of the name that the user knows of, and wants another one beside."""
    if earlier is not None and (earlier.outcome == ANEW or permissions.creates_anew()):
        return {each.id for each in present}
    return set()


def _make(
    context: ProviderContext, creation: Creation, attempt: Attempt, present: Sequence[Candidate]
) -> str:
    """Makes the object by one attempt, while `present` is all that has its name."""
    target = creation.target
    intent = Intent(
        urn=context.urn,
        platform=target.platform,
        kind=target.kind,
        name=target.name,
        region=target.region,
        started_at=0.0,
        present_ids=tuple(each.id for each in present),
        sent=kept_properties(context, attempt.sent),
        tried_region=attempt.region,
        tried_gpu_type=attempt.gpu_type,
    )
    earlier = context.intents.find(context.urn, target)
    context.raise_if_cancelled()
    kept = Timed(context, intent, creation.clock_ahead)
    if earlier is not None and (earlier.urn is None) != (intent.urn is None):
        context.intents.forget(intent=earlier)  # of the other engine, and now settled
    try:
        with context.run_before_each_change(kept.again):
            id_ = attempt.send()
    except Conflict as error:
        if is_refusal(error):
            context.intents.forget(intent=kept.intent)
            raise
        id_ = _find_after_conflict(context, creation, kept.intent, error)
    except (ApiError, MissingCredentials, Unreachable, UnknownOutcome) as error:
        if is_refusal(error):
            context.intents.forget(intent=kept.intent)
            raise
        id_ = _find_after_unknown_outcome(context, creation, kept.intent, error.message)
    else:
        if creation.has_hints:
            id_ = _confirm(context, creation, kept.intent, id_)
    context.intents.record_id(kept.intent, id_)
    return id_


def _confirm(context: ProviderContext, creation: Creation, intent: Intent, hint: str) -> str:
    """Return the id of what a create has made, whose answer has a hint or none.

    Raises:
        UnknownOutcome: the platform did not show the object in time; the intent stays.
    """
    if hint:
        intent = context.intents.record_id(intent, hint)
    found = find_made(context, creation, intent)
    if found is None:
        raise UnknownOutcome(
            f"{intent.platform} accepted the create of the {intent.kind} {intent.name!r}, and "
            "shows no such object",
            hint="run it again: it looks once more before anything is made",
        )
    return found


def _find_after_conflict(
    context: ProviderContext, creation: Creation, intent: Intent, error: Conflict
) -> str:
    """Return the id of what our own request made although its answer was a 409.

    Raises:
        AdoptionQuestion: something appeared, and nothing proves that it is ours.
        Conflict: nothing appeared. The intent stays for the next run, but for a documented lack of
            capacity: then the next attempt may be made.
    """
    now, _ = context.get_platform_time(creation.clock_ahead())
    try:
        verdict = judge(context, intent, creation.candidates(), now)
    except TRANSIENT_ERRORS:
        raise error from None
    ours = verdict.ours
    if ours is not None and credible_time(ours, intent, now) is not None:
        context.on_warning(f"the create was refused ({error.message}), and yet it made {ours.id}")
        return ours.id
    if ours is not None or verdict.doubtful:
        raise question(intent, verdict.doubtful if ours is None else [ours])
    if isinstance(error, OutOfCapacity):
        context.intents.forget(intent=intent)
    raise error


class Timed:
    """An intent that always says when its request was last about to be sent.

    A request that has to wait (429, no connection) is sent again much later than its intent was
    written; what it makes must still be told from what others make.
    """

    def __init__(
        self,
        context: ProviderContext,
        intent: Intent,
        clock_ahead: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._call = context
        self._clock_ahead = clock_ahead
        self.intent = intent
        self._record()

    def again(self) -> None:
        """The request is about to be sent."""
        if self._now()[0] > self.intent.started_at + SKEW:
            self._record()

    def _record(self) -> None:
        now, is_timed = self._now()
        self.intent = replace(self.intent, started_at=now, is_timed=is_timed)
        self._call.intents.record(self.intent)

    def _now(self) -> tuple[float, bool]:
        return self._call.get_platform_time(self._clock_ahead())


def kept_properties(context: ProviderContext, sent: Mapping[str, Any]) -> dict[str, Any]:
    """What a record may have of a request: nothing with a secret."""
    return {
        name: value
        for name, value in sent.items()
        if context.redact_for_record(str(value)) == str(value)
    }


def _find_after_unknown_outcome(
    context: ProviderContext, creation: Creation, intent: Intent, reason: str
) -> str:
    target = creation.target
    try:
        found = find_made(context, creation, intent)
    except (AdoptionQuestion, Cancelled):
        raise
    except GpuformError as error:
        reason, found = f"{reason}; {error.message}", None
    if found is not None:
        context.on_warning(f"the answer to the create was lost ({reason}); found {found} again")
        return found
    raise UnknownOutcome(
        f"it is not known whether the {target.kind} {target.name!r} was created: {reason}",
        hint=f"nothing of that name appeared within {creation.settle_time:.0f} s. Run it again: it "
        "looks once more before anything is made",
    )


def _of_earlier_attempt(context: ProviderContext, creation: Creation, intent: Intent) -> str | None:
    """The object of an earlier attempt of this resource, None when it never came to be."""
    return None if intent.outcome else find_made(context, creation, intent)


def find_made(context: ProviderContext, creation: Creation, intent: Intent) -> str | None:
    """Return the id of what the intent's request made, None when it made nothing.

    Looks until the settle time is over, by the id that the intent has and, where that is none or a
    hint, by evidence.

    Raises:
        AdoptionQuestion: nobody can tell which object is ours.
        NotEnoughEvidence: the call's time was over before the settle time.
    """
    found, failure, began = None, None, None
    doubtful: Sequence[Candidate] = ()
    with context.extend_deadline(creation.settle_time):
        while True:
            now, _ = context.get_platform_time(creation.clock_ahead())
            began = now if began is None else began
            try:
                found, doubtful = _look_for(context, creation, intent, now)
                failure = None
            except TRANSIENT_ERRORS as error:
                failure = error
            if found is not None:
                return found
            # One look may meet a replica that lags behind: it is missed for as long, by several.
            left = max(
                seconds_until_settled(intent, now, creation.settle_time),
                began + creation.settle_time - now,
            )
            if left <= 0 or context.compute_remaining_seconds() == 0:
                break
            context.on_progress("looking for what an interrupted create may have made")
            context.sleep(min(AGAIN, left))
    if failure is not None:
        raise failure
    if intent.looked_at is None and left <= 0:  # a search that was cut short proves nothing
        context.intents.record(replace(intent, looked_at=now))
    if doubtful:
        raise question(intent, doubtful)
    require_absence(intent, [intent.name], left)
    return None


def _look_for(
    context: ProviderContext, creation: Creation, intent: Intent, now: float
) -> tuple[str | None, Sequence[Candidate]]:
    """Return the id of what the intent's request made, if it shows; and what it may have made."""
    if intent.id is not None and creation.exists(intent.id):
        return intent.id, ()
    if intent.id is not None and not creation.has_hints:
        return None, ()
    verdict = judge(context, intent, creation.candidates(), now)
    return verdict.ours.id if verdict.ours is not None else None, verdict.doubtful


def name_taken(target: Target, taken: Sequence[Candidate]) -> NameTaken:
    """The error of a name that objects have which nobody may take over."""
    ids = ", ".join(each.id for each in taken)
    id_ = taken[0].id
    typed, in_code = shlex.quote(id_), json.dumps(id_, ensure_ascii=False)
    return NameTaken(
        f"{target.platform} already has a {target.kind} named {target.name!r} ({ids}), and no "
        "record says that this project made it",
        hint=f"to manage it, write `import: {id_ if typed == id_ else in_code}` in the options of "
        f"its entry (in Python opts=pulumi.ResourceOptions(import_={in_code})) and run `gpuform "
        f"up`, or let `gpuform import {target.platform}:{target.kind} NAME {typed}` declare it; "
        "otherwise give it another name",
    )


def _warn_of_renamed(context: ProviderContext, target: Target) -> None:
    """An attempt under another name may have left an object that nobody will look for again."""
    for other in context.intents.of_urn(context.urn) if context.urn else ():
        if other.target != target and not other.outcome:
            region = other.tried_region or other.region
            which = f"{other.name!r} in {region}" + (f" ({other.id})" if other.id else "")
            context.on_warning(
                f"an earlier attempt may have created the {other.kind} {which}: look whether it "
                "exists and delete it if so"
            )
