"""Test nodes whose machine is replaced during their certification."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.platforms.emulator_hooks import rewrite_answers

from tests.providers.kubernetes.test_lying_readiness import LyingWorld, at_fault, proven, world
from tests.providers.kubernetes.test_repair_of_failed import Managed

__all__ = ["world"]  # the fixture


@contextmanager
def exchanged(world: LyingWorld, name: str) -> Iterator[list[str]]:
    """Once something is put into the list, the platform tells another machine for the node."""
    told: list[str] = []

    def rewrite(environ: dict[str, Any], answer: Any) -> Any:
        is_platform = environ["PATH_INFO"].startswith("/together/")
        return _with_machine(answer, name, told[0]) if told and is_platform else answer

    with rewrite_answers(world.cluster.server, rewrite):
        yield told


def _with_machine(value: Any, name: str, machine: str) -> Any:
    if isinstance(value, list):
        return [_with_machine(each, name, machine) for each in value]
    if not isinstance(value, dict):
        return value
    other = {"instance_id": machine} if value.get("host_name") == name else {}
    return {key: _with_machine(each, name, machine) for key, each in value.items()} | other


def test_a_machine_that_came_during_the_test_is_not_proven(world: LyingWorld) -> None:
    new, *others = world.nodes()
    with exchanged(world, new) as told:
        made = world.create_with(lambda: told.append("another"))
        assert (made.outs["ready"], proven(made.outs)) == (False, others)
        again = world.update(made, world.declared())
    assert (again.outs["ready"], proven(again.outs)) == (True, [new, *others])
    assert [result["nodes"] for result in again.outs["results"]] == [[new]]


def test_a_machine_that_went_during_the_test_is_blamed_no_more(world: LyingWorld) -> None:
    """And the others have passed, whatever the whole says."""
    slow, *others = world.nodes()
    cluster = Managed(world)
    world.set(slow_nodes={slow: 100})
    with exchanged(world, slow) as told:
        made = world.create_with(lambda: told.append("another"))
        assert (made.outs["ready"], proven(made.outs)) == (False, others)
        assert (at_fault(world), cluster.refresh()) == ([], [])


def test_who_is_there_in_place_of_a_failed_machine_is_not_repaired(world: LyingWorld) -> None:
    cluster = Managed(world)
    slow = world.nodes()[0]
    world.set(slow_nodes={slow: 100})
    world.create(world.declared())
    assert [request.node for request in cluster.refresh()] == [slow]
    with exchanged(world, slow) as told:
        told.append("another")
        cluster.update()
        assert cluster.refresh() == []
    sent = [
        request
        for request in world.cluster.control("GET", "/requests")
        if request["method"] == "POST"
    ]
    assert not [request for request in sent if "remediation" in request["path"]]
