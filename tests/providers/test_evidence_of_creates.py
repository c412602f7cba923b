"""Test the evidence of interrupted creates: each bound, from both sides."""

from typing import Any

import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, RunContext
from gpuform.providers.creating import (
    Candidate,
    build_adoption_question,
    compute_remaining_propagation_s,
    find_credible_time,
    has_other_creation_time,
    is_refusal,
    judge_candidates,
    may_equal_sent_value,
    require_absence,
)
from gpuform.providers.errors import ApiError, GpuformError, MissingCredentials, Unreachable
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.records import Intent, Intents

SENT_AT = 1_000_000.0
SENT = {"num_gpus": 16}


def build_intent(**fields: Any) -> Intent:
    about = {"urn": "urn:a", "platform": "together", "kind": "Cluster", "name": "train"}
    defaults = {"region": "r1", "started_at": SENT_AT, "is_timed": True, "sent": SENT}
    return Intent(**{**about, **defaults, **fields})  # type: ignore[arg-type]


def build_candidate(id_: str = "c1", after: float | None = 1.0, **fields: Any) -> Candidate:
    created_at = None if after is None else SENT_AT + after
    return Candidate(id_, created_at, **{"region": "r1", **fields})


def judge(
    call: ProviderContext, present: list[Candidate], *, seen_after: float = 2.0, **fields: Any
) -> str:
    """Return the id of our object, `?` with the ids of doubtful ones, or an empty string."""
    verdict = judge_candidates(call, build_intent(**fields), present, SENT_AT + seen_after)
    if verdict.ours is not None:
        assert verdict.doubtful == ()
        return verdict.ours.id
    return "".join(f"?{candidate.id}" for candidate in verdict.doubtful)


@pytest.mark.parametrize(
    ("after", "is_timed", "is_ours"),
    [
        (-1.0, True, True),
        (-1.1, True, False),
        (-5.0, False, True),
        (-5.1, False, False),
        (60.0, True, True),
        (60.1, True, False),
        (60.1, False, False),
    ],
)
def test_our_object_was_created_between_the_request_and_a_minute_after_it(
    call: ProviderContext, after: float, is_timed: bool, is_ours: bool
) -> None:
    present = [build_candidate(after=after)]
    verdict = judge(call, present, seen_after=100.0, is_timed=is_timed)
    assert verdict == ("c1" if is_ours else "?c1")


@pytest.mark.parametrize(("looked_after", "is_ours"), [(31.1, True), (31.0, False), (20.0, False)])
def test_an_object_that_an_earlier_look_should_have_shown_is_not_ours(
    call: ProviderContext, looked_after: float, is_ours: bool
) -> None:
    verdict = judge(call, [build_candidate(after=30.0)], looked_at=SENT_AT + looked_after)
    assert verdict == ("c1" if is_ours else "?c1")


@pytest.mark.parametrize(("seen_after", "is_ours"), [(61.0, True), (61.1, False)])
@pytest.mark.parametrize(
    ("after", "reported_properties"),
    [(None, {}), (-3600.0, SENT), (-3600.0, {"num_gpus": 16, "x": None})],
)
def test_without_a_credible_time_the_time_of_observation_counts(
    call: ProviderContext,
    seen_after: float,
    is_ours: bool,
    after: float | None,
    reported_properties: Any,
) -> None:
    verdict = judge(
        call,
        [build_candidate(after=after, reported_properties=reported_properties)],
        seen_after=seen_after,
    )
    assert verdict == ("c1" if is_ours else "?c1")


@pytest.mark.parametrize("reported_properties", [{}, {"num_gpus": None}, {"other": 1}])
def test_an_object_with_an_incredible_time_needs_matching_properties(
    call: ProviderContext, reported_properties: Any
) -> None:
    assert (
        judge(call, [build_candidate(after=-3600.0, reported_properties=reported_properties)])
        == "?c1"
    )


@pytest.mark.parametrize(
    ("after", "is_credible"), [(-300.0, True), (-300.1, False), (302.0, True), (302.1, False)]
)
def test_a_time_is_credible_within_five_minutes_of_our_observations(
    after: float, is_credible: bool
) -> None:
    verdict = find_credible_time(build_candidate(after=after), build_intent(), SENT_AT + 2.0)
    assert verdict == (SENT_AT + after if is_credible else None)
    assert find_credible_time(build_candidate(after=None), build_intent(), SENT_AT) is None


@pytest.mark.parametrize(
    ("after", "is_timed", "is_another"),
    [
        (-300.0, True, False),
        (-300.1, True, True),
        (360.0, True, False),
        (360.1, True, True),
        (360.1, False, False),
        (None, True, False),
    ],
)
def test_an_object_of_a_truthful_time_is_of_another_request(
    after: float | None, is_timed: bool, is_another: bool
) -> None:
    assert (
        has_other_creation_time(build_candidate(after=after), build_intent(is_timed=is_timed))
        is is_another
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"region": "r2"},
        {"gpu_type": "H200"},
        {"is_being_deleted": True},
    ],
)
def test_objects_elsewhere_or_being_deleted_are_neither_ours_nor_doubtful(
    call: ProviderContext, fields: Any
) -> None:
    assert judge(call, [build_candidate(**fields)], tried_gpu_type="H100") == ""


def test_the_attempted_region_overrides_the_declared_one(call: ProviderContext) -> None:
    present = [build_candidate("c1"), build_candidate("c2", region="r2")]
    assert judge(call, present, tried_region="r2") == "c2"
    assert judge(call, present) == "c1"
    assert judge(call, [build_candidate(region="", gpu_type="")], tried_gpu_type="H100") == "c1"


def test_earlier_and_owned_objects_are_excluded(call: ProviderContext, intents: Intents) -> None:
    present = [
        build_candidate("before"),
        build_candidate("theirs"),
        build_candidate("moved"),
        build_candidate("mine"),
    ]
    intents.record(build_intent(urn="urn:b", name="other", id="theirs"))
    change_context(call, belongs_to_other_stack=lambda id_: id_ == "moved")
    assert judge(call, present, present_ids=("before",)) == "mine"
    own = build_intent(id="mine")
    intents.record(own)
    assert judge_candidates(
        call, own, [build_candidate("mine")], SENT_AT + 2
    ).ours == build_candidate("mine")


def test_an_object_listed_twice_counts_once(call: ProviderContext) -> None:
    assert judge(call, [build_candidate("c1"), build_candidate("c1")]) == "c1"


def test_two_possible_objects_require_a_decision(call: ProviderContext) -> None:
    late, other = build_candidate("c2", after=100.0), {"num_gpus": 64}
    assert judge(call, [build_candidate("c1"), build_candidate("c2")]) == "?c1?c2"
    assert judge(call, [build_candidate("c1"), late], seen_after=200.0) == "c1"
    assert (
        judge(call, [build_candidate("c1"), build_candidate("c2", after=None)], seen_after=90.0)
        == "?c1?c2"
    )
    differs = build_candidate("c2", after=None, reported_properties=other)
    assert judge(call, [build_candidate("c1"), differs], seen_after=90.0) == "c1"


def test_the_users_choice_is_ours_unless_another_stack_has_it(
    call: ProviderContext,
) -> None:
    change_context(call, run=RunContext({"GPUFORM_ADOPT": "c2"}))
    present = [build_candidate("c1"), build_candidate("c2", after=-3600.0)]
    assert judge(call, present) == "c2"
    change_context(call, belongs_to_other_stack=lambda id_: id_ == "c2")
    assert judge(call, present) == "c1"


def test_a_user_who_chose_a_new_object_has_none_yet(
    call: ProviderContext,
) -> None:
    change_context(call, run=RunContext({"GPUFORM_CREATE_ANEW": "1"}))
    assert judge(call, [build_candidate("c1")]) == ""


@pytest.mark.parametrize(
    ("reported_properties", "sent", "is_covered"),
    [
        (16, 16.0, True),
        (16, 8, False),
        (None, 8, True),
        (16, None, True),
        (["a", "b"], ["b", "a"], True),
        ({"a": 1, "more": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 2}, True),
        ({"a": {"b": 1}}, {"a": {"b": 2}, "c": 1}, False),
        ({"a": 1}, "text", False),
        ("text", {"a": 1}, False),
    ],
)
def test_reported_properties_are_compared_with_the_sent_ones(
    reported_properties: Any, sent: Any, is_covered: bool
) -> None:
    assert may_equal_sent_value(reported_properties, sent) is is_covered
    other = Candidate("c1", reported_properties={"config": reported_properties})
    assert other.find_differences({"config": sent}) == ([] if is_covered else ["config"])


def test_a_question_names_each_object_with_the_evidence_against_it() -> None:
    doubtful = [
        Candidate("c 1", 0.0, reported_properties={"num_gpus": 64}),
        Candidate("c2", reported_properties={"num_gpus": 16}),
        Candidate("c3", reported_properties={"num_gpus": 8}),
    ]
    error = build_adoption_question(build_intent(), doubtful)
    assert error.message == (
        "an interrupted create of the Cluster 'train' on together may have created one of "
        "these, or none: c 1 (created 1970-01-01T00:00:00Z, num_gpus 64 instead of 16); c2; c3 "
        "(num_gpus 8 instead of 16)"
    )
    assert error.hint == (
        "nothing was created or adopted. To adopt one, add `--adopt 'c 1'`; if none is yours, "
        "add `--create-anew` (with `pulumi`: GPUFORM_ADOPT=ID, GPUFORM_CREATE_ANEW=1 in the "
        "environment)"
    )


def test_a_question_names_the_parts_that_its_own_request_asked_for() -> None:
    intent = build_intent(names=("train-005", "train-006"))
    error = build_adoption_question(intent, [build_candidate()])
    assert "the Cluster 'train' on together (train-005, train-006) may have" in error.message


def test_lists_may_lack_new_objects_within_the_propagation_time() -> None:
    assert compute_remaining_propagation_s(build_intent(), SENT_AT + 20, 90.0) == 70.0
    assert compute_remaining_propagation_s(build_intent(), SENT_AT + 20) == 40.0
    assert compute_remaining_propagation_s(build_intent(), SENT_AT + 61) == 0.0


@pytest.mark.parametrize(
    ("seconds_left", "failure", "missing"),
    [
        (0.5, None, "it may lack new objects for another 0s"),
        (90.0, None, "it may lack new objects for another 1m30s"),
        (0.0, Unreachable("no connection"), "no connection"),
    ],
)
def test_an_early_or_failed_list_does_not_forget_a_create(
    seconds_left: float, failure: GpuformError | None, missing: str
) -> None:
    require_absence(build_intent(), ["train"], 0.0)
    with pytest.raises(NotEnoughEvidence) as raised:
        require_absence(build_intent(), ["a", "b"], seconds_left, failure)
    assert "Cluster a, b" in raised.value.message
    assert f"the list of together: {missing}" in raised.value.message


def build_answer(status: int) -> ApiError:
    return ApiError("no", method="POST", path="/clusters", status=status)


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (build_answer(422), True),
        (build_answer(409), False),
        (build_answer(408), False),
        (build_answer(500), False),
        (MissingCredentials("no key"), True),
        (Unreachable("no connection"), True),
        (GpuformError("anything else"), False),
    ],
)
def test_only_a_definite_refusal_certainly_created_nothing(
    error: GpuformError, is_refused: bool
) -> None:
    assert is_refusal(error) is is_refused
