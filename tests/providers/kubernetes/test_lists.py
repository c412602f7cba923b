"""Test lists of the Kubernetes API: all pages of the requested kind, or an error."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hostile.fakes.answers import PlatformRequest
from hostile.fakes.kubernetes import Kubernetes, render_kubeconfig, serve_cluster
from support.clocks.fake_clock import FakeClock

from gpuform.providers.errors import ForeignAnswer
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler

PODS = "/api/v1/pods"


@pytest.fixture
def fake() -> Kubernetes:
    """Create three nodes with a job on the last one."""
    kubernetes = Kubernetes(FakeClock())
    for number in range(3):
        kubernetes.add_node(f"w{number}", has_proxy=False)
        kubernetes.start_pod(f"w{number}", f"proxy-{number}", "kube-system", owner="DaemonSet")
    kubernetes.start_pod("w2", "train")
    return kubernetes


@pytest.fixture
def client(fake: Kubernetes) -> Iterator[KubernetesClient]:
    with (
        serve_cluster(fake) as address,
        closing(get_kubernetes_client(render_kubeconfig(address), "train")) as made,
    ):
        yield made


def list_busy_nodes(client: KubernetesClient) -> list[str]:
    return [node.name for node in KubernetesScheduler(client).list_nodes() if node.jobs]


def list_node_names(client: KubernetesClient) -> list[str]:
    return [pod["metadata"]["name"] for pod in client.list_objects(PODS)]


ALL = ["proxy-0", "proxy-1", "proxy-2", "train"]


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_a_job_on_a_later_page_is_listed(
    fake: Kubernetes, client: KubernetesClient, page_size: int
) -> None:
    fake.misbehavior.page_size = page_size
    assert list_busy_nodes(client) == ["w2"]


def test_an_expired_token_begins_the_list_again(fake: Kubernetes, client: KubernetesClient) -> None:
    fake.misbehavior.page_size, fake.misbehavior.expired_tokens = 2, 1
    assert list_node_names(client) == ALL


def test_tokens_that_always_expire_raise_an_error(
    fake: Kubernetes, client: KubernetesClient
) -> None:
    fake.misbehavior.page_size, fake.misbehavior.expired_tokens = 2, 99
    with pytest.raises(ForeignAnswer, match=r"incomplete after 3 readings: .*token has expired"):
        client.list_objects(PODS)


@pytest.mark.parametrize("kind", ["NodeList", "Pod", "List", "PodMetricsList"])
def test_a_list_of_another_kind_is_an_error(
    fake: Kubernetes, client: KubernetesClient, kind: str
) -> None:
    fake.misbehavior.wrong_kind = kind
    with pytest.raises(ForeignAnswer, match="kind"):
        client.list_objects(PODS)


def test_a_list_that_ends_before_its_announced_end_is_an_error(
    fake: Kubernetes, client: KubernetesClient
) -> None:
    fake.misbehavior.page_size, fake.misbehavior.drops_continue = 3, True
    with pytest.raises(ForeignAnswer, match="it ends after 3 of 4 objects"):
        client.list_objects(PODS)


def test_pages_of_different_moments_are_read_again(
    fake: Kubernetes, client: KubernetesClient
) -> None:
    """A pod that moves to an earlier page when another pod ends would otherwise never be read."""
    fake.misbehavior.page_size, fake.misbehavior.shifts_pages = 2, True
    fake.start_pod("w0", "a-short-one", "ml")

    def end_it_after_the_first_page(call: PlatformRequest) -> None:
        if "continue" in call.query:
            fake.end_pod("a-short-one")
            fake.before = lambda _: None

    fake.before = end_it_after_the_first_page
    assert list_busy_nodes(client) == ["w2"]


@pytest.mark.parametrize("fault", ["repeats_page", "is_doubled"])
def test_an_object_listed_twice_is_an_error(
    fake: Kubernetes, client: KubernetesClient, fault: str
) -> None:
    fake.misbehavior.page_size = 2
    setattr(fake.misbehavior, fault, True)
    with pytest.raises(ForeignAnswer, match="twice"):
        client.list_objects(PODS)


@pytest.mark.parametrize("item", [None, 5, {}, {"metadata": None}, {"metadata": {"name": 5}}])
def test_an_object_without_a_name_is_an_error(
    fake: Kubernetes, client: KubernetesClient, item: object
) -> None:
    fake._list_visible = lambda *_: [item]  # type: ignore[method-assign, assignment, list-item]
    with pytest.raises(ForeignAnswer, match=r"metadata\.name"):
        client.list_objects(PODS)
