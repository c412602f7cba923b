"""Test exactly-once creates on a platform that loses answers, with kills at every point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clocks.fake_clock import FakeClock
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import CallProgress, ProviderContext, RunContext
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import (
    AdoptionQuestion,
    ApiError,
    Cancelled,
    Conflict,
    GpuformError,
    InvalidRequest,
    MissingCredentials,
    NameTaken,
    NothingMade,
    OutOfCapacity,
    PermissionDenied,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.records import Fields, FolderRecords, Intent, Intents, Target

TARGET = Target("together", "Cluster", "train", "us-central-8")
SENT = {"num_gpus": 16}


class Killed(BaseException):
    """The process is killed here."""


@dataclass
class Platform:
    """Objects of the requested name; `answer` replaces the answer of a create."""

    call: ProviderContext
    objects: list[Candidate] = field(default_factory=list)
    sent: int = 0
    takes_effect: bool = True
    answer: Callable[[], None] = lambda: None
    listing: Callable[[], None] = lambda: None

    def list_candidates(self) -> list[Candidate]:
        self.listing()
        return list(self.objects)

    def exists(self, id_: str) -> bool:
        return any(candidate.id == id_ for candidate in self.list_candidates())

    def send(self) -> str:
        self.sent += 1
        assert self.call.intents.list_all(), "no request without an intent"
        id_ = f"c{len(self.objects) + 1}"
        if self.takes_effect:
            self.objects.append(Candidate(id_, self.call.clock.now()))
        self.answer()
        return id_

    def create(self, **changes: object) -> str:
        creation = replace(
            Creation(TARGET, self.list_candidates, self.exists, [Attempt(self.send, sent=SENT)]),
            **changes,
        )  # type: ignore[arg-type]
        with _end_call(self.call):
            return create_once(self.call, creation)

    def answer_with(self, error: BaseException | None, *, takes_effect: bool = True) -> None:
        def answer() -> None:
            if error is not None:
                raise error

        self.answer, self.takes_effect = answer, takes_effect


@contextmanager
def _end_call(call: ProviderContext) -> Iterator[None]:
    """End a call and release all locks, also of a 'killed' process."""
    try:
        yield
    finally:
        call.progress.exit_stack.close()


@pytest.fixture
def platform(call: ProviderContext) -> Platform:
    return Platform(call)


def _build_refusal(kind: type[ApiError], status: int) -> ApiError:
    return kind("refused", method="POST", path="/clusters", status=status)


LOST = [
    UnknownOutcome("no answer"),
    _build_refusal(ServerError, 500),
    _build_refusal(ServerError, 200),
]
DEFINITE = [
    _build_refusal(InvalidRequest, 422),
    _build_refusal(OutOfCapacity, 409),
    Unreachable("no connection"),
    MissingCredentials("no key"),
]


def test_a_create_is_sent_once_and_its_id_recorded(platform: Platform, intents: Intents) -> None:
    assert platform.create() == "c1"
    (intent,) = intents.list_all()
    assert (intent.id, intent.present_ids, intent.urn) == ("c1", (), platform.call.urn)
    assert platform.sent == 1


@pytest.mark.parametrize("error", DEFINITE, ids=lambda error: type(error).__name__)
def test_a_definite_refusal_leaves_no_intent(
    platform: Platform, intents: Intents, error: GpuformError
) -> None:
    platform.answer_with(error, takes_effect=False)
    with pytest.raises(type(error)):
        platform.create()
    assert intents.list_all() == []


@pytest.mark.parametrize(
    ("type_", "advice"),
    [
        ("type", "it is the object of 'other' in this stack\n  if 'other' was renamed"),
        ("another", "it belongs to 'other' in this stack\n  give the new object another name"),
    ],
)
def test_an_object_that_this_run_created_for_another_resource_is_not_imported(
    platform: Platform, intents: Intents, type_: str, advice: str
) -> None:
    owner = f"urn:pulumi:dev::project::{type_}::other"
    intents.record(Intent(owner, "together", "Cluster", "other", "", 1.0, id="c0"))
    intents.record(Intent(None, "together", "Cluster", "old", "", 1.0, id="c0"))
    platform.objects.append(Candidate("c0"))
    with pytest.raises(NameTaken) as caught:
        platform.create()
    assert f"named 'train' (c0): {advice}" in str(caught.value)
    assert "import" not in str(caught.value)
    assert platform.sent == 0


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_create_with_a_lost_answer_finds_its_object(
    platform: Platform, reported: object, error: Exception
) -> None:
    platform.answer_with(error)
    assert platform.create() == "c1"
    assert platform.sent == 1
    assert "found the object: c1" in reported.warnings[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_lost_request_stays_open_until_the_next_attempt(
    platform: Platform, intents: Intents, error: Exception
) -> None:
    platform.answer_with(error, takes_effect=False)
    with pytest.raises(UnknownOutcome, match="its create is unknown"):
        platform.create()
    assert [intent.id for intent in intents.list_all()] == [None]
    platform.answer_with(None)
    assert platform.create() == "c1"
    assert (platform.sent, len(platform.objects)) == (2, 1)


def test_an_object_that_appears_late_is_adopted_by_the_next_attempt(platform: Platform) -> None:
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    created = platform.call.clock.now() - 30
    platform.objects.append(Candidate("late", created))
    assert platform.create() == "late"
    assert platform.sent == 1


def test_an_object_that_appears_after_the_last_look_is_not_adopted(platform: Platform) -> None:
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.objects.append(
        Candidate("theirs", platform.call.clock.now(), reported_properties=SENT)
    )
    for _ in range(3):
        platform.call.clock.sleep(20, platform.call.cancelled)
        with pytest.raises(AdoptionQuestion, match="theirs"):
            platform.create()


def test_a_lost_answer_and_a_failed_listing_keep_the_intent(
    platform: Platform, intents: Intents
) -> None:
    def answer() -> None:
        def listing() -> None:
            raise Unreachable("no connection")

        platform.listing = listing
        raise UnknownOutcome("no answer")

    platform.answer = answer
    with pytest.raises(UnknownOutcome, match="no answer; no connection"):
        platform.create()
    assert len(intents.list_all()) == 1


def test_a_create_killed_after_sending_finds_its_object(platform: Platform) -> None:
    platform.answer_with(Killed())
    with pytest.raises(Killed):
        platform.create()
    platform.answer_with(None)
    assert platform.create() == "c1"
    assert (platform.sent, len(platform.objects)) == (1, 1)


def test_a_create_killed_before_its_effect_is_sent_again(platform: Platform) -> None:
    platform.answer_with(Killed(), takes_effect=False)
    with pytest.raises(Killed):
        platform.create()
    platform.answer_with(None)
    assert platform.create() == "c1"
    assert len(platform.objects) == 1


def test_a_create_killed_while_waiting_finds_its_id(platform: Platform) -> None:
    assert platform.create() == "c1"
    platform.objects.append(Candidate("c9", platform.call.clock.now() + 5))
    assert platform.create() == "c1"
    assert platform.sent == 1


def test_a_recorded_object_that_is_gone_is_created_again(platform: Platform) -> None:
    assert platform.create() == "c1"
    platform.objects.clear()
    assert platform.create() == "c1"
    assert platform.sent == 2


def test_a_recorded_object_with_an_id_that_people_choose_is_found_in_spite_of_its_time(
    platform: Platform,
) -> None:
    """The time of an object makes its chosen id worthless as evidence, and not the object."""
    kind: dict[str, Any] = {"has_chosen_ids": True, "exists": lambda _id: False}
    assert platform.create(**kind) == "c1"
    platform.objects[:] = [Candidate("c1", 946684800.0, reported_properties=SENT)]
    assert platform.create(**kind) == "c1"
    assert platform.sent == 1


def test_an_object_of_somebody_else_is_never_adopted(platform: Platform, intents: Intents) -> None:
    platform.objects.append(Candidate("theirs"))
    with pytest.raises(NameTaken) as caught:
        platform.create()
    assert "(theirs)" in str(caught.value)
    assert 'import_="theirs"' in str(caught.value)
    assert platform.sent == 0
    assert intents.list_all() == []


def test_an_object_with_an_old_time_and_no_properties_requires_a_decision(
    platform: Platform, intents: Intents
) -> None:
    def answer() -> None:
        platform.objects.append(Candidate("older", platform.call.clock.now() - 3600))
        raise UnknownOutcome("no answer")

    platform.takes_effect, platform.answer = False, answer
    with pytest.raises(AdoptionQuestion, match="older"):
        platform.create()
    assert len(intents.list_all()) == 1


WRONG_TIMES = {"year 1": -62_135_596_800.0, "1970": 0.0, "early": -600.0, "late": 1200.0}


@pytest.mark.parametrize("wrong", WRONG_TIMES)
@pytest.mark.parametrize("ahead", [None, 0.0])
class TestWrongTimes:
    """Reported creation times that contradict our own observations prove nothing."""

    @staticmethod
    def _build_candidate(
        platform: Platform, wrong: str, reported_properties: object = SENT, id_: str = "c1"
    ) -> Candidate:
        shift = WRONG_TIMES[wrong]
        now = platform.call.clock.now()
        return Candidate(
            id_,
            now + shift if abs(shift) in (600, 1200) else shift,
            reported_properties=reported_properties,
        )  # type: ignore[arg-type]

    def test_an_object_observed_in_time_with_our_properties_is_adopted(
        self, platform: Platform, wrong: str, ahead: float | None
    ) -> None:
        def answer() -> None:
            platform.objects[:] = [self._build_candidate(platform, wrong)]
            raise UnknownOutcome("no answer")

        platform.answer = answer
        assert platform.create(clock_ahead=lambda: ahead) == "c1"

    def test_an_object_observed_too_late_requires_a_decision(
        self, platform: Platform, intents: Intents, wrong: str, ahead: float | None
    ) -> None:
        platform.answer_with(Killed())
        with pytest.raises(Killed):
            platform.create(clock_ahead=lambda: ahead)
        platform.objects[:] = [self._build_candidate(platform, wrong)]
        platform.call.clock.sleep(86_400, platform.call.cancelled)
        platform.call.progress.is_search_only = True
        with pytest.raises(AdoptionQuestion, match="c1"):
            platform.create(clock_ahead=lambda: ahead)
        assert len(intents.list_all()) == 1

    def test_two_such_objects_require_a_decision(
        self, platform: Platform, wrong: str, ahead: float | None
    ) -> None:
        def answer() -> None:
            platform.objects.append(self._build_candidate(platform, wrong))
            platform.objects.append(self._build_candidate(platform, wrong, id_="c2"))
            raise UnknownOutcome("no answer")

        platform.takes_effect, platform.answer = False, answer
        with pytest.raises(AdoptionQuestion, match=r"c1 .*c2"):
            platform.create(clock_ahead=lambda: ahead)

    def test_an_object_with_other_properties_requires_a_decision(
        self, platform: Platform, wrong: str, ahead: float | None
    ) -> None:
        def answer() -> None:
            platform.objects[:] = [self._build_candidate(platform, wrong, {"num_gpus": 64})]
            raise UnknownOutcome("no answer")

        platform.answer = answer
        with pytest.raises(AdoptionQuestion, match="num_gpus 64 instead of 16"):
            platform.create(clock_ahead=lambda: ahead)

    def test_an_object_of_a_refused_create_requires_a_decision(
        self, platform: Platform, wrong: str, ahead: float | None
    ) -> None:
        def answer() -> None:
            platform.objects[:] = [self._build_candidate(platform, wrong)]
            raise _build_refusal(Conflict, 409)

        platform.answer = answer
        with pytest.raises(AdoptionQuestion, match="c1"):
            platform.create(clock_ahead=lambda: ahead)


def test_an_object_recorded_by_another_resource_is_not_adopted(
    platform: Platform, intents: Intents
) -> None:
    def answer() -> None:
        other = replace(intents.list_all()[0], urn="urn:other", name="other", id="c9")
        intents.record(other)
        platform.objects.append(Candidate("c9", platform.call.clock.now()))
        raise UnknownOutcome("no answer")

    platform.takes_effect, platform.answer = False, answer
    with pytest.raises(UnknownOutcome):
        platform.create()


def test_several_new_objects_require_a_decision(platform: Platform, intents: Intents) -> None:
    def answer() -> None:
        platform.objects.append(Candidate("twin"))
        raise UnknownOutcome("no answer")

    platform.answer = answer
    with pytest.raises(AdoptionQuestion, match=r"c1 .*; twin"):
        platform.create()
    with pytest.raises(AdoptionQuestion, match=r"c1 .*; twin"):
        platform.create()
    assert (platform.sent, len(intents.list_all())) == (1, 1)


def test_an_object_older_than_the_attempt_is_not_adopted(platform: Platform) -> None:
    platform.objects.append(Candidate("leaving", is_being_deleted=True))
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.objects[:] = [Candidate("leaving")]
    with pytest.raises(NameTaken):
        platform.create()


def test_an_object_being_deleted_does_not_block_a_create(platform: Platform) -> None:
    platform.objects.append(Candidate("leaving", is_being_deleted=True))
    assert platform.create() == "c2"


def test_preconditions_are_checked_before_sending(platform: Platform, intents: Intents) -> None:
    def before() -> None:
        raise GpuformError("the volume is bound")

    with pytest.raises(GpuformError, match="the volume is bound"):
        platform.create(check_before_request=before)
    assert (platform.sent, intents.list_all()) == (0, [])


def test_preconditions_are_not_checked_for_an_existing_object(platform: Platform) -> None:
    def before() -> None:
        raise GpuformError("the volume is bound (to the very object)")

    assert platform.create() == "c1"
    assert platform.create(check_before_request=before) == "c1"


def test_an_interrupted_run_sends_no_create(platform: Platform, intents: Intents) -> None:
    platform.call.cancelled.set()
    with pytest.raises(Cancelled):
        platform.create()
    assert (platform.sent, intents.list_all()) == (0, [])


def test_the_engine_recovers_a_create_of_pulumis_dynamic_host(
    platform: Platform, intents: Intents
) -> None:
    urn = platform.call.urn
    change_context(platform.call, urn=None)
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    change_context(platform.call, urn=urn)
    platform.answer_with(None)
    assert platform.create() == "c1"
    assert [(intent.urn, intent.id) for intent in intents.list_all()] == [(urn, "c1")]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_create_in_one_provider_form_is_recovered_by_the_other(
    platform: Platform, intents: Intents, takes_effect: bool
) -> None:
    urns = [
        f"urn:pulumi:dev::demo::a:b:C${type_}::train"
        for type_ in ("pulumi-python:dynamic/gpuform.together:Cluster", "gpuform:together:Cluster")
    ]
    for now, then in (urns, urns[::-1]):
        platform.objects.clear()
        platform.sent = 0
        change_context(platform.call, urn=now)
        platform.answer_with(Killed(), takes_effect=takes_effect)
        with pytest.raises(Killed):
            platform.create()
        change_context(platform.call, urn=then)
        platform.answer_with(None)
        assert platform.create() == "c1"
        assert len(platform.objects) == 1
        assert [intent.id for intent in intents.list_all()] == ["c1"]
        intents.forget(urn=now)
        assert intents.list_all() == []


def test_a_renamed_resource_is_warned_of_its_earlier_create(
    platform: Platform, reported: object
) -> None:
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.answer_with(None)
    platform.create(target=replace(TARGET, name="renamed"))
    assert "'train' in us-central-8" in reported.warnings[-1]  # type: ignore[attr-defined]


class TestEvidence:
    """Evidence of an attempt without an answer, for and against the objects found."""

    @pytest.fixture
    def lost(self, platform: Platform) -> Platform:
        """Start a create of a killed process; the test decides on the effect."""
        platform.answer_with(Killed(), takes_effect=False)
        with pytest.raises(Killed):
            platform.create()
        platform.answer_with(None)
        return platform

    def test_an_object_that_lists_show_late_is_waited_for(self, lost: Platform) -> None:
        candidate = Candidate("c1", lost.call.clock.now() + 1)
        seen_at = lost.call.clock.now() + 20

        def listing() -> None:
            lost.objects[:] = [candidate] if lost.call.clock.now() >= seen_at else []

        lost.listing = listing
        assert lost.create() == "c1"
        assert lost.sent == 1

    def test_the_object_of_a_lost_answer_is_looked_for_until_it_is_listed(
        self, platform: Platform
    ) -> None:
        def answer() -> None:
            created, sent_at = platform.objects.pop(), platform.call.clock.now()

            def listing() -> None:
                is_listed = platform.call.clock.now() >= sent_at + 59
                platform.objects[:] = [created] if is_listed else []

            platform.listing = listing
            raise UnknownOutcome("no answer")

        platform.answer = answer
        assert platform.create() == "c1"
        assert platform.sent == 1

    @pytest.mark.parametrize("age", [-3600.0, 200.0, 86_400.0])
    def test_an_object_of_another_time_requires_a_decision(
        self, lost: Platform, age: float
    ) -> None:
        lost.objects.append(
            Candidate("theirs", lost.call.clock.now() + age, reported_properties=SENT)
        )
        lost.call.clock.sleep(86_500, lost.call.cancelled)
        with pytest.raises(AdoptionQuestion, match="theirs") as caught:
            lost.create()
        assert "--adopt theirs" in str(caught.value)
        assert "--create-anew" in str(caught.value)
        assert lost.sent == 1

    def test_an_object_with_other_properties_requires_a_decision(self, lost: Platform) -> None:
        other_properties = {"num_gpus": 64}
        lost.objects.append(
            Candidate("theirs", lost.call.clock.now() + 1, reported_properties=other_properties)
        )
        with pytest.raises(AdoptionQuestion, match="num_gpus 64 instead of 16"):
            lost.create()

    def test_an_object_without_a_time_is_adopted_only_if_observed_in_time(
        self, lost: Platform
    ) -> None:
        lost.objects.append(Candidate("timeless"))
        assert lost.create() == "timeless"

    def test_an_object_without_a_time_observed_late_requires_a_decision(
        self, lost: Platform
    ) -> None:
        lost.objects.append(Candidate("timeless"))
        lost.call.clock.sleep(3600, lost.call.cancelled)
        with pytest.raises(AdoptionQuestion, match="timeless"):
            lost.create()

    def test_an_object_of_another_stack_is_never_adopted(self, lost: Platform) -> None:
        change_context(lost.call, belongs_to_other_stack=lambda id_: id_ == "prod")
        lost.objects.append(Candidate("prod", lost.call.clock.now() + 1))
        with pytest.raises(AdoptionQuestion):
            lost.create()
        assert lost.sent == 1

    def test_the_user_can_name_the_object_of_the_create(self, lost: Platform) -> None:
        later = lost.call.clock.now() + 3600
        lost.objects += [Candidate("one", later), Candidate("two", later)]
        change_context(lost.call, run=RunContext({"GPUFORM_ADOPT": "two"}))
        assert lost.create() == "two"
        assert lost.sent == 1

    def test_the_user_can_say_that_no_object_was_created(self, lost: Platform) -> None:
        lost.objects.append(Candidate("theirs", lost.call.clock.now() + 1))
        change_context(lost.call, run=RunContext({"GPUFORM_CREATE_ANEW": "1"}))
        assert lost.create() == "c2"
        assert lost.sent == 2

    def test_the_users_choice_is_ignored_without_an_interrupted_create(
        self, platform: Platform
    ) -> None:
        platform.objects.append(Candidate("theirs"))
        change_context(platform.call, run=RunContext({"GPUFORM_CREATE_ANEW": "1"}))
        with pytest.raises(NameTaken):
            platform.create()

    def test_a_retried_request_is_recorded_with_its_last_time(self, platform: Platform) -> None:
        """A colleague creates a similar object during the wait after a 429: it is not ours."""

        def send() -> str:
            platform.call.authorize_change()
            platform.objects.append(
                Candidate("theirs", platform.call.clock.now(), reported_properties=SENT)
            )
            platform.call.clock.sleep(300, platform.call.cancelled)
            platform.call.authorize_change()
            raise Killed

        with pytest.raises(Killed):
            platform.create(attempts=[Attempt(send, sent=SENT)])
        with pytest.raises(AdoptionQuestion, match="theirs"):
            platform.create()

    def test_a_find_only_run_creates_nothing(self, lost: Platform, intents: Intents) -> None:
        lost.call.progress.is_search_only = True
        with pytest.raises(NothingMade):
            lost.create()
        assert lost.sent == 1
        assert len(intents.list_all()) == 1

    def test_temporarily_failing_lists_are_retried(self, lost: Platform) -> None:
        lost.objects.append(Candidate("c1", lost.call.clock.now(), reported_properties=SENT))
        until = lost.call.clock.now() + 30

        def listing() -> None:
            if lost.call.clock.now() < until:
                raise _build_refusal(ServerError, 503)

        lost.listing = listing
        assert lost.create() == "c1"


class TestLateObjects:
    """Platforms answer a create with an id before lists and lookups show the object."""

    @pytest.fixture
    def late(self, platform: Platform) -> Platform:
        """Show new objects only after 30 s."""
        sent: list[Candidate] = []

        def answer() -> None:
            sent.append(platform.objects.pop())
            shown_at = platform.call.clock.now() + 30

            def listing() -> None:
                if sent and platform.call.clock.now() >= shown_at:
                    platform.objects.append(sent.pop())

            platform.listing = listing

        platform.answer = answer
        return platform

    def test_an_object_with_a_known_id_is_waited_for_until_it_is_shown(
        self, late: Platform
    ) -> None:
        assert late.create() == "c1"
        late.answer = lambda: None
        assert late.create() == "c1"
        assert late.sent == 1

    def test_a_call_that_ends_before_the_propagation_time_creates_nothing(
        self, late: Platform
    ) -> None:
        assert late.create() == "c1"
        change_context(late.call, timeout=10.0)
        late.call.start_deadline(10.0)
        with pytest.raises(NotEnoughEvidence, match="Cluster train: cannot forget"):
            late.create()
        assert late.sent == 1

    def test_an_interrupted_search_is_no_evidence_against_a_later_object(
        self, late: Platform
    ) -> None:
        late.answer_with(Killed(), takes_effect=False)
        with pytest.raises(Killed):
            late.create()
        change_context(late.call, timeout=5.0)
        late.call.start_deadline(5.0)
        with pytest.raises(NotEnoughEvidence):
            late.create()
        late.objects.append(Candidate("c1", late.call.clock.now() + 2, reported_properties=SENT))
        change_context(late.call, timeout=None)
        late.call.start_deadline(600.0)
        assert late.create() == "c1"
        assert late.sent == 1

    def test_a_wrong_id_is_replaced_by_the_object_with_the_name(
        self, late: Platform, intents: Intents
    ) -> None:
        def send() -> str:
            late.send()
            return "the request's own id"

        created = late.create(attempts=[Attempt(send, sent=SENT)], has_hints=True)
        assert (created, [intent.id for intent in intents.list_all()]) == ("c1", ["c1"])
        assert late.sent == 1

    def test_the_id_of_an_answer_is_recorded_before_any_lookup(
        self, platform: Platform, intents: Intents
    ) -> None:
        def send() -> str:
            def die() -> None:
                raise Killed

            platform.listing = die
            return "hint"

        with pytest.raises(Killed):
            platform.create(attempts=[Attempt(send, sent=SENT)], has_hints=True)
        assert [intent.id for intent in intents.list_all()] == ["hint"]

    def test_an_accepted_create_without_an_object_stays_recorded(
        self, platform: Platform, intents: Intents
    ) -> None:
        platform.takes_effect = False
        with pytest.raises(UnknownOutcome, match="accepted the create of the Cluster 'train'"):
            platform.create(has_hints=True)
        assert len(intents.list_all()) == 1
        assert platform.sent == 1


class TestAnswersToRepetitions:
    """A 403, 409 or 429 may answer a proxy's repetition of our own request."""

    CONFLICT = _build_refusal(Conflict, 409)

    @pytest.fixture(params=[(PermissionDenied, 403), (RateLimited, 429)], ids=["403", "429"])
    def everyday_refusal(self, request: pytest.FixtureRequest) -> ApiError:
        return _build_refusal(*request.param)

    @pytest.mark.parametrize("kind", [Conflict, OutOfCapacity])
    def test_the_object_of_a_create_answered_with_409_is_found(
        self, platform: Platform, reported: object, kind: type[ApiError]
    ) -> None:
        platform.answer_with(_build_refusal(kind, 409))
        assert platform.create() == "c1"
        assert "but created c1" in reported.warnings[0]  # type: ignore[attr-defined]

    def test_an_object_without_a_time_requires_a_decision(self, platform: Platform) -> None:
        def answer() -> None:
            platform.objects[:] = [Candidate("c1")]
            raise self.CONFLICT

        platform.answer = answer
        with pytest.raises(AdoptionQuestion, match="c1"):
            platform.create()

    def test_a_409_without_an_object_is_checked_by_the_next_run(
        self, platform: Platform, intents: Intents
    ) -> None:
        platform.answer_with(self.CONFLICT, takes_effect=False)
        with pytest.raises(Conflict):
            platform.create()
        assert len(intents.list_all()) == 1
        platform.objects.append(
            Candidate("c1", intents.list_all()[0].started_at + 1, reported_properties=SENT)
        )
        platform.answer_with(None)
        assert platform.create() == "c1"
        assert platform.sent == 1

    def test_out_of_capacity_without_a_409_created_nothing(
        self, platform: Platform, intents: Intents
    ) -> None:
        began = platform.call.clock.now()
        platform.answer_with(_build_refusal(OutOfCapacity, 422))
        with pytest.raises(OutOfCapacity):
            platform.create()
        assert (intents.list_all(), platform.call.clock.now()) == ([], began)

    def test_the_object_is_found_if_this_machines_clock_is_behind(self, platform: Platform) -> None:
        platform.call.clock.is_platforms = False  # type: ignore[misc]

        def answer() -> None:
            platform.objects[:] = [Candidate("c1", platform.call.clock.now() + 3600.0)]
            raise self.CONFLICT

        platform.answer = answer
        assert platform.create(clock_ahead=lambda: -3600.0) == "c1"

    def test_several_new_objects_of_a_409_require_a_decision_by_id(
        self, platform: Platform
    ) -> None:
        def answer() -> None:
            now = platform.call.clock.now()
            platform.objects[:] = [Candidate("c1", now), Candidate("c2", now)]
            raise self.CONFLICT

        platform.answer = answer
        with pytest.raises(AdoptionQuestion, match=r"c1 .*; c2 "):
            platform.create()

    @pytest.mark.parametrize("created_at", [0.0, None])
    def test_the_object_of_an_everyday_refusal_is_found(
        self, platform: Platform, everyday_refusal: ApiError, created_at: float | None
    ) -> None:
        def answer() -> None:
            at = None if created_at is None else platform.call.clock.now()
            platform.objects[:] = [Candidate("c1", at, reported_properties=SENT)]
            raise everyday_refusal

        platform.answer = answer
        assert platform.create() == "c1"

    def test_an_everyday_refusal_without_an_object_is_plain(
        self, platform: Platform, intents: Intents, everyday_refusal: ApiError
    ) -> None:
        platform.answer_with(everyday_refusal, takes_effect=False)
        began = platform.call.clock.now()
        with pytest.raises(type(everyday_refusal)) as caught:
            platform.create()
        assert caught.value is everyday_refusal
        assert [intent.is_refused for intent in intents.list_all()] == [True]
        assert platform.call.clock.now() == began

    @pytest.fixture
    def refused(self, platform: Platform, everyday_refusal: ApiError) -> Platform:
        """Return a platform that refused a create, and has shown no object so far."""
        platform.answer_with(everyday_refusal, takes_effect=False)
        with pytest.raises(type(everyday_refusal)):
            platform.create()
        platform.answer_with(None)
        return platform

    def test_a_list_that_lags_behind_shows_the_object_of_a_refused_create(
        self, refused: Platform, intents: Intents
    ) -> None:
        shown = Candidate("c1", refused.call.clock.now() + 1, reported_properties=SENT)

        def listing() -> None:
            if refused.call.clock.now() >= shown.created_at + 20:
                refused.objects[:] = [shown]

        refused.listing = listing
        assert refused.create() == "c1"
        assert refused.sent == 1
        assert [(intent.id, intent.is_refused) for intent in intents.list_all()] == [("c1", False)]

    @pytest.mark.parametrize("pause_s", [0.0, 20.0, 60.0, 3600.0])
    def test_a_create_after_a_refused_one_waits_only_for_the_rest_of_the_propagation_time(
        self, refused: Platform, reported: object, pause_s: float
    ) -> None:
        refused.call.clock.sleep(pause_s, refused.call.cancelled)
        began = refused.call.clock.now()
        assert refused.create() == "c1"
        assert refused.sent == 2
        assert refused.call.clock.now() - began == max(0.0, 60.0 - pause_s)
        searches = {"looking for the object of a refused create"} if pause_s < 60 else set()
        assert {*reported.progress} == searches  # type: ignore[attr-defined]
        assert not reported.warnings  # type: ignore[attr-defined]

    def test_a_search_for_the_object_of_a_refused_create_does_not_wait(
        self, refused: Platform, intents: Intents
    ) -> None:
        refused.call.progress.is_search_only = True
        began = refused.call.clock.now()
        with pytest.raises(NotEnoughEvidence, match="may lack new objects for another 1m00s"):
            refused.create()
        assert refused.call.clock.now() == began
        refused.call.clock.sleep(60, refused.call.cancelled)
        with pytest.raises(NothingMade):
            refused.create()
        assert len(intents.list_all()) == 1, "the caller stores the result first"

    def test_a_name_that_somebody_took_after_a_refused_create_needs_a_decision(
        self, refused: Platform
    ) -> None:
        refused.call.clock.sleep(3600, refused.call.cancelled)
        refused.objects.append(Candidate("theirs", refused.call.clock.now()))
        with pytest.raises(AdoptionQuestion, match=r"a refused create of the Cluster .*theirs"):
            refused.create()
        change_context(refused.call, run=RunContext({"GPUFORM_CREATE_ANEW": "1"}))
        assert refused.create() == "c2"

    def test_a_refused_create_of_another_name_is_not_mentioned(
        self, refused: Platform, reported: object
    ) -> None:
        target = replace(TARGET, name="train-2")
        assert refused.create(target=target) == "c1"
        assert not reported.warnings  # type: ignore[attr-defined]

    def test_an_everyday_refusal_without_a_list_is_checked_by_the_next_run(
        self, platform: Platform, intents: Intents, everyday_refusal: ApiError
    ) -> None:
        def answer() -> None:
            platform.listing = answer
            raise everyday_refusal

        platform.answer = answer
        with pytest.raises(type(everyday_refusal)):
            platform.create()
        assert [intent.is_refused for intent in intents.list_all()] == [True]
        platform.listing = lambda: None
        assert platform.create() == "c1"
        assert platform.sent == 1

    @pytest.mark.parametrize("takes_effect", [True, False])
    def test_a_create_is_repeated_only_if_no_object_appeared(
        self, platform: Platform, takes_effect: bool
    ) -> None:
        """After a 429 with Retry-After the client asks before it sends the create again."""
        platform.takes_effect = takes_effect
        asked: list[bool] = []

        def answer() -> None:
            asked.append(platform.call.can_repeat_create())
            raise _build_refusal(RateLimited, 429)

        platform.answer = answer
        with suppress(RateLimited):
            platform.create()
        assert asked == [not takes_effect]
        assert platform.call.can_repeat_create()

    def test_the_next_attempt_is_sent_only_if_no_object_appeared(self, platform: Platform) -> None:
        def full() -> str:
            platform.sent += 1
            raise _build_refusal(OutOfCapacity, 409)

        attempts = [Attempt(full, "a", "H100"), Attempt(platform.send, "b", "H100", SENT)]
        assert platform.create(attempts=attempts) == "c1"
        assert platform.sent == 2


def test_an_answer_is_recorded_after_another_machine_took_the_lock(
    platform: Platform, tmp_path: Path
) -> None:
    """The other machine found nothing and forgot the intent while this process slept."""
    mine = tmp_path / "shared"
    records = Guarded(mine)
    change_context(platform.call, intents=Intents(records))

    def sleep_past_the_lease() -> None:
        others = Intents(FolderRecords(mine))
        others.forget_all(others.list_all())
        records.is_lost = True

    platform.answer = sleep_past_the_lease
    with pytest.raises(GpuformError, match="with c1, which gpuform has recorded"):
        platform.create()
    change_context(platform.call, intents=Intents(FolderRecords(mine)))
    assert [(intent.id, intent.is_late) for intent in platform.call.intents.list_all()] == [
        ("c1", True)
    ]
    platform.answer = lambda: None
    assert platform.create() == "c1"
    assert platform.sent == 1


def test_a_late_answer_is_kept_after_another_object_was_created(intents: Intents) -> None:
    intent = Intent("urn:a", "together", "Cluster", "train", "r", 1.0, id="second")
    late = replace(intent, id="first", is_late=True)
    intents.record(intent)
    intents.record(late)
    intents.forget(urn="urn:a", id_="second")
    assert intents.list_all() == [late]


class Guarded(FolderRecords):
    """Records under a lock that another machine may acquire."""

    is_lost = False

    def write(self, name: str, fields: Fields) -> None:
        if self.is_lost:
            raise GpuformError("the lock is another's")
        super().write(name, fields)

    def add(self, name: str, fields: Fields) -> None:
        super().write(name, fields)


class TestWords:
    """Exact texts that a create records and reports."""

    def test_the_intent_has_everything_the_next_run_needs(
        self, platform: Platform, intents: Intents
    ) -> None:
        platform.objects.append(Candidate("leaving", is_being_deleted=True))
        platform.call.add_secrets(["hunter2"])
        sent = {"num_gpus": 16, "note": "has hunter2 in it"}
        attempt = Attempt(platform.send, "us-central-4", "H100_SXM", sent)
        began = platform.call.clock.now()
        assert platform.create(attempts=[attempt], clock_ahead=lambda: 7.0) == "c2"
        assert intents.list_all() == [
            Intent(
                urn=platform.call.urn,
                platform="together",
                kind="Cluster",
                name="train",
                region="us-central-8",
                started_at=began,
                is_timed=True,
                present_ids=("leaving",),
                sent={"num_gpus": 16},
                id="c2",
                tried_region="us-central-4",
                tried_gpu_type="H100_SXM",
            )
        ]

    def test_a_found_object_is_reported_once_and_not_in_a_find_only_run(
        self, platform: Platform, reported: Any
    ) -> None:
        platform.create()
        assert reported.progress == []
        platform.create()
        assert reported.progress == ["found c1, which an earlier attempt created"]
        platform.call.progress.is_search_only = True
        platform.create()
        assert len(reported.progress) == 1

    def test_a_find_only_run_reports_the_search(self, platform: Platform) -> None:
        platform.call.progress.is_search_only = True
        with pytest.raises(NothingMade):
            platform.create()
        assert platform.call.progress.searched_target == TARGET

    def test_the_error_of_a_taken_name_says_how_to_import_the_object(
        self, platform: Platform
    ) -> None:
        platform.objects += [Candidate("c 1", region=""), Candidate("c2")]
        with pytest.raises(NameTaken) as raised:
            platform.create()
        assert raised.value.message == (
            "together already has a Cluster named 'train' (c 1, c2), and this project has no "
            "record of creating it"
        )
        assert raised.value.hint == (
            'to manage it, write `import: "c 1"` in the options of its entry (in Python '
            'opts=pulumi.ResourceOptions(import_="c 1")) and run `gpuform up`, or let `gpuform '
            "import together:Cluster NAME 'c 1'` declare it; otherwise give it another name"
        )
        platform.objects[:] = [Candidate("größe")]
        with pytest.raises(NameTaken) as raised:
            platform.create()
        assert 'import_="größe"' in str(raised.value.hint)
        platform.objects[:] = [Candidate("c2")]
        with pytest.raises(NameTaken) as raised:
            platform.create()
        assert "write `import: c2` in" in str(raised.value.hint)

    def test_the_error_of_a_lost_request_says_that_the_next_run_looks_again(
        self, platform: Platform, reported: Any
    ) -> None:
        platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
        with pytest.raises(UnknownOutcome) as raised:
            platform.create(propagation_time_s=90.0)
        assert raised.value.message == (
            "the Cluster 'train': the result of its create is unknown: no answer"
        )
        assert raised.value.hint == (
            "no object of that name appeared within 90 s. Run the command again: it looks for "
            "the object before it creates anything"
        )
        assert set(reported.progress) == {"looking for the object of an interrupted create"}
        assert reported.warnings == []

    def test_an_accepted_create_without_an_object_is_an_error(self, platform: Platform) -> None:
        platform.takes_effect = False
        with pytest.raises(UnknownOutcome) as raised:
            platform.create(has_hints=True)
        assert raised.value.message == (
            "together accepted the create of the Cluster 'train', but does not show the object"
        )
        assert (
            raised.value.hint
            == "run the command again: it looks for the object before it creates anything"
        )

    def test_a_recovered_create_reports_the_lost_answer(
        self, platform: Platform, reported: Any
    ) -> None:
        platform.answer_with(UnknownOutcome("no answer"))
        platform.create()
        assert reported.warnings == [
            "the answer to the create was lost (no answer); found the object: c1"
        ]

    def test_an_attempt_under_another_name_is_a_warning_with_its_location(
        self, platform: Platform, intents: Intents, reported: Any
    ) -> None:
        other = Intent(platform.call.urn, "together", "Cluster", "old", "us-central-8", 1.0)
        intents.record(replace(other, tried_region="us-central-4", id="c0"))
        intents.record(replace(other, name="older", started_at=2.0))
        intents.record(replace(other, name="settled", outcome="nothing"))
        intents.record(replace(other, name="elsewhere", urn="urn:of-another-resource"))
        platform.create()
        assert reported.warnings == [
            (
                f"an earlier attempt may have created the Cluster {which}: look for it on the "
                "platform, and delete it if it exists"
            )
            for which in ("'old' in us-central-4 (c0)", "'older' in us-central-8")
        ]

    def test_a_host_without_urns_gets_no_warning(
        self, platform: Platform, intents: Intents, reported: Any
    ) -> None:
        intents.record(Intent("urn:other", "together", "Cluster", "old", "us-central-8", 1.0))
        change_context(platform.call, urn=None)
        platform.create()
        assert reported.warnings == []

    def test_an_attempt_of_the_same_object_is_no_warning(
        self, platform: Platform, reported: Any
    ) -> None:
        platform.answer_with(Killed(), takes_effect=False)
        with pytest.raises(Killed):
            platform.create()
        platform.answer_with(None)
        platform.create()
        assert reported.warnings == []


def test_the_platforms_clock_is_used_if_this_machines_is_ahead(
    platform: Platform, intents: Intents
) -> None:
    platform.call.clock.is_platforms = False  # type: ignore[misc]
    platform.answer_with(UnknownOutcome("no answer"))
    began = platform.call.clock.now()
    candidate = Candidate("c1")
    platform.listing = lambda: platform.objects.__setitem__(
        slice(None), [candidate] * platform.sent
    )
    assert platform.create(clock_ahead=lambda: 3600.0) == "c1"
    (intent,) = intents.list_all()
    assert (intent.started_at, intent.is_timed) == (began - 3600.0, True)


def test_an_attempt_that_certainly_created_nothing_is_not_looked_for(
    platform: Platform, intents: Intents
) -> None:
    began = platform.call.clock.now()
    target = (TARGET.platform, TARGET.kind, TARGET.name, TARGET.region)
    intents.record(Intent(platform.call.urn, *target, began, outcome="nothing"))
    assert platform.create() == "c1"
    assert platform.call.clock.now() == began


def test_an_old_object_is_gone_only_after_the_propagation_time(
    platform: Platform,
) -> None:
    """A single look may reach a replica that lags behind."""
    assert platform.create() == "c1"
    platform.call.clock.sleep(86_400, platform.call.cancelled)
    existing_objects, seen_at = platform.objects[:], platform.call.clock.now() + 50

    def listing() -> None:
        platform.objects[:] = existing_objects if platform.call.clock.now() >= seen_at else []

    platform.listing = listing
    assert platform.create() == "c1"
    assert platform.sent == 1


def test_an_intent_recovered_by_another_engine_is_forgotten_for_its_object_only(
    platform: Platform, intents: Intents
) -> None:
    target = (TARGET.platform, TARGET.kind, TARGET.name, TARGET.region)
    for urn in (None, "urn:other"):
        intents.record(Intent(urn, *target, 1.0, outcome="nothing"))
    platform.create()
    assert {intent.urn for intent in intents.list_all()} == {"urn:other", platform.call.urn}


def test_a_search_half_a_second_too_short_is_no_evidence(
    platform: Platform, intents: Intents
) -> None:
    platform.answer_with(Killed(), takes_effect=False)
    with pytest.raises(Killed):
        platform.create()
    change_context(platform.call, timeout=60.0)
    platform.call.start_deadline(60.0)
    with pytest.raises(NotEnoughEvidence):
        platform.create(propagation_time_s=60.5)
    assert [intent.looked_at for intent in intents.list_all()] == [None]


def test_the_last_look_is_at_the_end_of_the_propagation_time(platform: Platform) -> None:
    platform.answer_with(UnknownOutcome("no answer"), takes_effect=False)
    began = platform.call.clock.now()

    def listing() -> None:
        is_listed = platform.call.clock.now() >= began + 60.3
        platform.objects[:] = [Candidate("c1", began + 1)] if is_listed else []

    platform.listing = listing
    assert platform.create(propagation_time_s=60.5) == "c1"


def test_one_name_is_created_once_at_a_time(platform: Platform, tmp_path: Path) -> None:
    raised: list[str] = []

    def create_concurrently() -> None:
        other = Platform(replace(platform.call, urn="urn:other", progress=CallProgress()))
        try:
            other.create()
        except NameTaken as error:
            raised.append(error.message)
        other.create(target=replace(TARGET, name="another"))

    platform.answer = create_concurrently
    assert platform.create() == "c1"
    assert raised == [
        "another resource of this program is creating the Cluster 'train' on together"
    ]


def test_an_intent_of_another_resource_is_not_used(platform: Platform, intents: Intents) -> None:
    platform.objects.append(Candidate("theirs"))
    target = (TARGET.platform, TARGET.kind, TARGET.name, TARGET.region)
    intents.record(Intent("urn:other", *target, 1.0, id="theirs"))
    with pytest.raises(NameTaken, match="theirs"):
        platform.create()


@pytest.mark.parametrize(("pause", "is_recorded_again"), [(5.0, False), (5.5, True)])
def test_a_request_retried_after_a_long_wait_is_recorded_with_its_new_time(
    platform: Platform, intents: Intents, pause: float, is_recorded_again: bool
) -> None:
    began = platform.call.clock.now()

    def send() -> str:
        platform.call.clock.sleep(pause, platform.call.cancelled)
        platform.call.authorize_change()
        assert intents.list_all()[0].started_at == began + (pause if is_recorded_again else 0.0)
        return platform.send()

    assert platform.create(attempts=[Attempt(send, sent=SENT)]) == "c1"


FAULTS = st.sampled_from([None, *LOST, *DEFINITE, Killed()])


@pytest.mark.slow
@settings(deadline=None)
@given(
    attempts=st.lists(st.tuples(FAULTS, st.booleans()), max_size=6),
    foreign=st.booleans(),
    stock_host=st.booleans(),
)
def test_failing_attempts_create_one_object_and_adopt_no_foreign_one(
    attempts: list[tuple[BaseException | None, bool]], foreign: bool, stock_host: bool
) -> None:
    """Let attempts fail anywhere, then succeed; a definite refusal has no effect."""
    with TemporaryDirectory() as directory:
        call = ProviderContext(
            urn=None if stock_host else "urn:a",
            clock=FakeClock(),
            intents=Intents(FolderRecords(Path(directory))),
            on_progress=lambda _text: None,
            on_warning=lambda _text: None,
        )
        platform = Platform(call)
        for error, takes_effect in [*attempts, (None, True)]:
            lost = isinstance(error, UnknownOutcome | ServerError | Killed)
            platform.answer_with(error, takes_effect=error is None or (lost and takes_effect))
            with suppress(GpuformError, Killed):
                platform.create()
        assert [item.id for item in platform.objects] == ["c1"]
        assert platform.create() == "c1"
        if foreign:
            call.intents.forget(id_="c1")
            with pytest.raises(NameTaken):
                platform.create()
