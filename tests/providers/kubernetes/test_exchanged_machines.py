"""Nodes whose machine is another one by the end of their test."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.providers.kubernetes.test_lying_readiness import LyingWorld, at_fault, proven, world
from tests.providers.kubernetes.test_repair_of_failed import Managed

__all__ = ["world"]  # the fixture


@contextmanager
def exchanged(world: LyingWorld, name: str) -> Iterator[list[str]]:
    """Once something is put into the list, the platform tells another machine for the node."""
    told: list[str] = []
    http = world.cluster.server._http
    inner = http.app

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        head: list[Any] = []
        body = b"".join(inner(environ, lambda *given: head.append(given)))
        status, headers = head[-1][:2]
        if told and environ["PATH_INFO"].startswith("/together/") and status.startswith("20"):
            body = json.dumps(_with_machine(json.loads(body), name, told[0])).encode()
            headers = [each for each in headers if each[0].lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]

    http.app = app
    try:
        yield told
    finally:
        http.app = inner


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
    assert [each["nodes"] for each in again.outs["results"]] == [[new]]


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
    assert [each.node for each in cluster.refresh()] == [slow]
    with exchanged(world, slow) as told:
        told.append("another")
        cluster.update()
        assert cluster.refresh() == []
    sent = [each for each in world.cluster.control("GET", "/requests") if each["method"] == "POST"]
    assert not [each for each in sent if "remediation" in each["path"]]
