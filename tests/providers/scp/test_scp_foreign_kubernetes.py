"""Test the nodes of a pool with a declared Kubernetes of somebody else, over real HTTP.

gpuform removes no node that this Kubernetes does not show, under any name, and none with a running
job.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hostile.fakes.kubernetes import Kubernetes, render_kubeconfig, serve_cluster

from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client

DELETE = "DELETE /v1/gpu-nodes"
NAMES = ["train-001", "train-002", "train-003"]


@pytest.fixture
def fake(environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")
    kubernetes = Kubernetes(environment.clock)
    with serve_cluster(kubernetes) as address:
        kubeconfig = render_kubeconfig(address)
        (tmp_path / "kubeconfig").write_text(kubeconfig)
        with closing(get_kubernetes_client(kubeconfig, "pool train")):
            yield kubernetes


@pytest.fixture
def pool(environment: Any, pool_inputs: dict[str, Any], tmp_path: Path) -> Any:
    drain = {"kubernetes": {"kubeconfig": str(tmp_path / "kubeconfig")}, "wait_minutes": 10}
    made = environment.create("NodePool", {**pool_inputs, "count": 3, "drain": drain})
    environment.count_writes()
    return made


def join_nodes(fake: Kubernetes, pool: Any, **names: str) -> None:
    """Join every node of the pool, under its own name or another one, with its address."""
    for node in pool.nodes.values():
        name = node["gpu_node_name"]
        fake.add_node(names.get(name, name), addresses={"InternalIP": node["policy_ip"]})


@pytest.mark.parametrize("fault", ["empty", "foreign", "hidden"])
def test_a_kubernetes_without_the_pools_nodes_removes_no_node(
    environment: Any, pool: Any, fake: Kubernetes, fault: str
) -> None:
    if fault != "empty":
        join_nodes(fake, pool)
        fake.start_pod("train-002", "job")
    fake.misbehavior.is_foreign = fault == "foreign"
    fake.misbehavior.hidden_nodes = set(NAMES) if fault == "hidden" else set()
    for change in (
        environment.delete,
        lambda made: environment.update(made, {**made.inputs, "count": 2}),
    ):
        with pytest.raises(GpuformError, match="cannot remove a node: Kubernetes: no node has"):
            change(pool)
    assert environment.count_writes() == {}


def test_a_hidden_node_is_not_chosen_for_removal(
    environment: Any, pool: Any, fake: Kubernetes
) -> None:
    join_nodes(fake, pool)
    fake.start_pod("train-003", "job")
    fake.misbehavior.hidden_nodes = {"train-003"}
    smaller = environment.update(pool, {**pool.inputs, "count": 2})
    assert sorted(smaller.nodes) == ["train-001", "train-003"]
    with pytest.raises(GpuformError, match="an address of train-003"):
        environment.delete(smaller)
    assert fake.list_jobs_on("train-003") == ["ml/job"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_job_on_a_node_of_another_name_is_waited_for(
    environment: Any, pool: Any, fake: Kubernetes
) -> None:
    join_nodes(fake, pool, **{"train-002": "ip-192-168-0-2.internal"})
    fake.start_pod("ip-192-168-0-2.internal", "job")
    with pytest.raises(GpuformError, match="jobs still run on train-002: ml/job"):
        environment.delete(pool)
    assert environment.count_writes() == {}
    fake.end_pod("job")
    environment.delete(pool)
    assert environment.count_writes() == {DELETE: 1}


def test_a_node_that_fits_two_names_is_not_removed(
    environment: Any, pool: Any, fake: Kubernetes
) -> None:
    join_nodes(fake, pool)
    fake.add_node("b", addresses={"InternalIP": pool.nodes["train-001"]["policy_ip"]})
    with pytest.raises(
        GpuformError, match="the node of train-001 is unknown: it may be b or train-001"
    ):
        environment.delete(pool)
    assert environment.count_writes() == {}


def test_pods_hidden_by_a_gateway_remove_no_node(
    environment: Any, pool: Any, fake: Kubernetes
) -> None:
    """The gateway shows pods of some namespaces only, without an error."""
    join_nodes(fake, pool)
    fake.start_pod("train-002", "job")
    fake.misbehavior.hidden_namespaces = {"kube-system", "ml"}
    with pytest.raises(GpuformError, match="jobs on train-001 are unknown: no pod is visible"):
        environment.delete(pool)
    assert environment.count_writes() == {}


def test_pods_that_may_not_be_listed_remove_no_node(
    environment: Any, pool: Any, fake: Kubernetes
) -> None:
    join_nodes(fake, pool)
    fake.misbehavior.forbidden = {"pods"}
    with pytest.raises(GpuformError, match="pods is forbidden"):
        environment.delete(pool)
    assert environment.count_writes() == {}


@pytest.mark.parametrize("lag_s", [3.0, 6.0, 8.0])
def test_a_lagging_list_hides_no_job(
    environment: Any, pool: Any, fake: Kubernetes, lag_s: float
) -> None:
    """The job starts just before the cordon and appears in the list some seconds later."""
    join_nodes(fake, pool)
    environment.move_clock(60)
    fake.misbehavior.lag_s = lag_s

    def start(call: Any) -> None:
        if call.method == "PATCH":
            fake.start_pod("train-001", "job")
            fake.before = lambda _: None

    fake.before = start
    with pytest.raises(GpuformError, match="jobs still run on train-001: ml/job"):
        environment.delete(pool)
    assert environment.count_writes() == {}
