"""Create exactly once, against a platform that loses answers, or the process, at every point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.providers.call import Call
from gpuform.providers.clock import SystemClock
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import (
    AmbiguousObject,
    ApiError,
    Cancelled,
    GpuformError,
    InvalidRequest,
    MissingCredentials,
    NameTaken,
    OutOfCapacity,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.intents import Intents, Target

TARGET = Target("together", "Cluster", "train", "us-central-8")


class Killed(BaseException):
    """The process died here."""


@dataclass
class Platform:
    """Objects of the wanted name; `answer` is what becomes of a create after its effect."""

    call: Call
    objects: list[Candidate] = field(default_factory=list)
    sent: int = 0
    takes_effect: bool = True
    answer: Callable[[], None] = lambda: None
    listing: Callable[[], None] = lambda: None

    def candidates(self) -> list[Candidate]:
        self.listing()
        return list(self.objects)

    def send(self) -> str:
        self.sent += 1
        assert self.call.intents.all(), "no request without an intent"
        id_ = f"c{len(self.objects) + 1}"
        if self.takes_effect:
            self.objects.append(Candidate(id_, self.call.clock.now()))
        self.answer()
        return id_

    def create(self, **changes: object) -> str:
        creation = replace(Creation(TARGET, self.candidates, [Attempt(self.send)]), **changes)  # type: ignore[arg-type]
        with _ended(self.call):
            return create_once(self.call, creation)

    def answers(self, error: BaseException | None, *, takes_effect: bool = True) -> None:
        def answer() -> None:
            if error is not None:
                raise error

        self.answer, self.takes_effect = answer, takes_effect


@contextmanager
def _ended(call: Call) -> Iterator[None]:
    """A call's end gives up what it held, also when the process 'dies'."""
    try:
        yield
    finally:
        call.held.close()


@pytest.fixture
def platform(call: Call) -> Platform:
    return Platform(call)


def _refusal(kind: type[ApiError], status: int) -> ApiError:
    return kind("refused", method="POST", path="/clusters", status=status)


LOST = [UnknownOutcome("no answer"), _refusal(ServerError, 500), _refusal(ServerError, 200)]
DEFINITE = [
    _refusal(InvalidRequest, 422),
    _refusal(OutOfCapacity, 409),
    _refusal(RateLimited, 429),
    Unreachable("no connection"),
    MissingCredentials("no key"),
]


def test_a_create_is_sent_once_and_its_id_recorded(platform: Platform, intents: Intents) -> None:
    assert platform.create() == "c1"
    (intent,) = intents.all()
    assert (intent.id, intent.present_ids, intent.urn) == ("c1", (), platform.call.urn)
    assert platform.sent == 1


@pytest.mark.parametrize("error", DEFINITE, ids=lambda error: type(error).__name__)
def test_a_definite_refusal_leaves_no_intent(
    platform: Platform, intents: Intents, error: GpuformError
) -> None:
    platform.answers(error, takes_effect=False)
    with pytest.raises(type(error)):
        platform.create()
    assert intents.all() == []


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_lost_answer_is_found_again(platform: Platform, told: object, error: Exception) -> None:
    platform.answers(error)
    assert platform.create() == "c1"
    assert platform.sent == 1
    assert "found c1 again" in told.warnings[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_lost_request_stays_open_until_the_next_attempt(
    platform: Platform, intents: Intents, error: Exception
) -> None:
    platform.answers(error, takes_effect=False)
    with pytest.raises(UnknownOutcome, match="it is not known whether"):
        platform.create()
    assert [each.id for each in intents.all()] == [None]
    platform.answers(None)
    assert platform.create() == "c1"
    assert (platform.sent, len(platform.objects)) == (2, 1)


def test_an_object_that_appears_late_is_adopted_by_the_next_attempt(platform: Platform) -> None:
    platform.answers(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.objects.append(Candidate("late", platform.call.clock.now()))
    assert platform.create() == "late"
    assert platform.sent == 1


def test_a_listing_that_fails_too_keeps_the_intent(platform: Platform, intents: Intents) -> None:
    def answer() -> None:
        def listing() -> None:
            raise Unreachable("no connection")

        platform.listing = listing
        raise UnknownOutcome("no answer")

    platform.answer = answer
    with pytest.raises(UnknownOutcome, match="no answer; no connection"):
        platform.create()
    assert len(intents.all()) == 1


def test_a_process_that_died_after_sending_finds_its_object(platform: Platform) -> None:
    platform.answers(Killed())
    with pytest.raises(Killed):
        platform.create()
    platform.answers(None)
    assert platform.create() == "c1"
    assert (platform.sent, len(platform.objects)) == (1, 1)


def test_a_process_that_died_before_the_effect_sends_again(platform: Platform) -> None:
    platform.answers(Killed(), takes_effect=False)
    with pytest.raises(Killed):
        platform.create()
    platform.answers(None)
    assert platform.create() == "c1"
    assert len(platform.objects) == 1


def test_a_process_that_died_while_waiting_finds_the_id(platform: Platform) -> None:
    assert platform.create() == "c1"
    platform.objects.append(Candidate("c9", platform.call.clock.now() + 5))
    assert platform.create() == "c1"
    assert platform.sent == 1


def test_a_recorded_object_that_is_gone_is_made_again(platform: Platform) -> None:
    assert platform.create() == "c1"
    platform.objects.clear()
    assert platform.create() == "c1"
    assert platform.sent == 2


def test_an_object_of_somebody_else_is_never_taken(platform: Platform, intents: Intents) -> None:
    platform.objects.append(Candidate("theirs"))
    with pytest.raises(NameTaken) as caught:
        platform.create()
    assert "(theirs)" in str(caught.value)
    assert 'import_="theirs"' in str(caught.value)
    assert platform.sent == 0
    assert intents.all() == []


def test_after_a_lost_answer_an_older_object_is_not_ours(platform: Platform) -> None:
    def answer() -> None:
        platform.objects.append(Candidate("older", platform.call.clock.now() - 3600))
        raise UnknownOutcome("no answer")

    platform.takes_effect, platform.answer = False, answer
    with pytest.raises(UnknownOutcome):
        platform.create()


def test_what_another_resource_has_recorded_is_not_ours(
    platform: Platform, intents: Intents
) -> None:
    def answer() -> None:
        other = replace(intents.all()[0], urn="urn:other", name="other", id="c9")
        intents.record(other)
        platform.objects.append(Candidate("c9", platform.call.clock.now()))
        raise UnknownOutcome("no answer")

    platform.takes_effect, platform.answer = False, answer
    with pytest.raises(UnknownOutcome):
        platform.create()


def test_several_new_objects_are_not_guessed_at(platform: Platform, intents: Intents) -> None:
    def answer() -> None:
        platform.objects.append(Candidate("twin"))
        raise UnknownOutcome("no answer")

    platform.answer = answer
    with pytest.raises(AmbiguousObject, match="c1, twin"):
        platform.create()
    with pytest.raises(AmbiguousObject, match="c1, twin"):
        platform.create()
    assert (platform.sent, len(intents.all())) == (1, 1)


def test_what_was_there_before_the_attempt_is_not_adopted_after_it(platform: Platform) -> None:
    platform.objects.append(Candidate("leaving", leaving=True))
    platform.answers(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.objects[:] = [Candidate("leaving")]
    with pytest.raises(NameTaken):
        platform.create()


def test_an_object_on_its_way_out_is_not_in_the_way(platform: Platform) -> None:
    platform.objects.append(Candidate("leaving", leaving=True))
    assert platform.create() == "c2"


def test_what_must_hold_before_sending_is_asked_first(platform: Platform, intents: Intents) -> None:
    def before() -> None:
        raise GpuformError("the volume is bound")

    with pytest.raises(GpuformError, match="the volume is bound"):
        platform.create(before=before)
    assert (platform.sent, intents.all()) == (0, [])


def test_it_is_not_asked_about_an_object_that_exists(platform: Platform) -> None:
    def before() -> None:
        raise GpuformError("the volume is bound (to the very object)")

    assert platform.create() == "c1"
    assert platform.create(before=before) == "c1"


def test_an_interrupted_run_sends_nothing(platform: Platform, intents: Intents) -> None:
    platform.call.cancelled.set()
    with pytest.raises(Cancelled):
        platform.create()
    assert (platform.sent, intents.all()) == (0, [])


def test_an_attempt_of_the_stock_host_is_settled_by_the_engine(
    platform: Platform, intents: Intents
) -> None:
    urn, platform.call.urn = platform.call.urn, None
    platform.answers(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.call.urn = urn
    platform.answers(None)
    assert platform.create() == "c1"
    assert [(each.urn, each.id) for each in intents.all()] == [(urn, "c1")]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_attempt_in_one_form_is_settled_by_the_other(
    platform: Platform, intents: Intents, takes_effect: bool
) -> None:
    urns = [
        f"urn:pulumi:dev::demo::a:b:C${type_}::train"
        for type_ in ("pulumi-python:dynamic/gpuform.together:Cluster", "gpuform:together:Cluster")
    ]
    for now, then in (urns, urns[::-1]):
        platform.objects.clear()
        platform.sent, platform.call.urn = 0, now
        platform.answers(Killed(), takes_effect=takes_effect)
        with pytest.raises(Killed):
            platform.create()
        platform.call.urn = then
        platform.answers(None)
        assert platform.create() == "c1"
        assert len(platform.objects) == 1
        assert [each.id for each in intents.all()] == ["c1"]
        intents.forget(urn=now)
        assert intents.all() == []


def test_a_renamed_resource_is_told_of_what_it_may_have_left(
    platform: Platform, told: object
) -> None:
    platform.answers(UnknownOutcome("no answer"), takes_effect=False)
    with pytest.raises(UnknownOutcome):
        platform.create()
    platform.answers(None)
    platform.create(target=replace(TARGET, name="renamed"))
    assert "'train' in us-central-8" in told.warnings[-1]  # type: ignore[attr-defined]


FAULTS = st.sampled_from([None, *LOST, *DEFINITE, Killed()])


@settings(deadline=None)
@given(
    attempts=st.lists(st.tuples(FAULTS, st.booleans()), max_size=6),
    foreign=st.booleans(),
    stock_host=st.booleans(),
)
def test_whatever_happens_one_object_is_made_and_none_is_taken(
    attempts: list[tuple[BaseException | None, bool]], foreign: bool, stock_host: bool
) -> None:
    """Attempts that fail anywhere, then a good one; a definite refusal has no effect."""
    with TemporaryDirectory() as directory:
        call = Call(
            urn=None if stock_host else "urn:a",
            clock=SystemClock(),
            intents=Intents(Path(directory)),
            on_progress=lambda _text: None,
            on_warning=lambda _text: None,
        )
        platform = Platform(call)
        for error, takes_effect in [*attempts, (None, True)]:
            lost = isinstance(error, UnknownOutcome | ServerError | Killed)
            platform.answers(error, takes_effect=error is None or (lost and takes_effect))
            with suppress(GpuformError, Killed):
                platform.create()
        assert [each.id for each in platform.objects] == ["c1"]
        assert platform.create() == "c1"
        if foreign:
            call.intents.forget(id_="c1")
            with pytest.raises(NameTaken):
                platform.create()
