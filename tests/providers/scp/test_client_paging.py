"""Test lists in pages, which may change while they are read."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.scp.client import ScpClient, client, connection
from gpuform.providers.scp.client.connection import Connection, read_all_pages
from gpuform.providers.scp.client.credentials import Credentials

SIZE = 3
_ID = st.integers(0, 20)


class Pages:
    """A sorted list of ids that `change` may touch before a page is read."""

    def __init__(self, ids: Sequence[int], change: Callable[["Pages"], None]) -> None:
        self.ids = list(ids)
        self.reads = 0
        self.passes = 0
        self.change = change
        self.count: int | None = None
        self.cap = SIZE

    def page(self, number: int) -> tuple[int, list[int]]:
        self.passes += number == 0
        self.change(self)
        self.reads += 1
        items = sorted(self.ids)[number * self.cap : (number + 1) * self.cap]
        return (len(self.ids) if self.count is None else self.count), items


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PAGE_SIZE", SIZE)
    monkeypatch.setattr(client, "PAGE_SIZE", SIZE)


def change_nothing(_: Pages) -> None:
    """Change nothing between the requests."""


@pytest.mark.parametrize("length", range(10))
def test_an_unchanging_list_is_complete_and_read_once_if_on_one_page(length: int) -> None:
    pages = Pages(range(length), change_nothing)
    assert sorted(read_all_pages(pages.page, str)) == list(range(length))
    assert (pages.reads == 1) == (length < SIZE)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_a_wrong_count_loses_no_item(count: int) -> None:
    for length in range(8):
        pages = Pages(range(length), change_nothing)
        pages.count = count
        assert sorted(read_all_pages(pages.page, str)) == list(range(length))


def test_smaller_pages_than_requested_lose_no_item() -> None:
    pages = Pages(range(8), change_nothing)
    pages.cap = 2
    assert sorted(read_all_pages(pages.page, str)) == list(range(8))


def test_a_platform_that_ignores_pages_is_read_to_the_end() -> None:
    assert read_all_pages(lambda _: (99, [1, 2, 3]), str) == [1, 2, 3]


def test_an_item_that_moves_to_an_earlier_page_is_not_missed() -> None:
    """Between two pages, one item disappears and one appears: the count hides the missing item."""

    def change(pages: Pages) -> None:
        if pages.reads == 1:
            pages.ids.remove(2)
            pages.ids.append(9)

    pages = Pages(range(1, 8), change)
    assert sorted(read_all_pages(pages.page, str)) == [1, 3, 4, 5, 6, 7, 9]


@pytest.mark.slow
@given(st.sets(_ID), st.lists(st.lists(_ID, max_size=3), max_size=8))
def test_a_list_is_read_again_until_it_stops_changing(
    ids: set[int], toggled: list[list[int]]
) -> None:
    """Items appear and disappear during the first pass."""
    coming_and_going = iter(toggled)

    def change(pages: Pages) -> None:
        if pages.passes == 1:
            pages.ids = sorted({*pages.ids} ^ set(next(coming_and_going, [])))

    pages = Pages(sorted(ids), change)
    assert sorted(read_all_pages(pages.page, str)) == sorted(pages.ids)


def test_a_list_that_always_changes_ends_with_the_last_two_passes() -> None:
    def change(pages: Pages) -> None:
        pages.ids.append(100 + pages.reads)

    pages = Pages(range(7), change)
    assert set(range(7)) <= set(read_all_pages(pages.page, str))
    assert pages.reads < 100


# Through the client.


class Platform:
    """Lists that honour page, size and sort, and no filter."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = lists
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        params = dict(request.url.params)
        self.asked.append(params)
        name = {"gpu-nodes": "gpu_nodes"}.get(request.url.path.rpartition("/")[2])
        name = name or "cluster_fabrics"
        field, _, order = params["sort"].partition(":")
        items = sorted(self.lists[name], key=lambda item: item[field], reverse=order == "desc")
        page, size = int(params["page"]), int(params["size"])
        some = items[page * size : (page + 1) * size]
        return httpx.Response(200, json={"count": len(items), name: some})

    def client(self) -> ScpClient:
        credentials = Credentials("AK", "SK", base_url="http://scp.test")
        return ScpClient(Connection(credentials, httpx.MockTransport(self)))


def build_node(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"i{number}", "gpu_node_name": f"n-{number:03d}", "state": "RUNNING", **fields}


def test_nodes_are_sorted_by_name() -> None:
    platform = Platform(gpu_nodes=[build_node(number) for number in (5, 3, 1, 4, 2, 7, 6)])
    names = [node.gpu_node_name for node in platform.client().list_nodes()]
    assert names == [f"n-{number:03d}" for number in range(1, 8)]
    assert {query["size"] for query in platform.asked} == {str(SIZE)}


def test_fabrics_are_sorted_by_name() -> None:
    fabrics = [
        {"id": f"f{number}", "cluster_name": f"c{9 - number}", "created_at": str(number)}
        for number in range(7)
    ]
    listed_fabrics = Platform(cluster_fabrics=fabrics).client().list_fabrics()
    assert [cluster.cluster_name for cluster in listed_fabrics] == [
        f"c{number}" for number in range(3, 10)
    ]


def test_inexact_matches_of_the_platforms_filters_are_dropped() -> None:
    """The reference does not say which filters compare parts of a text."""
    platform = Platform(
        gpu_nodes=[
            build_node(1, cluster_fabric_name="train"),
            build_node(2, cluster_fabric_name="train-2"),
            build_node(3, cluster_fabric_name=None, state="ERROR"),
        ],
        cluster_fabrics=[
            {"id": "f1", "cluster_name": "train", "node_pool_id": "P1", "created_at": ""},
            {"id": "f2", "cluster_name": "train-2", "node_pool_id": "P1", "created_at": ""},
        ],
    )
    scp = platform.client()
    assert [node.id for node in scp.list_nodes(cluster_fabric_name="train")] == ["i1"]
    assert [node.id for node in scp.list_nodes(state="ERROR")] == ["i3"]
    assert scp.list_nodes(gpu_node_name="n") == []
    assert [fabric.id for fabric in scp.list_fabrics(cluster_fabric_name="train")] == ["f1"]
    assert scp.list_fabrics(node_pool_id="P") == []


def test_a_terminated_node_is_listed_only_on_request() -> None:
    scp = Platform(gpu_nodes=[build_node(1), build_node(2, state="TERMINATED")]).client()
    assert [node.id for node in scp.list_nodes()] == ["i1"]
    assert [node.id for node in scp.list_nodes(state="TERMINATED")] == ["i2"]
    assert [node.id for node in scp.get_node_listing().read_all()] == ["i1"]
