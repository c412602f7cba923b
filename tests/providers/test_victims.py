"""Which nodes go: the named ones, else those that are missed least."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.draining import ScheduledNode, Worker, find_name_problems
from gpuform.providers.draining.removals import choose_removals
from gpuform.schemas.policies.drain import RunningJob

RANKS = ["failed", "cordoned", "idle", "newest"]
JOB = RunningJob(id="ml/train-0", name="train-0", user="ada")


def worker(name: str, **fields: object) -> Worker:
    scheduled = ScheduledNode(name, **fields)  # type: ignore[arg-type]
    return Worker(name, aliases=(f"id-{name}",), scheduled_node=scheduled)


def names_of(victims: object) -> list[tuple[str, str]]:
    return [(each.worker.name, each.reason) for each in victims]  # type: ignore[attr-defined]


@st.composite
def pools(draw: st.DrawFn) -> list[Worker]:
    nodes = st.builds(
        dict,
        is_failed=st.booleans(),
        is_cordoned=st.booleans(),
        joined_at=st.none() | st.integers(0, 5).map(float),
        jobs=st.sampled_from([(), (JOB,)]),
    )
    fields = draw(st.lists(nodes, min_size=1, max_size=8))
    return [worker(f"w{at}", **each) for at, each in enumerate(fields)]


@given(pools(), st.data())
def test_exactly_as_many_go_and_no_better_one_stays(
    pool: list[Worker], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(pool)))
    victims = choose_removals(pool, count)
    gone = [victim.worker.name for victim in victims]
    assert len(set(gone)) == len(victims) == count
    reasons = {each.worker.name: each.reason for each in choose_removals(pool, len(pool))}
    order = [RANKS.index(victim.reason) for victim in victims]
    assert order == sorted(order)
    for stays in (each for each in pool if each.name not in gone):
        for goes in (victim.worker for victim in victims):
            ranks = [RANKS.index(reasons[each.name]) for each in (goes, stays)]
            assert ranks[0] <= ranks[1]
            if ranks[0] == ranks[1] and bool(goes.jobs) == bool(stays.jobs):
                assert (goes.scheduled_node.joined_at or 0) >= (stays.scheduled_node.joined_at or 0)  # type: ignore[union-attr]
            if ranks[0] == ranks[1] and not stays.jobs:
                assert not goes.jobs


@given(pools(), st.data())
def test_the_named_go_in_their_order_whatever_they_do(
    pool: list[Worker], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(pool), unique_by=lambda w: w.name, min_size=1))
    named = [data.draw(st.sampled_from([each.name, *each.aliases])) for each in chosen]
    assert list(find_name_problems(pool, len(named), named)) == []
    assert names_of(choose_removals(pool, len(named), named)) == [(w.name, "named") for w in chosen]


def test_without_times_the_last_are_the_newest() -> None:
    pool = [worker(f"w{at}", jobs=(JOB,)) for at in range(3)]
    assert names_of(choose_removals(pool, 2)) == [("w2", "newest"), ("w1", "newest")]


def test_the_platforms_word_of_a_failure_counts() -> None:
    dead = Worker("w0", is_failed=True, scheduled_node=ScheduledNode("w0"))
    assert names_of(choose_removals([dead, worker("w1")], 1)) == [("w0", "failed")]


def test_what_the_scheduler_does_not_know_is_idle() -> None:
    assert names_of(choose_removals([Worker("w0"), worker("w1", jobs=(JOB,))], 1)) == [
        ("w0", "idle")
    ]


@pytest.mark.parametrize(
    ("named", "count", "path", "said"),
    [
        (["w0", "w9"], 2, "drain.nodes[1]", "node w9 not found; the nodes are w0, w1, w2"),
        (["w0", "id-w0"], 2, "drain.nodes[1]", "id-w0 is listed twice"),
        (["w0", "w1"], 1, "drain.nodes", "names 2, but 1 node is removed"),
        (["w0"], 2, "drain.nodes", "names 1, but 2 nodes are removed"),
    ],
)
def test_names_that_cannot_be_meant(named: list[str], count: int, path: str, said: str) -> None:
    pool = [worker(f"w{at}") for at in range(3)]
    (problem,) = find_name_problems(pool, count, named)
    assert problem.path == path
    assert problem.reason.startswith(said)


@pytest.mark.parametrize(("size", "more"), [(20, ""), (21, ", ...")])
def test_twenty_names_are_shown_of_a_large_pool(size: int, more: str) -> None:
    pool = [worker(f"w{at}") for at in range(size)]
    (problem,) = find_name_problems(pool, 1, ["w99"])
    known = ", ".join(f"w{at}" for at in range(20))
    assert problem.reason == f"node w99 not found; the nodes are {known}{more}"


def test_as_many_names_as_nodes_go_are_asked_for() -> None:
    pool = [worker(f"w{at}") for at in range(3)]
    (problem,) = find_name_problems(pool, 1, ["w0", "w1"])
    assert problem.reason == (
        "names 2, but 1 node is removed: name exactly as many, or none to let gpuform choose"
    )
    assert list(find_name_problems(pool, 1, [])) == []


def test_among_equals_those_without_jobs_go_first_and_then_the_newest() -> None:
    pool = [
        worker("new", is_cordoned=True, joined_at=2.0),
        worker("busy", is_cordoned=True, joined_at=3.0, jobs=(JOB,)),
        worker("old", is_cordoned=True, joined_at=0.5),
        worker("undated", is_cordoned=True),
        Worker("unknown", is_failed=True),
    ]
    assert names_of(choose_removals(pool, 5)) == [
        ("unknown", "failed"),
        ("new", "cordoned"),
        ("old", "cordoned"),
        ("undated", "cordoned"),
        ("busy", "cordoned"),
    ]
