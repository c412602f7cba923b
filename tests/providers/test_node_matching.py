"""Which node of a scheduler is which node of a platform: by name, id and address, or nobody's."""

from dataclasses import replace

import pytest

from gpuform.providers.draining import ScheduledNode, Worker
from gpuform.providers.draining.matching import match_nodes

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
def test_the_same_machine_is_found(node: ScheduledNode) -> None:
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
def test_another_machine_is_not(node: ScheduledNode) -> None:
    (worker,) = match_nodes([WORKER], [node])
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")


def test_what_was_said_of_a_worker_before_is_forgotten() -> None:
    """Each look matches anew: an earlier node, or doubt, is none any more."""
    known = replace(
        WORKER, scheduled_node=ScheduledNode("old"), match_ambiguity="it may be old or older"
    )
    both = [ScheduledNode("train-001"), ScheduledNode("b", addresses=("10.0.0.5",))]
    (worker,) = match_nodes([known], [])
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")
    (worker,) = match_nodes([known], both)
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "it may be b or train-001")
    (worker,) = match_nodes([known], both[:1])
    assert (worker.scheduled_node, worker.match_ambiguity) == (both[0], "")
    shared = match_nodes([known, Worker("train-002", addresses=("10.0.0.5",))], both[1:])
    assert [each.scheduled_node for each in shared] == [None, None]


def test_a_node_that_several_workers_match_names_the_others() -> None:
    workers = [Worker(name, addresses=("10.0.0.5",)) for name in ("a", "b", "c")]
    found = match_nodes(workers, [ScheduledNode("x", addresses=(" 10.0.0.5 ",))])
    assert [each.match_ambiguity for each in found] == [
        "x may be b, c, too",
        "x may be a, c, too",
        "x may be a, b, too",
    ]
    twins = match_nodes([WORKER, WORKER], [ScheduledNode("train-001")])
    assert [each.match_ambiguity for each in twins] == ["train-001 may be train-001, too"] * 2


@pytest.mark.parametrize(
    "local", ["", " ", "localhost", "LOCALHOST.localdomain", "127.0.0.1", "127.1.2.3", "::1", "::"]
)
def test_the_names_that_every_machine_has_match_nothing(local: str) -> None:
    (worker,) = match_nodes(
        [Worker("train-001", addresses=(local,))], [ScheduledNode("x", addresses=(local,))]
    )
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "")


def test_what_matches_two_nodes_is_neither() -> None:
    nodes = [ScheduledNode("train-001"), ScheduledNode("b", addresses=("10.0.0.5",))]
    (worker,) = match_nodes([WORKER], nodes)
    assert (worker.scheduled_node, worker.match_ambiguity) == (None, "it may be b or train-001")


def test_a_node_that_two_workers_match_is_neithers() -> None:
    workers = [WORKER, Worker("train-002", addresses=("10.0.0.5",)), Worker("train-003")]
    nodes = [ScheduledNode("train-001"), ScheduledNode("train-003")]
    shared = [ScheduledNode("a", addresses=("10.0.0.5",)), nodes[1]]
    assert [each.scheduled_node for each in match_nodes(workers, nodes)] == [
        nodes[0],
        None,
        nodes[1],
    ]
    found = match_nodes(workers, shared)
    assert [each.scheduled_node for each in found] == [None, None, nodes[1]]
    assert found[0].match_ambiguity == "a may be train-002, too"
