"""Create an object exactly once: never lose an object, and never take an object of somebody else.

1. An intent of an earlier attempt of this resource is resolved first: its object is found by the id
   in the intent, else by `evidence`, and nothing is sent. During the propagation time after its
   request, lists and lookups may lag behind: they are repeated.
2. List the objects of that name. An object that nothing shows to be ours belongs to somebody:
   NameTaken; where an earlier attempt may have created the object, nobody knows whose it is:
   AdoptionQuestion.
3. Write the intent, send once. A definite refusal removes the intent. After an unknown outcome
   search as in 1; if nothing appears, the intent stays for the next run, which searches once more.
   After a 403, 409 or 429, which may answer a repetition of our own request, search once. If a 403
   or 429 shows nothing, the intent stays, marked as refused: the list may lag behind. A search that
   is later than the propagation time removes it.
4. Store the id in the intent before anybody waits. Where answers have only hints (SCP), the id
   counts when the platform shows the object under its name.

With several attempts (the platform may be out of capacity), each one is a round of 2 and 3 with its
own intent. Only a definite refusal leads to the next attempt, so that one slot never gets two
objects.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpuform.providers.context import TRANSIENT_ERRORS, ProviderContext
from gpuform.providers.context.polling import try_until_capacity
from gpuform.providers.creating.evidence import (
    CLOCK_SKEW_S,
    Candidate,
    build_adoption_question,
    compute_remaining_propagation_s,
    find_credible_time,
    is_refusal,
    judge_candidates,
    require_absence,
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
from gpuform.providers.records import (
    CREATE_ANEW,
    PROPAGATION_TIME_S,
    Intent,
    Target,
    get_urn_type,
    list_owner_urns,
    to_dynamic_urn,
)

SEARCH_INTERVAL_S = 5.0
"""Seconds between searches for what a request may have created."""


@dataclass(frozen=True)
class Attempt:
    """One way to create the object: `send` sends the create once and returns the id of the answer.

    `sent` has the properties of the request that a list shows; no secret is among them.
    """

    send: Callable[[], str]
    region: str = ""
    gpu_type: str = ""
    sent: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the GPU type and the region of the attempt, for messages."""
        return f"{self.gpu_type} in {self.region}"


@dataclass(frozen=True)
class Creation:
    """How one object is found and created.

    Args:
        target: the object.
        list_candidates: lists the objects of the target's name, in every region.
        exists: asks for an object by its id.
        attempts: tried in turn while the platform is out of capacity.
        has_hints: the id of an answer may be another object's, or nobody's.
        has_chosen_ids: people choose ids, so an object with the id of an answer may be another one.
        check_before_request: runs when a request is certain to follow, and raises to prevent the
            request.
        capacity_wait_s: seconds to repeat the attempts.
        clock_ahead: how many seconds this machine's clock is ahead of the platform's.
        propagation_time_s: seconds for which lists may lag behind.
        project: the project that the request names, for the record; empty without one.
    """

    target: Target
    list_candidates: Callable[[], Sequence[Candidate]]
    exists: Callable[[str], bool]
    attempts: Sequence[Attempt]
    has_hints: bool = False
    has_chosen_ids: bool = False
    check_before_request: Callable[[], None] = lambda: None
    capacity_wait_s: float = 0.0
    clock_ahead: Callable[[], float | None] = lambda: None
    propagation_time_s: float = PROPAGATION_TIME_S
    project: str = ""

    def find_conflicting_objects(
        self, present: Iterable[Candidate], ignored: Iterable[str] = ()
    ) -> list[Candidate]:
        """Return the objects with the create's name in a region of any attempt.

        An object without a reported region counts. Objects that are being deleted, objects of other
        projects, and objects with the ids `ignored`, are left out.
        """
        regions = {attempt.region for attempt in self.attempts}
        return [
            candidate
            for candidate in present
            if not candidate.is_being_deleted
            and not candidate.is_elsewhere
            and candidate.id not in ignored
            and any(candidate.can_be_at(region) for region in regions)
        ]


def create_once(context: ProviderContext, creation: Creation) -> str:
    """Return the id of the object: created now, or found again from an earlier attempt.

    Claims the name until the call ends. The intent of the create is stored before the request, and
    gets the id.

    Raises:
        NameTaken: an object of somebody else has the name, or another resource of the program is
            creating the name now.
        AdoptionQuestion: it is unknown whose object has the name.
        UnknownOutcome: nobody knows whether the object was created; the intent stays.
        ApiError: the platform refused, and shows no new object. After a 403, 409 or 429 the intent
            stays.
        NothingMade: the call only searches, and nothing was created.
        NotEnoughEvidence: the deadline passed while the object of an earlier attempt could still
            appear.
        GpuformError: the platform refused, and nothing exists, or it did not answer the search.
    """
    target = creation.target
    # Two resources of one program must not create the same name at once.
    context.progress.exit_stack.enter_context(context.intents.claim(target))
    # First of all: an interrupted create may have made the object already.
    earlier = _find_earlier_attempt(context, target)
    if earlier is not None:
        object_id = _find_object_of_earlier_attempt(context, creation, earlier)
        if object_id is not None:
            if not context.progress.is_search_only:
                context.on_progress(f"found {object_id}, which an earlier attempt created")
            # The id is stored before anybody waits: a crash now loses nothing.
            context.intents.record_id(earlier, object_id)
            return object_id
    # A call that may only search ends here: nothing was found.
    context.refuse_creation(target)
    if earlier is not None and earlier.is_refused:
        # The refused create did nothing: this create is like one without an earlier attempt.
        context.intents.forget(intent=earlier)
        earlier = earlier if context.run.creates_anew else None
    first_listing: list[Sequence[Candidate]] = [creation.list_candidates()]
    ignored = {context.replaced_id, *_find_acknowledged_ids(context, earlier, first_listing[0])}
    conflicting_objects = creation.find_conflicting_objects(first_listing[0], ignored)
    if conflicting_objects:
        raise _build_conflict_error(context, target, earlier, conflicting_objects)
    creation.check_before_request()
    _warn_of_renamed_attempts(context, target)

    def create_by_attempt(attempt: Attempt) -> str:
        if first_listing:
            objects = first_listing.pop()
        else:  # the platform's objects may have changed since the first attempt
            objects = creation.list_candidates()
            if conflicting_objects := creation.find_conflicting_objects(objects, ignored):
                raise build_name_taken_error(context, target, conflicting_objects)
        return _create_by_attempt(context, creation, attempt, objects)

    makers = [partial(create_by_attempt, attempt) for attempt in creation.attempts]
    names = (
        [candidate_attempt.label for candidate_attempt in creation.attempts]
        if len(makers) > 1
        else []
    )
    return try_until_capacity(context, makers, creation.capacity_wait_s, names)


def _find_earlier_attempt(context: ProviderContext, target: Target) -> Intent | None:
    """Return the recorded create of this object by this resource, or None.

    Pulumi's hosts never confirm that they have stored an id, so that the record of a finished
    create may still be there. If the state has the object, this call replaces it: the replacement
    would be the object that Pulumi deletes next. Such a record is deleted.
    """
    earlier = context.intents.find(context.urn, target)
    if earlier is None or not earlier.id or context.urn is None or not context.is_pulumi_host:
        return earlier
    if not list_owner_urns(context.intents, context.urn, earlier.id):
        return earlier
    context.intents.forget(intent=earlier)
    return None


def _build_conflict_error(
    context: ProviderContext, target: Target, earlier: Intent | None, taken: Sequence[Candidate]
) -> GpuformError:
    """Return the error for a create whose name objects on the platform already have.

    AdoptionQuestion if an earlier attempt may have created them, else NameTaken.
    """
    earlier_ids = earlier.present_ids if earlier is not None else ()
    if earlier is None or all(candidate.id in earlier_ids for candidate in taken):
        return build_name_taken_error(context, target, taken)
    return build_adoption_question(earlier, taken)


def _find_acknowledged_ids(
    context: ProviderContext, earlier: Intent | None, present: Iterable[Candidate]
) -> set[str]:
    """Return the ids of objects of equal name beside which `--create-anew` creates a new object.

    Empty without the permission, and without an earlier attempt.
    """
    if earlier is not None and (earlier.outcome == CREATE_ANEW or context.run.creates_anew):
        return {candidate.id for candidate in present}
    return set()


def _create_by_attempt(
    context: ProviderContext, creation: Creation, attempt: Attempt, present: Sequence[Candidate]
) -> str:
    """Create the object by one attempt, and return the object's id.

    `present` are all objects of the name. The intent is stored before the request; a refusal
    deletes the intent, and the created object's id is stored in it.

    Raises:
        AdoptionQuestion: an object appeared, and nothing proves that it is ours.
        UnknownOutcome: nobody knows whether the object was created; the intent stays.
        ApiError: the platform answered 403, 409 or 429, and shows no new object; see
            `_find_after_doubtful_refusal` for the intent.
        GpuformError: the platform refused; nothing was created.
    """
    target = creation.target
    intent = Intent(
        urn=context.urn,
        platform=target.platform,
        kind=target.kind,
        name=target.name,
        region=target.region,
        started_at=0.0,
        present_ids=tuple(candidate.id for candidate in present),
        sent=redact_sent_properties(context, attempt.sent),
        tried_region=attempt.region,
        tried_gpu_type=attempt.gpu_type,
        project=creation.project,
    )
    earlier = context.intents.find(context.urn, target)
    # The last moment at which nothing has to be recorded.
    context.raise_if_cancelled()
    # Stored before the request: if the process dies from here on, the next run searches for the
    # object.
    timed_intent = TimedIntent(context, intent, creation.clock_ahead)
    if earlier is not None and (earlier.urn is None) != (intent.urn is None):
        context.intents.forget(intent=earlier)  # of the other engine; its object was found now
    try:
        # A request that waits for its turn is sent much later than its record says.
        with context.run_before_each_change(
            timed_intent.refresh_start,
            can_repeat=lambda: _is_without_trace(context, creation, timed_intent.intent),
        ):
            object_id = attempt.send()
    except (ApiError, MissingCredentials, Unreachable, UnknownOutcome) as error:
        if is_refusal(error):
            context.intents.forget(intent=timed_intent.intent)
            raise
        if isinstance(error, ApiError) and error.is_definite:
            object_id = _find_after_doubtful_refusal(context, creation, timed_intent.intent, error)
        else:
            object_id = _find_after_unknown_outcome(
                context, creation, timed_intent.intent, error.message
            )
    else:
        # The id of the answer may be another object's: the platform has to show the object first.
        if creation.has_hints:
            object_id = _confirm_created(context, creation, timed_intent.intent, object_id)
    context.intents.record_id(timed_intent.intent, object_id)
    return object_id


def _confirm_created(
    context: ProviderContext, creation: Creation, intent: Intent, hint: str
) -> str:
    """Return the id of the created object after the platform has shown the object.

    For an answer without an id, or from a platform whose answer may have another object's id (a
    `hint`, which is stored in the intent).

    Raises:
        AdoptionQuestion: it is unknown which object is ours.
        UnknownOutcome: the platform did not show the object in time; the intent stays.
        GpuformError: the search was cut short or got no answer; the intent stays.
    """
    if hint:
        intent = context.intents.record_id(intent, hint)
    object_id = search_created(context, creation, intent)
    if object_id is None:
        raise UnknownOutcome(
            f"{intent.platform} accepted the create of the {intent.kind} {intent.name!r}, but "
            "does not show the object",
            hint="run the command again: it looks for the object before it creates anything",
        )
    return object_id


def _is_without_trace(context: ProviderContext, creation: Creation, intent: Intent) -> bool:
    """Return True if the platform lists no object that a create may have made.

    False if the platform does not answer.
    """
    now, _ = context.get_platform_time(creation.clock_ahead())
    try:
        verdict = judge_candidates(context, intent, creation.list_candidates(), now)
    except (ApiError, *TRANSIENT_ERRORS):
        return False
    return verdict.ours is None and not verdict.doubtful


def _find_after_doubtful_refusal(
    context: ProviderContext, creation: Creation, intent: Intent, error: ApiError
) -> str:
    """Return the id of the object which a create made although the platform refused it, and warn.

    `error` has one of the statuses in `ANSWERS_TO_REPETITIONS`.

    Raises:
        AdoptionQuestion: an object appeared, and nothing proves that it is ours.
        ApiError: `error`, because nothing appeared or the list failed. The intent stays for the
            next run, after a 403 or a 429 as refused. Only if nothing appeared after a documented
            lack of capacity, the intent is deleted, so that the next attempt may follow.
    """
    now, _ = context.get_platform_time(creation.clock_ahead())
    try:
        verdict = judge_candidates(context, intent, creation.list_candidates(), now)
    # Without a list nobody knows: the refusal is reported, and the intent stays.
    except (ApiError, *TRANSIENT_ERRORS):
        if not isinstance(error, Conflict):
            context.intents.record(replace(intent, is_refused=True))
        raise error from None
    own_object = verdict.ours
    # A 409 may be about a colleague's object of the same moment.
    if own_object is not None and (
        not isinstance(error, Conflict) or find_credible_time(own_object, intent, now) is not None
    ):
        context.on_warning(
            f"the platform refused the create ({error.message}), but created {own_object.id}"
        )
        return own_object.id
    if own_object is not None or verdict.doubtful:
        raise build_adoption_question(
            intent, verdict.doubtful if own_object is None else [own_object]
        )
    # A documented lack of capacity is definite: the next attempt may follow. A wrong key and too
    # many requests are everyday answers: the next run looks once more, and reports nothing.
    if isinstance(error, OutOfCapacity):
        context.intents.forget(intent=intent)
    elif not isinstance(error, Conflict):
        context.intents.record(replace(intent, is_refused=True))
    raise error


class TimedIntent:
    """An intent that always states when its request was last about to be sent.

    A request that waits (429, no connection) is sent long after its intent was written; its object
    must still be distinguishable from objects of others.
    """

    def __init__(
        self,
        context: ProviderContext,
        intent: Intent,
        clock_ahead: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._context = context
        self._clock_ahead = clock_ahead
        self.intent = intent
        self._record()

    def refresh_start(self) -> None:
        """Store the intent with the present time if the request is sent later than recorded.

        Later means by more than `CLOCK_SKEW_S` seconds.
        """
        if self._get_platform_time()[0] > self.intent.started_at + CLOCK_SKEW_S:
            self._record()

    def _record(self) -> None:
        """Store the intent with the platform's present time as the start of the request."""
        now, is_timed = self._get_platform_time()
        self.intent = replace(self.intent, started_at=now, is_timed=is_timed)
        self._context.intents.record(self.intent)

    def _get_platform_time(self) -> tuple[float, bool]:
        """Return the platform's Unix time, and whether the platform's clock is known."""
        return self._context.get_platform_time(self._clock_ahead())


def redact_sent_properties(context: ProviderContext, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's properties for a record, without the properties with a secret."""
    return {
        name: value
        for name, value in sent.items()
        if context.redact_for_record(str(value)) == str(value)
    }


def _find_after_unknown_outcome(
    context: ProviderContext, creation: Creation, intent: Intent, reason: str
) -> str:
    """Return the id of the object made by a create without an answer, and warn.

    `reason` says why no answer came.

    Raises:
        AdoptionQuestion: it is unknown which object is ours.
        UnknownOutcome: no object of the name appeared in time, or the search failed; the intent
            stays.
    """
    target = creation.target
    try:
        object_id = search_created(context, creation, intent)
    except (AdoptionQuestion, Cancelled):
        raise
    except GpuformError as error:
        reason, object_id = f"{reason}; {error.message}", None
    if object_id is not None:
        context.on_warning(
            f"the answer to the create was lost ({reason}); found the object: {object_id}"
        )
        return object_id
    raise UnknownOutcome(
        f"the {target.kind} {target.name!r}: the result of its create is unknown: {reason}",
        hint=f"no object of that name appeared within {creation.propagation_time_s:.0f} s. Run the "
        "command again: it looks for the object before it creates anything",
    )


def _find_object_of_earlier_attempt(
    context: ProviderContext, creation: Creation, intent: Intent
) -> str | None:
    """Return the id of the object which an earlier create made, or None if nothing was made.

    Searches like `search_created`, unless the intent says how the create ended: then None.
    """
    return None if intent.outcome else search_created(context, creation, intent)


def search_created(context: ProviderContext, creation: Creation, intent: Intent) -> str | None:
    """Return the id of the object which a recorded create made, or None if the create made nothing.

    Searches until the propagation time is over, counted from the request and again from the start
    of the search: by the id in the intent and, without an id or where ids are only hints, among the
    platform's objects of the name. Stores in the intent when the first complete search has ended
    without a result.

    For a refused create, the time counts from the request alone, and a call that only searches
    looks once, because the create that follows waits.

    Raises:
        AdoptionQuestion: it is unknown which object is ours.
        NotEnoughEvidence: the deadline passed before the propagation time.
        GpuformError: the platform has not answered the last search.
    """
    object_id, failure, search_started_at = None, None, None
    doubtful: Sequence[Candidate] = ()
    with context.extend_deadline(creation.propagation_time_s):
        while True:
            now, _ = context.get_platform_time(creation.clock_ahead())
            search_started_at = now if search_started_at is None else search_started_at
            try:
                object_id, doubtful = _search_once(context, creation, intent, now)
                failure = None
            except TRANSIENT_ERRORS as error:
                failure = error
            if object_id is not None:
                return object_id
            remaining = compute_remaining_propagation_s(intent, now, creation.propagation_time_s)
            # One look may meet a replica that lags behind: it is missed for as long, by several.
            if not intent.is_refused:
                time_s = search_started_at + creation.propagation_time_s - now
                remaining = max(remaining, time_s)
            is_single_look = intent.is_refused and context.progress.is_search_only
            if remaining <= 0 or is_single_look or context.compute_remaining_seconds() == 0:
                break
            create = "a refused create" if intent.is_refused else "an interrupted create"
            context.on_progress(f"looking for the object of {create}")
            context.sleep(min(SEARCH_INTERVAL_S, remaining))
    if failure is not None:
        raise failure
    if intent.looked_at is None and remaining <= 0:  # a search that was cut short proves nothing
        context.intents.record(replace(intent, looked_at=now))
    if doubtful:
        raise build_adoption_question(intent, doubtful)
    require_absence(intent, [intent.name], remaining)
    return None


def _search_once(
    context: ProviderContext, creation: Creation, intent: Intent, now: float
) -> tuple[str | None, Sequence[Candidate]]:
    """Return the created object's id, or None, and the objects of which one may be ours."""
    if intent.id is not None and creation.exists(intent.id):
        return intent.id, ()
    if intent.id is not None and not (creation.has_hints or creation.has_chosen_ids):
        return None, ()
    verdict = judge_candidates(context, intent, creation.list_candidates(), now)
    return verdict.ours.id if verdict.ours is not None else None, verdict.doubtful


def refuse_stored_object(context: ProviderContext, target: Target, object_id: str) -> None:
    """Raise NameTaken if the state has the object that a call of Pulumi's would create.

    For kinds whose id follows from the declaration: the replacement would have the id of the object
    that Pulumi deletes next. gpuform's engine has no such records of finished creates.
    """
    error = build_own_name_error(context, target, [object_id]) if context.is_pulumi_host else None
    if error is not None:
        raise error


def build_own_name_error(
    context: ProviderContext, target: Target, taken_ids: Sequence[str]
) -> NameTaken | None:
    """Return the error if a resource of the stack has one of the objects, else None.

    The object may be a part of the resource, such as a node of a pool, and the resource may be in
    the state, or in the record of a create that no state has yet. The advice is not to import: the
    object would have two owners, and the stack would delete it under the old name.
    """
    if context.urn is None:
        return None
    for object_id in taken_ids:
        message = (
            f"{target.platform} already has a {target.kind} named {target.name!r} ({object_id})"
        )
        owner_urns = {*list_owner_urns(context.intents, context.urn, object_id)}
        creator_urns = {
            to_dynamic_urn(intent.urn)
            for intent in context.intents.list_all()
            if intent.urn and object_id in intent.made
        }
        own_urn = to_dynamic_urn(context.urn)
        for owner_urn in sorted((owner_urns | creator_urns) - {own_urn}):
            owner_name = owner_urn.rpartition("::")[2]
            if get_urn_type(owner_urn) != get_urn_type(own_urn):
                return NameTaken(
                    f"{message}: it belongs to {owner_name!r} in this stack",
                    hint=f"give the new object another name, or change {owner_name!r} first",
                )
            return NameTaken(
                f"{message}: it is the object of {owner_name!r} in this stack",
                hint=f"if {owner_name!r} was renamed, declare its earlier name as an alias (in "
                f"Python opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name={owner_name!r})]));"
                " otherwise give the new object another name",
            )
        if owner_urns:
            return NameTaken(
                f"{message}: it is the object that this run replaces",
                hint="the old object has to be deleted first: leave out "
                "`delete_before_replace=False`, and use `gpuform up --replace` instead of "
                "`pulumi up --replace`; otherwise give the new object another name",
            )
    return None


def build_name_taken_error(
    context: ProviderContext, target: Target, existing_objects: Sequence[Candidate]
) -> NameTaken:
    """Return the error for a create whose name is in use, with the ids of the objects.

    The advice is to import an object only if no resource of the stack has one of them.
    """
    own_error = build_own_name_error(
        context, target, [candidate.id for candidate in existing_objects]
    )
    if own_error is not None:
        return own_error
    ids = ", ".join(candidate.id for candidate in existing_objects)
    object_id = existing_objects[0].id
    shell_id, in_code = shlex.quote(object_id), json.dumps(object_id, ensure_ascii=False)
    return NameTaken(
        f"{target.platform} already has a {target.kind} named {target.name!r} ({ids}), and this "
        "project has no record of creating it",
        hint=f"to manage it, write `import: {object_id if shell_id == object_id else in_code}` in "
        "the options of "
        f"its entry (in Python opts=pulumi.ResourceOptions(import_={in_code})) and run `gpuform "
        f"up`, or let `gpuform import {target.platform}:{target.kind} NAME {shell_id}` declare it; "
        "otherwise give it another name",
    )


def _warn_of_renamed_attempts(context: ProviderContext, target: Target) -> None:
    """Warn of an object possibly created by an attempt under another name or region."""
    for other in context.intents.list_for_urn(context.urn) if context.urn else ():
        if other.target != target and not (other.outcome or other.is_refused):
            region = other.tried_region or other.region
            which = f"{other.name!r}" + (f" in {region}" if region else "")
            which += f" ({other.id})" if other.id else ""
            context.on_warning(
                f"an earlier attempt may have created the {other.kind} {which}: look for it on "
                "the platform, and delete it if it exists"
            )
