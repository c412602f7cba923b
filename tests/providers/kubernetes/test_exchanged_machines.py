"""Test nodes whose machine is replaced during their certification."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.platforms.emulator_hooks import rewrite_answers

from tests.providers.kubernetes.test_lying_readiness import (
    ContradictoryCluster,
    certified_cluster,
    list_certified_nodes,
    list_faulty_nodes,
)
from tests.providers.kubernetes.test_repair_of_failed import ManagedCluster

__all__ = ["certified_cluster"]  # the fixture


@contextmanager
def report_other_machine(certified_cluster: ContradictoryCluster, name: str) -> Iterator[list[str]]:
    """Report another machine for the node once the yielded list has the node's id."""
    machines: list[str] = []

    def rewrite(environ: dict[str, Any], answer: Any) -> Any:
        is_platform = environ["PATH_INFO"].startswith("/together/")
        return _replace_machine(answer, name, machines[0]) if machines and is_platform else answer

    with rewrite_answers(certified_cluster.cluster.server, rewrite):
        yield machines


def _replace_machine(value: Any, name: str, machine: str) -> Any:
    if isinstance(value, list):
        return [_replace_machine(item, name, machine) for item in value]
    if not isinstance(value, dict):
        return value
    other = {"instance_id": machine} if value.get("host_name") == name else {}
    return {key: _replace_machine(item, name, machine) for key, item in value.items()} | other


def test_a_machine_replaced_during_its_test_is_tested_again(
    certified_cluster: ContradictoryCluster,
) -> None:
    new, *others = certified_cluster.list_nodes()
    with report_other_machine(certified_cluster, new) as machines:
        made = certified_cluster.create_with_fault(lambda: machines.append("another"))
        assert (made.outs["ready"], list_certified_nodes(made.outs)) == (False, others)
        again = certified_cluster.update(made, certified_cluster.build_inputs())
    assert (again.outs["ready"], list_certified_nodes(again.outs)) == (True, [new, *others])
    assert [result["nodes"] for result in again.outs["results"]] == [[new]]


def test_a_failed_machine_replaced_during_its_test_is_not_blamed(
    certified_cluster: ContradictoryCluster,
) -> None:
    """The other nodes have passed, although the run as a whole has failed."""
    slow, *others = certified_cluster.list_nodes()
    cluster = ManagedCluster(certified_cluster)
    certified_cluster.change_settings(slow_nodes={slow: 100})
    with report_other_machine(certified_cluster, slow) as machines:
        made = certified_cluster.create_with_fault(lambda: machines.append("another"))
        assert (made.outs["ready"], list_certified_nodes(made.outs)) == (False, others)
        assert (list_faulty_nodes(certified_cluster), cluster.refresh()) == ([], [])


def test_the_replacement_of_a_failed_machine_is_not_repaired(
    certified_cluster: ContradictoryCluster,
) -> None:
    cluster = ManagedCluster(certified_cluster)
    slow = certified_cluster.list_nodes()[0]
    certified_cluster.change_settings(slow_nodes={slow: 100})
    certified_cluster.create(certified_cluster.build_inputs())
    assert [request.node for request in cluster.refresh()] == [slow]
    with report_other_machine(certified_cluster, slow) as machines:
        machines.append("another")
        cluster.update()
        assert cluster.refresh() == []
    sent = [
        request
        for request in certified_cluster.cluster.send_control("GET", "/requests")
        if request["method"] == "POST"
    ]
    assert not [request for request in sent if "remediation" in request["path"]]
