"""Test evidence: what a decision requires, and which gaps it reports."""

import pytest

from gpuform.providers.evidence import (
    DECISIONS,
    Decision,
    Effect,
    NotEnoughEvidence,
    Observation,
    find_gaps,
    require_evidence,
)

STOP_NODE = Decision(
    "stop an idle node", Effect.STOP, needs="utilization", without="it runs on", max_age_s=60
)


def test_complete_and_fresh_observations_leave_no_gap() -> None:
    assert find_gaps(STOP_NODE, Observation("Lens", age_s=60), Observation("Slurm")) == []


def test_no_observation_is_a_gap() -> None:
    assert find_gaps(STOP_NODE) == ["no observation exists"]


def test_a_decision_is_refused_with_every_gap_and_what_happens_without_it() -> None:
    partial = Observation("Lens", missing=("it shows 5 of 8 GPUs",), age_s=90)

    with pytest.raises(NotEnoughEvidence) as refusal:
        require_evidence(STOP_NODE, "node gpu-1", partial)

    assert refusal.value.message == (
        "node gpu-1: cannot stop an idle node: Lens: it shows 5 of 8 GPUs; "
        "Lens: the answer is 90 s old, more than 60 s"
    )
    assert refusal.value.hint == "it runs on"


def test_a_decision_without_an_age_limit_accepts_an_old_observation() -> None:
    ageless = Decision("forget", Effect.FORGET, needs="a list", without="it is kept")

    assert find_gaps(ageless, Observation("SCP", age_s=1e6)) == []


def test_decisions_have_distinct_names() -> None:
    names = [decision.name for decision in DECISIONS]

    assert sorted(set(names)) == sorted(names)
