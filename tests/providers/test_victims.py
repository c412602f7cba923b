"""Test which nodes are removed: the named ones, or the ones missed least."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.draining import ScheduledNode, Worker, find_name_problems
from gpuform.providers.draining.choosing import choose_removals
from gpuform.schemas.policies.drain import RunningJob

RANKS = ["failed", "cordoned", "idle", "newest"]
JOB = RunningJob(id="ml/train-0", name="train-0", user="ada")


def build_worker(name: str, **fields: object) -> Worker:
    scheduled = ScheduledNode(name, **fields)  # type: ignore[arg-type]
    return Worker(name, aliases=(f"id-{name}",), scheduled_node=scheduled)


def list_names_and_reasons(victims: object) -> list[tuple[str, str]]:
    return [(victim.worker.name, victim.reason) for victim in victims]  # type: ignore[attr-defined]


@st.composite
def build_pools(draw: st.DrawFn) -> list[Worker]:
    nodes = st.builds(
        dict,
        is_failed=st.booleans(),
        is_cordoned=st.booleans(),
        joined_at=st.none() | st.integers(0, 5).map(float),
        jobs=st.sampled_from([(), (JOB,)]),
    )
    fields = draw(st.lists(nodes, min_size=1, max_size=8))
    return [build_worker(f"w{at}", **field) for at, field in enumerate(fields)]


@given(build_pools(), st.data())
def test_exactly_the_requested_number_is_removed_and_the_least_needed(
    pool: list[Worker], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(pool)))
    victims = choose_removals(pool, count)
    removed = [victim.worker.name for victim in victims]
    assert len(set(removed)) == len(victims) == count
    reasons = {problem.worker.name: problem.reason for problem in choose_removals(pool, len(pool))}
    order = [RANKS.index(victim.reason) for victim in victims]
    assert order == sorted(order)
    for stays in (problem for problem in pool if problem.name not in removed):
        for removed_worker in (victim.worker for victim in victims):
            ranks = [RANKS.index(reasons[problem.name]) for problem in (removed_worker, stays)]
            assert ranks[0] <= ranks[1]
            if ranks[0] == ranks[1] and bool(removed_worker.jobs) == bool(stays.jobs):
                assert (removed_worker.scheduled_node.joined_at or 0) >= (
                    stays.scheduled_node.joined_at or 0
                )  # type: ignore[union-attr]
            if ranks[0] == ranks[1] and not stays.jobs:
                assert not removed_worker.jobs


@given(build_pools(), st.data())
def test_named_nodes_are_removed_in_their_order(pool: list[Worker], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(pool), unique_by=lambda w: w.name, min_size=1))
    named = [data.draw(st.sampled_from([item.name, *item.aliases])) for item in chosen]
    assert list(find_name_problems(pool, len(named), named)) == []
    assert list_names_and_reasons(choose_removals(pool, len(named), named)) == [
        (w.name, "named") for w in chosen
    ]


def test_without_times_the_last_are_the_newest() -> None:
    pool = [build_worker(f"w{at}", jobs=(JOB,)) for at in range(3)]
    assert list_names_and_reasons(choose_removals(pool, 2)) == [("w2", "newest"), ("w1", "newest")]


def test_a_failure_reported_by_the_platform_counts() -> None:
    dead = Worker("w0", is_failed=True, scheduled_node=ScheduledNode("w0"))
    assert list_names_and_reasons(choose_removals([dead, build_worker("w1")], 1)) == [
        ("w0", "failed")
    ]


def test_a_node_unknown_to_the_scheduler_counts_as_idle() -> None:
    assert list_names_and_reasons(
        choose_removals([Worker("w0"), build_worker("w1", jobs=(JOB,))], 1)
    ) == [("w0", "idle")]


@pytest.mark.parametrize(
    ("named", "count", "path", "message"),
    [
        (["w0", "w9"], 2, "drain.nodes[1]", "node w9 not found; the nodes are w0, w1, w2"),
        (["w0", "id-w0"], 2, "drain.nodes[1]", "id-w0 is listed twice"),
        (["w0", "w1"], 1, "drain.nodes", "names 2, but 1 node is removed"),
        (["w0"], 2, "drain.nodes", "names 1, but 2 nodes are removed"),
    ],
)
def test_invalid_node_names_are_refused(
    named: list[str], count: int, path: str, message: str
) -> None:
    pool = [build_worker(f"w{at}") for at in range(3)]
    (problem,) = find_name_problems(pool, count, named)
    assert problem.path == path
    assert problem.reason.startswith(message)


@pytest.mark.parametrize(("size", "more"), [(20, ""), (21, ", ...")])
def test_at_most_twenty_names_of_a_large_pool_are_shown(size: int, more: str) -> None:
    pool = [build_worker(f"w{at}") for at in range(size)]
    (problem,) = find_name_problems(pool, 1, ["w99"])
    first_names = ", ".join(f"w{at}" for at in range(20))
    assert problem.reason == f"node w99 not found; the nodes are {first_names}{more}"


def test_the_number_of_names_must_equal_the_number_of_removed_nodes() -> None:
    pool = [build_worker(f"w{at}") for at in range(3)]
    (problem,) = find_name_problems(pool, 1, ["w0", "w1"])
    assert problem.reason == (
        "names 2, but 1 node is removed: name exactly as many, or none to let gpuform choose"
    )
    assert list(find_name_problems(pool, 1, [])) == []


def test_among_equals_idle_nodes_then_the_newest_are_removed_first() -> None:
    pool = [
        build_worker("new", is_cordoned=True, joined_at=2.0),
        build_worker("busy", is_cordoned=True, joined_at=3.0, jobs=(JOB,)),
        build_worker("old", is_cordoned=True, joined_at=0.5),
        build_worker("undated", is_cordoned=True),
        Worker("unknown", is_failed=True),
    ]
    assert list_names_and_reasons(choose_removals(pool, 5)) == [
        ("unknown", "failed"),
        ("new", "cordoned"),
        ("old", "cordoned"),
        ("undated", "cordoned"),
        ("busy", "cordoned"),
    ]
