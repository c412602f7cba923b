"""Test filters, sorting and 0-based pages of the emulated SCP."""

from typing import Any

import httpx
import pytest
from emulator.scp.scp_client import NEW_NODE_SECONDS, POOL, Json, ScpClient, build_create_body
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import MultiDict

from gpuform.providers.emulator.scp.queries import ListQuery

NODES, FABRICS = "/v1/gpu-nodes", "/v1/cluster-fabrics"


@pytest.fixture
def create_many_nodes(scp: ScpClient, control: Any) -> list[str]:
    """Create 24 nodes in six fabrics and return the names, oldest first."""
    names = []
    for at in range(6):
        batch = [f"n-{9 - at}{number}" for number in range(4)]
        scp.create(build_create_body(*batch, fabric=f"fabric-{at}"))
        names += batch
        control.advance(60)
    control.advance(NEW_NODE_SECONDS)
    return names


def list_names(scp: ScpClient, **query: object) -> list[str]:
    answer = scp.get(f"{NODES}?{httpx.QueryParams({k: str(v) for k, v in query.items()})}")
    return [node["gpu_node_name"] for node in answer["gpu_nodes"]]


def test_the_first_page_has_twenty_entries_and_the_total_count(
    scp: ScpClient, create_many_nodes: list[str]
) -> None:
    answer = scp.get(NODES)
    assert (answer["count"], len(answer["gpu_nodes"])) == (24, 20)
    created = [node["created_at"] for node in answer["gpu_nodes"]]
    assert created == sorted(created, reverse=True)


@pytest.mark.parametrize("size", [1, 5, 20, 24, 25, 2**31 - 1])
def test_all_pages_together_are_the_complete_list(
    scp: ScpClient, create_many_nodes: list[str], size: int
) -> None:
    listed_names: list[str] = []
    for page in range(25):
        more = list_names(scp, size=size, page=page, sort="gpu_node_name:asc")
        assert len(more) <= size
        listed_names += more
        if not more:
            break
    assert listed_names == sorted(create_many_nodes)


@pytest.mark.parametrize("field", ["created_at", "gpu_node_name", "policy_ip", "state", "id"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_list_is_in_the_order_asked_for(
    scp: ScpClient, create_many_nodes: list[str], field: str, order: str
) -> None:
    nodes = scp.get(f"{NODES}?size=100&sort={field}:{order}")["gpu_nodes"]
    values = [node[field] for node in nodes]
    assert len(values) == 24
    assert values == sorted(values, reverse=order == "desc")


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ({"gpu_node_name": "n-90"}, 1),
        ({"gpu_node_name": "n-9"}, 0),
        ({"state": "RUNNING"}, 24),
        ({"state": "ERROR"}, 0),
        ({"ip": "192.168.0.1"}, 1),
        ({"vpc_id": "e58348b1bc9148e5af86500fd4ef99ca"}, 24),
        ({"vpc_id": "x"}, 0),
        ({"cluster_fabric_name": "fabric-3"}, 4),
        ({"cluster_fabric_name": "fabric-3", "gpu_node_name": "n-90"}, 0),
        ({"state": "", "ip": "null", "size": "", "page": "null", "sort": ""}, 24),
    ],
)
def test_nodes_are_filtered(
    scp: ScpClient, create_many_nodes: list[str], query: dict[str, str], number: int
) -> None:
    assert scp.get(f"{NODES}?{httpx.QueryParams(query)}")["count"] == number


def test_nodes_are_filtered_by_the_id_of_their_fabric(
    scp: ScpClient, create_many_nodes: list[str]
) -> None:
    fabric = scp.get_fabrics()["fabric-1"]
    assert set(list_names(scp, cluster_fabric_id=fabric["id"])) == set(create_many_nodes[4:8])


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("", 6),
        ("cluster_fabric_name=fabric-1", 1),
        ("cluster_fabric_name=fabric", 0),
        ("state=RUNNING", 6),
        ("state=CREATING", 0),
        (f"node_pool_id={POOL}", 6),
        ("node_pool_id=POOL002-krw1b", 0),
        ("size=4&page=1", 6),
    ],
)
def test_fabrics_are_filtered_and_paged(
    scp: ScpClient, create_many_nodes: list[str], query: str, number: int
) -> None:
    answer = scp.get(f"{FABRICS}?{query}")
    assert answer["count"] == number
    assert len(answer["cluster_fabrics"]) == (2 if "page=1" in query else number)


@pytest.mark.parametrize(
    "query",
    [
        "size=0",
        "size=-1",
        "size=x",
        "size=1.5",
        "size=" + "9" * 5000,
        "page=-1",
        "page=x",
        "page=%C2%B2",
        "sort=created_at",
        "sort=created_at:up",
        "sort=:asc",
        "sort=pfs_ip:asc",
        "sort=nothing:asc",
        "limit=5",
    ],
)
@pytest.mark.parametrize("path", [NODES, FABRICS])
def test_a_malformed_query_is_refused(scp: ScpClient, path: str, query: str) -> None:
    assert query.partition("=")[0] in scp.require_refusal("GET", f"{path}?{query}")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.text(max_size=2))), max_size=30),
    st.integers(1, 40),
    st.booleans(),
)
def test_pages_neither_lose_nor_repeat_entries(
    rows: list[tuple[int, str | None]], size: int, descending: bool
) -> None:
    views: list[Json] = [
        {"id": str(at), "group": str(group), "name": name} for at, (group, name) in enumerate(rows)
    ]
    args = MultiDict({"size": str(size), "sort": f"name:{'desc' if descending else 'asc'}"})
    listing = ListQuery.parse(args, {}, ["name"])
    matches = listing.filter_and_sort(views)
    paged = []
    for page in range(len(views) + 1):
        args["page"] = str(page)
        paged += ListQuery.parse(args, {}, ["name"]).select_page(matches)
    assert paged == matches
    assert sorted(view["id"] for view in matches) == sorted(view["id"] for view in views)
    named = [view["name"] for view in matches if view["name"] is not None]
    assert named == sorted(named, reverse=descending)
