"""Test which scheduler node belongs to which platform node: by name, id and address, or to none."""

from dataclasses import replace

import pytest

from gpuform.providers.draining import ScheduledNode, Worker
from gpuform.providers.draining.choosing import match_nodes

WORKER = Worker("train-001", aliases=("id-1",), addresses=("10.0.0.5", ""))


@pytest.mark.parametrize(
    "node",
    [
        ScheduledNode("train-001"),
        ScheduledNode("TRAIN-001"),
        ScheduledNode("id-1"),
        ScheduledNode("ip-10-0-0-5", provider_id="scp:///kr-west1/id-1"),
        ScheduledNode("ip-10-0-0-5", addresses=("ip-10-0-0-5", "10.0.0.5")),
        ScheduledNode("x", addresses=("train-001",)),
    ],
)
def test_a_node_of_the_same_machine_is_matched(node: ScheduledNode) -> None:
    (worker,) = match_nodes([WORKER], [ScheduledNode("other", addresses=("10.0.0.6",)), node])
    assert (worker.scheduled_node, worker.match_ambiguity) == (node, "")


@pytest.mark.parametrize(
    "node",
    [
        ScheduledNode("train-0011"),
        ScheduledNode("x", provider_id="scp:///kr-west1/id-11"),
        ScheduledNode("x", addresses=("10.0.0.50", "")),
        ScheduledNode("x", provider_id="///"),
    ],
)
def test_a_node_of_another_machine_is_not_matched(node: ScheduledNode) -> None:
    (worker,) = match_nodes([WORKER], [node])
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")


def test_earlier_matches_are_discarded() -> None:
    """Each match starts empty: earlier nodes and doubts are removed."""
    matched_worker = replace(
        WORKER, scheduled_node=ScheduledNode("old"), match_ambiguity="it may be old or older"
    )
    both = [ScheduledNode("train-001"), ScheduledNode("b", addresses=("10.0.0.5",))]
    (worker,) = match_nodes([matched_worker], [])
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")
    (worker,) = match_nodes([matched_worker], both)
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "it may be b or train-001")
    (worker,) = match_nodes([matched_worker], both[:1])
    assert (worker.scheduled_node, worker.match_ambiguity) == (both[0], "")
    shared = match_nodes([matched_worker, Worker("train-002", addresses=("10.0.0.5",))], both[1:])
    assert [matched.scheduled_node for matched in shared] == [None, None]


def test_a_node_that_several_workers_match_names_the_others() -> None:
    workers = [Worker(name, addresses=("10.0.0.5",)) for name in ("a", "b", "c")]
    matched_workers = match_nodes(workers, [ScheduledNode("x", addresses=(" 10.0.0.5 ",))])
    assert [worker.match_ambiguity for worker in matched_workers] == [
        "x may be b, c, too",
        "x may be a, c, too",
        "x may be a, b, too",
    ]
    twins = match_nodes([WORKER, WORKER], [ScheduledNode("train-001")])
    assert [worker.match_ambiguity for worker in twins] == ["train-001 may be train-001, too"] * 2


@pytest.mark.parametrize(
    "local", ["", " ", "localhost", "LOCALHOST.localdomain", "127.0.0.1", "127.1.2.3", "::1", "::"]
)
def test_common_names_match_no_node(local: str) -> None:
    (worker,) = match_nodes(
        [Worker("train-001", addresses=(local,))], [ScheduledNode("x", addresses=(local,))]
    )
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")


def test_a_worker_that_matches_two_nodes_has_none() -> None:
    nodes = [ScheduledNode("train-001"), ScheduledNode("b", addresses=("10.0.0.5",))]
    (worker,) = match_nodes([WORKER], nodes)
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "it may be b or train-001")


def test_a_node_that_two_workers_match_belongs_to_none() -> None:
    workers = [WORKER, Worker("train-002", addresses=("10.0.0.5",)), Worker("train-003")]
    nodes = [ScheduledNode("train-001"), ScheduledNode("train-003")]
    shared = [ScheduledNode("a", addresses=("10.0.0.5",)), nodes[1]]
    assert [worker.scheduled_node for worker in match_nodes(workers, nodes)] == [
        nodes[0],
        None,
        nodes[1],
    ]
    matched_workers = match_nodes(workers, shared)
    assert [worker.scheduled_node for worker in matched_workers] == [None, None, nodes[1]]
    assert matched_workers[0].match_ambiguity == "a may be train-002, too"
